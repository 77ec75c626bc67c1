"""What requests cost in money at the reader's prices, adaptively and uniformly: numbers and table.

Each sample pays for its output, and for the prompt again where the prompt's tokens are known;
endpoints that cache prompts, or draw several samples of one prompt at once, charge less for
that.
"""

import math
from dataclasses import dataclass
from typing import Any

from adacompute.evaluate.comparison import Evaluation
from adacompute.evaluate.measure import OURS
from adacompute.report.document import Cell, Column, Table
from adacompute.report.exhibits.token_cost import TokenUse

__all__ = ["EXAMPLE_MONEY", "Money", "Saving", "build_money_data", "build_money_table", "compute_savings"]

_PRICE_TOKENS = 1e6  # prices are per million tokens
_REQUESTS_SHOWN = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """Prices and traffic."""

    input_price: float = 0.0  # per million tokens
    output_price: float  # per million tokens
    currency: str = "USD"
    requests: int = 1_000_000  # a month
    prompt_tokens: float | None = None  # per request; None: not known, and not counted
    example: bool = False  # the prices are an example, not given by the user

    def __post_init__(self) -> None:
        for name in ("input_price", "output_price", "requests", "prompt_tokens"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} {value!r} can't be; give a number from 0 up")

    def request_cost(self, samples: float, tokens: float) -> float:
        """What a request costs that draws so many samples and output tokens on average."""
        prompt = 0.0 if self.prompt_tokens is None else samples * self.prompt_tokens
        return (prompt * self.input_price + tokens * self.output_price) / _PRICE_TOKENS


EXAMPLE_MONEY = Money(input_price=0.15, output_price=0.60, example=True)  # prices of a small hosted model


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """One average budget against uniform samples of the same accuracy; money is per request."""

    budget: float
    tokens: float  # a request
    same_as: float | None  # uniform samples; None: more than there are
    same_as_tokens: float | None
    cost: float
    same_cost: float | None

    @property
    def amount(self) -> float | None:
        """Money saved per request."""
        return None if self.same_cost is None else self.same_cost - self.cost


def compute_savings(data: dict[str, Any], money: Money) -> tuple[Saving, ...]:
    """The saving at each budget, from what `build_money_data` gives; none where tokens aren't recorded."""
    rows = []
    for row in data["rows"]:
        if row["tokens"] is None:
            continue
        known = row["same_as"] is not None and row["same_as_tokens"] is not None
        rows.append(
            Saving(
                budget=row["budget"],
                tokens=row["tokens"],
                same_as=row["same_as"],
                same_as_tokens=row["same_as_tokens"],
                cost=money.request_cost(row["samples"], row["tokens"]),
                same_cost=money.request_cost(row["same_as"], row["same_as_tokens"]) if known else None,
            )
        )
    return tuple(rows)


def build_money_data(
    evaluation: Evaluation, tokens: TokenUse | None, money: Money = EXAMPLE_MONEY
) -> dict[str, Any]:
    """What the page needs to recompute money: plain data, null for what isn't known."""
    rows = []
    for match in evaluation.matched:
        if match.policy != OURS or match.worth is None:
            continue
        spending = None if tokens is None else tokens.get(OURS, match.budget)
        known = spending is not None and spending.same is not None and math.isfinite(match.worth.mean)
        same = match.worth.mean if math.isfinite(match.worth.mean) else None
        rows.append(
            {
                "budget": match.budget,
                "samples": match.cost,
                "tokens": None if spending is None else spending.tokens.mean,
                "same_as": same,
                "same_as_tokens": spending.same if spending is not None and known else None,
            }
        )
    return {
        "tokens_per_sample": None if tokens is None else tokens.per_sample,
        "prompt_tokens_per_request": money.prompt_tokens,
        "input_price": money.input_price,
        "output_price": money.output_price,
        "currency": money.currency,
        "requests": money.requests,
        "rows": rows,
    }


def build_money_table(
    savings_rows: tuple[Saving, ...], money: Money, evaluation: Evaluation, tokens: TokenUse | None
) -> Table:
    """What a thousand requests cost, and what a month saves. page.js rewrites the last four columns."""
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
