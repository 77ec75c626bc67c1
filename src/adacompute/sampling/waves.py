"""Which requests of a batch get samples next, wave by wave, as the price of a sample falls.

For one tally a policy continues below some price and stops from there up. So two numbers a request say
what the policy was asked already, and only what they leave open is asked. Tallies are rebuilt from the
pool whenever a request has new samples, so a run that was killed continues with the same numbers.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from adacompute.answers import Tally, Task, VoteWeights, read_answers
from adacompute.policies.base import Floats, Ints, Policy
from adacompute.policies.paths import VoteState
from adacompute.pool import Pool
from adacompute.records import Problem, Sample

__all__ = ["BatchVotes", "DialSearch", "Wave", "WavePlanner", "highest_dial", "read_together", "split_room"]

Rows = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]
_LOWEST_DIAL = 1e-18  # smaller dials count as 0
_RESOLUTION = 1e-6  # relative: dials nearer to each other than that count as equal
_MAX_STEPS = 60
_WAVE_DIVISOR = 4  # one wave may spend this part of what is left before its answers are known


class Wave(NamedTuple):
    """What is drawn at the same time: of each of some requests, so many samples, of one mode each."""

    rows: Rows
    counts: Ints  # (rows,)
    modes: Ints  # (rows,) by their place among the modes of the batch; 0 where there is only one


def read_together(samples: Sequence[Sample], question: str, task: Task) -> list[Sample]:
    """A request's samples without their grades; their texts are read together, as by the gateway."""
    texts = [sample.text or "" for sample in samples]
    ends = [sample.finished is not False for sample in samples]
    answers = read_answers(texts, question, task, finished=ends)
    return [
        replace(sample, correct=None, answer=answer if sample.text else sample.answer)
        for sample, answer in zip(samples, answers, strict=True)
    ]


class BatchVotes:
    """The votes on each request, by its place in the batch. Gold answers play no part in it."""

    def __init__(
        self, problems: Sequence[Problem], pool: Pool, *, model: str, parameters: Mapping[str, Any]
    ) -> None:
        self.weigh: VoteWeights | None = None  # how votes are weighted; set it before counting
        self._problems = problems
        self._pool = pool
        self._model = model
        self._parameters = parameters
        self._has_source = False  # whether the pool has anything of this source
        empty = VoteState.empty(len(problems))
        self._states = {field.name: getattr(empty, field.name).copy() for field in fields(empty)}
        self.next_index = np.zeros(len(problems), dtype=np.int64)  # the index of each request's next sample
        rows = {problem.id: row for row, problem in enumerate(problems)}
        for id_, indexes in pool.indexes(model, parameters):
            if (row := rows.get(id_)) is not None:
                self._states["drawn"][row] = len(indexes)
                self.next_index[row] = max(indexes) + 1  # gaps stay: votes are in the order of the indexes

    def __len__(self) -> int:
        return len(self._problems)

    @property
    def drawn(self) -> Ints:
        """Samples of each request, (requests,)."""
        counts: Ints = self._states["drawn"]
        return counts

    @property
    def spent(self) -> int:
        """Samples of all requests."""
        return int(self.drawn.sum())

    def state(self, rows: Rows) -> VoteState:
        """The state of the vote on some requests."""
        return VoteState(**{name: values[rows] for name, values in self._states.items()})

    def recount(self, rows: Rows) -> None:
        """Counts the votes on some requests again, because they have new samples."""
        state = VoteState.from_tallies([self.tally(self.samples(row)) for row in rows.tolist()])
        for name, values in self._states.items():
            values[rows] = getattr(state, name)

    def samples(self, row: int) -> list[Sample]:
        """A request's samples in order, without their grades, which a vote must not know."""
        self._has_source = (
            self._has_source or self._pool.source_key(self._model, self._parameters) is not None
        )
        if not self._has_source:
            return []
        problem = self._problems[row]
        recorded = self._pool.recorded(problem.id, self._model, parameters=self._parameters)
        return read_together(recorded.samples, problem.question, self._pool.task)

    def take_indexes(self, wave: Wave) -> Ints:
        """The index of the first new sample of each request of a wave, (rows,)."""
        firsts = self.next_index[wave.rows]
        self.next_index[wave.rows] += wave.counts
        return firsts

    def tally(self, samples: Sequence[Sample]) -> Tally:
        """The tally of these samples."""
        return Tally.of(samples, weigh=self.weigh, task=self._pool.task)


