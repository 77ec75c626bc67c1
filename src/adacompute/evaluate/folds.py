"""Which problems are learned from and which are judged. Knows nothing of policies.

Problems that ask the very same question stay together: a policy that has seen the question has seen the
problem, whatever its id.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adacompute.errors import TooFewSamples

__all__ = ["Split", "kfold", "shares"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Split:
    """Rows to learn from, and rows to judge on."""

    train: Ints
    test: Ints


def kfold(prompts: Sequence[str], folds: int, rng: np.random.Generator) -> tuple[Split, ...]:
    """Each problem is judged once, by what was learned from the other folds.

    >>> [split.test.tolist() for split in kfold(["a", "b", "a", "c"], 2, np.random.default_rng(0))]
    [[0, 2, 3], [1]]
    """
    group = _groups(prompts)
    count = int(group.max(initial=-1)) + 1
    if count < 2:
        raise TooFewSamples(
            f"{count} different question{'' if count == 1 else 's'} can't be split into some to learn from "
            "and others to judge on; collect 2 or more"
        )
    if not 2 <= folds <= count:
        raise TooFewSamples(f"{folds} folds can't be made of {count} different questions; give 2 to {count}")
    fold = np.empty(count, dtype=np.int64)
    for number, part in enumerate(np.array_split(rng.permutation(count), folds)):
        fold[part] = number
    return tuple(
        Split(train=np.flatnonzero(fold[group] != number), test=np.flatnonzero(fold[group] == number))
        for number in range(folds)
    )


def shares(prompts: Sequence[str], rng: np.random.Generator, *, train: float = 0.8) -> Split:
    """The paper's: learned from a random share of the problems, judged on all, the learned ones too."""
    group = _groups(prompts)
    count = int(group.max(initial=-1)) + 1
    if count < 2:
        raise TooFewSamples(f"{count} different questions can't be split; collect more problems")
    kept = rng.permutation(count)[: min(count - 1, max(1, round(train * count)))]
    return Split(train=np.flatnonzero(np.isin(group, kept)), test=np.arange(len(prompts)))


def _groups(prompts: Sequence[str]) -> Ints:
    """The number of each problem's question, by first appearance, (problems,)."""
    names: dict[str, int] = {}
    return np.array([names.setdefault(prompt, len(names)) for prompt in prompts], dtype=np.int64)
