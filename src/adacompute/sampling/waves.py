"""Chooses which requests of a batch get samples next, wave by wave, as the price per sample falls.

A policy continues a request below some price, and stops it above; which price depends on the votes so far. (A
dial is a price or, for some policies, a threshold.) Two bounds for each request record what is known of this
price, and the policy is asked only about prices between them. Votes are counted again from the pool whenever
a request has new samples. So a run that was killed and restarted continues with the same votes.

With one source of samples, `WavePlanner` lets the price fall from the highest one. With several modes,
`ModePlanner` begins requests at the price that the budget allows, and lowers it once all have stopped.
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
_LOWEST_DIAL = 1e-18  # lowest price or threshold that the search tries, apart from 0
_RESOLUTION = 1e-6  # the search ends once its upper bound exceeds the lower one by less than this share
_MAX_STEPS = 60
_WAVE_DIVISOR = 4  # to fill parallel calls, a wave is enlarged to at most 1/4 of the samples still affordable
# number of requests in the first wave with several modes, which measures the modes' costs
_TRIAL_REQUESTS = 16
# with several modes, requests begin in groups: 1/12 of the batch, or two per parallel call if that is more
_WAVES = 12
# with several modes: share of the remaining money that the price is chosen to spend; the rest is a reserve
_PACED_SHARE = 0.98


class BatchWave(NamedTuple):
    """The samples to draw at the same time: for some requests, a number of samples from one source."""

    rows: Rows
    counts: Ints  # number of samples to draw for the request in each row; shape (rows,)
    modes: Ints  # index of the source to draw from for the request in each row; shape (rows,)


def read_together(samples: Sequence[Sample], question: str, task: Task) -> list[Sample]:
    """Returns samples without grades, and with answers read from all texts together, as in the gateway."""
    texts = [sample.text or "" for sample in samples]
    ends = [sample.finished is not False for sample in samples]
    answers = read_answers(texts, question, task, finished=ends)
    return [
        replace(sample, correct=None, answer=answer if sample.text else sample.answer)
        for sample, answer in zip(samples, answers, strict=True)
    ]


class BatchVotes:
    """Counts the votes on each request of a batch, over all sources. Gold answers aren't used.

    A sample's index is its position among all samples of its request, from any source. So after a crash,
    votes are still counted in the order of drawing.
    """

    def __init__(
        self, problems: Sequence[Problem], pool: Pool, askings: Sequence[Asking], *, max_samples: int = 0
    ) -> None:
        """`max_samples` is the limit per request; 0 means no limit."""
        self.weigh: VoteWeights | None = None  # how votes are weighted; set before they are counted
        self._problems = problems
        self._pool = pool
        self._most = max_samples or np.iinfo(np.int64).max
        self._names = tuple(asking.mode for asking in askings)
        self._sources = [asking.source for asking in askings]
        size, modes = len(problems), len(askings)
        self._empty = make_empty_state(size, modes)
        self._arrays = {each.name: getattr(self._empty, each.name).copy() for each in fields(self._empty)}
        self.next_index = np.zeros(size, dtype=np.int64)  # index that each request's next sample will get
        rows = {problem.id: row for row, problem in enumerate(problems)}
        for mode, (model, parameters) in enumerate(self._sources):
            for id_, indexes in pool.indexes(model, parameters):
                if (row := rows.get(id_)) is not None:
                    self.drawn_by_mode[row, mode] = len(indexes)
                    # if stored indexes have gaps, these aren't filled: new samples get higher indexes
                    self.next_index[row] = max(self.next_index[row], max(indexes) + 1)

    def __len__(self) -> int:
        return len(self._problems)

    @property
    def drawn_by_mode(self) -> Ints:
        """Number of samples per request and source; a view of an array, with shape (requests, sources)."""
        return np.asarray(self._arrays["drawn"].reshape(len(self), len(self._sources)))

    @property
    def drawn(self) -> Ints:
        """Number of samples per request; shape (requests,)."""
        return np.asarray(self.drawn_by_mode.sum(axis=1))

    def count_left(self, rows: Rows) -> Ints:
        """Returns how many more samples each of these requests may get."""
        return np.maximum(self._most - self.drawn[rows], 0)

    @property
    def spent(self) -> int:
        """Total number of samples of all requests."""
        return int(self.drawn_by_mode.sum())

    def state(self, rows: Rows) -> Any:  # noqa: ANN401 - a VoteState, or with several sources VotesByMode
        """Returns the votes on some requests in the form that a policy needs for its decision."""
        return type(self._empty)(**{name: values[rows] for name, values in self._arrays.items()})

    def recount(self, rows: Rows) -> None:
        """Counts the votes anew for the requests in these rows, which have new samples."""
        state = read_tallies([self.tally(self.samples(row)) for row in rows.tolist()], self._names)
        for name, values in self._arrays.items():
            self._arrays[name] = _put_rows(values, rows, getattr(state, name), NEVER_SEEN * (name == "seen"))

    def samples(self, row: int) -> list[Sample]:
        """Reads a request's samples in drawing order, without grades, which votes must not use."""
        problem, placed = self._problems[row], list[tuple[int, Sample]]()
        for mode, (model, parameters) in enumerate(self._sources):
            if self._pool.source_key(model, parameters) is None:
                continue
            recorded = self._pool.recorded(problem.id, model, parameters=parameters).samples
            if len(self._sources) == 1:
                return read_together(recorded, problem.question, self._pool.task)
            indexes = sorted(index for _, index in self._pool.keys(model, parameters, problem_id=problem.id))
            named = [replace(sample, mode=self._names[mode]) for sample in recorded]
            placed += zip(indexes, named, strict=True)
        samples = [sample for _, sample in sorted(placed, key=lambda pair: pair[0])]
        return read_together(samples, problem.question, self._pool.task)

    def take_indexes(self, wave: BatchWave) -> Ints:
        """Reserves indexes for a wave's new samples; returns each request's first index, shape (rows,)."""
        firsts = self.next_index[wave.rows]
        self.next_index[wave.rows] += wave.counts
        return firsts

    def tally(self, samples: Sequence[Sample]) -> Tally:
        """Counts the votes of these samples."""
        return Tally.of(samples, weigh=self.weigh, task=self._pool.task)


