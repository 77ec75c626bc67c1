"""What requests cost, in samples, tokens and money at once: whole numbers, so that sums are exact.

Knows nothing of who pays, or of limits.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from adacompute.records import Call

__all__ = ["NANOS", "Rates", "Spend", "Unit"]

Unit = Literal["samples", "tokens", "money"]
NANOS = 1_000_000_000  # of one unit of money


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """An amount in every unit.

    >>> (Spend(samples=2, tokens=10) + Spend(samples=1)).of("samples")
    3.0
    """

    samples: int = 0
    tokens: int = 0  # of prompts and responses
    nanos: int = 0  # billionths of the unit of money

    def __add__(self, other: "Spend") -> "Spend":
        return Spend(
            samples=self.samples + other.samples,
            tokens=self.tokens + other.tokens,
            nanos=self.nanos + other.nanos,
        )

    def __sub__(self, other: "Spend") -> "Spend":
        return Spend(
            samples=self.samples - other.samples,
            tokens=self.tokens - other.tokens,
            nanos=self.nanos - other.nanos,
        )

    @property
    def positive(self) -> "Spend":
        """The same with 0 for what is below it."""
        if self.samples >= 0 and self.tokens >= 0 and self.nanos >= 0:
            return self
        return Spend(samples=max(0, self.samples), tokens=max(0, self.tokens), nanos=max(0, self.nanos))

    def of(self, unit: Unit) -> float:
        """The amount in one unit."""
        if unit == "money":
            return self.nanos / NANOS
        return float(self.samples if unit == "samples" else self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Money for a million tokens."""

    input: float = 0.0
    cached: float | None = None  # of a prompt's tokens that the upstream had cached; None: as other input
    output: float = 0.0

    def most(self, *, samples: int, prompt_tokens: int, max_tokens: int) -> Spend:
        """What a wave of so many samples can cost, each by a call of its own."""
        prompts, completions = samples * prompt_tokens, samples * max_tokens
        return Spend(
            samples=samples,
            tokens=prompts + completions,
            nanos=self._nanos(prompts, 0, completions),
        )

    def spent(self, calls: Iterable[Call]) -> Spend:
        """What calls cost that were paid for."""
        return self._sum([call for call in calls if call.paid == "yes"])

    def maybe(self, calls: Iterable[Call], *, prompt_tokens: int, max_tokens: int) -> Spend:
        """What calls can have cost at most that gave nothing, and may be charged for all the same."""
        total = Spend()
        for call in calls:
            if call.paid == "maybe":
                completions = call.asked * max_tokens
                total += Spend(
                    samples=call.asked,
                    tokens=prompt_tokens + completions,
                    nanos=self._nanos(prompt_tokens, 0, completions),
                )
        return total

    def _sum(self, calls: list[Call]) -> Spend:
        prompts = sum(call.prompt_tokens or 0 for call in calls)
        cached = sum(min(call.cached_tokens or 0, call.prompt_tokens or 0) for call in calls)
        completions = sum(call.completion_tokens or 0 for call in calls)
        return Spend(
            samples=sum(call.got + call.surplus for call in calls),
            tokens=prompts + completions,
            nanos=self._nanos(prompts - cached, cached, completions),
        )

    def _nanos(self, fresh: int, cached: int, completions: int) -> int:
        price = self.input if self.cached is None else self.cached
        money = fresh * self.input + cached * price + completions * self.output  # in millionths
        return math.ceil(money * (NANOS / 1e6) - 1e-6)
