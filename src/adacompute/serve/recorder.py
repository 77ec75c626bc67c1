"""Traffic into a pool, by a thread of its own: no request waits for the disk. Knows nothing of policies.

What can't be stored is dropped and counted: a gateway whose disk is full still answers.
"""

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from adacompute.answers import Task
from adacompute.config import ServeConfig
from adacompute.endpoint import Response
from adacompute.endpoint.reply import characters_of
from adacompute.errors import AdacomputeError, ConfigError, DuplicateRecord, RecordInvalid, RecordNotFound
from adacompute.pool import Drawn, Pool, fingerprint, open_pool
from adacompute.records import Sample
from adacompute.serve.asked import Ask
from adacompute.serve.reading import read_waiting
from adacompute.serve.told import Told
from adacompute.serve.traffic import is_worth, problem_of, samples_of, source_of

__all__ = ["Recorder"]

_WAITING = 1_000  # requests that may wait to be written
_CHARACTERS = 64_000_000  # of their texts
_BATCH = 100  # requests a transaction, at most
_GATHER = 0.1  # seconds that a batch waits for more: a flush costs as much as many samples
_CLOSING = 20.0  # seconds that the last ones may take
_QUIET = 60.0  # seconds between two lines of the log
_REMEMBERED = 4_096  # problems whose next index is kept at hand
_OF_A_RECORD = (RecordInvalid, DuplicateRecord, RecordNotFound)

_log = logging.getLogger("adacompute.serve")


class _Item(NamedTuple):
    told: Told  # without its responses
    ask: Ask
    samples: Sequence[Sample]  # its responses as read, or none of them
    responses: Sequence[Response]  # those to be read
    size: int  # characters


