"""The first section of the page: what an average number of samples buys, and what that is in
money.
"""

from adacompute.evaluate.comparison import Evaluation, Match, OracleBracket, basis_name
from adacompute.evaluate.conclusions import Headline, build_headline, find_headline_match
from adacompute.evaluate.measure import OURS, UNIFORM
from adacompute.evaluate.oracle_bounds import Oracle
from adacompute.evaluate.protocols import EvaluationRuns
from adacompute.evaluate.resampling import Interval
from adacompute.report.document import Cell, Column, Section, Table, join_words
from adacompute.report.exhibits.frontier import draw_frontier, trace_frontier
from adacompute.report.exhibits.money import EXAMPLE_MONEY, Money, Saving, build_money_data, compute_savings
from adacompute.report.exhibits.token_cost import TokenUse, measure_tokens

__all__ = ["build_section"]

_NO_TOKENS = (
    "money: not every sample has its output tokens recorded, so only samples can be counted; record tokens "
    "(collect does) to see prices"
)
_REQUESTS_SHOWN = 1000
_NARROW_WIDTH = 5.7  # inches: a phone shows it whole (page.css, #figure-frontier-few)


def build_section(
    runs: EvaluationRuns,
    evaluation: Evaluation,
    *,
    money: Money = EXAMPLE_MONEY,
    oracle: Oracle | None = None,
) -> Section:
    """The frontier with few curves, the table of budgets, and money.

    Its title is the headline; `build_headline` gives what supports that.
    """
    headline = build_headline(evaluation)
    tokens = measure_tokens(runs)
    data = build_money_data(evaluation, tokens, money)
    frontier = trace_frontier(runs, oracle=oracle)
    missing = []
    if frontier.oracle is not None and frontier.oracle.why:
        missing.append(f"the oracle's cross-fitted end: {frontier.oracle.why}")
    if tokens is None:
        missing.append(_NO_TOKENS)
    tables = [build_budgets_table(evaluation)]
    savings_rows = compute_savings(data, money)
    if savings_rows:
        tables.append(build_money_table(savings_rows, money, evaluation, tokens))
    return Section(
        key="verdict",
        title=headline.words,
        words=_write_words(headline, evaluation, tokens),
        tables=tuple(tables),
        pictures=(
            draw_frontier(
                frontier,
                few=True,
                match=find_headline_match(evaluation) if headline.better else None,
                width=_NARROW_WIDTH,
                key="frontier-few",
            ),
        ),
        missing=tuple(missing),
    )


def build_budgets_table(evaluation: Evaluation) -> Table:
    """One row for each average budget: uniform, ours, and the oracle's bracket."""
    what = basis_name(evaluation.basis)
    rows = []
    for one in evaluation.verdicts:
        uniform, ours = evaluation.match(UNIFORM, one.budget), evaluation.match(OURS, one.budget)
        bracket = next((each for each in evaluation.oracle if each.budget == one.budget), None)
        rows.append(_budget_row(one.budget, uniform, ours, bracket, longest=evaluation.longest))
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
            "95% intervals over problems. Where more uniform samples are needed than there are, the saving "
            f"is counted against the most, {evaluation.longest}: it may be more."
        ),
    )


def _budget_row(
    budget: float, uniform: Match | None, ours: Match | None, bracket: OracleBracket | None, *, longest: int
) -> tuple[Cell, ...]:
    worth = None if ours is None else ours.worth
    saved = None if ours is None or worth is None else _saved_share(ours.cost, worth, longest)
    return (
        budget,
        None if uniform is None else uniform.accuracy,
        None if ours is None else Interval(mean=ours.accuracy, low=ours.low, high=ours.high),
        None if ours is None else ours.gain,
        worth,
        saved,
        None if bracket is None else bracket.low,
        None if bracket is None else bracket.high,
    )


def _saved_share(cost: float, worth: Interval, longest: int) -> Interval:
    """The share saved of the uniform samples that are as good, counting the longest at most."""
    mean, low, high = (
        None if samples is None else 1 - cost / min(samples, float(longest))
        for samples in (worth.mean, worth.low, worth.high)
    )
    return Interval(mean=0.0 if mean is None else mean, low=low, high=high)


def build_money_table(
    savings_rows: tuple[Saving, ...], money: Money, evaluation: Evaluation, tokens: TokenUse | None
) -> Table:
    """What a thousand requests cost, and what a month saves. page.js rewrites the last four
    columns.
    """
    requests = money.requests
    rows: list[tuple[Cell, ...]] = []
    for saving in savings_rows:
        saved = saving.amount
        share = None if saved is None or not saving.same_cost else saved / saving.same_cost
        ours = evaluation.match(OURS, saving.budget)
        spending = None if tokens is None else tokens.get(OURS, saving.budget)
        rows.append(
            (
                saving.budget,
                saving.same_as if ours is None or saving.same_as is None else ours.worth,
                saving.tokens,
                saving.same_as_tokens,
                None if spending is None else spending.saved,
                _REQUESTS_SHOWN * saving.cost,
                None if saving.same_cost is None else _REQUESTS_SHOWN * saving.same_cost,
                None if saved is None else requests * saved,
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
            Column(name="tokens, uniform", kind="count", about="output tokens of uniform samples as good"),
            Column(name="tokens saved", kind="share", about="of those, 95% interval"),
            Column(name=f"{unit} per 1,000 requests", kind="money"),
            Column(name=f"{unit} per 1,000, uniform", kind="money"),
            Column(name=f"{unit} saved a month", kind="money"),
            Column(name="saved", kind="share"),
        ),
        rows=tuple(rows),
        note=_money_note(money),
    )


def _money_note(money: Money) -> str:
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


def _write_words(headline: Headline, evaluation: Evaluation, tokens: TokenUse | None) -> tuple[str, ...]:
    texts = []
    spending = None
    if tokens is not None and headline.better and headline.budget is not None:
        spending = tokens.get(OURS, headline.budget)
    if spending is not None and spending.saved is not None:
        ends = ""
        if spending.saved.low is not None and spending.saved.high is not None:
            more = " or more" if spending.open_end else ""
            ends = f" (95% interval {spending.saved.low:.0%} to {spending.saved.high:.0%}{more})"
        texts.append(f"In output tokens it is {spending.saved.mean:.0%} less{ends}.")
    better = [one.budget for one in evaluation.verdicts if one.better]
    if headline.better and len(better) < len(evaluation.verdicts):
        others = join_words([f"{one.budget:g}" for one in evaluation.verdicts if not one.better])
        texts.append(f"At {others} samples on average uniform is as good.")
    return tuple(texts)
