"""One pacer for each policy and budget in use, bounded in number. Knows nothing of how a pacer works."""

import json
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any
from weakref import WeakValueDictionary

from adacompute.errors import ConfigError
from adacompute.serve.pace import Pace
from adacompute.serve.starts import Bounds

__all__ = ["Paces"]

_LANES = 64  # clients name budgets, so they can't be as many as they like
_log = logging.getLogger(__name__)

Lane = tuple[str, float]  # policy by its name, budget to 2 decimals


class Paces:
    """Pacers by (policy, budget); the one not used for longest makes room for a new one, and is forgotten.

    But for `kept`, the operator's own: no client gets rid of them by naming many others. A lane is only held
    once a request of it was paid for; until then it lasts as long as somebody has it in hand.
    """

    def __init__(self, kept: Collection[Lane] = ()) -> None:
        self._kept = frozenset((policy, round(budget, 2)) for policy, budget in kept)
        self._lanes: dict[Lane, Pace] = {}  # least recently used first
        self._alive: WeakValueDictionary[Lane, Pace] = WeakValueDictionary()  # these, and those in hand
        self._stored: dict[Lane, Mapping[str, Any]] = {}  # of lanes that nobody has paid for yet

    def of(self, policy: str, budget: float, make: Callable[[float], Pace], *, bounds: Bounds) -> Pace:
        """The pacer of a lane. `make` gives a new one for a budget, which goes on from what was stored.

        `bounds` are those of the policy as it is now: a pacer with others was another policy's.
        """
        lane = (policy, round(budget, 2))
        pacer = self._alive.get(lane)
        if pacer is None or pacer.bounds != bounds:
            pacer = self._alive[lane] = self._made(lane, make)
        return pacer

    def settle(self, policy: str, budget: float, pacer: Pace, cost: float, price: float | None) -> None:
        """A request of a lane ended: its pacer is told, and the lane held from now on."""
        pacer.settle(cost, price)
        lane = (policy, round(budget, 2))
        if self._alive.get(lane) is not pacer:  # another policy serves by now
            return
        self._lanes.pop(lane, None)
        self._stored.pop(lane, None)
        self._lanes[lane] = pacer
        if len(self._lanes) > _LANES:
            others = [each for each in self._lanes if each not in self._kept]
            for each in others[: max(0, len(others) - _LANES)]:
                del self._lanes[each]

    def state(self) -> dict[str, Any]:
        """What `restore` takes, plain data; names are JSON, as a policy's may hold anything."""
        states = dict(self._stored) | {lane: pacer.state() for lane, pacer in self._lanes.items()}
        own = {lane: state for lane, state in states.items() if lane in self._kept}
        others = [(lane, state) for lane, state in states.items() if lane not in own]
        return {json.dumps(lane): dict(state) for lane, state in [*others[-_LANES:], *own.items()]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Lanes made from now on go on from what `state` gave; what is nonsense is logged and left out."""
        for name, values in list(state.items())[-_LANES - len(self._kept) :]:
            lane = _lane(name)
            if lane is None or not isinstance(values, Mapping):
                _log.warning("a stored pace named %.80r is none; it is left out", name)
            else:
                self._stored[lane] = values

    def _made(self, lane: Lane, make: Callable[[float], Pace]) -> Pace:
        pacer = make(lane[1])
        stored = self._stored.get(lane)
        if stored is not None:
            try:
                pacer.restore(stored)
            except ConfigError as exc:
                _log.warning("policy %r at budget %g: %s", lane[0], lane[1], exc)
                del self._stored[lane]
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
