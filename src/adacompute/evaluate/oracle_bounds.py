"""Bounds on the accuracy of an oracle that knows the best number of samples for each problem.

Choices that are made and evaluated on the same samples profit from luck, so they give an upper bound. Choices
made on half of the samples and evaluated on the other half (cross-fitting) are worse than those made on all,
so they give a lower bound. The oracle decides before sampling, so a policy that watches votes may beat it.
Uniform allocation, the baseline that treats all problems alike, is here too.
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
# two tables of the same problems: an oracle chooses on the first and is evaluated on the second
Pair = tuple[AccuracyTable, AccuracyTable]

_TOLERANCE = 1e-9  # tolerance for rounding errors in accuracies and costs
_SPLITS = 5
_SEED = 0  # seed for random splits of samples
_DRAWS = 500  # number of random subsets for estimating the accuracy of votes; more wouldn't help
CHOICES = (1, 2, 4, 8, 16)  # how many samples the oracle can give a problem
_MODE_CHOICES = (1, 2, 4, 8)  # how many samples of a mode the oracle can give a problem, with several modes


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """Options to pass to `score`, in addition to samples and budgets.

    >>> Scoring(aggregate="any-correct").cost
    'samples'
    """

    aggregate: Aggregate = "vote"
    by: Literal["logprob", "entropy"] | VoteWeights = "logprob"
    cost: Literal["samples", "tokens"] | TokenPrices = "samples"
    mode_set: ModeSet | None = None  # the modes to score, if there are several
    mixed: bool = True  # whether to score votes over samples of two modes too

    def for_rows(self, rows: Sequence[int]) -> "Scoring":
        """Returns the options for the problems `rows`; keeps only these problems' prompt lengths."""
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
        """Calls `score` on these samples with these options."""
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
    """An allocation that gives every problem the second of `modes` with the same probability.

    Otherwise a problem gets the first.
    """

    budget: float  # requested average cost per problem
    cost: float  # actual average cost per problem
    accuracy: MeanEstimate  # mean accuracy over problems, with a 95% interval
    # two columns of an accuracy table, e.g. numbers of samples; the same twice if no mix is needed
    modes: tuple[ModeName, ModeName]
    probability: float  # probability of the second of `modes`; 0 if no mix is needed
    each: Floats = field(repr=False, compare=False)  # expected accuracy of each problem


