"""Measures a policy on a split: fits and calibrates it on training problems, and runs it on test problems.

Calibration finds the price or threshold (the policy's dial) that meets a budget on the training problems. It
needs costs, but no labels. A policy's score of the votes is computed once after each sample, and used for all
prices or thresholds.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from adacompute.answers import VoteWeights
from adacompute.errors import (
    BudgetInvalid,
    BudgetOutOfRange,
    NotRecorded,
    PolicyError,
    TooFewSamples,
    format_count,
)
from adacompute.evaluate.resampling import Split
from adacompute.evaluate.rivals import COMPARED
from adacompute.policies.base import Policy
from adacompute.policies.paths import Paths, PolicyRun, draw_paths, grade_by_other_half
from adacompute.policies.votes import VoteState
from adacompute.policies.weights import fit_weights
from adacompute.pool import Ballots
from adacompute.pool.ballots import ABSENT
from adacompute.pool.modes import ModeSet
from adacompute.replay.per_problem import ProblemResults, Sweep, check_paths, run_policy, sweep
from adacompute.replay.replay import select_replayable
from adacompute.score.aggregates import read_scores
from adacompute.score.grades import grade_samples, mask_graded, mask_votable

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# how answers are judged: by their grades, or by agreement with the vote of samples that take no part
Basis = Literal["accuracy", "agreement"]

Votes = Literal["auto", "plain", "weighted"]

LONGEST = 16  # maximum number of samples per request, if that many were recorded
AVERAGE_BUDGETS = (1.5, 2.0, 3.0, 4.0, 6.0)
ORACLE, OURS = "oracle", "stopping"
PEERS = "peers"  # in tables: the best mix of all policies except "stopping" and the oracle
UNIFORM = "fixed"  # name of the policy that gives every problem the same number of samples
# maps the names of variants of "stopping" to their maximum number of rounds
ROUND_LIMITS = {"stopping-2": 2, "stopping-3": 3}
NEED_GRADES = ("classifier", "curve", "shuffled")  # names of policies that can't learn without grades
# names of policies whose constructor takes the budget
_TAKE_BUDGET = ("fixed", "random", "heuristic", "shuffled")
# minimum number and share of problems that must have as many samples as a request may draw
_MIN_PROBLEMS, _MIN_SHARE = 50, 0.05
_FEWEST_HALVED = 4  # without grades, minimum number of samples: two to draw from and two that judge
# number of prices to try; number of thresholds to try besides 0, 0.999 and 1/1, 1/2, 1/3, ...
_PRICES, _THRESHOLDS = 64, 16
_SWEEP_FIELDS = ("cost", "accuracy", "waves", "tokens", "rounds")
# names of policies' methods that score the votes so far; the score decides when to stop
_JUDGE_METHODS = ("estimate_critical_prices", "compute_doubt")
# maximum number of random orders of a training problem's samples; a few suffice to estimate an average cost
_CALIBRATION_ORDERS = 10
# policies without a price or threshold are also fitted for the largest budget times this factor, because they
# may spend less than their budget
_ABOVE_LARGEST = 1.6
# policies without a price or threshold are also fitted for this budget, unless one of the budgets is smaller
_BELOW_SMALLEST = 1.2


class PolicyMaker(Protocol):
    """Makes and fits a policy.

    On each split, a policy with a price or threshold is made once, with the smallest budget. Any other policy
    is made for each budget.
    """

    def __call__(
        self, train: Ballots, *, budget: float, weigh: VoteWeights | None, longest: int
    ) -> Policy: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPolicy:
    """A policy to compare: its name in tables, and a callable that makes and fits it."""

    name: str
    maker: PolicyMaker
    # names of variants that are this fitted policy with a limit on rounds, so they aren't fitted themselves
    limited: tuple[str, ...] = ()

    def measure(self, data: "SplitData") -> "dict[str, SplitResult]":
        """Fits and measures the policy and its variants on one split; returns results by name."""
        policy = data.fit_policy(self.maker, data.setup.budgets[0])
        results = {self.name: measure_policy(data, self, policy)}
        for name in self.limited:
            hasty = copy.copy(policy)
            hasty.max_waves = ROUND_LIMITS[name]
            results[name] = measure_policy(data, self, hasty)
        return results


@dataclass(frozen=True, slots=True)
class _RegistryMaker:
    """Makes and fits a policy of a kind that is in `COMPARED`; can be pickled for other processes."""

    kind: str
    all_ballots: Ballots | None = None  # all problems, for training and for testing
    settings: Mapping[str, Any] = field(default_factory=dict)  # options for the policy's constructor
    fit_settings: Mapping[str, Any] = field(default_factory=dict)  # options for the policy's `fit`

    def __call__(self, train: Ballots, *, budget: float, weigh: VoteWeights | None, longest: int) -> Policy:
        options: dict[str, Any] = {"weigh": weigh, "longest": longest}
        if self.kind in _TAKE_BUDGET:
            options["budget"] = budget
        if self.kind == OURS and weigh is not None:
            options["weigh"] = "auto"  # with "auto", the policy fits the weights of votes itself
        # "guarantee" can't weigh votes; with `delta=None`, its allowed probability of an error is its
        # threshold
        if self.kind == "guarantee":
            options = {"longest": longest, "delta": None}
        if self.kind == UNIFORM:
            options["budgets"] = range(1, longest + 1)
        policy: Any = COMPARED[self.kind](**{**options, **self.settings})
        if self.kind == OURS:  # use a prior that wasn't learned from test problems
            policy = policy.copy_without(train if self.all_ballots is None else self.all_ballots)
        fit_settings = {"budget": budget} if self.kind == "classifier" else self.fit_settings
        fitted_policy: Policy = policy.fit(train, **fit_settings)
        return fitted_policy


def make_policy(
    kind: str,
    all_ballots: Ballots,
    *,
    settings: Mapping[str, Any] | None = None,
    fit_settings: Mapping[str, Any] | None = None,
) -> ComparedPolicy:
    """Makes a policy of a kind in `COMPARED`, with options for its constructor and its `fit`.

    "stopping" gets a prior not learned from `all_ballots`, the training and test problems.
    """
    maker = _RegistryMaker(
        kind, all_ballots if kind == OURS else None, dict(settings or {}), dict(fit_settings or {})
    )
    return ComparedPolicy(name=kind, maker=maker)


def select_policies(
    policies: Sequence[str | tuple[str, PolicyMaker]], all_ballots: Ballots | None = None
) -> tuple[ComparedPolicy, ...]:
    """Looks up the policies to compare, given as names or as (name, maker) pairs; leaves out the oracle.

    Raises PolicyError if a name is unknown or repeated. "stopping" gets a prior that wasn't learned from
    `all_ballots`, the training and test problems.
    """
    chosen: dict[str, ComparedPolicy] = {}
    for item in policies:
        name, maker = (item, None) if isinstance(item, str) else item
        if name in chosen:
            raise PolicyError(f"policy {name!r} is named twice; name each policy once")
        if name == PEERS:
            raise PolicyError(f"{PEERS!r} is not a policy, but the best mix of other policies; leave it out")
        if maker is None and name not in (ORACLE, *ROUND_LIMITS, *COMPARED):
            known = ", ".join(sorted((*COMPARED, *ROUND_LIMITS)))
            raise PolicyError(f"there is no policy {name!r}; the policies are {known}")
        if name in ROUND_LIMITS and maker is None:
            settings = {"max_waves": ROUND_LIMITS[name]}
            chosen[name] = ComparedPolicy(name=name, maker=_RegistryMaker(OURS, all_ballots, settings))
        elif name != ORACLE:
            chosen[name] = ComparedPolicy(
                name=name, maker=maker or _RegistryMaker(name, all_ballots if name == OURS else None)
            )
    # variants with a limit on rounds use the same fitted policy
    if OURS in chosen and isinstance(chosen[OURS].maker, _RegistryMaker):
        limited = tuple(
            name for name in ROUND_LIMITS if name in chosen and isinstance(chosen[name].maker, _RegistryMaker)
        )
        chosen[OURS] = replace(chosen[OURS], limited=limited)
        chosen = {name: policy for name, policy in chosen.items() if name not in limited}
    return tuple(chosen.values())


def make_dial_grid(policy: Policy) -> Floats:
    """Lists the prices or thresholds to try, ascending; they don't depend on what the policy has learned."""
    if policy.dial == "price":
        return np.concatenate([[0.0], np.geomspace(2e-4, 0.6, _PRICES - 2), [1.1]])
    windows = 1.0 / np.arange(policy.longest, 0, -1)
    if policy.kind == "esc":  # only thresholds of 1/1, 1/2, 1/3 … make a difference to this policy
        return windows
    return np.unique(np.concatenate([[0.0, 0.999], np.geomspace(1e-4, 0.7, _THRESHOLDS), windows]))


