"""The gateway's door: knows who is inside, and puts them out when their time is over. Turns nobody away."""

import asyncio
import contextlib
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from adacompute.errors import Overloaded
from adacompute.serve.chat import id_of, replied
from adacompute.serve.reply import failure

__all__ = ["Door"]

_SETTLE = 5.0  # seconds that requests have, once they are cut off, to settle what they spent


class Door:
    """An ASGI app around the gateway's. Who posts has work to be done; who looks is not waited for."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._inside: set[asyncio.Task[Any]] = set()
        self._cleared = False  # those inside are being put out

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets a request in, and notes that it is there."""
        task = asyncio.current_task()
        if task is None or scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        self._inside.add(task)
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if not self._cleared:
                raise
            with contextlib.suppress(RuntimeError):  # a reply that has begun breaks off here
                why = Overloaded("the gateway closed down before this was done; ask again", retry_after=1.0)
                status, headers, body = failure(why)
                await replied(
                    send, status, {**headers, "x-request-id": id_of(scope), "connection": "close"}, body
                )
        finally:
            self._inside.discard(task)

    async def clear(self, *, within: float, at_once: asyncio.Event) -> int:
        """Waits for those who are inside now, then puts the rest out; how many these are.

        `within`: seconds that they have; `at_once`: set where there is no more time.
        """
        hurry = asyncio.create_task(at_once.wait())
        left, now = set(self._inside), asyncio.get_running_loop().time
        until = now() + within
        while left and not hurry.done() and (seconds := until - now()) > 0:
            done, _ = await asyncio.wait({*left, hurry}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            left -= done
        hurry.cancel()
        self._cleared = True
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_SETTLE)
        return len(left)
