"""What requests cost in money at the reader's prices, adaptively and uniformly.

Each sample pays for its output, and for the prompt again where the prompt's tokens are known;
endpoints that cache prompts, or draw several samples of one prompt at once, charge less for
that.
"""

import math
from dataclasses import dataclass
from typing import Any

from adacompute.evaluate.comparison import Evaluation
from adacompute.evaluate.measure import OURS
from adacompute.report.exhibits.token_cost import TokenUse

__all__ = ["EXAMPLE_MONEY", "Money", "Saving", "build_money_data", "compute_savings"]

_PRICE_TOKENS = 1e6


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
    """The saving at each budget, from what `build_money_data` gives; none where tokens aren't
    recorded.
    """
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
