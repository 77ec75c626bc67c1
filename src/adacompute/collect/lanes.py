"""Runs of samples through an endpoint into a pool, many at the same time. Knows nothing of plans or files."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import aclosing
from functools import partial

from adacompute.collect.asking import Asking
from adacompute.collect.left import Run
from adacompute.collect.outcome import Progress, Stop
from adacompute.collect.purse import Purse, prompt_size
from adacompute.collect.writer import Writer
from adacompute.endpoint import LOGPROBS, Answered, Client, Failed
from adacompute.errors import EndpointError, EndpointRefused, SendingStopped
from adacompute.pool import Drawn
from adacompute.records import Call, Failure

__all__ = ["Lanes"]

_HOPELESS = (401, 402, 403, 404)  # the key, the money, the model: it is the same for every problem
_NO_ERROR = ("ok", "n-limit", "no-logprobs")  # the latter two: what the endpoint won't do was learned
_BEHIND = 2  # times the calls at the same time that may have come without being stored
_IN_A_ROW = 8  # problems that fail with no sample between them, at least: then it is the endpoint


class Lanes:
    """Draws runs, stores each call's samples before they count, and stops in good order.

    As many calls as may run at the same time are in flight, and at most twice as many more have come and
    are not yet on the disk: that, and nothing else, is what `kill -9` can take. Stopping sends nothing more,
    and keeps what is in flight.
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
        self._failing: set[str] = set()  # problems that failed since a sample came
        self._loose: dict[int, Call] = {}  # attempts that no outcome has told of yet
        self._unstored = 0  # calls whose samples have come and are not on the disk yet
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

    @property
    def per_call(self) -> int | None:
        """Samples that the endpoint gives in one call, at most; None: not learned."""
        return self._client.manners.most

    @property
    def logprobs(self) -> bool | None:
        """Whether it gives log-probabilities; None: not learned."""
        return self._client.manners.logprobs

    def stop(self, how: Stop, why: str | None = None, *, number: int | None = None) -> None:
        """Sends nothing more; what is in flight is finished and stored. `number` is a signal's."""
        if self.stopped is None:
            self.stopped, self.why = how, why
        self.signal = self.signal or number
        self._client.gate.end()

    def again(self) -> None:
        """Forgets what failed: it is asked for once more."""
        self.failures.clear()
        self._failing.clear()
        self.lacking = 0

    def heard(self, call: Call) -> None:
        """Takes note of every attempt as it ends, before it is tried again or followed by another."""
        self._loose[id(call)] = call
        if call.got:
            self._unstored += 1
            if self._unstored >= _BEHIND * self._width:  # the disk is too slow: what can be lost is bounded
                self._client.gate.shut()
        if not self._purse.tried(call):
            self._spent_up()

    def account_for_the_rest(self) -> None:
        """Stores the attempts of calls that were given up: they may have been paid for, too."""
        if self._loose:
            calls = self._purse.count(self._loose.values(), self._purse.longest)
            self._writer.add(Drawn(None, (), (), calls))
            self._count(calls)
            self._loose.clear()

    def progress(self, *, planned: int, before: int) -> Progress:
        """How far it is, of so many samples, so many of which were stored before."""
        return Progress(
            planned=planned,
            stored=before + self.added,
            added=self.added,
            failed=self.lacking,
            tokens=self.tokens,
            cost=self._purse.spent,
            errors=self.errors,
            calls=self.calls,
            concurrency=self._client.concurrency,
            in_flight=self._client.account.in_flight,
            stopping=self.stopped is not None,
        )

    async def draw(self, runs: Iterator[Run]) -> None:
        """All runs, in their order, as many at the same time as the endpoint may be asked."""
        async with asyncio.TaskGroup() as lanes:
            for _ in range(2 * self._width):  # while one half waits for the disk, the other asks
                lanes.create_task(self._lane(runs))
        if self.broken is not None:
            raise self.broken

    async def _lane(self, runs: Iterator[Run]) -> None:
        for run in runs:  # the same iterator in every lane: each run is taken once
            if self.stopped is not None or self.broken is not None:
                return
            try:
                await self._run(run)
            except Exception as exc:  # noqa: BLE001 - the other lanes finish and store what they have
                self._break(exc)

    async def _run(self, run: Run) -> None:
        body = self._asking.body(run.problem)
        size = prompt_size(body["messages"])
        first, left = run.first, run.count
        while left and self.stopped is None and self.broken is None:
            count, reserved = await self._purse.take(left, size)
            if not count:
                self._spent_up()
                return
            storing: list[asyncio.Future[Drawn]] = []
            try:
                drawing = self._client.draw(body, count, first=first, optional=LOGPROBS)
                async with aclosing(drawing) as outcomes:
                    async for outcome in outcomes:
                        storing += self._keep(run, outcome, size)
                if storing:
                    await asyncio.wait(storing)
            finally:
                self._purse.settle(reserved)
            first, left = first + count, left - count

    def _spent_up(self) -> None:
        self.stop("max-cost", f"the next call could cost more than is left of {self._purse.limit:g}")

    def _keep(self, run: Run, outcome: Answered | Failed, size: float) -> "list[asyncio.Future[Drawn]]":
        """Hands what came to the writer; the future of its being stored, where there is something."""
        for call in outcome.calls:
            self._loose.pop(id(call), None)
        calls = self._purse.count(outcome.calls, size)
        self._count(calls)
        drawn = (
            self._answered(run, outcome, calls)
            if isinstance(outcome, Answered)
            else self._failed(run, outcome, calls)
        )
        if drawn is None:
            return []
        future = self._writer.add(drawn)
        future.add_done_callback(partial(self._kept, drawn))
        return [future]

    def _kept(self, drawn: Drawn, future: "asyncio.Future[Drawn]") -> None:
        """Only now do its samples count."""
        if future.cancelled():
            return
        if (error := future.exception()) is not None:
            self._break(error)
            return
        self._unstored -= sum(call.got > 0 for call in drawn.calls)
        if self._unstored < _BEHIND * self._width:
            self._client.gate.open()
        stored = future.result()
        self.added += len(stored.samples)
        self.tokens += sum(sample.tokens or 0 for _, sample in stored.samples)
        if drawn.problem_id is not None and len(stored.samples) < len(drawn.samples):
            self.lacking += len(drawn.samples)
            self.failures[drawn.problem_id] = f"unstorable: {stored.failures[0].message}"
        try:
            self._told()
        except Exception as exc:  # noqa: BLE001 - whoever is told may fail, but not in silence
            self._break(exc)

    def _break(self, error: BaseException) -> None:
        self.broken = self.broken or error
        self._client.gate.end()

    def _answered(self, run: Run, outcome: Answered, calls: tuple[Call, ...]) -> Drawn:
        self._failing.clear()
        samples = [(outcome.first + i, response.sample()) for i, response in enumerate(outcome.responses)]
        return Drawn(run.problem.id, samples, (), calls)

    def _failed(self, run: Run, outcome: Failed, calls: tuple[Call, ...]) -> Drawn | None:
        error = outcome.error
        if isinstance(error, SendingStopped):  # it was not let try any more: no failure of the endpoint's
            return Drawn(run.problem.id, (), (), calls) if calls else None
        self.lacking += outcome.count
        self.failures[run.problem.id] = f"{error.kind}: {error}"
        self._failing.add(run.problem.id)
        self._give_up(error)
        at = calls[-1].at if calls else None
        failures = [
            Failure(index=outcome.first + i, kind=error.kind, attempt=len(calls), message=str(error), at=at)
            for i in range(outcome.count)
        ]
        return Drawn(run.problem.id, (), failures, calls)

    def _give_up(self, error: EndpointError) -> None:
        hopeless = isinstance(error, EndpointRefused) and error.status in _HOPELESS
        if hopeless or len(self._failing) >= max(_IN_A_ROW, self._width):
            self.stop("endpoint", str(error))

    def _count(self, calls: tuple[Call, ...]) -> None:
        self.calls += len(calls)
        self.errors.update(call.kind for call in calls if call.kind not in _NO_ERROR)
