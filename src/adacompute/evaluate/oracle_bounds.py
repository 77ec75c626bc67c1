"""Bounds on the accuracy of an oracle that knows the best number of samples for each problem.

Choosing and evaluating on the same samples gives an upper bound, because it exploits luck. Choosing on half
of the samples and evaluating on the other half (cross-fitting) gives a lower bound, because half of the
samples choose worse. The oracle decides before sampling; a policy that watches votes may beat it. Its
baseline, the same number of samples for every problem, is here too.
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
from adacompute.score.score import MODE_BUDGETS, Aggregate
from adacompute.score.score import Budgets as Choices
from adacompute.solve import Frontier, frontier, solve
from adacompute.solve.pricing import Allocation

Floats = npt.NDArray[np.float64]
Pair = tuple[AccuracyTable, AccuracyTable]  # a table to choose on, and one to evaluate on

_TOLERANCE = 1e-9  # rounding error of accuracies that are summed in another order
_SPLITS = 5
_SEED = 0  # seed of random splits if no generator is given
_DRAWS = 500  # subsets that simulate votes on half of the samples; more wouldn't help
CHOICES = (1, 2, 4, 8, 16)  # numbers of samples that the oracle can choose for a problem
_MODE_CHOICES = (1, 2, 4, 8)  # numbers of samples from one of several modes that the oracle can choose


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """The options of a call of `score`, other than samples and budgets.

    >>> Scoring(aggregate="any-correct").cost
    'samples'
    """

    aggregate: Aggregate = "vote"
    by: Literal["logprob", "entropy"] | VoteWeights = "logprob"
    cost: Literal["samples", "tokens"] | TokenPrices = "samples"
    mode_set: ModeSet | None = None  # the modes to score, if there are several
    mixed: bool = True  # also score mixed votes of two modes

    def for_rows(self, rows: Sequence[int]) -> "Scoring":
        """Returns the options for some of the problems, with only their prompt tokens."""
        if not isinstance(self.cost, TokenPrices) or not isinstance(self.cost.prompt_tokens, Sequence):
            return self
        tokens = self.cost.prompt_tokens
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
        """Scores these samples with these options."""
        return score(
            ballots,
            budgets,
            modes=self.mode_set,
            mixed=self.mixed,
            aggregate=self.aggregate,
            by=self.by,
            cost=self.cost,
            too_few=too_few,
            draws=draws,
            errors=self.mode_set is None,
            map_blocks=map_blocks,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformAllocation:
    """The same choice for all problems: each gets `modes[1]` with `probability`, else `modes[0]`."""

    budget: float  # requested average cost
    cost: float  # actual average cost
    accuracy: MeanEstimate  # mean accuracy with its 95% interval over problems
    modes: tuple[ModeName, ModeName]  # two columns of the table; equal if no mix is needed
    probability: float  # probability of the second column; 0 if no mix is needed
    each: Floats = field(repr=False, compare=False)  # expected accuracy of each problem


def solve_uniform(table: AccuracyTable, *, budget: float) -> UniformAllocation:
    """Finds the best allocation at an average cost that treats all problems alike.

    It mixes two columns of the table ("modes", such as numbers of samples): every problem gets the more
    expensive one with the same probability.

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
    each = (1 - share) * table.accuracy[:, first] + share * table.accuracy[:, second]  # for each problem
    return UniformAllocation(
        budget=budget,
        cost=plan.mixed_cost,
        accuracy=estimate_mean(each),
        modes=(table.modes[first], table.modes[second]),
        probability=share,
        each=each,
    )


def uniform_frontier(table: AccuracyTable) -> Frontier:
    """Computes the best accuracy at every average cost if all problems are treated alike."""
    return frontier(_average_modes(table))


def cost_for_accuracy(curve: Frontier, accuracy: float) -> float | None:
    """Finds the lowest average cost at which a frontier reaches an accuracy, to 1e-9; None if never."""
    if not accuracy <= curve.accuracy[-1] + _TOLERANCE:
        return None
    return float(np.interp(accuracy, curve.accuracy, curve.cost))


