"""An evaluation in plain words, never more than its intervals say. Knows nothing of how it was measured."""

import math
from collections.abc import Sequence

from adacompute.evaluate.bootstrap import Interval
from adacompute.evaluate.entrants import LEARNED, PEERS, PLAIN
from adacompute.evaluate.measure import Basis
from adacompute.evaluate.rows import Match, Verdict

__all__ = ["overall", "said", "verdict_at", "worth_words"]


def verdict_at(budget: float, matches: Sequence[Match], *, basis: Basis) -> Verdict:
    """What may be said at one budget: of the best learned policy against all problems alike."""
    here = [one for one in matches if one.budget == budget]
    learned = [one for one in here if one.policy in LEARNED]
    kind = "learned policies" if learned else "policies"
    learned = learned or [one for one in here if one.policy not in (PLAIN, PEERS)]
    if not learned:
        words = f"at {budget:g}: no policy took part that can cost so little, but all alike"
        return Verdict(budget=budget, policy=None, better=None, words=words)
    best = max(learned, key=lambda one: one.accuracy)
    if best.gain is None:
        words = f"at {budget:g}: {best.policy} {_right(best, basis)}; {PLAIN} took no part to compare with"
        return Verdict(budget=budget, policy=best.policy, better=None, words=words)
    picked = f" (the best of {len(learned)} {kind}, picked afterwards)" if len(learned) > 1 else ""
    head = f"at {budget:g}: {best.policy}{picked} {_right(best, basis)}"
    if best.gain.low is not None and best.gain.low > 0:
        better, tail = True, f"{said(best.gain)} above uniform at the same cost"
    elif best.gain.high is not None and best.gain.high < 0:
        better, tail = False, f"uniform is better here: {said(best.gain)} against it at the same cost"
    else:
        better, tail = (
            False,
            f"uniform is as good here: {said(best.gain)} at the same cost, no clear difference",
        )
    return Verdict(budget=budget, policy=best.policy, better=better, words=f"{head}, {tail}{_lead(best)}")


def overall(verdicts: Sequence[Verdict], matches: Sequence[Match], *, basis: Basis) -> str:
    """One sentence or two over all budgets."""
    told = [one for one in verdicts if one.better is not None]
    if not told:
        return "No policy can be compared with uniform sampling here."
    won = [one for one in told if one.better]
    what = "accuracy" if basis == "accuracy" else "agreement with the full vote"
    if not won:
        listed = ", ".join(f"{one.budget:g}" for one in told)
        return (
            f"Uniform is as good here: at no average budget looked at ({listed}) is any policy's "
            f"{what} above it by more than chance may give."
        )
    listed = ", ".join(f"{one.budget:g}" for one in won)
    count = (
        "every average budget looked at" if len(won) == len(told) else f"{len(won)} of {len(told)} budgets"
    )
    best = max((_of(matches, one) for one in won), key=lambda one: one.gain.mean if one.gain else 0.0)
    rest = "" if len(won) == len(told) else "; at the others uniform is as good"
    return (
        f"Deciding pays here: the best policy is above uniform at {count} ({listed}){rest}. The most: "
        f"{best.policy} at {best.budget:g}, {said(best.gain) if best.gain else ''}{worth_words(best)}."
    )


def said(gain: Interval) -> str:
    """`+2.3 points (95% interval +1.0 to +3.4)`."""
    if gain.low is None or gain.high is None:
        return f"{100 * gain.mean:+.1f} points (no interval: one problem)"
    return f"{100 * gain.mean:+.1f} points (95% interval {100 * gain.low:+.1f} to {100 * gain.high:+.1f})"


def worth_words(match: Match) -> str:
    """How many uniform samples would be as good, with the interval; nothing where that can't be told."""
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


def _right(match: Match, basis: Basis) -> str:
    share = f"{100 * match.accuracy:.1f}%"
    return f"is right on {share}" if basis == "accuracy" else f"agrees with the full vote on {share}"


def _lead(match: Match) -> str:
    if match.lead is None:
        return ""
    return f"; {said(match.lead)} against the joint hull of its peers"


def _of(matches: Sequence[Match], verdict: Verdict) -> Match:
    return next(one for one in matches if (one.policy, one.budget) == (verdict.policy, verdict.budget))
