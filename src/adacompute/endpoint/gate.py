"""A gate before every attempt: open, shut for a while, or ended for good. Doesn't know who waits, or why."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from adacompute.errors import SendingStopped

__all__ = ["Gate"]


class Gate:
    """What is in flight is never touched; what has not been sent waits, or is turned away."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self._abiding: set[asyncio.Task[Any]] = set()
        self._turned: set[asyncio.Task[Any]] = set()
        self.ended = False

    @property
    def passable(self) -> bool:
        """May an attempt be sent now?"""
        return not self.ended and self._open.is_set()

    def shut(self) -> None:
        """From now on attempts wait."""
        if not self.ended:
            self._open.clear()

    def open(self) -> None:
        """From now on attempts pass, and those that waited too."""
        self._open.set()

    def end(self) -> None:
        """From now on nothing more is sent: SendingStopped for all that comes or waits."""
        self.ended = True
        self._open.set()
        for task in self._abiding:
            self._turned.add(task)
            task.cancel()
        self._abiding.clear()

    async def passed(self) -> None:
        """Returns when an attempt may be sent."""
        if not self._open.is_set():
            await self._open.wait()
        if self.ended:
            raise _stopped()

    @asynccontextmanager
    async def abiding(self) -> AsyncIterator[None]:
        """Whatever is waited for inside is cut short by `end`, with SendingStopped."""
        if self.ended:
            raise _stopped()
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("waiting needs a task")
        self._abiding.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if task in self._turned and task.uncancel() <= 0:  # nobody else wants it cancelled
                raise _stopped() from None
            raise
        finally:
            self._abiding.discard(task)
            if task in self._turned:
                self._turned.discard(task)


def _stopped() -> SendingStopped:
    return SendingStopped("nothing more is sent: it was stopped; ask again to go on")
