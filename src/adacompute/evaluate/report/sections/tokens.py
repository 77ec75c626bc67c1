"""The section on output tokens. Knows nothing of how they were counted."""

import math

from adacompute.evaluate.beyond.lines import measured_by
from adacompute.evaluate.beyond.tokens import Spending, Tokens, tokens_of
from adacompute.evaluate.entrants import OURS
from adacompute.evaluate.exhibits import Cell, Column, Section, Table
from adacompute.evaluate.figures.palette import look
from adacompute.evaluate.figures.tokens import draw_tokens
from adacompute.evaluate.protocols import Played

__all__ = ["section"]

_TITLE = "Cost in tokens"
_MISSING = (
    "tokens: not every sample has its output tokens recorded, so cost is in samples alone; record tokens "
    "(collect does) to see them"
)


def section(found: Played) -> Section:
    """What each policy writes, and what it saves against uniform of the same accuracy."""
    tokens = tokens_of(found)
    if tokens is None:
        return Section(key="tokens", title=_TITLE, missing=(_MISSING,))
    return Section(
        key="tokens",
        title=_TITLE,
        words=_words(tokens),
        tables=(_table(tokens),),
        pictures=(draw_tokens(tokens),),
    )


def _words(tokens: Tokens) -> tuple[str, ...]:
    first = f"A sample has {tokens.per_sample:,.0f} output tokens on average."
    ours = [one for one in tokens.rows if one.policy == OURS]
    if not ours:
        return (first,)
    middle = ours[len(ours) // 2]
    second = f"At {middle.budget:g} samples on average those that stopping draws are {_length(middle)}"
    told = [one for one in ours if one.saved is not None]
    if not told:
        return f"{first} {second}.", f"No uniform number of samples has the same {measured_by(tokens.basis)}."
    best = max(told, key=_least)
    saved = best.saved
    if saved is None:
        return (f"{first} {second}.",)
    ends = ""
    if saved.low is not None and saved.high is not None:
        ends = f" (95% interval {saved.low:.0%} to {saved.high:.0%}{' or more' if best.open_end else ''})"
    head = f"Against uniform samples of the same {measured_by(tokens.basis)} it saves"
    if saved.holds_zero:
        return (
            f"{first} {second}.",
            f"{head} nothing that is clear: {saved.mean:.0%} at {best.budget:g}{ends}.",
        )
    return (
        f"{first} {second}.",
        f"{head} {saved.mean:.0%} of the tokens at best, at {best.budget:g} on average{ends}.",
    )


def _length(one: Spending) -> str:
    """Of the samples drawn, by the average one; why, only where it is clear that they differ."""
    length = one.length
    if length.low is None or length.high is None or length.low <= 1.0 <= length.high:
        return "not clearly longer or shorter than the average one"
    ends = f"(95% interval {length.low - 1:+.0%} to {length.high - 1:+.0%})"
    longer, kind = ("longer", "long") if length.mean > 1 else ("shorter", "short")
    return (
        f"{abs(length.mean - 1):.0%} {longer} than the average one {ends}: it draws more of the problems "
        f"whose answers are {kind}"
    )


def _least(one: Spending) -> float:
    """What is saved at least."""
    if one.saved is None:
        return -math.inf
    return one.saved.mean if one.saved.low is None else one.saved.low


def _table(tokens: Tokens) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (look(one.policy).name, one.budget, one.accuracy, one.tokens, one.same, one.saved)
        for one in tokens.rows
    ]
    return Table(
        key="tokens",
        title="Output tokens a request",
        protocol="held-out, at exactly so many samples on average",
        columns=(
            Column(name="policy"),
            Column(name="samples on average", kind="amount"),
            Column(name=measured_by(tokens.basis), kind="share"),
            Column(name="tokens", kind="count", about="output tokens a request, 95% interval over problems"),
            Column(name="uniform tokens as good", kind="count", about="that uniform needs for as much"),
            Column(name="saved", kind="share", about="of those; 95% interval"),
        ),
        rows=tuple(rows),
        note=(
            "Blank: uniform is never so accurate; where that is so in some draws of problems only, what is "
            "saved is told there against the most that it writes, and may be more. Below 0% it writes less."
        ),
        bold=tuple(at for at, row in enumerate(rows) if row[0] == look(OURS).name),
    )
