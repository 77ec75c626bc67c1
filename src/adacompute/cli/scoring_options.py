"""Options that say how samples are scored: aggregation, estimator, unit of cost, prices."""

import math
from enum import StrEnum
from typing import Annotated, Literal

import typer

from adacompute.errors import BudgetOutOfRange
from adacompute.evaluate import Scoring
from adacompute.records import TokenPrices

__all__ = [
    "Aggregate",
    "AggregateOption",
    "CostOption",
    "CostUnit",
    "CurrencyOption",
    "Estimator",
    "EstimatorOption",
    "InputPriceOption",
    "OutputPriceOption",
    "ShrinkFlag",
    "SignalOption",
    "TooFew",
    "TooFewOption",
    "build_cost",
    "build_scoring",
    "parse_budget",
    "parse_number",
    "parse_price",
]


class Aggregate(StrEnum):
    vote = "vote"
    weighted = "weighted"
    best_of = "best-of"
    any_correct = "any-correct"


class ConfidenceSignal(StrEnum):
    logprob = "logprob"
    entropy = "entropy"


class Estimator(StrEnum):
    exact = "exact"
    windows = "windows"


class CostUnit(StrEnum):
    samples = "samples"
    tokens = "tokens"
    money = "money"


class TooFew(StrEnum):
    error = "error"
    drop = "drop"


def parse_number(text: str) -> float:
    """Parse a number; NaN where the text is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _parse_finite(text: str) -> float:
    """Parse a finite number; the error names the text."""
    value = parse_number(text)
    if not math.isfinite(value):
        raise typer.BadParameter(f"{text!r} is no number; give e.g. 2")
    return value


def parse_budget(text: str) -> float:
    """Parse an average budget above 0; refused before any sample is read."""
    budget = _parse_finite(text)
    if budget <= 0:
        raise BudgetOutOfRange(f"budget {text} can't be spent; give a number above 0, e.g. 2")
    return budget


def parse_price(text: str) -> float:
    """Parse a price, a number from 0 up."""
    price = _parse_finite(text)
    if price < 0:
        raise typer.BadParameter(f"{text} can't be paid; give a number from 0 up")
    return price


AggregateOption = Annotated[Aggregate, typer.Option(help="How the samples of a problem become one answer.")]
SignalOption = Annotated[
    ConfidenceSignal | None, typer.Option(help="What weighted and best-of go by. [default: logprob]")
]
EstimatorOption = Annotated[
    Estimator, typer.Option(help="All subsets of the samples, or the paper's disjoint windows.")
]
CostOption = Annotated[CostUnit, typer.Option(help="What --budget counts.")]
InputPriceOption = Annotated[
    float | None,
    typer.Option(metavar="P", parser=parse_price, help="Price of a million prompt tokens."),
]
OutputPriceOption = Annotated[
    float | None,
    typer.Option(metavar="P", parser=parse_price, help="Price of a million output tokens."),
]
CurrencyOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Currency, for --cost money. [default: dollars]")
]
TooFewOption = Annotated[
    TooFew, typer.Option(help="What to do about problems that can't be scored at every budget.")
]
ShrinkFlag = Annotated[
    bool, typer.Option("--shrink", help="Pull each problem toward those like it before choosing.")
]


def build_scoring(
    aggregate: Aggregate,
    by: ConfidenceSignal | None,
    estimator: Estimator,
    *,
    cost: Literal["samples", "tokens"] | TokenPrices,
) -> Scoring:
    """Build the way of scoring that the options ask for; refuse options that don't go together."""
    uses_signal = aggregate in (Aggregate.weighted, Aggregate.best_of)
    if by is not None and not uses_signal:
        raise typer.BadParameter(
            f"{by.value} is for --aggregate weighted or best-of, not {aggregate.value}", param_hint="--by"
        )
    return Scoring(
        aggregate=aggregate.value,
        estimator=estimator.value,
        by=(by or ConfidenceSignal.logprob).value,
        cost=cost,
    )


def build_cost(
    cost: CostUnit, input_price: float | None, output_price: float | None, currency: str | None
) -> Literal["samples", "tokens"] | TokenPrices:
    """Build the unit of cost that the options ask for: samples, tokens, or money with its prices."""
    if cost is not CostUnit.money:
        if input_price is not None or output_price is not None:
            raise typer.BadParameter(
                "prices are for --cost money", param_hint="--input-price, --output-price"
            )
        if currency is not None:
            raise typer.BadParameter("a currency is for --cost money", param_hint="--currency")
        return "tokens" if cost is CostUnit.tokens else "samples"
    if input_price is None or output_price is None:
        raise typer.BadParameter("money needs --input-price and --output-price", param_hint="--cost")
    if currency is not None and (not currency.strip() or currency in ("samples", "tokens")):
        raise typer.BadParameter(f"{currency!r} is no money; give e.g. euros", param_hint="--currency")
    return TokenPrices(
        input=input_price,
        output=output_price,
        currency=(currency or "dollars").strip(),
    )
