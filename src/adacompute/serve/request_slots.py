"""How many requests, and how many bytes of their bodies, there may be at the same time."""

from types import TracebackType
from typing import Self

from adacompute.errors import Overloaded

__all__ = ["RequestSlot", "RequestSlots"]

_MAX_HELD_BYTES = 2**30  # of the bodies of all requests at the same time
_RECEIVING_FACTOR = 2  # bodies may be received for so many times max_requests
_RETRY_SECONDS = 1.0  # Retry-After of a gateway that is full


class RequestSlots:
    """Counts the requests of all endpoints, and turns away those that are too many at the same time."""

    def __init__(self, max_requests: int) -> None:
        self._max_requests = max_requests
        self.receiving = 0  # requests whose bodies are being received
        self.bytes = 0  # of the bodies of all requests, until their replies are sent
        self.active = 0  # requests in progress, until their replies are sent

    def check(self) -> None:
        """Overloaded if the gateway is full; requests whose bodies are still being received don't count."""
        if self.active >= self._max_requests:
            raise _make_overloaded(f"{self.active} requests are under way")

    def check_receiving(self) -> None:
        """Overloaded if too many bodies are being received."""
        if self.receiving >= _RECEIVING_FACTOR * self._max_requests:
            raise _make_overloaded(f"{self.receiving} requests are still being sent")

    def open(self) -> "RequestSlot":
        """The slot of one request, as a context that ends with it."""
        return RequestSlot(self)


class RequestSlot:
    """What one request counts for among all: its body, and then itself, until its context ends.

    One object with three counts, because three contexts of generators took 10 µs of every request.
    """

    __slots__ = ("_active", "_bytes", "_receiving", "_slots")

    def __init__(self, slots: RequestSlots) -> None:
        self._slots = slots
        self._receiving = 0  # 1: its body is being received
        self._bytes = 0  # of its body
        self._active = 0  # 1: it is in progress

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_body()
        self._slots.bytes -= self._bytes
        self._slots.active -= self._active

    def begin_body(self) -> None:
        """Its body is being received from now on."""
        self._slots.check_receiving()
        self._slots.receiving += 1
        self._receiving = 1

    def add_bytes(self, size: int) -> None:
        """Counts so many bytes of its body; Overloaded if those of all requests together are too many."""
        slots = self._slots
        if slots.bytes + size > _MAX_HELD_BYTES:
            raise _make_overloaded(f"requests of {slots.bytes:,} bytes are under way")
        self._bytes += size
        slots.bytes += size

    def end_body(self) -> None:
        """Its body has been received."""
        self._slots.receiving -= self._receiving
        self._receiving = 0

    def activate(self) -> None:
        """It is in progress from now on; checked once more: others may have sent their bodies faster."""
        self._slots.check()
        self._slots.active += 1
        self._active = 1


def _make_overloaded(reason: str) -> Overloaded:
    return Overloaded(f"{reason}, which is the limit; try again in a moment", retry_after=_RETRY_SECONDS)
