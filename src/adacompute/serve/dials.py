"""Policies at their budgets: the price that each asks, what it costs on average, and what that saves.

Knows nothing of how prices move, or of how savings were measured: it is told both.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["Dial", "Dials"]

MOST = 64  # policies at budgets that are told apart


@dataclass(slots=True)
class Dial:
    """One policy at one budget."""

    policy: str
    budget: float
    price: float | None = None
    average: float | None = None  # as its pacer has it
    requests: int = 0  # that count, since the start
    samples: int = 0  # of these
    voted: int = 0  # requests that the policy decided to the end, with a vote: what calibration is about
    drawn: int = 0  # samples of these
    uniform: float | None = None  # samples each, for the same accuracy; None: not known
    protocol: str = ""  # how that was measured
    why: str = ""  # it isn't known

    @property
    def mean(self) -> float | None:
        """Samples a request that was voted on; None before the first."""
        return self.drawn / self.voted if self.voted else None


class Dials:
    """At most 64 dials; requests at others count in the whole."""

    def __init__(self) -> None:
        self._dials: dict[tuple[str, float], Dial] = {}
        self._requests = self._samples = 0
        self._target = 0.0

    def __iter__(self) -> Iterator[Dial]:
        return iter(self._dials.values())

    def of(self, policy: str, budget: float) -> Dial:
        """The dial of a policy at a budget, to two places; one that is not kept where there are too many."""
        key = (policy, round(budget, 2))
        dial = self._dials.get(key)
        if dial is None:
            dial = Dial(*key)
            if len(self._dials) < MOST:
                self._dials[key] = dial
        return dial

    def ended(self, policy: str, budget: float, samples: int, *, voted: bool) -> None:
        """A request that counts towards the average; `voted`: its policy decided it, with a vote."""
        dial = self.of(policy, budget)
        dial.requests += 1
        dial.samples += samples
        dial.voted += voted
        dial.drawn += samples if voted else 0
        self._requests += 1
        self._samples += samples
        self._target += budget

    def forget(self, policy: str) -> None:
        """Another version of a policy serves: what the old one drew says nothing of it."""
        for dial in self:
            if dial.policy == policy:
                dial.voted = dial.drawn = 0
                dial.uniform, dial.protocol, dial.why = None, "", ""

    def worth(
        self, policy: str, budget: float, uniform: float | None, protocol: str, *, why: str = ""
    ) -> None:
        """How many samples each are as accurate. None, or no protocol: not known, and why."""
        dial = self.of(policy, budget)
        if uniform is not None and math.isfinite(uniform) and uniform > 0 and protocol:
            dial.uniform, dial.protocol, dial.why = uniform, protocol, ""
        else:
            dial.uniform, dial.protocol, dial.why = None, "", why

    def overall(self) -> dict[str, Any]:
        """Average and mean target of all requests that count."""
        n = self._requests
        return {
            "requests": n,
            "average": self._samples / n if n else None,
            "target": self._target / n if n else None,
        }

    def savings(self) -> dict[str, Any]:
        """What is saved against uniform samples at the same accuracy; no number without its protocol."""
        voted = [dial for dial in self if dial.voted]
        known = [dial for dial in voted if dial.uniform is not None]
        n = sum(dial.voted for dial in known)
        told: dict[str, Any] = dict.fromkeys(("share", "uniform", "average"))
        told |= {"protocol": "", "covered": n / self._requests if self._requests else 0.0, "why": ""}
        if not self._requests:
            return told | {"why": "no requests yet"}
        if not voted:
            return told | {"why": "not known: no request was voted on yet"}
        if not known:
            busiest = max(voted, key=lambda dial: dial.voted)
            return told | {"why": f"not known: {busiest.why or 'the policy has no chart with labels'}"}
        uniform = sum((dial.uniform or 0.0) * dial.voted for dial in known) / n
        average = sum(dial.drawn for dial in known) / n
        protocols = dict.fromkeys(dial.protocol for dial in known)
        return told | {
            "share": 1 - average / uniform,
            "uniform": uniform,
            "average": average,
            "protocol": "; ".join(list(protocols)[:3]),
        }

    def board(self, versions: dict[str, str]) -> list[dict[str, Any]]:
        """Each as JSON data, the busiest first."""
        return [
            {
                "policy": dial.policy,
                "budget": dial.budget,
                "price": dial.price,
                "average": dial.average if dial.average is not None else _mean(dial),
                "requests": dial.requests,
                "version": versions.get(dial.policy, ""),
            }
            for dial in sorted(self, key=lambda dial: -dial.requests)
            if dial.requests or dial.price is not None  # others only have their place
        ]


def _mean(dial: Dial) -> float | None:
    return dial.samples / dial.requests if dial.requests else None
