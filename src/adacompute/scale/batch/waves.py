"""Waves of samples through one of Ray's processors into a pool. Knows nothing of who gets samples, or why.

One dataset lasts for the whole run and is fed wave by wave. At most `width` samples are in it at one time:
that, and what has come and is not yet on the disk, is what `kill -9` can take.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from adacompute.collect import Asking
from adacompute.collect.engine import Drawer
from adacompute.collect.left import Run
from adacompute.collect.purse import Purse
from adacompute.collect.writer import Writer
from adacompute.pool import Drawn, Pool
from adacompute.scale.batch.feed import Feed, fed
from adacompute.scale.batch.processor import processor_of
from adacompute.scale.batch.rows import drawn_of, rows_of
from adacompute.scale.collect.counts import Counts
from adacompute.scale.collect.failed import raise_here

__all__ = ["Waves"]

_IN_A_ROW = 8  # problems that fail with no sample between them: then it is the workers
_GRACE = 30.0  # seconds for a dataset to end

Key = tuple[str, int]  # problem id, index


class Waves(Counts):
    """A drawer: `draw` returns when its runs have been through the processor, and are in the pool."""

    def __init__(
        self,
        pool: Pool,
        *,
        asking: Asking,
        purse: Purse,
        told: Callable[[Drawer], None],
        config: Callable[[], Any],
        width: int,
    ) -> None:
        super().__init__(purse)
        self._asking = asking
        self._told = told
        self._config = config  # made when it is needed: that starts Ray
        self._width = width
        self._loop = asyncio.get_running_loop()
        self._writer = Writer(pool, model=asking.model, parameters=asking.parameters)
        self._out: set[Key] = set()  # samples that were sent out and are not stored yet
        self._changed = asyncio.Event()
        self._error: BaseException | None = None
        self._feed: Any = None
        self._reader: threading.Thread | None = None

    async def draw(self, runs: Iterator[Run]) -> None:
        """All runs; once it is stopped, only what has been sent out already."""
        rows = deque(rows_of(tuple(runs), self._asking))
        if rows and self.stopped is None and self._feed is None:
            self._begin()
        while True:
            if self.stopped is not None:
                rows.clear()
            if more := [rows.popleft() for _ in range(min(len(rows), self._width - len(self._out)))]:
                self._out |= {(row["problem"], row["index"]) for row in more}
                self._feed.put.remote(more)
            if not self._out:
                return
            self._changed.clear()
            await self._changed.wait()
            if self._error is not None:
                raise_here(self._error)

    async def close(self, *, at_once: bool = False) -> None:
        """Stores what has come, and ends the dataset: its model goes."""
        if self._feed is not None:
            import ray

            self._feed.end.remote()
            if self._reader is not None and not at_once and not self._out:
                await asyncio.to_thread(self._reader.join, _GRACE)
            ray.kill(self._feed)
        await self._writer.close()

    def _begin(self) -> None:
        import ray

        dataset = processor_of(self._config())
        made: Any = ray.remote(num_cpus=0)(Feed)
        self._feed = made.remote()
        results = dataset(fed(self._feed))
        self._reader = threading.Thread(target=self._read, args=(results,), daemon=True)
        self._reader.start()

    def _read(self, results: Any) -> None:  # noqa: ANN401 - Ray's
        """In a thread of its own: hands on what comes, as it comes."""
        try:
            for block in results.iter_batches(batch_size=None, prefetch_batches=0, batch_format="pyarrow"):
                self._tell(self._came, [drawn_of(row) for row in block.to_pylist()])
        except BaseException as exc:  # noqa: BLE001 - raised again where the wave is waited for
            self._tell(self._broke, exc)

    def _tell(self, what: Callable[[Any], None], about: object) -> None:
        with suppress(RuntimeError):  # nobody waits any more: the loop is closed
            self._loop.call_soon_threadsafe(what, about)

    def _came(self, block: list[Drawn]) -> None:
        for drawn in block:
            if self._keys(drawn) <= self._out:  # else Ray has run a task twice
                self._writer.add(drawn).add_done_callback(partial(self._kept, drawn))

    def _kept(self, drawn: Drawn, future: "asyncio.Future[Drawn]") -> None:
        """Only now does it count."""
        if future.cancelled():
            return
        self._out -= self._keys(drawn)
        self._changed.set()
        if (error := future.exception()) is not None:
            self._broke(error)
            return
        stored = future.result()
        self._calls += len(stored.calls)
        self.added += len(stored.samples)
        self._tokens += sum(sample.tokens or 0 for _, sample in stored.samples)
        if stored.samples:
            self._failing.clear()
            self.logprobs = all(sample.logprob is not None for _, sample in stored.samples)
        elif drawn.problem_id is not None:
            self._failed(drawn.problem_id, f"{stored.failures[0].kind}: {stored.failures[0].message}")
        self._told(self)

    def _failed(self, problem: str, why: str) -> None:
        self._lacking += 1
        self.errors["worker"] += 1
        self.failures[problem] = why
        self._failing.add(problem)
        if len(self._failing) >= _IN_A_ROW:
            self.stop("endpoint", why)

    def _broke(self, error: BaseException) -> None:
        self._error = self._error or error
        self._changed.set()

    @staticmethod
    def _keys(drawn: Drawn) -> set[Key]:
        indexes = [index for index, _ in drawn.samples] + [failure.index for failure in drawn.failures]
        return {(drawn.problem_id or "", index) for index in indexes}
