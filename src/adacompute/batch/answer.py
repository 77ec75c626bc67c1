"""Requests -> answers, within one average budget: the price of a sample falls until the budget is spent.

Knows nothing of files or terminals.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Sequence

import numpy as np

from adacompute.batch.dials import most_of
from adacompute.batch.limit import samples_of
from adacompute.batch.outcome import BROKEN_OFF, Answer, Answers
from adacompute.batch.rounds import Rounds
from adacompute.batch.settle import first_samples, settled, unhurried
from adacompute.batch.votes import Rows, Votes
from adacompute.batch.winner import answer_of
from adacompute.collect import Asking, Prices, Progress, admit, check_source
from adacompute.collect.engine import Drawer, Engine
from adacompute.collect.left import Run
from adacompute.collect.purse import Purse, spent_so_far
from adacompute.collect.session import checked, ended, engine_of, ran
from adacompute.collect.shards import gather
from adacompute.endpoint import Endpoint
from adacompute.paths.standing import Floats, Ints
from adacompute.policies.base import Policy
from adacompute.pool import Pool
from adacompute.records import Problem
from adacompute.replay.asked import checked_policy
from adacompute.replay.bootstrap import estimate
from adacompute.replay.run import first_wave

__all__ = ["answer"]

_SEED = 0  # of the interval
_NOTHING_LEFT = "not asked: what was allowed is spent on samples of others; raise the budget or the cost"
_UNSTORED = "unstorable: a response could not be stored; the pool has the reason among its failures"


def answer(
    problems: Sequence[Problem],
    pool: Pool,
    *,
    policy: Policy,
    budget: float,
    endpoint: Endpoint | Engine,
    asking: Asking,
    prices: Prices | None = None,
    max_cost: float | None = None,
    another: bool = False,
    regrade: bool = False,
    progress: Callable[[Progress], None] | None = None,
    signals: Sequence[signal.Signals] = (),
) -> Answers:
    """Answers every request by a vote, with `budget` samples a request on average, and never more in all.

    Everybody gets what the policy asks for at the highest value of its dial; then the dial falls, step by
    step, and whoever the policy goes on with gets more, until the budget is spent. No calibration is needed.
    A policy without a dial runs as it is, under the same limit. Each sample is in the pool before it counts,
    so whatever ends this, the same call goes on with what is stored, and buys none of it again. The policy
    itself is left as it is. Raises SourceChanged where the pool's samples are of another model, template or
    parameter, unless `another`. In the place of an endpoint, an engine may draw elsewhere.
    """
    problems = checked(problems, pool, endpoint, asking)
    limit = samples_of(budget, len(problems))
    ready = unhurried(checked_policy(policy))
    reading = ready.read([problem.question for problem in problems])
    opening = first_wave(ready, reading, None if ready.dial is None else most_of(ready))
    prices = prices or Prices()
    gather(pool)
    check_source(pool, asking.model, asking.parameters, another=another)
    admit(pool, problems, asking.template, regrade=regrade)
    spent = spent_so_far(pool, prices)
    purse = Purse(prices=prices, limit=max_cost, spent=spent, most_tokens=asking.most_tokens)
    batch = _Batch(problems, pool, ready, reading, limit, asking, purse)
    return ran(batch.all(opening, budget, engine_of(endpoint), progress, signals))


class _Batch:
    """One batch, from its first samples to its answers."""

    def __init__(
        self,
        problems: Sequence[Problem],
        pool: Pool,
        policy: Policy,
        reading: Floats,
        limit: int,
        asking: Asking,
        purse: Purse,
    ) -> None:
        self._problems = problems
        self._pool = pool
        self._policy = policy
        self._limit = limit
        self._asking = asking
        self._purse = purse
        self._votes = self._stored()
        self._rounds = Rounds(policy, self._votes, reading, limit=limit)
        self._failures: dict[str, str] = {}
        self._weigh = policy.weigh

    async def all(
        self,
        opening: Ints,
        budget: float,
        engine: Engine,
        progress: Callable[[Progress], None] | None,
        signals: Sequence[signal.Signals],
    ) -> Answers:
        start, before = time.monotonic(), self._votes.spent

        def told(lanes: Drawer) -> None:
            if progress is not None:
                progress(lanes.progress(planned=max(self._limit, before), before=before))

        async with engine.drawing(
            self._pool,
            asking=self._asking,
            purse=self._purse,
            told=told,
            signals=signals,
        ) as lanes:
            told(lanes)
            await self._draw(lanes, *self._rounds.first(opening))
            await asyncio.to_thread(self._settle)
            self._give_up(lanes, np.arange(len(self._problems)))
            while lanes.stopped is None and (chosen := self._rounds.next(engine.width)):
                await self._draw(lanes, *chosen)
                await asyncio.to_thread(self._votes.count, chosen[0])
                self._give_up(lanes, chosen[0])
        return self._outcome(lanes, budget, before, time.monotonic() - start)

    def _stored(self) -> Votes:
        return Votes(self._problems, self._pool, model=self._asking.model, parameters=self._asking.parameters)

    async def _draw(self, lanes: Drawer, rows: Rows, counts: Ints) -> None:
        firsts = self._votes.following[rows]
        self._votes.following[rows] += counts
        each = zip(rows.tolist(), firsts.tolist(), counts.tolist(), strict=True)
        await lanes.draw(Run(self._problems[row], first, count) for row, first, count in each)

    def _settle(self) -> None:
        """Fits the policy to the model's first samples, and counts all votes."""
        ballots = self._pool.ballots_of(self._pool.source_key(self._asking.model, self._asking.parameters))
        first = first_samples(ballots, {problem.id for problem in self._problems})
        self._policy = settled(self._policy, first)
        self._votes.weigh = self._policy.weigh
        self._votes.count(np.arange(len(self._votes)))
        self._rounds.settled(self._policy)

    def _give_up(self, lanes: Drawer, rows: Rows) -> None:
        """Requests whose calls failed keep what they have, and are not asked for again in this run."""
        for row in self._rounds.drawn(rows):
            id_ = self._problems[row].id
            if id_ in lanes.failures or lanes.stopped is None:
                self._failures[id_] = lanes.failures.get(id_, _UNSTORED)

    def _outcome(self, lanes: Drawer, budget: float, before: int, seconds: float) -> Answers:
        broken_off = lanes.stopped in BROKEN_OFF
        each = () if broken_off else tuple(self._answered(row) for row in range(len(self._problems)))
        right = np.array([one.correct for one in each if one.correct is not None])
        totals = self._pool.totals(self._pool.source_key(self._asking.model, self._asking.parameters))
        spent = self._stored().spent  # what was given up in flight may have been stored all the same
        return Answers(
            each=each,
            requests=len(self._problems),
            policy=self._policy.kind,
            budget=budget,
            limit=self._limit,
            spent=spent,
            added=spent - before,
            rounds=self._rounds.number,
            price=None if broken_off else self._rounds.price,
            unsettled=0 if broken_off else self._rounds.unsettled,
            weigh=self._policy.weigh,
            plain=self._weigh is not None and self._policy.weigh is None,
            accuracy=estimate(right, np.random.default_rng(_SEED)) if len(right) else None,
            failures=dict(self._failures) or dict(lanes.failures),
            seconds=seconds,
            found=totals.answered,
            finished=totals.finished,
            **ended(lanes, self._pool, self._asking, self._purse.prices),
        )

    def _answered(self, row: int) -> Answer:
        problem, samples = self._problems[row], self._votes.samples(row)
        error = self._failures.get(problem.id, None if samples else _NOTHING_LEFT)
        return answer_of(problem, samples, self._votes.tally(samples), task=self._pool.task, error=error)
