"""What asking cost: one record a call, and their sum. Knows nothing of HTTP, prices or pools."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Account", "Call", "Paid"]

Paid = Literal["yes", "no", "maybe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One attempt over HTTP, as it is accounted for."""

    at: float  # seconds since 1970, UTC, when it was sent
    seconds: float
    asked: int  # choices
    got: int  # choices that could be used
    surplus: int = 0  # choices that came and were not used: beyond those asked for, or no good; paid for
    kind: str = "ok"  # or the kind of the error
    status: int | None = None
    paid: Paid = "yes"
    prompt_tokens: int | None = None
    cached_tokens: int | None = None  # of the prompt's, those that the server had cached, where it says so
    completion_tokens: int | None = None  # of all choices
    estimated: bool = False  # True: corrected or guessed, not as the server said


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The sum of many calls. What calls that may have been paid cost at most is kept apart."""

    calls: int = 0
    paid: int = 0  # calls
    maybe: int = 0  # calls that gave nothing, and may be charged for all the same
    asked: int = 0  # choices
    got: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    maybe_prompt_tokens: int = 0
    maybe_completion_tokens: int = 0  # at most: as many as were allowed
    estimated: int = 0  # calls whose tokens are not as the server said them

    def cost(self, *, input_price: float, output_price: float, at_most: bool = False) -> float:
        """Money, at prices for a million tokens; `at_most` adds what may have been charged."""
        prompts = self.prompt_tokens + (self.maybe_prompt_tokens if at_most else 0)
        completions = self.completion_tokens + (self.maybe_completion_tokens if at_most else 0)
        return (prompts * input_price + completions * output_price) / 1e6
