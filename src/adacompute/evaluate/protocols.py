"""Policies evaluated at average budgets on recorded samples: held-out, or as in the paper.

Held-out: k folds over problems; a policy is fitted and its dial calibrated on the other folds
only. Paper: fitted on a random 80% and judged on all problems, so in-sample. The results of a
run can be made less noisy by a control variate (`reduce_order_noise`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.errors import PolicyError
from adacompute.evaluate.comparison import (
    Evaluation,
    OracleBracket,
    PolicyPoints,
    PolicyResult,
    ProtocolName,
    pool_folds,
    pool_seeds,
)
from adacompute.evaluate.conclusions import EvaluationInputs, assemble_evaluation
from adacompute.evaluate.measure import (
    AVERAGE_BUDGETS,
    LONGEST,
    NEED_GRADES,
    ORACLE,
    UNIFORM,
    Basis,
    ComparedPolicy,
    EvaluationSetup,
    PolicyMaker,
    Votes,
    leave_out_short,
    prepare_setup,
    select_policies,
    uses_weighted_votes,
)
from adacompute.evaluate.oracle_bounds import Scoring, bracket_oracle
from adacompute.evaluate.parallel import ProgressCallback, SetupWork, measure_all, split_progress
from adacompute.evaluate.resampling import Split, kfold, random_split
from adacompute.evaluate.verdict import choose_candidate, count_verdict_steps, judge_pool
from adacompute.policies.base import get_ballots
from adacompute.policies.weights import fit_confidence_weights
from adacompute.pool import Ballots, Pool
from adacompute.replay.per_problem import ExactReplay

__all__ = [
    "AVERAGE_BUDGETS",
    "LONGEST",
    "POLICY_NAMES",
    "EvaluationRuns",
    "PolicyChoices",
    "Votes",
    "evaluate",
    "reduce_order_noise",
    "run_policies",
    "score_uniform_exactly",
    "uses_weighted_votes",
]

Floats = npt.NDArray[np.float64]
PolicyChoices = Sequence[str | tuple[str, PolicyMaker]]

POLICY_NAMES = (
    "fixed",
    "random",
    "heuristic",
    "asc",
    "esc",
    "doubling",
    "classifier",
    "curve",
    "stopping",
    "oracle",
)
_CONTROLS = (1, 2, 3, 4, 6, 8, 12, 16)  # samples: votes of neighbouring sizes have similar errors
_GROUPS = 5  # of problems: each group takes its coefficients from the others
_FEWEST_PROBLEMS = 150  # problems: with fewer (60 were tried) coefficients add more noise than they remove
_RIDGE, _WEAK_RIDGE = 0.1, 1e-3  # of the errors' mean square, and of the votes' own
_TOLERANCE = 1e-9


def select_eligible(
    policies: tuple[ComparedPolicy, ...], basis: Basis
) -> tuple[tuple[ComparedPolicy, ...], tuple[str, ...]]:
    """The policies that can take part, and the names of those that can't without grades."""
    excluded = tuple(
        policy.name for policy in policies if basis == "agreement" and policy.name in NEED_GRADES
    )
    eligible = tuple(policy for policy in policies if policy.name not in excluded)
    if not eligible:
        raise PolicyError("there is no policy to evaluate; name one or more, e.g. fixed and stopping")
    return eligible, excluded


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvaluationRuns:
    """Every policy on all problems, pooled over folds or seeds, before anything is compared."""

    setup: EvaluationSetup
    everyone: tuple[PolicyResult, ...]
    parts: int  # folds, or seeds
    dropped: int  # problems without grades
    left_out: tuple[str, ...]  # policies that can't learn without grades
    beside: Mapping[str, Any] = field(default_factory=dict, repr=False)  # what other work gave, by its name

    def get(self, name: str) -> PolicyResult:
        """The result of the policy with that name."""
        return next(result for result in self.everyone if result.name == name)