def _put_rows(values: npt.NDArray[Any], rows: Rows, new: npt.NDArray[Any], blank: int) -> npt.NDArray[Any]:
    """Replaces some rows of an array that has a row for each request; returns the array.

    An array of one dimension is changed in place. Others are copied, because another thread may be reading
    them to report progress. Their last axis grows if `new` is longer; `blank` fills the rest of a row.
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
    """Narrows down, for each request, the highest price or threshold (dial) at which the policy continues."""

    def __init__(self, requests: int, ask_policy: Callable[[Rows, float], Ints]) -> None:
        """`ask_policy` returns how many more samples the policy wants for some requests at a price."""
        self._ask_policy = ask_policy
        self.active = np.ones(requests, dtype=np.bool_)  # whether a request may get more samples
        self.low = np.full(requests, -1.0)  # the policy continues at this price and below; -1 if unknown
        self._high = np.full(requests, np.inf)  # the policy stops at this price and above

    def forget(self, rows: Rows) -> None:
        """Resets the bounds for the requests in these rows, because their votes have changed."""
        self.low[rows], self._high[rows] = -1.0, np.inf

    def find_continuing(self, dial: float) -> Bools:
        """Returns which requests the policy continues at a price, as a mask of shape (requests,)."""
        rows = np.flatnonzero(self.active & (self.low < dial) & (dial < self._high))
        if len(rows):
            continues = self._ask_policy(rows, dial) > 0
            self.low[rows[continues]] = dial
            self._high[rows[~continues]] = dial
        return np.asarray(self.active & (dial <= self.low))

    def mark_stopped(self, rows: Rows, dial: float) -> None:
        """Records that the policy stops these requests at a price; forgets its decisions at other prices."""
        self.low[rows], self._high[rows] = -1.0, dial

    def find_highest(self, ceiling: float, minimum: int) -> float | None:
        """Finds a price up to `ceiling` that continues at least `minimum` requests, but as few as possible.

        If fewer than `minimum` requests continue even at price 0, finds a price that continues all of these;
        None if there are none.
        """
        continuing = int(self.find_continuing(0.0).sum())
        minimum = min(minimum, continuing)
        if not minimum:
            return None
        if self.find_continuing(ceiling).sum() >= minimum:
            return ceiling
        low, high = 0.0, ceiling  # enough requests continue at the price `low`, too few at `high`
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
    """Plans the waves of a batch. Each wave continues the requests for which another sample is worth most."""

    prices: Floats = np.zeros(0)  # initial price of each request, if there are several modes

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
        """`opening` has the number of samples of each request in the first wave.

        `places` has a number from 0 to 1 per request, by which the policy raises or lowers the request's
        price by up to 1%. `find_room` returns how many more samples the budget pays for.
        """
        self._policy = policy
        self._votes = votes
        self._find_room = find_room
        self._reading = reading
        self._places = np.full(len(votes), 0.5) if places is None else places
        self._opening = np.zeros(len(votes), dtype=np.int64) if opening is None else opening
        self._dial_search = DialSearch(len(votes), self._ask_policy)
        self._granted = BatchWave(*(np.zeros(0, dtype=np.int64) for _ in range(3)))  # the latest planned wave
        # number of samples that each request in the latest wave should have once the wave is drawn
        self._expected: Ints = np.zeros(0, dtype=np.int64)
        self.dial = None if policy.dial is None else highest_dial(policy)
        self.number = 0  # number of waves so far

    @property
    def room(self) -> int:
        """Estimated number of samples that the budget still pays for."""
        return max(0, self._find_room())

    @property
    def price(self) -> float | None:
        """The lowest price so far at which requests got more samples; None if the policy has no price.

        Before that, a price at which at least one request continues, but as few as possible, or None.
        """
        if self.dial is None or self.dial < highest_dial(self._policy):
            return self.dial
        return self._dial_search.find_highest(self.dial, 1)

    @property
    def unfinished(self) -> int:
        """How many requests the policy would continue at the current price if the budget weren't spent."""
        rows = np.flatnonzero(self._dial_search.active)
        if self.dial is None:
            return int((self._ask_policy(rows, None) > 0).sum())
        return int(self._dial_search.find_continuing(self.dial).sum())

    def plan_first(self) -> BatchWave:
        """Plans the first wave, for requests without samples."""
        rows = np.arange(len(self._votes))
        requested = np.where(self._votes.drawn == 0, self._opening, 0)
        return self._grant(rows, np.minimum(requested, self._votes.count_left(rows)), np.zeros(len(rows)))

    def begin(self, policy: Policy) -> None:
        """Replaces the policy by a copy fitted to this batch; called once the stored votes are counted."""
        self._policy = policy
        self._dial_search = DialSearch(len(self._votes), self._ask_policy)

    def plan_next(self, width: int) -> BatchWave | None:
        """Plans a wave for `width` parallel calls; None if the budget is spent or no request continues."""
        if not self.room:
            return None
        rows, requested = self._find_continuing(width)
        wave = self._grant(rows, requested, self._dial_search.low[rows])
        return wave if len(wave.rows) else None

    def record_wave(self) -> list[tuple[int, int]]:
        """Returns (row, index of the source) of each request that lacks samples planned in the latest wave.

        Also forgets the price bounds of the wave's requests, because their votes have changed.
        """
        wave = self._granted
        self._dial_search.forget(wave.rows)
        short = self._votes.drawn_by_mode[wave.rows, wave.modes] < self._expected
        self._settle_short(wave.rows[short])
        return list(zip(wave.rows[short].tolist(), wave.modes[short].tolist(), strict=True))

    def _settle_short(self, rows: Rows) -> None:
        """Stops requests that got fewer samples than planned."""
        self._dial_search.active[rows] = False

    def leave_out(self, row: int, mode: int) -> None:
        """Does nothing: with one source, `_settle_short` stops the requests that failed."""

    def mark_unpaid(self, mode: int) -> None:
        """Does nothing: with one source, `find_room` says how many samples the money pays for."""

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
        """Asks the policy how many more samples it wants for some requests at a price."""
        own = self._policy.spread_dial(dial, self._places[rows])
        counts = self._policy.decide(self._reading[rows], self._votes.state(rows), own).counts
        return np.minimum(counts, self._votes.count_left(rows))

    def _count_least(self, width: int) -> int:
        """Returns the minimum number of requests in the next wave, at least 1.

        This is how many requests the budget can continue from one sample to the maximum. If `width`, the
        number of parallel calls, is larger, it applies instead, up to 1/4 of the samples that the budget
        still pays for.
        """
        return max(1, self.room // max(1, self._policy.longest - 1), min(width, self.room // _WAVE_DIVISOR))

    def _find_continuing(self, width: int) -> tuple[Rows, Ints]:
        """Finds the requests of the next wave, and the number of samples that the policy wants for each."""
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
            # the policy `esc` may stop a request at this threshold although it continues it at a higher one
            self._dial_search.mark_stopped(rows, dial)
        return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.int64)


