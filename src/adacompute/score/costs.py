"""Budgets, checked, and what they cost by the recorded samples: in samples, tokens or money."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from adacompute.errors import NotRecorded, ScoreError
from adacompute.pool.ballots import ABSENT, Ballots, PromptCharge, count_calls
from adacompute.records import TokenPrices
from adacompute.score.grades import Floats, Ints

_UNITS = ("samples", "tokens")  # costs are counted in them; the third is money
_MILLION = 1e6


def check_budgets(budgets: object) -> tuple[int, ...]:
    """Numbers of samples, checked; raises ScoreError where they can't be used."""
    sizes: list[Any] = list(budgets) if isinstance(budgets, Iterable) else []
    whole = all(isinstance(b, int | np.integer) and type(b) is not bool and b >= 1 for b in sizes)
    if not sizes or not whole or any(a >= b for a, b in pairwise(sizes)):
        raise ScoreError(
            f"budgets {budgets!r} can't be used; "
            "give whole numbers from 1, ascending, each once, e.g. (1, 2, 4)"
        )
    return tuple(int(b) for b in sizes)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Costs:
    """What each budget costs, and in which unit."""

    amounts: Floats  # (budgets,) the same for every problem, or (problems, budgets)
    unit: str
    note: str = ""  # what was assumed, in words


def compute_costs(
    ballots: Ballots, budgets: Sequence[int], cost: Literal["samples", "tokens"] | TokenPrices, *, rows: Ints
) -> Costs:
    """The cost of every budget for the problems `rows`, by their own mean of output tokens."""
    counts = np.array(budgets, dtype=np.float64)  # (budgets,)
    if isinstance(cost, TokenPrices):
        return Costs(
            amounts=_compute_money(ballots, counts, cost, rows),
            unit=cost.currency,
            note=_describe_assumption(ballots, cost),
        )
    if cost not in _UNITS:
        raise ScoreError(f"cost {cost!r} is not known; give 'samples', 'tokens' or TokenPrices")
    if cost == "samples":
        return Costs(amounts=counts, unit="samples")
    return Costs(amounts=compute_mean_output(ballots, rows)[:, None] * counts, unit="tokens")


def _compute_money(ballots: Ballots, counts: Floats, prices: TokenPrices, rows: Ints) -> Floats:
    """(problems, budgets)"""
    output = np.zeros(len(rows))
    if prices.output > 0:
        output = compute_mean_output(ballots, rows) * prices.output / _MILLION
    prompts = count_prompt_tokens(ballots, prices)[rows] * prices.input / _MILLION  # (problems,)
    times = count_calls(counts, choose_charge(ballots, prices).choices)
    return np.asarray(output[:, None] * counts + prompts[:, None] * times)


def compute_mean_output(ballots: Ballots, rows: Ints) -> Floats:
    """Output tokens of a sample, (problems,)."""
    tokens, present = ballots.tokens[rows], ballots.classes[rows] != ABSENT
    unknown = np.flatnonzero((np.isnan(tokens) & present).any(axis=1))
    if len(unknown):
        raise NotRecorded(
            f"problem {ballots.ids[rows[unknown[0]]]!r} has samples without a number of tokens "
            f"(the first of {len(unknown)} of {len(rows)} problems); "
            "record them, or give cost='samples' (--cost samples)"
        )
    return np.asarray(np.where(present, tokens, 0.0).sum(axis=1) / present.sum(axis=1))


def count_prompt_tokens(ballots: Ballots, prices: TokenPrices) -> Floats:
    """Of every problem of the source, (problems,): as given, else as its calls recorded them."""
    tokens = prices.prompt_tokens
    if isinstance(tokens, Sequence) and len(tokens) != len(ballots):
        raise ScoreError(
            f"prompt_tokens of {len(tokens)} problems don't fit these {len(ballots)}; "
            "give one for each, or one number for all"
        )
    return ballots.count_prompt_tokens(tokens)


def choose_charge(ballots: Ballots, prices: TokenPrices) -> PromptCharge:
    """How prompts are paid for: as the prices say, else as the source's calls recorded it."""
    if prices.prompts is None:
        return ballots.charge
    return replace(ballots.charge, choices=1 if prices.prompts == "each" else None)


def _describe_assumption(ballots: Ballots, prices: TokenPrices) -> str:
    if prices.prompt_tokens is not None or prices.input == 0 or not len(ballots):
        return ""
    return str(choose_charge(ballots, prices))
