"""One collector: draws shards of runs, each into a pool of its own. Knows nothing of other collectors.

It lives in a process of Ray's, and keeps its client between shards: its pace, its connections, and what was
learned of the endpoint.
"""

import asyncio
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from adacompute.answers import Task
from adacompute.collect import Asking, Prices, Progress
from adacompute.collect.lanes import Lanes
from adacompute.collect.left import Run
from adacompute.collect.outcome import Stop
from adacompute.collect.purse import Purse
from adacompute.collect.session import lanes_into
from adacompute.endpoint import Client, Endpoint, Limits
from adacompute.errors import EngineUnavailable
from adacompute.pool import open_pool
from adacompute.records import Call
from adacompute.scale.collect.sealed import Sealed

__all__ = ["Collector", "Drew", "Setup", "Shard"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a collector needs to know, whatever it draws."""

    endpoint: Endpoint  # its share of the limits, and no key
    key: Sealed | None
    asking: Asking
    prices: Prices
    task: Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """Some runs, and the pool that they are drawn into."""

    path: Path
    runs: tuple[Run, ...]
    money: float | None = None  # that it may cost; None: no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Drew:
    """What came of a shard; its samples are in its pool."""

    progress: Progress  # with the cost of this shard alone
    failures: Mapping[str, str]  # problem id -> the last reason
    stopped: Stop | None
    why: str | None
    per_call: int | None
    logprobs: bool | None


class Collector:
    """Draws one shard at a time; meanwhile it can be asked how far it is, and be stopped."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._client: Client | None = None
        self._lanes: Lanes | None = None
        self._drawing: asyncio.Task[None] | None = None
        self._purse = Purse(prices=setup.prices, most_tokens=setup.asking.most_tokens)
        self._spent = 0.0  # before this shard
        self._stopped = False

    async def ready(self) -> None:
        """Answers as soon as it is there."""

    async def told(self) -> Progress | None:
        """How far the shard is that it draws; None where it draws none."""
        return None if self._lanes is None else self._progress(self._lanes)

    async def stop(self) -> None:
        """Sends nothing more; what is in flight is finished and stored."""
        self._stopped = True
        if self._lanes is not None:
            self._lanes.stop("signal")

    async def give_up(self) -> None:
        """As `stop`, and what is in flight is given up; it is accounted for."""
        await self.stop()
        if self._drawing is not None:
            self._drawing.cancel()

    async def draw(self, shard: Shard) -> Drew:
        """All runs of a shard, into its pool, which is closed when this ends."""
        if not shard.path.parent.is_dir():
            raise EngineUnavailable(
                f"{shard.path.parent}: a worker on {os.uname().nodename} doesn't see it; all workers "
                "need the pool's file system, under the same path"
            )
        client = await self._open()
        asking = self._setup.asking
        self._spent = self._purse.spent
        self._purse.limit = None if shard.money is None else self._spent + shard.money
        with open_pool(shard.path, create=True, default_task=self._setup.task) as pool:
            pool.add_problems({run.problem.id: run.problem for run in shard.runs}.values())
            try:
                async with lanes_into(
                    pool, client, asking=asking, purse=self._purse, told=lambda _: None
                ) as lanes:
                    self._lanes = lanes
                    if self._stopped:
                        lanes.stop("signal")
                    self._drawing = asyncio.create_task(lanes.draw(iter(shard.runs)))
                    with suppress(asyncio.CancelledError):  # given up
                        await self._drawing
                return self._drew(lanes)
            finally:
                self._lanes = self._drawing = None

    async def _open(self) -> Client:
        """The client; another one where the last was stopped for good."""
        if self._client is None or self._client.gate.ended:
            if self._client is not None:
                await self._client.__aexit__(None, None, None)
                await asyncio.sleep(_full(self._setup.endpoint.limits))
            key = self._setup.key  # not before: what is raised while an actor is made isn't told
            endpoint = replace(self._setup.endpoint, key=None if key is None else key.open())
            self._client = await Client(endpoint, heard=self._heard).__aenter__()
        return self._client

    def _heard(self, call: Call) -> None:
        if self._lanes is not None:
            self._lanes.heard(call)

    def _progress(self, lanes: Lanes) -> Progress:
        return replace(lanes.progress(planned=0, before=0), cost=self._purse.spent - self._spent)

    def _drew(self, lanes: Lanes) -> Drew:
        return Drew(
            progress=self._progress(lanes),
            failures=dict(lanes.failures),
            stopped=lanes.stopped,
            why=lanes.why,
            per_call=lanes.per_call,
            logprobs=lanes.logprobs,
        )


def _full(limits: Limits) -> float:
    """Seconds until a rate may be used from its start again, as a new client does."""
    if limits.requests_per_minute is None and limits.tokens_per_minute is None:
        return 0.0
    return max(1.0, 60.0 / (limits.requests_per_minute or math.inf))