def sweep_with_cache(policy: Policy, paths: Paths, dials: Sequence[float | None]) -> Sweep:
    """Replays a policy at several prices or thresholds, like `sweep`, but scores the votes only once.

    A score says how much another sample seems worth, or how doubtful the leading answer is. Scores don't
    depend on the price or threshold.
    """
    if _judge_method(policy) is None or len(dials) < 2:
        return sweep(policy, paths, dials)
    cached = CachedPolicy(policy, paths)
    results = [ProblemResults.from_run(paths, cached.run(dial)) for dial in dials]
    return Sweep(
        dials=tuple(dials),
        **{name: np.array([getattr(result, name) for result in results]) for name in _SWEEP_FIELDS},
    )


def _judge_method(policy: Policy) -> str | None:
    return next((name for name in _JUDGE_METHODS if hasattr(policy, name)), None)


class CachedPolicy:
    """Runs a policy on recorded samples many times, but reads prompts and scores votes only once."""

    def __init__(self, policy: Policy, paths: Paths) -> None:
        self._policy, self._paths = policy, paths
        self._find_rule: Any = getattr(policy, "find_stopping_rule", None)
        method = _judge_method(policy)
        if method is None:
            self._reading = policy.read(paths.ballots.prompts)
            return
        self._judgments = _JudgmentCache(policy, paths, method)
        stand_in: Any = copy.copy(policy)
        setattr(stand_in, method, self._judgments)
        self._policy = stand_in
        # Treat each random order as a problem, and its number as the features of the prompt. The policy
        # passes this number to the cache, which looks up the order's scores.
        self._paths = replace(paths, ballots=range(len(paths)), orders=1)  # type: ignore[arg-type]
        self._reading = np.arange(len(paths), dtype=np.float64)[:, None]

    def run(self, dial: float | Floats | None) -> PolicyRun:
        """Runs the policy at one price or threshold, as `run_policy` does."""
        rule = None if self._find_rule is None else self._find_rule(dial)
        if rule is None:
            return run_policy(self._policy, self._paths, dial=dial, reading=self._reading)
        check_paths(self._policy, self._paths)
        start, limit = rule
        more = (self._judgments.trace_lowest(start, self._policy.longest) > limit).sum(axis=0, dtype=np.int64)
        return PolicyRun.of(self._paths, start + more, 1 + more)


