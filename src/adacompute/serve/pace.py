"""What requests ask of whoever keeps their average cost on a budget. Knows nothing of how that is done."""

from collections.abc import Mapping
from typing import Any, Protocol

from adacompute.policies.base import Dial
from adacompute.serve.pacer import Pacer
from adacompute.serve.starts import Bounds

__all__ = ["NewPace", "Pace", "paced_here"]


class Pace(Protocol):
    """One dial, of one policy at one budget: a gateway's own `Pacer`, or that of its fleet, followed."""

    @property
    def price(self) -> float:
        """The dial that the next request is decided at."""

    @property
    def requests(self) -> int:
        """Requests that it was told of."""

    @property
    def average(self) -> float:
        """Samples a request so far; the target before the first."""

    @property
    def bounds(self) -> Bounds:
        """What is turned, its lowest and its highest."""

    def settle(self, cost: float, price: float | None = None) -> None:
        """Notes that a request has ended that cost so many samples, decided at that price."""

    def state(self) -> dict[str, float | str]:
        """What `restore` takes, plain data."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state` gave."""


class NewPace(Protocol):
    """Makes the pace of a policy at a budget."""

    def __call__(
        self, policy: str, target: float, *, dial: Dial, start: float, low: float, high: float
    ) -> Pace:
        """`start` is where its dial begins."""


def paced_here(policy: str, target: float, *, dial: Dial, start: float, low: float, high: float) -> Pace:  # noqa: ARG001 - one pacer is like another
    """A pacer of this gateway's own."""
    return Pacer(target, dial=dial, start=start, low=low, high=high)
