"""Output tokens a request, beside samples: what each policy writes, and all alike. Knows no price."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.beyond.lines import Line, grid_of, line_of
from adacompute.evaluate.bootstrap import Bootstrap, Interval, interval_of
from adacompute.evaluate.entrants import PLAIN
from adacompute.evaluate.matched import Matched, Points, matched
from adacompute.evaluate.measure import Basis
from adacompute.evaluate.pooled import Pooled
from adacompute.evaluate.protocols import Played
from adacompute.evaluate.told import boot_of
from adacompute.pool.ballots import ABSENT
from adacompute.replay.hull import hull

__all__ = ["Spending", "Tokens", "per_sample", "tokens_of"]

Floats = npt.NDArray[np.float64]

_DRAWS = 500  # of problems: each has a hull of its own
_TAIL = 0.025  # of the draws, above a 95% interval


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
    open_end: bool  # what is saved may be more: in some draws all alike are never so accurate
    length: Interval  # of a sample that it draws, by that of the average one


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
    own = _own(found)
    return None if own is None else float(own.mean())


def _own(found: Played) -> Floats | None:
    """Of each problem, (problems,)."""
    ballots = found.setup.ballots
    there = ballots.classes != ABSENT
    if not np.isfinite(ballots.tokens[there]).all():
        return None
    return np.asarray(np.where(there, ballots.tokens, 0.0).sum(axis=1) / there.sum(axis=1))


def tokens_of(found: Played) -> Tokens | None:
    """None where tokens aren't recorded of every sample."""
    own = _own(found)
    known = {one.name: one.point_tokens for one in found.everyone if one.point_tokens is not None}
    if own is None or PLAIN not in known or not own.mean() > 0:
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
        if (row := _spending(one, budget, known[one.name], alike, boot, own, plain=one is plain)) is not None
    ]
    return Tokens(
        per_sample=float(own.mean()),
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
    one: Pooled, budget: float, tokens: Floats, alike: _Alike, boot: Bootstrap, own: Floats, *, plain: bool
) -> Spending | None:
    at = matched(one.points, budget)
    if at is None:
        return None
    written = _written(at, one.points.cost, tokens)
    same = alike.first(at.accuracy, alike.whole)
    saved, open_end = None, False
    if not plain and math.isfinite(same):
        saved, open_end = _saved(at, written, same, alike)
    average = at.cost * own  # (problems,) tokens of as many samples of all problems alike
    longer = boot.means(written) / boot.means(average) if len(own) > 1 else None
    return Spending(
        policy=one.name,
        budget=budget,
        samples=at.cost,
        tokens=boot.interval(written),
        accuracy=at.accuracy,
        same=same if math.isfinite(same) else None,
        saved=saved,
        open_end=open_end,
        length=interval_of(float(written.mean() / average.mean()), longer),
    )


def _written(at: Matched, cost: Floats, tokens: Floats) -> Floats:
    """Each problem's part in the tokens at that cost, (problems,), as `Matched.each` is in the accuracy."""
    (one, other), share = at.settings, at.probability
    mixed, spent = ((1 - share) * values[one] + share * values[other] for values in (tokens, cost))
    apart = float((cost[other] - cost[one]).mean())
    each = float((tokens[other] - tokens[one]).mean()) / apart if apart > 0 and at.price else 0.0
    return np.asarray(mixed - each * (spent - at.cost))


def _saved(at: Matched, written: Floats, same: float, alike: _Alike) -> tuple[Interval, bool]:
    """The share saved, and whether its upper end is but the least that it may be."""
    mean = 1 - float(written.mean()) / same
    if not len(alike.drawn):
        return Interval(mean=mean, low=None, high=None), False
    needs = np.array(
        [alike.first(wanted, own) for wanted, own in zip(alike.shares @ at.each, alike.drawn, strict=True)]
    )
    most = np.array([cost[-1] for cost, _ in alike.drawn])  # of all alike, at their best
    found = interval_of(mean, 1 - (alike.shares @ written) / np.minimum(needs, most))
    return found, float(np.isinf(needs).mean()) > _TAIL
