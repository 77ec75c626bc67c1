"""Grades of samples, which problems can be scored, and random halves for cross-fitting.

A sample's grade is the recorded `correct`. An abstention without a grade is wrong if the problem has a gold
answer or other grades, and unknown otherwise. A null answer that was graded right means that answers weren't
recorded: if a problem has no answers at all, it can't be voted on.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.errors import NotRecorded, ScoreError, TooFewSamples
from adacompute.pool.ballots import ABSENT, ABSTAINS, Ballots
from adacompute.pool.pool import Pool

_NAMED = 3  # problems named in a message
_MAX_NAMED = 5  # problems named in a refusal
DECIMALS = 13  # digits kept of a score: more than rounding errors need, so equal scores compare equal

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
# maps a function over blocks of work in order, like `map`, possibly on other machines
BlockMap = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
ClassNumbers = npt.NDArray[np.int32]  # numbered by first appearance; -1: abstained, -2: absent


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AccuracyEstimates:
    """The accuracy of each problem at each budget, with its standard error."""

    accuracy: Floats  # (problems, budgets) 0 to 1
    standard_error: Floats  # (problems, budgets) NaN if unknown
    simulated: bool = False  # False: exact
    simulation_error: Floats | None = None  # (problems, budgets) Monte Carlo standard error, if simulated


def grade_samples(ballots: Ballots) -> Floats:
    """Each sample's grade, (problems, samples) from 0 to 1; NaN if unknown or absent."""
    values = ballots.correct.astype(np.float64)
    known = ballots.gold_known | ~np.isnan(values).all(axis=1)
    values[(ballots.classes == ABSTAINS) & np.isnan(values) & known[:, None]] = 0.0
    return values


def mask_graded(ballots: Ballots, values: Floats) -> Bools:
    """Which problems have samples that all have a known grade, (problems,).

    `values` are the grades of the samples.
    """
    present = ballots.classes != ABSENT
    return np.asarray(present.any(axis=1) & ~(np.isnan(values) & present).any(axis=1))


def mask_votable(ballots: Ballots) -> Bools:
    """Which problems have recorded answers, as far as the ballots show, (problems,)."""
    if not ((ballots.classes == ABSTAINS) & (ballots.correct > 0)).any():
        return np.ones(len(ballots), dtype=bool)
    return np.asarray((ballots.classes >= 0).any(axis=1))


def select_scorable(ballots: Ballots, largest: int, *, aggregate: str, drop: bool) -> Ints:
    """Rows of problems that can be scored; raises for others, unless `drop` omits them."""
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
    """The number of samples in each class and their mean grade, both (problems, classes); 0 if empty.

    `classes` and `values` (the grades) are (problems, samples).
    """
    width = int(classes.max(initial=ABSTAINS)) + 1
    answered = classes >= 0
    cell = (np.arange(len(classes))[:, None] * width + classes)[answered]
    sizes = np.bincount(cell, minlength=len(classes) * width).astype(np.float64)
    sums = np.bincount(cell, weights=values[answered], minlength=len(classes) * width)
    mean_grade = np.divide(sums, sizes, out=np.zeros(sizes.shape), where=sizes > 0)
    return sizes.reshape(len(classes), width), mean_grade.reshape(len(classes), width)


def halves(source: Pool | Ballots, rng: np.random.Generator) -> tuple[Ballots, Ballots]:
    """Splits each problem's samples at random into two halves; every problem is in both.

    A mode's n samples are split evenly; if n is odd, problems alternate in which half gets one more. Samples
    stay in drawing order, and classes are numbered by first appearance in their half. Choose on one half and
    evaluate on the other (cross-fitting).
    """
    ballots = source if isinstance(source, Ballots) else source.ballots()
    parts = [_split(votes, rng) for votes in ballots.parts]
    first, second = (
        Ballots.join(dict(zip(ballots.names, half, strict=True))).number_classes()
        for half in zip(*parts, strict=True)
    )
    return first, second


def _split(ballots: Ballots, rng: np.random.Generator) -> tuple[Ballots, Ballots]:
    """Both halves, with unchanged class numbers."""
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
    size = drawn // 2 + (odd & (np.cumsum(odd) % 2 == 1))  # (problems,) samples in the first half
    keys = np.where(ballots.classes == ABSENT, np.inf, rng.random(ballots.classes.shape))
    rank = keys.argsort(axis=1).argsort(axis=1)  # each sample's place in a random order; absent ones last
    present = ballots.classes != ABSENT
    first = (rank < size[:, None]) & present
    return _take_samples(ballots, first), _take_samples(ballots, present & ~first)


def _take_samples(ballots: Ballots, chosen: npt.NDArray[np.bool_]) -> Ballots:
    """Only the samples marked in `chosen`, (problems, samples), shifted left in drawing order."""
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
