"""What each sample is worth, which problems can be scored, and halves of their samples for cross-fitting.

A sample's grade is what was recorded as `correct`. An abstention without a recorded grade is wrong
where the problem's gold answer or other grades are known, and unknown elsewhere. A null answer
that was graded right means that answers were not recorded: a problem without any answer can't be
voted on then.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.errors import NotRecorded, ScoreError, TooFewSamples
from adacompute.pool.ballots import ABSENT, ABSTAINS, Ballots
from adacompute.pool.pool import Pool

_NAMED = 3  # problems in a message
_MAX_NAMED = 5  # problems in a refusal to score
DECIMALS = 13  # digits kept of a score: rounding errors are smaller, so equal scores compare equal

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
# maps a function over blocks of work, in order: `map`, or one that does it elsewhere
BlockMap = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
ClassNumbers = npt.NDArray[np.int32]  # by first appearance; -1 abstains, -2 absent


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AccuracyEstimates:
    """The accuracy of each problem at each budget, with its standard error."""

    accuracy: Floats  # (problems, budgets) 0 to 1
    standard_error: Floats  # (problems, budgets) NaN where it can't be known
    simulated: bool = False  # False: exact
    simulation_error: Floats | None = None  # (problems, budgets) Monte Carlo standard error, where simulated


def grade_samples(ballots: Ballots) -> Floats:
    """Each sample's grade, (problems, samples) 0 to 1; NaN: not known, or absent."""
    values = ballots.correct.astype(np.float64)
    known = ballots.gold_known | ~np.isnan(values).all(axis=1)
    values[(ballots.classes == ABSTAINS) & np.isnan(values) & known[:, None]] = 0.0
    return values


def mask_graded(ballots: Ballots, values: Floats) -> Bools:
    """Which problems have samples, all of them with a known grade, (problems,).

    `values` are the samples' grades.
    """
    present = ballots.classes != ABSENT
    return np.asarray(present.any(axis=1) & ~(np.isnan(values) & present).any(axis=1))


def mask_votable(ballots: Ballots) -> Bools:
    """Which problems have recorded answers, as far as the ballots show, (problems,)."""
    if not ((ballots.classes == ABSTAINS) & (ballots.correct > 0)).any():
        return np.ones(len(ballots), dtype=bool)
    return np.asarray((ballots.classes >= 0).any(axis=1))


def select_scorable(ballots: Ballots, largest: int, *, aggregate: str, drop: bool) -> Ints:
    """Rows of the problems that can be scored; raises for the others, unless `drop` leaves them out."""
    voting = aggregate in ("vote", "weighted")
    known, drawn = mask_graded(ballots, grade_samples(ballots)), ballots.drawn
    votes = mask_votable(ballots) | (not voting)
    usable = known & votes & (drawn >= largest)
    if usable.all() or (drop and usable.any()):
        return np.flatnonzero(usable)
    remedy = (
        "or too_few='drop' (--too-few drop) leaves them out"
        if usable.any()
        else "there is nothing else to score"
    )
    if not known.all():
        what, advice = "a sample whose correctness is not known", "give gold answers or grades"
        raise NotRecorded(_format_refusal(ballots, ~known, what, f"{advice}, {remedy}"))
    if not votes.all():
        what, advice = "grades but no recorded answers to vote on", "record answers"
        raise NotRecorded(_format_refusal(ballots, ~votes, what, f"{advice}, {remedy}"))
    what, advice = f"fewer than {largest} samples", "give smaller budgets (--budgets) or collect more"
    raise TooFewSamples(_format_refusal(ballots, drawn < largest, what, f"{advice}, {remedy}"))


def _format_refusal(ballots: Ballots, bad: Bools, what: str, remedy: str) -> str:
    rows, drawn = np.flatnonzero(bad), ballots.drawn
    count = f"{len(rows)} of {len(ballots)} problems {'has' if len(rows) == 1 else 'have'}"
    names = ", ".join(f"{ballots.ids[row]!r} ({drawn[row]} samples)" for row in rows[:_MAX_NAMED])
    more = f" and {len(rows) - _MAX_NAMED} more" if len(rows) > _MAX_NAMED else ""
    return f"{count} {what}: {names}{more}; {remedy}"


