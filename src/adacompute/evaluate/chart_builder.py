"""Builds a policy's chart: its cost and accuracy at several average budgets.

Prices and costs are measured on the samples that the policy was fitted on, and need no labels. If there are
enough problems, agreement and accuracy are measured on problems that a policy wasn't fitted on: either with
the policies that were fitted for the verdict (see `verdict.py`), or with two policies that are each fitted on
one half of the problems and tested on the other. They are interpolated between two prices, whose average
costs are above and below the budget.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.answers.vote import describe_votes
from adacompute.errors import PolicyError, ScoreError
from adacompute.evaluate.measure import CachedPolicy, hide_grades, select_graded
from adacompute.evaluate.mode_rivals import JointVotes, cut_to_common, follow_runs, follow_votes, mix_points
from adacompute.evaluate.parallel import Threads
from adacompute.evaluate.resampling import kfold
from adacompute.evaluate.verdict import FEWEST_PROBLEMS, FOLDS, PairedResults
from adacompute.policies.base import Dial, Policy, place_orders
from adacompute.policies.chart import Chart, ChartRow
from adacompute.policies.paths import Paths, PolicyRun, draw_paths, draw_paths_by_mode
from adacompute.policies.quality import QualityCurve
from adacompute.pool import Ballots
from adacompute.pool.groups import are_enough, count_groups, count_in_groups
from adacompute.replay.matching import (
    QUALITY_DIGITS,
    PolicyPoints,
    UniformVotes,
    compare_qualities,
    sum_by_group,
)
from adacompute.replay.per_problem import count_most, run_policy
from adacompute.replay.replay import check_memory, select_replayable
from adacompute.solve.hull import find_hull

Floats = npt.NDArray[np.float64]
Refit = Callable[[Ballots], Policy]
FoldFit = tuple[Policy, Sequence[str]]  # a fitted policy, and the prompts that it was fitted on

BUDGETS = (1.2, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
ORDERS = 20

_QUALITY_COSTS = 60  # number of average costs at which a policy over several modes is measured
_COST_RATIO = 1000.0  # with several modes: maximum ratio of the largest to the smallest average cost
_FEWEST_PROBLEMS = 60  # minimum number of problems for fitting on one half and testing on the other
_PRICE_RANGE = (1e-9, 1e3)  # minimum and maximum price per sample to try, besides 0
_STEPS = 60
_DIAL_TOLERANCE = 1e-9  # prices or thresholds with a smaller relative difference count as equal
_BUDGET_TOLERANCE = 0.005  # budgets with a smaller relative difference count as equal
# the search for a price or threshold begins at the guess divided by this factor, and at the guess times it
_GUESS_FACTOR = 1.15
_DIGITS = 5  # number of significant digits in a printed price
_UNFITTABLE = (PolicyError, ScoreError)  # errors that a fit raises if it gets too few problems


class PolicyReplays:
    """Replays policies at one price or threshold, each on its own problems; averages over all problems."""

    def __init__(self, parts: Sequence[tuple[Policy, Paths]], *, threads: Threads | None = None) -> None:
        """Takes (policy, random orders of the samples) pairs; with `threads`, policies run in parallel."""
        self.dial: Dial | None = parts[0][0].dial
        self.unit: Any = getattr(parts[0][0], "unit", "samples")
        self.dial_range = (
            (0.0, 1.0) if self.dial == "threshold" else tuple(map(parts[0][0].convert_price, _PRICE_RANGE))
        )
        self.problems = sum(len(paths.ballots) for _, paths in parts)
        self._parts = [(policy, CachedPolicy(policy, paths), paths) for policy, paths in parts]
        self._places = [place_orders(paths.ballots.prompts, paths.orders) for _, paths in parts]
        self._share = np.concatenate([np.full(len(paths), 1 / paths.orders) for _, paths in parts])
        self._map: Callable[..., Iterable[PolicyRun]] = map if threads is None else threads.map
        self._known: dict[float | None, dict[str, float]] = {}
        self._tails: dict[float | None, tuple[int, tuple[float, ...]]] = {}

    def at(self, dial: float | None) -> Mapping[str, float]:
        """Returns means per request at a price or threshold, e.g. "cost"; without labels, accuracy is NaN."""
        if dial not in self._known:
            values_by_name: dict[str, list[Floats]] = {}
            wanted = [
                (cached, policy.spread_dial(dial, places))
                for (policy, cached, _), places in zip(self._parts, self._places, strict=True)
            ]
            runs = list(self._map(lambda part: part[0].run(part[1]), wanted))
            for run, (*_, paths) in zip(runs, self._parts, strict=True):
                at = (run.drawn - 1, np.arange(len(paths)))
                share = paths.lead[at] / np.maximum(paths.total[at], np.finfo(float).tiny)
                values = {"cost": run.drawn, "waves": run.waves, "agreement": share, "square": share**2}
                values |= {"stays": run.agrees, "accuracy": run.grade, "tokens": run.tokens}
                for name, value in values.items():
                    values_by_name.setdefault(name, []).append(np.asarray(value, dtype=np.float64))
            self._known[dial] = {
                name: self._mean(np.concatenate(parts)) for name, parts in values_by_name.items()
            }
            waves, drawn = (
                np.bincount(np.concatenate([getattr(run, name) for run in runs]), weights=self._share)
                for name in ("waves", "drawn")
            )
            above = np.clip(1 - np.cumsum(drawn)[1:] / drawn.sum(), 0, 1).round(QUALITY_DIGITS)
            self._tails[dial] = count_most(waves, 0.95), tuple(above.tolist())
        return self._known[dial]

    def find_tails(self, dial: float | None) -> tuple[int, tuple[float, ...]]:
        """Returns the 95th percentile of rounds, and the share of requests with more than 1, 2, … samples."""
        self.at(dial)
        return self._tails[dial]

    @property
    def dials_tried(self) -> list[float]:
        """The prices or thresholds at which the policies have been replayed so far."""
        return [dial for dial in self._known if dial is not None]

    def at_cost(self, cost: float, guess: float) -> Mapping[str, float]:
        """Returns the means of `at` for an average cost, interpolated between two prices or thresholds.

        The search for these two begins near `guess`.
        """
        for dial in (guess / _GUESS_FACTOR, guess * _GUESS_FACTOR):
            self.at(min(self.dial_range[1], dial))
        low, high = bracket_dial(self, cost)
        at_low, at_high = self.at(low), self.at(high)
        spread = at_low["cost"] - at_high["cost"]
        share = float(np.clip((cost - at_high["cost"]) / spread, 0, 1)) if spread > 0 else 0.0
        return {name: share * at_low[name] + (1 - share) * at_high[name] for name in at_high}

    def uniform_samples(self, accuracy: float) -> float:
        """Finds how many samples uniform sampling needs to reach an accuracy; at most the recorded number."""
        longest = min(paths.longest for *_, paths in self._parts)
        accuracies = [
            self._mean(np.concatenate([paths.grade[step] for *_, paths in self._parts]))
            for step in range(longest)
        ]
        corners = find_hull(np.arange(1.0, longest + 1), accuracies)
        if accuracy > accuracies[corners[-1]]:
            return float(longest)
        return float(np.interp(accuracy, np.array(accuracies)[corners], corners + 1.0))

    def _mean(self, values: Floats) -> float:
        known = np.isfinite(values)
        if not known.any():
            return math.nan
        return float(np.average(values[known], weights=self._share[known]))


def bracket_dial(replays: PolicyReplays, cost: float) -> tuple[float, float]:
    """Finds two prices or thresholds: the average cost is above `cost` at the first, but not at the second.

    Returns (0, 0) if the average cost is at most `cost` even at a price of 0. If it is above `cost` at every
    price, the second number is the highest price.
    """

    def cost_at(dial: float) -> float:
        return replays.at(dial)["cost"]

    low, high = replays.dial_range
    if cost_at(0.0) <= cost:
        return 0.0, 0.0
    if cost_at(low) <= cost:
        return 0.0, low
    tried = [(dial, cost_at(dial)) for dial in replays.dials_tried if low < dial < high]
    low = max([low, *(dial for dial, had in tried if had > cost)])
    high = min([high, *(dial for dial, had in tried if had <= cost and dial > low)])
    for _ in range(_STEPS):
        if high - low <= _DIAL_TOLERANCE * high or cost_at(high) >= cost * (1 - _BUDGET_TOLERANCE):
            break
        middle = math.sqrt(low * high) if low > 0 else (low + high) / 2
        low, high = (middle, high) if cost_at(middle) > cost else (low, middle)
    return low, high


def build_chart(
    policy: Policy,
    ballots: Ballots,
    *,
    refit: Refit | None = None,
    budgets: Sequence[float] = BUDGETS,
    orders: int = ORDERS,
    seed: int = 0,
    threads: Threads | None = None,
    fits: Iterable[FoldFit] = (),
    judged: Callable[[], PairedResults | None] = lambda: None,
) -> Chart | None:
    """Builds the chart of a policy that was fitted on these samples; None if it can't meet any budget.

    `refit` fits a policy of the same kind on given samples. `fits` are policies of the same kind that are
    fitted already, each with the prompts that it was fitted on. If each problem was left out of exactly one
    of them, each is tested on the problems that it left out, and `refit` isn't called. `judged` returns the
    verdict's results, which give the chart its accuracies. `fits` and `judged` are used last, so both may
    still be computed meanwhile. With `threads`, fits and most replays run in these threads; this function
    must not run in one of them, because it waits for them. A policy without a price or threshold is measured
    only at the first budget, for which it was fitted.
    """
    ballots, _ = select_replayable(ballots.group(), policy.longest_by_mode)
    fitted = PolicyReplays([(policy, _make_paths(policy, ballots, orders, seed))])
    if threads is None:
        prices = find_prices(fitted, budgets)
    else:  # run the search for prices in one of the threads, after the tasks that were submitted earlier
        prices = threads.submit(find_prices, fitted, budgets).result()
    held_out, parts = None, "one half, judged on the other"
    if len(ballots) >= _FEWEST_PROBLEMS:
        tests = _find_tests(policy, ballots, tuple(fits))
        if tests is None:
            held_out = _replay_held_out(ballots, refit, orders=orders, seed=seed, threads=threads)
        else:
            held_out = _replay_tests(tests, orders=orders, seed=seed, threads=threads)
            parts = f"{len(tests) - 1} of {len(tests)} parts, judged on the other"
    votes = describe_votes(policy.weigh)
    method = (
        "in-sample: on the problems that it was fitted on"
        if held_out is None
        else "prices and costs in-sample; agreement and accuracy with the budget met, held out: fitted on "
        f"{parts}"
    )
    protocol = (
        f"replay of the pool it was fitted on, {len(ballots)} problems, {orders} orders, {votes}; {method}"
    )
    chart = assemble_chart(fitted, held_out or fitted, prices=prices, protocol=protocol)
    if chart is None:
        return None
    tokens = [fitted.at(row.price)["tokens"] for row in chart.rows]
    chart = replace(
        chart,
        rows=tuple(
            replace(row, tokens=None if math.isnan(mean) else mean)
            for row, mean in zip(chart.rows, tokens, strict=True)
        ),
        prompt_tokens=float(ballots.count_prompt_tokens().mean()),
        choices=ballots.charge.choices,
    )
    return _adopt_verdict(chart, judged())


def _adopt_verdict(chart: Chart, results: PairedResults | None) -> Chart:
    """Copies a verdict's quality curves, accuracies and what uniform sampling needs for them into a chart."""
    if results is None:
        return chart
    chart = replace(chart, qualities=measure_qualities(results), basis=results.basis)
    if results.basis != "accuracy":
        return chart
    rows = []
    for row in chart.rows:
        need = results.find_need(row.budget)
        rows.append(row if need is None else replace(row, accuracy=need[0], uniform=need[1]))
    return replace(chart, rows=tuple(rows))


