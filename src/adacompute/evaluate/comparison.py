"""Compares policies at exactly equal average cost, each with the best mix of two of its settings.

A setting is a price, a threshold or a number of samples. A mix gives each request one of two settings at
random, so that the average cost equals the budget. The best mixes form the upper concave hull of the
settings' costs and accuracies. The hull is computed and evaluated on the same problems, which favours
policies with many settings. The classes for an evaluation's results are here, too.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from adacompute.errors import PolicyError
from adacompute.evaluate.measure import OURS, PEERS, ROUND_LIMITS, UNIFORM, Basis, SplitResult
from adacompute.evaluate.mode_rivals import ALL_MODES, NEIGHBOURS, SINGLES
from adacompute.evaluate.resampling import ScoreRow, Split
from adacompute.pool.modes import ModeSet, ModeUnit
from adacompute.records import BudgetUnit, TokenPrices
from adacompute.replay.matching import (
    Bootstrap,
    HullCurve,
    Interval,
    MatchedCost,
    PolicyPoints,
    make_interval,
    trace_hull,
)
from adacompute.solve.hull import find_hull

Floats = npt.NDArray[np.float64]
ProtocolName = Literal["held-out", "paper"]
Decision = Literal[
    "pays",
    "uniform is as good",
    "uniform is better",
    "single modes are as good",
    "not decided yet",
    "too few problems to tell",
    "nothing to compare",
]
SplitResults = Mapping[tuple[int, str], SplitResult]  # keys: number of the split, name of the policy

# what judges answers without grades: samples that no policy draws
OTHER_HALF = "the vote of the other half of the samples"
_TOLERANCE = 1e-9  # tolerance for rounding errors in costs
_ROUNDING = 1e-12  # accuracies with a smaller difference count as equal
_POOLED_FIELDS = ("rows", "points", "draws")
_STEPS_PER_DOUBLING = 8  # number of grid points for each doubling of the cost
UNREACHABLE = 1e9  # stands for an infinite number of samples when percentiles are computed
# if the oracle gains less accuracy than this, policies' shares of its gain aren't computed
SMALLEST_GAIN = 0.001


def match_cost(points: PolicyPoints, budget: float) -> MatchedCost | None:
    """Finds the most accurate mix of two settings at an average cost; None if all settings cost more.

    >>> points = PolicyPoints(
    ...     cost=np.array([[1.0, 1.0], [4.0, 4.0]]), accuracy=np.array([[0.5, 0.7], [0.8, 1.0]])
    ... )
    >>> mix = match_cost(points, 2.0)
    >>> round(mix.accuracy, 3), round(mix.probability, 3), mix.each.round(3).tolist()
    (0.7, 0.333, [0.6, 0.8])
    """
    # means over problems, for each setting
    cost, accuracy = points.cost.mean(axis=1), points.accuracy.mean(axis=1)
    corners = find_hull(cost, accuracy)
    hull_cost = cost[corners]
    if budget < hull_cost[0] - _TOLERANCE * max(1.0, budget):
        return None
    above = int(np.searchsorted(hull_cost, budget - _TOLERANCE))
    if above == 0 or above == len(corners):  # no setting costs less than the budget, or none costs more
        low = high = int(corners[min(above, len(corners) - 1)])
        share = price = 0.0
    else:
        low, high = int(corners[above - 1]), int(corners[above])
        share = min(1.0, (budget - cost[low]) / (cost[high] - cost[low]))
        price = float((accuracy[high] - accuracy[low]) / (cost[high] - cost[low]))
    mixed_cost = (1 - share) * points.cost[low] + share * points.cost[high]  # expected cost of each problem
    mixed_accuracy = (1 - share) * points.accuracy[low] + share * points.accuracy[high]
    mean_cost = float(mixed_cost.mean())
    return MatchedCost(
        budget=budget,
        cost=mean_cost,
        accuracy=float(mixed_accuracy.mean()),
        settings=(low, high),
        probability=float(share),
        price=price,
        each=mixed_accuracy - price * (mixed_cost - mean_cost),
        rounds=points.count_rounds((low, high), float(share)),
    )


def join_points(points: Sequence[PolicyPoints]) -> PolicyPoints:
    """Returns the settings of several policies as if they were the settings of a single policy."""
    return PolicyPoints(
        cost=np.concatenate([each.cost for each in points]),
        accuracy=np.concatenate([each.accuracy for each in points]),
        rounds=None
        if any(each.rounds is None for each in points)
        else np.concatenate([each.rounds for each in points if each.rounds is not None]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRow:
    """A policy's results at one budget.

    The policy meets the budget on training problems, so its cost on test problems differs slightly.
    """

    policy: str
    budget: float  # requested average number of samples per request
    cost: float  # measured average number of samples per request
    accuracy: float
    low: float | None  # lower end of the accuracy's 95% confidence interval
    high: float | None
    protocol: str  # a description of how the row was measured
    waves: float | None = None  # mean number of sampling rounds per request
    tokens: float | None = None  # mean number of output tokens per request; None if tokens aren't recorded
    reached: bool = True  # False if no price or threshold of the policy meets the budget
    cost_std: float | None = None  # standard deviation of the cost over seeds; only with protocol "paper"
    accuracy_std: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A policy's results at a given average cost, from the best mix of two of its settings."""

    policy: str
    budget: float
    # average cost: the budget, or the cost of the policy's most accurate setting if that is lower
    cost: float
    accuracy: float
    low: float | None
    high: float | None
    # accuracy gain over the baseline at equal cost; None for the baseline itself, or without a baseline
    gain: Interval | None
    # how much more accurate "stopping" (with several modes: the policy over all modes) is than this policy
    lead: Interval | None
    # this policy's share of the oracle's gain: by the oracle's lower bound, and by its upper bound
    recovered: tuple[float | None, float | None]
    # how many samples uniform sampling needs for the same accuracy; infinite if more than were recorded
    worth: Interval | None
    # maps the name of each mode to the mean number of its samples per request
    draws: Mapping[str, float] = field(default_factory=dict)
    rounds: float | None = None  # mean number of sampling rounds per request
    rounds_p95: int | None = None  # 95th percentile of sampling rounds per request


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleBracket:
    """Bounds on the accuracy, at one budget, of an oracle that knows how many samples each problem needs."""

    budget: float
    cost: float  # average cost: the budget, or less if a higher cost wouldn't make the oracle more accurate
    # lower bound: choices are made and evaluated on different samples; None if there are too few samples
    low: Interval | None
    high: float  # upper bound: choices are made and evaluated on the same samples
    why: str = ""  # why there is no lower bound; "" if there is one