def measure_classes(classes: ClassNumbers, values: Floats) -> tuple[Floats, Floats]:
    """The number of samples of each class and their mean grade, both (problems, classes), 0 without samples.

    `classes` and `values`, the samples' grades, are (problems, samples).
    """
    width = int(classes.max(initial=ABSTAINS)) + 1
    answered = classes >= 0
    cell = (np.arange(len(classes))[:, None] * width + classes)[answered]
    sizes = np.bincount(cell, minlength=len(classes) * width).astype(np.float64)
    sums = np.bincount(cell, weights=values[answered], minlength=len(classes) * width)
    mean_grade = np.divide(sums, sizes, out=np.zeros(sizes.shape), where=sizes > 0)
    return sizes.reshape(len(classes), width), mean_grade.reshape(len(classes), width)


def halves(source: Pool | Ballots, rng: np.random.Generator) -> tuple[Ballots, Ballots]:
    """Each problem's samples, split at random: no sample in both halves, every problem in both.

    Of n samples of a mode a half has n/2; where n is odd, problems take turns as to which half gets one
    more. Samples stay in drawing order, and classes are numbered by first appearance in their half. Choose
    on one half and judge on the other (cross-fitting).
    """
    ballots = source if isinstance(source, Ballots) else source.ballots()
    parts = [_split(votes, rng) for votes in ballots.parts]
    first, second = (
        Ballots.join(dict(zip(ballots.names, half, strict=True))).number_classes()
        for half in zip(*parts, strict=True)
    )
    return first, second


def _split(ballots: Ballots, rng: np.random.Generator) -> tuple[Ballots, Ballots]:
    """Both halves, with classes numbered as they were."""
    if not isinstance(rng, np.random.Generator):
        raise ScoreError(f"rng {rng!r} can't split samples; give np.random.default_rng(seed)")
    drawn = ballots.drawn
    too_few = np.flatnonzero(drawn < 2).tolist()
    if too_few:
        names = ", ".join(repr(ballots.ids[i]) for i in too_few[:_NAMED])
        more = f" and {len(too_few) - _NAMED} more" if len(too_few) > _NAMED else ""
        raise TooFewSamples(
            f"{len(too_few)} problem{'s' if len(too_few) > 1 else ''} ({names}{more}) can't be halved: "
            "two samples are the least; collect more, or leave them out"
        )
    odd = drawn % 2 == 1
    size = drawn // 2 + (odd & (np.cumsum(odd) % 2 == 1))  # the first half's, (problems,)
    keys = np.where(ballots.classes == ABSENT, np.inf, rng.random(ballots.classes.shape))
    rank = keys.argsort(axis=1).argsort(axis=1)  # each sample's place in a random order; absent ones last
    present = ballots.classes != ABSENT
    first = (rank < size[:, None]) & present
    return _take_samples(ballots, first), _take_samples(ballots, present & ~first)


def _take_samples(ballots: Ballots, chosen: npt.NDArray[np.bool_]) -> Ballots:
    """These samples only, (problems, samples), moved to the left in the order drawn."""
    order = (~chosen).argsort(axis=1, kind="stable")
    width = int(chosen.sum(axis=1).max(initial=0))
    order, mask = order[:, :width], np.take_along_axis(chosen, order, 1)[:, :width]

    def move(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        shape = (*order.shape, *(1,) * (values.ndim - 2))
        places, kept = order.reshape(shape), mask.reshape(shape)
        result = np.where(kept, np.take_along_axis(values, places, 1), np.nan).astype(values.dtype)
        result.setflags(write=False)
        return result

    classes = np.where(mask, np.take_along_axis(ballots.classes, order, 1), ABSENT).astype(np.int32)
    classes.setflags(write=False)
    return replace(
        ballots,
        classes=classes,
        correct=move(ballots.correct),
        tokens=move(ballots.tokens),
        logprob=move(ballots.logprob),
        entropy=move(ballots.entropy),
        signals=None if ballots.signals is None else move(ballots.signals),
    )