def measure_qualities(results: PairedResults) -> tuple[QualityCurve, ...]:
    """Compares a policy's accuracy at each average cost with uniform sampling's, on the same problems."""
    costs = results.uniform.cost.mean(axis=1).round().astype(int).tolist()
    rivals = {
        cost: UniformVotes(cost, None, float(cost), rights)
        for cost, rights in zip(costs, results.uniform.accuracy, strict=True)
    }
    return compare_qualities(results.points, [rivals[samples] for samples in sorted(rivals)], digits=".2f")


def build_mode_chart(
    policy: Any,  # noqa: ANN401 - a policy over several modes
    ballots: Ballots,
    *,
    refit: Refit,
    seed: int = 0,
) -> Chart | None:
    """Measures what a policy over several modes gains over each mode alone, on held-out problems.

    Costs have the unit of the modes' costs. On each fold of the problems, a policy that `refit` has fitted on
    the other folds is tested. Similar problems are in the same fold. Returns None if there is only one mode,
    or there are too few problems or groups of similar problems.
    """
    graded, basis = select_graded(ballots.group().select(policy.modes))
    is_few = len(set(graded.prompts)) < FEWEST_PROBLEMS or not are_enough(graded.groups)
    if len(policy.modes) < 2 or is_few:
        return None
    splits = kfold(graded.groups, FOLDS, np.random.default_rng(seed))
    targets = np.geomspace(
        max(policy.cost_[0], policy.cost_[-1] / _COST_RATIO), policy.cost_[-1], _QUALITY_COSTS
    )
    own, votes = np.zeros((2, len(targets), len(graded))), dict[tuple[str, int], Floats]()
    for split in splits:
        fitted: Any = refit(cut_to_common(hide_grades(graded.only(split.train), basis), graded))
        paths = draw_paths_by_mode(
            graded.only(split.test),
            weigh=fitted.weigh,
            longest=fitted.longest_by_mode,
            orders=ORDERS,
            rng=np.random.default_rng([seed, len(split.test)]),
        )
        settings = follow_runs(paths, [run_policy(fitted, paths, dial=float(at)) for at in fitted.prices_])
        for row, target in enumerate(targets):
            mix = mix_points(fitted.cost_, fitted.accuracy_, target)
            own[:, row, split.test] = mix.apply(settings.cost), mix.apply(settings.accuracy)
        joint = JointVotes(paths)
        for number, mode in enumerate(fitted.names):
            uniform = follow_votes(joint, number)
            for count, values in enumerate(zip(uniform.cost, uniform.accuracy, strict=True), 1):
                each = votes.setdefault((mode, count), np.full((2, len(graded)), np.nan))
                each[:, split.test] = values
    group, counted = graded.groups, count_in_groups(len(graded), count_groups(graded.groups))
    whole = {key: sum_by_group(values, group) for key, values in votes.items() if np.isfinite(values).all()}
    rivals = [
        UniformVotes(count, mode, float(cost.mean()), rights)
        for (mode, count), (cost, rights) in whole.items()
    ]
    points = PolicyPoints(cost=sum_by_group(own[0], group), accuracy=sum_by_group(own[1], group))
    return Chart(
        dial=policy.dial,
        unit="tokens" if policy.mode_set.unit == "tokens" else "money",
        problems=len(graded),
        protocol=f"{len(splits)} folds over {counted}, judged by what the others taught; {ORDERS} orders",
        rows=(),
        qualities=compare_qualities(points, rivals, digits=".4g"),
        basis=basis,
        cost_unit=policy.mode_set.unit,
        currency=policy.mode_set.currency,
    )