@dataclass(frozen=True, slots=True, kw_only=True)
class Imitation:
    """How often a classifier chooses the same number of samples as the oracle."""

    budget: float
    accuracy: float
    # how often the oracle chooses the number of samples that it chooses most often for training problems
    majority: float
    protocol: str  # says whether the problems were held out or used for training


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestUse:
    """Mean tokens and prompts of a request: with the policy, and with equally accurate uniform sampling.

    If uniform sampling never becomes as accurate, its numbers are those for all recorded samples. A prompt
    counts as often as it is paid for (`PromptCharge`).
    """

    tokens: float  # mean number of output tokens in all responses to a request
    prompts: float  # prompt tokens paid for per request, divided by the mean length of a prompt
    uniform_tokens: float
    uniform_prompts: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Cost of a request in money: with the policy at a budget, and with equally accurate uniform sampling."""

    budget: float  # average number of samples
    # how many samples uniform sampling needs for the same accuracy; None if more than were recorded
    same_as: float | None
    cost: float
    # cost of uniform sampling at the same accuracy or, if it never reaches that, with all recorded samples
    same_cost: float

    @property
    def is_bound(self) -> bool:
        """Whether uniform sampling needs more samples than recorded, so that the saving is a lower bound."""
        return self.same_as is None

    @property
    def amount(self) -> float:
        """Money saved per request."""
        return self.same_cost - self.cost

    @property
    def share(self) -> float | None:
        """Share of the cost that is saved; None if everything is free."""
        return self.amount / self.same_cost if self.same_cost else None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRow:
    """Compares the policy with uniform sampling at equal average cost.

    With several modes, the best single mode or mix of modes takes the place of uniform sampling, and `worth`
    is the cost at which it is as accurate.
    """

    budget: float
    cost: float  # average cost: the budget, or less if the policy's most expensive setting costs less
    accuracy: float  # accuracy of the policy that the verdict is about
    uniform: float  # accuracy of uniform sampling at the same cost
    gain: Interval  # the policy's gain in accuracy over uniform sampling; 95% interval for this budget alone
    joint: Interval  # gain with a 95% interval that holds for all budgets at once
    # how many samples uniform sampling needs for the same accuracy; infinite if more than were recorded
    worth: Interval
    use: RequestUse | None = None  # tokens and prompts that a request uses; None if tokens aren't recorded
    rounds: float | None = None  # mean number of sampling rounds per request; uniform sampling needs 1
    rounds_p95: int | None = None  # 95th percentile of sampling rounds per request


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A sentence that says whether a policy beats uniform sampling, with the numbers behind it.

    With several modes, it says whether a policy over all modes beats each mode alone and mixes of modes.
    """

    decided: Decision
    sentence: str
    support: str = ""  # text shown after the sentence: the gain's interval, and how it was measured
    policy: str | None = None  # name of the policy; None: there was no policy to evaluate
    # budget at which `sentence` describes the results; with several modes, budget with the largest gain
    budget: float | None = None
    basis: Basis
    problems: int = 0  # number of evaluated problems; problems with the same question count once
    groups: int = 0  # number of groups of similar problems; a group is held out and resampled as a whole
    # how many more problems would allow a decision, at most 10,000; None: decided, or no such number is known
    problems_needed: int | None = None
    protocol: str = ""
    rows: tuple[VerdictRow, ...] = ()  # one row for each budget
    prompt_tokens: float | None = None  # mean length of a prompt in tokens
    charge: str = ""  # a description of how prompts are charged
    # with several modes: maps the name of each alternative to the accuracy gain over it, averaged over
    # budgets
    gains: Mapping[str, Interval] = field(default_factory=dict)

    @property
    def pays(self) -> bool:
        return self.decided == "pays"

    @property
    def sure_budgets(self) -> tuple[float, ...]:
        """Budgets at which the policy certainly beats uniform sampling: the joint interval is above zero."""
        lows = ((row.budget, row.joint.low) for row in self.rows)
        return tuple(budget for budget, low in lows if low is not None and round(100 * low, 1) > 0)

    def row(self, budget: float | None) -> VerdictRow | None:
        """Finds the row of a budget; None if the budget wasn't evaluated or the policy always costs more."""
        return next((row for row in self.rows if row.budget == budget), None)

    def compute_savings(
        self, prices: TokenPrices, *, prompt_tokens: float | None = None
    ) -> tuple[Saving, ...]:
        """Computes the cost and saving at each budget for these prices; empty if tokens aren't recorded.

        `prompt_tokens` replaces the recorded mean length of prompts.
        """
        length = (self.prompt_tokens or 0.0) if prompt_tokens is None else prompt_tokens
        return tuple(
            Saving(
                budget=row.budget,
                same_as=row.worth.mean if math.isfinite(row.worth.mean) else None,
                cost=prices.cost(use.prompts * length, use.tokens),
                same_cost=prices.cost(use.uniform_prompts * length, use.uniform_tokens),
            )
            for row in self.rows
            if (use := row.use) is not None
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON; unknown values and infinite numbers of samples become null."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The result of comparing policies at equal average costs on recorded samples."""

    problems: int
    folds: int  # number of folds; with protocol "paper", the number of seeds
    protocol: ProtocolName
    votes: Literal["plain", "weighted"]
    basis: Basis  # "accuracy" or, without grades, "agreement" (with the vote of the other half)
    orders: int  # number of random orders of each problem's samples
    longest: int  # maximum number of samples per request
    dropped: int  # number of problems left out because they have no grades
    left_out: tuple[str, ...]  # names of policies left out because they can't learn without grades
    rows: tuple[EvaluationRow, ...]
    matched: tuple[Match, ...]
    oracle: tuple[OracleBracket, ...]
    imitation: tuple[Imitation, ...]
    budgets: tuple[float, ...]  # average numbers of samples at which policies are compared
    # with one mode, the verdict uses its own folds, random orders of the samples, and seed
    verdict: Verdict
    short: int = 0  # number of problems left out because they have fewer samples than `longest`
    groups: int = 0  # number of groups of similar problems; folds and bootstrap draws never divide a group
    unit: BudgetUnit | ModeUnit = "samples"  # unit of all budgets and costs of this evaluation
    currency: str = ""  # name of the currency if the unit is money
    # mean cost of a request with one sample; None with several modes, or if costs are in samples
    least: float | None = None
    mode_set: ModeSet | None = None  # the modes, if there are several
    # what the weight of a vote depends on, such as "mode", "confidence" or "score"
    weighed_by: tuple[str, ...] = ()
    by_score: tuple[ScoreRow, ...] = ()  # how much a verifier's recorded scores improve votes

    @property
    def policies(self) -> tuple[str, ...]:
        """Names of the policies that can meet at least one budget."""
        return tuple(dict.fromkeys(match.policy for match in self.matched))

    def get_modes(self) -> ModeSet:
        """Returns the modes that were compared; raises PolicyError if there was only one."""
        if self.mode_set is None:
            raise PolicyError("this evaluation is of a single mode, not of several; evaluate several modes")
        return self.mode_set

    def format_budget(self, budget: float) -> str:
        """Formats a budget without its unit, for headings."""
        return f"{budget:g}" if self.mode_set is None else self.mode_set.format_cost(budget, unit=False)

    def find_best(self, policies: Sequence[str], budget: float) -> Match | None:
        """Finds the policy among `policies` that turned out to be the most accurate at a budget."""
        met = [match for name in policies if (match := self.match(name, budget)) is not None]
        return max(met, key=lambda match: match.accuracy, default=None)

    def match(self, policy: str, budget: float) -> Match | None:
        """Finds a policy's result at a budget; None if the policy wasn't evaluated or always costs more."""
        return next(
            (match for match in self.matched if (match.policy, match.budget) == (policy, budget)), None
        )

    def row(self, policy: str, budget: float) -> EvaluationRow | None:
        """Finds a policy's row at a budget; None if there is none."""
        return next((row for row in self.rows if (row.policy, row.budget) == (policy, budget)), None)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON; unknown values are null."""
        values = {ALL_MODES if name == "mode_set" else name: value for name, value in asdict(self).items()}
        return values | {ALL_MODES: None if self.mode_set is None else self.mode_set.dump()}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyResult:
    """A policy's results on all problems, combined from all folds or averaged over all seeds."""

    name: str
    cost: Floats = field(repr=False)  # cost, accuracy, waves and tokens have shape (budgets, problems)
    accuracy: Floats = field(repr=False)
    waves: Floats = field(repr=False)
    tokens: Floats = field(repr=False)
    reached: tuple[bool, ...]  # for each budget, whether the policy meets it in every fold
    points: PolicyPoints
    # mean number of output tokens; shape (settings, problems)
    point_tokens: Floats | None = field(default=None, repr=False)
    point_waves: Floats | None = field(default=None, repr=False)
    # with several modes: mean number of samples from each mode; shape (settings, modes, problems)
    point_draws: Floats | None = field(default=None, repr=False)
    imitation: Floats | None = None  # mean of `measure_imitation` over folds; shape (budgets, 4)
    cost_std: Floats | None = None  # standard deviation of the cost over seeds, for each budget
    accuracy_std: Floats | None = None

    def match(self, budget: float, at: int) -> MatchedCost | None:
        """Finds the policy's best mix of settings at a budget; None if all settings cost more.

        `at` is the budget's index. With several modes, mixes only settings for costs near this budget.
        """
        near, points = self._settings_near(at), self.points
        rounds = None if points.rounds is None else points.rounds[near]
        chosen = PolicyPoints(cost=points.cost[near], accuracy=points.accuracy[near], rounds=rounds)
        return match_cost(chosen, budget)

    def count_draws(self, mix: MatchedCost, at: int) -> Floats:
        """Returns the mean number of samples from each mode in a mix of settings; shape (modes,)."""
        assert self.point_draws is not None
        low, high = (self.point_draws[self._settings_near(at)][one].mean(axis=1) for one in mix.settings)
        return np.asarray((1 - mix.probability) * low + mix.probability * high)

    def _settings_near(self, at: int) -> slice:
        if self.point_draws is None:
            return slice(None)
        return slice(at * len(NEIGHBOURS), (at + 1) * len(NEIGHBOURS))


def pool_folds(results: SplitResults, name: str, splits: Sequence[Split]) -> PolicyResult:
    """Combines a policy's results from all folds; a problem's results come from the fold that tested it."""
    parts = [results[number, name] for number in range(len(splits))]
    problems = sum(len(split.test) for split in splits)
    pooled = {}
    for field_ in _list_fields(parts):
        first = getattr(parts[0], field_)
        pooled[field_] = np.empty((*first.shape[:-1], problems))
        for split, part in zip(splits, parts, strict=True):
            pooled[field_][..., split.test] = getattr(part, field_)
    return _make_result(name, parts, pooled)


def pool_seeds(results: SplitResults, name: str, splits: Sequence[Split]) -> PolicyResult:
    """Averages a policy's results over all seeds, for each problem; adds standard deviations over seeds."""
    parts = [results[number, name] for number in range(len(splits))]
    pooled = {
        field_: np.mean([getattr(part, field_) for part in parts], axis=0) for field_ in _list_fields(parts)
    }
    means, ddof = [part.rows[:2].mean(axis=2) for part in parts], 1 if len(parts) > 1 else 0
    spread = np.std(means, axis=0, ddof=ddof)
    return replace(_make_result(name, parts, pooled), cost_std=spread[0], accuracy_std=spread[1])


def _list_fields(parts: Sequence[SplitResult]) -> list[str]:
    return [field_ for field_ in _POOLED_FIELDS if getattr(parts[0], field_) is not None]


def _make_result(name: str, parts: Sequence[SplitResult], pooled: dict[str, Floats]) -> PolicyResult:
    sizes = [part.rows.shape[2] for part in parts]
    rounds = np.average([part.rounds for part in parts], axis=0, weights=sizes)
    imitations = [part.imitation for part in parts if part.imitation is not None]
    dials_by_budget = zip(*(part.dials for part in parts), strict=True)
    (cost, accuracy, waves, tokens), points = pooled["rows"], pooled["points"]
    return PolicyResult(
        name=name,
        cost=cost,
        accuracy=accuracy,
        waves=waves,
        tokens=tokens,
        reached=tuple(all(dial is None or dial.reached for dial in each) for each in dials_by_budget),
        points=PolicyPoints(cost=points[0], accuracy=points[1], rounds=rounds),
        point_waves=points[2],
        point_tokens=points[3],
        point_draws=pooled.get("draws"),
        imitation=np.average(imitations, axis=0, weights=sizes) if imitations else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CostCurve:
    """A policy's accuracy at each cost, from its cheapest to its most accurate setting.

    The arrays have shape (costs,).
    """

    policy: str
    cost: Floats = field(repr=False)
    accuracy: Floats = field(repr=False)
    low: Floats = field(repr=False)  # lower end of the 95% interval, or the accuracy if there is no interval
    high: Floats = field(repr=False)
    gain: Floats = field(repr=False)  # accuracy gain over the baseline at equal cost; NaN without a baseline
    gain_low: Floats = field(repr=False)
    gain_high: Floats = field(repr=False)

    def at(self, cost: float) -> float | None:
        """Returns the accuracy at one cost; None if the cost is outside the curve's range."""
        if not self.cost[0] - _TOLERANCE <= cost <= self.cost[-1] + _TOLERANCE:
            return None
        return float(np.interp(cost, self.cost, self.accuracy))


def make_cost_grid(largest: float, budgets: Sequence[float] = ()) -> Floats:
    """Lists costs from 1 to `largest` at equal ratios, and the given budgets within this range."""
    even = np.geomspace(1.0, largest, max(2, round(_STEPS_PER_DOUBLING * np.log2(largest)) + 1))
    inside = [budget for budget in budgets if 1.0 <= budget <= largest]
    return np.unique(np.concatenate([even, inside]).round(9))


def trace_curve(
    policy: str, points: PolicyPoints, grid: Floats, boot: Bootstrap, *, base: PolicyPoints | None = None
) -> CostCurve | None:
    """Computes a policy's accuracy at each cost in `grid`, and its gain over `base` at the same cost.

    Returns None if even the policy's cheapest setting costs more than the highest cost in `grid`.
    """
    rows = []
    for budget in grid.tolist():
        mix = match_cost(points, budget)
        if mix is None:
            continue
        base_mix = None if base is None else match_cost(base, mix.cost)
        ends = _interval_ends(boot.interval(mix.each), mix.accuracy)
        gain = (np.nan,) * 3
        if base_mix is not None:
            difference = boot.difference(mix.each, base_mix.each)
            gain = (difference.mean, *_interval_ends(difference, difference.mean))
        rows.append((mix.cost, mix.accuracy, *np.clip(ends, 0.0, 1.0), *gain))
        # the curve ends at the cost of the most accurate setting
        if mix.cost < budget - _TOLERANCE:
            break
    if not rows:
        return None
    columns = np.array(rows).T
    names = ("cost", "accuracy", "low", "high", "gain", "gain_low", "gain_high")
    return CostCurve(policy=policy, **dict(zip(names, columns, strict=True)))


def _interval_ends(own: Interval, mean: float) -> tuple[float, float]:
    """Returns the ends of the interval, or `mean` in place of an end that is None."""
    return mean if own.low is None else own.low, mean if own.high is None else own.high


def format_samples(value: float) -> str:
    """Formats a number of samples with one decimal, or none if it is whole.

    >>> format_samples(7.96), format_samples(3.24)
    ('8', '3.2')
    """
    return f"{value:.1f}".removesuffix(".0")


def basis_name(basis: Basis) -> str:
    """Names the measure that results are based on: accuracy or agreement."""
    return "accuracy" if basis == "accuracy" else "agreement with the other half's vote"


@dataclass(frozen=True, slots=True, eq=False)
class UniformCurves:
    """Concave curves of uniform sampling's accuracy by cost: of all problems, and of each bootstrap draw."""

    most: float  # maximum average cost, in samples
    overall: HullCurve
    by_draw: list[HullCurve]  # one curve for each bootstrap draw of problems; empty for a single problem

    @classmethod
    def of(cls, uniform: PolicyPoints, boot: Bootstrap) -> Self:
        # `cost` has shape (settings,), `accuracy` has shape (settings, problems)
        cost, accuracy = uniform.cost.mean(axis=1), uniform.accuracy
        order = np.argsort(cost, kind="stable")
        cost, accuracy = cost[order], accuracy[order]
        draws = boot.shares @ accuracy.T if accuracy.shape[1] > 1 else ()  # shape (draws, settings)
        return cls(
            float(cost[-1]),
            trace_hull(cost, accuracy.mean(axis=1)),
            [trace_hull(cost, each) for each in draws],
        )


def match_policies(
    everyone: Sequence[PolicyResult],
    budgets: Sequence[float],
    *,
    boot: Bootstrap,
    oracle: Sequence[OracleBracket],
    mode_set: ModeSet | None = None,
) -> tuple[Match, ...]:
    """Compares all policies at every budget.

    With one mode, also adds the best mix of any two settings of all policies but "stopping" and its variants.
    """
    results = {result.name: result for result in everyone}
    peers = [result.points for result in everyone if result.name not in (OURS, *ROUND_LIMITS)]
    if peers and mode_set is None:
        results[PEERS] = replace(everyone[0], name=PEERS, points=join_points(peers))
    ours, baseline = (OURS, UNIFORM) if mode_set is None else (ALL_MODES, SINGLES[0])
    # compute uniform sampling's curves only once, because they are the same for all policies and budgets
    uniform = UniformCurves.of(results[UNIFORM].points, boot) if UNIFORM in results else None
    rows = []
    for at, budget in enumerate(budgets):
        mixes = {name: result.match(budget, at) for name, result in results.items()}
        bracket = next((bracket for bracket in oracle if bracket.budget == budget), None)
        for name, mix in mixes.items():
            if mix is None:
                continue
            leader, base = (None if name == other else mixes.get(other) for other in (ours, baseline))
            match = _make_match(name, mix, leader, base, uniform, boot=boot, bracket=bracket)
            if mode_set is not None:
                draws = results[name].count_draws(mix, at).tolist()
                match = replace(match, draws=dict(zip(mode_set.names, draws, strict=True)))
            rows.append(match)
    return tuple(rows)


def _make_match(
    name: str,
    mix: MatchedCost,
    ours: MatchedCost | None,
    base: MatchedCost | None,
    uniform: UniformCurves | None,
    *,
    boot: Bootstrap,
    bracket: OracleBracket | None,
) -> Match:
    own = boot.interval(mix.each)
    return Match(
        policy=name,
        budget=mix.budget,
        cost=mix.cost,
        accuracy=mix.accuracy,
        low=None if own.low is None else max(0.0, own.low),
        high=None if own.high is None else min(1.0, own.high),
        gain=None if base is None else boot.difference(mix.each, base.each),
        lead=None if ours is None else boot.difference(ours.each, mix.each),
        recovered=(None, None) if base is None else _compute_recovered_shares(mix, base, bracket),
        worth=None if uniform is None or name == UNIFORM else uniform_equivalent(mix, uniform, boot=boot),
        rounds=None if mix.rounds is None else mix.rounds.mean,
        rounds_p95=None if mix.rounds is None else mix.rounds.p95,
    )


def _compute_recovered_shares(
    mix: MatchedCost, base: MatchedCost, bracket: OracleBracket | None
) -> tuple[float | None, float | None]:
    """Divides the gain of `mix` over `base` by that of the oracle's lower bound, and of its upper bound."""
    if bracket is None:
        return None, None
    gains = [None if bracket.low is None else bracket.low.mean - base.accuracy, bracket.high - base.accuracy]
    low, high = (
        None if gain is None or gain < SMALLEST_GAIN else (mix.accuracy - base.accuracy) / gain
        for gain in gains
    )
    return low, high


def uniform_equivalent(mix: MatchedCost, uniform: UniformCurves, *, boot: Bootstrap) -> Interval:
    """Finds how many samples uniform sampling needs for this mix's accuracy; infinite if more than recorded.

    The interval is paired: both accuracies are recomputed on each bootstrap draw of problems.
    """
    mean = find_least_cost(uniform.overall, mix.accuracy)
    if not uniform.by_draw:
        return Interval(mean=mean, low=None, high=None)
    reached = boot.means(mix.each)  # accuracy in each bootstrap draw
    values = np.array(
        [find_least_cost(own, wanted) for own, wanted in zip(uniform.by_draw, reached, strict=True)]
    )
    # infinite values would make percentiles NaN
    interval = make_interval(mean, np.minimum(values, UNREACHABLE))
    low, high = (
        math.inf if end is None or end > uniform.most else end for end in (interval.low, interval.high)
    )
    return Interval(mean=mean, low=low, high=high)


def find_least_cost(curve: HullCurve, wanted: float) -> float:
    """Finds the lowest cost at which a curve reaches an accuracy; infinite if it never does."""
    cost, accuracy = curve
    return math.inf if wanted > accuracy[-1] + _ROUNDING else float(np.interp(wanted, accuracy, cost))
