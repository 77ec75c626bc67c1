"""What a learned policy sees of a request, and what the policies that predict from it have in common.

A `FeatureSet` names the features: the prompt's text and the first sample's entropy. `RowCache` answers
repeated rows once: replay asks about every order of a problem at every price.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.answers import VoteWeights
from adacompute.errors import PolicyError
from adacompute.policies.base import Floats, Policy, check_ascending, check_integer, check_weights
from adacompute.policies.baselines import MAX_SEED
from adacompute.policies.features import ENTROPY_COLUMN, compute_prompt_features, normalise_entropy
from adacompute.pool import Ballots

__all__ = ["FeaturePolicy", "FeatureSet", "RowCache"]

RowValues = npt.NDArray[Any]

_PARTS = ("text", "entropy")

_MIN_ROWS = 256  # rows: fewer are not worth a search for equal ones
_SEED = 20260415


@dataclass(frozen=True, slots=True)
class FeatureSet:
    """Which features: the text's 15 and the first sample's entropy, in this order."""

    text: bool
    entropy: bool

    @classmethod
    def parse(cls, spec: object) -> "FeatureSet":
        """From a setting such as "text+entropy".

        >>> FeatureSet.parse("text+entropy").width
        16
        """
        parts = spec.split("+") if isinstance(spec, str) else []
        if "embedding" in parts:
            raise PolicyError(
                f"features {spec!r}: embeddings are no longer supported; fit again with 'text+entropy'"
            )
        if not parts or len(set(parts)) < len(parts) or not set(parts) <= set(_PARTS):
            raise PolicyError(f"features {spec!r} are not known; give 'text+entropy', 'text' or 'entropy'")
        return cls(*(part in parts for part in _PARTS))

    @property
    def width(self) -> int:
        """How many numbers a row has."""
        return ENTROPY_COLUMN * self.text + self.entropy

    def read(self, prompts: Sequence[str]) -> Floats:
        """The features of prompts alone, (prompts, numbers)."""
        return (
            compute_prompt_features(prompts)[:, :ENTROPY_COLUMN] if self.text else np.zeros((len(prompts), 0))
        )

    def build_rows(self, reading: Floats, entropy: Floats) -> Floats:
        """Rows to learn from and decide by, (requests, width); `entropy` in nats, NaN where unknown."""
        return np.hstack([reading, normalise_entropy(entropy)[:, None]]) if self.entropy else reading

    def drop_missing_entropy(self, ballots: Ballots) -> "FeatureSet":
        """Without the entropy, where most first samples were recorded without one."""
        if not self.entropy or np.isfinite(ballots.entropy[:, :1]).mean() > 0.5:
            return self
        if not self.text:
            raise PolicyError("no sample's entropy is recorded; give features='text', or record it")
        return FeatureSet(self.text, entropy=False)

    def with_entropy(self, learned: bool) -> "FeatureSet":
        """As a stored policy had it: with the entropy, which must be among the features, or without."""
        if learned and not self.entropy:
            raise PolicyError("there is no entropy among the features to have learned from")
        return FeatureSet(self.text, learned)


class RowCache:
    """Remembers what a function gave for the last large set of rows; one value a row, or several."""

    def __init__(self, compute: Callable[[Floats], RowValues]) -> None:
        self._compute = compute
        self._last: tuple[npt.NDArray[np.uint64], Floats, RowValues] | None = None

    def __call__(self, rows: Floats) -> RowValues:
        """What the function gives for each row."""
        if len(rows) < _MIN_ROWS or not rows.shape[1]:
            return self._compute(rows)
        hashes = _hash_rows(rows)
        cached = self._look_up(rows, hashes)
        return self._compute_unique(rows, hashes) if cached is None else cached

    def _look_up(self, rows: Floats, hashes: npt.NDArray[np.uint64]) -> RowValues | None:
        """The values from memory, where all of the rows are there."""
        if self._last is None:
            return None
        keys, kept, values = self._last
        row = np.minimum(np.searchsorted(keys, hashes), len(keys) - 1)
        return values[row] if _equal_bits(kept[row], rows) else None

    def _compute_unique(self, rows: Floats, hashes: npt.NDArray[np.uint64]) -> RowValues:
        keys, first, row = np.unique(hashes, return_index=True, return_inverse=True)
        kept = rows[first]
        if not _equal_bits(kept[row], rows):  # two different rows with one hash: never observed, but possible
            return self._compute(rows)
        values = self._compute(kept)
        self._last = keys, kept, values
        return values[row]


def _hash_rows(rows: Floats) -> npt.NDArray[np.uint64]:
    """A hash of each row, (rows,)."""
    bits = np.ascontiguousarray(rows).view(np.uint64)
    factors = np.random.default_rng(_SEED).integers(1, 2**63, size=bits.shape[1], dtype=np.uint64) * 2 + 1
    mixed = bits ^ (bits >> np.uint64(29))  # the high bits of a float hold most of it
    return np.asarray((mixed * factors).sum(axis=1, dtype=np.uint64))


def _equal_bits(left: Floats, right: Floats) -> bool:
    """Whether rows are equal bit by bit: NaN equals itself."""
    return bool((left.view(np.uint64) == np.ascontiguousarray(right).view(np.uint64)).all())


class FeaturePolicy(Policy):
    """Looks at a prompt, and perhaps at the first sample, to choose among budgets. A base class."""

    def __init__(
        self, *, budgets: Sequence[int], features: str, seed: int, longest: int, weigh: VoteWeights | None
    ) -> None:
        self.budgets = check_ascending("budgets", budgets)
        self.features = features
        self.seed = check_integer("seed", seed, low=0, high=MAX_SEED)
        self.longest = check_integer("longest", longest)
        self.weigh = check_weights(weigh)
        FeatureSet.parse(features)
        if self.budgets[0] > self.longest:
            raise PolicyError(f"budgets {self.budgets} lie beyond longest {self.longest}; give smaller ones")

    @property
    def modes(self) -> tuple[int, ...]:
        """The budgets that are within `longest`."""
        return tuple(budget for budget in self.budgets if budget <= self.longest)
