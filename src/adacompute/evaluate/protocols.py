"""Evaluates policies at average budgets on recorded samples, by one of two protocols.

"held-out": problems are split into folds, and groups of similar problems stay together. A policy that is
tested on one fold is fitted on the other folds, which also determine its price or threshold. "paper", the
paper's protocol: a policy is fitted on a random 80% of the problems and evaluated on all, so partly on
problems that it has seen. With several modes, policies choose modes too, and `mode_rivals` adds mixes,
routers and cascades. `reduce_order_noise` makes results less noisy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.errors import BudgetInvalid, BudgetOutOfRange, PolicyError
from adacompute.evaluate.comparison import (
    Evaluation,
    OracleBracket,
    PolicyResult,
    ProtocolName,
    match_policies,
    pool_folds,
    pool_seeds,
)
from adacompute.evaluate.conclusions import (
    EvaluationRuns,
    assemble_evaluation,
    compare_by_score,
    make_bootstrap,
)
from adacompute.evaluate.measure import (
    AVERAGE_BUDGETS,
    NEED_GRADES,
    ORACLE,
    ROUND_LIMITS,
    UNIFORM,
    Basis,
    ComparedPolicy,
    EvaluationSetup,
    PolicyMaker,
    Votes,
    leave_out_short,
    prepare_modes,
    prepare_setup,
    select_graded,
    select_policies,
)
from adacompute.evaluate.mode_rivals import ModeRivals
from adacompute.evaluate.mode_verdict import judge_modes
from adacompute.evaluate.oracle_bounds import Scoring, bracket_oracle
from adacompute.evaluate.parallel import Compared, ProgressCallback, SetupWork, measure_all, split_progress
from adacompute.evaluate.published import PUBLISHED, PublishedCascades
from adacompute.evaluate.resampling import ScoreRow, Split, kfold, random_split
from adacompute.evaluate.verdict import choose_candidate, count_verdict_steps, judge_pool, refuse_comparison
from adacompute.policies.base import PoolSource, get_ballots
from adacompute.policies.weights import fit_confidence_weights
from adacompute.pool import Ballots, JoinedPool
from adacompute.pool.modes import ModeSet, read_modes
from adacompute.records import Budget, TokenPrices
from adacompute.replay.calibrate import RequestCosts, parse_average
from adacompute.replay.matching import PolicyPoints
from adacompute.score.aggregates import read_scores

Floats = npt.NDArray[np.float64]
PolicyChoices = Sequence[str | tuple[str, PolicyMaker]]

POLICY_NAMES = (
    "fixed",
    "random",
    "heuristic",
    "asc",
    "esc",
    "doubling",
    "cges",
    "classifier",
    "curve",
    "stopping",
    *ROUND_LIMITS,
    "oracle",
)
_FOLDS = 5
# number of random orders of a problem's samples: with one mode, and with several
_ORDERS, _MODE_ORDERS = 50, 40
# `reduce_order_noise` uses votes of these numbers of samples as control variates
_CONTROLS = (1, 2, 3, 4, 6, 8, 12, 16)
# `reduce_order_noise` divides the problems into this number of parts; coefficients for a part are fitted on
# all others
_GROUPS = 5
# with fewer problems, `reduce_order_noise` doesn't use control variates: with 60 problems, they added noise
_FEWEST_PROBLEMS = 150
# ridge penalties in `_fit_coefficients`, as multiples of the mean sum of squares: for errors of votes on the
# random orders that were tried, and for the exact means of votes over all orders
_RIDGE, _WEAK_RIDGE = 0.1, 1e-3
_TOLERANCE = 1e-9


def select_eligible(
    policies: tuple[ComparedPolicy, ...], basis: Basis
) -> tuple[tuple[ComparedPolicy, ...], tuple[str, ...]]:
    """Returns the policies that can be evaluated, and the names of those that can't for lack of grades."""
    excluded = tuple(
        policy.name for policy in policies if basis == "agreement" and policy.name in NEED_GRADES
    )
    eligible = tuple(policy for policy in policies if policy.name not in excluded)
    if not eligible:
        raise PolicyError("there is no policy to evaluate; name one or more, e.g. fixed and stopping")
    return eligible, excluded


