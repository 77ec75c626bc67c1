"""What is asked of the simulated fleet, and the numbers that it answers with. Knows nothing of pages.

All with one budget of 3 samples, priced stopping as it comes, and prices that begin where both recordings
together would cost the budget; traffic is of the easier one unless said. Twice the same seed is twice the
same numbers.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from adacompute.serve.pricing import pacer
from adacompute.serve.spending.redis_client import DEFAULT_TIMING
from studies.fleet.fleet import EASY, HARD, Fleet, Outcome, Service, simulate
from studies.fleet.pacemaker import group_for
from studies.fleet.single import simulate_singly
from studies.fleet.traffic import Floats, mixed_cost, price_for, recorded, row_of

__all__ = [
    "drift",
    "held",
    "independent",
    "loss",
    "memory",
    "saturation",
    "service_of",
    "stale",
]

BUDGET = 3.0
FLYING = 16  # groups in flight that the pacer is shown
WAVES = 3.0  # of a request, at the budget
MEAN = WAVES * math.exp(0.5**2 / 2)  # seconds that a request takes at the upstream
_AT = 120.0  # seconds, when something happens
_LONG = 60.0  # seconds that it lasts

Numbers = dict[str, Any]


def service_of(measured: Numbers) -> Service:
    """Measured times, in seconds."""
    first, more = (measured["gateway"][name] / 1000 for name in ("first_wave_ms", "further_wave_ms"))
    return Service(request=first - more, wave=more, settle=measured["settle_us"] / 1e6)


def fleet_of(rate: float, seconds: float, *, each: bool = False, **other: Any) -> Fleet:  # noqa: ANN401
    """A fleet with the pacemaker told of every request, or of groups."""
    group = 1 if each else group_for(rate, MEAN, FLYING)
    start = price_for({EASY: 0.5, HARD: 0.5}, BUDGET)
    gateways = other.pop("gateways", max(1, round(rate / 100)))
    poll = other.pop("poll", DEFAULT_TIMING.poll)
    return Fleet(rate=rate, seconds=seconds, gateways=gateways, start=start, group=group, poll=poll, **other)


def held(service: Service, cells: list[tuple[int, float, float, bool]]) -> list[Numbers]:
    """How closely the budget is held: of each fleet, at each time; (gateways, rate, seconds, each)."""
    rows = []
    for gateways, rate, seconds, each in cells:
        fleet = fleet_of(rate, seconds, each=each, gateways=gateways, service=service, seed=1)
        found = simulate(fleet)
        window = found.moving()[-int(seconds / 2) :]
        rows.append(
            {
                "gateways": gateways,
                "rate": rate,
                "told": "each" if each else f"1 in {fleet.group}",
                "in_flight": float(found.flying[int(seconds / 2) :].mean()),
                "cores_a_gateway": rate / gateways * _core(service),
                "off_10": _off(found.average(10)),
                "off_60": _off(found.average(60)),
                "off_end": _off(found.average(seconds)),
                "end": seconds,
                "low": float(window.min()),
                "high": float(window.max()),
                "lost_points": lost_points(found, seconds / 2),
                "pacemaker": found.settles * service.settle / seconds,
            }
        )
    return rows


def memory(service: Service, seconds: float = 120.0) -> list[Numbers]:
    """What memory is for: the pacer, told of each, with the last 4,096 dials alone, and as it is."""
    rows = []
    usual = pacer._MAX_STRIDE
    try:
        for coarsest in (1, usual):
            for rate in (300.0, 1e3, 3e3):
                pacer._MAX_STRIDE = coarsest
                found = simulate(fleet_of(rate, seconds, each=True, gateways=10, service=service, seed=1))
                window = found.moving()[-60:]
                rows.append(
                    {
                        "remembered": coarsest * pacer._MAX_KEPT,
                        "rate": rate,
                        "in_flight": float(found.flying[60:].mean()),
                        "off_end": _off(found.average(seconds)),
                        "low": float(window.min()),
                        "high": float(window.max()),
                        "lost_points": lost_points(found, 60.0),
                    }
                )
    finally:
        pacer._MAX_STRIDE = usual
    return rows


def _core(service: Service) -> float:
    return service.request + WAVES * service.wave


def _off(average: float) -> float:
    return average / BUDGET - 1


def lost_points(found: Outcome, since: float, share: float = 0.0) -> float:
    """Accuracy lost to prices that moved: beside one price of the same cost, in points."""
    part = slice(int(since), None)
    began = max(1.0, found.began[part].sum())
    cost, right = found.decided[part].sum() / began, found.right[part].sum() / began
    costs, accuracy = mixed_cost({EASY: 1 - share, HARD: share}), _mixed_accuracy(share)
    best = np.interp(cost, costs[::-1], accuracy[::-1])
    return float(100 * (best - right))


def _mixed_accuracy(share: float) -> Floats:
    return (1 - share) * recorded(EASY).accuracy + share * recorded(HARD).accuracy


def saturation(service: Service, rate: float = 1e4, seconds: float = 300.0) -> Numbers:
    """The upstream loses a third of what is needed for a minute, and then has half more than it."""
    need = rate * BUDGET

    def capacity(now: float) -> float:
        return need * (2 / 3 if _AT <= now < _AT + _LONG else 1.5)

    settings: dict[str, dict[str, Any]] = {
        "told of all": {"give_up": 0.25, "spares": False},
        "gives up": {"give_up": 0.25},
        "waits": {"give_up": 0.0},
    }
    ways = {}
    for name, how in settings.items():
        found = simulate(fleet_of(rate, seconds, capacity=capacity, service=service, seed=2, **how))
        phases = {"before": (60, 120), "during": (120, 180), "after": (180, 240), "then": (240, int(seconds))}
        ways[name] = {
            "phases": {
                phase: {
                    "average": found.average(end, begin),
                    "price": float(found.price[end - 1]),
                    "wait": float(found.wait[begin:end].max()),
                    "refused": float(found.refused[begin:end].sum() / found.began[begin:end].sum()),
                    "failed": float(found.failed[begin:end].sum() / found.began[begin:end].sum()),
                    "in_flight": float(found.flying[end - 1]),
                }
                for phase, (begin, end) in phases.items()
            },
            "off_end": _off(found.average(seconds)),
            "series": _series(found),
        }
    return ways


def _series(found: Outcome, step: int = 5) -> Numbers:
    at = list(range(10, len(found.price), step))
    moving = found.moving()
    return {
        "second": at,
        "average": [float(moving[second - 10]) for second in at],
        "so_far": [found.average(second) for second in at],
        "price": [float(found.price[second - 1]) for second in at],
    }


def drift(service: Service, seconds: float = 270.0, rate: float = 1e3) -> list[Numbers]:
    """Easy traffic becomes hard, at once or over a minute."""
    ways = {"at once": lambda now: float(now >= _AT), "over 60 s": lambda now: (now - _AT) / _LONG}
    rows = []
    for name, hard in ways.items():
        for each in (True, False):
            found = simulate(
                fleet_of(
                    rate,
                    seconds,
                    each=each,
                    hard=lambda now, hard=hard: min(max(hard(now), 0.0), 1.0),
                    service=service,
                    seed=3,
                )
            )
            rows.append(
                {
                    "drift": name,
                    "told": "each" if each else "groups",
                    "worst": float(found.moving()[int(_AT) :].max() / BUDGET - 1),
                    "back": _back(found, _AT, 0.02),
                    "off_end": _off(found.average(seconds)),
                    "series": _series(found),
                }
            )
    return rows


def _back(found: Outcome, since: float, near: float) -> float | None:
    """Seconds after which the average of all so far is near the budget for good; None: not by the end."""
    so_far = np.cumsum(found.cost) / np.maximum(np.cumsum(found.ended), 1.0)
    off = np.flatnonzero(np.abs(so_far / BUDGET - 1) > near)
    last = float(off[-1] + 1) if len(off) else 0.0
    return None if last >= len(so_far) else max(0.0, last - since)


def loss(service: Service, rate: float = 1e4, seconds: float = 210.0) -> Numbers:
    """A share of the gateways dies at once, then the pacemaker; cores are 60% busy before."""
    cores = rate * _core(service) / 0.6
    rows = []
    for share in (0.0, 0.01, 0.1, 0.5):
        found = simulate(
            fleet_of(rate, seconds, gateways=100, lose=(_AT, share), cores=cores, service=service, seed=4)
        )
        after = slice(int(_AT), None)
        rows.append(
            {
                "share": share,
                "lost": found.lost,
                "wasted": found.lost_samples / (rate * BUDGET),  # seconds of spending
                "maybe": found.lost / (rate * BUDGET),  # a wave in flight each, of one sample; likewise
                "off_end": _off(found.average(seconds)),
                "failed": float(found.failed[after].sum() / (rate * (seconds - _AT))),
            }
        )
    silent = []
    for gap in (DEFAULT_TIMING.beat, 60.0):
        for moves in (False, True):
            hard = (lambda now: float(now >= _AT)) if moves else (lambda _: 0.0)
            base = fleet_of(1e3, 270.0, hard=hard, service=service, seed=5)
            found = simulate(dataclasses.replace(base, silence=(_AT, gap)))
            silent.append(
                {
                    "gap": gap,
                    "drift": moves,
                    "worst": float(np.abs(found.moving()[int(_AT) :] / BUDGET - 1).max()),
                    "back": _back(found, _AT, 0.02),
                    "off_end": _off(found.average(270)),
                }
            )
    return {"gateways": rows, "pacemaker": silent, "lease": DEFAULT_TIMING.lease}


def stale(service: Service, seconds: float = 210.0, rate: float = 1e3) -> list[Numbers]:
    """Prices that are seen late."""
    rows = []
    for each in (True, False):
        for delay in (0.1, 1.0, 10.0) if each else (0.0, 0.1, 1.0, 3.0, 10.0):
            found = simulate(
                fleet_of(rate, seconds, each=each, stale=delay, poll=0.0, service=service, seed=6)
            )
            window = found.moving()[90:]
            rows.append(
                {
                    "told": "each" if each else "groups",
                    "delay": delay,
                    "off_60": _off(found.average(60)),
                    "off_end": _off(found.average(seconds)),
                    "low": float(window.min()),
                    "high": float(window.max()),
                    "lost_points": lost_points(found, 90.0),
                }
            )
    return rows


def independent(service: Service, replicas: int = 20, rate: float = 10.0, seconds: float = 120.0) -> Numbers:
    """Every replica paces itself, half of them on easy traffic and half on hard."""
    ended, cost, averages = 0.0, 0.0, []
    for number in range(replicas):
        hard = float(number % 2)
        fleet = fleet_of(
            rate, seconds, each=True, gateways=1, hard=lambda _, hard=hard: hard, service=service,
            seed=100 + number,
        )  # fmt: skip
        found = simulate_singly(fleet)
        ended, cost = ended + found.ended.sum(), cost + found.cost.sum()
        averages.append(found.average(seconds))
    parts = {EASY: 0.5, HARD: 0.5}
    own = 0.5 * sum(_accuracy_at(name, BUDGET) for name in parts)
    shared = float(np.interp(BUDGET, mixed_cost(parts)[::-1], _mixed_accuracy(0.5)[::-1]))
    at = row_of(price_for(parts, BUDGET))
    return {
        "off": _off(cost / ended),
        "worst": max(abs(_off(one)) for one in averages),
        "own_accuracy": own,
        "shared_accuracy": shared,
        "points": 100 * (shared - own),
        "shared_costs": {name: float(recorded(name).cost[at]) for name in parts},
    }


def _accuracy_at(name: str, budget: float) -> float:
    found = recorded(name)
    return float(np.interp(budget, found.cost[::-1], found.accuracy[::-1]))
