"""The first section of the page: what an average number of samples buys, and what that is in money.

Knows nothing of how it was measured, nor of HTML.
"""

from adacompute.evaluate.beyond.frontier import frontier_of
from adacompute.evaluate.beyond.headline import Headline, chosen, headline_of
from adacompute.evaluate.beyond.lines import measured_by
from adacompute.evaluate.beyond.money import EXAMPLE, Money, Saving, money_data, savings
from adacompute.evaluate.beyond.tokens import Tokens, tokens_of
from adacompute.evaluate.bootstrap import Interval
from adacompute.evaluate.bracket import Oracle
from adacompute.evaluate.entrants import OURS, PLAIN
from adacompute.evaluate.exhibits import Cell, Column, Section, Table
from adacompute.evaluate.figures.frontier import draw_frontier
from adacompute.evaluate.protocols import Played
from adacompute.evaluate.report.phrases import listed
from adacompute.evaluate.rows import Bracket, Evaluation, Match

__all__ = ["budgets_table", "money_table", "section"]

_NO_TOKENS = (
    "money: not every sample has its output tokens recorded, so only samples can be counted; record tokens "
    "(collect does) to see prices"
)
_THOUSAND = 1000
_NARROW = 5.7  # inches: a phone shows it whole (page.css, #figure-frontier-few)


def section(
    found: Played, evaluation: Evaluation, *, money: Money = EXAMPLE, oracle: Oracle | None = None
) -> Section:
    """The calm frontier, the table of budgets, and money. Its title is the headline; what that stands on is
    told by `headline_of`."""
    head = headline_of(evaluation)
    tokens = tokens_of(found)
    data = money_data(evaluation, tokens, money)
    frontier = frontier_of(found, oracle=oracle)
    missing = []
    if frontier.oracle is not None and frontier.oracle.why:
        missing.append(f"the oracle's cross-fitted end: {frontier.oracle.why}")
    if tokens is None:
        missing.append(_NO_TOKENS)
    tables = [budgets_table(evaluation)]
    told = savings(data, money)
    if told:
        tables.append(money_table(told, money, evaluation, tokens))
    return Section(
        key="verdict",
        title=head.words,
        words=_words(head, evaluation, tokens),
        tables=tuple(tables),
        pictures=(
            draw_frontier(
                frontier,
                few=True,
                same=chosen(evaluation) if head.better else None,
                width=_NARROW,
                key="frontier-few",
            ),
        ),
        missing=tuple(missing),
    )


def budgets_table(evaluation: Evaluation) -> Table:
    """One row for each average budget: uniform, ours, and the oracle's bracket."""
    what = measured_by(evaluation.basis)
    rows = []
    for one in evaluation.verdicts:
        plain, ours = evaluation.match(PLAIN, one.budget), evaluation.match(OURS, one.budget)
        bracket = next((each for each in evaluation.oracle if each.budget == one.budget), None)
        rows.append(_row(one.budget, plain, ours, bracket, most=evaluation.longest))
    return Table(
        key="budgets",
        title=f"{what.capitalize()} at each average budget",
        protocol=(
            f"held-out, {evaluation.folds} folds, {evaluation.votes} votes, at exactly so many samples on "
            "average"
        ),
        columns=(
            Column(name="samples on average", kind="amount"),
            Column(name="uniform", kind="share", about="all problems alike"),
            Column(name="stopping", kind="share", about="decides as the votes come in"),
            Column(name="gain", kind="points", about="points over uniform, paired, 95% interval"),
            Column(name="uniform samples as good", kind="number", about="that give what stopping gives"),
            Column(name="saved", kind="share", about="of those samples, 95% interval"),
            Column(name="oracle, cross-fitted", kind="share", about="knows the answers; decides beforehand"),
            Column(name="oracle, in-sample", kind="share", about="chosen and judged on the same samples"),
        ),
        rows=tuple(rows),
        note=(
            "95% intervals over problems. Where as good as more than there are, what is saved is told "
            f"against the most, {evaluation.longest}: it may be more."
        ),
    )


