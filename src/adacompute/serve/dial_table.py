"""What requests cost at each dial, a policy at a budget: the averages, and what is saved by them.

Two averages stand side by side. That of *voted* requests is of those whose number of samples a policy
decided; that of *all* has also those that can't be voted on, which cost one sample whatever the price.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["DialStats", "DialTable"]

MAX_DIALS = 64  # pairs of a policy and a budget
_KEPT = ("requests", "samples", "decided", "decided_samples")  # of a dial, over restarts


@dataclass(slots=True)
class DialStats:
    """One policy at one budget: its price, its average cost, and what that saves."""

    policy: str
    budget: float
    price: float | None = None
    average: float | None = None  # of its pacer
    requests: int = 0  # that a policy could have decided on, if they can be voted on; kept over restarts
    samples: int = 0  # of these
    decided: int = 0  # those of them that can be voted on, so that the policy decided
    decided_samples: int = 0  # of these
    voted: int = 0  # requests with a vote that the policy decided to the end, as in calibration
    voted_samples: int = 0  # samples of these
    uniform: float | None = None  # samples per request for the same accuracy without a policy; None: unknown
    protocol: str = ""  # how that was measured
    reason: str = ""  # why it is unknown

    @property
    def averages(self) -> dict[str, float | None]:
        """Samples per request: of those that can be voted on, and of all; None before the first."""
        return {
            "voted": self.decided_samples / self.decided if self.decided else None,
            "all": self.samples / self.requests if self.requests else None,
        }

    @property
    def voted_mean(self) -> float | None:
        """Samples per request that was voted on; None before the first."""
        return self.voted_samples / self.voted if self.voted else None


class DialTable:
    """At most 64 dials; requests at others count in the total only."""

    def __init__(self) -> None:
        self._dials: dict[tuple[str, float], DialStats] = {}
        self._requests = self._samples = self._decided = self._decided_samples = 0  # since the start
        self._target = self._decided_target = 0.0

    def __iter__(self) -> Iterator[DialStats]:
        return iter(self._dials.values())

    def get(self, policy: str, budget: float) -> DialStats:
        """The dial of a policy at a budget, to two places; a temporary one if there are too many."""
        key = (policy, round(budget, 2))
        dial = self._dials.get(key)
        if dial is None:
            dial = DialStats(*key)
            if len(self._dials) < MAX_DIALS:
                self._dials[key] = dial
        return dial

    def add_request(
        self, policy: str, budget: float, samples: int, *, voted: bool, decided: bool = True
    ) -> None:
        """Adds a request that counts in the average.

        `decided`: its policy decided how many samples; `voted`: to the end, with a vote.
        """
        dial = self.get(policy, budget)
        dial.requests += 1
        dial.samples += samples
        if decided:
            dial.decided += 1
            dial.decided_samples += samples
            self._decided += 1
            self._decided_samples += samples
            self._decided_target += budget
        dial.voted += voted
        dial.voted_samples += samples if voted else 0
        self._requests += 1
        self._samples += samples
        self._target += budget

    def forget(self, policy: str) -> None:
        """Another version of a policy serves: the numbers of the old one don't apply to it."""
        for dial in self:
            if dial.policy == policy:
                dial.voted = dial.voted_samples = 0
                dial.uniform, dial.protocol, dial.reason = None, "", ""

    def set_worth(
        self, policy: str, budget: float, uniform: float | None, protocol: str, *, reason: str = ""
    ) -> None:
        """How many samples per request are as accurate without a policy.

        None, or no protocol: that is unknown, for this `reason`.
        """
        dial = self.get(policy, budget)
        if uniform is not None and math.isfinite(uniform) and uniform > 0 and protocol:
            dial.uniform, dial.protocol, dial.reason = uniform, protocol, ""
        else:
            dial.uniform, dial.protocol, dial.reason = None, "", reason

    def compute_overall(self) -> dict[str, Any]:
        """Average and mean target since the start, of all requests that count and of voted ones."""
        return {
            **_compute_means(self._requests, self._samples, self._target),
            "voted": _compute_means(self._decided, self._decided_samples, self._decided_target),
        }

    def state(self) -> dict[str, list[int]]:
        """Plain data for `restore`: by dial, what its averages are made of."""
        return {
            json.dumps([dial.policy, dial.budget]): [getattr(dial, name) for name in _KEPT]
            for dial in self
            if dial.requests
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """The averages go on from a `state`; entries that can't be read are skipped."""
        for name, counts in list(state.items())[:MAX_DIALS]:
            try:
                policy, budget = json.loads(name)
                numbers = dict(zip(_KEPT, counts, strict=True))
                valid = isinstance(policy, str) and all(type(n) is int and n >= 0 for n in numbers.values())
                budget = float(budget)
            except (ValueError, TypeError):
                continue
            if valid and math.isfinite(budget):
                dial = self.get(policy, budget)
                for field, number in numbers.items():
                    setattr(dial, field, number)

    def compute_savings(self) -> dict[str, Any]:
        """What is saved against uniform sampling at the same accuracy; no number without its protocol."""
        voted = [dial for dial in self if dial.voted]
        known = [dial for dial in voted if dial.uniform is not None]
        n = sum(dial.voted for dial in known)
        result: dict[str, Any] = dict.fromkeys(("share", "uniform", "average"))
        result |= {"protocol": "", "covered": n / self._requests if self._requests else 0.0, "why": ""}
        if not self._requests:
            return result | {"why": "no requests yet"}
        if not voted:
            return result | {"why": "not known: no request was voted on yet"}
        if not known:
            busiest = max(voted, key=lambda dial: dial.voted)
            return result | {"why": f"not known: {busiest.reason or 'the policy has no chart with labels'}"}
        uniform = sum((dial.uniform or 0.0) * dial.voted for dial in known) / n
        average = sum(dial.voted_samples for dial in known) / n
        protocols = dict.fromkeys(dial.protocol for dial in known)
        return result | {
            "share": 1 - average / uniform,
            "uniform": uniform,
            "average": average,
            "protocol": "; ".join(list(protocols)[:3]),
        }

    def describe(self, versions: Mapping[str, str], *, paced: str) -> list[dict[str, Any]]:
        """Each as JSON data, the busiest first; `paced` is the average that is to meet the budget."""
        return [
            {
                "policy": dial.policy,
                "budget": dial.budget,
                "price": dial.price,
                "average": dial.average if dial.average is not None else dial.averages[paced],
                "averages": dial.averages,
                "requests": dial.requests,
                "decided": dial.decided,
                "version": versions.get(dial.policy, ""),
            }
            for dial in sorted(self, key=lambda dial: -dial.requests)
            if dial.requests or dial.price is not None  # others are only reserved places
        ]


def _compute_means(requests: int, samples: int, target: float) -> dict[str, Any]:
    return {
        "requests": requests,
        "average": samples / requests if requests else None,
        "target": target / requests if requests else None,
    }
