"""Which requests of a batch get samples next, wave by wave, as the price of a sample falls.

For one tally a policy continues below some price and stops from there up. So two numbers a request say
what the policy was asked already, and only what they leave open is asked. Tallies are rebuilt from the
pool whenever a request has new samples, so a run that was killed continues with the same numbers.

With one source, `WavePlanner` lets the price fall from the top. With several, `ModePlanner` begins requests
at the price that the budget buys, and lets it fall once all have ended.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from adacompute.answers import Tally, Task, VoteWeights, read_answers
from adacompute.policies.base import Policy
from adacompute.policies.modes.lattice import STOP
from adacompute.policies.modes.policy import MenuPolicy
from adacompute.policies.votes import NEVER_SEEN, Floats, Ints, VotesByMode, make_empty_state, read_tallies
from adacompute.pool import Pool
from adacompute.records import Problem, Sample
from adacompute.sampling.plan import Asking

Rows = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]
_LOWEST_DIAL = 1e-18  # smaller dials count as 0
_RESOLUTION = 1e-6  # relative: dials nearer to each other than that count as equal
_MAX_STEPS = 60
_WAVE_DIVISOR = 4  # one wave may spend this part of what is left before its answers are known
_TRIAL_REQUESTS = 16  # that the first wave over several sources has, which shows what samples cost
_WAVES = 12  # in which requests are begun there, at least
_PACED_SHARE = 0.98  # the price is meant to cost this share of what is left


class BatchWave(NamedTuple):
    """What is drawn at the same time: of each of some requests, so many samples, of one source each."""

    rows: Rows
    counts: Ints  # (rows,)
    modes: Ints  # (rows,) places of the sources


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
    """The votes on each request, by its place in the batch: one vote, whatever the number of sources.

    A sample's index is its place among all samples of its request, whichever source gave it, so that a batch
    that was killed continues with its votes in the order in which they were drawn. Gold answers play no part.
    """

    def __init__(
        self, problems: Sequence[Problem], pool: Pool, askings: Sequence[Asking], *, max_samples: int = 0
    ) -> None:
        """`max_samples` are those of a request; 0: no limit."""
        self.weigh: VoteWeights | None = None  # how votes are weighted; set it before counting
        self._problems = problems
        self._pool = pool
        self._most = max_samples or np.iinfo(np.int64).max
        self._names = tuple(asking.mode for asking in askings)
        self._sources = [asking.source for asking in askings]
        self._known_sources: set[int] = set()  # those that the pool has anything of
        size, modes = len(problems), len(askings)
        self._empty = make_empty_state(size, modes)
        self._arrays = {each.name: getattr(self._empty, each.name).copy() for each in fields(self._empty)}
        self.next_index = np.zeros(size, dtype=np.int64)  # the index of each request's next sample
        rows = {problem.id: row for row, problem in enumerate(problems)}
        for mode, (model, parameters) in enumerate(self._sources):
            for id_, indexes in pool.indexes(model, parameters):
                if (row := rows.get(id_)) is not None:
                    self.drawn_by_mode[row, mode] = len(indexes)
                    self.next_index[row] = max(self.next_index[row], max(indexes) + 1)  # gaps stay

    def __len__(self) -> int:
        return len(self._problems)

    @property
    def drawn_by_mode(self) -> Ints:
        """Samples of each request and source, (requests, sources); a view."""
        counts: Ints = self._arrays["drawn"].reshape(len(self), len(self._sources))
        return counts

    @property
    def drawn(self) -> Ints:
        """Samples of each request, (requests,)."""
        return np.asarray(self.drawn_by_mode.sum(axis=1))

    def count_left(self, rows: Rows) -> Ints:
        """Samples that some requests may still take, (requests,)."""
        return np.maximum(self._most - self.drawn[rows], 0)

    @property
    def spent(self) -> int:
        """Samples of all requests."""
        return int(self.drawn_by_mode.sum())

    def state(self, rows: Rows) -> Any:  # noqa: ANN401 - a VoteState, or with several sources VotesByMode
        """The state of the vote on some requests."""
        return type(self._empty)(**{name: values[rows] for name, values in self._arrays.items()})

    def recount(self, rows: Rows) -> None:
        """Counts the votes on some requests again, because they have new samples."""
        state = read_tallies([self.tally(self.samples(row)) for row in rows.tolist()], self._names)
        for name, values in self._arrays.items():
            self._arrays[name] = _put_rows(values, rows, getattr(state, name), NEVER_SEEN * (name == "seen"))

    def samples(self, row: int) -> list[Sample]:
        """A request's samples in the order drawn, without their grades, which a vote must not know."""
        problem, placed = self._problems[row], list[tuple[int, Sample]]()
        for mode, (model, parameters) in enumerate(self._sources):
            if mode not in self._known_sources and self._pool.source_key(model, parameters) is None:
                continue
            self._known_sources.add(mode)
            recorded = self._pool.recorded(problem.id, model, parameters=parameters).samples
            if len(self._sources) == 1:
                return read_together(recorded, problem.question, self._pool.task)
            indexes = sorted(index for _, index in self._pool.keys(model, parameters, problem_id=problem.id))
            named = [replace(sample, mode=self._names[mode]) for sample in recorded]
            placed += zip(indexes, named, strict=True)
        samples = [sample for _, sample in sorted(placed, key=lambda pair: pair[0])]
        return read_together(samples, problem.question, self._pool.task)

    def take_indexes(self, wave: BatchWave) -> Ints:
        """The index of the first new sample of each request of a wave, (rows,)."""
        firsts = self.next_index[wave.rows]
        self.next_index[wave.rows] += wave.counts
        return firsts

    def tally(self, samples: Sequence[Sample]) -> Tally:
        """The tally of these samples."""
        return Tally.of(samples, weigh=self.weigh, task=self._pool.task)


