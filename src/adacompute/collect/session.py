"""An endpoint, a pool and the lanes between them, for as long as one run lasts. Knows nothing of plans."""

import asyncio
import contextlib
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from adacompute.collect.asking import Asking
from adacompute.collect.engine import Drawer, Engine
from adacompute.collect.lanes import Lanes
from adacompute.collect.purse import Prices, Purse, at_most
from adacompute.collect.writer import Writer
from adacompute.endpoint import Client, Endpoint
from adacompute.errors import CollectError
from adacompute.pool import Pool
from adacompute.records import Problem

__all__ = ["Here", "checked", "drawing", "ended", "engine_of", "heeding", "lanes_into", "ran"]

T = TypeVar("T")


@contextlib.asynccontextmanager
async def drawing(
    pool: Pool,
    *,
    endpoint: Endpoint,
    asking: Asking,
    purse: Purse,
    told: Callable[[Lanes], None],
    signals: Sequence[signal.Signals] = (),
) -> AsyncIterator[Lanes]:
    """Lanes to draw by; on leaving, all that came is stored.

    The first of `signals` stops the lanes in good order; the second leaves the block at once, and gives up
    what is in flight.
    """
    async with (
        Client(endpoint, heard=lambda call: lanes.heard(call)) as client,
        lanes_into(pool, client, asking=asking, purse=purse, told=told) as lanes,
        heeding(signals, lanes, told=lambda: told(lanes)),
    ):
        yield lanes


@contextlib.asynccontextmanager
async def lanes_into(
    pool: Pool, client: Client, *, asking: Asking, purse: Purse, told: Callable[[Lanes], None]
) -> AsyncIterator[Lanes]:
    """Lanes from a client into a pool; on leaving, all that came is stored. They want to hear its calls."""
    writer = Writer(pool, model=asking.model, parameters=asking.parameters)
    lanes = Lanes(client, writer, asking, purse, told=lambda: told(lanes))
    try:
        yield lanes
    finally:
        lanes.account_for_the_rest()
        await writer.close()
    if lanes.broken is not None:
        raise lanes.broken


@contextlib.asynccontextmanager
async def heeding(
    signals: Sequence[signal.Signals], drawer: Drawer, *, told: Callable[[], None]
) -> AsyncIterator[None]:
    """The first of `signals` stops a drawer in good order; the second leaves the block at once."""

    def stop(number: int) -> None:
        drawer.stop("signal", number=number)
        told()

    given_up = _GivenUp()
    try:
        with _until(signals, stop, asyncio.current_task(), given_up):
            yield
    except asyncio.CancelledError:  # the second signal: what is in flight is given up
        if not given_up.now:  # it was somebody else's wish
            raise
        _heeded(asyncio.current_task())
        drawer.why = "at once: calls in flight were given up, and may have been paid for"


@dataclass(frozen=True, slots=True)
class Here:
    """The engine that draws in this process."""

    endpoint: Endpoint

    @property
    def width(self) -> int:
        return self.endpoint.limits.concurrency

    def drawing(
        self,
        pool: Pool,
        *,
        asking: Asking,
        purse: Purse,
        told: Callable[[Drawer], None],
        signals: Sequence[signal.Signals] = (),
    ) -> contextlib.AbstractAsyncContextManager[Drawer]:
        """As the function of that name, from its endpoint."""
        return drawing(pool, endpoint=self.endpoint, asking=asking, purse=purse, told=told, signals=signals)


def engine_of(endpoint: Endpoint | Engine) -> Engine:
    """What draws: an engine, or, from an endpoint, this process."""
    return Here(endpoint) if isinstance(endpoint, Endpoint) else endpoint


def checked(
    problems: Iterable[Problem], pool: Pool, endpoint: Endpoint | Engine, asking: Asking
) -> tuple[Problem, ...]:
    """The problems, where all these are what they should be."""
    for name, value, fits, kind in (
        ("pool", pool, isinstance(pool, Pool), "Pool"),
        ("endpoint", endpoint, isinstance(endpoint, Endpoint | Engine), "Endpoint"),
        ("asking", asking, isinstance(asking, Asking), "Asking"),
    ):
        if not fits:
            raise CollectError(f"{name} is {type(value).__name__}; give an ac.{kind}")
    if isinstance(problems, str | bytes | Problem) or not isinstance(problems, Iterable):
        raise CollectError(f"problems are {type(problems).__name__}; give a list of ac.Problem")
    return tuple(problems)


def ended(lanes: Drawer, pool: Pool, asking: Asking, prices: Prices) -> dict[str, Any]:
    """What every run ends with: its errors, what it and earlier ones cost, and what stopped it."""
    account = pool.account(asking.model, asking.parameters)
    return {
        "errors": dict(lanes.errors),
        "account": account,
        "cost": account.cost(input_price=prices.input, output_price=prices.output),
        "at_most": at_most(account, prices),
        "stopped": lanes.stopped,
        "why": lanes.why,
        "signal": lanes.signal,
    }


def ran(whole: Coroutine[Any, Any, T]) -> T:
    """Runs it to its end; in a thread of its own where this one runs an event loop, as notebooks do."""
    if not _loop_runs():
        return asyncio.run(whole)
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, whole).result()


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@dataclass(slots=True)
class _GivenUp:
    now: bool = False


@contextlib.contextmanager
def _until(
    signals: Sequence[signal.Signals],
    first: Callable[[int], None],
    task: "asyncio.Task[Any] | None",
    given_up: _GivenUp,
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
            given_up.now = True
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