def evaluate(
    pool: PoolSource,
    *,
    budgets: Sequence[float | str | Budget] | None = None,
    policies: PolicyChoices = POLICY_NAMES,
    protocol: ProtocolName = "held-out",
    folds: int = _FOLDS,
    seeds: int = 3,
    groups: str | None = None,
    votes: Votes = "auto",
    orders: int | None = None,
    seed: int = 0,
    prices: TokenPrices | None = None,
    modes: ModeSet | None = None,
    labels: bool | None = None,
    workers: int = 1,
    progress: ProgressCallback | None = None,
) -> Evaluation:
    """Compares policies at average budgets and exactly equal cost, with intervals over problems.

    With one mode, `policies` are names or (name, maker) pairs (`adacompute.evaluate.measure.PolicyMaker`),
    and budgets are average numbers of samples. A budget can also be "500 tokens", or with `prices` "2 USD per
    1000"; policies are then compared by the cost of requests, without oracle and verdict. Problems with too
    few samples are left out as in `fit` (`Evaluation.short` is their number). The verdict is about `stopping`
    if it is compared, or else about the first policy. Folds, orders and seed don't change it, because it has
    a protocol of its own (`adacompute.evaluate.verdict`).

    With several modes (a joined pool, or `modes`), a policy over all modes is compared with each mode alone,
    mixes, routers and cascades. Budgets have the same unit as the modes' costs. If they are None, some are
    chosen, up to twice the cost of the most expensive mode. `policies` only says whether to include "oracle".
    With `labels=False`, policies are fitted and chosen without grades.

    Similar problems are held out and resampled together. `groups` names a column, such as "subject": problems
    with the same value count as similar. With "none", only equal questions do; with "alike", questions that
    look similar. None keeps the pool's groups; if it has none, it means "alike". Without grades, half of a
    problem's samples (from the most expensive mode) take no part: accuracy is replaced by agreement with
    their vote, and the result says so. Several `workers` are processes, used only if all policies are names.
    They don't change the results, but scripts then need `if __name__ == "__main__":`.
    """
    if (
        modes is not None
        or isinstance(pool, JoinedPool)
        or (isinstance(pool, Ballots) and len(pool.modes) > 1)
    ):
        return evaluate_modes(
            read_modes(pool).group(groups),
            ModeSet.of(pool) if modes is None else modes,
            budgets=None if budgets is None else [float(budget) for budget in budgets],  # type: ignore[arg-type]
            folds=folds,
            votes=votes,
            orders=orders,
            seed=seed,
            labels=labels,
            oracle=ORACLE in policies,
            workers=workers,
            progress=progress,
        )[1]
    if any(not isinstance(name, str) for name in policies):
        workers = 1  # a maker in a (name, maker) pair may not be picklable, so use only this process
    ballots = get_ballots(pool).group(groups)
    kept, short = leave_out_short(ballots)
    averages = [parse_average(budget, prices) for budget in (AVERAGE_BUDGETS if budgets is None else budgets)]
    options: dict[str, Any] = {
        "protocol": protocol,
        "parts": folds if protocol == "held-out" else seeds,
        "votes": votes,
        "orders": _ORDERS if orders is None else orders,
        "workers": workers,
    }
    if any(average.unit != "samples" for average in averages):
        return _evaluate_in_unit(
            kept, averages, prices, policies, seed=seed, short=short, progress=progress, **options
        )
    first_progress, second_progress = split_progress(progress, count_verdict_steps(ballots))
    runs = run_policies(
        kept,
        budgets=[average.amount for average in averages],
        policies=policies,
        seed=_draw_seed(seed),
        progress=first_progress,
        beside={ORACLE: _bracket_graded} if ORACLE in policies else None,
        **options,
    )
    verdict = judge_pool(
        ballots,
        policy=choose_candidate(_leave_out_published(policies)),
        budgets=runs.setup.budgets,
        votes=votes,
        workers=workers,
        progress=second_progress,
    )
    return assemble_evaluation(runs, verdict, oracle=runs.beside.get(ORACLE, ()), short=short)


def evaluate_scores(ballots: Ballots) -> tuple[ScoreRow, ...]:
    """Compares votes weighted by verifier scores with plain votes; returns no rows without scores."""
    setup, _ = prepare_setup(
        leave_out_short(ballots.group())[0], (1.0,), votes="auto", orders=1, seed=_draw_seed(0)
    )
    return compare_by_score(setup, _make_splits(setup, "held-out", _FOLDS))