def _put_rows(values: npt.NDArray[Any], rows: Rows, new: npt.NDArray[Any], blank: int) -> npt.NDArray[Any]:
    """The values with some rows replaced; wider where new ones have more classes, their last axis.

    Those with classes are a copy: progress is reported meanwhile.
    """
    if new.ndim > 1:
        missing = max(0, new.shape[-1] - values.shape[-1])
        values = np.pad(values, [(0, 0)] * (new.ndim - 1) + [(0, missing)], constant_values=blank)
        values[rows] = blank
        values[rows, ..., : new.shape[-1]] = new
    else:
        values[rows] = new
    return values


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

    prices: Floats = np.zeros(0)  # that each request began at, over several sources

    def __init__(
        self,
        policy: Policy,
        votes: BatchVotes,
        reading: Floats,
        *,
        opening: Ints | None = None,
        places: Floats | None = None,
        find_room: Callable[[], int],
    ) -> None:
        """`opening` is the first wave and `places` those of requests, by which their dials are spread,
        (requests,) both; `find_room` says how many samples are left to draw.
        """
        self._policy = policy
        self._votes = votes
        self._find_room = find_room
        self._reading = reading
        self._places = np.full(len(votes), 0.5) if places is None else places
        self._opening = np.zeros(len(votes), dtype=np.int64) if opening is None else opening
        self._dial_search = DialSearch(len(votes), self._ask_policy)
        self._granted = BatchWave(*(np.zeros(0, dtype=np.int64) for _ in range(3)))  # the last wave
        self._expected: Ints = np.zeros(0, dtype=np.int64)  # samples of its requests if nothing fails
        self.dial = None if policy.dial is None else highest_dial(policy)
        self.number = 0  # rounds so far

    @property
    def room(self) -> int:
        """Samples that are left to draw, as far as is known."""
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

    def plan_first(self) -> BatchWave:
        """The first wave, for requests that have nothing yet."""
        rows = np.arange(len(self._votes))
        requested = np.where(self._votes.drawn == 0, self._opening, 0)
        return self._grant(rows, np.minimum(requested, self._votes.count_left(rows)), np.zeros(len(rows)))

    def begin(self, policy: Policy) -> None:
        """Takes up what is stored, with the policy that was fitted to the model; every vote was recounted."""
        self._policy = policy
        self._dial_search = DialSearch(len(self._votes), self._ask_policy)

    def plan_next(self, width: int) -> BatchWave | None:
        """The next wave, highest dial first; None: the budget is spent, or no request continues.

        `width` is how many can be asked at the same time.
        """
        if not self.room:
            return None
        rows, requested = self._find_continuing(width)
        wave = self._grant(rows, requested, self._dial_search.low[rows])
        return wave if len(wave.rows) else None

    def record_wave(self) -> list[tuple[int, int]]:
        """Records that votes were recounted; returns (request, source) of what got less than granted."""
        wave = self._granted
        self._dial_search.forget(wave.rows)
        short = self._votes.drawn_by_mode[wave.rows, wave.modes] < self._expected
        self._settle_short(wave.rows[short])
        return list(zip(wave.rows[short].tolist(), wave.modes[short].tolist(), strict=True))

    def _settle_short(self, rows: Rows) -> None:
        """Requests that got less than granted get no more."""
        self._dial_search.active[rows] = False

    def leave_out(self, row: int, mode: int) -> None:
        """Records that a source failed for a request."""

    def mark_unpaid(self, mode: int) -> None:
        """Records that what is left can't pay for a sample of this source."""

    def _grant(self, rows: Rows, requested: Ints, rank: Floats) -> BatchWave:
        counts = split_room(requested, self.room, empty=self._votes.drawn[rows] == 0, rank=rank)
        order = np.argsort(-rank, kind="stable")
        order = order[counts[order] > 0]
        return self._record_grant(BatchWave(rows[order], counts[order], np.zeros(len(order), dtype=np.int64)))

    def _record_grant(self, wave: BatchWave) -> BatchWave:
        self._granted = wave
        self._expected = self._votes.drawn_by_mode[wave.rows, wave.modes] + wave.counts
        self.number += len(wave.rows) > 0
        return wave

    def _ask_policy(self, rows: Rows, dial: float | None) -> Ints:
        """How many more samples the policy wants for some requests at a dial."""
        own = self._policy.spread_dial(dial, self._places[rows])
        counts = self._policy.decide(self._reading[rows], self._votes.state(rows), own).counts
        return np.minimum(counts, self._votes.count_left(rows))

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


