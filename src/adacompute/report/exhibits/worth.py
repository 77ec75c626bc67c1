"""Describes when adaptive sampling pays: at which budgets, deciding beforehand or not, on which problems."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from adacompute.evaluate.comparison import Evaluation, Match, Verdict
from adacompute.evaluate.conclusions import EvaluationRuns
from adacompute.evaluate.measure import UNIFORM
from adacompute.report.canvas import policy_style
from adacompute.report.document import Section, format_gains, join_words
from adacompute.score.grades import grade_samples

# policies that decide from the prompt, and perhaps the first sample
DECIDE_BEFOREHAND = ("heuristic", "classifier", "curve")
RANDOM_POLICIES = ("random", "shuffled")  # random policies, for comparison
_SMALLEST_CHANGE = 0.02  # smaller changes of accuracy don't count


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMakeup:
    """Shares of problems, by the effect of more samples."""

    always: float  # every recorded sample is right
    never: float  # no recorded sample is right
    rises: float  # the vote of the most samples is right more often than one sample
    falls: float  # the vote is right less often than one sample
    samples: int  # the most samples


def list_above(runs: EvaluationRuns, evaluation: Evaluation) -> dict[float, list[Match]]:
    """The policies clearly above uniform at each budget by their own intervals, best first.

    Without random policies.
    """
    names = {each.name for each in runs.everyone} - set(RANDOM_POLICIES)
    clear = [
        match
        for match in evaluation.matched
        if match.policy in names and match.gain is not None and (match.gain.low or 0.0) > 0
    ]
    clear.sort(key=lambda match: -match.accuracy)
    return {budget: [match for match in clear if match.budget == budget] for budget in runs.setup.budgets}


def measure_makeup(runs: EvaluationRuns) -> PoolMakeup:
    """The effect of more samples on each problem."""
    uniform = runs.get(UNIFORM).points  # exact after `reduce_order_noise`
    by_cost = np.argsort(uniform.cost.mean(axis=1), kind="stable")
    single, most = uniform.accuracy[by_cost[0]], uniform.accuracy[by_cost[-1]]  # (problems,) both
    grade = grade_samples(runs.setup.ballots)  # (problems, samples)
    has_grade = np.isfinite(grade)
    return PoolMakeup(
        always=float((np.where(has_grade, grade, 1.0).min(axis=1) >= 1.0).mean()),
        never=float((np.where(has_grade, grade, 0.0).max(axis=1) <= 0.0).mean()),
        rises=float((most - single > _SMALLEST_CHANGE).mean()),
        falls=float((single - most > _SMALLEST_CHANGE).mean()),
        samples=runs.setup.longest,
    )


def build_section(runs: EvaluationRuns, evaluation: Evaluation) -> Section:
    """Paragraphs on the budgets, on deciding beforehand, and on the problems."""
    above = list_above(runs, evaluation)
    words = [
        f"{_describe_budgets(above, evaluation.verdict)} {_describe_beforehand(above, evaluation)}".strip()
    ]
    if runs.setup.basis == "accuracy":
        words.append(_describe_makeup(measure_makeup(runs), pays=any(above.values())))
    return Section(key="worth", title="When it is worth it", words=tuple(words))


def _describe_budgets(above: Mapping[float, Sequence[Match]], verdict: Verdict) -> str:
    """The verdict, and the budgets at which a policy is above uniform by its own interval."""
    pays = [f"{budget:g}" for budget, matches in above.items() if matches]
    rest = [f"{budget:g}" for budget, matches in above.items() if not matches]
    alone = "each interval by itself, not corrected for looking at several policies and budgets"
    if not pays:
        return (
            f"{verdict.sentence} At {join_words(rest)} samples on average no policy is clearly above "
            f"uniform ({alone})."
        )
    tail = f", at {join_words(rest)} none is" if rest else ""
    return (
        f"{verdict.sentence} At {join_words(pays)} samples on average some policy is clearly above "
        f"uniform{tail} ({alone})."
    )


def _describe_beforehand(above: Mapping[float, Sequence[Match]], evaluation: Evaluation) -> str:
    """Whether deciding before seeing votes pays."""
    better: dict[str, list[str]] = {}
    for budget, matches in above.items():
        for match in matches:
            if match.policy in DECIDE_BEFOREHAND:
                better.setdefault(match.policy, []).append(f"{budget:g}")
    if better:
        names = join_words([f"{policy_style(name).name} at {join_words(at)}" for name, at in better.items()])
        return f"Deciding beforehand is enough to be clearly above it for {names}."
    gains = [
        (match, match.gain)
        for match in evaluation.matched
        if match.policy in DECIDE_BEFOREHAND and match.gain is not None
    ]
    if not gains:
        return ""
    best, gain = max(gains, key=lambda pair: pair[1].mean)
    return (
        f"Deciding beforehand is no better than uniform here: at best {policy_style(best.policy).name} at "
        f"{best.budget:g}, {format_gains([gain])}."
    )


def _describe_makeup(makeup: PoolMakeup, *, pays: bool) -> str:
    text = (
        f"Of the problems, {makeup.always:.0%} are right in every recorded sample and {makeup.never:.0%} in "
        f"none: more samples change nothing there. A vote of {makeup.samples} is right more often than one "
        f"sample, by over 2 points, on {makeup.rises:.0%} of the problems, and less often on "
        f"{makeup.falls:.0%}."
    )
    if not pays and makeup.rises < 0.2:
        text += " With so few problems that voting helps there is little to gain by deciding who gets more."
    return text
