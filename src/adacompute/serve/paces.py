"""One pacer for each policy and budget in use, bounded in number. Knows nothing of how a pacer works."""

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from adacompute.errors import ConfigError
from adacompute.serve.pacer import Pacer

__all__ = ["Paces"]

_LANES = 64  # clients name budgets, so they can't be as many as they like
_log = logging.getLogger(__name__)

Lane = tuple[str, float]  # policy by its name, budget to 2 decimals


class Paces:
    """Pacers by (policy, budget); the one not used for longest makes room for a new one, and is forgotten.

    But for `kept`, the operator's own: no client gets rid of it by naming many others.
    """

    def __init__(self, kept: Lane | None = None) -> None:
        self._kept = None if kept is None else (kept[0], round(kept[1], 2))
        self._lanes: dict[Lane, Pacer] = {}  # least recently used first
        self._stored: dict[Lane, Mapping[str, Any]] = {}  # of lanes that nobody has asked for yet

    def of(self, policy: str, budget: float, make: Callable[[float], Pacer]) -> Pacer:
        """The pacer of a lane; `make` gives a new one for a budget, which goes on from what was stored."""
        lane = (policy, round(budget, 2))
        pacer = self._lanes.pop(lane, None) or self._made(lane, make)
        self._lanes[lane] = pacer
        while len(self._lanes) > _LANES:
            del self._lanes[next(each for each in self._lanes if each != self._kept)]
        return pacer

    def state(self) -> dict[str, Any]:
        """What `restore` takes, plain data; names are JSON, as a policy's may hold anything."""
        states = dict(self._stored) | {lane: pacer.state() for lane, pacer in self._lanes.items()}
        if self._kept in states:
            states[self._kept] = states.pop(self._kept)  # last, where none is left out
        newest = list(states.items())[-_LANES:]
        return {json.dumps(lane): dict(state) for lane, state in newest}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Lanes made from now on go on from what `state` gave; what is nonsense is logged and left out."""
        for name, values in list(state.items())[-_LANES:]:
            lane = _lane(name)
            if lane is None or not isinstance(values, Mapping):
                _log.warning("a stored pace named %.80r is none; it is left out", name)
            else:
                self._stored[lane] = values

    def _made(self, lane: Lane, make: Callable[[float], Pacer]) -> Pacer:
        pacer = make(lane[1])
        stored = self._stored.pop(lane, None)
        if stored is not None:
            try:
                pacer.restore(stored)
            except ConfigError as exc:
                _log.warning("policy %r at budget %g: %s", lane[0], lane[1], exc)
        return pacer


def _lane(name: str) -> Lane | None:
    try:
        found = json.loads(name)
    except ValueError:
        return None
    if not isinstance(found, list) or len(found) != 2:
        return None
    policy, budget = found
    if not isinstance(policy, str) or isinstance(budget, bool) or not isinstance(budget, int | float):
        return None
    return policy, round(float(budget), 2)