def _draw_seed(seed: int) -> int:
    """Derives the seed for splits, random orders of the samples and intervals from the user's seed."""
    return int(np.random.default_rng(seed).integers(2**31))


def _bracket_graded(setup: EvaluationSetup) -> tuple[OracleBracket, ...]:
    """Computes the oracle's bounds at each budget; empty if there are no grades."""
    return bracket_oracle(setup) if setup.basis == "accuracy" else ()


def _evaluate_in_unit(
    ballots: Ballots,
    averages: Sequence[Budget],
    prices: TokenPrices | None,
    policies: PolicyChoices,
    *,
    short: int,
    **options: Any,  # noqa: ANN401 - options of run_policies
) -> Evaluation:
    """Compares policies at equal average cost in tokens or money, computed from recorded tokens.

    Requests that need more samples often have longer responses too. So a comparison in samples would make
    adaptive policies look better than they are. Prompts are charged as `prices` says, or else as in the
    recorded calls (`PromptCharge`).
    """
    if len({average.unit for average in averages}) != 1:
        raise BudgetInvalid(
            f"budgets {', '.join(map(str, averages))} are not all in samples, in tokens, or in money; give "
            "one unit"
        )
    RequestCosts.of(averages[0], ballots, prices)  # called only to raise an error if costs can't be computed
    most = int(select_graded(ballots)[0].drawn.min(initial=16))
    in_samples = [budget for budget in AVERAGE_BUDGETS if budget <= most]
    runs = run_policies(
        ballots,
        budgets=in_samples or AVERAGE_BUDGETS[:1],
        policies=[name for name in policies if name != ORACLE],
        calibrates=False,
        **options,
    )
    costs = RequestCosts.of(averages[0], runs.setup.ballots, prices)
    everyone = tuple(_count_in_unit(result, costs) for result in runs.everyone)
    amounts = tuple(sorted({average.amount for average in averages}))
    least = min(float(result.points.cost.mean(axis=1).min()) for result in everyone)
    if amounts[-1] < least:
        unit = averages[0].currency or averages[0].unit
        raise BudgetOutOfRange(
            f"budget {amounts[-1]:g} {unit} a request is below what one sample costs on average, "
            f"{least:.4g}; give a larger one"
        )
    no_verdict = refuse_comparison("a verdict is about samples; leave the unit out", runs.setup.basis)
    measured = replace(runs, setup=replace(runs.setup, budgets=()), everyone=everyone)
    boot = make_bootstrap(runs.setup)
    return replace(
        assemble_evaluation(measured, no_verdict, short=short),
        budgets=amounts,
        unit=averages[0].unit,
        currency=averages[0].currency,
        least=least,
        matched=match_policies(everyone, amounts, boot=boot, oracle=()),
    )


def _count_in_unit(result: PolicyResult, costs: RequestCosts) -> PolicyResult:
    """Converts a policy's costs from samples to the unit of `costs`."""
    tokens, waves = result.point_tokens, result.point_waves
    assert tokens is not None  # `RequestCosts` has made sure that tokens are recorded
    assert waves is not None
    rows = np.arange(result.points.cost.shape[1])
    cost = costs.compute(result.points.cost, waves, tokens, rows)
    return replace(result, points=replace(result.points, cost=cost), imitation=None)


def run_policies(
    ballots: Ballots,
    *,
    budgets: Sequence[float] = AVERAGE_BUDGETS,
    policies: PolicyChoices,
    protocol: ProtocolName = "held-out",
    parts: int = _FOLDS,
    votes: Votes = "auto",
    orders: int = _ORDERS,
    seed: int = 0,
    workers: int = 1,
    calibrates: bool = True,
    progress: ProgressCallback | None = None,
    beside: Mapping[str, SetupWork] | None = None,
) -> EvaluationRuns:
    """Fits and runs every policy on every split.

    With `calibrates=False`, no price or threshold is chosen for a budget, so there are no results by budget.
    With several workers, makers in `policies` must be picklable. The functions in `beside` are called with
    the evaluation's setup; `EvaluationRuns.beside` has their results by name.
    """
    setup, dropped = prepare_setup(
        ballots.group(),
        budgets,
        votes=votes,
        orders=orders,
        seed=seed,
        calibrates=calibrates,
    )
    if setup.longest < 2:  # all policies are the same if they can draw only one sample
        policies = (UNIFORM,)
    eligible, left_out = select_eligible(
        select_policies(_leave_out_published(policies), setup.ballots), setup.basis
    )
    published = [PUBLISHED[name] for name in policies if isinstance(name, str) and name in PUBLISHED]
    compared: list[Compared] = [*eligible, *(rule for rule in published if rule.applies(setup))]
    runs = _run(setup, compared, _make_splits(setup, protocol, parts), protocol, workers, progress, beside)
    return replace(runs, dropped=dropped, left_out=left_out)


