"""How samples are scored, as options of a command. Knows no mathematics."""

import math
from enum import StrEnum
from typing import Annotated, Literal

import typer

from adacompute.errors import BudgetOutOfRange
from adacompute.evaluate import Scoring
from adacompute.score import Price

__all__ = [
    "Aggregate",
    "By",
    "Cost",
    "Currency",
    "Estimate",
    "Estimator",
    "Few",
    "How",
    "InputPrice",
    "OutputPrice",
    "Shrink",
    "Signal",
    "TooFew",
    "Unit",
    "cost_of",
    "number",
    "paid",
    "scoring",
    "spent",
]


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


def number(text: str) -> float:
    """What a text says, NaN where that is no number."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _number(text: str) -> float:
    """Our own words for what is no number: they name it."""
    found = number(text)
    if not math.isfinite(found):
        raise typer.BadParameter(f"{text!r} is no number; give e.g. 2")
    return found


def spent(text: str) -> float:
    """Refused before the samples are looked at, whatever else is wrong with those."""
    found = _number(text)
    if found <= 0:
        raise BudgetOutOfRange(f"budget {text} can't be spent; give a number above 0, e.g. 2")
    return found


def paid(text: str) -> float:
    """A price: a number from 0 up."""
    found = _number(text)
    if found < 0:
        raise typer.BadParameter(f"{text} can't be paid; give a number from 0 up")
    return found


How = Annotated[Aggregate, typer.Option(help="How the samples of a problem become one answer.")]
Signal = Annotated[By | None, typer.Option(help="What weighted and best-of go by. [default: logprob]")]
Estimate = Annotated[
    Estimator, typer.Option(help="All subsets of the samples, or the paper's disjoint windows.")
]
Unit = Annotated[Cost, typer.Option(help="What --budget counts.")]
InputPrice = Annotated[
    float | None,
    typer.Option(metavar="P", parser=paid, help="Of a million prompt tokens, for --cost money."),
]
OutputPrice = Annotated[
    float | None,
    typer.Option(metavar="P", parser=paid, help="Of a million output tokens, for --cost money."),
]
Currency = Annotated[
    str | None, typer.Option(metavar="NAME", help="Of the prices, for --cost money. [default: dollars]")
]
Few = Annotated[TooFew, typer.Option(help="What to do about problems that can't be scored at every budget.")]
Shrink = Annotated[
    bool, typer.Option("--shrink", help="Pull each problem toward those like it before choosing.")
]


def scoring(
    aggregate: Aggregate, by: By | None, estimator: Estimator, *, cost: Literal["samples", "tokens"] | Price
) -> Scoring:
    """What options say of the way to score; refuses those that don't go together."""
    ranked = aggregate in (Aggregate.weighted, Aggregate.best_of)
    if by is not None and not ranked:
        raise typer.BadParameter(
            f"{by.value} is for --aggregate weighted or best-of, not {aggregate.value}", param_hint="--by"
        )
    return Scoring(
        aggregate=aggregate.value, estimator=estimator.value, by=(by or By.logprob).value, cost=cost
    )


def cost_of(
    cost: Cost, input_price: float | None, output_price: float | None, currency: str | None
) -> Literal["samples", "tokens"] | Price:
    """What options say of costs."""
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
