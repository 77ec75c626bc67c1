"""What a policy says of its own answers, beside what became of them. Knows nothing of folds.

A curve says beforehand how right its votes will be. Others say how far the votes agree: the leader's share of
all votes where they stopped, which is what a gateway tells with each answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.paths.paths import Paths
from adacompute.policies.base import Policy
from adacompute.replay.run import run

__all__ = ["Foretold", "foretold", "together"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

ACCURACY, AGREEMENT = "accuracy foretold", "share of the votes"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Foretold:
    """Requests, each with what was said of its answer and whether that was right, all (requests,)."""

    what: str  # was said
    budget: float  # samples on average, asked for
    problem: Ints = field(repr=False)  # rows
    said: Floats = field(repr=False)  # 0 to 1
    right: Floats = field(repr=False)  # 0 to 1


def foretold(policy: Policy, paths: Paths, *, dial: float, budget: float, agrees: bool = False) -> Foretold:
    """A policy along paths at one dial; with `agrees`, right is what the vote of all samples says."""
    found = run(policy, paths, dial=dial)
    standing = paths.standing(np.arange(len(paths)), found.drawn)
    told: Any = getattr(policy, "foretold", None)
    if told is None:
        some = standing.total > 0
        said = np.divide(standing.lead, standing.total, out=np.zeros(len(standing)), where=some)
    else:
        said = told(policy.read(paths.ballots.prompts)[paths.problems], standing)
    return Foretold(
        what=AGREEMENT if told is None else ACCURACY,
        budget=budget,
        problem=paths.problems,
        said=said,
        right=found.agrees if agrees else found.grade,
    )


def together(parts: Sequence[Foretold], rows: Sequence[Ints]) -> Foretold:
    """Of all folds; `rows` are the problems of each, (problems,), as numbered in all."""
    return Foretold(
        what=parts[0].what,
        budget=parts[0].budget,
        problem=np.concatenate([own[part.problem] for part, own in zip(parts, rows, strict=True)]),
        said=np.concatenate([part.said for part in parts]),
        right=np.concatenate([part.right for part in parts]),
    )
