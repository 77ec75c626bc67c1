"""An evaluation assembled from what was measured, with its verdicts and its headline in words.

The words never claim more than the intervals support.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adacompute.evaluate.comparison import (
    Evaluation,
    EvaluationRow,
    Imitation,
    Match,
    OracleBracket,
    PolicyResult,
    ProtocolName,
    Verdict,
    match_policies,
)
from adacompute.evaluate.measure import LEARNED, ORACLE, OURS, PEERS, UNIFORM, Basis, EvaluationSetup
from adacompute.evaluate.resampling import Bootstrap, Interval

__all__ = [
    "EvaluationInputs",
    "Headline",
    "assemble_evaluation",
    "build_headline",
    "describe_worth",
    "find_headline_match",
    "format_samples",
    "judge_budget",
    "make_bootstrap",
    "summarise_verdicts",
]

_PROTOCOL_LABELS = {
    "held-out": "held-out",
    "paper": "in-sample (the paper's: fitted on 80%, judged on all problems)",
}
_CAVEATS = {
    "held-out": "",
    "paper": "In-sample, judged on problems that were learned from too: this says little of new ones. ",
}
_DEFAULT_BUDGET = 3.0  # average samples, fixed beforehand


def judge_budget(budget: float, matches: Sequence[Match], *, basis: Basis) -> Verdict:
    """The verdict at one budget: the best learned policy against uniform."""
    at_budget = [match for match in matches if match.budget == budget]
    learned = [match for match in at_budget if match.policy in LEARNED]
    kind = "learned policies" if learned else "policies"
    learned = learned or [match for match in at_budget if match.policy not in (UNIFORM, PEERS)]
    if not learned:
        words = f"at {budget:g}: no policy took part that can cost so little, except uniform"
        return Verdict(budget=budget, policy=None, better=None, words=words)
    best = max(learned, key=lambda match: match.accuracy)
    if best.gain is None:
        words = (
            f"at {budget:g}: {best.policy} {_describe_accuracy(best, basis)}; "
            f"{UNIFORM} took no part to compare with"
        )
        return Verdict(budget=budget, policy=best.policy, better=None, words=words)
    choice = f" (the best of {len(learned)} {kind}, picked afterwards)" if len(learned) > 1 else ""
    head = f"at {budget:g}: {best.policy}{choice} {_describe_accuracy(best, basis)}"
    if best.gain.low is not None and best.gain.low > 0:
        better, tail = True, f"{format_gain(best.gain)} above uniform at the same cost"
    elif best.gain.high is not None and best.gain.high < 0:
        better, tail = False, f"uniform is better here: {format_gain(best.gain)} against it at the same cost"
    else:
        better, tail = (
            False,
            f"uniform is as good here: {format_gain(best.gain)} at the same cost, no clear difference",
        )
    return Verdict(
        budget=budget, policy=best.policy, better=better, words=f"{head}, {tail}{_describe_lead(best)}"
    )


def summarise_verdicts(verdicts: Sequence[Verdict], matches: Sequence[Match], *, basis: Basis) -> str:
    """One or two sentences over all budgets."""
    judged = [verdict for verdict in verdicts if verdict.better is not None]
    if not judged:
        return "No policy can be compared with uniform sampling here."
    better = [verdict for verdict in judged if verdict.better]
    what = "accuracy" if basis == "accuracy" else "agreement with the full vote"
    if not better:
        budgets = ", ".join(f"{verdict.budget:g}" for verdict in judged)
        return (
            f"Uniform is as good here: at no average budget looked at ({budgets}) is any policy's "
            f"{what} above it by more than chance may give."
        )
    budgets = ", ".join(f"{verdict.budget:g}" for verdict in better)
    count = (
        "every average budget looked at"
        if len(better) == len(judged)
        else f"{len(better)} of {len(judged)} budgets"
    )
    best = max(
        (_find_match(matches, verdict) for verdict in better),
        key=lambda match: match.gain.mean if match.gain else 0.0,
    )
    rest = "" if len(better) == len(judged) else "; at the others uniform is as good"
    return (
        f"Deciding pays here: the best policy is above uniform at {count} ({budgets}){rest}. The most: "
        f"{best.policy} at {best.budget:g}, {format_gain(best.gain) if best.gain else ''}"
        f"{describe_worth(best)}."
    )


def format_gain(gain: Interval) -> str:
    """`+2.3 points (95% interval +1.0 to +3.4)`."""
    if gain.low is None or gain.high is None:
        return f"{100 * gain.mean:+.1f} points (no interval: one problem)"
    return f"{100 * gain.mean:+.1f} points (95% interval {100 * gain.low:+.1f} to {100 * gain.high:+.1f})"


def describe_worth(match: Match) -> str:
    """How many uniform samples would be as good, with the interval; empty where that isn't known."""
    if match.worth is None:
        return ""
    if not math.isfinite(match.worth.mean):
        low = match.worth.low
        ends = f" (95% interval {low:.1f} and more)" if low is not None and math.isfinite(low) else ""
        return f", more than any number of uniform samples here{ends}"
    ends = ""
    if match.worth.low is not None and match.worth.high is not None:
        high = f"{match.worth.high:.1f}" if math.isfinite(match.worth.high) else "more than there are"
        ends = f" (95% interval {match.worth.low:.1f} to {high})"
    return f", as good as {match.worth.mean:.1f} uniform samples{ends}"


