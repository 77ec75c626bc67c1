"""The cost of requests in money, with adaptive and with uniform sampling: numbers, a sentence and a table.

Costs are computed from the verdict's numbers of tokens and prompts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adacompute.errors import format_count
from adacompute.evaluate.comparison import Evaluation, Saving, Verdict
from adacompute.records import TokenPrices, format_money
from adacompute.report.document import AtLeast, Cell, Column, Table

REQUESTS_SHOWN = 1000
_DEFAULT_BUDGET = 3.0  # the page's text is about this average number of samples, unless the verdict names one


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """Token prices, and how many requests there are per month."""

    prices: TokenPrices
    requests: int = 1_000_000  # number of requests per month
    # mean number of prompt tokens per request; None: the mean of the recorded samples
    prompt_tokens: float | None = None
    example: bool = False  # True if the prices are an example, False if the user gave them

    def describe_prices(self) -> str:
        """Returns the prices in words.

        >>> Money(prices=TokenPrices(input=0.15, output=0.6)).describe_prices()
        '0.6 USD per million output tokens and 0.15 per million of prompts'
        """
        return (
            f"{self.prices.output:.4g} {self.prices.currency} per million output tokens and "
            f"{self.prices.input:.4g} per million of prompts"
        )

    def compute_savings(self, verdict: Verdict) -> tuple[Saving, ...]:
        """Computes the cost and saving at each budget of the verdict; empty if tokens aren't recorded."""
        return verdict.compute_savings(self.prices, prompt_tokens=self.prompt_tokens)


# prices that are typical for a small hosted model
EXAMPLE_MONEY = Money(prices=TokenPrices(input=0.15, output=0.60), example=True)


def build_money_data(evaluation: Evaluation, money: Money = EXAMPLE_MONEY) -> dict[str, Any]:
    """Returns the data from which page.js computes costs when prices change; unknown values are null."""
    verdict = evaluation.verdict
    used = [row for row in verdict.rows if row.use is not None]
    rows = [
        {
            "budget": row.budget,
            "tokens": row.use.tokens,
            "prompts": row.use.prompts,
            "same_as": saving.same_as,
            "same_as_tokens": row.use.uniform_tokens,
            "same_as_prompts": row.use.uniform_prompts,
            "cost": saving.cost,
            "same_cost": saving.same_cost,
            "saved": saving.share,
        }
        for row, saving in zip(used, money.compute_savings(verdict), strict=True)
        if row.use is not None
    ]
    shown = [row["budget"] for row in rows if row["budget"] in (verdict.budget, _DEFAULT_BUDGET)]
    shown.sort(key=lambda budget: budget != verdict.budget)
    data = {
        "prompt_tokens_per_request": verdict.prompt_tokens
        if money.prompt_tokens is None
        else money.prompt_tokens,
        "charge": _describe_charge(verdict, money),
        "input_price": money.prices.input,
        "output_price": money.prices.output,
        "currency": money.prices.currency,
        "example": money.example,
        "requests": money.requests,
        "budget": shown[0] if shown else None,  # the budget that the page's text is about
        "pays": verdict.pays,
        "most": evaluation.longest,  # maximum number of samples used per problem
        "rows": rows,
    }
    shown_saving = find_saving(data)
    words = None if shown_saving is None else describe_money(shown_saving, money, pays=verdict.pays)
    return data | {"words": words}


def _describe_charge(verdict: Verdict, money: Money) -> str:
    """Returns a sentence that says how prompts are charged."""
    text = verdict.charge[:1].upper() + verdict.charge[1:]
    return f"{text}." if money.prompt_tokens is None else f"{text}; here with {money.prompt_tokens:g} tokens."


def find_saving(data: Mapping[str, Any]) -> Saving | None:
    """Returns the saving at the budget that the page's text is about; None if it is unknown."""
    row = next((row for row in data["rows"] if row["budget"] == data["budget"]), None)
    return row and Saving(**{name: row[name] for name in ("budget", "same_as", "cost", "same_cost")})


def describe_money(saving: Saving, money: Money, *, pays: bool) -> str:
    """Says what 1,000 requests cost and, if `pays` is true, save. page.js has the same text.

    >>> saving = Saving(budget=3, same_as=7.0, cost=0.001, same_cost=0.004)
    >>> describe_money(saving, EXAMPLE_MONEY, pays=False)
    'At 0.6 USD per million output tokens and 0.15 per million of prompts, 1,000 requests cost 1.00 USD at \
3 samples on average; no saving over uniform sampling is certain.'
    """
    cost, same, amount = (
        f"{format_money(REQUESTS_SHOWN * value)} {money.prices.currency}"
        for value in (saving.cost, saving.same_cost, saving.amount)
    )
    head = (
        f"At {money.describe_prices()}, {REQUESTS_SHOWN:,} requests cost {cost} at "
        f"{format_count(f'{saving.budget:g}', 'sample')} on average"
    )
    if not pays:
        return f"{head}; no saving over uniform sampling is certain."
    more = "more than " if saving.is_bound else ""
    if saving.amount < 0 and not saving.is_bound:
        extra = f"{format_money(-REQUESTS_SHOWN * saving.amount)} {money.prices.currency}"
        return f"{head}; uniform sampling costs {same} for the same accuracy, {extra} less: this costs more."
    share = "" if saving.share is None else f" ({saving.share:.0%})"
    return (
        f"{head}; uniform sampling costs {more}{same} for the same accuracy, "
        f"so {more}{amount}{share} are saved."
    )


def needs_column(longest: int) -> Column:
    """Makes the column that shows how many samples uniform sampling needs for the same accuracy."""
    return Column(
        name="uniform needs",
        kind="tenths",
        limit=longest,
        about="samples for every problem, for the same accuracy as stopping",
    )


def build_money_table(money: Money, evaluation: Evaluation) -> Table:
    """Builds the table of what a thousand requests cost.

    If the verdict is that the policy pays, the table also shows the savings. If the reader changes the
    prices, page.js replaces the amounts of money, which must be the last columns.
    """
    verdict, pays = evaluation.verdict, evaluation.verdict.pays
    rows: list[tuple[Cell, ...]] = []
    for saving in money.compute_savings(verdict):
        row = verdict.row(saving.budget)
        if row is None or row.use is None:
            continue
        bounded = AtLeast if saving.is_bound else float
        saved: tuple[Cell, ...] = (
            bounded(REQUESTS_SHOWN * saving.amount),
            bounded(money.requests * saving.amount),
            None if saving.share is None else bounded(saving.share),
        )
        rows.append(
            (
                saving.budget,
                row.worth,
                row.use.tokens,
                bounded(row.use.uniform_tokens),
                REQUESTS_SHOWN * saving.cost,
                bounded(REQUESTS_SHOWN * saving.same_cost),
                *(saved if pays else ()),
            )
        )
    unit = money.prices.currency
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
        note=_write_note(verdict, money),
    )


def _write_note(verdict: Verdict, money: Money) -> str:
    example = " (an example: give your own)" if money.example else ""
    return (
        f"At {money.describe_prices()}{example}, {money.requests:,} requests a month. "
        f"{_describe_charge(verdict, money)}"
    )
