"""The held-out frontier of every policy, beside the one-shot oracle's two ends. Knows no drawing."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.beyond.lines import Line, grid_of, line_of
from adacompute.evaluate.bracket import Oracle
from adacompute.evaluate.entrants import PLAIN
from adacompute.evaluate.matched import joined
from adacompute.evaluate.measure import Basis
from adacompute.evaluate.protocols import Played
from adacompute.evaluate.told import boot_of

__all__ = ["PUBLISHED", "RULES", "Frontier", "OracleLine", "frontier_of"]

Floats = npt.NDArray[np.float64]

RULES = ("asc", "esc", "doubling")  # published, and ready to use as they are
PUBLISHED = "published"  # the joint hull of those and of all alike


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OracleLine:
    """The oracle's two ends by average cost, (points,) each."""

    choices: tuple[int, ...]  # samples that it may give a problem
    cost: Floats = field(repr=False)
    low: Floats | None = field(repr=False)  # cross-fitted; None: too few samples to tell
    high: Floats = field(repr=False)  # in-sample
    why: str = ""  # there is no low end


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frontier:
    """Every policy at every average cost from one sample to the most."""

    lines: tuple[Line, ...]
    published: Line | None  # the best mix of uniform and the published rules
    oracle: OracleLine | None  # None: without grades there is none
    problems: int
    folds: int
    weighted: bool  # votes were
    basis: Basis
    longest: int  # samples a request, at most
    budgets: tuple[float, ...]  # average costs that are looked at closely

    def of(self, policy: str) -> Line | None:
        """A policy's line; None where it took no part."""
        return next((one for one in self.lines if one.policy == policy), None)


def frontier_of(found: Played, *, oracle: Oracle | None = None) -> Frontier:
    """The lines of one evaluation, held-out, each with its band over problems."""
    setup = found.setup
    boot, grid = boot_of(setup), grid_of(float(setup.longest), setup.budgets)
    base = found.of(PLAIN).points
    lines = [line_of(one.name, one.points, grid, boot, base=base) for one in found.everyone]
    rules = [one.points for one in found.everyone if one.name in RULES]
    return Frontier(
        lines=tuple(line for line in lines if line is not None),
        published=line_of(PUBLISHED, joined([base, *rules]), grid, boot, base=base) if rules else None,
        oracle=_oracle(found, grid, oracle) if setup.basis == "accuracy" else None,
        problems=len(setup.ballots),
        folds=found.parts,
        weighted=setup.weighted,
        basis=setup.basis,
        longest=setup.longest,
        budgets=setup.budgets,
    )


def _oracle(found: Played, grid: Floats, oracle: Oracle | None) -> OracleLine:
    oracle = Oracle.of(found.setup) if oracle is None else oracle
    cost, low, high = [], [], []
    for budget in grid[grid <= oracle.choices[-1]].tolist():
        spent, each = oracle.in_sample(budget)
        fitted = oracle.crossfitted(budget)
        cost.append(budget)
        high.append(float(each.mean()))
        low.append(np.nan if fitted is None else float(fitted.mean()))
        if spent < budget - 1e-6:  # it has no use for more
            break
    return OracleLine(
        choices=oracle.choices,
        cost=np.array(cost),
        low=np.array(low) if oracle.pairs else None,
        high=np.array(high),
        why=oracle.why,
    )
