"""Trees that say a state's critical price: the highest at which going on still pays. Knows no paths."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adacompute.policies.base import Arrays
from adacompute.policies.trees import Trees

__all__ = ["Judge", "crossing"]

Floats = npt.NDArray[np.float64]

_BELOW, _ABOVE = 50.0, 10.0  # how fast prices beyond the grid move with the advantage at its ends
_BELOW_LEAST, _ABOVE_MOST = -3.0, 2.0  # as logarithms, from the ends of the grid


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judge:
    """Rows of numbers -> logarithms of critical prices."""

    trees: Trees  # one output

    def critical(self, rows: Floats) -> Floats:
        """Logarithm of the critical price of each row, (rows,)."""
        return self.trees.scores(rows)[:, 0]

    def arrays(self, prefix: str) -> Arrays:
        """What was learned, its names beginning so."""
        return {f"{prefix}{name}": array for name, array in self.trees.arrays().items()}

    @classmethod
    def restored(cls, arrays: Arrays, prefix: str, *, features: int) -> "Judge":
        """The judge that gave these arrays; PolicyInvalid where none could have."""
        own = {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
        return cls(trees=Trees.restored(own, features=features, outputs=1))


def crossing(prices: Floats, advantages: Floats) -> Floats:
    """Where advantages of going on, (rows, prices), fall through zero: that price's logarithm, (rows,).

    Advantages fall with the price, so there is one price at which going on just pays.

    >>> float(np.exp(crossing(np.array([0.01, 0.04]), np.array([[0.1, -0.1]]))[0]).round(3))
    0.02
    """
    falling = np.minimum.accumulate(advantages, axis=1)
    count = (falling > 0).sum(axis=1)
    grid, rows = np.log(prices), np.arange(len(falling))
    left = np.clip(count - 1, 0, len(prices) - 2)
    one, other = falling[rows, left], falling[rows, left + 1]
    share = np.clip(one / np.maximum(one - other, 1e-12), 0.0, 1.0)
    inside = grid[left] + share * (grid[left + 1] - grid[left])
    below = grid[0] + np.clip(falling[:, 0] * _BELOW, _BELOW_LEAST, 0.0)
    above = grid[-1] + np.clip(falling[:, -1] * _ABOVE, 0.0, _ABOVE_MOST)
    return np.asarray(np.where(count == 0, below, np.where(count == len(prices), above, inside)))
