"""Best-of-b by a score, and any-of-b, exact over all subsets by ranks. Knows nothing of votes.

Of b samples drawn without replacement from n, the best scored one answers. Sorted from the best down, the
sample at place r (from 0) is the best of C(n-1-r, b-1) of the C(n, b) subsets; samples of equal score share
their places equally, so each counts with the mean grade of its ties. A sample that abstains is chosen only
where nothing else was drawn, and is then wrong; one graded right has answered, whatever was recorded.
Standard errors are the delete-one jackknife's, in closed form; there is none where b = n.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from adacompute.errors import NotRecorded, ScoreError
from adacompute.pool.ballots import ABSENT, ABSTAINS, Ballots
from adacompute.score.grades import DECIMALS, Scored, votable

__all__ = ["any_correct", "best_of", "lacking", "ranked", "unranked"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_CELLS = 1 << 20  # (problem, sample) pairs worked on at a time
_FIRST, _LAST, _NEVER = 0, 1, 2  # who answers: an answer; an abstention; a sample that isn't there


def best_of(
    ballots: Ballots,
    grades: Floats,
    budgets: Sequence[int],
    by: Literal["logprob", "entropy"] | Floats,
    *,
    votes: Flags | None = None,
) -> Scored:
    """The sample with the highest score answers: `by` the mean log-probability, minus entropy, or your own.

    A score of your own is (problems, samples), higher is better; only abstentions may go without one.
    `votes` are `votable`'s, where these are some of the problems that it is to be told by.
    """
    scores, abstains, missing = _asked(ballots, grades, by, votes)
    if missing.any():
        row, column = (int(i) for i in np.argwhere(missing)[0])
        raise unranked(ballots.ids[row], column, missing=int(missing.sum()), by=by)
    return ranked(scores, np.where(abstains, 0.0, grades), ballots.classes, abstains, budgets)


def lacking(ballots: Ballots, grades: Floats, by: Literal["logprob", "entropy"], *, votes: Flags) -> Flags:
    """Which samples have nothing to be ranked by and would need it, (problems, samples)."""
    return _asked(ballots, grades, by, votes)[2]


def unranked(name: str, column: int, *, missing: int, by: object) -> NotRecorded:
    """What is said where samples can't be ranked, the first of them that of this problem and column."""
    what = {"logprob": "tokens and log-probability", "entropy": "entropy"}
    said = what.get(by, by) if isinstance(by, str) else "score"
    return NotRecorded(
        f"sample {column} of problem {name!r} has no {said} to rank it by "
        f"(the first of {missing}); record it for every sample, or give scores of your own"
    )


def _asked(
    ballots: Ballots, grades: Floats, by: Literal["logprob", "entropy"] | Floats, votes: Flags | None
) -> tuple[Floats, Flags, Flags]:
    """Scores, who abstains, and who has no score and needs one, all (problems, samples)."""
    abstains = _abstains(ballots, grades, votable(ballots) if votes is None else votes)
    scores = _scores(ballots, by)
    return scores, abstains, np.asarray(np.isnan(scores) & (ballots.classes != ABSENT) & ~abstains)


def any_correct(ballots: Ballots, grades: Floats, budgets: Sequence[int]) -> Scored:
    """Whether any of b samples is right, pass@b, unbiased; with partial credit, the best grade among them."""
    return ranked(grades, grades, ballots.classes, np.zeros(grades.shape, dtype=bool), budgets)