class DialSearch:
    """For each request, what is known of the highest dial at which the policy continues it."""

    def __init__(self, requests: int, ask_policy: Callable[[Rows, float], Ints]) -> None:
        """`ask_policy` says how many more samples the policy wants for some requests at a dial."""
        self._ask_policy = ask_policy
        self.active = np.ones(requests, dtype=np.bool_)  # False: it gets no more samples
        self.low = np.full(requests, -1.0)  # it continues at this dial and below; -1: not known
        self._high = np.full(requests, np.inf)  # it stops at this dial and above

    def forget(self, rows: Rows) -> None:
        """Forgets what is known of these requests, because they have other tallies now."""
        self.low[rows], self._high[rows] = -1.0, np.inf

    def find_continuing(self, dial: float) -> Bools:
        """Which requests the policy continues at a dial, (requests,)."""
        rows = np.flatnonzero(self.active & (self.low < dial) & (dial < self._high))
        if len(rows):
            continues = self._ask_policy(rows, dial) > 0
            self.low[rows[continues]] = dial
            self._high[rows[~continues]] = dial
        return np.asarray(self.active & (dial <= self.low))

    def mark_stopped(self, rows: Rows, dial: float) -> None:
        """Records that the policy stops these requests at a dial, whatever it decided at a higher one."""
        self.low[rows], self._high[rows] = -1.0, dial

    def find_highest(self, ceiling: float, minimum: int) -> float | None:
        """The highest dial up to `ceiling` at which at least `minimum` requests continue; None: no such dial.

        Where fewer than that ever continue, it is the dial at which those do.
        """
        continuing = int(self.find_continuing(0.0).sum())
        minimum = min(minimum, continuing)
        if not minimum:
            return None
        if self.find_continuing(ceiling).sum() >= minimum:
            return ceiling
        low, high = 0.0, ceiling  # enough continue at `low`, too few at `high`
        for _ in range(_MAX_STEPS):
            middle = math.sqrt(max(low, _LOWEST_DIAL) * high)
            if high <= max(low, _LOWEST_DIAL) * (1 + _RESOLUTION):
                break
            count = self.find_continuing(middle).sum()
            low, high = (middle, high) if count >= minimum else (low, middle)
            if count == minimum:
                break
        return low


