"""What requests cost in money at the reader's prices, adaptively and uniformly: numbers and table.

Each sample pays for its output, and for the prompt again where the prompt's tokens are known;
endpoints that cache prompts, or draw several samples of one prompt at once, charge less for
that.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adacompute.evaluate.comparison import Evaluation
from adacompute.evaluate.measure import OURS
from adacompute.evaluate.resampling import Interval
from adacompute.records import format_money
from adacompute.report.document import AtLeast, Cell, Column, Table
from adacompute.report.exhibits.token_cost import TokenUse

__all__ = [
    "EXAMPLE_MONEY",
    "Money",
    "Saving",
    "build_money_data",
    "build_money_table",
    "compute_savings",
    "describe_money",
    "find_saving",
    "needs_column",
]

_PRICE_TOKENS = 1e6  # prices are per million tokens
REQUESTS_SHOWN = 1000
_DEFAULT_BUDGET = 3.0  # average samples that are shown where the verdict names none


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

    def describe_prices(self) -> str:
        """The prices that count: of the prompt only where its tokens are known.

        >>> Money(input_price=0.15, output_price=0.6, prompt_tokens=400).describe_prices()
        '0.6 USD per million output tokens and 0.15 per million of prompts'
        """
        text = f"{self.output_price:.4g} {self.currency} per million output tokens"
        return (
            text
            if self.prompt_tokens is None
            else f"{text} and {self.input_price:.4g} per million of prompts"
        )

    def request_cost(self, samples: float, tokens: float) -> float:
        """What a request costs that draws so many samples and output tokens on average."""
        prompt = 0.0 if self.prompt_tokens is None else samples * self.prompt_tokens
        return (prompt * self.input_price + tokens * self.output_price) / _PRICE_TOKENS


EXAMPLE_MONEY = Money(input_price=0.15, output_price=0.60, example=True)  # prices of a small hosted model


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """One average budget against uniform sampling of the same accuracy; money is per request."""

    budget: float
    tokens: float  # a request
    same_as: float | None  # uniform samples; None: more than were recorded
    same_as_tokens: float  # of those, or of the most recorded
    cost: float
    same_cost: float  # of those, or of the most recorded: then uniform sampling costs more

    @property
    def is_bound(self) -> bool:
        """Whether uniform sampling needs more than was recorded, so that more is saved than is said."""
        return self.same_as is None

    @property
    def amount(self) -> float:
        """Money saved per request."""
        return self.same_cost - self.cost

    @property
    def share(self) -> float | None:
        """The share that is saved; None where nothing costs anything."""
        return self.amount / self.same_cost if self.same_cost else None


def compute_savings(data: dict[str, Any], money: Money) -> tuple[Saving, ...]:
    """The saving at each budget, from what `build_money_data` gives; none where tokens aren't recorded."""
    rows = []
    for row in data["rows"]:
        if row["tokens"] is None:
            continue
        known = row["same_as"] is not None and row["same_as_tokens"] is not None
        samples = row["same_as"] if known else data["most"]
        same_tokens = row["same_as_tokens"] if known else data["most_tokens"]
        rows.append(
            Saving(
                budget=row["budget"],
                tokens=row["tokens"],
                same_as=row["same_as"] if known else None,
                same_as_tokens=same_tokens,
                cost=money.request_cost(row["samples"], row["tokens"]),
                same_cost=money.request_cost(samples, same_tokens),
            )
        )
    return tuple(rows)


def build_money_data(
    evaluation: Evaluation, tokens: TokenUse | None, money: Money = EXAMPLE_MONEY
) -> dict[str, Any]:
    """What the page needs to recompute money: plain data, null for what isn't known.

    How many samples uniform sampling needs is the verdict's number, so that both agree; every uniform
    sample has the average number of tokens.
    """
    verdict, rows = evaluation.verdict, []
    for budget in [row.budget for row in verdict.rows] or evaluation.budgets:
        need = _find_need(evaluation, budget)
        if need is None:
            continue
        cost, worth = need
        spending = None if tokens is None else tokens.get(OURS, budget)
        same = worth.mean if math.isfinite(worth.mean) else None
        rows.append(
            {
                "budget": budget,
                "samples": cost,
                "tokens": None if spending is None else spending.tokens.mean,
                "same_as": same,
                "same_as_tokens": None if tokens is None or same is None else same * tokens.per_sample,
            }
        )
    shown = [row["budget"] for row in rows if row["budget"] in (verdict.budget, _DEFAULT_BUDGET)]
    shown.sort(key=lambda budget: budget != verdict.budget)
    data = {
        "tokens_per_sample": None if tokens is None else tokens.per_sample,
        "prompt_tokens_per_request": money.prompt_tokens,
        "input_price": money.input_price,
        "output_price": money.output_price,
        "currency": money.currency,
        "example": money.example,
        "requests": money.requests,
        "budget": shown[0] if shown else None,  # that the page speaks of
        "pays": verdict.pays,
        "most": evaluation.longest,  # samples of a problem that were recorded and used
        "most_tokens": None if tokens is None else evaluation.longest * tokens.per_sample,
        "rows": rows,
    }
    saving = find_saving(data, money)
    words = None if saving is None else describe_money(saving, money, pays=verdict.pays)
    return data | {"words": words}


