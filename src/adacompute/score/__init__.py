"""What recorded samples are worth: accuracy by budget, and its cost. Knows nothing of allocations."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from adacompute.errors import deprecated_names
from adacompute.records import DEFAULT_CURRENCY, TokenPrices
from adacompute.score.grades import halves
from adacompute.score.menu_score import MenuColumn, list_columns, score_menu
from adacompute.score.pool_summary import MeanEstimate, SourceSummary, Summary, summarise
from adacompute.score.score import score

__all__ = [
    "MeanEstimate",
    "MenuColumn",
    "SourceSummary",
    "Summary",
    "halves",
    "list_columns",
    "score",
    "score_menu",
    "summarise",
]


class _OldPricesType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, TokenPrices)


class OldPrice(TokenPrices, metaclass=_OldPricesType):
    """`ac.Price`, kept for one release: takes its old arguments and gives a plain `TokenPrices`."""

    __slots__ = ()

    def __new__(  # type: ignore[misc] # gives another class
        cls,
        *,
        input_per_million: float,
        output_per_million: float,
        prompt_tokens: float | Sequence[float] | None = None,
        prompts: Literal["each", "once"] = "each",
        currency: str = DEFAULT_CURRENCY,
    ) -> TokenPrices:
        return TokenPrices(
            input=input_per_million,
            output=output_per_million,
            prompt_tokens=prompt_tokens,
            prompts=prompts,
            currency=currency,
        )


class OldPrices(TokenPrices, metaclass=_OldPricesType):
    """`ac.Prices`, kept for one release: takes its old arguments and gives a plain `TokenPrices`."""

    __slots__ = ()

    def __new__(  # type: ignore[misc] # gives another class
        cls,
        *,
        input: float = 0.0,  # noqa: A002 - its name
        output: float = 0.0,
    ) -> TokenPrices:
        return TokenPrices(input=input, output=output)


if not TYPE_CHECKING:  # a type checker would take any name for one that is there
    __getattr__ = deprecated_names(
        __name__,
        {
            "Estimate": "MeanEstimate",
            "Price": "adacompute.TokenPrices",
        },
        Price=OldPrice,
    )
