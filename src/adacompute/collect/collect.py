"""problems - stored -> endpoint -> pool. Knows nothing of files of problems, nor of terminals."""

import signal
import time
from collections.abc import Callable, Sequence

from adacompute.collect.asking import Asking
from adacompute.collect.engine import Drawer, Engine
from adacompute.collect.left import Left, left_of
from adacompute.collect.outcome import Collected, Progress
from adacompute.collect.purse import Prices, Purse, spent_so_far
from adacompute.collect.session import checked, ended, engine_of, ran
from adacompute.collect.shards import gather
from adacompute.collect.source import admit, check_source
from adacompute.endpoint import Endpoint
from adacompute.errors import CollectError
from adacompute.pool import Pool
from adacompute.records import Problem

__all__ = ["collect"]


def collect(
    problems: Sequence[Problem],
    pool: Pool,
    *,
    endpoint: Endpoint | Engine,
    asking: Asking,
    samples: int = 48,
    prices: Prices | None = None,
    max_cost: float | None = None,
    retry_rounds: int = 0,
    another: bool = False,
    regrade: bool = False,
    progress: Callable[[Progress], None] | None = None,
    signals: Sequence[signal.Signals] = (),
) -> Collected:
    """Draws what the pool lacks of `samples` of each problem, and stores each sample as it comes.

    Whatever ends it, even `kill -9`, the same call goes on where it was: nothing stored is asked for again.
    The first of `signals` ends it in good order, the second at once. Raises SourceChanged where the pool's
    samples are of another model, template or parameter, unless `another`. A problem that is there is brought
    up to date, and may differ in all but what the model is asked; in its gold answer with `regrade` alone.
    In the place of an endpoint, which is asked from this process, an engine may draw elsewhere.
    """
    problems = checked(problems, pool, endpoint, asking)
    if type(retry_rounds) is not int or retry_rounds < 0:
        raise CollectError(f"retry rounds {retry_rounds!r} can't be used; give a whole number from 0 up")
    if type(samples) is not int or samples < 1:
        raise CollectError(f"samples {samples!r} can't be used; give a whole number from 1 up")
    prices = prices or Prices()
    gather(pool)
    check_source(pool, asking.model, asking.parameters, another=another)
    admit(pool, problems, asking.template, regrade=regrade)
    spent = spent_so_far(pool, prices)
    purse = Purse(prices=prices, limit=max_cost, spent=spent, most_tokens=asking.most_tokens)
    run = _Run(problems, pool, engine_of(endpoint), asking, samples, purse, progress)
    return ran(run.all(retry_rounds, signals))


class _Run:
    """One collection, from its plan to its account."""

    def __init__(
        self,
        problems: Sequence[Problem],
        pool: Pool,
        engine: Engine,
        asking: Asking,
        samples: int,
        purse: Purse,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self._problems = problems
        self._pool = pool
        self._engine = engine
        self._asking = asking
        self._samples = samples
        self._purse = purse
        self._progress = progress

    async def all(self, rounds: int, signals: Sequence[signal.Signals]) -> Collected:
        start = time.monotonic()
        before = self._left()
        async with self._engine.drawing(
            self._pool,
            asking=self._asking,
            purse=self._purse,
            told=lambda lanes: self._tell(before, lanes),
            signals=signals,
        ) as lanes:
            self._tell(before, lanes)  # what is there already is seen at once
            await self._rounds(lanes, before, rounds)
        return self._outcome(lanes, time.monotonic() - start)

    async def _rounds(self, lanes: Drawer, left: Left, rounds: int) -> None:
        for number in range(rounds + 1):
            await lanes.draw(iter(left.runs))
            if lanes.stopped is not None or not lanes.failures or number == rounds:
                return
            lanes.again()
            left = self._left()

    def _left(self) -> Left:
        return left_of(
            self._problems,
            self._pool,
            samples=self._samples,
            model=self._asking.model,
            parameters=self._asking.parameters,
        )

    def _tell(self, before: Left, lanes: Drawer) -> None:
        if self._progress is not None:
            self._progress(lanes.progress(planned=before.planned, before=before.stored))

    def _outcome(self, lanes: Drawer, seconds: float) -> Collected:
        left = self._left()
        totals = self._pool.totals(self._pool.source_key(self._asking.model, self._asking.parameters))
        return Collected(
            planned=left.planned,
            stored=left.stored,
            added=lanes.added,
            failures=dict(lanes.failures),
            seconds=seconds,
            per_call=lanes.per_call,
            logprobs=lanes.logprobs,
            answered=totals.answered,
            finished=totals.finished,
            **ended(lanes, self._pool, self._asking, self._purse.prices),
        )
