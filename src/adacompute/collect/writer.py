"""Samples into a pool as they come, many calls with one flush of the disk. Knows nothing of endpoints.

A thread of its own writes, so that no call waits for the disk: while one batch is being flushed the next one
gathers, and a future tells each caller when its samples can no longer be lost.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from adacompute.errors import DuplicateRecord, PoolError, RecordInvalid, RecordNotFound
from adacompute.pool import Drawn, Pool
from adacompute.records import Call, Failure

__all__ = ["Writer"]

_GATHER = 0.02  # seconds that a batch waits for more: a flush costs as much as many samples
_BATCH = 256  # calls a transaction, at most: memory, and how long one holds the interpreter

_MOST = 2**53
_OF_A_RECORD = (RecordInvalid, DuplicateRecord, RecordNotFound)

_Item = tuple[Drawn, "asyncio.Future[Drawn]"]


class Writer:
    """Writes to one source of a pool, from a running event loop. When it is closed, all is stored."""

    def __init__(self, pool: Pool, *, model: str, parameters: Mapping[str, Any]) -> None:
        self._pool = pool
        self._model = model
        self._parameters = dict(parameters)
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._write, name="adacompute-writer", daemon=True)
        self._thread.start()

    def add(self, drawn: Drawn) -> "asyncio.Future[Drawn]":
        """A future that ends, when it is stored, with what was; or with the reason why nothing can be."""
        future: asyncio.Future[Drawn] = self._loop.create_future()
        self._queue.put((drawn, future))
        return future

    async def close(self) -> None:
        """Returns when all that was added is stored, or has failed."""
        self._queue.put(None)
        while self._thread.is_alive():
            await asyncio.sleep(0.005)

    def _write(self) -> None:
        ending = False
        while not ending:
            batch = [item] if (item := self._queue.get()) is not None else []
            ending = item is None
            if batch and self._queue.empty():
                time.sleep(_GATHER)
            while len(batch) < _BATCH and not ending:
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
                ending = item is None
                if item is not None:
                    batch.append(item)
            if batch:
                self._stored(batch)

    def _stored(self, batch: list[_Item]) -> None:
        outcomes: list[Drawn | BaseException]
        if self._error is not None:  # a full disk stays full: nothing is tried again
            outcomes = [self._error] * len(batch)
        else:
            try:
                self._add([drawn for drawn, _ in batch])
                outcomes = [drawn for drawn, _ in batch]
            except BaseException as exc:  # noqa: BLE001 - told to whoever waits, in the loop's thread
                # one that can't be stored takes nobody with it: the others were paid for, too
                outcomes = [self._failed(exc)] * len(batch) if _fatal(exc) else self._one_by_one(batch)
        futures = [future for _, future in batch]
        self._loop.call_soon_threadsafe(_tell, list(zip(futures, outcomes, strict=True)))

    def _one_by_one(self, batch: list[_Item]) -> list[Drawn | BaseException]:
        return [self._error or self._single(drawn) for drawn, _ in batch]

    def _single(self, drawn: Drawn) -> Drawn | BaseException:
        """Stores it, or at least its calls, and that they gave nothing that could be kept."""
        try:
            self._add([drawn])
        except BaseException as exc:  # noqa: BLE001 - as above
            if _fatal(exc):
                return self._failed(exc)
            kept = _refused(drawn, exc)
        else:
            return drawn
        try:
            self._add([kept])
        except BaseException as exc:  # noqa: BLE001 - as above
            return self._failed(exc) if _fatal(exc) else exc
        return kept

    def _failed(self, error: BaseException) -> BaseException:
        self._error = error
        return error

    def _add(self, drawn: list[Drawn]) -> None:
        self._pool.add_drawn(drawn, model=self._model, parameters=self._parameters)


def _fatal(error: BaseException) -> bool:
    """Whether it is the pool that can't be written, not one record that can't be stored."""
    ours = isinstance(error, PoolError) and not isinstance(error, _OF_A_RECORD)
    return ours or not isinstance(error, Exception)


def _tell(outcomes: "list[tuple[asyncio.Future[Drawn], Drawn | BaseException]]") -> None:
    for future, outcome in outcomes:
        if future.cancelled():
            continue
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
            future.exception()  # whoever gave it up has no wish to be told
        else:
            future.set_result(outcome)


def _refused(drawn: Drawn, why: BaseException) -> Drawn:
    """The calls, with their samples as failures: what was paid for nothing is accounted for, too."""
    told = str(why).encode("utf-8", "replace").decode()
    failures = [
        Failure(index=index, kind="unstorable", message=told)
        for index in [*(index for index, _ in drawn.samples), *(f.index for f in drawn.failures)]
    ]
    return Drawn(drawn.problem_id, (), failures, [_plain(call) for call in drawn.calls])


def _plain(call: Call) -> Call:
    """A call whose numbers fit, whatever the endpoint said."""
    return replace(
        call,
        status=_sound(call.status),
        prompt_tokens=_sound(call.prompt_tokens),
        completion_tokens=_sound(call.completion_tokens),
        estimated=True,
    )


def _sound(number: int | None) -> int | None:
    return number if number is not None and 0 <= number < _MOST else None