def assemble_chart(
    fitted: PolicyReplays, test: PolicyReplays, *, prices: Sequence[tuple[float, float | None]], protocol: str
) -> Chart | None:
    rows = [
        _make_row(
            fitted.at(price),
            fitted.find_tails(price),
            test.at(None) if price is None else test.at_cost(budget, price),
            test,
            budget=budget,
            price=price,
        )
        for budget, price in prices
    ]
    if not rows:
        return None
    return Chart(
        dial=fitted.dial, unit=fitted.unit, problems=fitted.problems, protocol=protocol, rows=tuple(rows)
    )


def find_prices(fitted: PolicyReplays, budgets: Sequence[float]) -> list[tuple[float, float | None]]:
    """Returns a (budget, price) pair for each budget that the policy can meet.

    The price is None if the policy has neither a price nor a threshold.
    """
    if fitted.dial is None:
        return [(budgets[0], None)]
    prices: list[tuple[float, float | None]] = []
    cost, price = 0.0, math.inf
    largest, smallest = fitted.at(0.0)["cost"], fitted.at(fitted.dial_range[1])["cost"]
    for budget in sorted(budgets):
        if not smallest <= budget <= largest * (1 + _BUDGET_TOLERANCE):
            continue
        # because prices are rounded up, a larger budget could get a higher price; `min` prevents this
        _, within = bracket_dial(fitted, budget)
        next_price = min(price, round_price_up(within))
        next_cost = fitted.at(next_price)["cost"]
        # if the number of rounds is limited, a lower price can lower the average cost; then skip the budget
        if next_cost >= cost:
            prices.append((budget, next_price))
            cost, price = next_cost, next_price
    return prices


