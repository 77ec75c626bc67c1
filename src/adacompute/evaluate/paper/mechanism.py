"""How one price makes many different decisions: every problem's budget by price, all together, and one.

Knows nothing of averages to be met. Exact: a problem's budget changes at the slopes of its own hull.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.paper.case import Case
from adacompute.solve.hull import slopes

__all__ = ["Mechanism", "Regime", "Shown", "mechanism"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_GRID = 120  # prices
_LEAST = 1e-3  # the smallest price looked at, but for 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Regime:
    """One problem at one price."""

    price: float
    net: Floats  # (budgets,) accuracy less price times samples
    best: int  # column of the most


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shown:
    """A responsive problem: of those whose budget changes most often, the one with most to gain."""

    row: int
    problem: str  # its id
    accuracy: Floats  # (budgets,)
    turns: tuple[tuple[float, int], ...]  # price from which on, and the budget it falls to; rising prices
    regimes: tuple[Regime, ...]  # up to three, at rising prices


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mechanism:
    """The oracle at every price."""

    budgets: tuple[int, ...]
    prices: Floats = field(repr=False)  # (prices,) rising, from 0
    chosen: Ints = field(repr=False)  # (problems, prices) columns
    shares: Floats = field(repr=False)  # (prices, budgets) of all problems
    single: Floats = field(repr=False)  # (problems,) accuracy of one sample
    critical: Floats = field(repr=False)  # (budgets - 1, problems) the price that ends each step up
    shown: Shown | None  # None: no problem's vote ever gains


def mechanism(case: Case) -> Mechanism:
    """Every problem's budget at every price, by the paper's windows."""
    table = case.windows
    critical = slopes(np.asarray(table.accuracy), np.asarray(table.costs))  # (budgets - 1, problems)
    highest = max(20 * _LEAST, 1.2 * float(critical.max(initial=0.0)))
    prices = np.append(0.0, np.geomspace(_LEAST, highest, _GRID))
    chosen = (critical[:, :, None] > prices).sum(axis=0)
    width = len(case.budgets)
    counts = np.stack([np.bincount(column, minlength=width) for column in chosen.T])
    return Mechanism(
        budgets=case.budgets,
        prices=prices,
        chosen=chosen,
        shares=counts / len(case),
        single=table.accuracy[:, 0],
        critical=critical,
        shown=_shown(case, critical),
    )


def _shown(case: Case, critical: Floats) -> Shown | None:
    paying = np.where(critical > 0, critical, np.nan)
    edges = [np.unique(row[~np.isnan(row)]) for row in paying.T]  # rising slopes, an edge each
    accuracy = np.asarray(case.windows.accuracy)
    gain = accuracy.max(axis=1) - accuracy[:, 0]
    count = np.array([min(3, len(own)) for own in edges])
    row = int(np.lexsort((-gain, -count))[0])
    if not len(edges[row]):
        return None
    budgets = np.asarray(case.budgets)

    def falls_to(price: float) -> int:
        return int((critical[:, row] > price).sum())

    regimes = []
    for price in _between(edges[row]):
        net = accuracy[row] - price * budgets
        regimes.append(Regime(price=price, net=net, best=falls_to(price)))
    return Shown(
        row=row,
        problem=case.ballots.ids[row],
        accuracy=accuracy[row],
        turns=tuple((float(edge), int(budgets[falls_to(float(edge))])) for edge in edges[row]),
        regimes=tuple(regimes),
    )


def _between(edges: Floats) -> list[float]:
    """Up to three prices with different budgets: below the lowest edge, between two, above the highest."""
    found = [float(edges[0]) / 2]
    if len(edges) > 1:
        at = len(edges) // 2
        found.append(float(np.sqrt(edges[at - 1] * edges[at])))
    return [*found, float(edges[-1]) * 1.3]
