"""What a budget costs: samples, tokens or money. Knows nothing of accuracy."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from typing import Literal

import numpy as np

from adacompute.errors import NotRecorded, ScoreError
from adacompute.pool.ballots import ABSENT, Ballots
from adacompute.score.grades import Floats, Ints

__all__ = ["Costs", "Price", "check_prompts", "costs_of", "untold"]

_CHARACTERS = 4  # a token, about, in English
_MILLION = 1e6
_UNITS = ("samples", "tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Money for tokens. Prompts are paid for with each sample, or once where they are cached or shared.

    `prompt_tokens` is one number for all problems, or one for each problem of the source, in its order;
    None estimates them from the question, at 4 characters a token.

    >>> Price(input_per_million=0.5, output_per_million=1.5, prompts="once").currency
    'dollars'
    """

    input_per_million: float
    output_per_million: float
    prompt_tokens: float | Sequence[float] | None = None
    prompts: Literal["each", "once"] = "each"
    currency: str = "dollars"

    def __post_init__(self) -> None:
        for name in ("input_per_million", "output_per_million"):
            _check(getattr(self, name), name)
        if self.prompts not in ("each", "once"):
            raise ScoreError(f"prompts {self.prompts!r} is not known; give 'each' or 'once'")
        if not self.currency:
            raise ScoreError(f"currency {self.currency!r} is no name; give one, e.g. 'dollars'")
        # plain numbers and a copy: what their owner writes into the list later changes nothing here
        given = np.asarray(self.prompt_tokens, dtype=object).tolist()
        tokens = tuple(given) if isinstance(given, list) else given
        for place, value in enumerate(tokens if isinstance(tokens, tuple) else ()):
            _check(value, f"prompt_tokens[{place}]")
        if tokens is not None and not isinstance(tokens, tuple):
            _check(tokens, "prompt_tokens")
        object.__setattr__(self, "prompt_tokens", tokens)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Costs:
    """What each budget costs, and in which unit."""

    amounts: Floats  # (budgets,) the same for every problem, or (problems, budgets)
    unit: str
    note: str = ""  # what was assumed, in words


def costs_of(
    ballots: Ballots, budgets: Sequence[int], cost: Literal["samples", "tokens"] | Price, *, rows: Ints
) -> Costs:
    """The cost of every budget for the problems `rows`, by their own mean of output tokens."""
    counts = np.array(budgets, dtype=np.float64)  # (budgets,)
    if isinstance(cost, Price):
        return Costs(
            amounts=_money(ballots, counts, cost, rows), unit=cost.currency, note=_assumed(ballots, cost)
        )
    if cost not in _UNITS:
        raise ScoreError(f"cost {cost!r} is not known; give 'samples', 'tokens' or a Price")
    if cost == "samples":
        return Costs(amounts=counts, unit="samples")
    return Costs(amounts=_mean_tokens(ballots, rows)[:, None] * counts, unit="tokens")


def _money(ballots: Ballots, counts: Floats, price: Price, rows: Ints) -> Floats:
    """(problems, budgets)"""
    output = np.zeros(len(rows))
    if price.output_per_million > 0:
        output = _mean_tokens(ballots, rows) * price.output_per_million / _MILLION
    prompts = _prompt_tokens(ballots, price)[rows] * price.input_per_million / _MILLION  # (problems,)
    times = counts if price.prompts == "each" else np.ones(len(counts))
    return np.asarray(output[:, None] * counts + prompts[:, None] * times)


def _mean_tokens(ballots: Ballots, rows: Ints) -> Floats:
    """Output tokens of a sample, (problems,)."""
    tokens, there = ballots.tokens[rows], ballots.classes[rows] != ABSENT
    unknown = np.flatnonzero((np.isnan(tokens) & there).any(axis=1))
    if len(unknown):
        raise untold(ballots.ids[rows[unknown[0]]], unknown=len(unknown), problems=len(rows))
    return np.asarray(np.where(there, tokens, 0.0).sum(axis=1) / there.sum(axis=1))


def untold(name: str, *, unknown: int, problems: int) -> NotRecorded:
    """What is said where problems, `name` the first of them, have samples without a number of tokens."""
    return NotRecorded(
        f"problem {name!r} has samples without a number of tokens "
        f"(the first of {unknown} of {problems} problems); "
        "record them, or give cost='samples' (--cost samples)"
    )


def _prompt_tokens(ballots: Ballots, price: Price) -> Floats:
    """Of every problem of the source, (problems,)."""
    given = price.prompt_tokens
    if given is None:
        return np.array([len(prompt) / _CHARACTERS for prompt in ballots.prompts])
    check_prompts(price, len(ballots))
    return np.broadcast_to(np.array(given, dtype=np.float64), (len(ballots),))


def check_prompts(price: Price, problems: int) -> None:
    """Refuses prompts' tokens that aren't those of so many problems."""
    given = price.prompt_tokens
    if isinstance(given, Sequence) and len(given) != problems:
        raise ScoreError(
            f"prompt_tokens of {len(given)} problems don't fit these {problems}; "
            "give one for each, or one number for all"
        )


def _assumed(ballots: Ballots, price: Price) -> str:
    if price.prompt_tokens is not None or price.input_per_million == 0 or not len(ballots):
        return ""
    return f"prompt tokens estimated at {_CHARACTERS} characters of the question each"


def _check(value: object, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not isfinite(value) or value < 0:
        raise ScoreError(f"{name} {value!r} can't be paid; give a number from 0 up")
