"""What learners have learned, as arrays that score rows. Knows nothing of training, budgets or prompts.

Each gives what the library that trained it would give, without it: the same best class for every row.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from adacompute.errors import PolicyInvalid
from adacompute.policies.base import Arrays
from adacompute.policies.stored import stored
from adacompute.policies.trees import Trees

__all__ = ["SCORERS", "Constant", "Forest", "Kernel", "Linear", "Network", "Scale", "Scorer"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_CELLS = 1 << 21  # (row, support vector) pairs held at a time


class Scorer(ABC):
    """Scores of each class for rows of features; the highest is the prediction, ties to the first."""

    kind: ClassVar[str]

    @abstractmethod
    def scores(self, rows: Floats) -> Floats:
        """(rows, classes) of (rows, features); NaN is a feature that isn't known."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """What was learned."""

    @classmethod
    @abstractmethod
    def restored(cls, arrays: Arrays, *, features: int, classes: int) -> Self:
        """The scorer that gave these arrays; PolicyInvalid where none could have."""

    def best(self, rows: Floats) -> Ints:
        """The class of each row, (rows,)."""
        return np.asarray(self.scores(rows).argmax(axis=1), dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """Features with mean 0 and deviation 1; one that isn't known counts as average."""

    mean: Floats  # (features,)
    deviation: Floats  # (features,) above 0

    @classmethod
    def of(cls, rows: Floats) -> "Scale":
        known = ~np.isnan(rows)
        count = np.maximum(known.sum(axis=0), 1)
        mean = np.where(known, rows, 0.0).sum(axis=0) / count
        deviation = np.sqrt((np.where(known, rows - mean, 0.0) ** 2).sum(axis=0) / count)
        return cls(mean, np.where(deviation > 1e-12, deviation, 1.0))

    def __call__(self, rows: Floats) -> Floats:
        return np.asarray(np.nan_to_num((rows - self.mean) / self.deviation, nan=0.0))

    def arrays(self) -> Arrays:
        return {"mean": self.mean, "deviation": self.deviation}

    @classmethod
    def restored(cls, arrays: Arrays, features: int) -> "Scale":
        found = cls(*(stored(arrays, name, np.float64, (features,)) for name in ("mean", "deviation")))
        if (found.deviation <= 0).any():
            raise PolicyInvalid("array 'deviation' holds a number that is not above 0")
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Scorer):
    """One class for all rows: there was no other to learn."""

    kind = "constant"

    def scores(self, rows: Floats) -> Floats:
        return np.zeros((len(rows), 1))

    def arrays(self) -> Arrays:
        return {}

    @classmethod
    def restored(cls, arrays: Arrays, *, features: int, classes: int) -> "Constant":  # noqa: ARG003
        if classes != 1:
            raise PolicyInvalid(f"a constant learner has one class, not {classes}")
        return cls()


@dataclass(frozen=True, slots=True, eq=False)
class Forest(Scorer):
    """Trees: boosted, or averaged."""

    kind = "trees"
    trees: Trees
    fill: Floats | None = None  # (features,) for what isn't known; None: the trees know where it goes

    def scores(self, rows: Floats) -> Floats:
        if self.fill is not None:
            rows = np.where(np.isnan(rows), self.fill, rows)
        return self.trees.scores(rows)

    def arrays(self) -> Arrays:
        return self.trees.arrays() if self.fill is None else {**self.trees.arrays(), "fill": self.fill}

    @classmethod
    def restored(cls, arrays: Arrays, *, features: int, classes: int) -> "Forest":
        fill = stored(arrays, "fill", np.float64, (features,)) if "fill" in arrays else None
        return cls(Trees.restored(arrays, features=features, outputs=classes), fill)