def _leave_out_published(policies: PolicyChoices) -> PolicyChoices:
    """Leaves out names in `PUBLISHED`: these rules aren't policies, and the module `published` runs them."""
    return [item for item in policies if not isinstance(item, str) or item not in PUBLISHED]


def evaluate_modes(
    ballots: Ballots,
    modes: ModeSet,
    *,
    budgets: Sequence[float] | None = None,
    folds: int = _FOLDS,
    votes: Votes = "auto",
    orders: int | None = None,
    seed: int = 0,
    labels: bool | None = None,
    oracle: bool = True,
    workers: int = 1,
    progress: ProgressCallback | None = None,
) -> tuple[EvaluationRuns, Evaluation]:
    """Evaluates a policy over several modes and its rivals; returns their results and the comparison."""
    setup, dropped = prepare_modes(
        ballots.group(),
        modes,
        budgets,
        votes=votes,
        orders=_MODE_ORDERS if orders is None else orders,
        seed=seed,
        labels=labels,
    )
    splits = kfold(setup.ballots.groups, folds, np.random.default_rng([seed, 0xF01D]))
    if progress is not None:
        progress(0, len(splits), "samples read")
    beside = {ORACLE: _bracket_graded} if oracle else None
    runs = _run(setup, (ModeRivals(), PublishedCascades()), splits, "held-out", workers, progress, beside)
    brackets, runs = runs.beside.get(ORACLE, ()), replace(runs, dropped=dropped, beside={})
    return runs, assemble_evaluation(runs, judge_modes(runs, make_bootstrap(setup)), oracle=brackets)


def _run(
    setup: EvaluationSetup,
    compared: Sequence[Compared],
    splits: tuple[Split, ...],
    protocol: ProtocolName,
    workers: int,
    progress: ProgressCallback | None,
    beside: Mapping[str, SetupWork] | None,
) -> EvaluationRuns:
    """Measures policies on every split, and combines each policy's results from all splits."""
    results, others = measure_all(setup, splits, compared, workers=workers, progress=progress, beside=beside)
    pool_results = pool_folds if protocol == "held-out" else pool_seeds
    names = [name for number, name in results if number == 0]
    return EvaluationRuns(
        setup=setup,
        everyone=tuple(pool_results(results, name, splits) for name in names),
        parts=len(splits),
        splits=splits,
        protocol=protocol,
        beside=others,
    )


def _make_splits(setup: EvaluationSetup, protocol: ProtocolName, parts: int) -> tuple[Split, ...]:
    groups, rng = setup.ballots.groups, np.random.default_rng([setup.seed, 0x5EED])
    if protocol == "held-out":
        return kfold(groups, parts, rng)
    if parts < 1:
        raise PolicyError(f"{parts} seeds make no split; give 1 or more, e.g. 3")
    return tuple(random_split(groups, rng) for _ in range(parts))


def reduce_order_noise(runs: EvaluationRuns, exact: Floats | None = None) -> EvaluationRuns:
    """Removes noise that comes from trying only some random orders of the samples.

    `exact` is the result of `score_uniform_exactly`, if known. If that function returns None, or "fixed"
    wasn't run, nothing is changed.

    All policies ran on the same random orders. The error of a vote of a fixed number of samples is its
    accuracy on those orders, minus its exact mean over all orders. A setting that gives all orders of a
    problem the same number of samples gets the exact mean. From the accuracy of any other setting, the part
    that correlates with these errors is subtracted (control variates). The size of this part is estimated
    from other problems, so the expected accuracy doesn't change. If the estimate used the problem's own
    orders or its cost, policies that stop early would look worse than they are. A problem's corrected
    accuracy can be slightly below 0 or above 1.
    """
    exact = score_uniform_exactly(runs.setup) if exact is None else exact
    if exact is None or all(result.name != UNIFORM for result in runs.everyone):
        return runs
    uniform = _UniformVotes.of(runs.get(UNIFORM).points, exact)
    everyone = []
    for result in runs.everyone:
        points = result.points
        points = replace(points, accuracy=_correct_accuracy(points.cost, points.accuracy, uniform))
        accuracy = _correct_accuracy(result.cost, result.accuracy, uniform)
        everyone.append(replace(result, points=points, accuracy=accuracy))
    return replace(runs, everyone=tuple(everyone))


