"""Money for calls: reserved before, settled after, within a limit. Knows nothing of endpoints."""

import asyncio
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from adacompute.errors import CollectError
from adacompute.pool import Pool
from adacompute.records import Account, Call

__all__ = ["Prices", "Purse", "at_most", "prompt_size", "spent_so_far"]

_CHARACTERS = 3.0  # a token of a prompt, before any was counted: few, so that it is no less than it will be
_TURN = 8  # tokens that a turn adds


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Money for a million tokens."""

    input: float = 0.0
    output: float = 0.0

    def __post_init__(self) -> None:
        for name in ("input", "output"):
            if not _amount(getattr(self, name)):
                raise CollectError(f"{name} price {getattr(self, name)!r} can't be used; give 0 or more")

    def __bool__(self) -> bool:
        return self.input > 0 or self.output > 0

    def of(self, prompt_tokens: float, completion_tokens: float) -> float:
        """What so many tokens cost."""
        return (prompt_tokens * self.input + completion_tokens * self.output) / 1e6


class Purse:
    """What calls have cost, and may yet cost, within `limit`.

    A call is reserved at its worst: each sample as a call of its own, with all the tokens that it may have.
    Attempts that gave nothing and may be charged count in full, and one more try has to fit beside them: so
    the limit holds even if they are. Prompts are estimated until some were counted; an endpoint that sends
    more than it was asked for is reserved for accordingly from then on.
    """

    def __init__(
        self,
        *,
        prices: Prices,
        limit: float | None = None,
        spent: float = 0.0,
        most_tokens: int | None = None,
    ) -> None:
        if limit is not None and not (_amount(limit) and limit > 0):
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
        self._most = most_tokens or 0
        self._ratio = 1.0  # tokens of prompts as counted, to as estimated: the largest seen
        self._owed = 0.0  # attempts that may be charged, of calls still under way
        self.longest = 0.0  # prompt asked for
        self._settled = asyncio.Event()

    async def take(self, wanted: int, prompt: float) -> tuple[int, float]:
        """How many samples of a prompt may be asked for now, and what is reserved; 0: no more, ever."""
        self.longest = max(self.longest, prompt)
        if self.limit is None:
            return wanted, 0.0
        while True:
            each = self.prices.of(prompt * self._ratio, self._most)
            room = self.limit - self.spent - self._reserved - self._owed
            count = min(wanted, int(room / each * (1 + 1e-12))) if each > 0 else wanted
            if count > 0:
                self._reserved += count * each
                return count, count * each
            if self._reserved <= 0:
                return 0, 0.0
            self._settled.clear()
            await self._settled.wait()

    def settle(self, reserved: float) -> None:
        """What was reserved is free; its calls have been counted as they came."""
        self._reserved = max(0.0, self._reserved - reserved)
        if self._reserved < 1e-12:
            self._reserved = 0.0
        self._settled.set()

    def tried(self, call: Call) -> bool:
        """Takes note of an attempt as it ends; False where what it may have cost leaves no room for more."""
        if self.limit is None or call.paid != "maybe":
            return True
        self._owed += self._worst(call)
        return self.spent + self._reserved + self._owed <= self.limit

    def _worst(self, call: Call) -> float:
        return call.asked * self.prices.of(self.longest * self._ratio, self._most)

    def count(self, calls: Iterable[Call], prompt: float) -> tuple[Call, ...]:
        """The calls as they are accounted for: what may have been paid, with the most that it can cost."""
        told = tuple(self._told(call, prompt) for call in calls)
        for call in told:
            if call.paid == "maybe":
                self._owed = max(0.0, self._owed - self._worst(call))
            if call.paid != "no":
                self.spent += self.prices.of(call.prompt_tokens or 0, call.completion_tokens or 0)
        return told

    def _told(self, call: Call, prompt: float) -> Call:
        if call.paid == "yes" and call.prompt_tokens and prompt:
            self._ratio = max(self._ratio, call.prompt_tokens / prompt)
        if call.paid == "yes" and call.completion_tokens and call.asked:  # more came than was asked for
            self._most = max(self._most, math.ceil(call.completion_tokens / call.asked))
        if call.paid != "maybe" or call.completion_tokens is not None:
            return call
        tokens = math.ceil(prompt * self._ratio)
        return replace(call, prompt_tokens=tokens, completion_tokens=call.asked * self._most, estimated=True)


def prompt_size(messages: Iterable[Mapping[str, Any]]) -> float:
    """Tokens of a prompt, about: more rather than less."""
    return sum(len(str(m.get("content", ""))) / _CHARACTERS + _TURN for m in messages)


def at_most(account: Account, prices: Prices) -> float:
    """What calls have cost, with what may have been charged."""
    return account.cost(input_price=prices.input, output_price=prices.output, at_most=True)


def spent_so_far(pool: Pool, prices: Prices) -> float:
    """What all calls into a pool have cost at most, of whatever model."""
    return sum(at_most(pool.account(model, parameters), prices) for model, parameters in pool.models)


def _amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