def evaluate(
    pool: Pool | Ballots,
    *,
    budgets: Sequence[float] = AVERAGE_BUDGETS,
    policies: PolicyChoices = POLICY_NAMES,
    protocol: ProtocolName = "held-out",
    folds: int = 5,
    seeds: int = 3,
    votes: Votes = "auto",
    orders: int = 50,
    rng: np.random.Generator | None = None,
    workers: int = 1,
    progress: ProgressCallback | None = None,
) -> Evaluation:
    """Evaluate policies at average budgets, with intervals over problems, and all at exactly the same cost.

    `policies` are names, or pairs of a name and a maker
    (`adacompute.evaluate.measure.PolicyMaker`). `workers` above 1 are processes, for
    policies given by name; results don't depend on it. A script that asks for them puts its
    work below `if __name__ == "__main__":`. Problems with fewer samples than most are left
    out as `fit` does (`Evaluation.short` says how many). Without any grade, agreement with the vote of
    all samples of a problem stands in for accuracy, and the result says so. The verdict is
    about `stopping`, or else the first policy named; it has its own protocol
    (`adacompute.evaluate.verdict`), so folds, orders, seeds and `rng` don't change it.
    """
    if any(not isinstance(name, str) for name in policies):
        workers = 1  # custom makers may not be picklable
    ballots = get_ballots(pool)
    kept, short = leave_out_short(ballots)
    first_progress, second_progress = split_progress(progress, count_verdict_steps(ballots))
    runs = run_policies(
        kept,
        budgets=budgets,
        policies=policies,
        protocol=protocol,
        parts=folds if protocol == "held-out" else seeds,
        votes=votes,
        orders=orders,
        seed=int((np.random.default_rng(0) if rng is None else rng).integers(2**31)),
        workers=workers,
        progress=first_progress,
        beside={ORACLE: _bracket_graded} if ORACLE in policies else None,
    )
    verdict = judge_pool(
        ballots,
        policy=choose_candidate(policies),
        budgets=runs.setup.budgets,
        votes=votes,
        workers=workers,
        progress=second_progress,
    )
    return assemble_evaluation(
        EvaluationInputs(
            setup=runs.setup,
            everyone=list(runs.everyone),
            oracle=runs.beside.get(ORACLE, ()),
            protocol=protocol,
            parts=runs.parts,
            dropped=runs.dropped,
            left_out=runs.left_out,
            verdict=verdict,
            short=short,
        )
    )


def _bracket_graded(setup: EvaluationSetup) -> tuple[OracleBracket, ...]:
    """The oracle's bounds; none where there are no grades."""
    return bracket_oracle(setup) if setup.basis == "accuracy" else ()


def run_policies(
    ballots: Ballots,
    *,
    budgets: Sequence[float] = AVERAGE_BUDGETS,
    policies: PolicyChoices,
    protocol: ProtocolName = "held-out",
    parts: int = 5,
    votes: Votes = "auto",
    orders: int = 50,
    seed: int = 0,
    workers: int = 1,
    calibrates: bool = True,
    progress: ProgressCallback | None = None,
    beside: Mapping[str, SetupWork] | None = None,
) -> EvaluationRuns:
    """Fit and run every policy on every split; with `calibrates=False` only for hulls, without rows.

    With more than one worker, makers of your own must be picklable. `beside` is other work on the same setup,
    done by the same processes, by the name that its result gets.
    """
    setup, dropped = prepare_setup(
        ballots, budgets, votes=votes, orders=orders, seed=seed, calibrates=calibrates
    )
    eligible, left_out = select_eligible(select_policies(policies, setup.ballots), setup.basis)
    splits = _make_splits(setup, protocol, parts)
    results, others = measure_all(setup, splits, eligible, workers=workers, progress=progress, beside=beside)
    pool_results = pool_folds if protocol == "held-out" else pool_seeds
    return EvaluationRuns(
        setup=setup,
        everyone=tuple(pool_results(results, policy.name, splits) for policy in eligible),
        parts=len(splits),
        dropped=dropped,
        left_out=left_out,
        beside=others,
    )


def _make_splits(setup: EvaluationSetup, protocol: ProtocolName, parts: int) -> tuple[Split, ...]:
    prompts, rng = setup.ballots.prompts, np.random.default_rng([setup.seed, 0x5EED])
    if protocol == "held-out":
        return kfold(prompts, parts, rng)
    if parts < 1:
        raise PolicyError(f"{parts} seeds make no split; give 1 or more, e.g. 3")
    return tuple(random_split(prompts, rng) for _ in range(parts))


def reduce_order_noise(runs: EvaluationRuns, exact: Floats | None = None) -> EvaluationRuns:
    """The same runs with less noise from the few orders that policies were run on; weighted
    agreement is kept as is. `exact` is what `score_uniform_exactly` gives, where it is known.

    All policies ran on the same random orders. For a plain vote of b samples both are known:
    its accuracy on those orders and its exact mean over all orders. So the uniform policy is
    replaced by the exact mean, and so is any setting that gives each problem a fixed number
    of samples. For the others, the part of their accuracy that correlates with the uniform
    policy's error is removed: a control variate, with coefficients fitted on other problems,
    so that the expectation stays the same. (Coefficients that depend on a problem's own
    orders or cost would be biased against policies that stop early.) A problem's accuracy
    may leave 0 to 1 a little.
    """
    exact = score_uniform_exactly(runs.setup) if exact is None else exact
    if exact is None or all(result.name != UNIFORM for result in runs.everyone):
        return runs
    uniform = _UniformVotes.of(runs.get(UNIFORM).points, exact)
    return replace(runs, everyone=tuple(_correct_result(result, uniform) for result in runs.everyone))