def _row(
    budget: float, plain: Match | None, ours: Match | None, bracket: Bracket | None, *, most: int
) -> tuple[Cell, ...]:
    worth = None if ours is None else ours.worth
    saved = None if ours is None or worth is None else _saved(ours.cost, worth, most)
    return (
        budget,
        None if plain is None else plain.accuracy,
        None if ours is None else Interval(mean=ours.accuracy, low=ours.low, high=ours.high),
        None if ours is None else ours.gain,
        worth,
        saved,
        None if bracket is None else bracket.low,
        None if bracket is None else bracket.high,
    )


def _saved(cost: float, worth: Interval, most: int) -> Interval:
    """The share of as many samples as are as good, of the most at most."""
    mean, low, high = (
        None if samples is None else 1 - cost / min(samples, float(most))
        for samples in (worth.mean, worth.low, worth.high)
    )
    return Interval(mean=0.0 if mean is None else mean, low=low, high=high)


def money_table(
    told: tuple[Saving, ...], money: Money, evaluation: Evaluation, tokens: Tokens | None
) -> Table:
    """What a thousand requests cost, and what a month saves. The page's script writes the last four columns
    anew."""
    month = money.requests
    rows: list[tuple[Cell, ...]] = []
    for one in told:
        saved = one.saved
        share = None if saved is None or not one.same_cost else saved / one.same_cost
        ours = evaluation.match(OURS, one.budget)
        written = None if tokens is None else tokens.of(OURS, one.budget)
        rows.append(
            (
                one.budget,
                one.same_as if ours is None or one.same_as is None else ours.worth,
                one.tokens,
                one.same_as_tokens,
                None if written is None else written.saved,
                _THOUSAND * one.cost,
                None if one.same_cost is None else _THOUSAND * one.same_cost,
                None if saved is None else month * saved,
                share,
            )
        )
    unit = money.currency
    return Table(
        key="money",
        title="In money, at the same accuracy",
        protocol="held-out; tokens as recorded, prices as given",
        columns=(
            Column(name="samples on average", kind="amount"),
            Column(name="uniform samples as good", kind="number"),
            Column(name="tokens a request", kind="count", about="output tokens of all samples, stopping"),
            Column(name="tokens, uniform", kind="count", about="output tokens of as many as are as good"),
            Column(name="tokens saved", kind="share", about="of those, 95% interval"),
            Column(name=f"{unit} per 1,000 requests", kind="money"),
            Column(name=f"{unit} per 1,000, uniform", kind="money"),
            Column(name=f"{unit} saved a month", kind="money"),
            Column(name="saved", kind="share"),
        ),
        rows=tuple(rows),
        note=_note(money),
    )


def _note(money: Money) -> str:
    example = " (an example: give your own)" if money.example else ""
    text = (
        f"At {money.output_price:g} {money.currency} per million output tokens{example}, "
        f"{money.requests:,} requests a month. "
    )
    if money.prompt_tokens is None:
        return text + "Prompts are not counted: --prompt-tokens gives how many tokens a request's has."
    return text + (
        f"Each sample pays for its prompt of {money.prompt_tokens:g} tokens at {money.input_price:g} per "
        "million; endpoints that cache prompts ask less."
    )


def _words(head: Headline, evaluation: Evaluation, tokens: Tokens | None) -> tuple[str, ...]:
    found = []
    told = None
    if tokens is not None and head.better and head.budget is not None:
        told = tokens.of(OURS, head.budget)
    if told is not None and told.saved is not None:
        ends = ""
        if told.saved.low is not None and told.saved.high is not None:
            more = " or more" if told.open_end else ""
            ends = f" (95% interval {told.saved.low:.0%} to {told.saved.high:.0%}{more})"
        found.append(f"In output tokens it is {told.saved.mean:.0%} less{ends}.")
    won = [one.budget for one in evaluation.verdicts if one.better]
    if head.better and len(won) < len(evaluation.verdicts):
        others = listed([f"{one.budget:g}" for one in evaluation.verdicts if not one.better])
        found.append(f"At {others} samples on average uniform is as good.")
    return tuple(found)