def _describe_accuracy(match: Match, basis: Basis) -> str:
    share = f"{100 * match.accuracy:.1f}%"
    return f"is right on {share}" if basis == "accuracy" else f"agrees with the full vote on {share}"


def _describe_lead(match: Match) -> str:
    if match.lead is None:
        return ""
    return f"; {format_gain(match.lead)} against the joint hull of its peers"


def _find_match(matches: Sequence[Match], verdict: Verdict) -> Match:
    return next(
        match for match in matches if (match.policy, match.budget) == (verdict.policy, verdict.budget)
    )


@dataclass(frozen=True, slots=True)
class EvaluationInputs:
    """Everything that was measured, ready to be assembled."""

    setup: EvaluationSetup
    everyone: list[PolicyResult]
    oracle: tuple[OracleBracket, ...]
    protocol: ProtocolName
    parts: int
    dropped: int
    left_out: tuple[str, ...]


def assemble_evaluation(inputs: EvaluationInputs) -> Evaluation:
    """Build the `Evaluation`: rows, matched costs, imitation and verdicts."""
    setup = inputs.setup
    boot = make_bootstrap(setup)
    matched = match_policies(inputs.everyone, setup.budgets, boot=boot, oracle=inputs.oracle)
    label = _PROTOCOL_LABELS[inputs.protocol]
    rows = [row for result in inputs.everyone for row in _policy_rows(result, setup.budgets, boot, label)]
    rows += [_peer_row(match, label) for match in matched if match.policy == PEERS]
    rows += [row for bracket in inputs.oracle for row in _oracle_rows(bracket)]
    verdicts = tuple(judge_budget(budget, matched, basis=setup.basis) for budget in setup.budgets)
    return Evaluation(
        problems=len(setup.ballots),
        folds=inputs.parts,
        protocol=inputs.protocol,
        votes="weighted" if setup.weighted else "plain",
        basis=setup.basis,
        orders=setup.orders,
        longest=setup.longest,
        dropped=inputs.dropped,
        left_out=inputs.left_out,
        rows=tuple(rows),
        matched=matched,
        oracle=inputs.oracle,
        imitation=_imitation_rows(inputs),
        verdicts=verdicts,
        verdict=_CAVEATS[inputs.protocol] + summarise_verdicts(verdicts, matched, basis=setup.basis),
    )


def make_bootstrap(setup: EvaluationSetup) -> Bootstrap:
    """The bootstrap draws of problems that all intervals of an evaluation share."""
    return Bootstrap.of(len(setup.ballots), rng=np.random.default_rng([setup.seed, 0xB007]))


def _policy_rows(
    result: PolicyResult, budgets: tuple[float, ...], boot: Bootstrap, label: str
) -> list[EvaluationRow]:
    rows = []
    for at, budget in enumerate(budgets):
        interval = boot.interval(result.accuracy[at])
        rows.append(
            EvaluationRow(
                policy=result.name,
                budget=budget,
                cost=float(result.cost[at].mean()),
                accuracy=interval.mean,
                low=interval.low,
                high=interval.high,
                protocol=label,
                waves=_finite_or_none(result.waves[at].mean()),
                tokens=_finite_or_none(result.tokens[at].mean()),
                reached=result.reached[at],
                cost_std=None if result.cost_std is None else float(result.cost_std[at]),
                accuracy_std=None if result.accuracy_std is None else float(result.accuracy_std[at]),
            )
        )
    return rows


