"""`adacompute solve`: the best use of an average budget on recorded samples. Knows no mathematics."""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Literal

import typer

from adacompute.cli.options import Budgets, Extract, Json, Percent, PoolPath, settings, wanted_budgets
from adacompute.cli.outcome import Outcome, outcome_object
from adacompute.cli.plan import show_outcome
from adacompute.cli.show import as_json, path_text
from adacompute.cli.sizes import allowed
from adacompute.cli.source import Model, Parameters, ballots_from
from adacompute.config import ScoreConfig
from adacompute.errors import BudgetOutOfRange, TooFewSamples
from adacompute.evaluate import Scoring, compared, halved
from adacompute.pool import Ballots
from adacompute.records import AccuracyTable
from adacompute.score import Price
from adacompute.score.shrink import shrink as shrunk
from adacompute.solve import solve as allocated

__all__ = ["solve"]


class Aggregate(StrEnum):
    vote = "vote"
    weighted = "weighted"
    best_of = "best-of"
    any_correct = "any-correct"


class By(StrEnum):
    logprob = "logprob"
    entropy = "entropy"


class Estimator(StrEnum):
    exact = "exact"
    windows = "windows"


class Cost(StrEnum):
    samples = "samples"
    tokens = "tokens"
    money = "money"


class TooFew(StrEnum):
    error = "error"
    drop = "drop"


class Method(StrEnum):
    exact = "exact"
    bisection = "bisection"


def _number(text: str) -> float:
    """Our own words for what is no number: they name it."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise typer.BadParameter(f"{text!r} is no number; give e.g. 2")
    return found


def _spent(text: str) -> float:
    """Refused before the samples are looked at, whatever else is wrong with those."""
    found = _number(text)
    if found <= 0:
        raise BudgetOutOfRange(f"budget {text} can't be spent; give a number above 0, e.g. 2")
    return found


def _paid(text: str) -> float:
    found = _number(text)
    if found < 0:
        raise typer.BadParameter(f"{text} can't be paid; give a number from 0 up")
    return found


Budget = Annotated[
    float, typer.Option(metavar="B", parser=_spent, help="The average cost of a problem, e.g. 2.")
]
How = Annotated[Aggregate, typer.Option(help="How the samples of a problem become one answer.")]
Signal = Annotated[By | None, typer.Option(help="What weighted and best-of go by. [default: logprob]")]
Estimate = Annotated[
    Estimator, typer.Option(help="All subsets of the samples, or the paper's disjoint windows.")
]
Unit = Annotated[Cost, typer.Option(help="What --budget counts.")]
InputPrice = Annotated[
    float | None,
    typer.Option(metavar="P", parser=_paid, help="Of a million prompt tokens, for --cost money."),
]
OutputPrice = Annotated[
    float | None,
    typer.Option(metavar="P", parser=_paid, help="Of a million output tokens, for --cost money."),
]
Currency = Annotated[
    str | None, typer.Option(metavar="NAME", help="Of the prices, for --cost money. [default: dollars]")
]
Few = Annotated[TooFew, typer.Option(help="What to do about problems that can't be scored at every budget.")]
Shrink = Annotated[
    bool, typer.Option("--shrink", help="Pull each problem toward those like it before choosing.")
]
Solved = Annotated[Method, typer.Option(help="The exact solution, or the paper's bisection for one price.")]


def solve(
    context: typer.Context,
    source: PoolPath,
    budget: Budget,
    budgets: Budgets = None,
    aggregate: How = Aggregate.vote,
    by: Signal = None,
    estimator: Estimate = Estimator.exact,
    cost: Unit = Cost.samples,
    input_price: InputPrice = None,
    output_price: OutputPrice = None,
    currency: Currency = None,
    too_few: Few = TooFew.error,
    shrink: Shrink = False,
    method: Solved = Method.exact,
    model: Model = None,
    parameters: Parameters = None,
    extract: Extract = None,
    percent: Percent = None,
    json: Json = False,
) -> None:
    """Say what an average budget buys at best, and on how many problems it is to be spent.

    An oracle: it chooses with the answers known. Shown beside it are all problems treated alike within the
    same budget (uniform), and the oracle's value when it chooses and is judged on different samples.
    """
    config, name = settings(context), path_text(source)
    sizes = wanted_budgets(config.score, budgets)
    how = _scoring(aggregate, by, estimator, cost=_cost(cost, input_price, output_price, currency))
    ballots = ballots_from(
        source,
        answers=config.answers,
        model=model,
        parameters=parameters,
        extract=extract,
        percent=percent,
    )
    if budgets is None and config.score == ScoreConfig():
        sizes = allowed(ballots, sizes, drop=too_few is TooFew.drop)
    scored = how.table(ballots, sizes, too_few=too_few.value)
    found = _outcome(ballots, scored, budget, name=name, how=how, shrink=shrink, method=method)
    as_json(outcome_object(found)) if json else show_outcome(found)


def _outcome(
    ballots: Ballots,
    scored: AccuracyTable,
    budget: float,
    *,
    name: str,
    how: Scoring,
    shrink: bool,
    method: Method,
) -> Outcome:
    table = shrunk(scored) if shrink else scored
    plan = allocated(table, budget=budget, method=method.value)
    pairs, why = _halved(ballots, scored, shrink=shrink, how=how)
    return Outcome(name=name, scored=scored, table=table, found=compared(scored, plan, pairs), why=why)


def _halved(
    ballots: Ballots, scored: AccuracyTable, *, shrink: bool, how: Scoring
) -> tuple[Sequence[tuple[AccuracyTable, AccuracyTable]], str]:
    """Tables of halves of the samples; none where they are too few, and why."""
    try:
        return halved(ballots, scored, shrink=shrink, how=how), ""
    except TooFewSamples as exc:
        return (), str(exc)


def _scoring(
    aggregate: Aggregate, by: By | None, estimator: Estimator, *, cost: Literal["samples", "tokens"] | Price
) -> Scoring:
    ranked = aggregate in (Aggregate.weighted, Aggregate.best_of)
    if by is not None and not ranked:
        raise typer.BadParameter(
            f"{by.value} is for --aggregate weighted or best-of, not {aggregate.value}", param_hint="--by"
        )
    return Scoring(
        aggregate=aggregate.value, estimator=estimator.value, by=(by or By.logprob).value, cost=cost
    )


def _cost(
    cost: Cost, input_price: float | None, output_price: float | None, currency: str | None
) -> Literal["samples", "tokens"] | Price:
    if cost is not Cost.money:
        if input_price is not None or output_price is not None:
            raise typer.BadParameter(
                "prices are for --cost money", param_hint="--input-price, --output-price"
            )
        if currency is not None:
            raise typer.BadParameter("a currency is for --cost money", param_hint="--currency")
        return "tokens" if cost is Cost.tokens else "samples"
    if input_price is None or output_price is None:
        raise typer.BadParameter("money needs --input-price and --output-price", param_hint="--cost")
    if currency is not None and (not currency.strip() or currency in ("samples", "tokens")):
        raise typer.BadParameter(f"{currency!r} is no money; give e.g. euros", param_hint="--currency")
    return Price(
        input_per_million=input_price,
        output_per_million=output_price,
        currency=(currency or "dollars").strip(),
    )
