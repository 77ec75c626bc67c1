"""Compares policies at exactly equal average cost, on the upper concave hull of each one's settings.

Mixing two settings is always allowed: a request gets the more expensive one with the probability that meets
the budget on average. The hull is taken on the same problems that it is evaluated on, which favours policies
with more settings, above all the joint hull of many policies. Result records are here too.
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
SplitResults = Mapping[tuple[int, str], SplitResult]  # by the split's number and the policy's name

_TOLERANCE = 1e-9  # costs differ by less when summed in another order
_ROUNDING = 1e-12  # accuracies closer than this are equal
_POOLED_FIELDS = ("rows", "points", "draws")
_STEPS_PER_DOUBLING = 8  # grid points per doubling of cost
UNREACHABLE = 1e9  # samples; replaces infinity in percentiles
SMALLEST_GAIN = 0.001  # accuracy: shares of a smaller gain are meaningless


def match_cost(points: PolicyPoints, budget: float) -> MatchedCost | None:
    """The hull of these settings at one average cost; None if the cheapest setting costs more.

    >>> points = PolicyPoints(
    ...     cost=np.array([[1.0, 1.0], [4.0, 4.0]]), accuracy=np.array([[0.5, 0.7], [0.8, 1.0]])
    ... )
    >>> mix = match_cost(points, 2.0)
    >>> round(mix.accuracy, 3), round(mix.probability, 3), mix.each.round(3).tolist()
    (0.7, 0.333, [0.6, 0.8])
    """
    cost, accuracy = points.cost.mean(axis=1), points.accuracy.mean(axis=1)  # (settings,)
    corners = find_hull(cost, accuracy)
    hull_cost = cost[corners]
    if budget < hull_cost[0] - _TOLERANCE * max(1.0, budget):
        return None
    above = int(np.searchsorted(hull_cost, budget - _TOLERANCE))
    if above == 0 or above == len(corners):  # at the cheapest setting, or beyond the best
        low = high = int(corners[min(above, len(corners) - 1)])
        share = price = 0.0
    else:
        low, high = int(corners[above - 1]), int(corners[above])
        share = min(1.0, (budget - cost[low]) / (cost[high] - cost[low]))
        price = float((accuracy[high] - accuracy[low]) / (cost[high] - cost[low]))
    mixed_cost = (1 - share) * points.cost[low] + share * points.cost[high]  # (problems,)
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
    """The settings of several policies as those of a single one."""
    return PolicyPoints(
        cost=np.concatenate([each.cost for each in points]),
        accuracy=np.concatenate([each.accuracy for each in points]),
        labels=tuple(label for each in points for label in each.labels),
        rounds=None
        if any(each.rounds is None for each in points)
        else np.concatenate([each.rounds for each in points if each.rounds is not None]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRow:
    """A policy at a budget as it would have run: calibrated beforehand, with its actual cost."""

    policy: str
    budget: float  # requested average samples
    cost: float  # actual average samples
    accuracy: float
    low: float | None  # 95% interval over problems
    high: float | None
    protocol: str  # description of the measurement
    waves: float | None = None  # mean rounds of sampling per request
    tokens: float | None = None  # mean output tokens per request; None if not recorded
    reached: bool = True  # False: no setting of its dial meets the budget
    cost_std: float | None = None  # over seeds, in the paper's protocol
    accuracy_std: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A policy at exactly one average cost, on the hull of its settings."""

    policy: str
    budget: float
    cost: float  # the budget, or less if even its best setting costs less
    accuracy: float
    low: float | None
    high: float | None
    # paired gain over the baseline at equal cost; None for the baseline, or without one
    gain: Interval | None
    lead: Interval | None  # paired gain of the verdict's policy over this one; None for itself
    recovered: tuple[float | None, float | None]  # share of the oracle's gain, by its lower and upper bound
    worth: Interval | None  # uniform samples with the same accuracy; infinite: more than recorded
    draws: Mapping[str, float] = field(default_factory=dict)  # mean samples from each of several modes
    rounds: float | None = None  # mean per request
    rounds_p95: int | None = None  # 95th percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleBracket:
    """The one-shot oracle at one budget: cross-fitted (chosen and evaluated on different samples)
    and in-sample.
    """

    budget: float
    cost: float  # the budget, or less if more doesn't help
    low: Interval | None  # cross-fitted; None if there are too few samples
    high: float  # in-sample
    why: str = ""  # why there is no lower bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Imitation:
    """How often a classifier chooses the oracle's budget; compare with the most common one."""

    budget: float
    accuracy: float
    majority: float  # always predicts the most common budget of the training problems
    protocol: str  # held-out or in-sample


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestUse:
    """The average usage of a request, and of uniform sampling with the same accuracy.

    Prompts are counted as paid for, by the source's `PromptCharge`. If no uniform number of samples is as
    accurate, the most recorded is used.
    """

    tokens: float  # in its responses
    prompts: float  # in average prompts
    uniform_tokens: float
    uniform_prompts: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """An average budget compared with uniform sampling of the same accuracy; money is per request."""

    budget: float  # samples
    same_as: float | None  # uniform samples; None: more than recorded
    cost: float
    same_cost: float  # uniform sampling at that number, or with all recorded samples if that costs less

    @property
    def is_bound(self) -> bool:
        """Whether uniform sampling needs more than was recorded, so that the saving is a lower bound."""
        return self.same_as is None

    @property
    def amount(self) -> float:
        """Money saved per request."""
        return self.same_cost - self.cost

    @property
    def share(self) -> float | None:
        """The saved share; None if nothing costs anything."""
        return self.amount / self.same_cost if self.same_cost else None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRow:
    """The policy against uniform sampling at equal average cost.

    With several modes, uniform sampling is replaced by the best of them, alone or mixed, and `worth` is a
    cost.
    """

    budget: float
    cost: float  # the budget, or less if even its most expensive setting costs less
    accuracy: float  # the policy's
    uniform: float  # accuracy of uniform sampling
    gain: Interval  # policy minus uniform, with the 95% interval for this budget alone
    joint: Interval  # the same gain, with intervals that hold for all rows at once, if there are any
    worth: Interval  # uniform samples with the same accuracy; infinite: more than recorded
    use: RequestUse | None = None  # None if tokens aren't recorded
    rounds: float | None = None  # mean per request; uniform sampling has 1
    rounds_p95: int | None = None  # 95th percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a policy chosen beforehand beats uniform sampling, or several modes beat each alone: one
    sentence with its numbers.
    """

    decided: Decision
    sentence: str
    support: str = ""  # its interval and protocol, in words
    policy: str | None = None  # None: no policy to evaluate
    budget: float | None = None  # average samples in the sentence
    basis: Basis
    problems: int = 0  # evaluated; equal questions count once
    groups: int = 0  # groups of similar problems, held out and resampled whole
    # additional problems needed for a decision, at most 10,000; None: decided
    problems_needed: int | None = None
    protocol: str = ""
    rows: tuple[VerdictRow, ...] = ()  # one per budget
    prompt_tokens: float | None = None  # mean over prompts
    charge: str = ""  # how prompts are charged, in words
    gains: Mapping[str, Interval] = field(default_factory=dict)  # with several modes: mean over each rival

    @property
    def pays(self) -> bool:
        return self.decided == "pays"

    @property
    def sure_budgets(self) -> tuple[float, ...]:
        """Budgets at which the policy certainly beats uniform, over all budgets at once."""
        lows = ((row.budget, row.joint.low) for row in self.rows)
        return tuple(budget for budget, low in lows if low is not None and round(100 * low, 1) > 0)

    def row(self, budget: float | None) -> VerdictRow | None:
        """The row for a budget; None if it wasn't evaluated or the policy can't cost that little."""
        return next((row for row in self.rows if row.budget == budget), None)

    def compute_savings(
        self, prices: TokenPrices, *, prompt_tokens: float | None = None
    ) -> tuple[Saving, ...]:
        """Cost and saving of each budget at these prices; empty if tokens aren't recorded.

        `prompt_tokens` replaces the recorded mean prompt.
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
        """Plain data for JSON; null if unknown or more samples than recorded."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Policies compared at equal average costs on recorded samples."""

    problems: int
    folds: int  # or seeds, in the paper's protocol
    protocol: ProtocolName
    votes: Literal["plain", "weighted"]
    basis: Basis  # agreement with the full vote if there are no grades
    orders: int  # orders of each problem's samples
    longest: int  # most samples per request
    dropped: int  # problems left out without grades
    left_out: tuple[str, ...]  # policies that can't learn without grades
    rows: tuple[EvaluationRow, ...]
    matched: tuple[Match, ...]
    oracle: tuple[OracleBracket, ...]
    imitation: tuple[Imitation, ...]
    budgets: tuple[float, ...]  # average samples of the comparisons
    verdict: Verdict  # with one mode it has its own protocol, independent of folds, orders and seed above
    short: int = 0  # problems left out with fewer samples than `longest`
    groups: int = 0  # groups of similar problems, used for folds and intervals
    unit: BudgetUnit | ModeUnit = "samples"  # unit of budgets and costs
    currency: str = ""  # if the unit is money
    least: float | None = None  # cost of a request with one sample, unless counted in samples
    mode_set: ModeSet | None = None  # the modes, if there are several
    by_score: tuple[ScoreRow, ...] = ()  # the value of a verifier's recorded scores

    @property
    def policies(self) -> tuple[str, ...]:
        """Names of policies that meet any budget."""
        return tuple(dict.fromkeys(match.policy for match in self.matched))

    def get_modes(self) -> ModeSet:
        """The several modes; PolicyError if there is only one."""
        if self.mode_set is None:
            raise PolicyError("this is an evaluation of one mode, which has no others; evaluate several")
        return self.mode_set

    def format_budget(self, budget: float) -> str:
        """A budget without its unit, for headings."""
        return f"{budget:g}" if self.mode_set is None else self.mode_set.format_cost(budget, unit=False)

    def find_best(self, policies: Sequence[str], budget: float) -> Match | None:
        """The best of some policies at a budget, in hindsight."""
        met = [match for name in policies if (match := self.match(name, budget)) is not None]
        return max(met, key=lambda match: match.accuracy, default=None)

    def match(self, policy: str, budget: float) -> Match | None:
        """A policy at a budget; None if it can't cost that little or wasn't evaluated."""
        return next(
            (match for match in self.matched if (match.policy, match.budget) == (policy, budget)), None
        )

    def row(self, policy: str, budget: float) -> EvaluationRow | None:
        """The first row of a policy at a budget."""
        return next((row for row in self.rows if (row.policy, row.budget) == (policy, budget)), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; null if unknown."""
        values = {ALL_MODES if name == "mode_set" else name: value for name, value in asdict(self).items()}
        return values | {ALL_MODES: None if self.mode_set is None else self.mode_set.dump()}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyResult:
    """A policy's results on all problems, pooled over folds or seeds."""

    name: str
    cost: Floats = field(repr=False)  # (budgets, problems)
    accuracy: Floats = field(repr=False)
    waves: Floats = field(repr=False)
    tokens: Floats = field(repr=False)
    reached: tuple[bool, ...]  # (budgets,) whether reached in every part
    points: PolicyPoints
    point_tokens: Floats | None = field(default=None, repr=False)  # (settings, problems)
    point_waves: Floats | None = field(default=None, repr=False)
    # (settings, modes, problems) with several modes
    point_draws: Floats | None = field(default=None, repr=False)
    imitation: Floats | None = None  # (budgets, 4) mean over parts, weighted by number of problems
    cost_std: Floats | None = None  # (budgets,) over seeds
    accuracy_std: Floats | None = None

    def match(self, budget: float, at: int) -> MatchedCost | None:
        """The policy at the budget with this index; None if it can't cost that little.

        With several modes, only the settings chosen for that budget; otherwise all settings.
        """
        near, points = self._settings_near(at), self.points
        rounds = None if points.rounds is None else points.rounds[near]
        chosen = PolicyPoints(cost=points.cost[near], accuracy=points.accuracy[near], rounds=rounds)
        return match_cost(chosen, budget)

    def count_draws(self, mix: MatchedCost, at: int) -> Floats:
        """Mean samples from each of several modes in a mix, (modes,)."""
        assert self.point_draws is not None
        low, high = (self.point_draws[self._settings_near(at)][one].mean(axis=1) for one in mix.settings)
        return np.asarray((1 - mix.probability) * low + mix.probability * high)

    def _settings_near(self, at: int) -> slice:
        if self.point_draws is None:
            return slice(None)
        return slice(at * len(NEIGHBOURS), (at + 1) * len(NEIGHBOURS))


def pool_folds(results: SplitResults, name: str, splits: Sequence[Split]) -> PolicyResult:
    """Pools a policy's folds: each problem has the results from its test fold."""
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
    """Pools a policy's seeds: each problem has its mean over seeds; the spread over seeds is kept."""
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
    imitations = [(part.imitation, part.rows.shape[2]) for part in parts if part.imitation is not None]
    imitation = None
    if imitations:
        imitation = np.average(
            [shares for shares, _ in imitations], axis=0, weights=[size for _, size in imitations]
        )
    dials_by_budget = zip(*(part.dials for part in parts), strict=True)
    (cost, accuracy, waves, tokens), points = pooled["rows"], pooled["points"]
    return PolicyResult(
        name=name,
        cost=cost,
        accuracy=accuracy,
        waves=waves,
        tokens=tokens,
        reached=tuple(all(dial is None or dial.reached for dial in each) for each in dials_by_budget),
        points=PolicyPoints(cost=points[0], accuracy=points[1], labels=parts[0].labels, rounds=rounds),
        point_waves=points[2],
        point_tokens=points[3],
        point_draws=pooled.get("draws"),
        imitation=imitation,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CostCurve:
    """A policy's accuracy by average cost, each (points,), from its cheapest to its best setting."""

    policy: str
    cost: Floats = field(repr=False)
    accuracy: Floats = field(repr=False)
    low: Floats = field(repr=False)  # 95% interval over problems; equal to the accuracy if there is none
    high: Floats = field(repr=False)
    gain: Floats = field(repr=False)  # paired gain over uniform at equal cost; NaN: not compared
    gain_low: Floats = field(repr=False)
    gain_high: Floats = field(repr=False)

    def at(self, cost: float) -> float | None:
        """The accuracy at one cost; None outside the curve."""
        if not self.cost[0] - _TOLERANCE <= cost <= self.cost[-1] + _TOLERANCE:
            return None
        return float(np.interp(cost, self.cost, self.accuracy))


def make_cost_grid(largest: float, budgets: Sequence[float] = ()) -> Floats:
    """Costs from 1 to the largest, evenly spaced by ratio, including the given budgets."""
    even = np.geomspace(1.0, largest, max(2, round(_STEPS_PER_DOUBLING * np.log2(largest)) + 1))
    inside = [budget for budget in budgets if 1.0 <= budget <= largest]
    return np.unique(np.concatenate([even, inside]).round(9))


def trace_curve(
    policy: str, points: PolicyPoints, grid: Floats, boot: Bootstrap, *, base: PolicyPoints | None = None
) -> CostCurve | None:
    """The policy's curve on the grid, with its gain over `base`; None if it always costs more."""
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
        if mix.cost < budget - _TOLERANCE:  # its best setting: the curve ends here
            break
    if not rows:
        return None
    columns = np.array(rows).T
    names = ("cost", "accuracy", "low", "high", "gain", "gain_low", "gain_high")
    return CostCurve(policy=policy, **dict(zip(names, columns, strict=True)))


def _interval_ends(own: Interval, mean: float) -> tuple[float, float]:
    """The ends of the interval, or the mean if there is none."""
    return mean if own.low is None else own.low, mean if own.high is None else own.high


def format_sample_count(value: float) -> str:
    """A number of samples with up to three digits.

    >>> format_sample_count(1.0), format_sample_count(1.5)
    ('1 sample', '1.5 samples')
    """
    text = f"{value:.3g}"
    return f"{text} sample" if text == "1" else f"{text} samples"


def basis_name(basis: Basis) -> str:
    """What accuracy means on a basis, in words."""
    return "accuracy" if basis == "accuracy" else "agreement with the full vote"


@dataclass(frozen=True, slots=True, eq=False)
class UniformCurves:
    """Uniform sampling's accuracy by cost, rising and concave, over all problems and in each draw."""

    most: float  # in samples
    overall: HullCurve
    by_draw: list[HullCurve]  # (draws,); empty for a single problem

    @classmethod
    def of(cls, uniform: PolicyPoints, boot: Bootstrap) -> Self:
        cost, accuracy = uniform.cost.mean(axis=1), uniform.accuracy  # (settings,), (settings, problems)
        order = np.argsort(cost, kind="stable")
        cost, accuracy = cost[order], accuracy[order]
        draws = boot.shares @ accuracy.T if accuracy.shape[1] > 1 else ()  # (draws, settings)
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
    """Every policy at every budget; with one mode, also the joint hull of the peers."""
    results = {result.name: result for result in everyone}
    peers = [result.points for result in everyone if result.name not in (OURS, *ROUND_LIMITS)]
    if peers and mode_set is None:
        results[PEERS] = replace(everyone[0], name=PEERS, points=join_points(peers))
    ours, baseline = (OURS, UNIFORM) if mode_set is None else (ALL_MODES, SINGLES[0])
    # the same curves for all policies and budgets
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
    """A policy's share of the oracle's gain over uniform, for both bounds."""
    if bracket is None:
        return None, None
    gains = [None if bracket.low is None else bracket.low.mean - base.accuracy, bracket.high - base.accuracy]
    low, high = (
        None if gain is None or gain < SMALLEST_GAIN else (mix.accuracy - base.accuracy) / gain
        for gain in gains
    )
    return low, high


def uniform_equivalent(mix: MatchedCost, uniform: UniformCurves, *, boot: Bootstrap) -> Interval:
    """The number of uniform samples as accurate as this mix; infinite if even the most aren't.

    Both sides are recomputed in each draw of problems, so the interval is paired.
    """
    mean = find_least_cost(uniform.overall, mix.accuracy)
    if not uniform.by_draw:
        return Interval(mean=mean, low=None, high=None)
    reached = boot.means(mix.each)  # (draws,)
    values = np.array(
        [find_least_cost(own, wanted) for own, wanted in zip(uniform.by_draw, reached, strict=True)]
    )
    interval = make_interval(mean, np.minimum(values, UNREACHABLE))  # percentiles need finite values
    low, high = (
        math.inf if end is None or end > uniform.most else end for end in (interval.low, interval.high)
    )
    return Interval(mean=mean, low=low, high=high)


def find_least_cost(curve: HullCurve, wanted: float) -> float:
    """The lowest cost at which a hull reaches an accuracy; infinite if never."""
    cost, accuracy = curve
    return math.inf if wanted > accuracy[-1] + _ROUNDING else float(np.interp(wanted, accuracy, cost))
