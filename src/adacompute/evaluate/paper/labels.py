"""The oracle's budgets: how many problems get each, and which ones. Knows nothing of learning them.

They are told from the paper's windows, all problems together, as in the paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.paper.case import QUINTILES, Case
from adacompute.evaluate.paper.fits import oracle_labels
from adacompute.evaluate.paper.search import TARGETS, reachable

__all__ = ["Labels", "Scatter", "labels", "parts", "scatter", "scatters"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_DECILES = 10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Labels:
    """How many problems the oracle gives each budget, for one average budget."""

    budget: float  # samples on average, asked for
    price: float
    cost: float  # samples on average, of these labels
    budgets: tuple[int, ...]
    shares: Floats  # (budgets,) of all problems; they add up to 1

    @property
    def ones(self) -> float:
        """Share of problems that get the smallest budget."""
        return float(self.shares[0])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scatter:
    """Each problem's budget by its one-sample accuracy, for one average budget."""

    budget: float  # samples on average, asked for
    budgets: tuple[int, ...]
    ids: tuple[str, ...] = field(repr=False)  # (problems,)
    single: Floats = field(repr=False)  # (problems,) accuracy of one sample
    chosen: Ints = field(repr=False)  # (problems,) samples, the oracle's
    gain: Floats = field(repr=False)  # (problems,) the most that any budget adds to `single`
    decile_single: Floats = field(repr=False)  # (deciles,) mean accuracy of one sample
    decile_chosen: Floats = field(repr=False)  # (deciles,) mean budget
    fifths: tuple[str, ...]  # from the hardest to the easiest
    composition: Floats = field(repr=False)  # (fifths, budgets) shares of each fifth's problems

    @property
    def peak(self) -> float:
        """One-sample accuracy of the decile that gets most."""
        return float(self.decile_single[self.decile_chosen.argmax()])

    @property
    def inverted(self) -> bool:
        """Whether the middle gets more than both ends: neither the first tenth nor the last gets most."""
        at = int(self.decile_chosen.argmax())
        return 0 < at < len(self.decile_chosen) - 1


def labels(case: Case, budgets: Sequence[float] = TARGETS) -> tuple[Labels, ...]:
    """The label distribution for each average budget that the pool can reach."""
    found = []
    for budget in reachable(case, budgets):
        column, price = oracle_labels(case.windows, budget)
        found.append(
            Labels(
                budget=budget,
                price=price,
                cost=float(np.asarray(case.budgets)[column].mean()),
                budgets=case.budgets,
                shares=np.bincount(column, minlength=len(case.budgets)) / len(case),
            )
        )
    return tuple(found)


def scatters(case: Case, budgets: Sequence[float] = TARGETS) -> tuple[Scatter, ...]:
    """The scatter for each average budget that the pool can reach."""
    return tuple(scatter(case, budget) for budget in reachable(case, budgets))


def scatter(case: Case, budget: float) -> Scatter:
    """Who gets how much, at one average budget."""
    column, _ = oracle_labels(case.windows, budget)
    accuracy = case.windows.accuracy
    single, chosen = accuracy[:, 0], np.asarray(case.budgets, dtype=np.int64)[column]
    deciles, fifths = parts(single, _DECILES), parts(single, len(QUINTILES))
    width = len(case.budgets)
    return Scatter(
        budget=float(budget),
        budgets=case.budgets,
        ids=case.ballots.ids,
        single=single,
        chosen=chosen,
        gain=accuracy.max(axis=1) - single,
        decile_single=np.array([single[rows].mean() for rows in deciles]),
        decile_chosen=np.array([chosen[rows].mean() for rows in deciles]),
        fifths=QUINTILES[: len(fifths)],
        composition=np.array([np.bincount(column[rows], minlength=width) / len(rows) for rows in fifths]),
    )


def parts(values: Floats, count: int) -> list[Ints]:
    """Rows in groups of the same size, from the least value to the greatest, ties by row; none is empty.

    >>> [rows.tolist() for rows in parts(np.array([0.3, 0.1, 0.2]), 2)]
    [[1, 2], [0]]
    """
    return np.array_split(np.argsort(values, kind="stable"), min(count, len(values)))