def round_price_up(price: float) -> float:
    """Rounds a price up to the digits that are printed, because people will copy the printed price."""
    if price <= 0:
        return price
    step = 10.0 ** (math.floor(math.log10(price)) - _DIGITS + 1)
    return float(f"{math.ceil(price / step - 1e-9) * step:.{_DIGITS}g}")


def _make_row(
    fitted_values: Mapping[str, float],
    tails: tuple[int, tuple[float, ...]],
    test_values: Mapping[str, float],
    test: PolicyReplays,
    *,
    budget: float,
    price: float | None,
) -> ChartRow:
    right = None if math.isnan(test_values["accuracy"]) else min(1.0, test_values["accuracy"])
    agreement = min(1.0, test_values["agreement"])
    return ChartRow(
        budget=budget,
        price=price,
        cost=fitted_values["cost"],
        waves=fitted_values["waves"],
        agreement=agreement,
        deviation=math.sqrt(max(0.0, test_values["square"] - agreement**2)),
        stays=min(1.0, fitted_values["stays"]),
        accuracy=right,
        uniform=None if right is None else test.uniform_samples(right),
        rounds_p95=tails[0],
        above=tails[1],
    )


def _find_tests(
    policy: Policy, ballots: Ballots, fits: Sequence[FoldFit]
) -> list[tuple[Policy, Ballots]] | None:
    """Pairs each fitted policy with the problems that it wasn't fitted on.

    Returns None if a problem wasn't left out of exactly one fit, or a fit's settings differ from `policy`'s.
    """
    tests = []
    for fold, prompts in fits:
        if _describe_kind(fold) != _describe_kind(policy):
            return None
        known = set(prompts)
        rows = [row for row, prompt in enumerate(ballots.prompts) if prompt not in known]
        tests.append((rows, fold))
    tests.sort(key=lambda test: test[0])  # sort by problem, because folds may have finished in any order
    if sorted(row for rows, _ in tests for row in rows) != list(range(len(ballots))):
        return None
    return [(fold, ballots.only(np.array(rows))) for rows, fold in tests if rows]