class WavePlanner:
    """Plans the waves of one batch: each continues the requests with the highest dial, so the dial falls."""

    def __init__(
        self, policy: Policy, votes: BatchVotes, reading: Floats, *, find_room: Callable[[], int]
    ) -> None:
        """`find_room` says how many samples are left to draw, as far as is known."""
        self._policy = policy
        self._votes = votes
        self._find_room = find_room
        self._reading = reading
        self._dial_search = DialSearch(len(votes), self._ask_policy)
        self._expected = votes.drawn.copy()  # samples that each request would have if nothing had failed
        self.dial = None if policy.dial is None else highest_dial(policy)
        self.number = 0  # of rounds so far

    @property
    def room(self) -> int:
        """Samples that are left to draw."""
        return max(0, self._find_room())

    @property
    def price(self) -> float | None:
        """The lowest dial at which a request continued; before that, the highest at which one would."""
        if self.dial is None or self.dial < highest_dial(self._policy):
            return self.dial
        return self._dial_search.find_highest(self.dial, 1)

    @property
    def unfinished(self) -> int:
        """How many requests the policy would continue as things are."""
        rows = np.flatnonzero(self._dial_search.active)
        if self.dial is None:
            return int((self._ask_policy(rows, None) > 0).sum())
        return int(self._dial_search.find_continuing(self.dial).sum())

    def plan_first(self, opening: Ints) -> Wave:
        """The first wave, (requests,), for requests that have nothing yet."""
        empty = self._votes.drawn == 0
        requested = np.where(empty, opening, 0)
        return self._grant(np.arange(len(requested)), requested, np.zeros(len(requested)))

    def set_policy(self, policy: Policy) -> None:
        """Sets the policy that was fitted to the model; every vote was recounted."""
        self._policy = policy
        self._dial_search = DialSearch(len(self._votes), self._ask_policy)

    def plan_next(self, width: int) -> Wave | None:
        """The next wave, highest dial first; None: the budget is spent, or no request continues.

        `width` is how many can be asked at the same time.
        """
        if not self.room:
            return None
        rows, requested = self._find_continuing(width)
        wave = self._grant(rows, requested, self._dial_search.low[rows])
        return wave if len(wave.rows) else None

    def record_wave(self, rows: Rows) -> list[int]:
        """Records that votes were recounted; returns the requests that got less than granted.

        Those get no more.
        """
        self._dial_search.forget(rows)
        short = self._dial_search.active & (self._votes.drawn < self._expected)
        self._dial_search.active[short] = False
        failed_rows: list[int] = np.flatnonzero(short).tolist()
        return failed_rows

    def _grant(self, rows: Rows, requested: Ints, rank: Floats) -> Wave:
        counts = split_room(requested, self.room, empty=self._votes.drawn[rows] == 0, rank=rank)
        order = np.argsort(-rank, kind="stable")
        order = order[counts[order] > 0]
        self._expected[rows] = self._votes.drawn[rows] + counts
        self.number += len(order) > 0
        return Wave(rows[order], counts[order], np.zeros(len(order), dtype=np.int64))

    def _ask_policy(self, rows: Rows, dial: float | None) -> Ints:
        """How many more samples the policy wants for some requests at a dial."""
        return self._policy.decide(self._reading[rows], self._votes.state(rows), dial)

    def _count_least(self, width: int) -> int:
        """How many requests the next wave should have at least.

        As many as can continue to their end with what is left: then all of them stop at this dial. Near the
        end those are fewer than can be asked at the same time, so a part of what is left is used.
        """
        return max(1, self.room // max(1, self._policy.longest - 1), min(width, self.room // _WAVE_DIVISOR))

    def _find_continuing(self, width: int) -> tuple[Rows, Ints]:
        """The requests of the next wave, and how many samples the policy wants for each."""
        if self.dial is None:
            rows = np.flatnonzero(self._dial_search.active)
            return rows, self._ask_policy(rows, None)
        minimum = self._count_least(width)
        while (dial := self._dial_search.find_highest(highest_dial(self._policy), minimum)) is not None:
            rows = np.flatnonzero(self._dial_search.find_continuing(dial))
            requested = self._ask_policy(rows, dial)
            if (requested > 0).any():
                self.dial = min(self.dial, dial)
                return rows, requested
            # the policy esc may stop below a dial at which it continues
            self._dial_search.mark_stopped(rows, dial)
        return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.int64)


def highest_dial(policy: Policy) -> float:
    """The highest value of the dial: the policy asks for least there."""
    return 1.0 if policy.dial == "threshold" else 1e12


def split_room(requested: Ints, room: int, *, empty: Bools, rank: Floats) -> Ints:
    """The share of each request in `room` samples, (requests,): all that it requested, if there is enough.

    Else one for each that has none, in their order; then to the highest in rank first, ties in their order.
    """
    granted = np.where(empty & (requested > 0), 1, 0)
    granted = np.where(np.cumsum(granted) <= room, granted, 0)
    order = np.argsort(-rank, kind="stable")
    wanted = (requested - granted)[order]
    before = np.cumsum(wanted) - wanted
    extra = np.empty_like(wanted)
    extra[order] = np.clip(room - int(granted.sum()) - before, 0, wanted)
    return np.asarray(granted + extra)
