"""A gate before every attempt: open, shut for a while, or ended for good. Doesn't know who waits, or why."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from adacompute.errors import SendingStopped

__all__ = ["Gate"]


class Gate:
    """What is in flight is never touched; what has not been sent waits, or is turned away."""

    def __init__(self) -> None:
        self._shut = False
        self._opened: Callable[[], None] | None = None
        self._abiding: set[asyncio.Task[Any]] = set()
        self._turned: set[asyncio.Task[Any]] = set()
        self.ended = False

    @property
    def passable(self) -> bool:
        """May an attempt be sent now?"""
        return not (self.ended or self._shut)

    def shut(self) -> None:
        """From now on attempts wait."""
        self._shut = True

    def open(self) -> None:
        """From now on attempts pass, and those that waited too."""
        if self._shut:
            self._shut = False
            if self._opened is not None:
                self._opened()

    def tell(self, opened: Callable[[], None]) -> None:
        """Whoever keeps the queue is told when it opens: the queue stays where it is meanwhile."""
        self._opened = opened

    def end(self) -> None:
        """From now on nothing more is sent: SendingStopped for all that comes or waits."""
        self.ended = True
        for task in self._abiding:
            self._turned.add(task)
            task.cancel()
        self._abiding.clear()

    @asynccontextmanager
    async def abiding(self) -> AsyncIterator[None]:
        """Whatever is waited for inside is cut short by `end`, with SendingStopped."""
        if self.ended:
            raise _stopped()
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("waiting needs a task")
        before = task.cancelling()
        self._abiding.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if task in self._turned and task.uncancel() <= before:  # nobody else wants it cancelled
                raise _stopped() from None
            raise
        finally:
            self._abiding.discard(task)
            self._turned.discard(task)


def _stopped() -> SendingStopped:
    return SendingStopped("nothing more is sent: it was stopped; ask again to go on")
