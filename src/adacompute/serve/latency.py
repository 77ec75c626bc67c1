"""Latency mode: asks early for what is late, so that a quantile of the time of voted requests meets a target.

Off unless the operator states a target (`serve --latency p95=4s`). In this order:

- `TimeDistribution`: how long samples, or requests, take. Samples that were cancelled count as longer than
  the time they had (the Kaplan-Meier estimate), or the slow ones would vanish from the measure.
- `LatencyControl`, one for a gateway: the target, what was measured, and when a wave is late. A wave is late
  after the time that a share of samples exceeds. Each request that misses the target raises that share, each
  one that meets it lowers it a little, and they balance where the quantile is the target: so no more is
  hedged than the target needs.
- `HedgedSampleLoop`, one for a request, with `HedgedWaves`, its waves under way. Where a wave is late, it
  asks for more, once for each decision of the policy: for what the policy will very likely want next, else
  for the samples that are late, again. Whichever come first are counted, and what is still under way serves
  the policy's next decision. At the end the rest is cancelled, and counts as any cancelled sample does.

What was measured goes on over a restart (`LatencyControl.state`); what was hedged is counted from the start.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, get_args

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from adacompute.answers import Tally
from adacompute.client import DrawFailure, DrawSuccess, Response
from adacompute.errors import CapReached, ConfigError, EndpointTimeout, LedgerUnavailable
from adacompute.policies.base import Draw, Floats, Policy, VoteState
from adacompute.serve.ledger import NO_SPEND, Spend, Unit, WaveReservation
from adacompute.serve.reply import HedgeUse, RequestOutcome, read_server_info
from adacompute.serve.sample_loop import SampleLoop, SampleSource

__all__ = ["HedgedSampleLoop", "HedgedWaves", "LatencyControl", "TimeDistribution", "predict_draw"]

_log = logging.getLogger("adacompute.serve")
_UNITS: tuple[Unit, ...] = get_args(Unit)

_SHORTEST, _RATIO, _BUCKETS = 0.001, 1.1, 164  # seconds of the first bucket; up to 1.7 hours
_HALVED_AFTER = 1_000  # times, after which those before count half
_REFRESHED_AFTER = 16  # times, after which quantiles are computed anew

_MIN_SAMPLES = 20  # of a mode: before these, a wave is late after half the target
_MIN_REQUESTS = 100  # before these, nothing is said about the target
_STEP = 0.2  # of the logarithm of the share that is late, for a request that misses the target
_FEW_UNDER_WAY = 16  # requests: with more, steps are smaller, because what a step does is seen later
_MIN_SHARE = 0.005
_MAX_AGAIN = 0.5  # samples are asked for again no earlier than half of them take
_LIKELY = 0.75  # probability from which a next wave is drawn early
_MAX_ENUMERATED = 16  # samples of a wave whose answers are enumerated
_MIN_DECISIONS, _DECISION_WEIGHT = 10, 0.98  # that a share needs; what an earlier one counts for a later one
_MAX_DECISIONS = 1_024  # states that shares are kept of
_AIM = 0.8  # of the requests that may miss the target, those that do at rest: some room for chance
_CHECKED_AFTER = 25  # requests, after which it is checked whether the target can be met
_OWN_MARGIN = 1.5  # times the quickest sample of a request, before which no other of it is late
_NEAR = 1.05  # times the target that count as met
_SURE = 1.25  # times the chance that is allowed, from which a target is out of reach
_MAX_OUT_OF_REACH = 0.2  # of samples that are taken for late while it is


class TimeDistribution:
    """Seconds that something took, in buckets 10% wide; the last 2,000 or so count.

    >>> times = TimeDistribution()
    >>> for seconds in (1.0, 1.0, 1.0, 9.0):
    ...     times.add(seconds)
    >>> round(times.find_quantile(0.75)), times.find_share_above(2.0)
    (1, 0.25)
    """

    def __init__(self) -> None:
        self.count = 0
        self._ended = [0.0] * _BUCKETS
        self._cut_off = [0.0] * _BUCKETS
        self._above: list[float] = []  # share that takes longer than each bucket
        self._computed_at = 0

    def add(self, seconds: float, *, has_ended: bool = True) -> None:
        """Adds one; where it was cut off, it would have taken longer."""
        (self._ended if has_ended else self._cut_off)[_find_bucket(seconds)] += 1.0
        self.count += 1
        if self.count % _HALVED_AFTER == 0:
            self._ended = [weight / 2 for weight in self._ended]
            self._cut_off = [weight / 2 for weight in self._cut_off]

    def state(self) -> dict[str, Any]:
        """Plain data for `restore`: weights by bucket."""
        return {
            "count": self.count,
            "ended": {str(bucket): weight for bucket, weight in enumerate(self._ended) if weight},
            "cut_off": {str(bucket): weight for bucket, weight in enumerate(self._cut_off) if weight},
        }

    @classmethod
    def restore(cls, state: object) -> "TimeDistribution":
        """The one of a `state`; ConfigError if it is invalid."""
        times, parts = cls(), _read_mapping(state)
        times.count = int(_read_number(parts.get("count"), most=2**53))
        for name, weights in (("ended", times._ended), ("cut_off", times._cut_off)):
            for bucket, weight in _read_mapping(parts.get(name)).items():
                weights[int(_read_number(bucket, most=_BUCKETS - 1))] = _read_number(weight)
        return times

    def find_quantile(self, share: float) -> float:
        """The seconds that this share of them takes at most; of none yet, 0."""
        before, last, wanted = 1.0, 0, 1.0 - share
        for bucket, left in enumerate(self._compute_above()):
            if left <= wanted + 1e-9 and left < before:
                part = (before - wanted) / (before - left)  # of the bucket, in which times lie evenly
                return _find_end(bucket - 1 + min(1.0, part))
            if self._ended[bucket] or self._cut_off[bucket]:
                last = bucket
            before = left
        return _find_end(last) if self.count else 0.0  # the longest were all cut off

    def find_share_above(self, seconds: float) -> float:
        """The share that takes longer."""
        return self._compute_above()[_find_bucket(seconds)] if seconds > 0 else 1.0

    def _compute_above(self) -> list[float]:
        if self._above and self.count - self._computed_at < _REFRESHED_AFTER:
            return self._above
        at_risk = list(accumulate(reversed([a + b for a, b in zip(self._ended, self._cut_off, strict=True)])))
        left, self._above = 1.0, []
        for ended, risk in zip(self._ended, reversed(at_risk), strict=True):
            left *= 1.0 - ended / risk if risk > 0 else 1.0
            self._above.append(left)
        self._computed_at = self.count
        return self._above


def _find_bucket(seconds: float) -> int:
    if seconds <= _SHORTEST:
        return 0
    return min(_BUCKETS - 1, math.ceil(math.log(seconds / _SHORTEST) / math.log(_RATIO)))


def _find_end(bucket: float) -> float:
    return float(_SHORTEST * _RATIO**bucket)


def _read_mapping(value: object) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    raise ConfigError(f"a stored time has {value!r:.40} in place of a table")


def _read_number(value: object, most: float = 1e9) -> float:
    """A number of a stored state, or its text; ConfigError if it is negative, too large or none."""
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not 0 <= number <= most:
        raise ConfigError(f"a stored time has {value!r:.40} in place of a number from 0 to {most:g}")
    return number


class _NextCounts:
    """How many samples the policy asked for after a certain wave, each with its share; lately."""

    __slots__ = ("_total", "_weights")

    def __init__(self) -> None:
        self._weights: dict[int, float] = {}  # by count; 0: it stopped
        self._total = 0.0

    def add(self, count: int) -> None:
        """Adds a decision."""
        for known in self._weights:
            self._weights[known] *= _DECISION_WEIGHT
        self._weights[count] = self._weights.get(count, 0.0) + 1.0
        self._total = self._total * _DECISION_WEIGHT + 1.0

    def state(self) -> dict[str, float]:
        """Plain data for `restore`."""
        return {str(count): weight for count, weight in self._weights.items()}

    @classmethod
    def restore(cls, state: object) -> "_NextCounts":
        """The one of a `state`; ConfigError if it is invalid."""
        counts = cls()
        weights = _read_mapping(state).items()
        counts._weights = {int(_read_number(count)): _read_number(weight) for count, weight in weights}
        counts._total = sum(counts._weights.values())
        return counts

    def predict(self) -> int:
        """The count that is asked for most often, if some very likely are; else 0."""
        if self._total < _MIN_DECISIONS * _DECISION_WEIGHT**_MIN_DECISIONS:
            return 0
        going_on = {count: weight for count, weight in self._weights.items() if count}
        if sum(going_on.values()) < _LIKELY * self._total:
            return 0
        return max(going_on, key=lambda count: going_on[count])


def predict_draw(policy: Policy, reading: Floats, tally: Tally, dial: float | None, wave: int) -> int:
    """How many samples a policy will very likely ask for once a wave of so many has come; 0: it may stop.

    The policy itself decides on what the wave may bring, in numbers of samples that agree with the leader,
    with the runner-up and with neither. Their probabilities are those of an urn that holds the votes so far
    and one for an answer that is new, and gains one of the kind that is drawn.
    """
    if not 1 <= wave <= _MAX_ENUMERATED:
        return 0
    cases = [(a, b, wave - a - b) for a in range(wave + 1) for b in range(wave + 1 - a)]
    weights = (tally.first, tally.second, tally.answered - tally.first - tally.second + 1)
    chances = [_compute_chance(case, weights) for case in cases]
    likely = [k for k, chance in enumerate(chances) if chance > 0]
    state = _imagine_votes(tally, [cases[k] for k in likely])
    counts = policy.decide(np.repeat(reading, len(likely), axis=0), state, dial).tolist()
    going_on: dict[int, float] = {}
    for k, count in zip(likely, counts, strict=True):
        if count > 0:
            going_on[count] = going_on.get(count, 0.0) + chances[k]
    if sum(going_on.values()) < _LIKELY:
        return 0
    return max(going_on, key=lambda count: going_on[count])


def _compute_chance(case: Sequence[int], weights: Sequence[int]) -> float:
    """The chance of drawing these numbers of each kind from an urn that gains one of each kind drawn."""
    chance, drawn, total = 1.0, 0, sum(weights)
    for count, weight in zip(case, weights, strict=True):
        for k in range(count):
            chance *= (weight + k) / (total + drawn) * (drawn + 1) / (k + 1)
            drawn += 1
    return chance


def _imagine_votes(tally: Tally, cases: Sequence[tuple[int, int, int]]) -> VoteState:
    """The votes after each case, with votes of average weight; answers that are new are all different."""
    counts, weights = [], []
    for leader, runner, new in cases:
        wave = leader + runner + new
        first, second = tally.first + leader, max(tally.second + runner, min(1, new))
        lead, behind = tally.lead + leader, max(tally.runner + runner, float(min(1, new)))
        if first == 0:  # nothing had an answer
            first, second, lead, behind = second, int(new > 1), behind, float(new > 1)
        elif behind > lead:
            first, second, lead, behind = second, first, behind, lead
        run = 1
        if leader == wave and tally.first:
            run = wave + (tally.run if tally.kinds == 1 else 0)
        elif runner == wave and tally.second:
            run = wave
        counts.append((tally.drawn + wave, tally.answered + wave, first, second, tally.kinds + new, run))
        weights.append((lead, behind, tally.total + wave))
    drawn, answered, first_votes, second_votes, kinds, runs = np.array(counts, dtype=np.int64).T
    leads, runners, totals = np.array(weights, dtype=np.float64).T
    entropy = np.full(len(cases), np.nan if tally.entropy is None else tally.entropy)
    return VoteState(
        drawn=drawn,
        answered=answered,
        first=first_votes,
        second=second_votes,
        kinds=kinds,
        run=runs,
        lead=leads,
        runner=runners,
        total=totals,
        entropy=entropy,
    )


_Decision = tuple[str, str, int]  # a policy's name, the mode of a wave, and the samples that came before it


class LatencyControl:
    """The target of a gateway, what it measures, and when a wave is late. A collector of Prometheus."""

    def __init__(self, quantile: float, seconds: float) -> None:
        """The quantile is 0 to 1, e.g. 0.95; it is to be so many seconds."""
        self.quantile = quantile
        self.seconds = seconds
        self.share = _MIN_SHARE  # of samples that are taken for late
        self.under_way = 0  # requests
        self.hedged_requests = self.hedged_samples = self.unused_samples = 0
        self.hedged_cost = dict.fromkeys(_UNITS, 0.0)
        self._requests = TimeDistribution()
        self._samples: dict[str, TimeDistribution] = {}  # by mode; "" where there is no menu
        self._decisions: dict[_Decision, _NextCounts] = {}
        self._obstacle = ""  # why the target can't be met, in words; "": nothing is known against it
        self._at_most = 0  # checks in a row at the highest share, and the target missed
        self._has_warned = False

    @property
    def name(self) -> str:
        """Of the quantile, e.g. "p95"."""
        return f"p{100 * self.quantile:g}"

    def add_sample(self, mode: str, seconds: float, *, has_ended: bool = True) -> None:
        """Adds the time of a sample, or how long one was waited for that was cancelled."""
        times = self._samples.get(mode)
        if times is None:
            times = self._samples[mode] = TimeDistribution()
        times.add(seconds, has_ended=has_ended)

    def find_delays(self, mode: str) -> tuple[float, float]:
        """Seconds after which a wave is late: so that the next is drawn early, and that it is asked again."""
        times, half = self._samples.get(mode), self.seconds / 2
        if times is None or times.count < _MIN_SAMPLES:
            return half, half
        again = times.find_quantile(1.0 - min(self.share, _MAX_AGAIN))
        if self.share <= _MIN_SHARE:  # the target is met without hedging
            again = max(again, half)
        if self.share <= _MAX_AGAIN:
            return again, again
        return (0.0 if self.share >= 1.0 else times.find_quantile(1.0 - self.share)), again

    def add_decision(self, decision: _Decision, count: int) -> None:
        """Adds how many samples of the same mode a policy asked for after a wave; 0: none."""
        if decision not in self._decisions:
            if len(self._decisions) >= _MAX_DECISIONS:
                return
            self._decisions[decision] = _NextCounts()
        self._decisions[decision].add(count)

    def predict_next(self, decision: _Decision) -> int:
        """How many samples are very likely asked for after such a wave, by earlier requests; 0: none."""
        known = self._decisions.get(decision)
        return 0 if known is None else known.predict()

    def add_request(self, outcome: RequestOutcome) -> None:
        """Learns from a request that has ended, if the policy decided it."""
        use = outcome.hedged
        if use.samples:
            self.hedged_requests += 1
            self.hedged_samples += use.samples
            self.unused_samples += use.unused
            for unit in _UNITS:
                self.hedged_cost[unit] += outcome.compute_hedge_cost(unit)
        if not outcome.counts_as_voted or outcome.explored or outcome.status not in (200, 504):
            return
        self._requests.add(outcome.seconds)
        missed = outcome.seconds > self.seconds or outcome.status != 200
        self._move_share(missed=missed)
        if self._requests.count % _CHECKED_AFTER == 0:
            self._check_target()

    def _move_share(self, *, missed: bool) -> None:
        """One step: at rest, nearly as many requests miss the target as the quantile allows."""
        highest = _MAX_OUT_OF_REACH if self._obstacle and not self._at_most else 1.0
        step = _STEP * (missed - _AIM * (1.0 - self.quantile)) / max(1.0, self.under_way / _FEW_UNDER_WAY)
        self.share = max(_MIN_SHARE, min(highest, self.share * math.exp(step)))

    @property
    def measured(self) -> float:
        """The quantile of the time of voted requests, in seconds; 0 before the first."""
        return self._requests.find_quantile(self.quantile)

    def _check_target(self) -> None:
        if self._requests.count < _MIN_REQUESTS:
            return
        is_met = self.measured <= _NEAR * self.seconds
        self._at_most = self._at_most + 1 if self.share >= 1.0 and not is_met else 0
        obstacle = "" if is_met else self._find_obstacle()
        if obstacle and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "latency: the target %s=%gs can't be met: %s; give a longer time",
                self.name,
                self.seconds,
                obstacle,
            )
        self._obstacle = obstacle

    def _find_obstacle(self) -> str:
        """Why the target can't be met; "": nothing is known against it."""
        if self._at_most >= _MIN_REQUESTS // _CHECKED_AFTER:
            return f"requests take {self.measured:.3g} s, though waves are drawn as early as may be"
        allowed, seconds = 1.0 - self.quantile, self.seconds
        slow = []
        for times in self._samples.values():
            if times.count < _MIN_REQUESTS:
                return ""
            median = times.find_quantile(0.5)
            chance = times.find_share_above(seconds) * times.find_share_above(seconds - median)
            if chance <= (allowed if self._obstacle else _SURE * allowed):  # asked again at the median
                return ""
            slow.append(times.find_quantile(self.quantile))
        return f"one sample takes {min(slow):.3g} s at {self.name}" if slow else ""

    def state(self) -> dict[str, Any]:
        """What was measured, as plain data for `restore`."""
        return {
            "target": [self.quantile, self.seconds],
            "share": self.share,
            "requests": self._requests.state(),
            "samples": {mode: times.state() for mode, times in self._samples.items()},
            "decisions": [[*decision, counts.state()] for decision, counts in self._decisions.items()],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from a `state`, whole or not at all; ConfigError if it is invalid.

        How long requests took, and the share that is late, are of the target then: with another one they
        start again.
        """
        samples = {
            str(mode): TimeDistribution.restore(times)
            for mode, times in _read_mapping(state.get("samples")).items()
        }
        decisions = {}
        stored = state.get("decisions")
        for row in stored[:_MAX_DECISIONS] if isinstance(stored, list) else (stored,):
            match row:
                case [str(policy), str(mode), int(drawn), counts]:
                    decisions[policy, mode, drawn] = _NextCounts.restore(counts)
                case _:
                    raise ConfigError(f"a stored time has {row!r:.40} in place of a decision")
        requests = TimeDistribution.restore(state.get("requests"))
        share = _read_number(state.get("share"), most=1.0)
        self._samples, self._decisions = samples, decisions
        if state.get("target") == [self.quantile, self.seconds]:
            self._requests, self.share = requests, max(_MIN_SHARE, share)
            self._check_target()

    @property
    def standing(self) -> str:
        """How it stands: "measuring", "met", "missed" (hedging is still being adjusted) or "out of reach"."""
        if self._requests.count < _MIN_REQUESTS:
            return "measuring"
        if self._obstacle:
            return "out of reach"
        return "met" if self.measured <= _NEAR * self.seconds else "missed"

    def describe_status(self) -> dict[str, Any]:
        """What the dashboard shows, as JSON data."""
        return {
            "name": self.name,
            "seconds": self.seconds,
            "measured": self.measured if self._requests.count else None,
            "requests": self._requests.count,
            "state": self.standing,
            "why": self._obstacle,
            "hedged_requests": self.hedged_requests,
            "hedged_samples": self.hedged_samples,
            "unused_samples": self.unused_samples,
            "cost": dict(self.hedged_cost),
        }

    def collect(self) -> Iterator[Metric]:
        """The metrics of latency mode, for Prometheus."""
        quantile = [f"{self.quantile:g}"]
        gauges: Mapping[str, tuple[str, float]] = {
            "target_seconds": ("What the quantile of voted requests is to be", self.seconds),
            "seconds": ("What it is, of the last 2,000 or so", self.measured),
        }
        for name, (meaning, value) in gauges.items():
            gauge = GaugeMetricFamily(f"adacompute_latency_{name}", meaning, labels=["quantile"])
            gauge.add_metric(quantile, value)
            yield gauge
        reach = GaugeMetricFamily("adacompute_latency_out_of_reach", "1: the target can't be met")
        reach.add_metric([], float(bool(self._obstacle)))
        yield reach
        delays = GaugeMetricFamily(
            "adacompute_latency_hedge_seconds", "After which a sample is asked for again", labels=["mode"]
        )
        for mode in self._samples:
            delays.add_metric([mode], self.find_delays(mode)[1])
        yield delays
        for name, (meaning, total) in {
            "hedged_requests": ("Requests that were hedged", self.hedged_requests),
            "hedged_samples": ("Samples asked for by hedging", self.hedged_samples),
            "unused_samples": ("Samples of hedged requests that came too late", self.unused_samples),
        }.items():
            counter = CounterMetricFamily(f"adacompute_latency_{name}", meaning)
            counter.add_metric([], total)
            yield counter
        costs = CounterMetricFamily(
            "adacompute_latency_hedged_cost", "What samples asked for by hedging cost", labels=["unit"]
        )
        for unit in _UNITS:
            costs.add_metric([unit], self.hedged_cost[unit])
        yield costs


@dataclass(slots=True, eq=False)
class WaveFlight:
    """A wave under way: what came of it that isn't counted yet, and what may still come."""

    mode: str  # "": there is no menu
    wave: WaveReservation
    first: int  # index of its first sample
    began: float
    is_hedge: bool = False
    open: int = 0  # samples that may still come
    responses: dict[int, Response] = field(default_factory=dict)  # by index
    failures: list[DrawFailure] = field(default_factory=list)
    spent: Spend = NO_SPEND
    maybe: Spend = NO_SPEND
    task: "asyncio.Task[None] | None" = None

    def add(self, outcome: DrawSuccess | DrawFailure) -> None:
        """Adds what one call gave."""
        if isinstance(outcome, DrawFailure):
            self.failures.append(outcome)
            self.open -= outcome.count
            self.wave.note_failure(outcome.error, outcome.calls, outcome.count)
        else:
            self.responses.update(enumerate(outcome.responses, outcome.first))
            self.open -= len(outcome.responses)


class HedgedWaves:
    """The waves of one request that are under way."""

    def __init__(
        self,
        control: LatencyControl,
        *,
        policy: str,
        reserve: Callable[[str, int], Awaitable[WaveReservation | None]],
        fetch: Callable[[WaveFlight], Awaitable[None]],
        predict: Callable[[str, int], int],
    ) -> None:
        """`policy` is its name.

        `reserve(mode, count)` is the reservation of a hedge, or None. `fetch` draws a wave, calls `note` with
        what comes, and settles it. `predict(mode, count)` says how many samples are very likely wanted after
        a wave of so many.
        """
        self.use = HedgeUse()
        self._control = control
        self._policy = policy
        self._reserve, self._fetch, self._predict = reserve, fetch, predict
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._flights: list[WaveFlight] = []
        self._next_index: dict[str, int] = {}  # by mode
        self._fastest: dict[str, float] = {}  # seconds of a sample that came, by mode
        self._decision: _Decision | None = None  # the last wave, until it is known what the policy did next
        self._error: BaseException | None = None

    @property
    def open(self) -> int:
        """Samples that may still come."""
        return sum(flight.open for flight in self._flights)

    def count_ready(self, mode: str) -> int:
        """Samples of a mode that came and aren't counted, or are under way and not late yet."""
        in_time = sum(flight.open for flight in self._list_in_time(mode))
        return self._count_arrived(mode) + in_time

    def launch(self, mode: str, wave: WaveReservation, *, first: int, is_hedge: bool = False) -> None:
        """Sends a wave that is reserved; its samples are numbered from `first`, or after those under way."""
        first = max(first, self._next_index.get(mode, 0))
        self._next_index[mode] = first + wave.count
        flight = WaveFlight(mode, wave, first, self._loop.time(), is_hedge, wave.count)
        self._flights.append(flight)
        flight.task = self._loop.create_task(self._run(flight))

    def note(self, flight: WaveFlight, outcome: DrawSuccess | DrawFailure) -> None:
        """Takes what one call of a wave gave."""
        flight.add(outcome)
        seconds = self._loop.time() - flight.began
        if isinstance(outcome, DrawSuccess):
            self._fastest[flight.mode] = min(seconds, self._fastest.get(flight.mode, seconds))
            for _ in outcome.responses:
                self._control.add_sample(flight.mode, seconds)
        elif isinstance(outcome.error, EndpointTimeout):
            self._control.add_sample(flight.mode, seconds, has_ended=False)
        self._changed.set()

    async def gather(self, mode: str, count: int, *, drawn: int) -> None:
        """Waits until so many samples of a mode came or nothing is under way; hedges once if that is late.

        `drawn` samples were counted before.
        """
        if self._decision is not None:
            self._control.add_decision(self._decision, count if self._decision[1] == mode else 0)
        self._decision = (self._policy, mode, drawn)
        began = min([flight.began for flight in self._list_in_time(mode)], default=self._loop.time())
        early, again = self._find_delays(mode)
        if not await self._wait(mode, count, began + early):
            wanted = self._predict(mode, count)
            if wanted or not await self._wait(mode, count, began + again):
                await self._hedge(mode, wanted or count - self._count_arrived(mode))
                await self._wait(mode, count, None)
        ended = [flight.task for flight in self._flights if not flight.open and flight.task is not None]
        if any(not task.done() for task in ended):
            await asyncio.wait(ended)  # so that what they cost is known
        if self._count_arrived(mode) != count:
            self._decision = None  # the policy decides on more, or on less, than it asked for
        if self._error is not None:
            raise self._error

    def predict_next(self, mode: str, drawn: int) -> int:
        """How many samples of a mode are very likely asked for after this wave, by earlier requests."""
        return self._control.predict_next((self._policy, mode, drawn))

    def take(self) -> list[tuple[WaveFlight, list[Response]]]:
        """The responses that came since the last time, by wave, in the order of their waves."""
        arrived = [(flight, flight.responses) for flight in self._flights if flight.responses]
        for flight, _ in arrived:
            flight.responses = {}
        return [(flight, [responses[index] for index in sorted(responses)]) for flight, responses in arrived]

    def list_ended(self, mode: str) -> list[WaveFlight]:
        """The waves of a mode of which nothing is under way, and which haven't been listed before."""
        ended = [f for f in self._flights if f.mode == mode and not f.open and not f.responses]
        self._flights = [flight for flight in self._flights if flight not in ended]
        return ended

    def count_unused(self, samples: int) -> None:
        """Counts samples that came and are not voted on."""
        self.use = replace(self.use, unused=self.use.unused + samples)

    async def drop(self, *, decided: bool = True) -> None:
        """Cancels what is still under way; `decided`: because the policy wants no more."""
        if decided and self._decision is not None:
            self._control.add_decision(self._decision, 0)
        self._decision = None
        flights, self._flights = self._flights, []
        now, tasks = self._loop.time(), []
        for flight in flights:
            self.count_unused(flight.open + len(flight.responses))
            for _ in range(flight.open):
                self._control.add_sample(flight.mode, now - flight.began, has_ended=False)
            if flight.task is not None and not flight.task.done():
                flight.task.cancel()
                tasks.append(flight.task)
        if tasks:
            await asyncio.wait(tasks)

    def _find_delays(self, mode: str) -> tuple[float, float]:
        """As of the gateway, but no earlier than this request's own samples come: long replies are slow."""
        early, again = self._control.find_delays(mode)
        own = _OWN_MARGIN * self._fastest.get(mode, 0.0)
        return max(early, own), max(again, own)

    def _list_in_time(self, mode: str) -> list[WaveFlight]:
        """The waves of a mode that are under way and not late yet."""
        late = self._loop.time() - self._find_delays(mode)[1]
        return [
            flight for flight in self._flights if flight.open and flight.mode == mode and flight.began > late
        ]

    async def _hedge(self, mode: str, count: int) -> None:
        """Asks for further samples, unless a cap or the ledger leaves no room for them."""
        wave = await self._reserve(mode, count) if count > 0 else None
        if wave is not None:
            self.launch(mode, wave, first=0, is_hedge=True)
            self.use = replace(self.use, samples=self.use.samples + wave.count)

    async def _wait(self, mode: str, count: int, until: float | None) -> bool:
        """Whether so many samples of a mode came, or no more can come, by then."""
        while not self._is_over(mode, count):
            self._changed.clear()
            try:
                async with asyncio.timeout_at(until):
                    await self._changed.wait()
            except TimeoutError:
                return self._is_over(mode, count)
        return True

    def _is_over(self, mode: str, count: int) -> bool:
        return self._count_arrived(mode) >= count or not any(
            flight.open for flight in self._flights if flight.mode == mode
        )

    def _count_arrived(self, mode: str) -> int:
        return sum(len(flight.responses) for flight in self._flights if flight.mode == mode)

    async def _run(self, flight: WaveFlight) -> None:
        try:
            await self._fetch(flight)
        except Exception as exc:  # noqa: BLE001 - raised where the request waits
            self._error = exc
        finally:
            flight.open = 0
            if flight.is_hedge:
                spent, maybe = self.use.spent + flight.spent, self.use.maybe + flight.maybe
                self.use = replace(self.use, spent=spent, maybe=maybe)
            self._changed.set()


class HedgedSampleLoop(SampleLoop):
    """The samples of one request, of which those that are late are asked for early, or again."""

    def __init__(self, *args: Any, latency: LatencyControl, **options: Any) -> None:  # noqa: ANN401 - as there
        super().__init__(*args, **options)
        self._latency = latency
        self._hedged_waves = HedgedWaves(
            latency,
            policy=self.served.name,
            reserve=self._reserve_hedge,
            fetch=self._fetch_flight,
            predict=self._predict_draw,
        )

    @property
    def hedged(self) -> HedgeUse:
        """What was asked for early, or again."""
        return self._hedged_waves.use

    async def run(self) -> None:
        """As of any request; what is under way at the end is cancelled."""
        decided = False
        self._latency.under_way += 1
        try:
            await super().run()
            decided = True
        finally:
            self._latency.under_way -= 1
            await self._hedged_waves.drop(decided=decided)

    @property
    def _may_hedge(self) -> bool:
        """Whether a wave may be hedged: the policy decides on it, and it isn't drawn to learn from."""
        learns = self._explore or self._exploring
        return self.has_vote and self.route.mode == "adaptive" and not learns and not self.route.is_single

    async def _draw_waves(self, draws: Sequence[Draw]) -> None:
        if not self._may_hedge:
            await super()._draw_waves(draws)
            return
        (draw,) = draws
        source, waves, wanted = self._get_source(draw), self._hedged_waves, draw.count
        if (lacking := wanted - waves.count_ready(source.name)) > 0:
            wave = await self._reserve_wave(source, lacking)
            wanted -= lacking - (0 if wave is None else wave.count)
            if wave is not None:
                waves.launch(source.name, wave, first=self._next_index(source))
        if wanted == 0:
            return
        began = self._loop.time()
        await waves.gather(source.name, wanted, drawn=len(self.responses))
        self._slowest = max(self._slowest, self._loop.time() - began)
        await self._count_arrived(source, wanted)

    async def _count_arrived(self, source: SampleSource, wanted: int) -> None:
        """Counts all that came; what the policy wanted beyond that has failed."""
        waves = self._hedged_waves
        self.waves += 1
        arrived = waves.take()
        received = sum(len(responses) for flight, responses in arrived if flight.mode == source.name)
        lost = max(0, wanted - received)
        for flight in waves.list_ended(source.name):
            for failure in flight.failures if lost else ():
                self._handle_failure(source, failure.error)
            if lost and flight.wave.refusal is not None:
                self._stop_at_cap(flight.wave.refusal, received=received)
                lost = max(0, lost - flight.wave.unsent)
        while arrived:
            for flight, responses in arrived:
                counted = responses[: self.served.policy.longest - len(self.responses)]
                waves.count_unused(len(responses) - len(counted))
                await self._count_votes(self._resources.sources[flight.mode], counted, len(counted))
            arrived = waves.take()  # what came meanwhile
        if lost:
            await self._count_votes(source, [], lost)

    async def _reserve_hedge(self, mode: str, count: int) -> WaveReservation | None:
        """The reservation of a hedge, of no more than the longest draw in all; None: there is no room."""
        count = min(count, self.served.policy.longest - self.hedged.samples)
        try:
            return await self._begin_wave(self._resources.sources[mode], count) if count > 0 else None
        except (CapReached, LedgerUnavailable):
            return None

    async def _fetch_flight(self, flight: WaveFlight) -> None:
        source = self._resources.sources[flight.mode]
        use = self._get_use(source)
        try:
            async with aclosing(self._open_draw(source, flight.wave, flight.first)) as drawing:
                async for outcome in drawing:
                    if isinstance(outcome, DrawSuccess):
                        use.server_info = use.server_info or read_server_info(outcome.body)
                    self._hedged_waves.note(flight, outcome)
        finally:
            flight.spent, flight.maybe = self._settle(source, flight.wave)

    def _predict_draw(self, mode: str, wave: int) -> int:
        """How many samples of a mode the policy will very likely want after a wave of so many; 0: none."""
        policy, tally, eligibility = self.served.policy, self.tally, self._resources.eligibility
        room = policy.longest - len(self.responses) - self._hedged_waves.open
        if room <= 0:
            return 0
        if not tally.drawn or self.served.menu is not None:
            count = self._hedged_waves.predict_next(mode, len(self.responses))
            if not tally.drawn and eligibility.is_doubtful(self.request):
                count = 0
        else:
            reading = policy.read([self.request.prompt]) if self._features is None else self._features
            count = eligibility.limit_wave(tally, predict_draw(policy, reading, tally, self.dial, wave))
        return min(room, count)
