"""Money for calls: reserved before each call, settled after it, within a limit."""

import asyncio
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from adacompute.errors import CollectError
from adacompute.pool import Pool
from adacompute.records import Account, Call

__all__ = ["CostBudget", "Prices", "compute_max_cost", "compute_spent", "estimate_prompt_size"]

_CHARACTERS_A_TOKEN = 3.0  # few, so that prompts are overestimated until some were counted
_TURN_TOKENS = 8  # tokens that each message adds


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Money for a million tokens."""

    input: float = 0.0
    output: float = 0.0

    def __post_init__(self) -> None:
        for name in ("input", "output"):
            if not _is_amount(getattr(self, name)):
                raise CollectError(f"{name} price {getattr(self, name)!r} can't be used; give 0 or more")

    def __bool__(self) -> bool:
        return self.input > 0 or self.output > 0

    def of(self, prompt_tokens: float, completion_tokens: float) -> float:
        """The cost of so many tokens."""
        return (prompt_tokens * self.input + completion_tokens * self.output) / 1e6


class CostBudget:
    """What calls have cost, and may yet cost, within `limit`.

    A call is reserved at its worst: each sample as a call of its own, with all the tokens that it may
    have. Failed attempts that may be charged count in full, and one more try must fit beside them, so
    the limit holds even if they are charged. Prompts are estimated until some were counted; an endpoint
    that sends more than requested is reserved for accordingly from then on.
    """

    def __init__(
        self,
        *,
        prices: Prices,
        limit: float | None = None,
        spent: float = 0.0,
        most_tokens: int | None = None,
    ) -> None:
        if limit is not None and not (_is_amount(limit) and limit > 0):
            raise CollectError(f"max cost {limit!r} can't be used; give an amount above 0")
        if limit is not None and not prices:
            raise CollectError(
                "max cost needs prices; give --input-price and --output-price (a million tokens)"
            )
        if limit is not None and most_tokens is None:
            raise CollectError("max cost needs a limit of tokens a response; give max_tokens (--max-tokens)")
        self.prices = prices
        self.limit = limit
        self.spent = spent  # with what may have been charged
        self._reserved = 0.0
        self._max_tokens = most_tokens or 0
        self._prompt_ratio = 1.0  # the largest ratio seen of counted to estimated tokens of a prompt
        self._owed = 0.0  # cost of attempts that may be charged, of calls still running
        self.longest_prompt = 0.0  # estimated tokens of the longest prompt so far
        self._released = asyncio.Event()

    async def reserve(self, wanted: int, prompt: float) -> tuple[int, float]:
        """How many samples of a prompt may be requested now, and the reserved amount; 0: no more, ever."""
        self.longest_prompt = max(self.longest_prompt, prompt)
        if self.limit is None:
            return wanted, 0.0
        while True:
            sample_cost = self.prices.of(prompt * self._prompt_ratio, self._max_tokens)
            room = self.limit - self.spent - self._reserved - self._owed
            count = min(wanted, int(room / sample_cost * (1 + 1e-12))) if sample_cost > 0 else wanted
            if count > 0:
                self._reserved += count * sample_cost
                return count, count * sample_cost
            if self._reserved <= 0:
                return 0, 0.0
            self._released.clear()
            await self._released.wait()

    def release(self, reserved: float) -> None:
        """Releases a reservation; its calls were recorded as they ended."""
        self._reserved = max(0.0, self._reserved - reserved)
        if self._reserved < 1e-12:
            self._reserved = 0.0
        self._released.set()

    def record_attempt(self, call: Call) -> bool:
        """Records an attempt as it ends; False where its possible cost leaves no room for more."""
        if self.limit is None or call.paid != "maybe":
            return True
        self._owed += self._worst_cost(call)
        return self.spent + self._reserved + self._owed <= self.limit

    def _worst_cost(self, call: Call) -> float:
        return call.asked * self.prices.of(self.longest_prompt * self._prompt_ratio, self._max_tokens)

    def record_calls(self, calls: Iterable[Call], prompt: float) -> tuple[Call, ...]:
        """Records calls and returns them completed: those that may have been paid, with their highest
        cost.
        """
        completed = tuple(self._complete_call(call, prompt) for call in calls)
        for call in completed:
            if call.paid == "maybe":
                self._owed = max(0.0, self._owed - self._worst_cost(call))
            if call.paid != "no":
                self.spent += self.prices.of(call.prompt_tokens or 0, call.completion_tokens or 0)
        return completed

    def _complete_call(self, call: Call, prompt: float) -> Call:
        if call.paid == "yes" and call.prompt_tokens and prompt:
            self._prompt_ratio = max(self._prompt_ratio, call.prompt_tokens / prompt)
        if call.paid == "yes" and call.completion_tokens and call.asked:  # more may come than was requested
            self._max_tokens = max(self._max_tokens, math.ceil(call.completion_tokens / call.asked))
        if call.paid != "maybe" or call.completion_tokens is not None:
            return call
        tokens = math.ceil(prompt * self._prompt_ratio)
        return replace(
            call, prompt_tokens=tokens, completion_tokens=call.asked * self._max_tokens, estimated=True
        )


def estimate_prompt_size(messages: Iterable[Mapping[str, Any]]) -> float:
    """Estimated tokens of a prompt, rather too many than too few."""
    return sum(len(str(m.get("content", ""))) / _CHARACTERS_A_TOKEN + _TURN_TOKENS for m in messages)


def compute_max_cost(account: Account, prices: Prices) -> float:
    """What calls have cost, including those that may have been charged."""
    return account.cost(input_price=prices.input, output_price=prices.output, at_most=True)


def compute_spent(pool: Pool, prices: Prices) -> float:
    """What all calls into a pool have cost at most, of any model."""
    return sum(compute_max_cost(pool.account(model, parameters), prices) for model, parameters in pool.models)


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
