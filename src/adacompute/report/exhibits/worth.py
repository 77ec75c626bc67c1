"""Describes when adaptive sampling pays: at which budgets, with which policies, on which problems."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from adacompute.errors import format_count
from adacompute.evaluate.comparison import Evaluation, Match, Verdict
from adacompute.evaluate.conclusions import EvaluationRuns
from adacompute.evaluate.measure import UNIFORM
from adacompute.report.canvas import policy_style
from adacompute.report.document import Section, format_gains, join_words
from adacompute.score.grades import grade_samples

# names of policies that choose the number of samples before they see votes
DECIDE_BEFOREHAND = ("heuristic", "classifier", "curve")
RANDOM_POLICIES = ("random", "shuffled")  # names of policies that choose at random, for comparison
_SMALLEST_CHANGE = 0.02  # if a problem's accuracy changes by less than this, it counts as unchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMakeup:
    """Shares of the problems for which more samples change nothing, help, or harm."""

    always: float  # share of problems for which every recorded sample is right
    never: float  # share of problems for which no recorded sample is right
    rises: float  # share of problems for which a vote of all samples is right more often than one sample
    falls: float  # share of problems for which a vote of all samples is right less often than one sample
    samples: int  # number of samples in a vote of all samples


def list_above(runs: EvaluationRuns, evaluation: Evaluation) -> dict[float, list[Match]]:
    """Lists the policies that are clearly above uniform sampling at each budget, the most accurate first.

    Clearly above means that the gain's interval is above zero. Policies that choose at random are left out.
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
    """Measures for what share of the problems more samples change nothing, help, or harm."""
    # accuracies over all orders of the samples, because `reduce_order_noise` was applied
    uniform = runs.get(UNIFORM).points
    by_cost = np.argsort(uniform.cost.mean(axis=1), kind="stable")
    # accuracy of one sample, and of a vote of all samples; both have shape (problems,)
    single, most = uniform.accuracy[by_cost[0]], uniform.accuracy[by_cost[-1]]
    grade = grade_samples(runs.setup.ballots)  # shape (problems, samples)
    has_grade = np.isfinite(grade)
    return PoolMakeup(
        always=float((np.where(has_grade, grade, 1.0).min(axis=1) >= 1.0).mean()),
        never=float((np.where(has_grade, grade, 0.0).max(axis=1) <= 0.0).mean()),
        rises=float((most - single > _SMALLEST_CHANGE).mean()),
        falls=float((single - most > _SMALLEST_CHANGE).mean()),
        samples=runs.setup.longest,
    )


def build_section(runs: EvaluationRuns, evaluation: Evaluation) -> Section:
    """Builds the section on when adaptive sampling pays: budgets, kinds of policies, kinds of problems."""
    above = list_above(runs, evaluation)
    budgets = _describe_budgets(above, evaluation.verdict)
    words = [f"{budgets} {_describe_beforehand(above, evaluation)}".strip()]
    if runs.setup.basis == "accuracy" and runs.setup.longest > 1:
        words.append(_describe_makeup(measure_makeup(runs), pays=any(above.values())))
    return Section(key="worth", title="When it is worth it", words=tuple(words))


def _describe_budgets(above: Mapping[float, Sequence[Match]], verdict: Verdict) -> str:
    """Says what the verdict is, and at which budgets a policy is clearly above uniform sampling."""
    pays = [f"{budget:g}" for budget, matches in above.items() if matches]
    rest = [f"{budget:g}" for budget, matches in above.items() if not matches]
    alone = "each interval by itself, not corrected for looking at several policies and budgets"
    which, tail = "some" if pays else "no", f", at {join_words(rest)} none is" if pays and rest else ""
    return (
        f"{verdict.sentence} At {format_count(join_words(pays or rest), 'sample')} on average {which} policy "
        f"is clearly above uniform{tail} ({alone})."
    )


def _describe_beforehand(above: Mapping[float, Sequence[Match]], evaluation: Evaluation) -> str:
    """Says whether it pays to use policies that decide before they see votes."""
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
        f"none: no vote of these changes that. A vote of {makeup.samples} is right more often than one "
        f"sample, by over 2 points, on {makeup.rises:.0%} of the problems, and less often on "
        f"{makeup.falls:.0%}."
    )
    if not pays and makeup.rises < 0.2 and makeup.samples > 2:
        text += " With so few problems that voting helps there is little to gain by deciding who gets more."
    return text
