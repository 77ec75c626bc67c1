"""What a replay found. Knows nothing of how it was found, but for the words that say so."""

from dataclasses import dataclass, field
from typing import Any

from adacompute.paths.standing import Floats, Ints
from adacompute.score import Estimate

__all__ = ["Replayed"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replayed:
    """A policy over recorded samples, as if live, at one setting of its dial."""

    policy: str  # its kind
    dial: float | None  # None: the policy has none
    problems: int
    orders: int  # paths a problem; 0 where no orders were needed
    cost: float  # mean samples a request
    accuracy: Estimate | None  # with its 95% interval over problems; None: correctness is not known
    agreement: float  # with the vote of all of a problem's samples, 0 to 1
    waves: float  # mean a request
    most_waves: int
    tokens: float | None  # mean output tokens a request; None: not known
    counts: Ints = field(repr=False)  # (longest + 1,) requests that drew 0, 1, ... samples
    each_cost: Floats = field(repr=False)  # (problems,)
    each_accuracy: Floats = field(repr=False)  # (problems,); NaN: not known
    dropped: tuple[str, ...] = ()  # ids of problems with too few samples, left out
    exact: bool  # over all subsets, not by orders
    protocol: str  # how it was come by, in words
    in_sample: int = 0  # of the problems, how many the policy was fitted on, where it knows

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        found = self.accuracy
        return {
            "policy": self.policy,
            "dial": self.dial,
            "problems": self.problems,
            "orders": self.orders,
            "cost": self.cost,
            "accuracy": None if found is None else found.mean,
            "low": None if found is None else found.low,
            "high": None if found is None else found.high,
            "agreement": self.agreement,
            "waves": self.waves,
            "most_waves": self.most_waves,
            "tokens": self.tokens,
            "counts": {str(b): n for b, n in enumerate(self.counts.tolist()) if n},
            "dropped": list(self.dropped),
            "exact": self.exact,
            "protocol": self.protocol,
            "in_sample": self.in_sample,
        }
