"""Which errors are tried again, and when. Knows nothing of sockets."""

import random
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from adacompute.endpoint.settings import Retries
from adacompute.errors import (
    ConnectionLost,
    EndpointError,
    EndpointFailed,
    EndpointRefused,
    EndpointTimeout,
    EndpointUnreachable,
    RateLimited,
    ReplyInvalid,
)

__all__ = ["Untrusted", "backoff", "failure_of", "pushed_back", "retried", "retry_after", "transport"]


class Untrusted(EndpointUnreachable):
    """Its certificate is wrong, and will be in a second, too."""


def failure_of(status: int, message: str) -> EndpointError:
    """The error that a status is, 200 aside."""
    if status == 429:
        return RateLimited(message, status=status)
    if status == 408:  # said by proxies too, when the server behind them was at work
        return EndpointTimeout(message, status=status, paid=True)
    if status >= 500:
        return EndpointFailed(message, status=status, paid=True)
    if status < 300:
        return ReplyInvalid(message, status=status, paid=True)
    return EndpointRefused(message, status=status)


def retried(error: EndpointError, *, after_timeout: bool) -> bool:
    """Would asking again help? After a timeout of what was sent only where that is asked for."""
    if isinstance(error, EndpointTimeout):
        return after_timeout or not error.paid or error.status is not None
    if isinstance(error, Untrusted):
        return False
    return isinstance(
        error, EndpointUnreachable | RateLimited | EndpointFailed | ConnectionLost | ReplyInvalid
    )


def transport(error: EndpointError) -> bool:
    """Is it the endpoint or the way to it that fails (what a breaker counts), not our request?"""
    if error.status is not None and error.status < 500:  # a 408, too, is an answer
        return False
    return isinstance(error, EndpointTimeout | EndpointUnreachable | ConnectionLost | EndpointFailed)


def pushed_back(error: EndpointError) -> bool:
    """Does it say that this is more than the endpoint bears?"""
    return error.status in (429, 503) or isinstance(error, EndpointTimeout | EndpointUnreachable)


def backoff(attempt: int, retries: Retries, rng: random.Random, *, asked: float | None = None) -> float:
    """Seconds to wait after the attempt of that number, from 1; `asked` is the endpoint's Retry-After.

    Jittered, so that callers that failed together don't come back together; never sooner than asked, nor
    than our own: some ask for 0 seconds.
    """
    longest = min(retries.longest, retries.first * 2.0 ** min(attempt - 1, 30))
    own = rng.uniform(longest / 2, longest)
    return own if asked is None else max(own, asked + rng.uniform(0.0, min(1.0, 0.1 * asked)))


def retry_after(headers: Mapping[str, str], *, now: float) -> float | None:
    """Seconds that the reply asks to wait, by number or by date; None where it doesn't, or not readably.

    >>> retry_after({"Retry-After": "2.5"}, now=0.0)
    2.5
    >>> retry_after({"Retry-After": "Thu, 01 Jan 1970 00:01:00 GMT"}, now=50.0)
    10.0
    """
    exact = _seconds(headers.get("Retry-After-Ms", ""))
    if exact is not None:
        return exact / 1000
    text = headers.get("Retry-After", "").strip()
    seconds = _seconds(text)
    if seconds is not None or not text:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _seconds(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 <= value < float("inf") else None