def _describe_kind(policy: Policy) -> tuple[object, ...]:
    """Returns the settings that policies of the same kind share; they don't depend on fitting."""
    names = ("max_waves", "ladder", "unit", "auto", "features")
    settings = (getattr(policy, name, None) for name in names)
    return policy.kind, policy.longest, policy.weigh is None, *settings


def _replay_held_out(
    ballots: Ballots, refit: Refit | None, *, orders: int, seed: int, threads: Threads | None = None
) -> PolicyReplays | None:
    """Fits a policy on each half of the problems, to replay it on the other half; None if a fit fails."""
    if refit is None:
        return None
    try:
        splits = kfold(ballots.groups, 2, np.random.default_rng(seed))
        halves = [ballots.only(split.train) for split in splits]
        policies = list(map(refit, halves)) if threads is None else threads.map(refit, halves)
    except _UNFITTABLE:
        return None
    tests = [ballots.only(split.test) for split in splits]
    return _replay_tests(list(zip(policies, tests, strict=True)), orders=orders, seed=seed, threads=threads)


def _replay_tests(
    tests: Sequence[tuple[Policy, Ballots]], *, orders: int, seed: int, threads: Threads | None
) -> PolicyReplays:
    """Prepares to replay each policy on its test problems; `tests` are (policy, test problems) pairs."""
    parts = [(policy, _make_paths(policy, test, orders, seed + 1)) for policy, test in tests]
    return PolicyReplays(parts, threads=threads)


def _make_paths(policy: Policy, ballots: Ballots, orders: int, seed: int) -> Paths:
    check_memory(ballots, orders, policy)
    rng = np.random.default_rng(seed)
    return draw_paths(ballots, rng=rng, orders=orders, longest=policy.longest, weigh=policy.weigh)