def ranked(
    scores: Floats, grades: Floats, classes: npt.NDArray[np.int32], abstains: Flags, budgets: Sequence[int]
) -> Scored:
    """The mean grade of the best scored of b, (problems, budgets). All arrays are (problems, samples)."""
    shape = (len(scores), len(budgets))
    accuracy, error = np.zeros(shape), np.full(shape, np.nan)
    step = max(1, _CELLS // max(1, scores.shape[1]))
    for start in range(0, shape[0], step):
        part = slice(start, start + step)
        tier = np.where(classes[part] == ABSENT, _NEVER, np.where(abstains[part], _LAST, _FIRST))
        places = _Places(np.where(tier == _FIRST, scores[part], 0.0), tier, grades[part])
        for k, budget in enumerate(budgets):
            accuracy[part, k] = places.mean(budget)
            error[part, k] = places.jackknife(budget, accuracy[part, k])
    return Scored(accuracy=np.clip(accuracy, 0.0, 1.0).round(DECIMALS), standard_error=error.round(DECIMALS))


def _abstains(ballots: Ballots, grades: Floats, votes: Flags) -> Flags:
    return np.asarray((ballots.classes == ABSTAINS) & votes[:, None] & ~(grades > 0))


def _scores(ballots: Ballots, by: Literal["logprob", "entropy"] | Floats) -> Floats:
    """Higher is better, (problems, samples); NaN: not recorded."""
    if not isinstance(by, str):
        given = np.asarray(by, dtype=np.float64)
        if given.shape != ballots.classes.shape:
            raise ScoreError(
                f"scores of shape {given.shape} don't fit these samples; "
                f"give (problems, samples) = {ballots.classes.shape}"
            )
        return given
    if by not in ("logprob", "entropy"):
        raise ScoreError(f"score {by!r} is not known; give 'logprob', 'entropy' or an array of your own")
    return -ballots.signal(by) if by == "entropy" else ballots.signal(by)


class _Places:
    """Samples in order of rank, best first, with their ties. Arrays are (problems, samples)."""

    def __init__(self, scores: Floats, tier: npt.NDArray[np.int64], grades: Floats) -> None:
        order = np.lexsort((-scores, tier), axis=1)
        scores, tier = np.take_along_axis(scores, order, 1), np.take_along_axis(tier, order, 1)
        there = tier != _NEVER
        rows, width = scores.shape
        self.drawn = there.sum(axis=1)  # (problems,)
        self.grades = np.where(there, np.take_along_axis(grades, order, 1), 0.0)
        self.there = there
        new = np.ones((rows, width + 1), dtype=bool)  # a tie begins here; one past the end, too
        new[:, 1:-1] = (scores[:, 1:] != scores[:, :-1]) | (tier[:, 1:] != tier[:, :-1])
        place = np.arange(width + 1)
        self.begin = np.maximum.accumulate(np.where(new, place, 0), axis=1)[:, :-1]
        ends = np.where(new, place, width)[:, :0:-1]  # of the places behind each
        self.end = np.minimum.accumulate(ends, axis=1)[:, ::-1]
        self.size = self.end - self.begin
        total = _before(self.grades)  # (problems, samples + 1)
        self.sum = np.take_along_axis(total, self.end, 1) - np.take_along_axis(total, self.begin, 1)
        self.tied = self.sum / self.size

    def mean(self, budget: int) -> Floats:
        """Over all subsets of that size, (problems,)."""
        return np.asarray((_weights(self.drawn, self.grades.shape[1], budget) * self.tied).sum(axis=1))

    def jackknife(self, budget: int, mean: Floats) -> Floats:
        """The standard error of `mean`, (problems,); NaN where leaving one out leaves too few."""
        weights = _weights(self.drawn - 1, self.grades.shape[1], budget)
        # those before the ties of the one left out keep their places, those behind move up by one
        before = np.take_along_axis(_before(weights * self.tied), self.begin, 1)
        moved = np.concatenate([np.zeros((len(weights), 1)), weights[:, :-1]], axis=1)
        until = _before(moved * self.tied)
        behind = until[:, -1:] - np.take_along_axis(until, self.end, 1)
        share = _before(weights)
        ties = np.take_along_axis(share, self.end - 1, 1) - np.take_along_axis(share, self.begin, 1)
        others = (self.sum - self.grades) / np.maximum(self.size - 1, 1)
        left = before + ties * others + behind  # the mean without this one
        squares = np.where(self.there, left - mean[:, None], 0.0) ** 2
        enough = self.drawn > budget
        drawn = np.maximum(self.drawn, 1)
        return np.where(enough, np.sqrt((drawn - 1) / drawn * squares.sum(axis=1)), np.nan)


def _before(values: Floats) -> Floats:
    """Sums of what stands before each place, (problems, samples + 1)."""
    return np.concatenate([np.zeros((len(values), 1)), np.cumsum(values, axis=1)], axis=1)


def _weights(drawn: npt.NDArray[np.int64], width: int, budget: int) -> Floats:
    """How likely each place is the best of `budget`, (problems, samples); ratios, so nothing overflows."""
    place = np.arange(width)
    left = drawn[:, None] - place  # samples from this place on
    steps = np.maximum(left - budget + 1, 0) / np.maximum(left, 1)  # C(left-1, b-1) / C(left, b-1)
    steps[:, 0] = np.where(drawn >= budget, budget / np.maximum(drawn, 1), 0.0)
    return np.cumprod(steps, axis=1)