class Recorder:
    """Records into one pool, or where the operator names none, nothing. Never raises once it is open."""

    def __init__(self, pool: Pool | None) -> None:
        self._pool = pool
        self._queue: queue.Queue[_Item | None] = queue.Queue(_WAITING)
        self._lock = threading.Lock()  # of the counts below
        self._held = 0  # characters that wait
        self._complained = float("-inf")
        self._untold = 0  # requests dropped since the last line of the log
        self.stored = 0  # requests
        self.dropped = 0  # requests that could not be stored
        self._next: OrderedDict[tuple[str, str, str], int] = OrderedDict()  # of the thread alone
        self._thread: threading.Thread | None = None
        if pool is not None:
            self._thread = threading.Thread(target=self._run, name="adacompute-recorder", daemon=True)
            self._thread.start()

    @classmethod
    async def open(cls, settings: ServeConfig, task: Task) -> "Recorder":
        """Opens the pool, or makes it; ConfigError where another process writes to it, or it is none."""
        if not settings.record:
            return cls(None)
        path = Path(settings.record)
        try:
            return cls(await asyncio.to_thread(open_pool, path, create=True, write=True, task=task))
        except AdacomputeError as exc:
            raise ConfigError(f"record: {exc}; or name another pool, or none") from exc

    async def close(self) -> None:
        """Writes what waits, within 20 seconds, and frees the pool."""
        thread, self._thread = self._thread, None
        if thread is None or self._pool is None:
            return
        end, asked = time.monotonic() + _CLOSING, False
        while thread.is_alive() and time.monotonic() < end:
            if not asked:
                with contextlib.suppress(queue.Full):
                    self._queue.put_nowait(None)
                    asked = True
            await asyncio.sleep(0.005)
        if thread.is_alive():  # it ends with the process; what it has committed is whole
            self._drop(self._queue.qsize(), "the gateway stops, and the disk is too slow")
            return
        await asyncio.to_thread(self._pool.close)

    def told(self, told: Told, ask: Ask, samples: Sequence[Sample] = ()) -> None:
        """Takes down a request that has ended, if it could be voted on; `samples`: its responses as read."""
        if self._thread is None or not is_worth(told):
            return
        item = _item(told, ask, samples)
        with self._lock:
            full = self._held > 0 and self._held + item.size > _CHARACTERS
            self._held += 0 if full else item.size
        if not full:
            with contextlib.suppress(queue.Full):
                self._queue.put_nowait(item)
                return
            self._release(item.size)
        self._drop(1, "too much waits to be written; the disk is too slow")

    def _release(self, size: int) -> None:
        with self._lock:
            self._held -= size

    def _drop(self, count: int, why: str) -> None:
        with self._lock:
            self.dropped += count
            self._untold += count
            now = time.monotonic()
            if not self._untold or now - self._complained < _QUIET:
                return
            self._complained, untold, self._untold = now, self._untold, 0
        _log.warning("recording: requests that could not be stored: %d; %s", untold, why)

    def _run(self) -> None:
        ending = False
        while not ending:
            batch, ending = self._gathered()
            try:
                self._store(batch)
            except Exception as exc:  # noqa: BLE001 - whatever a request holds, the next ones are recorded
                self._next.clear()
                self._drop(len(batch), _why(exc))
            self._release(sum(item.size for item in batch))

    def _gathered(self) -> tuple[list[_Item], bool]:
        """What waits, up to a batch of it, and whether that was the last."""
        item = self._queue.get()
        batch = [] if item is None else [item]
        if batch and self._queue.empty():
            time.sleep(_GATHER)
        while item is not None and len(batch) < _BATCH:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
            if item is not None:
                batch.append(item)
        return batch, item is None

    def _store(self, batch: list[_Item]) -> None:
        """By source, each in one transaction; one that can't be stored takes nobody with it."""
        sources: dict[tuple[str, str], list[_Item]] = {}
        for item in batch:
            try:
                model, parameters = source_of(item.told, item.ask)
                sources.setdefault((model, fingerprint(parameters)), []).append(item)
            except Exception as exc:  # noqa: BLE001 - a value that no JSON has; the others are recorded
                self._drop(1, _why(exc))
        for items in sources.values():
            try:
                self._add(items)
            except _OF_A_RECORD:
                for item in items:
                    self._add_alone(item)
            except AdacomputeError as exc:  # the disk, or another process
                self._next.clear()
                self._drop(len(items), _why(exc))

    def _add_alone(self, item: _Item) -> None:
        try:
            self._next.clear()  # they count samples that were not stored
            self._add([item])
        except AdacomputeError as exc:
            self._next.clear()
            self._drop(1, _why(exc))

    def _add(self, items: list[_Item]) -> None:
        """Stores requests of one source, all or none."""
        assert self._pool is not None
        model, parameters = source_of(items[0].told, items[0].ask)
        problems = {(problem := problem_of(item.ask)).id: problem for item in items}
        self._pool.add_problems(problem for problem in problems.values() if not self._has(problem.id))
        drawn = [self._drawn(item, model, parameters) for item in items]
        self._pool.add_drawn(drawn, model=model, parameters=parameters)
        self.stored += len(items)

    def _has(self, id_: str) -> bool:
        assert self._pool is not None
        return self._pool.problem(id_) is not None

    def _drawn(self, item: _Item, model: str, parameters: dict[str, Any]) -> Drawn:
        """Its samples, numbered after those of the same question that are stored."""
        assert self._pool is not None
        id_ = problem_of(item.ask).id
        key = (id_, model, fingerprint(parameters))
        first = self._next.pop(key, None)
        if first is None:
            first = self._pool.next_index(id_, model, parameters)
        read = item.samples or [read_waiting(response, self._pool.task) for response in item.responses]
        samples = samples_of(item.told, read)
        self._next[key] = first + len(samples)
        while len(self._next) > _REMEMBERED:
            self._next.popitem(last=False)
        return Drawn(id_, list(enumerate(samples, first)))


def _item(told: Told, ask: Ask, samples: Sequence[Sample]) -> _Item:
    """What waits of a request: no log-probabilities of each token, which take a hundred times the text."""
    read = len(samples) == len(told.responses)
    responses = () if read else [replace(one, message={}, logprobs=None) for one in told.responses]
    size = characters_of(ask.body.get("messages")) + sum(len(one.text) for one in told.responses)
    return _Item(replace(told, responses=()), ask, tuple(samples) if read else (), responses, size)


def _why(error: Exception) -> str:
    """An error for the log: of a record its kind alone, since its words may quote what a client asked."""
    told = isinstance(error, AdacomputeError) and not isinstance(error, _OF_A_RECORD)
    return str(error) if told else type(error).__name__
