"""What a prompt's words hint at: how right one sample is, how right the vote is, what votes add.

Ridge regression on the words and pairs of words that occur in it, rare ones counting more, hashed into a
fixed number of places. Learned on a labelled pool (or, without labels, on agreement with the full vote), it
knows the families of questions there, hopeless ones among them; it knows nothing of other pools. Where it
doesn't predict problems it hasn't seen better than their mean does, by two standard errors, there are no
hints. A prompt that it was taught gets the hints that the others gave of it: its own answers say nothing.
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
from adacompute.policies.stopping.prints import prints
from adacompute.policies.stored import stored

__all__ = ["COUNT", "Hints", "hints_for"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

COUNT = 3  # hints a prompt
PLACES = 4096  # that words are hashed into
_READ = 4000  # characters of a prompt: reading stays quick whatever comes
_TOKENS = re.compile(r"[a-z]{1,40}|\d|[^\sa-z\d]")  # words, single digits, signs
_PENALTIES = (0.3, 1.0, 3.0, 10.0)
_FOLDS = 5
_MIX = 31  # of a pair: its order matters
_SURE = 2.0  # standard errors by which words must do better than the mean


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hints:
    """Prompts -> hints, (prompts, COUNT)."""

    mean: Floats  # (COUNT,)
    rarity: Floats  # (PLACES,) how much a place counts
    weights: Floats  # (PLACES, COUNT)
    taught: npt.NDArray[np.uint64]  # (problems,) prints of the prompts it has learned on, ascending
    told: Floats  # (problems, COUNT) what the others hint at of each of them

    def of(self, prompts: Sequence[str]) -> Floats:
        """One prompt at a time, so that a prompt's hints don't depend on its company."""
        found = np.empty((len(prompts), COUNT))
        marks = prints(prompts)
        near = np.minimum(np.searchsorted(self.taught, marks), len(self.taught) - 1)
        for row, prompt in enumerate(prompts):
            taught = self.taught[near[row]] == marks[row]
            found[row] = self.told[near[row]] if taught else self._new(prompt)
        return found

    def _new(self, prompt: str) -> Floats:
        at = places(prompt)
        worth = self.rarity[at]
        length = float(np.sqrt((worth**2).sum()))
        return (
            self.mean if length == 0 else self.mean + (self.weights[at] * worth[:, None]).sum(axis=0) / length
        )

    def arrays(self) -> Arrays:
        """What was learned."""
        return {
            "hint_mean": self.mean,
            "hint_rarity": self.rarity,
            "hint_weights": self.weights,
            "hint_taught": self.taught,
            "hint_told": self.told,
        }

    @classmethod
    def restored(cls, arrays: Arrays) -> "Hints":
        """The hints that gave these arrays; PolicyInvalid where none could have."""
        taught = stored(arrays, "hint_taught", np.uint64, (None,))
        if not len(taught) or (taught[1:] < taught[:-1]).any():
            raise PolicyInvalid("array 'hint_taught' doesn't ascend, or is empty")
        found = cls(
            mean=stored(arrays, "hint_mean", np.float64, (COUNT,)),
            rarity=stored(arrays, "hint_rarity", np.float64, (PLACES,)),
            weights=stored(arrays, "hint_weights", np.float64, (PLACES, COUNT)),
            taught=taught,
            told=stored(arrays, "hint_told", np.float64, (len(taught), COUNT)),
        )
        if (found.rarity < 0).any():
            raise PolicyInvalid("array 'hint_rarity' holds a number below 0")
        return found


def hints_for(prompts: Sequence[str], targets: Floats, *, seed: int) -> Hints | None:
    """Hints learned on problems; of each of these, what the others hint at. Equal prompts count as one.

    None where words don't help to predict the targets, (problems, COUNT), of problems left out.
    """
    taught, first, same = np.unique(prints(prompts), return_index=True, return_inverse=True)
    if len(taught) < 2 * _FOLDS:  # too few to tell whether words help
        return None
    counts = np.bincount(same)[:, None]
    targets = np.stack([np.bincount(same, column) for column in targets.T], axis=1) / counts
    marks = _marks([prompts[row] for row in first])
    folds = np.random.default_rng(seed).permutation(len(taught)) % _FOLDS
    guesses = _left_out(marks, targets, folds)
    errors = [((targets - out) ** 2).sum(axis=1) for out in guesses]  # (problems,) each
    best = int(np.argmin([error.sum() for error in errors]))
    gain = ((targets - targets.mean(axis=0)) ** 2).sum(axis=1) - errors[best]
    if not gain.mean() > _SURE * gain.std() / len(gain) ** 0.5:
        return None
    (last,) = _ridges(marks, targets, _PENALTIES[best : best + 1])
    return Hints(mean=last.mean, rarity=last.rarity, weights=last.weights, taught=taught, told=guesses[best])


def _left_out(marks: Floats, targets: Floats, folds: Ints) -> Floats:
    """What the other folds hint at, by each penalty, (penalties, problems, COUNT)."""
    found = np.empty((len(_PENALTIES), *targets.shape))
    for fold in range(_FOLDS):
        inside = folds != fold
        ridges = _ridges(marks[inside], targets[inside], _PENALTIES)
        unit = _unit(marks[~inside], ridges[0].rarity)
        for at, ridge in enumerate(ridges):
            found[at, ~inside] = ridge.of(unit)
    return found


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


@dataclass(frozen=True, slots=True)
class _Ridge:
    """What was learned on rows of marks."""

    mean: Floats
    rarity: Floats
    weights: Floats

    def of(self, unit: Floats) -> Floats:
        """Hints of rows of marks, made unit by its rarity, all at once."""
        return np.asarray(self.mean + unit @ self.weights)


def _ridges(marks: Floats, targets: Floats, penalties: Sequence[float]) -> list[_Ridge]:
    """One for each penalty; they differ in their weights alone."""
    rarity = np.log((1 + len(marks)) / (1 + marks.sum(axis=0))) + 0.1
    unit = _unit(marks, rarity)
    mean = targets.mean(axis=0)
    gram = unit @ unit.T
    duals = [np.linalg.solve(gram + penalty * np.eye(len(unit)), targets - mean) for penalty in penalties]
    return [_Ridge(mean, rarity, np.asarray(unit.T @ dual)) for dual in duals]


def _unit(marks: Floats, rarity: Floats) -> Floats:
    weighed = marks * rarity
    return np.asarray(weighed / np.maximum(np.sqrt((weighed**2).sum(axis=1, keepdims=True)), 1e-12))
