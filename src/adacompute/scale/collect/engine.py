"""The engine that draws on Ray: collectors, for as long as one run lasts. Knows nothing of plans."""

import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from adacompute.collect import Asking
from adacompute.collect.engine import Drawer
from adacompute.collect.purse import Purse
from adacompute.collect.session import heeding
from adacompute.endpoint import Endpoint
from adacompute.pool import Pool
from adacompute.scale.collect.crew import Crew

__all__ = ["RayEngine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RayEngine:
    """Draws from an endpoint by collectors on a cluster, which share its limits: `collect(endpoint=…)`.

    Each writes shards of its own beside the pool, in POOL.shards; what is done is merged into the pool, and
    the folder goes. So all workers have to see the pool's file system, under the same path. Whatever ends
    it, even `kill -9` of a worker or of this process, loses no sample that is in a shard: the next
    collection into the pool, on whatever engine, takes them in first.
    """

    endpoint: Endpoint
    workers: int | None = None  # collectors, at most; None: as many as the cluster has processors

    @property
    def width(self) -> int:
        """Calls at the same time, of all collectors together."""
        return self.endpoint.limits.concurrency

    @asynccontextmanager
    async def drawing(
        self,
        pool: Pool,
        *,
        asking: Asking,
        purse: Purse,
        told: Callable[[Drawer], None],
        signals: Sequence[signal.Signals] = (),
    ) -> AsyncIterator[Drawer]:
        """Collectors, started with the first draw; on leaving, they are gone, and what they drew is here."""
        crew = Crew(pool, endpoint=self.endpoint, asking=asking, purse=purse, told=told, workers=self.workers)
        try:
            async with heeding(signals, crew, told=lambda: told(crew)):
                yield crew
            async with heeding(signals, crew, told=lambda: None):  # ending it takes seconds, too
                await crew.close()
        finally:
            crew.abandon()