def score_uniform_exactly(setup: EvaluationSetup) -> Floats | None:
    """Computes the mean accuracy of votes of 1, 2, … samples over all subsets; shape (longest, problems).

    For weighted votes of three or more samples, it is the mean over 2,000 random subsets, with weights fitted
    to all problems. Returns None if a verifier's scores weigh votes: these weights are learned from labels
    and differ between splits.
    """
    counts = range(1, setup.longest + 1)
    if setup.weighted and read_scores(setup.ballots)[1].any():
        return None
    weigh = fit_confidence_weights(setup.ballots) if setup.weighted else None
    scoring = Scoring() if weigh is None else Scoring(aggregate="weighted", by=weigh)
    return scoring.score_table(setup.ballots, counts).accuracy.T


@dataclass(frozen=True, slots=True, eq=False)
class _UniformVotes:
    """Exact and measured accuracies of votes of 1, 2, … samples; both have shape (longest, problems)."""

    exact: Floats
    measured: Floats  # accuracy on the same random orders of the samples as the policies' accuracies

    @classmethod
    def of(cls, uniform: PolicyPoints, exact: Floats) -> "_UniformVotes":
        measured = exact.copy()  # so that the error is 0 for a number of samples that wasn't measured
        for cost, accuracy in zip(uniform.cost[:, 0].tolist(), uniform.accuracy, strict=True):
            measured[round(cost) - 1] = accuracy
        return cls(exact, measured)

    @property
    def controls(self) -> list[int]:
        """Row indices of the votes whose errors serve as control variates."""
        return [count - 1 for count in _CONTROLS if count <= len(self.exact)]


def _correct_accuracy(cost: Floats, accuracy: Floats, uniform: _UniformVotes) -> Floats:
    """Returns accuracies without the noise of random orders; shape (settings or budgets, problems)."""
    samples = np.clip(np.rint(cost).astype(np.int64), 1, len(uniform.exact))
    at = (samples - 1, np.arange(cost.shape[1]))
    same_as_uniform = (np.abs(cost - samples) < _TOLERANCE) & (
        np.abs(accuracy - uniform.measured[at]) < _TOLERANCE
    )
    # by setting (or budget): whether it gives all orders of a problem the same number of samples
    is_uniform = same_as_uniform.all(axis=1)
    corrected = accuracy - _estimate_noise(accuracy, uniform)
    corrected[is_uniform] = uniform.exact[at][is_uniform]
    return corrected


def _estimate_noise(accuracy: Floats, uniform: _UniformVotes) -> Floats:
    """Estimates the noise in accuracies from trying only some random orders; shape (settings, problems)."""
    problems = accuracy.shape[1]
    noise = np.zeros(accuracy.shape)
    if problems < _FEWEST_PROBLEMS:
        return noise
    exact = uniform.exact[uniform.controls].T  # shape (problems, controls)
    error = uniform.measured[uniform.controls].T - exact
    group = np.arange(problems) % _GROUPS
    for number in range(_GROUPS):
        own, others = group == number, group != number
        noise[:, own] = (error[own] @ _fit_coefficients(accuracy[:, others], error[others], exact[others])).T
    return noise


def _fit_coefficients(accuracy: Floats, error: Floats, exact: Floats) -> Floats:
    """Fits the coefficients of control variates by ridge regression; shape (controls, settings).

    Control variates are the columns of `error`: a vote's accuracy on the orders that were tried, minus its
    mean over all orders. These exact means are regressors too, because they explain differences between
    problems.
    """
    count = error.shape[1]
    columns = np.concatenate([error, exact - exact.mean(axis=0)], axis=1)
    square = columns.T @ columns
    size = np.diag(square)
    ridge = np.repeat([_RIDGE * size[:count].mean(), _WEAK_RIDGE * size[count:].mean()], count) + _TOLERANCE
    centred = (accuracy - accuracy.mean(axis=1, keepdims=True)).T
    return np.linalg.solve(square + np.diag(ridge), columns.T @ centred)[:count]