def highest_dial(policy: Policy) -> float:
    """Returns a policy's highest price or threshold, at which it draws the smallest number of samples."""
    return 1.0 if policy.dial == "threshold" else 1e12


def split_room(requested: Ints, room: int, *, empty: Bools, rank: Floats) -> Ints:
    """Divides `room` samples among requests; with enough room, each gets what it requested.

    Otherwise the requests marked in `empty` (without samples) first get one each, in order. The rest goes to
    those with the highest `rank`.
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
    """Plans the waves of a batch over several modes. A wave has one sample per request.

    Requests begin in groups. A group begins at the lowest price at which the remaining money is expected to
    pay for all requests that haven't begun yet, given the costs measured so far. A request keeps its price
    until it stops: at another price, the policy often wouldn't have drawn the request's samples. Once all
    requests have stopped, the price falls until the rest of the money is spent.
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
        """`budget` is money per request; `find_costs` returns the cost per sample of each mode."""
        super().__init__(policy, votes, reading, find_room=self._count_room)
        self._budget = budget
        self._find_money = find_money
        self._find_costs = find_costs
        # which modes failed for each request; shape (requests, modes)
        self._failed = np.zeros((len(votes), len(policy.names)), dtype=np.bool_)
        # which modes are too expensive for the remaining money
        self._unpaid = np.zeros(len(policy.names), dtype=np.bool_)
        self.dial = None  # upper bound for all prices once all requests have stopped; None before
        self.prices = np.full(len(votes), np.nan)  # price of each request; NaN before it begins

    @property
    def price(self) -> float | None:
        """The current price of the batch."""
        if self.dial is not None or np.isnan(self.prices).all():
            return self.dial
        return float(np.nanmin(self.prices))

    @property
    def unfinished(self) -> int:
        """How many requests the policy would continue at the current price if there were more money."""
        rows = np.flatnonzero(~self._failed.all(axis=1) & ~np.isnan(self.prices))
        return int((self._choose(rows, paid=False) != STOP).sum()) if len(rows) else 0

    def begin(self, policy: Policy) -> None:  # noqa: ARG002 - it stays as it is
        """Sets the price of requests that have samples from an earlier run."""
        stored = np.flatnonzero(self._votes.drawn > 0)
        self.prices[stored] = self._policy.find_price(self._budget / self._find_scale())

    def plan_next(self, width: int) -> BatchWave | None:
        """Plans the next wave; None if the money is spent or no request continues at any price."""
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
        if not len(granted):  # try one request: the cost budget decides whether it can be paid for
            granted = np.zeros(1, dtype=np.intp)
        return self._record_grant(
            BatchWave(rows[granted], np.ones(len(granted), dtype=np.int64), modes[granted])
        )

    def mark_unpaid(self, mode: int) -> None:
        """Records that the remaining money can't pay for a sample from this mode."""
        if not self._unpaid[mode]:
            self._unpaid[mode] = True
            active = self._dial_search.active
            self._dial_search = DialSearch(len(self._votes), self._ask_policy)
            self._dial_search.active = active

    def _settle_short(self, rows: Rows) -> None:
        """Does nothing: another mode may replace the one that failed."""

    def leave_out(self, row: int, mode: int) -> None:
        """Records that a mode failed for a request, so that the request doesn't use it again in this run."""
        self._failed[row, mode] = True
        self._dial_search.active[row] = not self._failed[row].all()

    def _list_continuing(self) -> tuple[Rows, Ints]:
        """Lists the requests that continue at their prices, and the mode of each."""
        rows = np.flatnonzero(self._dial_search.active & ~np.isnan(self.prices))
        modes = self._choose(rows)
        return rows[modes != STOP], modes[modes != STOP]

    def _choose(self, rows: Rows, *, paid: bool = True) -> Ints:
        """Chooses a mode or STOP for each of these requests, at its own price or at `dial` if that is lower.

        If `paid` is false, modes that are too expensive for the remaining money may be chosen too.
        """
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
                wanted[place] = STOP  # the mode works, but the remaining money isn't enough for it
            else:
                wanted[place] = self._find_substitute(row, own, mode, usable[place], prices[place])
        return wanted

    def _find_substitute(self, row: int, votes: VotesByMode, wanted: int, usable: Bools, price: float) -> int:
        """Finds another mode for a request that can't use the wanted one; returns STOP if none is suitable.

        Tries the next cheaper mode or, if there is none and the request has no votes, the next more expensive
        one. A mode is suitable if the request has no sample of it, or if a further sample is worth its cost.
        """
        # modes cheaper than the most expensive one that has votes aren't used, because they could outvote it
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
        """Begins `count` requests, at a price that lets the money last for all requests that haven't begun.

        The first group is smaller, because it serves to measure costs.
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
        # if the begun requests' expected cost exceeds this, measured costs count more than learned ones
        trial = _TRIAL_REQUESTS * self._budget
        hardness = (float((paid + to_come).sum()) + trial) / (float(expected.sum()) + trial)
        each = (_PACED_SHARE * self._find_money() - float(to_come.sum())) / len(waiting)
        price = self._policy.find_price(each / (hardness * self._find_scale()))
        self.prices[waiting[:count]] = price

    def _find_scale(self) -> float:
        """Returns the ratio of measured costs to those that the policy learned; geometric mean over modes."""
        costs, learned = self._find_costs(), self._policy.costs
        known = (learned > 0) & (costs > 0)
        if (measured := known & (self._votes.drawn_by_mode.sum(axis=0) > 0)).any():
            known = measured
        return float(np.exp(np.log(costs[known] / learned[known]).mean())) if known.any() else 1.0

    def _lower_price(self, width: int) -> tuple[Rows, Ints]:
        """Lowers the price until some requests continue; returns them with their modes.

        Returns none if a mode is too expensive for the remaining money: at a lower price, the requests that
        need that mode would only get samples of other modes.
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
            # the policy may stop a request at this price although it continues it at a higher one
            self._dial_search.mark_stopped(np.flatnonzero(self._dial_search.find_continuing(lower)), lower)
        return np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.int64)

    def _grant_money(self, rows: Rows, modes: Ints) -> Rows:
        """Returns the positions in `rows` of the requests whose next sample the money can probably pay for.

        Reserves the average budget for each request that hasn't begun, so that all requests get samples.
        """
        costs, waiting = self._find_costs(), int(np.isnan(self.prices).sum())
        left = self._find_money() - waiting * self._budget
        empty = self._votes.drawn[rows] == 0
        granted = []
        for place in np.lexsort((rows, ~empty)).tolist():  # grant requests without a sample first
            if (cost := float(costs[modes[place]])) <= left:
                granted.append(place)
                left -= cost
        return np.array(granted, dtype=np.intp)

    def _ask_policy(self, rows: Rows, dial: float | None) -> Ints:
        """Returns 1 for each request that continues at this price or its own, whichever is lower; else 0."""
        assert dial is not None
        last, self.dial = self.dial, dial
        wanted = self._choose(rows)
        self.dial = last
        return np.asarray((wanted != STOP).astype(np.int64))

    def _count_room(self) -> int:
        """Estimates how many samples the remaining money pays for, at the mean cost so far."""
        costs, drawn = self._find_costs(), self._votes.drawn_by_mode.sum(axis=0)
        shares = drawn / drawn.sum() if drawn.sum() else np.eye(len(costs))[0]
        mean = float(costs @ shares)
        money = max(0.0, self._find_money())
        return int(money / mean) if mean > 0 else len(self._votes)