@dataclass(frozen=True, slots=True, eq=False)
class Linear(Scorer):
    """Logistic regression's scores, before they are made shares."""

    kind = "linear"
    scale: Scale
    weights: Floats  # (features, classes)
    offset: Floats  # (classes,)

    def scores(self, rows: Floats) -> Floats:
        return np.asarray(self.scale(rows) @ self.weights + self.offset)

    def arrays(self) -> Arrays:
        return {**self.scale.arrays(), "weights": self.weights, "offset": self.offset}

    @classmethod
    def restored(cls, arrays: Arrays, *, features: int, classes: int) -> "Linear":
        weights = stored(arrays, "weights", np.float64, (features, classes))
        return cls(
            Scale.restored(arrays, features), weights, stored(arrays, "offset", np.float64, (classes,))
        )


@dataclass(frozen=True, slots=True, eq=False)
class Network(Scorer):
    """One hidden layer of rectified units."""

    kind = "network"
    scale: Scale
    inner: Floats  # (features, units)
    inner_offset: Floats  # (units,)
    outer: Floats  # (units, classes)
    outer_offset: Floats  # (classes,)

    def scores(self, rows: Floats) -> Floats:
        hidden = np.maximum(self.scale(rows) @ self.inner + self.inner_offset, 0.0)
        return np.asarray(hidden @ self.outer + self.outer_offset)

    def arrays(self) -> Arrays:
        own = {name: getattr(self, name) for name in ("inner", "inner_offset", "outer", "outer_offset")}
        return {**self.scale.arrays(), **own}

    @classmethod
    def restored(cls, arrays: Arrays, *, features: int, classes: int) -> "Network":
        inner = stored(arrays, "inner", np.float64, (features, None))
        units = inner.shape[1]
        return cls(
            Scale.restored(arrays, features),
            inner,
            stored(arrays, "inner_offset", np.float64, (units,)),
            stored(arrays, "outer", np.float64, (units, classes)),
            stored(arrays, "outer_offset", np.float64, (classes,)),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Kernel(Scorer):
    """A support vector machine with a Gaussian kernel: the wins of each class in all pairs of them."""

    kind = "kernel"
    scale: Scale
    vectors: Floats  # (vectors, features) scaled
    weights: Floats  # (pairs, vectors) of pair (0, 1), (0, 2), ... (1, 2), ...: above 0 the first wins
    offset: Floats  # (pairs,)
    width: Floats  # (1,) gamma

    def scores(self, rows: Floats) -> Floats:
        classes = _classes(len(self.offset))
        step = max(1, _CELLS // max(1, len(self.vectors)))
        wins = np.zeros((len(rows), classes))
        first, second = np.triu_indices(classes, 1)
        for i in range(0, len(rows), step):
            decided = self._near(self.scale(rows[i : i + step])) @ self.weights.T + self.offset > 0
            for pair, (one, other) in enumerate(zip(first, second, strict=True)):
                wins[i : i + step, one] += decided[:, pair]
                wins[i : i + step, other] += ~decided[:, pair]
        return wins

    def _near(self, rows: Floats) -> Floats:
        """The kernel of rows and support vectors, (rows, vectors)."""
        apart = (rows**2).sum(axis=1)[:, None] + (self.vectors**2).sum(axis=1) - 2 * rows @ self.vectors.T
        return np.asarray(np.exp(-self.width[0] * np.maximum(apart, 0.0)))

    def arrays(self) -> Arrays:
        own = {name: getattr(self, name) for name in ("vectors", "weights", "offset", "width")}
        return {**self.scale.arrays(), **own}

    @classmethod
    def restored(cls, arrays: Arrays, *, features: int, classes: int) -> "Kernel":
        pairs = classes * (classes - 1) // 2
        vectors = stored(arrays, "vectors", np.float64, (None, features))
        return cls(
            Scale.restored(arrays, features),
            vectors,
            stored(arrays, "weights", np.float64, (pairs, len(vectors))),
            stored(arrays, "offset", np.float64, (pairs,)),
            stored(arrays, "width", np.float64, (1,)),
        )


def _classes(pairs: int) -> int:
    return (1 + math.isqrt(1 + 8 * pairs)) // 2


SCORERS: dict[str, type[Scorer]] = {kind.kind: kind for kind in (Constant, Forest, Linear, Network, Kernel)}
