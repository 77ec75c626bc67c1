"""All problems alike at an average cost: the best mix of two budgets by lot. Knows no classifier.

That matters at about 2 samples: where every sample has an answer two votes are right as often as one, and
where some have none little more often, so a mix of 1 and 4 may buy more than 2 for all.
"""

import numpy as np
import numpy.typing as npt

__all__ = ["mixed"]

Floats = npt.NDArray[np.float64]


def mixed(costs: Floats, accuracy: Floats, cost: Floats) -> Floats:
    """The best that a mix of two modes has at a cost, (n,), by their accuracies, (n, modes), costs rising.

    >>> mixed(np.array([1.0, 2.0, 4.0]), np.array([[0.5, 0.5, 0.8]]), np.array([2.0])).round(3).tolist()
    [0.6]
    """
    cost = np.maximum(cost, costs[0])  # a mean of 1 may come out a rounding below it
    best = np.full(len(cost), -np.inf)
    for low in range(len(costs)):
        for high in range(low, len(costs)):
            share = (cost - costs[low]) / max(costs[high] - costs[low], 1e-300)
            value = accuracy[:, low] + np.clip(share, 0.0, 1.0) * (accuracy[:, high] - accuracy[:, low])
            best = np.where(costs[low] <= cost, np.maximum(best, value), best)
    return best
