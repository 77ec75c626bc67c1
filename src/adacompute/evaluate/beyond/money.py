"""What requests cost in money, at the reader's prices, adaptively and uniformly. Knows no page.

Each sample pays for its own output, and for the prompt again where the prompt's tokens are known: endpoints
that cache prompts, or draw several samples of one prompt at once, ask less for that.
"""

import math
from dataclasses import dataclass
from typing import Any

from adacompute.evaluate.beyond.tokens import Tokens
from adacompute.evaluate.entrants import OURS
from adacompute.evaluate.rows import Evaluation

__all__ = ["EXAMPLE", "Money", "Saving", "money_data", "savings"]

_MILLION = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """Prices and traffic."""

    input_price: float = 0.0  # per million tokens
    output_price: float  # per million tokens
    currency: str = "USD"
    requests: int = 1_000_000  # a month
    prompt_tokens: float | None = None  # a request; None: not known, and not paid for here
    example: bool = False  # nobody has given these prices

    def __post_init__(self) -> None:
        for name in ("input_price", "output_price", "requests", "prompt_tokens"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} {value!r} can't be; give a number from 0 up")

    def of(self, samples: float, tokens: float) -> float:
        """A request of so many samples and output tokens, on average."""
        prompt = 0.0 if self.prompt_tokens is None else samples * self.prompt_tokens
        return (prompt * self.input_price + tokens * self.output_price) / _MILLION


EXAMPLE = Money(
    input_price=0.15, output_price=0.60, example=True
)  # of a small hosted model, to have something to begin with


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """One average budget, against uniform samples that are as accurate; money is per request."""

    budget: float
    tokens: float  # a request
    same_as: float | None  # uniform samples; None: more than there are
    same_as_tokens: float | None
    cost: float
    same_cost: float | None

    @property
    def saved(self) -> float | None:
        """Money a request."""
        return None if self.same_cost is None else self.same_cost - self.cost


def savings(data: dict[str, Any], money: Money) -> tuple[Saving, ...]:
    """At each budget, from what `money_data` gives; none where tokens aren't recorded."""
    found = []
    for row in data["rows"]:
        if row["tokens"] is None:
            continue
        known = row["same_as"] is not None and row["same_as_tokens"] is not None
        found.append(
            Saving(
                budget=row["budget"],
                tokens=row["tokens"],
                same_as=row["same_as"],
                same_as_tokens=row["same_as_tokens"],
                cost=money.of(row["samples"], row["tokens"]),
                same_cost=money.of(row["same_as"], row["same_as_tokens"]) if known else None,
            )
        )
    return tuple(found)


def money_data(evaluation: Evaluation, tokens: Tokens | None, money: Money = EXAMPLE) -> dict[str, Any]:
    """What a page needs to reckon in money anew: plain data, null for what can't be told."""
    rows = []
    for one in evaluation.matched:
        if one.policy != OURS or one.worth is None:
            continue
        spent = None if tokens is None else tokens.of(OURS, one.budget)
        known = spent is not None and spent.same is not None and math.isfinite(one.worth.mean)
        same = one.worth.mean if math.isfinite(one.worth.mean) else None
        rows.append(
            {
                "budget": one.budget,
                "samples": one.cost,
                "tokens": None if spent is None else spent.tokens.mean,
                "same_as": same,
                "same_as_tokens": spent.same if spent is not None and known else None,
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
