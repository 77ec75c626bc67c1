"""One HTTP attempt: its deadlines, its raw reply, and what its error means.

Says which errors are worth a retry, which count for the circuit breaker, and how long to back off.
Holds no HTTP code, so that importing it doesn't load aiohttp.
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from types import TracebackType

from adacompute.client.settings import Endpoint, Retries
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

__all__ = [
    "AttemptTimer",
    "CertificateUntrusted",
    "HttpReply",
    "compute_backoff",
    "error_from_status",
    "is_overload",
    "is_retryable",
    "is_transport_failure",
    "parse_retry_after",
]


@dataclass(frozen=True, slots=True)
class HttpReply:
    """What a server answered, whatever the status.

    `value` is the JSON of the body, or its text, with the endpoint's key masked.
    """

    status: int
    value: object
    retry_after: float | None = None  # seconds


class AttemptTimer:
    """The deadlines of one request, and how far it has come; readable also after it was cancelled.

    An async context manager that raises TimeoutError, like `asyncio.timeout`, but with a single timer:
    when it fires it checks whether time is left by now, because setting a new timer for each step costs
    more. A reply that is read in pieces enters it anew for each piece, since the task does other work
    in between.
    """

    __slots__ = (
        "_cancel_count",
        "_ends",
        "_first_byte",
        "_loop",
        "_task",
        "_timer",
        "caller_deadline_first",
        "expired",
        "headers",
        "sent",
    )

    def __init__(self, endpoint: Endpoint, until: float, loop: asyncio.AbstractEventLoop) -> None:
        own_deadline = loop.time() + endpoint.timeouts.total
        self._loop = loop
        self._timer: asyncio.TimerHandle
        self._ends = min(own_deadline, until)
        self._first_byte = endpoint.timeouts.first_byte
        self.caller_deadline_first = (
            until < own_deadline
        )  # the caller's deadline comes before our own timeout
        self.sent: float | None = None  # when it was sent: the endpoint may work on it since then
        self.headers = False
        self.expired = False

    def mark_sent(self) -> None:
        """The connection is made and the request goes out: the time to the first byte begins."""
        self.sent = self._loop.time()
        due = min(self._ends, self.sent + self._first_byte)
        if self._timer.when() > due:  # it fired while connecting, and was set to the end
            self._timer.cancel()
            self._timer = self._loop.call_at(due, self._check_deadline)

    def mark_answering(self) -> None:
        """The headers have arrived; for a stream, its first event."""
        self.headers = True

    async def __aenter__(self) -> None:
        self._task = asyncio.current_task()
        self._cancel_count = 0 if self._task is None else self._task.cancelling()
        since = self._loop.time() if self.sent is None else self.sent
        due = self._ends if self.headers else min(self._ends, since + self._first_byte)
        self._timer = self._loop.call_at(due, self._check_deadline)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self.expired and self._task is not None:
            only_ours = self._task.uncancel() <= self._cancel_count  # else others cancelled it too
            if only_ours and kind is asyncio.CancelledError:
                raise TimeoutError from error

    def _check_deadline(self) -> None:
        waiting = self.sent is not None and not self.headers
        first = (self.sent or 0.0) + self._first_byte
        due = min(self._ends, first) if waiting else self._ends
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._check_deadline)
        elif self._task is not None:
            self.expired = True
            self.caller_deadline_first = self.caller_deadline_first and due == self._ends
            self._task.cancel()


class CertificateUntrusted(EndpointUnreachable):
    """The server's certificate is wrong, so trying again doesn't help."""


def error_from_status(status: int, message: str) -> EndpointError:
    """The error that a status other than 200 stands for."""
    if status == 429:
        return RateLimited(message, status=status)
    if status == 408:  # proxies send it too, while the server behind them may have worked
        return EndpointTimeout(message, status=status, paid=True)
    if status >= 500:
        return EndpointFailed(message, status=status, paid=True)
    if status < 300:
        return ReplyInvalid(message, status=status, paid=True)
    return EndpointRefused(message, status=status)


def is_retryable(error: EndpointError, *, after_timeout: bool) -> bool:
    """Whether trying again may help. After a timeout of a request that was sent, only where asked for."""
    if isinstance(error, EndpointTimeout):
        return after_timeout or not error.paid or error.status is not None
    if isinstance(error, CertificateUntrusted):
        return False
    return isinstance(
        error, EndpointUnreachable | RateLimited | EndpointFailed | ConnectionLost | ReplyInvalid
    )


def is_transport_failure(error: EndpointError) -> bool:
    """Whether the endpoint or the way to it fails, not our request: this is what the breaker counts."""
    if error.status is not None and error.status < 500:  # a 408, too, is an answer
        return False
    return isinstance(error, EndpointTimeout | EndpointUnreachable | ConnectionLost | EndpointFailed)


def is_overload(error: EndpointError) -> bool:
    """Whether the error says that the endpoint has more work than it can bear."""
    return error.status in (429, 503) or isinstance(error, EndpointTimeout | EndpointUnreachable)


def compute_backoff(
    attempt: int, retries: Retries, rng: random.Random, *, requested: float | None = None
) -> float:
    """Seconds to wait after the attempt of that number, from 1; `requested` is the endpoint's
    Retry-After.

    Jittered, so that callers that failed together don't come back together. Never shorter than
    requested, nor than our own delay: some servers ask for 0 seconds.
    """
    longest = min(retries.longest, retries.first * 2.0 ** min(attempt - 1, 30))
    delay = rng.uniform(longest / 2, longest)
    return delay if requested is None else max(delay, requested + rng.uniform(0.0, min(1.0, 0.1 * requested)))


def parse_retry_after(headers: Mapping[str, str], *, now: float) -> float | None:
    """Seconds that the reply asks to wait, by number or by date; None where it names none that is readable.

    >>> parse_retry_after({"Retry-After": "2.5"}, now=0.0)
    2.5
    >>> parse_retry_after({"Retry-After": "Thu, 01 Jan 1970 00:01:00 GMT"}, now=50.0)
    10.0
    """
    exact = _parse_seconds(headers.get("Retry-After-Ms", ""))
    if exact is not None:
        return exact / 1000
    text = headers.get("Retry-After", "").strip()
    seconds = _parse_seconds(text)
    if seconds is not None or not text:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _parse_seconds(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 <= value < float("inf") else None
