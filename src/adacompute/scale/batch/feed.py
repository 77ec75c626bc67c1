"""Rows that a dataset is fed with while it runs, so that a processor outlives a wave. Knows no processor.

A model takes minutes to load: one dataset lasts for the whole batch, and waits for the next wave's rows. All
rows are kept, in their order: a task that Ray runs again reads the same ones.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["Feed", "fed"]


class Feed:
    """Rows in one order, for whoever reads them: in a process of Ray's."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._ended = False
        self._more = asyncio.Condition()

    async def put(self, rows: Sequence[dict[str, Any]]) -> None:
        """More rows."""
        async with self._more:
            self._rows.extend(rows)
            self._more.notify_all()

    async def end(self) -> None:
        """No more rows."""
        async with self._more:
            self._ended = True
            self._more.notify_all()

    async def after(self, start: int) -> list[dict[str, Any]]:
        """The rows from a place on, as soon as there are some; none: that was all."""
        async with self._more:
            await self._more.wait_for(lambda: self._ended or len(self._rows) > start)
            return self._rows[start:]


def fed(feed: Any) -> Any:  # noqa: ANN401 - Ray's
    """A dataset of the rows that a feed gets, each a block of its own: it goes on as soon as it is there."""
    from ray.data import DataContext, Datasource, ReadTask, read_datasource
    from ray.data.block import BlockMetadata

    class Source(Datasource):
        def estimate_inmemory_data_size(self) -> int | None:
            return None

        def get_read_tasks(self, *_: object, **__: object) -> list[ReadTask]:
            unknown = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
            return [ReadTask(lambda: _read(feed), unknown)]

    context = DataContext.get_current().copy()
    context.target_max_block_size = 1  # bytes: else rows wait until a block is full
    context.target_min_block_size = 1
    with DataContext.current(context):
        source: Any = Source  # it has no types
        return read_datasource(source(), override_num_blocks=1, num_cpus=0)


def _read(feed: Any) -> Iterator[Any]:  # noqa: ANN401 - Ray's
    import pyarrow as pa
    import ray

    start = 0
    while rows := ray.get(feed.after.remote(start)):
        start += len(rows)
        for row in rows:
            yield pa.Table.from_pylist([row])
