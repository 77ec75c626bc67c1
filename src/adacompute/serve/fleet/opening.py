"""Joins a fleet, and puts a gateway's share of it together. Knows nothing of requests."""

import logging
import os
import time
from dataclasses import dataclass
from typing import Any

from adacompute.errors import ConfigError
from adacompute.records import Secret
from adacompute.serve.balance import Caps
from adacompute.serve.fleet.address import connected, failures, frail, said_of
from adacompute.serve.fleet.following import Followed
from adacompute.serve.fleet.ledger import FleetLedger
from adacompute.serve.fleet.pacemaker import Pacemaker
from adacompute.serve.fleet.post import Post
from adacompute.serve.fleet.settings import USUAL, Pulse

__all__ = ["Fleet", "Standing", "joined"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a gateway stands in its fleet."""

    replicas: int  # alive
    pacemaker: bool  # whether this one sets the price
    age: float  # seconds since prices were last read


class Fleet:
    """What one gateway shares with the others."""

    def __init__(self, caps: Caps, *, pulse: Pulse) -> None:
        self.me = os.urandom(6).hex()  # this replica's name
        self.ledger = FleetLedger(caps, pulse=pulse)
        self.followed = Followed(
            lambda lane, start, cost: self.post.cost(lane, start, cost), every=pulse.poll / 2
        )
        self.post: Post  # set by `joined`
        self._pacemaker = Pacemaker()
        self._replicas, self._paces, self._beat = 1, False, pulse.beat

    def standing(self) -> Standing:
        """For metrics."""
        age = time.monotonic() - self.post.answered
        paces = self._paces and age < self._beat  # later another one may
        return Standing(replicas=self._replicas, pacemaker=paces, age=age)

    def ask(self) -> dict[str, Any]:
        """What is asked with the next call."""
        return self.ledger.ask() | self.followed.ask()

    def hear(self, answer: dict[str, Any]) -> None:
        """Takes in what was answered."""
        self.ledger.hear(answer)
        self.followed.hear(answer)
        if "replicas" not in answer:
            return  # an answer given once more: the rest is asked for again soon
        self._replicas = answer["replicas"]
        if answer["pacemaker"] != self._paces:
            self._paces = answer["pacemaker"]
            _log.info(
                "replica %s %s the price of its fleet", self.me, "sets" if self._paces else "no longer sets"
            )
        if paced := self._pacemaker.paced(answer.get("due") or []):
            self.post.publish(paced)


async def joined(
    url: str, name: str, caps: Caps, *, key: Secret | None = None, pulse: Pulse = USUAL
) -> Fleet:
    """One more gateway in the fleet of that name; ConfigError where Redis can't be used."""
    redis = connected(url, key=key, patience=pulse.patience)
    fleet = Fleet(caps, pulse=pulse)
    new = os.urandom(8).hex()
    try:
        info = await redis.info()
        fleet.post = fleet.ledger.post = Post(
            redis,
            url=url,
            base=f"adacompute:{{{name}}}",
            me=fleet.me,
            fixed=fleet.ledger.fixed,
            pulse=pulse,
            ask=fleet.ask,
            hear=fleet.hear,
            known=fleet.ledger.known,
        )
        answer = await fleet.post.begin(new)
    except failures() as exc:
        await redis.aclose()
        raise ConfigError(said_of(url, exc)) from None
    except (ValueError, KeyError, TypeError) as exc:  # others can write to Redis as well
        await redis.aclose()
        raise ConfigError(
            f"{url}: what it holds of the fleet {name} can't be read ({type(exc).__name__}: {exc}); see who "
            "else writes there, or give another fleet"
        ) from None
    for each in frail(info):
        _log.warning("%s: hard caps are as durable as Redis, and %s", url, each)
    if answer["id"] == new:
        _log.warning("%s: a new ledger is begun for the fleet %s, at 0", url, name)
    _log.info("replica %s has joined the fleet %s, of %d with it", fleet.me, name, answer["replicas"])
    return fleet
