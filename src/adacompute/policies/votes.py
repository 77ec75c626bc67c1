"""The votes of several requests as arrays, from which policies decide.

`VoteState` has the votes of one mode's samples, `VotesByMode` those of several modes. Live requests and
replayed recordings give exactly the same numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from adacompute.answers import Tally
from adacompute.answers.vote import WEIGHT_UNIT

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp] | npt.NDArray[np.bool_]

NEVER_SEEN = 127  # rank of an answer that hasn't appeared yet; requests have fewer answers than this


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VoteState:
    """The votes of several requests; every field has one number per request.

    >>> state = VoteState.from_tallies([Tally.of(["4", "5", None, "5"]), Tally()])
    >>> state.drawn.tolist(), state.first.tolist(), state.second.tolist(), state.kinds.tolist()
    ([4, 0], [2, 0], [1, 0], [2, 0])
    """

    drawn: Ints  # number of samples, including those without an answer
    answered: Ints  # number of samples that gave an answer
    first: Ints  # number of votes for the leading answer, unweighted
    second: Ints  # number of votes for the runner-up (the answer with the second largest weight), unweighted
    kinds: Ints  # number of different answers
    run: Ints  # how many samples in a row, up to the last one, gave the same answer
    lead: Floats  # weight of the votes for the leading answer
    runner: Floats  # weight of the votes for the runner-up
    total: Floats  # weight of all votes
    entropy: Floats  # mean entropy of the first sample's tokens, in nats; NaN if unknown

    def __len__(self) -> int:
        return len(self.drawn)

    @classmethod
    def from_tallies(cls, tallies: Sequence[Tally]) -> "VoteState":
        """Builds the arrays from the tallies of live requests."""
        counts, weights = [], []
        for tally in tallies:
            counts.append((tally.drawn, tally.answered, tally.first, tally.second, tally.kinds, tally.run))
            weights.append((tally.lead, tally.runner, tally.total, _nan_if_none(tally.entropy)))
        # one array for all these fields, because making ten arrays would take longer than a decision
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
    def empty(cls, requests: int) -> "VoteState":
        """Returns the state of requests that have no samples yet."""
        return cls.from_tallies([Tally()]).select(np.zeros(requests, dtype=np.intp))

    def select(self, rows: Rows) -> "VoteState":
        """Returns the votes of some of the requests."""
        return VoteState(**{each.name: getattr(self, each.name)[rows] for each in fields(self)})


def _nan_if_none(value: float | None) -> float:
    return np.nan if value is None else value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VotesByMode:
    """The votes of several requests, by mode and by answer (a class is a group of equal answers)."""

    drawn: Ints  # number of samples, with or without an answer; shape (requests, modes)
    counts: Ints  # number of votes for each answer; shape (requests, modes, classes)
    weights: Ints  # weight of each mode's votes for an answer; shape (requests, modes, classes)
    joint: Ints  # weight of all modes' votes for an answer; shape (requests, classes)
    seen: Ints  # each answer's rank by first appearance, 127 if not seen yet; shape (requests, classes)

    def __len__(self) -> int:
        return len(self.drawn)

    @classmethod
    def from_tallies(cls, tallies: Sequence[Tally], names: Sequence[str]) -> "VotesByMode":
        """Builds the arrays from live requests whose samples come from the modes with these names."""
        kinds = max([1, *(tally.kinds for tally in tallies)])
        shape = (len(tallies), len(names), kinds)
        drawn = np.zeros(shape[:2], dtype=np.int64)
        counts, weights = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        joint = np.zeros((len(tallies), kinds), dtype=np.int64)
        seen = np.full((len(tallies), kinds), NEVER_SEEN, dtype=np.int64)
        for row, tally in enumerate(tallies):
            joint[row, : tally.kinds] = tally.class_weights
            seen[row, : tally.kinds] = np.arange(tally.kinds)
            for mode, name in enumerate(names):
                votes = tally.get_mode_votes(name)
                drawn[row, mode] = votes.drawn
                for number, count in votes.counts.items():
                    counts[row, mode, number] = count
                    weights[row, mode, number] = votes.weights[number]
        return cls(drawn=drawn, counts=counts, weights=weights, joint=joint, seen=seen)

    def select(self, rows: Rows) -> "VotesByMode":
        """Returns the votes of some of the requests."""
        return VotesByMode(**{each.name: getattr(self, each.name)[rows] for each in fields(self)})

    def find_leaders(self) -> tuple[Ints, Ints]:
        """Finds each request's first and second answer in the vote over all modes; -1 if there is none."""
        return _find_first_two(self.joint, self.counts.sum(axis=1), self.seen)

    def state_of(self, mode: int) -> VoteState:
        """Returns the votes of one mode's samples, without those of other modes."""
        counts, weights = self.counts[:, mode], self.weights[:, mode]
        top, runner = _find_first_two(weights, counts, self.seen)
        return VoteState(
            drawn=self.drawn[:, mode],
            answered=counts.sum(axis=1),
            first=take_classes(counts, top),
            second=take_classes(counts, runner),
            kinds=(counts > 0).sum(axis=1),
            run=np.zeros(len(self), dtype=np.int64),
            lead=take_classes(weights, top) / WEIGHT_UNIT,
            runner=take_classes(weights, runner) / WEIGHT_UNIT,
            total=weights.sum(axis=1) / WEIGHT_UNIT,
            entropy=np.full(len(self), np.nan),
        )

    def count_first(self, mode: int) -> Ints:
        """Counts the votes for the most common answer of one mode."""
        return np.asarray(self.counts[:, mode].max(axis=1))


def _find_first_two(weights: Ints, counts: Ints, seen: Ints) -> tuple[Ints, Ints]:
    """Finds the two answers with the largest weights; ties go to the one seen first; -1 if there is none."""
    # one number per answer: the largest has the largest weight (below 2^56), then the lowest rank (below 2^7)
    keys = np.where(counts > 0, weights * (NEVER_SEEN + 1) + (NEVER_SEEN - seen), -1)
    rows = np.arange(len(keys))
    top = keys.argmax(axis=1)
    has_top = keys[rows, top] >= 0
    keys[rows, top] = -1
    runner = keys.argmax(axis=1)
    has_runner = keys[rows, runner] >= 0
    return np.where(has_top, top, -1), np.where(has_runner, runner, -1)


def take_classes(values: Ints, classes: Ints) -> Ints:
    """Returns, for each row of `values`, the value in the column that `classes` gives; 0 if this is -1."""
    taken = values[np.arange(len(values)), np.maximum(classes, 0)]
    return np.asarray(np.where(classes >= 0, taken, 0))


def read_tallies(tallies: Sequence[Tally], names: Sequence[str]) -> VoteState | VotesByMode:
    """Converts the tallies of live requests to the votes from which a policy over these modes decides."""
    return VoteState.from_tallies(tallies) if len(names) == 1 else VotesByMode.from_tallies(tallies, names)


def make_empty_state(requests: int, modes: int) -> VoteState | VotesByMode:
    """Builds the votes of requests that haven't drawn any sample yet."""
    return read_tallies([Tally()], [""] * modes).select(np.zeros(requests, dtype=np.intp))