class ModePlanner(WavePlanner):
    """Plans the waves of a batch over several modes.

    Requests are begun some at a time. Each is decided to its end at the price that what is left buys for
    those to come, by what samples cost here so far: so hardly any request is decided at two prices, by two
    rules, the second of which wouldn't have drawn what the first did. Then the price falls until what is left
    is spent. A wave has one sample of each of its requests.
    """

    _policy: MenuPolicy

    def __init__(
        self,
        policy: MenuPolicy,
        votes: BatchVotes,
        reading: Floats,
        *,
        budget: float,
        find_money: Callable[[], float],
        find_costs: Callable[[], Floats],
    ) -> None:
        """`budget` is that of a request; `find_costs` says what a sample of each source costs, (sources,)."""
        super().__init__(policy, votes, reading, find_room=self._count_room)
        self._budget = budget
        self._find_money = find_money
        self._find_costs = find_costs
        self._failed = np.zeros((len(votes), len(policy.names)), dtype=np.bool_)  # (requests, sources)
        self._unpaid = np.zeros(len(policy.names), dtype=np.bool_)  # what is left can't pay a sample of these
        self.dial = None  # the price falls from here, once all requests have come to their end
        self.prices = np.full(len(votes), np.nan)  # each request's; NaN: not begun

    @property
    def price(self) -> float | None:
        """The price that the batch came down to."""
        if self.dial is not None or np.isnan(self.prices).all():
            return self.dial
        return float(np.nanmin(self.prices))

    @property
    def unfinished(self) -> int:
        """How many requests the policy would continue at that price, if there were money."""
        rows = np.flatnonzero(~self._failed.all(axis=1) & ~np.isnan(self.prices))
        return int((self._choose(rows, paid=False) != STOP).sum()) if len(rows) else 0

    def begin(self, policy: Policy) -> None:  # noqa: ARG002 - it stays as it is
        """Takes up the requests that have samples of an earlier run; votes were recounted."""
        stored = np.flatnonzero(self._votes.drawn > 0)
        self.prices[stored] = self._policy.find_price(self._budget / self._find_scale())

    def plan_next(self, width: int) -> BatchWave | None:
        """The next wave; None: the money is spent, or no request continues at any price."""
        if self._find_money() <= 0 or self._unpaid.all():
            return None
        rows, modes = self._list_continuing()
        granted = self._grant_money(rows, modes)
        if np.isnan(self.prices).any():
            self._begin_requests(max(2 * width, len(self.prices) // _WAVES) - len(granted))
            rows, modes = self._list_continuing()
            granted = self._grant_money(rows, modes)
        if not len(rows):
            rows, modes = self._lower_price(width)
            granted = self._grant_money(rows, modes)
        if not len(rows):
            return None
        if not len(granted):  # whether one more can be paid is for the cost budget to say
            granted = np.zeros(1, dtype=np.intp)
        return self._record_grant(
            BatchWave(rows[granted], np.ones(len(granted), dtype=np.int64), modes[granted])
        )

    def mark_unpaid(self, mode: int) -> None:
        """Records that what is left can't pay for a sample of this mode."""
        if not self._unpaid[mode]:
            self._unpaid[mode] = True
            active = self._dial_search.active
            self._dial_search = DialSearch(len(self._votes), self._ask_policy)
            self._dial_search.active = active

    def _settle_short(self, rows: Rows) -> None:
        """Another source may be asked in the place of the one that failed."""

    def leave_out(self, row: int, mode: int) -> None:
        """Records that a mode failed for a request: it isn't asked for it again in this run."""
        self._failed[row, mode] = True
        self._dial_search.active[row] = not self._failed[row].all()

    def _list_continuing(self) -> tuple[Rows, Ints]:
        """The requests that continue at their prices, and the mode of each."""
        rows = np.flatnonzero(self._dial_search.active & ~np.isnan(self.prices))
        modes = self._choose(rows)
        return rows[modes != STOP], modes[modes != STOP]

    def _choose(self, rows: Rows, *, paid: bool = True) -> Ints:
        """The source of each request at its own price, (rows,); -1 stops. `paid=False`: whatever it costs."""
        prices = self.prices[rows] if self.dial is None else np.minimum(self.prices[rows], self.dial)
        votes = self._votes.state(rows)
        wanted = self._policy.choose(self._reading[rows], votes, prices)
        wanted = np.where(self._votes.count_left(rows) > 0, wanted, STOP)
        usable = ~self._failed[rows] & ~(self._unpaid & paid)
        blocked = np.flatnonzero((wanted != STOP) & ~usable[np.arange(len(rows)), np.maximum(wanted, 0)])
        for place in blocked.tolist():
            row, mode = int(rows[place]), int(wanted[place])
            own = votes.select(np.array([place]))
            if own.counts.any() and not self._failed[row, mode]:
                wanted[place] = STOP  # only what is left is too little
            else:
                wanted[place] = self._find_substitute(row, own, mode, usable[place], prices[place])
        return wanted

    def _find_substitute(self, row: int, votes: VotesByMode, wanted: int, usable: Bools, price: float) -> int:
        """Another mode for a request whose mode can't be drawn: a cheaper one, for as long as that pays.

        A dearer one only where the request has no answer yet: that it would pay isn't known.
        """
        # votes of a cheaper mode aren't to outvote those of a dearer one because that one can't be asked
        voted = np.flatnonzero(votes.counts[0].any(axis=1)).max(initial=0)
        cheaper = [mode for mode in range(wanted - 1, voted - 1, -1) if usable[mode]]
        dearer = [mode for mode in range(wanted + 1, len(usable)) if usable[mode]]
        candidates = cheaper[:1] or ([] if votes.counts.any() else dearer[:1])
        for mode in candidates:
            drawn = int(votes.drawn[0, mode])
            if drawn == 0:
                return mode
            if drawn >= self._policy.mode_longest:
                continue
            critical = self._policy.estimate_critical_prices(self._reading[[row]], votes)[0, mode]
            if np.exp(np.nan_to_num(critical)) > price * float(self._policy.costs[mode]):
                return mode
        return STOP

    def _begin_requests(self, count: int) -> None:
        """Begins so many requests, at the price that what is left buys for all that are to come.

        The first ones are few, because they show what samples cost.
        """
        waiting = np.flatnonzero(np.isnan(self.prices))
        begun = np.flatnonzero(~np.isnan(self.prices))
        if not self._votes.spent:
            count = min(count, _TRIAL_REQUESTS)
        if count <= 0:
            return
        expected = self._find_scale() * self._policy.find_costs(self.prices[begun])
        paid = self._votes.drawn_by_mode[begun] @ self._find_costs()
        is_open = self._choose(begun) != STOP
        to_come = np.where(is_open, np.maximum(expected - paid, 0.0), 0.0)
        trial = _TRIAL_REQUESTS * self._budget  # requests so far count for more, the more they are
        hardness = (float((paid + to_come).sum()) + trial) / (float(expected.sum()) + trial)
        each = (_PACED_SHARE * self._find_money() - float(to_come.sum())) / len(waiting)
        price = self._policy.find_price(each / (hardness * self._find_scale()))
        self.prices[waiting[:count]] = price

    def _find_scale(self) -> float:
        """What a sample costs here, as a multiple of what the policy learned: the mean over modes."""
        costs, learned = self._find_costs(), self._policy.costs
        known = (learned > 0) & (costs > 0)
        if (measured := known & (self._votes.drawn_by_mode.sum(axis=0) > 0)).any():
            known = measured
        return float(np.exp(np.log(costs[known] / learned[known]).mean())) if known.any() else 1.0

    def _lower_price(self, width: int) -> tuple[Rows, Ints]:
        """Lowers the price until some requests continue; returns them and their modes.

        It isn't lowered any more where a mode can't be paid: only what the others give would be left to buy.
        """
        while not self._unpaid.any():
            ceiling = float(self.prices.max()) if self.dial is None else self.dial
            lower = self._dial_search.find_highest(ceiling, self._count_least(width))
            if lower is None:
                break
            self.dial = lower
            rows, modes = self._list_continuing()
            if len(rows):
                return rows, modes
            # a rule may stop a request that another one, of a higher price, continues
            self._dial_search.mark_stopped(np.flatnonzero(self._dial_search.find_continuing(lower)), lower)
        return np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.int64)

    def _grant_money(self, rows: Rows, modes: Ints) -> Rows:
        """The places of the requests that what is left is likely to pay for.

        What those to come have a right to is kept for them, so that the last ones are not left out.
        """
        costs, waiting = self._find_costs(), int(np.isnan(self.prices).sum())
        left = self._find_money() - waiting * self._budget
        empty = self._votes.drawn[rows] == 0
        granted = []
        for place in np.lexsort((rows, ~empty)).tolist():  # those without a sample first
            if (cost := float(costs[modes[place]])) <= left:
                granted.append(place)
                left -= cost
        return np.array(granted, dtype=np.intp)

    def _ask_policy(self, rows: Rows, dial: float | None) -> Ints:
        """1 for each request that continues at a price, or at its own where that is lower, (rows,)."""
        assert dial is not None
        last, self.dial = self.dial, dial
        wanted = self._choose(rows)
        self.dial = last
        return np.asarray((wanted != STOP).astype(np.int64))

    def _count_room(self) -> int:
        """Samples that what is left pays for, at the mean cost of those drawn so far."""
        costs, drawn = self._find_costs(), self._votes.drawn_by_mode.sum(axis=0)
        shares = drawn / drawn.sum() if drawn.sum() else np.eye(len(costs))[0]
        mean = float(costs @ shares)
        money = max(0.0, self._find_money())
        return int(money / mean) if mean > 0 else len(self._votes)
