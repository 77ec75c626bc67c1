"""A part of a generator's stream, without drawing what comes before it. Knows nothing of what is drawn."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.errors import ScaleError

__all__ = ["checked_stream", "later", "runs"]

Ints = npt.NDArray[np.int64]


def checked_stream(rng: np.random.Generator) -> None:
    """Refuses generators whose stream can't be entered in the middle."""
    if not isinstance(rng.bit_generator, np.random.PCG64):
        raise ScaleError(
            f"a {type(rng.bit_generator).__name__} can't be shared out to shards; give "
            "rng=np.random.default_rng(seed), which is a PCG64, or engine='local'"
        )


def later(rng: np.random.Generator, draws: int) -> np.random.Generator:
    """A generator that stands `draws` numbers of 64 bits further on; the one that is given stays."""
    state: Any = rng.bit_generator.state
    there = np.random.PCG64()
    there.state = state
    there.advance(draws)
    moved: Any = there.state
    there.state = moved | {"has_uint32": state["has_uint32"], "uinteger": state["uinteger"]}
    return np.random.Generator(there)


def runs(ranks: Ints) -> Iterator[slice]:
    """Where ascending ranks follow each other without a gap: slices of them."""
    ends = np.flatnonzero(np.diff(ranks) != 1) + 1
    for start, end in zip([0, *ends.tolist()], [*ends.tolist(), len(ranks)], strict=True):
        if end > start:
            yield slice(start, end)
