"""An endpoint, a pool and the lanes between them, for as long as one run lasts. Knows nothing of plans."""

import asyncio
import contextlib
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from adacompute.collect.asking import Asking
from adacompute.collect.lanes import Lanes
from adacompute.collect.purse import Purse
from adacompute.collect.writer import Writer
from adacompute.endpoint import Client, Endpoint
from adacompute.pool import Pool

__all__ = ["drawing"]


@contextlib.asynccontextmanager
async def drawing(
    pool: Pool,
    *,
    endpoint: Endpoint,
    asking: Asking,
    purse: Purse,
    told: Callable[[Lanes, Client], None],
    signals: Sequence[signal.Signals] = (),
) -> AsyncIterator[tuple[Lanes, Client]]:
    """Lanes to draw by; on leaving, all that came is stored.

    The first of `signals` stops the lanes in good order; the second leaves the block at once, and gives up
    what is in flight.
    """
    async with Client(endpoint, heard=lambda call: lanes.heard(call)) as client:
        writer = Writer(pool, model=asking.model, parameters=asking.parameters)
        lanes = Lanes(client, writer, asking, purse, told=lambda: told(lanes, client))
        try:
            with _until(signals, lambda n: lanes.stop("signal", number=n), asyncio.current_task()):
                yield lanes, client
        except asyncio.CancelledError:  # the second signal: what is in flight is given up
            if lanes.stopped != "signal":  # it was somebody else's wish
                raise
            _heeded(asyncio.current_task())
            lanes.why = "at once: calls in flight were given up, and may have been paid for"
        finally:
            await writer.close()


@contextlib.contextmanager
def _until(
    signals: Sequence[signal.Signals], first: Callable[[int], None], task: "asyncio.Task[Any] | None"
) -> Iterator[None]:
    """The first signal calls `first`, the second cancels `task`; afterwards they do what they did before."""
    if not signals or threading.current_thread() is not threading.main_thread() or task is None:
        yield
        return
    loop, seen = asyncio.get_running_loop(), 0

    def heard(number: int) -> None:
        nonlocal seen
        seen += 1
        if seen == 1:
            first(number)
        else:
            task.cancel()

    before = {number: signal.getsignal(number) for number in signals}
    for number in signals:
        loop.add_signal_handler(number, heard, number)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def _heeded(task: "asyncio.Task[Any] | None") -> None:
    """What was cancelled goes on from here: it has to store and to account."""
    while task is not None and task.cancelling():
        task.uncancel()
