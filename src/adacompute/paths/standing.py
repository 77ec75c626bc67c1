"""Where requests stand, as arrays: what a policy may look at. Doesn't know what any of it means.

The same numbers come from live tallies (`Standing.of`) and from replayed paths, to the last bit: weights are
whole multiples of 2^-36, so that their sums don't depend on their order.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from adacompute.answers import Tally

__all__ = ["Floats", "Ints", "Standing"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Standing:
    """The tallies of several requests, field by field, each (requests,).

    >>> at = Standing.of([Tally.of(["4", "5", None, "5"]), Tally()])
    >>> at.drawn.tolist(), at.first.tolist(), at.second.tolist(), at.kinds.tolist()
    ([4, 0], [2, 0], [1, 0], [2, 0])
    """

    drawn: Ints  # samples counted, with and without an answer
    answered: Ints  # samples that gave an answer
    first: Ints  # plain votes of the answer that leads
    second: Ints  # plain votes of the runner-up, the second by weight
    kinds: Ints  # different answers
    run: Ints  # how many of the last samples gave one and the same answer
    lead: Floats  # weight of the answer that leads, in votes of average weight
    runner: Floats  # weight of the runner-up
    total: Floats  # weight of all answers
    entropy: Floats  # of the first sample, mean, nats; NaN: not known, or none drawn

    def __len__(self) -> int:
        return len(self.drawn)

    @classmethod
    def of(cls, tallies: Sequence[Tally]) -> "Standing":
        """The standing of live tallies, in order."""
        counts, weights = [], []
        for t in tallies:
            counts.append((t.drawn, t.answered, t.first, t.second, t.kinds, t.run))
            weights.append((t.lead, t.runner, t.total, _known(t.entropy)))
        # two arrays, not ten: for one request, making them would take longer than the decision
        drawn, answered, first, second, kinds, run = np.array(counts, dtype=np.int64).reshape(-1, 6).T
        lead, runner, total, entropy = np.array(weights, dtype=np.float64).reshape(-1, 4).T
        return cls(
            drawn=drawn,
            answered=answered,
            first=first,
            second=second,
            kinds=kinds,
            run=run,
            lead=lead,
            runner=runner,
            total=total,
            entropy=entropy,
        )

    @classmethod
    def empty(cls, requests: int) -> "Standing":
        """The standing of requests that nothing was drawn for yet."""
        none = np.zeros(requests, dtype=np.int64)
        zero = np.zeros(requests)
        return cls(
            drawn=none,
            answered=none,
            first=none,
            second=none,
            kinds=none,
            run=none,
            lead=zero,
            runner=zero,
            total=zero,
            entropy=np.full(requests, np.nan),
        )

    def only(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> "Standing":
        """Some of the requests."""
        return Standing(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


def _known(value: float | None) -> float:
    return np.nan if value is None else value
