"""The first line of a report: what an average budget buys, or that deciding doesn't pay. Knows no page."""

import math
from dataclasses import dataclass

from adacompute.evaluate.entrants import LEARNED, OURS, PLAIN
from adacompute.evaluate.rows import Evaluation, Match
from adacompute.evaluate.verdict import said, worth_words

__all__ = ["Headline", "chosen", "headline_of", "number"]

_USUAL = 3.0  # samples on average that it speaks of, fixed beforehand


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """One sentence, and what it stands on."""

    words: str
    below: str  # protocol and interval
    policy: str | None
    budget: float | None  # that it speaks of
    better: bool | None  # than uniform, beyond doubt; None: can't be told


def headline_of(evaluation: Evaluation) -> Headline:
    """Of ours at three samples on average, or at the middle budget where three aren't among them.

    Where no gain is sure there and one is at another budget, it speaks of the surest, and says so; where none
    is sure at all, that uniform is as good.
    """
    policy = _policy(evaluation)
    told = [] if policy is None else _matches(evaluation, policy)
    if policy is None or not told:
        words = "No policy can be compared with uniform sampling here."
        return Headline(words=words, below=_protocol(evaluation), policy=None, budget=None, better=None)
    sure = [one for one in told if one.gain is not None and one.gain.low is not None and one.gain.low > 0]
    if not sure:
        return _as_good(evaluation, policy, told)
    usual = next((one for one in told if one.budget == _USUAL), told[len(told) // 2])
    best, picked = usual, ""
    if usual not in sure:
        best = max(sure, key=lambda one: (_least_saved(one, evaluation.longest), one.accuracy))
        picked = (
            f" The clearest of {len(told)} budgets, picked afterwards: at {usual.budget:g} no gain is sure."
        )
    return Headline(
        words=_saving(best, evaluation),
        below=f"{_capital(_against(best, evaluation))}.{picked} {_protocol(evaluation)}",
        policy=policy,
        budget=best.budget,
        better=True,
    )


def chosen(evaluation: Evaluation) -> Match | None:
    """The match that the headline speaks of."""
    found = headline_of(evaluation)
    if found.policy is None or found.budget is None:
        return None
    return evaluation.match(found.policy, found.budget)


def number(value: float) -> str:
    """A number of samples, a tenth where it isn't whole.

    >>> number(7.96), number(3.24)
    ('8', '3.2')
    """
    return f"{value:.1f}".removesuffix(".0")


def _policy(evaluation: Evaluation) -> str | None:
    """Ours; without it, the learned policy that is best at most budgets."""
    names = [one.policy for one in evaluation.matched]
    if OURS in names:
        return OURS
    named = [one.policy for one in evaluation.verdicts if one.policy in LEARNED]
    return max(named, key=named.count, default=None)


def _matches(evaluation: Evaluation, policy: str) -> list[Match]:
    return [one for one in evaluation.matched if one.policy == policy and one.gain is not None]


def _least_saved(one: Match, longest: int) -> float:
    """Of the samples, as a share: as little as the interval allows."""
    if one.worth is None:
        return -math.inf
    least = one.worth.mean if one.worth.low is None else one.worth.low
    return round(1 - one.cost / min(least, float(longest)), 3)  # what is less doesn't show


def _saving(one: Match, evaluation: Evaluation) -> str:
    # what is spent: less than asked for where it has no use for more
    head = f"At {number(one.cost)} samples on average you "
    worth = math.inf if one.worth is None else one.worth.mean
    graded = evaluation.basis == "accuracy"
    if math.isfinite(worth):
        same = f"get what {number(worth)} give uniformly"
        if not graded:
            same = f"agree with the full vote as often as {number(worth)} do uniformly"
        return f"{head}{same}: {1 - one.cost / worth:.0%} less."
    # as little as the interval allows: the most there are only where even its lower end is beyond them
    low = None if one.worth is None else one.worth.low
    if low is not None and math.isfinite(low):
        same = f"get at least what {number(low)} give uniformly"
        if not graded:
            same = f"agree with the full vote at least as often as {number(low)} do uniformly"
        return f"{head}{same}: {max(0.0, 1 - one.cost / low):.0%} less, or more."
    same = f"get more than {evaluation.longest} give uniformly"
    if not graded:
        same = f"agree with the full vote more often than {evaluation.longest} do uniformly"
    return f"{head}{same}: over {math.floor(100 * (1 - one.cost / evaluation.longest))}% less."


def _as_good(evaluation: Evaluation, policy: str, told: list[Match]) -> Headline:
    listed = ", ".join(f"{one.budget:g}" for one in told)
    worse = all(one.gain is not None and one.gain.high is not None and one.gain.high < 0 for one in told)
    if worse:
        words = f"Uniform sampling is better here, at every average budget looked at ({listed})."
    else:
        words = (
            f"Uniform sampling is as good here: at no average budget looked at ({listed}) does deciding add "
            "more than chance may give."
        )
    best = max(told, key=lambda one: one.gain.mean if one.gain else -math.inf)
    return Headline(
        words=words,
        below=f"At best, {_against(best, evaluation)}. {_protocol(evaluation)}",
        policy=policy,
        budget=best.budget,
        better=False,
    )


def _against(one: Match, evaluation: Evaluation) -> str:
    plain = evaluation.match(PLAIN, one.budget)
    alike = "" if plain is None else f", uniform {plain.accuracy:.1%}"
    right = "is right" if evaluation.basis == "accuracy" else "agrees with the full vote"
    gain = "" if one.gain is None else f": {said(one.gain)}"
    return (
        f"{one.policy} at {number(one.cost)} samples on average {right} on {one.accuracy:.1%}{alike} at the "
        f"same cost{gain}{worth_words(one)}"
    )


def _protocol(evaluation: Evaluation) -> str:
    return (
        f"Held-out: {evaluation.problems:,} problems in {evaluation.folds} folds, each judged by what was "
        f"fitted and calibrated on the others; {evaluation.votes} votes."
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