class _JudgmentCache:
    """Computes, only once, a policy's scores of the votes after 1, 2, ... samples of each random order."""

    def __init__(self, policy: Any, paths: Paths, method: str) -> None:  # noqa: ANN401 - whatever judges
        self.judge, self.paths = getattr(policy, method), paths
        self.reading = policy.read(paths.ballots.prompts)[paths.problems]
        self.by_draws: dict[int, Floats] = {}
        # (argument `start`, result) of the last computation in `trace_lowest`
        self.lowest: tuple[int, Floats] | None = None

    def __call__(self, path_numbers: Floats, state: VoteState) -> Floats:
        """Returns the score of the votes in `state` for each random order; NaN before the first sample."""
        index = path_numbers[:, 0].astype(np.int64)
        verdicts = np.full(len(index), np.nan)
        for drawn in np.unique(state.drawn).tolist():
            if drawn > 0:
                at_draw = state.drawn == drawn
                verdicts[at_draw] = self._judge_after(drawn)[index[at_draw]]
        return verdicts

    def _judge_after(self, drawn: int) -> Floats:
        if drawn not in self.by_draws:
            self.by_draws[drawn] = self.judge(self.reading, self.paths.state_at(drawn))
        return self.by_draws[drawn]

    def trace_lowest(self, start: int, longest: int) -> Floats:
        """Returns each random order's lowest score; row i: lowest after `start` to `start` + i samples."""
        if self.lowest is None or self.lowest[0] != start:
            trace = np.empty((longest - start, len(self.paths)))
            for row, drawn in enumerate(range(start, longest)):
                trace[row] = self._judge_after(drawn)
            self.lowest = start, np.minimum.accumulate(trace, axis=0)
        return self.lowest[1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvaluationSetup:
    """The samples and options that all policies of an evaluation share."""

    ballots: Ballots = field(repr=False)
    budgets: tuple[float, ...]
    weighted: bool
    orders: int
    longest: int
    seed: int
    basis: Basis
    # False: don't search for the price or threshold of each budget, so there are no results by budget
    calibrates: bool = True
    mode_set: ModeSet | None = None  # the modes and their unit of cost; None: one mode, costs in samples
    # whether a policy over several modes learns from grades; None: yes, if there are grades
    labels: bool | None = None

    @property
    def modes(self) -> ModeSet:
        """The modes; raises PolicyError if there is only one."""
        if self.mode_set is None:
            raise PolicyError("these samples are of one mode; give several")
        return self.mode_set

    @property
    def learns_by_agreement(self) -> bool:
        """Whether settings are chosen by their agreement with the vote of all samples, not by grades."""
        return self.labels is False or self.basis == "agreement"


def prepare_setup(
    ballots: Ballots,
    budgets: Sequence[float],
    *,
    votes: Votes,
    orders: int,
    seed: int,
    calibrates: bool = True,
) -> tuple[EvaluationSetup, int]:
    """Checks samples and budgets before fits begin; returns the setup, and how many problems are left out."""
    if orders < 1:
        raise PolicyError(f"{orders} orders of the samples can't be replayed; give 1 or more, e.g. 50")
    evaluated, basis = select_graded(ballots)
    longest = min(LONGEST, int(evaluated.drawn.min(initial=LONGEST)))
    if len(evaluated) < 2:
        count = "1 problem" if len(evaluated) == 1 else "a pool without problems"
        raise TooFewSamples(f"{count} can't be evaluated; give 2 problems or more")
    if longest < 1:
        name = evaluated.ids[int(evaluated.drawn.argmin())]
        raise TooFewSamples(f"problem {name!r} has no sample; collect 1 or more of each problem")
    # raises an error if samples can't be replayed; otherwise, `evaluated` stays the same
    evaluated, _ = select_replayable(evaluated, [longest])
    checked_budgets = check_averages(budgets, longest)
    weighted = uses_weighted_votes(evaluated, votes)
    setup = EvaluationSetup(
        ballots=evaluated,
        budgets=checked_budgets,
        weighted=weighted,
        orders=orders,
        longest=longest,
        seed=seed,
        basis=basis,
        calibrates=calibrates,
    )
    return setup, len(ballots) - len(evaluated)


def prepare_modes(
    ballots: Ballots,
    mode_set: ModeSet,
    budgets: Sequence[float] | None,
    *,
    votes: Votes,
    orders: int,
    seed: int,
    labels: bool | None = None,
) -> tuple[EvaluationSetup, int]:
    """Checks samples and budgets of several modes; returns the setup, and how many problems are left out.

    Leaves out modes without a finite cost. If `budgets` is None, chooses some that suit the modes' costs.
    """
    modes = tuple(mode for mode in mode_set.modes if math.isfinite(mode.cost))
    if len(modes) < 2:
        raise PolicyError(
            f"there is nothing to compare: of the modes, {len(modes)} may be drawn (has a finite cost); "
            "give two or more, or evaluate one mode alone"
        )
    if not modes[-1].cost:
        raise PolicyError("every mode is free, so there is no cost to compare at; give costs")
    mode_set = replace(mode_set, modes=modes)
    recorded = ballots.select(modes)
    evaluated, basis = select_graded(recorded)
    setup = EvaluationSetup(
        ballots=evaluated,
        budgets=_check_costs(mode_set, budgets),
        weighted=votes != "plain",
        orders=orders,
        longest=min(LONGEST, max(int(part.drawn.min()) for part in evaluated.parts)),
        seed=seed,
        basis=basis,
        mode_set=mode_set,
        labels=labels,
    )
    return setup, len(recorded) - len(evaluated)


def _check_costs(mode_set: ModeSet, budgets: Sequence[float] | None) -> tuple[float, ...]:
    """Checks and sorts average costs; if none are given, chooses some that suit the modes' costs."""
    cheapest, dearest = float(mode_set.costs[0]), float(mode_set.costs[-1])
    if budgets is None:
        low = max(cheapest * 1.5, dearest * 0.2)
        between = (float(f"{each:.2g}") for each in (*np.linspace(low, dearest, 3), 2 * dearest))
        return tuple(sorted({max(each, cheapest) for each in between}))
    for amount in budgets:
        if not (math.isfinite(amount) and amount > 0 and amount >= cheapest * (1 - 1e-9)):
            raise BudgetInvalid(
                f"budget {amount:g} is too small: one sample of the cheapest mode, {mode_set.names[0]!r}, "
                f"costs {cheapest:g}; give that much or more, above 0"
            )
    if not budgets:
        raise BudgetInvalid("no budget is given; give some average costs in the unit of the modes, or None")
    return tuple(sorted({float(budget) for budget in budgets}))


def select_graded(ballots: Ballots) -> tuple[Ballots, Basis]:
    """Returns the graded problems that can be voted on, and how answers are judged.

    If there are none, returns half of each problem's samples, judged by agreement with the other half. Raises
    TooFewSamples if no problem has enough samples for that.
    """
    usable = mask_graded(ballots, grade_samples(ballots)) & mask_votable(ballots)
    if usable.any():
        return (ballots if usable.all() else ballots.only(np.flatnonzero(usable))), "accuracy"
    halved = np.flatnonzero(ballots.parts[-1].drawn >= _FEWEST_HALVED)
    if len(ballots) and not len(halved):
        raise TooFewSamples(
            f"without grades a problem needs {_FEWEST_HALVED} samples, half of them to judge the others, and "
            "none has; record more samples, or gold answers"
        )
    return grade_by_other_half(ballots.only(halved)), "agreement"


def hide_grades(ballots: Ballots, basis: Basis) -> Ballots:
    """Returns what policies may learn from: without the grades if these are agreement."""
    return ballots if basis == "accuracy" else replace(ballots, correct=ballots.correct * np.nan)


def select_problems(ballots: Ballots, requested: int | None = None) -> tuple[Ballots, int]:
    """Returns the problems that have enough samples to learn from, and how many samples are enough.

    Enough is `requested`, if given. Otherwise it is the largest number up to 16 that at least 50 problems and
    a twentieth of all problems have. If fewer problems have two samples or more, it is the smallest number
    above 1 that a problem has.
    """
    longest = _choose_longest(ballots.drawn) if requested is None else requested
    rows = np.flatnonzero(ballots.drawn >= longest)
    if not len(rows):
        raise TooFewSamples(
            f"no problem has {longest} samples, the most is {int(ballots.drawn.max())}; give --longest "
            f"{int(ballots.drawn.max())} or less"
        )
    return (ballots if len(rows) == len(ballots) else ballots.only(rows)), longest


def leave_out_short(ballots: Ballots) -> tuple[Ballots, int]:
    """Leaves out problems with too few samples (see `select_problems`); also returns how many.

    Leaves out nothing if no graded problem has two samples.
    """
    graded, basis = select_graded(ballots)
    if graded.drawn.max(initial=0) < 2:
        return ballots, 0
    rows = np.flatnonzero(ballots.drawn >= select_problems(graded)[1] * (1 if basis == "accuracy" else 2))
    return (ballots, 0) if len(rows) == len(ballots) else (ballots.only(rows), len(ballots) - len(rows))


def _choose_longest(drawn: Ints) -> int:
    repeated = int((drawn > 1).sum())
    if not repeated:
        return 1
    problems = min(repeated, max(_MIN_PROBLEMS, -(-len(drawn) // round(1 / _MIN_SHARE))))
    return min(LONGEST, int(np.sort(drawn)[-problems]))


def check_averages(budgets: Sequence[float], longest: int) -> tuple[float, ...]:
    """Checks and sorts average budgets; raises BudgetOutOfRange if one is below 1 or above `longest`."""
    rising = tuple(sorted({float(budget) for budget in budgets}))
    for budget in rising:
        if not 1 <= budget <= longest:
            raise BudgetOutOfRange(
                f"budget {budget:g} can't be spent: a problem has {format_count(longest, 'sample')}, or a "
                f"policy draws no more; give 1 to {longest}"
            )
    if not rising:
        raise BudgetOutOfRange("no budget was given to evaluate at; give one or more, e.g. 2")
    return rising


def uses_weighted_votes(ballots: Ballots, votes: Votes) -> bool:
    """Whether votes are weighted: if all samples have confidence or scores, and `votes` isn't "plain"."""
    recorded = records_confidence(ballots) or records_scores(ballots)
    if votes == "weighted" and not recorded:
        raise NotRecorded(
            "not every sample has the tokens and the log-probability, or the score, that weighted votes "
            "need; record them, or give votes='plain' (--votes plain)"
        )
    return recorded and votes != "plain"


def records_confidence(ballots: Ballots) -> bool:
    """Whether every sample records its number of tokens and its log-probability."""
    return bool(np.isfinite(ballots.signal("logprob")[ballots.classes != ABSENT]).all())


def records_scores(ballots: Ballots) -> bool:
    """Whether every sample with an answer has a verifier's score."""
    return ballots.signals is not None and bool(read_scores(ballots)[1][ballots.classes >= 0].all())


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedDial:
    """Two prices or thresholds: a request gets `second` with the probability `probability`, else `first`."""

    first: float
    second: float
    probability: float
    reached: bool  # False if all settings tried cost less than the budget, or all cost more


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SplitResult:
    """A policy's results on the test problems of a split; unknown values are NaN."""

    rows: Floats  # cost, accuracy, rounds and tokens at each budget; shape (4, budgets, problems)
    points: Floats  # cost, accuracy, rounds and tokens at each setting; shape (4, settings, problems)
    # price or threshold for each budget; None if the policy has none
    dials: tuple[CalibratedDial | None, ...]
    rounds: Floats  # share of requests with 0, 1, ... rounds; shape (settings, rounds + 1)
    # with several modes: mean number of samples from each mode; shape (settings, modes, problems)
    draws: Floats | None = None
    imitation: Floats | None = None  # for classifiers: result of `measure_imitation`; shape (budgets, 4)


class SplitData:
    """A split's training and test problems, with random orders of their samples, shared by all policies."""

    def __init__(self, setup: EvaluationSetup, split: Split, number: int) -> None:
        self.setup, self.split, self.number = setup, split, number
        self.train = hide_grades(setup.ballots.only(split.train), setup.basis)
        self.test = setup.ballots.only(split.test)
        self._paths_by_stream: dict[tuple[bool, VoteWeights | None], Paths] = {}

    @cached_property
    def weigh(self) -> VoteWeights | None:
        """Weights of votes, fitted on the training problems; None if votes aren't weighted."""
        if not self.setup.weighted:
            return None
        return fit_weights(self.train, labels=not self.setup.learns_by_agreement)

    def draw_paths(self, weigh: VoteWeights | None, *, training: bool) -> Paths:
        """Returns random orders of the training or test problems' samples, the same ones for any `weigh`."""
        if (training, weigh) not in self._paths_by_stream:
            self._paths_by_stream[training, weigh] = draw_paths(
                self.train if training else self.test,
                rng=self.make_rng(training=training),
                orders=self.count_orders(training=training),
                longest=self.setup.longest,
                weigh=weigh,
            )
        return self._paths_by_stream[training, weigh]

    def make_rng(self, *, training: bool) -> np.random.Generator:
        """Returns a random generator with a fixed seed: all policies get the same orders of the samples."""
        return np.random.default_rng([self.setup.seed, self.number, 0 if training else 1])

    def count_orders(self, *, training: bool) -> int:
        """Returns how many random orders of a problem's samples are used."""
        return min(_CALIBRATION_ORDERS, self.setup.orders) if training else self.setup.orders

    def fit_policy(self, maker: PolicyMaker, budget: float) -> Policy:
        """Fits a policy on the training problems."""
        return maker(self.train, budget=budget, weigh=self.weigh, longest=self.setup.longest)


def measure_policy(data: SplitData, compared: ComparedPolicy, policy: Policy) -> SplitResult:
    """Measures a policy on a split, at each budget and setting.

    `policy` must have been fitted for the first budget.
    """
    if policy.dial is None:
        return _measure_without_dial(data, compared, policy)
    return _measure_with_dial(data, policy)


def _measure_with_dial(data: SplitData, policy: Policy) -> SplitResult:
    """Measures a policy whose price or threshold for each budget is found on training problems."""
    grid = make_dial_grid(policy).tolist()

    def sweep_paths(training: bool) -> tuple[Floats, Floats]:
        paths = data.draw_paths(policy.weigh, training=training)
        swept = sweep_with_cache(policy, paths, grid)
        return stack_sweep(swept), share_rounds(swept)

    return measure_dial(data.setup, grid, sweep_paths)


def measure_dial(
    setup: EvaluationSetup,
    grid: Sequence[float],
    sweep_paths: Callable[[bool], tuple[Floats, Floats]],
) -> SplitResult:
    """Measures a policy on test problems, at each dial (price or threshold) in `grid` and at each budget.

    `grid` goes from the highest to the lowest cost. `sweep_paths(training)` returns two arrays: cost,
    accuracy, rounds and tokens, of shape (4, dials, problems); and the share of requests with each number of
    rounds, of shape (dials, rounds + 1). The dials for a budget are found on training problems.
    """
    test_values, rounds = sweep_paths(False)
    calibrated, rows = [], [test_values[:, 0]]
    if setup.calibrates:
        costs = sweep_paths(True)[0][0].mean(axis=1)  # average cost at each price or threshold
        for budget in setup.budgets:
            at, share, reached = interpolate_dial(costs, budget)
            next_at = min(at + 1, len(grid) - 1)
            calibrated.append(
                CalibratedDial(first=grid[at], second=grid[next_at], probability=share, reached=reached)
            )
            rows.append((1 - share) * test_values[:, at] + share * test_values[:, next_at])
    return SplitResult(
        rows=np.stack(rows, axis=1)[:, 1:],
        points=test_values,
        dials=tuple(calibrated),
        rounds=rounds,
    )


def _measure_without_dial(data: SplitData, compared: ComparedPolicy, first: Policy) -> SplitResult:
    """Fits and measures the policy for each budget, and for two more budgets: a larger and a smaller one."""
    setup = data.setup
    extra = {
        min(float(setup.longest), _ABOVE_LARGEST * setup.budgets[-1]),
        min(_BELOW_SMALLEST, setup.budgets[0]),
    }
    if compared.name == UNIFORM:
        extra = {float(count) for count in range(1, setup.longest + 1)}
    budgets = [*setup.budgets, *sorted(extra - set(setup.budgets))]
    policies = [first, *(data.fit_policy(compared.maker, budget) for budget in budgets[1:])]
    runs = [
        sweep_with_cache(policy, data.draw_paths(policy.weigh, training=False), [None]) for policy in policies
    ]
    points = np.concatenate([stack_sweep(run) for run in runs], axis=1)
    count = len(setup.budgets)
    return SplitResult(
        rows=points[:, :count],
        points=points,
        dials=(None,) * count,
        rounds=np.concatenate([share_rounds(run) for run in runs]),
        imitation=measure_imitation(policies[:count], data) if setup.basis == "accuracy" else None,
    )


def measure_imitation(classifiers: Sequence[Policy], data: SplitData) -> Floats | None:
    """Measures how often a classifier chooses the oracle's number of samples; shape (budgets, 4).

    There is one classifier per budget. A rule for comparison always chooses the oracle's most frequent number
    on training problems. The columns are: classifier and rule on test problems, classifier and rule on
    training problems. Returns None for other policies.
    """
    rows = []
    for classifier in classifiers:
        if classifier.kind != "classifier":
            return None
        policy: Any = classifier
        labels = policy.compute_labels(data.setup.ballots, policy.budget_)
        test, train = labels[data.split.test], labels[data.split.train]
        commonest = np.bincount(train).argmax()
        hits = [policy.predict_budgets(data.test) == test, test == commonest]
        hits += [policy.predict_budgets(data.train) == train, train == commonest]
        rows.append([float(share.mean()) for share in hits])
    return np.array(rows)


def share_rounds(result: Sweep) -> Floats:
    """Returns the share of requests with 0, 1, ... rounds; shape (dials, rounds + 1)."""
    counts = result.rounds.sum(axis=1)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def stack_sweep(result: Sweep) -> Floats:
    """Stacks mean cost, accuracy, rounds and tokens; shape (4, prices or thresholds, problems)."""
    return np.stack([result.cost, result.accuracy, result.waves, result.tokens])


def interpolate_dial(costs: Floats, budget: float) -> tuple[int, float, bool]:
    """Finds two neighbours in the falling array `costs` whose mix costs the budget.

    Returns the index of the first, the share of the second, and whether the budget can be met.

    >>> interpolate_dial(np.array([8.0, 4.0, 2.0, 1.0]), 3.0)
    (1, 0.5, True)
    """
    if budget >= costs[0]:
        return 0, 0.0, bool(budget == costs[0])
    if budget <= costs[-1]:
        return len(costs) - 1, 0.0, bool(budget == costs[-1])
    next_at = int(np.argmax(costs <= budget))  # index of the first cost within the budget
    return next_at - 1, float((costs[next_at - 1] - budget) / (costs[next_at - 1] - costs[next_at])), True
