"""What a prompt's words hint at: how right one sample is, how right the vote is, what votes add.

Ridge regression on the words and pairs of words that occur in it, rare ones counting more, hashed into a
fixed number of places. Learned on a labelled pool (or, without labels, on agreement with the full vote), it
knows the families of questions there, hopeless ones among them; it knows nothing of other pools. Where it
doesn't predict problems it hasn't seen better than their mean does, there are no hints.
"""

import functools
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adacompute.errors import PolicyInvalid
from adacompute.policies.base import Arrays
from adacompute.policies.stored import stored

__all__ = ["COUNT", "Hints", "hints_for"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

COUNT = 3  # hints a prompt
PLACES = 4096  # that words are hashed into
_READ = 4000  # characters of a prompt: reading stays quick whatever comes
_TOKENS = re.compile(r"[a-z]+|\d|[^\sa-z\d]")  # words, single digits, signs
_PENALTIES = (0.3, 1.0, 3.0, 10.0)
_FOLDS = 5
_MIX = 31  # of a pair: its order matters
_HELPS = 0.99  # of the mean's squared error: above it, words tell nothing


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hints:
    """Prompts -> hints, (prompts, COUNT)."""

    mean: Floats  # (COUNT,)
    rarity: Floats  # (PLACES,) how much a place counts
    weights: Floats  # (PLACES, COUNT)

    def of(self, prompts: Sequence[str]) -> Floats:
        """One prompt at a time, so that a prompt's hints don't depend on its company."""
        found = np.empty((len(prompts), COUNT))
        for row, prompt in enumerate(prompts):
            at = places(prompt)
            worth = self.rarity[at]
            length = float(np.sqrt((worth**2).sum()))
            found[row] = self.mean
            if length > 0:
                found[row] += (self.weights[at] * worth[:, None]).sum(axis=0) / length
        return found

    def arrays(self) -> Arrays:
        """What was learned."""
        return {"hint_mean": self.mean, "hint_rarity": self.rarity, "hint_weights": self.weights}

    @classmethod
    def restored(cls, arrays: Arrays) -> "Hints":
        """The hints that gave these arrays; PolicyInvalid where none could have."""
        found = cls(
            mean=stored(arrays, "hint_mean", np.float64, (COUNT,)),
            rarity=stored(arrays, "hint_rarity", np.float64, (PLACES,)),
            weights=stored(arrays, "hint_weights", np.float64, (PLACES, COUNT)),
        )
        if (found.rarity < 0).any():
            raise PolicyInvalid("array 'hint_rarity' holds a number below 0")
        return found


def hints_for(prompts: Sequence[str], targets: Floats, *, seed: int) -> tuple[Hints, Floats] | None:
    """Hints learned on problems, and for each of these what the others hint at, (problems, COUNT).

    None where words don't help to predict the targets, (problems, COUNT), of problems left out.
    """
    if len(prompts) < 2 * _FOLDS:  # too few to tell whether words help
        return None
    marks = _marks(prompts)
    folds = np.random.default_rng(seed).permutation(len(prompts)) % _FOLDS
    flat = float(((targets - targets.mean(axis=0)) ** 2).sum())
    best: tuple[float, float, Floats] | None = None
    for penalty in _PENALTIES:
        out = np.empty(targets.shape)
        for fold in np.unique(folds):
            inside = folds != fold
            out[~inside] = _ridge(marks[inside], targets[inside], penalty)[1](marks[~inside])
        error = float(((targets - out) ** 2).sum())
        if best is None or error < best[0]:
            best = (error, penalty, out)
    if best is None or best[0] > _HELPS * flat:
        return None
    return _ridge(marks, targets, best[1])[0], best[2]


def places(prompt: str) -> Ints:
    """The places that a prompt's words and pairs of words fall into, ascending, each once."""
    words = np.array([_place(word) for word in _TOKENS.findall(prompt[:_READ].lower())], dtype=np.int64)
    pairs = words[:-1] * _MIX + words[1:]
    return np.unique(np.concatenate([words, pairs]) % PLACES)


@functools.lru_cache(maxsize=1 << 16)
def _place(word: str) -> int:
    return zlib.crc32(word.encode(errors="replace"))


def _marks(prompts: Sequence[str]) -> Floats:
    found = np.zeros((len(prompts), PLACES))
    for row, prompt in enumerate(prompts):
        found[row, places(prompt)] = 1.0
    return found


def _ridge(marks: Floats, targets: Floats, penalty: float) -> tuple[Hints, "_Told"]:
    rarity = np.log((1 + len(marks)) / (1 + marks.sum(axis=0))) + 0.1
    unit = _unit(marks, rarity)
    mean = targets.mean(axis=0)
    dual = np.linalg.solve(unit @ unit.T + penalty * np.eye(len(unit)), targets - mean)
    hints = Hints(mean=mean, rarity=rarity, weights=np.asarray(unit.T @ dual))
    return hints, _Told(hints)


@dataclass(frozen=True, slots=True)
class _Told:
    """Hints of rows of marks, all at once."""

    hints: Hints

    def __call__(self, marks: Floats) -> Floats:
        return np.asarray(self.hints.mean + _unit(marks, self.hints.rarity) @ self.hints.weights)


def _unit(marks: Floats, rarity: Floats) -> Floats:
    weighed = marks * rarity
    return np.asarray(weighed / np.maximum(np.sqrt((weighed**2).sum(axis=1, keepdims=True)), 1e-12))