def _find_need(evaluation: Evaluation, budget: float) -> tuple[float, Interval] | None:
    """What our policy costs at a budget, and the uniform samples that are right as often: the verdict's
    numbers, or where there are too few problems for one, the evaluation's.
    """
    row, match = evaluation.verdict.row(budget), evaluation.match(OURS, budget)
    if row is not None:
        return row.cost, row.worth
    return None if match is None or match.worth is None else (match.cost, match.worth)


def find_saving(data: Mapping[str, Any], money: Money) -> Saving | None:
    """The saving at the budget that the page speaks of; None where it isn't known."""
    savings = compute_savings(dict(data), money)
    return next((saving for saving in savings if saving.budget == data["budget"]), None)


def describe_money(saving: Saving, money: Money, *, pays: bool) -> str:
    """What a thousand requests cost and save, in one sentence. page.js writes the same of other prices.

    >>> saving = Saving(budget=3, tokens=90, same_as=7.0, same_as_tokens=210, cost=0.001, same_cost=0.004)
    >>> describe_money(saving, EXAMPLE_MONEY, pays=False)
    'At 0.6 USD per million output tokens, 1,000 requests cost 1.00 USD at 3 samples on average; \
no saving over uniform sampling is certain.'
    """
    cost, same, amount = (
        f"{format_money(REQUESTS_SHOWN * value)} {money.currency}"
        for value in (saving.cost, saving.same_cost, saving.amount)
    )
    head = (
        f"At {money.describe_prices()}, {REQUESTS_SHOWN:,} requests cost {cost} at {saving.budget:g} samples "
        "on average"
    )
    if not pays:
        return f"{head}; no saving over uniform sampling is certain."
    more = "more than " if saving.is_bound else ""
    if saving.amount < 0 and not saving.is_bound:
        extra = f"{format_money(-REQUESTS_SHOWN * saving.amount)} {money.currency}"
        return f"{head}; uniform sampling costs {same} for the same accuracy, {extra} less: this costs more."
    share = "" if saving.share is None else f" ({saving.share:.0%})"
    return (
        f"{head}; uniform sampling costs {more}{same} for the same accuracy, "
        f"so {more}{amount}{share} are saved."
    )


def needs_column(longest: int) -> Column:
    """How many samples uniform sampling needs for the same: the column that all tables share."""
    return Column(
        name="uniform needs",
        kind="tenths",
        limit=longest,
        about="samples for every problem, for the same accuracy as stopping",
    )


def build_money_table(savings_rows: tuple[Saving, ...], money: Money, evaluation: Evaluation) -> Table:
    """What a thousand requests cost, and where the verdict is that it pays, what they save, and a month.

    page.js rewrites the last five columns, or the last two.
    """
    pays = evaluation.verdict.pays
    rows: list[tuple[Cell, ...]] = []
    for saving in savings_rows:
        need = _find_need(evaluation, saving.budget)
        bounded = AtLeast if saving.is_bound else float
        saved: tuple[Cell, ...] = (
            bounded(REQUESTS_SHOWN * saving.amount),
            bounded(money.requests * saving.amount),
            None if saving.share is None else bounded(saving.share),
        )
        rows.append(
            (
                saving.budget,
                saving.same_as if need is None else need[1],
                saving.tokens,
                bounded(saving.same_as_tokens),
                REQUESTS_SHOWN * saving.cost,
                bounded(REQUESTS_SHOWN * saving.same_cost),
                *(saved if pays else ()),
            )
        )
    unit = money.currency
    saved_columns = (
        Column(name=f"{unit} saved", kind="money", about="on as many requests; below 0 it costs more"),
        Column(name=f"{unit} saved a month", kind="money"),
        Column(name="money saved", kind="percent", about="share of uniform's"),
    )
    return Table(
        key="money",
        title="In money, at the same accuracy",
        protocol="held-out; tokens as recorded, prices as given",
        columns=(
            Column(name="samples on average", kind="amount"),
            needs_column(evaluation.longest),
            Column(name="tokens a request", kind="count", about="output tokens of all its samples"),
            Column(name="tokens, uniform", kind="count", about="output tokens of the samples that it needs"),
            Column(name=f"{unit}, {REQUESTS_SHOWN:,} requests", kind="money"),
            Column(name=f"{unit}, uniform", kind="money", about="for as many requests, of the same accuracy"),
            *(saved_columns if pays else ()),
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
