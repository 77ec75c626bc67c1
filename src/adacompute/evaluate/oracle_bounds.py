"""The uniform baseline, and lower and upper bounds of the one-shot oracle, for one mode or several.

An oracle chosen and evaluated on the same samples is too optimistic: it exploits luck. One chosen on half of
the samples and evaluated on the other half (cross-fitted) is too pessimistic, because half of the samples
choose worse. The truth is in between. The oracle decides before sampling; a policy that watches votes may
beat it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from adacompute.answers import VoteWeights
from adacompute.errors import BudgetOutOfRange, TooFewSamples
from adacompute.evaluate.comparison import OracleBracket
from adacompute.evaluate.measure import EvaluationSetup
from adacompute.evaluate.resampling import OracleGain, paired_interval
from adacompute.policies.weights import fit_weights
from adacompute.pool import Ballots
from adacompute.pool.modes import ModeSet
from adacompute.records import AccuracyTable, ModeName, TokenPrices, format_lower_bound
from adacompute.replay.matching import Bootstrap
from adacompute.score import MeanEstimate, halves, score
from adacompute.score.grades import BlockMap
from adacompute.score.pool_summary import estimate_mean
from adacompute.score.score import MODE_BUDGETS, Aggregate, Estimator
from adacompute.score.score import Budgets as Choices
from adacompute.solve import Frontier, frontier, solve
from adacompute.solve.pricing import Allocation

Floats = npt.NDArray[np.float64]
Pair = tuple[AccuracyTable, AccuracyTable]  # to choose on, and to evaluate on

_TOLERANCE = 1e-9  # accuracies differ by less when summed in another order
_SPLITS = 5
_SEED = 0  # makes splits repeatable without a given generator
_DRAWS = 500  # subsets when simulating the score of a half; sampling noise is larger
CHOICES = (1, 2, 4, 8, 16)  # numbers of samples that the oracle can choose for a problem
_MODE_CHOICES = (1, 2, 4, 8)  # samples from one of several modes


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """The options of `score` other than samples and budgets.

    >>> Scoring(aggregate="any-correct").cost
    'samples'
    """

    aggregate: Aggregate = "vote"
    estimator: Estimator = "exact"
    by: Literal["logprob", "entropy"] | VoteWeights = "logprob"
    cost: Literal["samples", "tokens"] | TokenPrices = "samples"
    mode_set: ModeSet | None = None  # the modes to score, if there are several
    mixed: bool = True  # also score mixed votes of two modes

    def for_rows(self, rows: Sequence[int], problems: int) -> "Scoring":
        """The options for a part of the problems, with the prompt tokens of that part."""
        tokens = self.cost.prompt_tokens if isinstance(self.cost, TokenPrices) else None
        if (
            not isinstance(self.cost, TokenPrices)
            or not isinstance(tokens, Sequence)
            or len(tokens) != problems
        ):
            return self
        return replace(self, cost=replace(self.cost, prompt_tokens=tuple(tokens[row] for row in rows)))

    def score_table(
        self,
        ballots: Ballots,
        budgets: Choices,
        *,
        too_few: Literal["error", "drop"] = "error",
        draws: int = 2000,
        map_blocks: BlockMap = map,
    ) -> AccuracyTable:
        """Score these ballots."""
        return score(ballots, budgets, too_few=too_few, draws=draws, map_blocks=map_blocks, **self.options())

    def options(self) -> dict[str, Any]:
        """The keyword arguments of `score`."""
        if self.mode_set is not None:
            return {"modes": self.mode_set, "mixed": self.mixed, "errors": False}
        return {
            "estimator": self.estimator,
            "aggregate": self.aggregate,
            "by": self.by,
            "cost": self.cost,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformAllocation:
    """All problems treated alike: each gets `modes[1]` with `probability`, else `modes[0]`."""

    budget: float  # requested average cost
    cost: float  # actual average cost
    accuracy: MeanEstimate  # with its 95% interval over problems
    modes: tuple[ModeName, ModeName]  # equal if one mode is enough
    probability: float  # probability of the second mode; 0: one mode is enough
    each: Floats = field(repr=False, compare=False)  # (problems,) expected accuracy


def solve_uniform(table: AccuracyTable, *, budget: float) -> UniformAllocation:
    """The best uniform allocation at an average cost.

    Without looking at a problem, the best is the upper concave hull of the modes' averages: between two
    modes, every problem gets the more expensive one with the same probability.

    >>> allocation = solve_uniform(AccuracyTable.of([[0.5, 0.9], [0.7, 0.7]], costs=[1, 2]), budget=1.5)
    >>> allocation.modes, allocation.probability, round(allocation.accuracy.mean, 3)
    ((1, 2), 0.5, 0.7)
    """
    averages = _average_modes(table)
    if budget < (cheapest := float(averages.costs.min())) * (1 - _TOLERANCE):
        least = format_lower_bound(cheapest)
        raise BudgetOutOfRange(
            f"budget {budget} is below what one mode for every problem can cost ({least} {table.unit}, "
            f"the average of the cheapest mode); give {least} or more"
        )
    plan = solve(averages, budget=max(budget, cheapest))
    first, share = int(plan.choice[0]), 0.0
    second = first
    for move in plan.mix:
        second, share = move.mode, move.probability
    each = (1 - share) * table.accuracy[:, first] + share * table.accuracy[:, second]  # (problems,)
    return UniformAllocation(
        budget=budget,
        cost=plan.mixed_cost,
        accuracy=estimate_mean(each),
        modes=(table.modes[first], table.modes[second]),
        probability=share,
        each=each,
    )


def uniform_frontier(table: AccuracyTable) -> Frontier:
    """The uniform baseline's accuracy at every average cost: the hull of the modes' averages."""
    return frontier(_average_modes(table))


def cost_for_accuracy(curve: Frontier, accuracy: float) -> float | None:
    """The lowest average cost at which a frontier reaches an accuracy, to 1e-9; None if never."""
    if not accuracy <= curve.accuracy[-1] + _TOLERANCE:
        return None
    return float(np.interp(accuracy, curve.accuracy, curve.cost))


def _average_modes(table: AccuracyTable) -> AccuracyTable:
    """A single row: every mode's averages over problems."""
    return AccuracyTable.of(
        np.clip(table.accuracy.mean(axis=0, keepdims=True), 0.0, 1.0),
        costs=table.cost_matrix.mean(axis=0),
        modes=table.modes,
        unit=table.unit,
        order="any",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossFit:
    """An oracle chosen on half of each problem's samples and evaluated on the other half, both ways."""

    budget: float  # requested average cost
    cost: float  # average cost on the evaluated half
    accuracy: MeanEstimate  # with its 95% interval over problems
    splits: int  # number of random splits averaged
    each: Floats = field(repr=False, compare=False)  # (problems,) expected accuracy


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OracleComparison:
    """An average budget spent by the oracle, with both bounds, and uniformly."""

    plan: Allocation  # in-sample: the upper bound
    crossfitted: CrossFit | None  # the lower bound; None if there are too few samples
    uniform: UniformAllocation
    difference: OracleGain


def compare_with_uniform(table: AccuracyTable, plan: Allocation, pairs: Sequence[Pair]) -> OracleComparison:
    """Compares an allocation with its cross-fitted value and the uniform baseline at its budget.

    `table` is unshrunken: only choosing is misled by luck, and the baseline makes no choice. `pairs` come
    from `score_halves`; without any there is no lower bound.
    """
    baseline = solve_uniform(table, budget=plan.budget)
    cross_fit_value = cross_fit(pairs, budget=plan.budget) if pairs else None
    return OracleComparison(
        plan=plan,
        crossfitted=cross_fit_value,
        uniform=baseline,
        difference=_gain(plan, cross_fit_value, baseline),
    )


def _gain(plan: Allocation, cross_fit_value: CrossFit | None, baseline: UniformAllocation) -> OracleGain:
    base = baseline.accuracy.mean
    return OracleGain(
        low_end=None if cross_fit_value is None else cross_fit_value.accuracy.mean - base,
        high_end=plan.mixed_accuracy - base,  # with the random mix that spends the budget
        interval=None if cross_fit_value is None else paired_interval(cross_fit_value.each, baseline.each),
    )


def score_halves(
    ballots: Ballots,
    table: AccuracyTable,
    *,
    scoring: Scoring,
    choices: Choices | None = None,
    splits: int = _SPLITS,
    rng: np.random.Generator | None = None,
) -> tuple[Pair, ...]:
    """Pairs of tables to choose on and to evaluate on, two per split: each half has both roles.

    They have the problems and budgets of `table`, which must come from these ballots and `scoring`. With
    several modes, `choices` are the budgets, common or by name.
    """
    rng = np.random.default_rng(_SEED) if rng is None else rng
    rows = _rows_of(ballots, table)
    subset = ballots if len(rows) == len(ballots) else ballots.only(rows)
    scoring = scoring.for_rows(rows, len(ballots))
    if choices is None:
        choices = [int(mode) for mode in table.modes]
        _check_halves(subset, 2 * choices[-1])
    pairs: list[Pair] = []
    for _ in range(splits):
        try:
            first, second = (scoring.score_table(half, choices, draws=_DRAWS) for half in halves(subset, rng))
        except TooFewSamples as exc:
            raise TooFewSamples(f"half of each mode's samples are too few to choose on: {exc}") from exc
        pairs += [(first, second), (second, first)]
    return tuple(pairs)


def _check_halves(ballots: Ballots, needed: int) -> None:
    fewest = int(ballots.drawn.min())
    if fewest < needed:
        raise TooFewSamples(
            f"choosing on half of the samples needs {needed} of each problem, and problem "
            f"{ballots.ids[int(ballots.drawn.argmin())]!r} has {fewest}; give smaller budgets or collect more"
        )


def cross_fit(pairs: Sequence[Pair], *, budget: float) -> CrossFit:
    """The value of choices made on the first table of each pair and evaluated on the second, with mixes.

    >>> luck = AccuracyTable.of([[0.5, 0.9]], costs=[1, 2])
    >>> truth = AccuracyTable.of([[0.5, 0.7]], costs=[1, 2])
    >>> cross_fit([(luck, truth)], budget=1.5).accuracy.mean
    0.6
    """
    plans = [(solve(chosen, budget=_affordable(chosen, budget)), judge) for chosen, judge in pairs]
    accuracy = np.mean(
        [compute_expectation(judge.accuracy, plan) for plan, judge in plans], axis=0
    )  # (problems,)
    cost = np.mean([compute_expectation(judge.cost_matrix, plan) for plan, judge in plans])
    return CrossFit(
        budget=budget,
        cost=float(cost),
        accuracy=estimate_mean(accuracy),
        splits=max(1, len(pairs) // 2),
        each=accuracy,
    )


def compute_expectation(values: Floats, plan: Allocation) -> Floats:
    """Each problem's expected value under an allocation with its mix, (problems,) from (problems, modes)."""
    rows = np.arange(len(plan.choice))
    result = values[rows, plan.choice]
    mixed_rows, share = plan.mix.problems, plan.mix.probabilities
    np.add.at(
        result,
        mixed_rows,
        share * (values[mixed_rows, plan.mix.modes] - values[mixed_rows, plan.choice[mixed_rows]]),
    )
    return np.asarray(result)


def _affordable(table: AccuracyTable, budget: float) -> float:
    """The budget, or the cost of the cheapest modes if tokens happen to cost more in this half."""
    return max(budget, float(table.cost_matrix.min(axis=1).mean()))


def _rows_of(ballots: Ballots, table: AccuracyTable) -> list[int]:
    wanted = set(table.ids or ballots.ids)
    return [row for row, name in enumerate(ballots.ids) if name in wanted]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Oracle:
    """The oracle's tables: all samples for the upper bound, halves for the lower."""

    choices: tuple[int, ...]  # numbers of samples per problem; empty: the table's columns
    table: AccuracyTable = field(repr=False)
    pairs: Sequence[Pair] = field(repr=False)  # empty if there are too few samples
    why: str  # why there are no pairs

    @classmethod
    def of(cls, setup: EvaluationSetup, *, choices: Sequence[int] = CHOICES) -> Self:
        """Scores the oracle's tables, counting votes like the policies."""
        weigh = fit_weights(setup.ballots, labels=False) if setup.weighted else None
        scoring = Scoring() if weigh is None else Scoring(aggregate="weighted", by=weigh)
        possible = [choice for choice in choices if choice <= setup.longest]
        table = scoring.score_table(setup.ballots, possible)
        pairs, why = _try_halves(setup.ballots, table, scoring, seed=setup.seed)
        return cls(choices=tuple(possible), table=table, pairs=pairs, why=why)

    def in_sample_accuracy(self, budget: float) -> tuple[float, Floats]:
        """Cost, and accuracy per problem (problems,), chosen and evaluated on the same samples."""
        plan = solve(self.table, budget=budget)
        return float(plan.mixed_cost), compute_expectation(self.table.accuracy, plan)

    def cross_fit_accuracy(self, budget: float) -> Floats | None:
        """Cross-fitted accuracy per problem, (problems,); None if there are too few samples."""
        return cross_fit(self.pairs, budget=budget).each if self.pairs else None


def bracket_oracle(
    setup: EvaluationSetup, *, choices: Sequence[int] = CHOICES, oracle: Oracle | None = None
) -> tuple[OracleBracket, ...]:
    """Both bounds at each budget, counting votes like the policies."""
    if setup.mode_set is not None:
        return bracket_modes(
            setup.ballots,
            setup.mode_set,
            setup.budgets,
            choices={
                votes.names[0]: tuple(
                    count for count in _MODE_CHOICES if 2 * count <= max(2, int(votes.drawn.min()))
                )
                for votes in setup.ballots.parts
            },
            mixed=len(setup.mode_set) == 2,
            seed=setup.seed,
        )
    oracle = Oracle.of(setup, choices=choices) if oracle is None else oracle
    return _bracket(oracle, setup.ballots, setup.budgets, seed=setup.seed)


def bracket_modes(
    ballots: Ballots,
    mode_set: ModeSet,
    budgets: Sequence[float],
    *,
    choices: Choices = MODE_BUDGETS,
    mixed: bool = True,
    splits: int = _SPLITS,
    seed: int = _SEED,
) -> tuple[OracleBracket, ...]:
    """Both bounds of an oracle over (mode, samples) at each average cost, in the unit of the modes.

    It knows the best column of the table for each problem: one mode's vote, or a mixed vote. The upper
    bound chooses and evaluates on the same samples; the lower one is cross-fitted on halves of each mode's
    samples.
    """
    scoring, ballots = Scoring(mode_set=mode_set, mixed=mixed), ballots.select(mode_set.names)
    table = scoring.score_table(ballots, choices)
    pairs, why = _try_halves(ballots, table, scoring, seed=seed, choices=choices, splits=splits)
    return _bracket(Oracle(choices=(), table=table, pairs=pairs, why=why), ballots, budgets, seed=seed)


def _try_halves(
    ballots: Ballots,
    table: AccuracyTable,
    scoring: Scoring,
    *,
    seed: int,
    **options: Any,  # noqa: ANN401
) -> tuple[Sequence[Pair], str]:
    """The pairs from `score_halves`; or none, and the reason, if there are too few samples."""
    try:
        rng = np.random.default_rng([seed, 0x0AC1])
        return score_halves(ballots, table, scoring=scoring, rng=rng, **options), ""
    except TooFewSamples as exc:
        return (), str(exc)


def _bracket(
    oracle: Oracle, ballots: Ballots, budgets: Sequence[float], *, seed: int
) -> tuple[OracleBracket, ...]:
    boot = Bootstrap.of_groups(ballots.groups, rng=np.random.default_rng([seed, 0xB007]))
    rows = []
    for budget in budgets:
        plan = solve(oracle.table, budget=budget)
        each = oracle.cross_fit_accuracy(budget)
        rows.append(
            OracleBracket(
                budget=budget,
                cost=plan.mixed_cost,
                low=None if each is None else boot.interval(each),
                high=plan.mixed_accuracy,
                why=oracle.why,
            )
        )
    return tuple(rows)
