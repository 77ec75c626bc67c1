"""How far one request has come, and the time it has for that. Knows nothing of HTTP."""

import asyncio
from dataclasses import dataclass
from types import TracebackType

from adacompute.endpoint.settings import Endpoint

__all__ = ["Answer", "Attempt"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came, whatever its status; `value` is its JSON, or its text, the key masked in it."""

    status: int
    value: object
    retry_after: float | None = None  # seconds


class Attempt:
    """How far one request has come, and the time it has for that; readable also where it was cancelled.

    An async context manager that raises TimeoutError. It is `asyncio.timeout`, but for its one timer, which
    looks when it rings whether there is time left by now: setting another for each step costs more. A reply
    that is read in pieces enters it anew for each: between them the task is not its own.
    """

    __slots__ = (
        "_cancelling",
        "_ends",
        "_first_byte",
        "_loop",
        "_task",
        "_timer",
        "expired",
        "headers",
        "impatient",
        "sent",
    )

    def __init__(self, endpoint: Endpoint, until: float, loop: asyncio.AbstractEventLoop) -> None:
        own = loop.time() + endpoint.timeouts.total
        self._loop = loop
        self._timer: asyncio.TimerHandle
        self._ends = min(own, until)
        self._first_byte = endpoint.timeouts.first_byte
        self.impatient = until < own  # what would end it is the caller's deadline, not its own timeout
        self.sent: float | None = None  # since when the endpoint may have been at work
        self.headers = False
        self.expired = False

    def sending(self) -> None:
        """The connection stands and the request goes out: the time to the first byte begins."""
        self.sent = self._loop.time()
        due = min(self._ends, self.sent + self._first_byte)
        if self._timer.when() > due:  # it has rung while connecting, and was set to the end
            self._timer.cancel()
            self._timer = self._loop.call_at(due, self._ring)

    def answering(self) -> None:
        """The headers are here; of a stream, its first event."""
        self.headers = True

    async def __aenter__(self) -> None:
        self._task = asyncio.current_task()
        self._cancelling = 0 if self._task is None else self._task.cancelling()
        since = self._loop.time() if self.sent is None else self.sent
        due = self._ends if self.headers else min(self._ends, since + self._first_byte)
        self._timer = self._loop.call_at(due, self._ring)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self.expired and self._task is not None:
            mine = self._task.uncancel() <= self._cancelling  # else somebody else has cancelled it, too
            if mine and kind is asyncio.CancelledError:
                raise TimeoutError from error

    def _ring(self) -> None:
        waiting = self.sent is not None and not self.headers
        first = (self.sent or 0.0) + self._first_byte
        due = min(self._ends, first) if waiting else self._ends
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._ring)
        elif self._task is not None:
            self.expired = True
            self.impatient = self.impatient and due == self._ends
            self._task.cancel()
