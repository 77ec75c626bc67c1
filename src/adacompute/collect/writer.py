"""Samples into a pool as they come, many calls with one flush of the disk. Knows nothing of endpoints.

A thread of its own writes, so that no call waits for the disk: while one batch is being flushed the next one
gathers, and a future tells each caller when its samples can no longer be lost.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Mapping
from typing import Any

from adacompute.errors import AdacomputeError, RecordInvalid
from adacompute.pool import Drawn, Pool
from adacompute.records import Failure

__all__ = ["Writer"]

_GATHER = 0.02  # seconds that a batch waits for more: a flush costs as much as many samples
_BATCH = 256  # calls a transaction, at most: memory, and how long one holds the interpreter

_Item = tuple[Drawn, "asyncio.Future[None]"]


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

    def add(self, drawn: Drawn) -> "asyncio.Future[None]":
        """A future that ends when it is stored, or with the reason why it can't be."""
        future: asyncio.Future[None] = self._loop.create_future()
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
        error = self._error
        if error is None:
            try:
                self._add([drawn for drawn, _ in batch])
            except RecordInvalid:  # one that can't be stored: the others were paid for, too
                error = self._one_by_one(batch)
            except BaseException as exc:  # noqa: BLE001 - told to whoever waits, in the loop's thread
                error = exc
        self._error = error  # a full disk stays full: nothing is tried again
        self._loop.call_soon_threadsafe(self._tell, [future for _, future in batch], error)

    def _one_by_one(self, batch: list[_Item]) -> BaseException | None:
        for drawn, _ in batch:
            try:
                self._add([drawn])
            except RecordInvalid as exc:
                try:
                    self._add([_refused(drawn, exc)])
                except AdacomputeError as other:
                    return other
            except BaseException as exc:  # noqa: BLE001 - as above
                return exc
        return None

    def _add(self, drawn: list[Drawn]) -> None:
        self._pool.add_drawn(drawn, model=self._model, parameters=self._parameters)

    def _tell(self, futures: "list[asyncio.Future[None]]", error: BaseException | None) -> None:
        for future in futures:
            if future.cancelled():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
                future.exception()  # whoever gave it up has no wish to be told


def _refused(drawn: Drawn, why: RecordInvalid) -> Drawn:
    """The call, with its samples as failures: what was paid for nothing is accounted for, too."""
    failures = [Failure(index=index, kind="unstorable", message=str(why)) for index, _ in drawn.samples]
    return Drawn(drawn.problem_id, (), [*drawn.failures, *failures], drawn.calls)
