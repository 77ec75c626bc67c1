"""An evaluation made by hand, whose every number is known: uniform, ours at half its cost, and others."""

from dataclasses import replace

import numpy as np

from adacompute.evaluate.comparison import Evaluation, PolicyResult
from adacompute.evaluate.conclusions import EvaluationRuns, assemble_evaluation
from adacompute.evaluate.measure import EvaluationSetup
from adacompute.evaluate.oracle_bounds import Oracle, bracket_oracle
from adacompute.evaluate.verdict import PairedResults, TokenUsage, judge
from adacompute.replay.matching import PolicyPoints
from synthetic import synthetic

FIGURES = ["frontier", "frontier-few"]  # the figures that a report has
BUDGETS = (1.5, 2.0, 3.0, 4.0, 6.0)
EACH = 50.0  # tokens of a sample
PROBLEMS = 40


def handmade(
    *, problems: int = PROBLEMS, tokens: bool = True, graded: bool = True, saves: bool = True
) -> EvaluationRuns:
    """`stopping` has what uniform has at twice the cost (or, without `saves`, at the same cost); `curve` is
    uniform, `heuristic` is 5 points below, and `classifier` has one setting of 2 samples."""
    ballots = synthetic(problems, 32, seed=4)
    every = np.full(ballots.classes.shape, EACH if tokens else np.nan)
    ballots = replace(ballots, tokens=every)
    if not graded:
        blank = np.full(ballots.correct.shape, np.nan, dtype=np.float32)
        ballots = replace(ballots, correct=blank, gold_known=np.zeros(problems, dtype=bool))
    setup = EvaluationSetup(
        ballots=ballots,
        budgets=BUDGETS,
        weighted=False,
        orders=1,
        longest=16,
        seed=3,
        basis="accuracy" if graded else "agreement",
    )
    whole = np.arange(1, 17)
    per = 2 if saves else 1
    everyone = [
        made("fixed", whole, whole, problems, tokens=tokens),
        made("curve", whole, whole, problems, tokens=tokens),
        made("heuristic", whole, whole, problems, tokens=tokens, less=0.05),
        made("classifier", [2], [2], problems, tokens=tokens, less=0.01),
        made("stopping", whole[per - 1 :] / per, whole[per - 1 :], problems, tokens=tokens),
    ]
    return EvaluationRuns(setup=setup, everyone=tuple(everyone), parts=5, dropped=0, left_out=())


def accuracy(samples: np.ndarray, problems: int) -> np.ndarray:
    """Of a vote of so many samples, (settings, problems): it rises, ever less."""
    one = np.linspace(0.1, 0.3, problems)
    gain = np.linspace(0.1, 0.3, problems)[::-1]
    return one + gain * (1 - 1 / np.asarray(samples, dtype=np.float64))[:, None]


def made(
    name: str, cost: object, as_good_as: object, problems: int, *, tokens: bool = True, less: float = 0.0
) -> PolicyResult:
    """A policy that costs so much, at its settings, and is as good as so many uniform samples."""
    spent = np.repeat(np.asarray(cost, dtype=np.float64)[:, None], problems, axis=1)
    right = accuracy(np.asarray(as_good_as), problems) - less
    points = PolicyPoints(cost=spent, accuracy=right)
    budgets = np.repeat(np.array(BUDGETS)[:, None], problems, axis=1)
    return PolicyResult(
        name=name,
        cost=budgets,
        accuracy=np.repeat(right.mean(axis=0)[None], len(BUDGETS), axis=0),
        waves=budgets,
        tokens=budgets * (EACH if tokens else np.nan),
        reached=(True,) * len(BUDGETS),
        points=points,
        point_tokens=spent * (EACH if tokens else np.nan),
    )


def evaluated(found: EvaluationRuns, oracle: Oracle | None = None) -> Evaluation:
    """The same, told."""
    ends = bracket_oracle(found.setup, oracle=oracle) if found.setup.basis == "accuracy" else ()
    return assemble_evaluation(found, judge(paired(found)), oracle=ends)


def paired(found: EvaluationRuns, policy: str = "stopping") -> PairedResults:
    """What a verdict on a policy rests on."""
    return PairedResults(
        policy=policy,
        points=found.get(policy).points,
        uniform=found.get("fixed").points,
        budgets=found.setup.budgets,
        basis=found.setup.basis,
        votes="plain",
        problems=len(found.setup.ballots),
        usage=_make_usage(found, policy),
    )


def _make_usage(found: EvaluationRuns, policy: str) -> TokenUsage | None:
    """Each sample is a call with an average prompt of 100 tokens."""
    ballots, result = found.setup.ballots, found.get(policy)
    if not np.isfinite(ballots.tokens).all():
        return None
    return TokenUsage(
        tokens=result.point_tokens,
        prompts=result.points.cost,
        sample_tokens=EACH,
        prompt_tokens=100.0,
        charge=ballots.charge,
    )