def _imitation_rows(inputs: EvaluationInputs) -> tuple[Imitation, ...]:
    """For each classifier: on the test problems, and on the training problems."""
    test_protocol = (
        "held-out" if inputs.protocol == "held-out" else "in-sample (all problems, 80% of them learned from)"
    )
    rows = []
    for result in inputs.everyone:
        if result.imitation is not None:
            for budget, (test, test_common, train, train_common) in zip(
                inputs.setup.budgets, result.imitation, strict=True
            ):
                rows.append(
                    Imitation(budget=budget, accuracy=test, majority=test_common, protocol=test_protocol)
                )
                rows.append(
                    Imitation(
                        budget=budget,
                        accuracy=train,
                        majority=train_common,
                        protocol="in-sample (the problems learned from)",
                    )
                )
    return tuple(rows)


def _peer_row(match: Match, label: str) -> EvaluationRow:
    return EvaluationRow(
        policy=PEERS,
        budget=match.budget,
        cost=match.cost,
        accuracy=match.accuracy,
        low=match.low,
        high=match.high,
        protocol=f"{label}, matched cost: the joint hull of all policies but stopping and the oracle",
    )


def _oracle_rows(bracket: OracleBracket) -> list[EvaluationRow]:
    ends: list[tuple[str, float, float | None, float | None]] = [
        ("in-sample: chosen and judged on the same samples, the answers known", bracket.high, None, None)
    ]
    if bracket.low is not None:
        protocol = (
            "cross-fitted: chosen on half of each problem's samples, judged on the other, the answers known"
        )
        ends.insert(0, (protocol, bracket.low.mean, bracket.low.low, bracket.low.high))
    return [
        EvaluationRow(
            policy=ORACLE,
            budget=bracket.budget,
            cost=bracket.cost,
            accuracy=accuracy,
            low=low,
            high=high,
            protocol=protocol,
        )
        for protocol, accuracy, low, high in ends
    ]


def _finite_or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """One sentence, and what supports it."""

    words: str
    below: str  # protocol and interval
    policy: str | None
    budget: float | None  # that the sentence is about
    better: bool | None  # clearly better than uniform; None: not known


