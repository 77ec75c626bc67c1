"""Output tokens a request, beside samples: what each policy writes, and all alike. Knows no price."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.beyond.lines import Line, grid_of, line_of
from adacompute.evaluate.bootstrap import Bootstrap, Interval, interval_of
from adacompute.evaluate.entrants import PLAIN
from adacompute.evaluate.matched import Points, matched
from adacompute.evaluate.measure import Basis
from adacompute.evaluate.pooled import Pooled
from adacompute.evaluate.protocols import Played
from adacompute.evaluate.told import boot_of
from adacompute.pool.ballots import ABSENT
from adacompute.replay.hull import hull

__all__ = ["Spending", "Tokens", "per_sample", "tokens_of"]

Floats = npt.NDArray[np.float64]

_DRAWS = 500  # of problems: each has a hull of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """One policy at exactly one average number of samples."""

    policy: str
    budget: float
    samples: float  # a request: the budget, or less where even its best setting costs less
    tokens: Interval  # a request
    accuracy: float
    same: float | None  # tokens of all alike that are as accurate; None: more than there are
    saved: Interval | None  # share of those; None: can't be told, or it is all alike


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Every policy in tokens."""

    per_sample: float  # output tokens, mean over problems
    rows: tuple[Spending, ...]
    lines: tuple[Line, ...]  # accuracy by tokens a request
    basis: Basis

    def of(self, policy: str, budget: float) -> Spending | None:
        return next((one for one in self.rows if (one.policy, one.budget) == (policy, budget)), None)


def per_sample(found: Played) -> float | None:
    """Output tokens of a sample, mean over problems; None where some sample has none recorded."""
    ballots = found.setup.ballots
    there = ballots.classes != ABSENT
    if not np.isfinite(ballots.tokens[there]).all():
        return None
    own = np.where(there, ballots.tokens, 0.0).sum(axis=1) / there.sum(axis=1)
    return float(own.mean())


def tokens_of(found: Played) -> Tokens | None:
    """None where tokens aren't recorded of every sample."""
    each = per_sample(found)
    known = {one.name: one.point_tokens for one in found.everyone if one.point_tokens is not None}
    if each is None or PLAIN not in known or not each > 0:
        return None
    setup = found.setup
    boot = boot_of(setup)
    plain = found.of(PLAIN)
    by_tokens = {
        one.name: Points(cost=known[one.name], accuracy=one.points.accuracy)
        for one in found.everyone
        if one.name in known
    }
    alone = by_tokens[PLAIN].cost.mean(axis=1)  # (settings,)
    grid = grid_of(float(alone.max()), least=float(alone.min()))
    lines = [line_of(name, points, grid, boot, base=by_tokens[PLAIN]) for name, points in by_tokens.items()]
    alike = _Alike(by_tokens[PLAIN], boot.shares[:_DRAWS])
    rows = [
        row
        for one in found.everyone
        for budget in setup.budgets
        if (row := _spending(one, budget, known[one.name], alike, boot, plain=one is plain)) is not None
    ]
    return Tokens(
        per_sample=each,
        rows=tuple(rows),
        lines=tuple(line for line in lines if line is not None),
        basis=setup.basis,
    )


class _Alike:
    """All alike by tokens: over all problems, and in each draw of them."""

    def __init__(self, points: Points, shares: Floats) -> None:
        self.shares = shares if points.cost.shape[1] > 1 else shares[:0]
        self.whole = points.curve()
        drawn = zip(self.shares @ points.cost.T, self.shares @ points.accuracy.T, strict=True)
        self.drawn = [(cost[at], right[at]) for cost, right in drawn for at in (hull(cost, right),)]

    def first(self, wanted: float, curve: tuple[Floats, Floats]) -> float:
        """Tokens at which all alike are so accurate; infinite where even the most aren't."""
        cost, accuracy = curve
        return math.inf if wanted > accuracy[-1] + 1e-12 else float(np.interp(wanted, accuracy, cost))


def _spending(
    one: Pooled, budget: float, tokens: Floats, alike: _Alike, boot: Bootstrap, *, plain: bool
) -> Spending | None:
    at = matched(one.points, budget)
    if at is None:
        return None
    first, second = at.settings
    written = (1 - at.probability) * tokens[first] + at.probability * tokens[second]  # (problems,)
    same = alike.first(at.accuracy, alike.whole)
    saved = None
    if not plain and math.isfinite(same):
        saved = Interval(mean=1 - float(written.mean()) / same, low=None, high=None)
        if len(alike.drawn):
            needs = np.array(
                [
                    alike.first(wanted, curve)
                    for wanted, curve in zip(alike.shares @ at.each, alike.drawn, strict=True)
                ]
            )
            saved = interval_of(
                saved.mean, 1 - (alike.shares @ written) / needs
            )  # nothing is left of infinity
    return Spending(
        policy=one.name,
        budget=budget,
        samples=at.cost,
        tokens=boot.interval(written),
        accuracy=at.accuracy,
        same=same if math.isfinite(same) else None,
        saved=saved,
    )
