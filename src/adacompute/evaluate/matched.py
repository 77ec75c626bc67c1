"""What a policy is worth at exactly one average cost: on the upper concave hull of its own settings.

Doesn't know what a setting is. Mixing two settings is always allowed: a request gets the dearer one with the
probability that makes the average cost what was asked for. So the worth at a cost is that of the best mix of
two settings, which lies on the hull. The hull is read off the problems it is judged on, which flatters
whoever has more settings to choose from: above all the joint hull of many policies.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from adacompute.replay.hull import hull

__all__ = ["Matched", "Points", "joined", "matched"]

Floats = npt.NDArray[np.float64]

_CLOSE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Points:
    """Settings of one policy, each run on the same problems, (settings, problems) both."""

    cost: Floats = field(repr=False)
    accuracy: Floats = field(repr=False)
    labels: tuple[str, ...] = ()  # (settings,)

    def curve(self) -> tuple[Floats, Floats]:
        """Cost and accuracy of the hull's corners, cheapest first: the averages, (corners,) both."""
        cost, accuracy = self.cost.mean(axis=1), self.accuracy.mean(axis=1)
        corners = hull(cost, accuracy)
        return cost[corners], accuracy[corners]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Matched:
    """One average cost, spent by the best mix of two settings.

    `each` is every problem's part in the accuracy at that cost: its accuracy, less what it costs above the
    budget at the going price (the hull's slope). Its mean is the accuracy. Were other problems drawn, the mix
    would have to be set anew to meet the same cost, and `each` says what that would give, to first order.
    """

    budget: float
    cost: float  # the budget, or less where even the best setting costs less
    accuracy: float
    settings: tuple[int, int]  # rows; the same twice where one serves alone
    probability: float  # of the second
    price: float  # accuracy per sample there: the slope of the hull
    each: Floats = field(repr=False)  # (problems,)


def matched(points: Points, budget: float) -> Matched | None:
    """The hull of these settings at one average cost; None where the cheapest setting costs more.

    >>> points = Points(cost=np.array([[1.0, 1.0], [4.0, 4.0]]), accuracy=np.array([[0.5, 0.7], [0.8, 1.0]]))
    >>> found = matched(points, 2.0)
    >>> round(found.accuracy, 3), round(found.probability, 3), found.each.round(3).tolist()
    (0.7, 0.333, [0.6, 0.8])
    """
    cost, accuracy = points.cost.mean(axis=1), points.accuracy.mean(axis=1)  # (settings,)
    corners = hull(cost, accuracy)
    spent = cost[corners]
    if budget < spent[0] - _CLOSE * max(1.0, budget):
        return None
    right = int(np.searchsorted(spent, budget - _CLOSE))
    if right == 0 or right == len(corners):  # at the cheapest, or beyond the best
        one = other = int(corners[min(right, len(corners) - 1)])
        share = price = 0.0
    else:
        one, other = int(corners[right - 1]), int(corners[right])
        share = min(1.0, (budget - cost[one]) / (cost[other] - cost[one]))
        price = float((accuracy[other] - accuracy[one]) / (cost[other] - cost[one]))
    mixed_cost = (1 - share) * points.cost[one] + share * points.cost[other]  # (problems,)
    mixed = (1 - share) * points.accuracy[one] + share * points.accuracy[other]
    met = float(mixed_cost.mean())
    return Matched(
        budget=budget,
        cost=met,
        accuracy=float(mixed.mean()),
        settings=(one, other),
        probability=float(share),
        price=price,
        each=mixed - price * (mixed_cost - met),
    )


def joined(points: Sequence[Points]) -> Points:
    """The settings of several policies as if they were one's."""
    return Points(
        cost=np.concatenate([one.cost for one in points]),
        accuracy=np.concatenate([one.accuracy for one in points]),
        labels=tuple(label for one in points for label in one.labels),
    )
