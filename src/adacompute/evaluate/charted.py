"""What a policy costs and gives at some average budgets, as a chart to keep beside it. Knows no file.

Prices and costs are those of the policy itself on recorded samples, which needs no labels. What it gives is
told, where there are enough problems, by policies that haven't seen them: fitted on one half and judged on
the other. It is told for the budget met, as the gateway meets it: where many requests stand alike and one
price costs too little, by that price and the next one in turn.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from adacompute.errors import PolicyError, ScoreError
from adacompute.evaluate.folds import kfold
from adacompute.evaluate.remembered import Remembered
from adacompute.paths.paths import Paths, paths
from adacompute.policies.base import Dial, Policy
from adacompute.policies.chart import Chart, Row
from adacompute.pool import Ballots
from adacompute.replay.asked import affordable, replayable
from adacompute.replay.hull import hull

__all__ = ["BUDGETS", "Replays", "charted", "drawn_chart", "told"]

Floats = npt.NDArray[np.float64]
Refit = Callable[[Ballots], Policy]

BUDGETS = (1.2, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
ORDERS = 20

_FEW = 60  # problems: fewer make no two halves to learn from
_SPAN = (1e-9, 1e3)  # of prices per sample that are looked at, beside 0
_STEPS = 60
_FINE = 1e-9  # of a dial: steps of cost nearer to each other than that are taken as one
_NEAR = 0.005  # of a budget
_ABOUT = 1.15  # times a dial: where one fitted on half as much is looked for first
_DIGITS = 5  # of a price
_REFUSED = (PolicyError, ScoreError)  # a half may have too little to learn from


class Replays:
    """Policies, each over paths of problems of its own, at any dial. All have one kind of dial."""

    def __init__(self, parts: Sequence[tuple[Policy, Paths]]) -> None:
        self.dial: Dial | None = parts[0][0].dial
        self.unit = str(getattr(parts[0][0], "unit", "samples"))
        self.span = (0.0, 1.0) if self.dial == "threshold" else tuple(map(parts[0][0].priced, _SPAN))
        self.problems = sum(len(some.ballots) for _, some in parts)
        self._parts = [(Remembered(policy, some), some) for policy, some in parts]
        self._share = np.concatenate([np.full(len(some), 1 / some.orders) for _, some in parts])  # of a path
        self._known: dict[float | None, dict[str, float]] = {}

    def at(self, dial: float | None) -> Mapping[str, float]:
        """Means over requests; accuracy is that of problems with labels, NaN where there are none."""
        if dial not in self._known:
            found: dict[str, list[Floats]] = {}
            for remembered, some in self._parts:
                run = remembered.run(dial)
                at = (run.drawn - 1, np.arange(len(some)))
                share = some.lead[at] / np.maximum(some.total[at], np.finfo(float).tiny)
                values = {"cost": run.drawn, "waves": run.waves, "agreement": share, "square": share**2}
                for name, value in {**values, "stays": run.agrees, "accuracy": run.grade}.items():
                    found.setdefault(name, []).append(np.asarray(value, dtype=np.float64))
            self._known[dial] = {name: self._mean(np.concatenate(parts)) for name, parts in found.items()}
        return self._known[dial]

    @property
    def tried(self) -> list[float]:
        """The dials that were asked for so far."""
        return [dial for dial in self._known if dial is not None]

    def near(self, cost: float, guess: float) -> Mapping[str, float]:
        """As `at`, at an average cost: the mix of the two dials around it, looked for about a guess."""
        for dial in (guess / _ABOUT, guess * _ABOUT):
            self.at(min(self.span[1], dial))
        low, high = around(self, cost)
        dear, cheap = self.at(low), self.at(high)
        apart = dear["cost"] - cheap["cost"]
        share = float(np.clip((cost - cheap["cost"]) / apart, 0, 1)) if apart > 0 else 0.0
        return {name: share * dear[name] + (1 - share) * cheap[name] for name in cheap}

    def uniform(self, accuracy: float) -> float:
        """Samples for all alike that are as accurate, on the same paths; the most there are where none is."""
        longest = min(some.longest for _, some in self._parts)
        reached = [
            self._mean(np.concatenate([some.grade[step] for _, some in self._parts]))
            for step in range(longest)
        ]
        corners = hull(np.arange(1.0, longest + 1), reached)
        if accuracy > reached[corners[-1]]:
            return float(longest)
        return float(np.interp(accuracy, np.array(reached)[corners], corners + 1.0))

    def _mean(self, values: Floats) -> float:
        known = np.isfinite(values)
        if not known.any():
            return math.nan
        return float(np.average(values[known], weights=self._share[known]))


class _Around(NamedTuple):
    low: float  # costs more, or it is the lowest that is looked at
    high: float  # costs no more, or it is the highest


def around(replays: Replays, cost: float) -> _Around:
    """The two dials whose costs are the nearest to a cost, one on each side."""

    def spent(dial: float) -> float:
        return replays.at(dial)["cost"]

    low, high = replays.span
    if spent(0.0) <= cost:
        return _Around(0.0, 0.0)
    if spent(low) <= cost:
        return _Around(0.0, low)
    known = [(dial, spent(dial)) for dial in replays.tried if low < dial < high]
    low = max([low, *(dial for dial, had in known if had > cost)])
    high = min([high, *(dial for dial, had in known if had <= cost and dial > low)])
    for _ in range(_STEPS):
        if high - low <= _FINE * high or spent(high) >= cost * (1 - _NEAR):
            break
        middle = math.sqrt(low * high) if low > 0 else (low + high) / 2
        low, high = (middle, high) if spent(middle) > cost else (low, middle)
    return _Around(low, high)


def charted(
    policy: Policy,
    ballots: Ballots,
    *,
    refit: Refit | None = None,
    budgets: Sequence[float] = BUDGETS,
    orders: int = ORDERS,
    seed: int = 0,
) -> Chart | None:
    """The chart of a policy that was fitted on these samples; `refit` fits its like on some of them.

    A policy without a dial is charted at the first budget: the one that it was fitted for. None: it reaches
    none of the budgets.
    """
    ballots, _ = replayable(ballots, policy.longest)
    own = Replays([(policy, _paths(policy, ballots, orders, seed))])
    held = _held_out(ballots, refit, orders=orders, seed=seed) if len(ballots) >= _FEW else None
    votes = "plain votes" if policy.weigh is None else f"votes weighted by {policy.weigh.signal}"
    how = (
        "in-sample: on the problems that it was fitted on"
        if held is None
        else "prices and costs in-sample; agreement and accuracy with the budget met, held out: fitted on "
        "one half, judged on the other"
    )
    protocol = (
        f"replay of the pool it was fitted on, {len(ballots)} problems, {orders} orders, {votes}; {how}"
    )
    return drawn_chart(own, held or own, budgets=budgets, protocol=protocol)


def drawn_chart(own: Replays, judged: Replays, *, budgets: Sequence[float], protocol: str) -> Chart | None:
    """A row for each budget that can be reached: its price by `own`, what it gives by `judged`."""
    rows: list[Row] = []
    if own.dial is None:
        rows.append(_row(own.at(None), judged.at(None), judged, budget=budgets[0], price=None))
    else:
        most, least = own.at(0.0)["cost"], own.at(own.span[1])["cost"]
        for budget in sorted(budgets):
            if not least <= budget <= most * (1 + _NEAR):
                continue
            price = told(around(own, budget).high)
            if rows:  # rounded up, it may pass the one before
                price = min(price, rows[-1].price or 0.0)
            spent = own.at(price)
            if not rows or spent["cost"] >= rows[-1].cost:  # with few waves it may fall
                rows.append(_row(spent, judged.near(budget, price), judged, budget=budget, price=price))
    if not rows:
        return None
    return Chart(dial=own.dial, unit=own.unit, problems=own.problems, protocol=protocol, rows=tuple(rows))


def told(price: float) -> float:
    """A price as it is printed, rounded up: what is spent is measured at the number that people copy."""
    if price <= 0:
        return price
    step = 10.0 ** (math.floor(math.log10(price)) - _DIGITS + 1)
    return float(f"{math.ceil(price / step - 1e-9) * step:.{_DIGITS}g}")


def _row(
    spent: Mapping[str, float],
    given: Mapping[str, float],
    judged: Replays,
    *,
    budget: float,
    price: float | None,
) -> Row:
    right = None if math.isnan(given["accuracy"]) else min(1.0, given["accuracy"])
    agreement = min(1.0, given["agreement"])
    return Row(
        budget=budget,
        price=price,
        cost=spent["cost"],
        waves=spent["waves"],
        agreement=agreement,
        deviation=math.sqrt(max(0.0, given["square"] - agreement**2)),
        stays=min(1.0, spent["stays"]),
        accuracy=right,
        uniform=None if right is None else judged.uniform(right),
    )


def _held_out(ballots: Ballots, refit: Refit | None, *, orders: int, seed: int) -> Replays | None:
    """Two policies, each over the half that it wasn't fitted on; None where that can't be had."""
    if refit is None:
        return None
    try:
        splits = kfold(ballots.prompts, 2, np.random.default_rng(seed))
        made = [(refit(ballots.only(split.train)), ballots.only(split.test)) for split in splits]
    except _REFUSED:
        return None
    return Replays([(policy, _paths(policy, test, orders, seed + 1)) for policy, test in made])


def _paths(policy: Policy, ballots: Ballots, orders: int, seed: int) -> Paths:
    affordable(ballots, orders, policy.longest)
    rng = np.random.default_rng(seed)
    return paths(ballots, rng=rng, orders=orders, longest=policy.longest, weigh=policy.weigh)
