"""`check_modes`: one question to each mode of a menu, and what it took."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from adacompute.client import LIMIT_NAME, LOGPROBS, Client, Endpoint
from adacompute.client.modes import ModeEndpoint
from adacompute.errors import EndpointError
from adacompute.records import Call, Problem, TokenPrices
from adacompute.sampling.collect import run_coroutine
from adacompute.sampling.plan import Asking

__all__ = ["ModeCheck", "check_modes"]

_REASONING = ("completion_tokens_details", "reasoning_tokens")  # where usage tells them
_ATTEMPTS = 2  # of the question


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeCheck:
    """What one question to a mode gave."""

    name: str
    model: str
    host: str  # of its upstream, with the port
    error: str | None = None  # None: it answered
    text: str = ""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None  # of them; None: the endpoint doesn't say
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None  # of them; None: the endpoint doesn't say
    logprobs: bool | None = None  # whether log-probabilities were given; None: there was no reply
    seconds: float = 0.0
    cost: float = 0.0  # money

    @property
    def ok(self) -> bool:
        """Whether the mode can be used."""
        return self.error is None


def check_modes(
    modes: Sequence[tuple[ModeEndpoint, Asking]], problem: Problem, *, seconds: float = 60.0
) -> tuple[ModeCheck, ...]:
    """Asks every mode one question, all at the same time, as `collect` would ask it."""

    async def check_all() -> tuple[ModeCheck, ...]:
        return tuple(
            await asyncio.gather(*(_check_mode(mode, asking, problem, seconds) for mode, asking in modes))
        )

    return run_coroutine(check_all())


async def _check_mode(mode: ModeEndpoint, asking: Asking, problem: Problem, seconds: float) -> ModeCheck:
    endpoint, start = _bound_endpoint(mode.endpoint, seconds), time.monotonic()
    blank = ModeCheck(name=mode.name, model=mode.model, host=urlsplit(mode.endpoint.url).netloc)
    async with Client(endpoint) as client:
        try:
            reply = await client.call(asking.body(problem), optional=LOGPROBS | LIMIT_NAME, deadline=seconds)
        except EndpointError as exc:
            cost = sum(_compute_call_cost(mode, call) for call in exc.calls)
            return replace(blank, error=str(exc), seconds=time.monotonic() - start, cost=cost)
    response, calls = reply.responses[0], [call for call in reply.calls if call.paid == "yes"]
    return replace(
        blank,
        error=None if response.text.strip() else _explain_no_text(response.finished, response.tokens),
        text=response.text.strip(),
        prompt_tokens=_sum_known([call.prompt_tokens for call in calls]),
        cached_tokens=_sum_known([call.cached_tokens for call in calls]),
        completion_tokens=_sum_known([call.completion_tokens for call in calls]),
        reasoning_tokens=_sum_known([_read_reasoning(call) for call in calls]),
        logprobs=response.logprob is not None,
        seconds=time.monotonic() - start,
        cost=sum(_compute_call_cost(mode, call) for call in calls),
    )


def _bound_endpoint(endpoint: Endpoint, seconds: float) -> Endpoint:
    """An endpoint that is waited for no longer than so many seconds."""
    timeouts, retries = endpoint.timeouts, endpoint.retries
    return replace(
        endpoint,
        timeouts=replace(
            timeouts,
            connect=min(timeouts.connect, seconds),
            first_byte=min(timeouts.first_byte, seconds),
            total=min(timeouts.total, seconds),
        ),
        retries=replace(
            retries,
            attempts=min(retries.attempts, _ATTEMPTS),
            deadline=min(retries.deadline, seconds),
        ),
    )


def _explain_no_text(finished: bool | None, tokens: int | None) -> str:
    if finished is False:
        return f"no text after {tokens or 0:,} tokens, the limit; raise max_tokens in its options"
    return "no text in its response; check its model and options"


def _read_reasoning(call: Call) -> int | None:
    tokens = call.usage_details.get(_REASONING)
    return None if tokens is None else int(tokens)


def _sum_known(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _compute_call_cost(mode: ModeEndpoint, call: Call) -> float:
    """Money for one call, with cached prompt tokens at their own price."""
    if call.paid == "no":
        return 0.0
    prompt, cached = call.prompt_tokens or 0, min(call.cached_tokens or 0, call.prompt_tokens or 0)
    full = mode.prices.cost(prompt - cached, call.completion_tokens or 0)
    cached_price = mode.prices.input if mode.cached_price is None else mode.cached_price
    return full + TokenPrices(input=cached_price).cost(cached, 0)
