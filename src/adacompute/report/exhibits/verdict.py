"""The first section of the page: what an average number of samples buys, and what that is in money."""

from adacompute.evaluate.comparison import Evaluation, Match, OracleBracket, basis_name
from adacompute.evaluate.conclusions import Headline, build_headline, find_headline_match
from adacompute.evaluate.measure import OURS, UNIFORM
from adacompute.evaluate.oracle_bounds import Oracle
from adacompute.evaluate.protocols import EvaluationRuns
from adacompute.evaluate.resampling import Interval
from adacompute.report.document import Cell, Column, Section, Table, join_words
from adacompute.report.exhibits.frontier import draw_frontier, trace_frontier
from adacompute.report.exhibits.money import (
    EXAMPLE_MONEY,
    Money,
    build_money_data,
    build_money_table,
    compute_savings,
)
from adacompute.report.exhibits.token_cost import TokenUse, measure_tokens

__all__ = ["build_section"]

_NO_TOKENS = (
    "money: not every sample has its output tokens recorded, so only samples can be counted; record tokens "
    "(collect does) to see prices"
)
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
    for verdict in evaluation.verdicts:
        uniform, ours = evaluation.match(UNIFORM, verdict.budget), evaluation.match(OURS, verdict.budget)
        bracket = next((each for each in evaluation.oracle if each.budget == verdict.budget), None)
        rows.append(_budget_row(verdict.budget, uniform, ours, bracket, longest=evaluation.longest))
    return Table(
        key="budgets",
        title=f"{what.capitalize()} at each average budget",
        protocol=(
            f"held-out, {evaluation.folds} folds, {evaluation.votes} votes, at exactly so many samples on "
            "average"
        ),
        columns=(
            Column(name="samples on average", kind="amount"),
            Column(name="uniform", kind="share", about="the same for every problem"),
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
    saved = None if ours is None or worth is None else _compute_saving(ours.cost, worth, longest)
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


def _compute_saving(cost: float, worth: Interval, longest: int) -> Interval:
    """The share saved of the uniform samples that are as good, counting the longest at most."""
    mean, low, high = (
        None if samples is None else 1 - cost / min(samples, float(longest))
        for samples in (worth.mean, worth.low, worth.high)
    )
    return Interval(mean=0.0 if mean is None else mean, low=low, high=high)


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
    better = [verdict.budget for verdict in evaluation.verdicts if verdict.better]
    if headline.better and len(better) < len(evaluation.verdicts):
        others = join_words([f"{verdict.budget:g}" for verdict in evaluation.verdicts if not verdict.better])
        texts.append(f"At {others} samples on average uniform is as good.")
    return tuple(texts)
