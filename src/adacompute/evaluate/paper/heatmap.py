"""Budgets by difficulty: the oracle's over the classifier's, on all problems and on those held out.

Knows nothing of how a classifier learns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.fits import Fits

__all__ = ["HEAT", "Heatmap", "heatmap", "heatmaps"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

HEAT = (1.2, 1.5, 3.0)  # the paper's average budgets for this figure


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Heatmap:
    """Shares of each group's problems by budget, (groups, budgets) each; rows add up to 1.

    A group of which no problem was held out has NaN there.
    """

    budget: float  # samples on average, asked for
    kind: str  # of the groups
    groups: tuple[str, ...]
    budgets: tuple[int, ...]
    sizes: tuple[int, ...]  # (groups,) problems
    judged: tuple[int, ...]  # (groups,) held-out decisions, over all seeds
    oracle: Floats = field(repr=False)
    paper: Floats = field(repr=False)  # the classifier's, on all problems, those learned from included
    held_out: Floats = field(repr=False)  # the classifier's, on the problems not learned from
    paper_moved: float  # share of all decisions that would have to change for the oracle's picture
    held_out_moved: float  # the same, held-out, against the oracle on the same problems


def heatmaps(case: Case, fits: Mapping[float, Fits], budgets: Sequence[float] = HEAT) -> tuple[Heatmap, ...]:
    """A heatmap for each average budget that there are fits for."""
    return tuple(heatmap(case, fits[budget]) for budget in map(float, budgets) if budget in fits)


def heatmap(case: Case, fits: Fits) -> Heatmap:
    """One average budget, by level or by fifth."""
    group, everyone = case.difficulty.group, np.ones_like(fits.train)
    labels = np.broadcast_to(fits.labels, fits.predicted.shape)
    width = len(case.budgets)

    def counted(columns: Ints, here: npt.NDArray[np.bool_]) -> Ints:
        """Decisions by group and budget, (groups, budgets)."""
        place = np.broadcast_to(group, columns.shape)[here] * width + columns[here]
        return np.bincount(place, minlength=len(case.difficulty.names) * width).reshape(-1, width)

    oracle, paper = counted(labels, everyone), counted(fits.predicted, everyone)
    told, held_out = counted(labels, ~fits.train), counted(fits.predicted, ~fits.train)
    return Heatmap(
        budget=fits.budget,
        kind=case.difficulty.kind,
        groups=case.difficulty.names,
        budgets=case.budgets,
        sizes=tuple(np.bincount(group, minlength=len(case.difficulty.names)).tolist()),
        judged=tuple(held_out.sum(axis=1).tolist()),
        oracle=_shares(oracle),
        paper=_shares(paper),
        held_out=_shares(held_out),
        paper_moved=_moved(oracle, paper),
        held_out_moved=_moved(told, held_out),
    )


def _shares(counts: Ints) -> Floats:
    total = counts.sum(axis=1, keepdims=True)
    return np.where(total > 0, counts / np.maximum(total, 1), np.nan)


def _moved(one: Ints, other: Ints) -> float:
    return float(np.abs(one - other).sum() / 2 / max(1, one.sum()))