def _average_modes(table: AccuracyTable) -> AccuracyTable:
    """Returns a table with a single row: the average of each column over all problems."""
    return AccuracyTable.of(
        np.clip(table.accuracy.mean(axis=0, keepdims=True), 0.0, 1.0),
        costs=table.cost_matrix.mean(axis=0),
        modes=table.modes,
        unit=table.unit,
        order="any",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossFit:
    """The result of an oracle that chooses on half of the samples and is evaluated on the other half."""

    budget: float  # requested average cost
    cost: float  # average cost on the evaluated half
    accuracy: MeanEstimate  # mean accuracy with its 95% interval over problems
    splits: int  # number of random splits averaged
    each: Floats = field(repr=False, compare=False)  # expected accuracy of each problem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OracleComparison:
    """Compares an average budget spent by the oracle (with both bounds) and spent uniformly."""

    plan: Allocation  # oracle chosen and evaluated on the same samples: the upper bound
    crossfitted: CrossFit | None  # the lower bound; None if there are too few samples
    uniform: UniformAllocation
    difference: OracleGain


def compare_with_uniform(table: AccuracyTable, plan: Allocation, pairs: Sequence[Pair]) -> OracleComparison:
    """Compares an allocation with its cross-fitted value and the uniform baseline at its budget.

    `table` has plain accuracies, not shrunk to the mean: luck only misleads choices, and the baseline makes
    none. `pairs` come from `score_halves`; without them there is no lower bound.
    """
    uniform = solve_uniform(table, budget=plan.budget)
    crossfitted, base = cross_fit(pairs, budget=plan.budget) if pairs else None, uniform.accuracy.mean
    gain = OracleGain(
        low_end=None if crossfitted is None else crossfitted.accuracy.mean - base,
        high_end=plan.mixed_accuracy - base,  # accuracy of the random mix that spends the whole budget
        interval=None if crossfitted is None else paired_interval(crossfitted.each, uniform.each),
    )
    return OracleComparison(plan=plan, crossfitted=crossfitted, uniform=uniform, difference=gain)


def score_halves(
    ballots: Ballots,
    table: AccuracyTable,
    *,
    scoring: Scoring,
    choices: Choices | None = None,
    splits: int = _SPLITS,
    rng: np.random.Generator | None = None,
) -> tuple[Pair, ...]:
    """Splits each problem's samples into halves and scores both; returns pairs of tables.

    An oracle chooses on the first table of a pair and is evaluated on the second. Each split gives two pairs,
    so each half has both roles. `table` must come from the same `ballots` and `scoring`; its problems and
    budgets are used. With several modes, `choices` are the budgets, common or by mode.
    """
    rng = np.random.default_rng(_SEED) if rng is None else rng
    wanted = set(table.ids or ballots.ids)
    rows = [row for row, name in enumerate(ballots.ids) if name in wanted]
    subset = ballots if len(rows) == len(ballots) else ballots.only(rows)
    scoring = scoring.for_rows(rows)
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
    """Chooses on the first table of each pair and evaluates the choices on the second table.

    >>> luck = AccuracyTable.of([[0.5, 0.9]], costs=[1, 2])
    >>> truth = AccuracyTable.of([[0.5, 0.7]], costs=[1, 2])
    >>> cross_fit([(luck, truth)], budget=1.5).accuracy.mean
    0.6
    """
    plans = []
    for chosen, judge in pairs:
        least = float(chosen.cost_matrix.min(axis=1).mean())  # this half of the samples may cost more
        plans.append((solve(chosen, budget=max(budget, least)), judge))
    accuracy = np.mean(
        [compute_expectation(judge.accuracy, plan) for plan, judge in plans], axis=0
    )  # expected accuracy of each problem
    cost = np.mean([compute_expectation(judge.cost_matrix, plan) for plan, judge in plans])
    return CrossFit(
        budget=budget,
        cost=float(cost),
        accuracy=estimate_mean(accuracy),
        splits=max(1, len(pairs) // 2),
        each=accuracy,
    )


def compute_expectation(values: Floats, plan: Allocation) -> Floats:
    """Computes each problem's expected value under an allocation; `values` is (problems, modes)."""
    rows = np.arange(len(plan.choice))
    result = values[rows, plan.choice]
    mixed_rows, share = plan.mix.problems, plan.mix.probabilities
    np.add.at(
        result,
        mixed_rows,
        share * (values[mixed_rows, plan.mix.modes] - values[mixed_rows, plan.choice[mixed_rows]]),
    )
    return np.asarray(result)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Oracle:
    """Accuracy tables for an oracle: of all samples for its upper bound, of halves for its lower bound."""

    choices: tuple[int, ...]  # numbers of samples to choose from; empty: the table's columns
    table: AccuracyTable = field(repr=False)
    pairs: Sequence[Pair] = field(repr=False)  # tables for the lower bound; empty: too few samples
    why: str  # why `pairs` is empty

    @classmethod
    def of(cls, setup: EvaluationSetup) -> Self:
        """Scores the tables; votes are weighted as those of the policies are."""
        weigh = fit_weights(setup.ballots, labels=False) if setup.weighted else None
        scoring = Scoring() if weigh is None else Scoring(aggregate="weighted", by=weigh)
        possible = [choice for choice in CHOICES if choice <= setup.longest]
        table = scoring.score_table(setup.ballots, possible)
        pairs, why = _try_halves(setup.ballots, table, scoring, seed=setup.seed)
        return cls(choices=tuple(possible), table=table, pairs=pairs, why=why)

    def in_sample_accuracy(self, budget: float) -> tuple[float, Floats]:
        """Returns cost and each problem's accuracy, chosen and evaluated on the same samples."""
        plan = solve(self.table, budget=budget)
        return float(plan.mixed_cost), compute_expectation(self.table.accuracy, plan)

    def cross_fit_accuracy(self, budget: float) -> Floats | None:
        """Returns each problem's cross-fitted accuracy; None if there are too few samples."""
        return cross_fit(self.pairs, budget=budget).each if self.pairs else None


def bracket_oracle(setup: EvaluationSetup, *, oracle: Oracle | None = None) -> tuple[OracleBracket, ...]:
    """Computes the oracle's lower and upper bound at each budget."""
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
    oracle = Oracle.of(setup) if oracle is None else oracle
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
    """Computes bounds of an oracle that knows the best mode and number of samples for each problem.

    Costs are in the unit of the modes. The oracle can choose any column of the table: a vote of one mode, or
    of two. The upper bound chooses and evaluates on the same samples; the lower bound is cross-fitted on
    halves of each mode's samples.
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
    """Calls `score_halves`; if there are too few samples, returns no pairs and the reason."""
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
