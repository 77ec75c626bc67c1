"""The shared ledger as a queue in front of one Redis, and the same with leases of the cap held by replicas.

Knows nothing of prices. One server takes calls in the order in which they come; replicas call once a flush,
each in its own phase, with all that they have to say.
"""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Leased", "Queue", "answered", "fixed", "guided", "lease", "queue"]

Floats = npt.NDArray[np.float64]
_LONGEST = 16  # samples that a request may take


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """How busy Redis is, and what it adds to a wave."""

    load: float  # share of its one thread; above 1 the queue grows for ever
    calls: float  # a second
    added: float  # seconds from wanting a reservation to having it, mean
    late: float  # the same, of the slowest one in a hundred


def queue(
    *, replicas: int, reservations: float, flush: float, call: float, each: float, seconds: float, seed: int
) -> Queue:
    """`reservations` a second, settled too; a call takes `call` seconds, and `each` for each that is in it.

    A flush of 0: a call for each reservation, and one for each settlement.
    """
    rng = np.random.default_rng(seed)
    if flush:
        times = (rng.random((replicas, 1)) + np.arange(max(2, math.ceil(seconds / flush)))) * flush
        times = np.sort(times.ravel())
        inside = rng.poisson(reservations * flush / replicas, len(times))
        times, inside = times[inside > 0], inside[inside > 0]
        service = call + each * inside
    else:
        times = np.sort(rng.random(rng.poisson(2 * reservations * seconds)) * seconds)
        inside = np.ones(len(times), dtype=np.int64)
        service = np.full(len(times), call + each / 2)
    gone = service[:-1] - np.diff(times)
    total = np.concatenate([[0.0], np.cumsum(gone)])
    waits = total - np.minimum.accumulate(total)
    took = waits + service + flush / 2
    load = float(service.sum() / seconds)
    order = np.argsort(took)
    rank = np.searchsorted(np.cumsum(inside[order]), 0.99 * inside.sum())
    return Queue(
        load=load,
        calls=len(times) / seconds,
        added=float(np.average(took, weights=inside)),
        late=float(took[order][min(rank, len(took) - 1)]),
    )


def answered(
    *, replicas: int, reservations: float, call: float, each: float, seconds: float, seed: int
) -> Queue:
    """The same where a replica calls again as soon as its last call was answered, as the fleet's do.

    Batches grow while Redis is busy, so what is in a call waits for it, and for the one before.
    """
    rng = np.random.default_rng(seed)
    own = reservations / replicas
    free, work = 0.0, 0.0
    # a replica calls when it has something to say: the first thing comes after a while
    ready = [(float(at), replica) for replica, at in enumerate(rng.exponential(1 / own, replicas))]
    heapq.heapify(ready)
    asked = [now for now, _ in sorted(ready, key=lambda one: one[1])]  # when each began to gather
    took, inside = [], []
    while ready[0][0] < seconds:
        now, replica = heapq.heappop(ready)
        gathered = now - asked[replica]
        count = 1 + int(rng.poisson(own * gathered))
        service = call + each * count
        free = max(free, now) + service
        work += service
        took.append(gathered / 2 + free - now)
        inside.append(count)
        wait = float(rng.exponential(1 / own))
        heapq.heappush(ready, (max(free, now + wait), replica))
        asked[replica] = now + wait
    weights = np.asarray(inside, dtype=np.float64)
    order = np.argsort(took)
    rank = int(np.searchsorted(np.cumsum(weights[order]), 0.99 * weights.sum()))
    return Queue(
        load=min(work, free) / max(free, seconds),
        calls=len(took) / seconds,
        added=float(np.average(took, weights=weights)),
        late=float(np.asarray(took)[order][min(rank, len(took) - 1)]),
    )


Rule = Callable[[float, int], float]  # what is left of the cap, replicas -> samples to lease


def fixed(chunk: float) -> Rule:
    """Always so many."""
    return lambda *_: chunk


def guided(parts: float = 2.0, least: float = _LONGEST) -> Rule:
    """A part of what is left: half of a replica's even share, and a request's worth in the end."""
    return lambda left, replicas: max(left / (parts * replicas), least)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leased:
    """What leases of a cap cost, and what they keep from being spent."""

    calls: float  # to Redis a second, until the first refusal
    stranded: float  # share of the cap that is leased and unspent when somebody is first refused
    late: float  # seconds from the first refusal until 99% of the cap is spent
    held: float  # most that one replica held, as a share of the cap: what its death keeps back
    spent: float  # share of the cap, in the end


def lease(
    rule: Rule,
    *,
    replicas: int,
    cap: float,
    rate: float,
    costs: npt.NDArray[np.int64],
    tick: float = 0.02,
    skew: float = 0.0,
    seed: int = 0,
) -> Leased:
    """Requests spend from what their replica holds; it leases more where that isn't enough.

    `skew` is the spread of the logarithm of replicas' shares of the traffic.
    """
    rng = np.random.default_rng(seed)
    weights = np.exp(skew * rng.standard_normal(replicas))
    weights /= weights.sum()
    held, left, spent = np.zeros(replicas), cap, 0.0
    calls, most = 0, 0.0
    first: tuple[float, float, float] | None = None  # when, stranded, calls a second
    now = 0.0
    while (spent < 0.99 * cap or first is None) and now < 4 * cap / (rate * costs.mean()):
        now += tick
        count = int(rng.poisson(rate * tick))
        who = rng.choice(replicas, count, p=weights)
        need = np.bincount(who, weights=costs[rng.integers(0, len(costs), count)], minlength=replicas)
        for short in rng.permutation(np.flatnonzero(need > held)):
            while need[short] > held[short] and left > 0:
                got = min(rule(left, replicas), left)
                held[short] += got
                left -= got
                calls += 1
        most = max(most, float(held.max()))
        fits = np.minimum(need, held)
        if (need > fits).any() and first is None:
            first = (now, float(held.sum() - fits.sum()) / cap, calls / now)
        held -= fits
        spent += float(fits.sum())
    when, stranded, rate_of_calls = first or (now, 0.0, calls / now)
    return Leased(
        calls=rate_of_calls,
        stranded=stranded,
        late=now - when,
        held=most / cap,
        spent=spent / cap,
    )
