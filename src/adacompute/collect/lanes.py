"""Runs of samples through an endpoint into a pool, many at the same time. Knows nothing of plans or files."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import aclosing

from adacompute.collect.asking import Asking
from adacompute.collect.left import Run
from adacompute.collect.outcome import Stop
from adacompute.collect.purse import Purse, prompt_size
from adacompute.collect.writer import Writer
from adacompute.endpoint import Answered, Client, Failed
from adacompute.errors import AdacomputeError, EndpointError, EndpointRefused, SendingStopped
from adacompute.pool import Drawn
from adacompute.records import Call, Failure

__all__ = ["Lanes"]

_HOPELESS = (401, 402, 403, 404)  # the key, the money, the model: it is the same for every problem
_IN_A_ROW = 8  # failed runs with no sample between them, at least: then it is the endpoint, not the problem


class Lanes:
    """Draws runs, stores each call's samples before they count, and stops in good order.

    In flight or not yet on the disk are at most twice as many calls as may run at the same time: that, and
    nothing else, is what `kill -9` can take. Stopping sends nothing more, and keeps what is in flight.
    """

    def __init__(
        self, client: Client, writer: Writer, asking: Asking, purse: Purse, *, told: Callable[[], None]
    ) -> None:
        self._client = client
        self._writer = writer
        self._asking = asking
        self._purse = purse
        self._told = told
        self._width = client.endpoint.limits.concurrency
        self._failed_in_a_row = 0
        self.added = 0
        self.tokens = 0
        self.calls = 0
        self.failures: dict[str, str] = {}  # problem id -> the last reason
        self.lacking = 0  # samples that did not come
        self.errors: Counter[str] = Counter()
        self.stopped: Stop | None = None
        self.why: str | None = None
        self.signal: int | None = None
        self.broken: BaseException | None = None  # the pool can't be written any more

    def stop(self, how: Stop, why: str | None = None, *, number: int | None = None) -> None:
        """Sends nothing more; what is in flight is finished and stored. `number` is a signal's."""
        if self.stopped is None:
            self.stopped, self.why, self.signal = how, why, number
        self._client.gate.end()

    async def draw(self, runs: Iterator[Run]) -> None:
        """All runs, in their order, as many at the same time as the endpoint may be asked."""
        async with asyncio.TaskGroup() as lanes:
            for _ in range(self._width):
                lanes.create_task(self._lane(runs))
        if self.broken is not None:
            raise self.broken

    async def _lane(self, runs: Iterator[Run]) -> None:
        for run in runs:  # the same iterator in every lane: each run is taken once
            if self.stopped is not None or self.broken is not None:
                return
            await self._run(run)

    async def _run(self, run: Run) -> None:
        body = self._asking.body(run.problem)
        size = prompt_size(body["messages"])
        first, left = run.first, run.count
        while left and self.stopped is None and self.broken is None:
            count, reserved = await self._purse.take(left, size)
            if not count:
                self.stop(
                    "max-cost", f"the next sample could cost more than is left of {self._purse.limit:g}"
                )
                return
            try:
                async with aclosing(self._client.draw(body, count, first=first)) as outcomes:
                    async for outcome in outcomes:
                        await self._keep(run, outcome, size)
            finally:
                self._purse.settle(reserved)
            first, left = first + count, left - count

    async def _keep(self, run: Run, outcome: Answered | Failed, size: float) -> None:
        calls = self._purse.count(outcome.calls, size)
        self._count(calls)
        drawn = (
            self._answered(run, outcome, calls)
            if isinstance(outcome, Answered)
            else self._failed(run, outcome, calls)
        )
        if drawn is None:
            return
        future = self._writer.add(drawn)
        if self._writer.waiting > self._width:
            self._client.gate.shut()  # the disk is slower than the endpoint: what could be lost is bounded
        try:
            await future
        except AdacomputeError as exc:
            self.broken = self.broken or exc
            self._client.gate.end()
            return
        finally:
            if self._writer.waiting <= self._width // 2:
                self._client.gate.open()
        if isinstance(outcome, Answered):
            self.added += len(outcome.responses)
            self.tokens += sum(r.tokens or 0 for r in outcome.responses)
        self._told()

    def _answered(self, run: Run, outcome: Answered, calls: tuple[Call, ...]) -> Drawn:
        self._failed_in_a_row = 0
        samples = [(outcome.first + i, response.sample()) for i, response in enumerate(outcome.responses)]
        return Drawn(run.problem.id, samples, (), calls)

    def _failed(self, run: Run, outcome: Failed, calls: tuple[Call, ...]) -> Drawn | None:
        error = outcome.error
        if isinstance(error, SendingStopped) and not calls:
            return None
        if not isinstance(error, SendingStopped):
            self.lacking += outcome.count
            self.failures[run.problem.id] = f"{error.kind}: {error}"
            self._failed_in_a_row += 1
            self._give_up(error)
        at = calls[-1].at if calls else None
        failures = [
            Failure(index=outcome.first + i, kind=error.kind, attempt=len(calls), message=str(error), at=at)
            for i in range(outcome.count)
        ]
        return Drawn(run.problem.id, (), failures, calls)

    def _give_up(self, error: EndpointError) -> None:
        hopeless = isinstance(error, EndpointRefused) and error.status in _HOPELESS
        if hopeless or self._failed_in_a_row >= max(_IN_A_ROW, self._width):
            self.stop("endpoint", str(error))

    def _count(self, calls: tuple[Call, ...]) -> None:
        self.calls += len(calls)
        self.errors.update(call.kind for call in calls if call.kind != "ok")
