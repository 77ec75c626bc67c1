"""Ending a request's work when its client goes away. Knows nothing of what the work is."""

import asyncio
from types import TracebackType
from typing import Any

from starlette.types import Receive

from adacompute.serve.limits import ClientGone

__all__ = ["Watch"]


class Watch:
    """While its context is open, a client that goes away cancels what runs in it; ClientGone comes out.

    To be entered once the whole body has been read: from then on the only news is that the client has gone.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._gone = False
        self._task: asyncio.Task[Any] | None = None
        self._listening: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._listening = asyncio.ensure_future(self._listen())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # let go of both: a listener that was cancelled holds its frame, and that holds this, in a circle
        # which would keep all of the request until rubbish is looked for
        task, listening, self._task, self._listening = self._task, self._listening, None, None
        assert task is not None
        assert listening is not None
        listening.cancel()
        if self._gone and task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise ClientGone from error

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        if self._task is not None:
            self._task.cancel()