def solve_uniform(table: AccuracyTable, *, budget: float) -> UniformAllocation:
    """Finds the best allocation at an average cost among those that treat all problems alike.

    It mixes two columns of the table ("modes", such as numbers of samples), in the same way for every
    problem. Raises BudgetOutOfRange if even the cheapest column costs more than the budget.

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
    # expected accuracy of each problem
    each = (1 - share) * table.accuracy[:, first] + share * table.accuracy[:, second]
    return UniformAllocation(
        budget=budget,
        cost=plan.mixed_cost,
        accuracy=estimate_mean(each),
        modes=(table.modes[first], table.modes[second]),
        probability=share,
        each=each,
    )


def uniform_frontier(table: AccuracyTable) -> Frontier:
    """Computes the best accuracy at every average cost among allocations that treat all problems alike."""
    return frontier(_average_modes(table))


def cost_for_accuracy(curve: Frontier, accuracy: float) -> float | None:
    """Finds the lowest average cost at which a frontier reaches an accuracy; None if it never does."""
    if not accuracy <= curve.accuracy[-1] + _TOLERANCE:
        return None
    return float(np.interp(accuracy, curve.accuracy, curve.cost))


def _average_modes(table: AccuracyTable) -> AccuracyTable:
    """Returns a table with a single row, which has each column's average over all problems."""
    return AccuracyTable.of(
        np.clip(table.accuracy.mean(axis=0, keepdims=True), 0.0, 1.0),
        costs=table.cost_matrix.mean(axis=0),
        modes=table.modes,
        unit=table.unit,
        order="any",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossFit:
    """Results of an oracle that chooses on half of the samples and is evaluated on the other half."""

    budget: float  # requested average cost per problem
    cost: float  # average cost on the evaluated half
    accuracy: MeanEstimate  # mean accuracy over problems, with a 95% interval
    splits: int  # how many random splits into halves the results are averaged over
    each: Floats = field(repr=False, compare=False)  # expected accuracy of each problem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OracleComparison:
    """Compares both bounds on the oracle's accuracy with uniform sampling at the same average budget."""

    plan: Allocation  # upper bound: the oracle chooses and is evaluated on the same samples
    # lower bound: the oracle chooses and is evaluated on different samples; None if there are too few samples
    crossfitted: CrossFit | None
    uniform: UniformAllocation
    difference: OracleGain


def compare_with_uniform(table: AccuracyTable, plan: Allocation, pairs: Sequence[Pair]) -> OracleComparison:
    """Compares an oracle's allocation with uniform allocation at the same budget.

    `plan` is the upper bound's allocation. Uniform allocation is computed from `table`, the lower bound from
    `pairs` (see `score_halves`); without pairs, there is no lower bound.
    """
    uniform = solve_uniform(table, budget=plan.budget)
    crossfitted, base = cross_fit(pairs, budget=plan.budget) if pairs else None, uniform.accuracy.mean
    gain = OracleGain(
        low_end=None if crossfitted is None else crossfitted.accuracy.mean - base,
        # expected accuracy if random improvements of `plan.choice` use up the rest of the budget
        high_end=plan.mixed_accuracy - base,
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
    """Splits each problem's samples into halves at random and scores each half; returns pairs of tables.

    An oracle chooses on the first table of a pair and is evaluated on the second. Each split gives two pairs,
    with either half first. `table` must come from the same `ballots` and `scoring`. It determines which
    problems are scored and, without `choices`, the numbers of samples. Several modes need `choices`: numbers
    of samples for all modes or by mode. Raises TooFewSamples if a half is too small.
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
    """Makes an oracle's choices on the first table of each pair, and evaluates them on the second table.

    >>> luck = AccuracyTable.of([[0.5, 0.9]], costs=[1, 2])
    >>> truth = AccuracyTable.of([[0.5, 0.7]], costs=[1, 2])
    >>> cross_fit([(luck, truth)], budget=1.5).accuracy.mean
    0.6
    """
    plans = []
    for chosen, judge in pairs:
        # `solve` fails if even the cheapest choices cost more than the budget, which can happen on this half
        least = float(chosen.cost_matrix.min(axis=1).mean())
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
    """Computes each problem's expected value under an allocation; `values` has a column per choice."""
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

    choices: tuple[int, ...]  # how many samples the oracle can choose; empty with several modes
    table: AccuracyTable = field(repr=False)
    # tables for the lower bound; empty if there are too few samples
    pairs: Sequence[Pair] = field(repr=False)
    why: str  # why `pairs` is empty; "" if it isn't

    @classmethod
    def of(cls, setup: EvaluationSetup) -> Self:
        """Scores the samples of an evaluation; votes are weighted if the policies' votes are."""
        weigh = fit_weights(setup.ballots, labels=False) if setup.weighted else None
        scoring = Scoring() if weigh is None else Scoring(aggregate="weighted", by=weigh)
        possible = [choice for choice in CHOICES if choice <= setup.longest]
        table = scoring.score_table(setup.ballots, possible)
        pairs, why = _try_halves(setup.ballots, table, scoring, seed=setup.seed)
        return cls(choices=tuple(possible), table=table, pairs=pairs, why=why)

    def in_sample_accuracy(self, budget: float) -> tuple[float, Floats]:
        """Returns mean cost and each problem's accuracy; chooses and evaluates on the same samples."""
        plan = solve(self.table, budget=budget)
        return float(plan.mixed_cost), compute_expectation(self.table.accuracy, plan)

    def cross_fit_accuracy(self, budget: float) -> Floats | None:
        """Returns each problem's accuracy on samples that weren't used for choosing.

        Returns None if there are too few samples.
        """
        return cross_fit(self.pairs, budget=budget).each if self.pairs else None


def bracket_oracle(setup: EvaluationSetup, *, oracle: Oracle | None = None) -> tuple[OracleBracket, ...]:
    """Computes the lower and upper bound on the oracle's accuracy at each budget."""
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
    """Computes bounds on an oracle that knows the best mode and number of samples for each problem.

    Budgets have the same unit as the modes' costs. The oracle chooses a vote over samples of one mode or,
    with `mixed`, of two. For the upper bound, it chooses and is evaluated on the same samples; for the lower
    bound, on different halves of each mode's samples.
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
