"""Sets the price of every lane, for as long as this gateway is the one that does. Knows nothing of Redis.

The pacer of a single gateway is told of all requests of the fleet, in the order in which they came to Redis.
How old the prices are that these were decided at it learns as it always does: by what each request was given.
What it has come to is published, so that another gateway can go on from there.
"""

import json
import logging
from typing import Any

from adacompute.errors import ConfigError
from adacompute.serve.fleet.following import lane_of
from adacompute.serve.pacer import Pacer

__all__ = ["Pacemaker"]

_LANES = 1_024  # pacers that are held; the rest go on from what is published
_MOST = 1e6  # samples: no request costs more
_log = logging.getLogger(__name__)


class Pacemaker:
    """Pacers by lane."""

    def __init__(self) -> None:
        self._pacers: dict[str, Pacer] = {}
        self._odd: set[str] = set()  # lanes that can't be: that is said once

    def paced(self, due: list[list[Any]]) -> list[dict[str, Any]]:
        """What to publish of lanes, given each one's start, requests and state so far, and its costs."""
        found = []
        for name, start, requests, state, costs in due:
            try:
                found.append(self._lane(name, start, requests or "0", state, costs))
            except (ValueError, TypeError, ConfigError) as exc:  # others can write to Redis as well
                if name not in self._odd and len(self._odd) < _LANES:
                    self._odd.add(name)
                    _log.warning("lane %.200s can't be paced: %s", name, exc)
        return found

    def _lane(self, name: str, start: Any, since: str, state: Any, costs: list[str]) -> dict[str, Any]:  # noqa: ANN401 - of JSON
        told = [found for each in costs if (found := _cost(each)) is not None]
        pacer = self._pacers.pop(name, None)
        if pacer is None or str(pacer.requests) != since:  # another gateway has paced it meanwhile
            pacer = _made(name, start, state)
        self._pacers[name] = pacer
        if len(self._pacers) > _LANES:
            del self._pacers[next(iter(self._pacers))]
        for cost, price in told:
            pacer.settle(cost, price)
        return {
            "lane": name,
            "since": since,
            "took": len(costs),
            "price": repr(pacer.price),
            "average": repr(pacer.average),
            "requests": str(pacer.requests),
            "state": json.dumps(pacer.state()),
        }


def _cost(text: str) -> tuple[float, float] | None:
    """What a request cost, and the price that it was decided at; None: nonsense."""
    try:
        cost, price = map(float, text.split())
    except ValueError:
        return None
    return (cost, price) if 0 <= cost <= _MOST else None


def _made(name: str, start: Any, state: Any) -> Pacer:  # noqa: ANN401 - of JSON
    _, target, dial, low, high = lane_of(name)
    pacer = Pacer(target, dial=dial, start=float(start or low), low=low, high=high)
    if state:
        try:
            pacer.restore(json.loads(state))
        except (ConfigError, ValueError, AttributeError) as exc:
            _log.warning("lane %.200s: %s", name, exc)
    return pacer