def score_uniform_exactly(setup: EvaluationSetup) -> Floats | None:
    """Accuracy of votes of 1, 2, … samples, means over all subsets, (longest, problems); None: not known.

    Weighted votes of three and more use 2,000 subsets for each problem, weighted on the
    scale of all problems.
    """
    counts = range(1, setup.longest + 1)
    weigh = fit_confidence_weights(setup.ballots) if setup.weighted else None
    if weigh is not None:
        if setup.basis != "accuracy":
            return None
        return Scoring(aggregate="weighted", by=weigh).score_table(setup.ballots, counts).accuracy.T
    exact = ExactReplay(setup.ballots)
    maker = select_policies((UNIFORM,))[0].maker
    each = [
        exact.replay(maker(setup.ballots, budget=count, weigh=None, longest=setup.longest), dial=None)
        for count in counts
    ]
    return np.stack([score.accuracy if setup.basis == "accuracy" else score.agreement for score in each])


@dataclass(frozen=True, slots=True, eq=False)
class _UniformVotes:
    """Accuracy of votes of 1, 2, … samples, (longest, problems) both."""

    exact: Floats
    measured: Floats  # on the orders that all policies were run on

    @classmethod
    def of(cls, uniform: PolicyPoints, exact: Floats) -> "_UniformVotes":
        measured = exact.copy()  # no error where nothing was run
        for cost, accuracy in zip(uniform.cost[:, 0].tolist(), uniform.accuracy, strict=True):
            measured[round(cost) - 1] = accuracy
        return cls(exact, measured)

    @property
    def controls(self) -> list[int]:
        """Rows of the votes that serve as controls."""
        return [count - 1 for count in _CONTROLS if count <= len(self.exact)]


def _correct_result(result: PolicyResult, uniform: _UniformVotes) -> PolicyResult:
    points = replace(
        result.points, accuracy=_correct_accuracy(result.points.cost, result.points.accuracy, uniform)
    )
    return replace(result, points=points, accuracy=_correct_accuracy(result.cost, result.accuracy, uniform))


def _correct_accuracy(cost: Floats, accuracy: Floats, uniform: _UniformVotes) -> Floats:
    """The corrected accuracy, (settings or budgets, problems), as are both inputs."""
    samples = np.clip(np.rint(cost).astype(np.int64), 1, len(uniform.exact))
    at = (samples - 1, np.arange(cost.shape[1]))
    same_as_uniform = (np.abs(cost - samples) < _TOLERANCE) & (
        np.abs(accuracy - uniform.measured[at]) < _TOLERANCE
    )
    is_uniform = same_as_uniform.all(axis=1)  # (settings,)
    corrected = accuracy - _estimate_noise(accuracy, uniform)
    corrected[is_uniform] = uniform.exact[at][is_uniform]
    return corrected


def _estimate_noise(accuracy: Floats, uniform: _UniformVotes) -> Floats:
    """The part of the accuracy explained by the error of the votes, (settings, problems)."""
    problems = accuracy.shape[1]
    noise = np.zeros(accuracy.shape)
    if problems < _FEWEST_PROBLEMS:
        return noise
    exact = uniform.exact[uniform.controls].T  # (problems, controls)
    error = uniform.measured[uniform.controls].T - exact
    group = np.arange(problems) % _GROUPS
    for number in range(_GROUPS):
        own, others = group == number, group != number
        noise[:, own] = (error[own] @ _fit_coefficients(accuracy[:, others], error[others], exact[others])).T
    return noise


def _fit_coefficients(accuracy: Floats, error: Floats, exact: Floats) -> Floats:
    """Coefficients of the errors, (controls, settings), by ridge regression.

    The votes' exact accuracies are regressors too: they absorb how problems differ.
    """
    count = error.shape[1]
    columns = np.concatenate([error, exact - exact.mean(axis=0)], axis=1)
    square = columns.T @ columns
    size = np.diag(square)
    ridge = np.repeat([_RIDGE * size[:count].mean(), _WEAK_RIDGE * size[count:].mean()], count) + _TOLERANCE
    centred = (accuracy - accuracy.mean(axis=1, keepdims=True)).T
    return np.linalg.solve(square + np.diag(ridge), columns.T @ centred)[:count]