def build_headline(evaluation: Evaluation) -> Headline:
    """Build the headline about our policy at three samples on average, or at the middle budget without three.

    Where no gain is clear there but one is at another budget, the clearest budget is named,
    and the text says so; where none is clear, it says that uniform is as good.
    """
    policy = _choose_policy(evaluation)
    matches = [] if policy is None else _policy_matches(evaluation, policy)
    if policy is None or not matches:
        words = "No policy can be compared with uniform sampling here."
        return Headline(
            words=words, below=_describe_protocol(evaluation), policy=None, budget=None, better=None
        )
    sure = [
        match
        for match in matches
        if match.gain is not None and match.gain.low is not None and match.gain.low > 0
    ]
    if not sure:
        return _as_good_headline(evaluation, policy, matches)
    default = next(
        (match for match in matches if match.budget == _DEFAULT_BUDGET), matches[len(matches) // 2]
    )
    best, choice = default, ""
    if default not in sure:
        best = max(sure, key=lambda match: (_smallest_saving(match, evaluation.longest), match.accuracy))
        choice = (
            f" The clearest of {len(matches)} budgets, picked afterwards: "
            f"at {default.budget:g} no gain is sure."
        )
    comparison = _capitalise(_compare_with_uniform(best, evaluation))
    return Headline(
        words=_describe_saving(best, evaluation),
        below=f"{comparison}.{choice} {_describe_protocol(evaluation)}",
        policy=policy,
        budget=best.budget,
        better=True,
    )


def find_headline_match(evaluation: Evaluation) -> Match | None:
    """The match that the headline is about."""
    headline = build_headline(evaluation)
    if headline.policy is None or headline.budget is None:
        return None
    return evaluation.match(headline.policy, headline.budget)


def format_samples(value: float) -> str:
    """A number of samples, with a tenth where it isn't whole.

    >>> format_samples(7.96), format_samples(3.24)
    ('8', '3.2')
    """
    return f"{value:.1f}".removesuffix(".0")


def _choose_policy(evaluation: Evaluation) -> str | None:
    """Our policy; without it, the learned policy that is best at most budgets."""
    names = [match.policy for match in evaluation.matched]
    if OURS in names:
        return OURS
    named = [verdict.policy for verdict in evaluation.verdicts if verdict.policy in LEARNED]
    return max(named, key=named.count, default=None)


def _policy_matches(evaluation: Evaluation, policy: str) -> list[Match]:
    return [match for match in evaluation.matched if match.policy == policy and match.gain is not None]


def _smallest_saving(match: Match, longest: int) -> float:
    """The smallest share of samples saved that the interval allows."""
    if match.worth is None:
        return -math.inf
    least = match.worth.mean if match.worth.low is None else match.worth.low
    return round(1 - match.cost / min(least, float(longest)), 3)  # smaller differences don't count


def _describe_saving(match: Match, evaluation: Evaluation) -> str:
    # the cost is below the budget where more samples would not help
    head = f"At {format_samples(match.cost)} samples on average you "
    worth = math.inf if match.worth is None else match.worth.mean
    graded = evaluation.basis == "accuracy"
    if math.isfinite(worth):
        comparison = f"get what {format_samples(worth)} give uniformly"
        if not graded:
            comparison = f"agree with the full vote as often as {format_samples(worth)} do uniformly"
        return f"{head}{comparison}: {1 - match.cost / worth:.0%} less."
    # claim as little as the interval allows; more than all samples only where its lower end is beyond them
    low = None if match.worth is None else match.worth.low
    if low is not None and math.isfinite(low):
        comparison = f"get at least what {format_samples(low)} give uniformly"
        if not graded:
            comparison = f"agree with the full vote at least as often as {format_samples(low)} do uniformly"
        return f"{head}{comparison}: {max(0.0, 1 - match.cost / low):.0%} less, or more."
    comparison = f"get more than {evaluation.longest} give uniformly"
    if not graded:
        comparison = f"agree with the full vote more often than {evaluation.longest} do uniformly"
    return f"{head}{comparison}: over {math.floor(100 * (1 - match.cost / evaluation.longest))}% less."


def _as_good_headline(evaluation: Evaluation, policy: str, matches: list[Match]) -> Headline:
    budgets = ", ".join(f"{match.budget:g}" for match in matches)
    worse = all(
        match.gain is not None and match.gain.high is not None and match.gain.high < 0 for match in matches
    )
    if worse:
        words = f"Uniform sampling is better here, at every average budget looked at ({budgets})."
    else:
        words = (
            f"Uniform sampling is as good here: at no average budget looked at ({budgets}) does deciding add "
            "more than chance may give."
        )
    best = max(matches, key=lambda match: match.gain.mean if match.gain else -math.inf)
    return Headline(
        words=words,
        below=f"At best, {_compare_with_uniform(best, evaluation)}. {_describe_protocol(evaluation)}",
        policy=policy,
        budget=best.budget,
        better=False,
    )


def _compare_with_uniform(match: Match, evaluation: Evaluation) -> str:
    uniform = evaluation.match(UNIFORM, match.budget)
    uniform_text = "" if uniform is None else f", uniform {uniform.accuracy:.1%}"
    verb = "is right" if evaluation.basis == "accuracy" else "agrees with the full vote"
    gain = "" if match.gain is None else f": {format_gain(match.gain)}"
    return (
        f"{match.policy} at {format_samples(match.cost)} samples on average "
        f"{verb} on {match.accuracy:.1%}{uniform_text} at the "
        f"same cost{gain}{describe_worth(match)}"
    )


def _describe_protocol(evaluation: Evaluation) -> str:
    return (
        f"Held-out: {evaluation.problems:,} problems in {evaluation.folds} folds, each judged by what was "
        f"fitted and calibrated on the others; {evaluation.votes} votes."
    )


def _capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]
