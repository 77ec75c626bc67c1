"""The models that the upstream lists, asked for once for all who want to know. Knows nothing of requests."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["Listing"]

_KEPT = 60.0  # seconds that a list is good for
_FAILED = 5.0  # seconds that nobody asks again where it failed


class Listing:
    """Asks while nobody else does, and remembers. `ask` is the upstream's list; it ends by itself."""

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, list[str]]]) -> None:
        self.known: frozenset[str] = frozenset()  # what was listed last; empty before
        self._ask = ask
        self._asking: asyncio.Task[list[str]] | None = None
        self._until = 0.0  # by the loop's clock: so long it stays as it is

    async def names(self, *, anew: bool = False) -> list[str]:
        """The list, or the EndpointError in its place. `anew`: not one of before, but for a list."""
        now, asking = asyncio.get_running_loop().time(), self._asking
        over = asking is None or (asking.done() and now >= self._until)
        if asking is None or over or (anew and asking.done() and _failed(asking)):
            asking = self._asking = asyncio.create_task(self._list())
            asking.add_done_callback(_failed)  # looked at, though all who wanted to know may have gone
        return await asyncio.shield(asking)

    def close(self) -> None:
        """Ends what is under way."""
        if self._asking is not None:
            self._asking.cancel()

    async def _list(self) -> list[str]:
        kept = _FAILED
        try:
            names = await self._ask()
            self.known, kept = frozenset(names), _KEPT
        finally:
            self._until = asyncio.get_running_loop().time() + kept
        return names


def _failed(asked: asyncio.Task[list[str]]) -> bool:
    return asked.cancelled() or asked.exception() is not None
