"""Grades samples, finds the problems that can be scored, and splits samples at random for cross-fitting.

A sample's grade is the recorded `correct`. An abstention without a grade is wrong if the problem has a gold
answer or other grades; otherwise its grade is unknown. If a sample without an answer was graded right, its
source probably recorded only some answers. Then a problem without any recorded answer can't be voted on.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.errors import NotRecorded, ScoreError, TooFewSamples, format_count
from adacompute.pool.ballots import ABSENT, ABSTAINS, Ballots
from adacompute.pool.pool import Pool

_MAX_NAMED = 5  # maximum number of problem ids in an error
# accuracies are rounded to this many decimals, so that rounding errors don't make equal ones differ
DECIMALS = 13

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
# a function like `map`: applies a function to blocks of work in order, possibly on other machines
BlockMap = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
# equal answers to a problem have the same number; -1: no answer, -2: no such sample
ClassNumbers = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AccuracyEstimates:
    """The accuracy of each problem at each budget, with its standard error."""

    accuracy: Floats  # from 0 to 1; shape (problems, budgets)
    standard_error: Floats  # NaN if unknown; shape (problems, budgets)
    simulated: bool = False  # whether accuracies are simulated, not exact
    simulation_error: Floats | None = None  # standard error of the simulation; shape (problems, budgets)


def grade_samples(ballots: Ballots) -> Floats:
    """Returns each sample's grade from 0 to 1, NaN if unknown or missing; shape (problems, samples)."""
    values = ballots.correct.astype(np.float64)
    known = ballots.gold_known | ~np.isnan(values).all(axis=1)
    values[(ballots.classes == ABSTAINS) & np.isnan(values) & known[:, None]] = 0.0
    return values


def mask_graded(ballots: Ballots, values: Floats) -> Bools:
    """Marks the problems whose samples all have a known grade.

    `values` has the grades; shape (problems, samples).
    """
    present = ballots.classes != ABSENT
    return np.asarray(present.any(axis=1) & ~(np.isnan(values) & present).any(axis=1))


def mask_votable(ballots: Ballots) -> Bools:
    """Marks the problems that can be voted on in every mode.

    If a sample of a mode has no answer but was graded right, the mode's answers weren't all recorded. Then a
    problem without any recorded answer of this mode can't be voted on.
    """
    votable = np.ones(len(ballots), dtype=bool)
    for part in ballots.parts:
        if ((part.classes == ABSTAINS) & (part.correct > 0)).any():
            votable &= (part.classes >= 0).any(axis=1)
    return votable


def select_scorable(ballots: Ballots, largest: int, *, aggregate: str, drop: bool) -> Ints:
    """Returns the indexes of the problems that can be scored with `largest` samples.

    Raises NotRecorded or TooFewSamples if some problems can't be scored; with `drop`, only if none can.
    """
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
    names = ", ".join(
        f"{ballots.ids[row]!r} ({format_count(int(drawn[row]), 'sample')})" for row in rows[:_MAX_NAMED]
    )
    more = f" and {len(rows) - _MAX_NAMED} more" if len(rows) > _MAX_NAMED else ""
    return f"{count} {what}: {names}{more}; {remedy}"


def measure_classes(classes: ClassNumbers, values: Floats) -> tuple[Floats, Floats]:
    """Counts the samples with each answer and averages their grades; both of shape (problems, answers).

    `classes` has each sample's answer as a number, `values` its grade; both have shape (problems, samples).
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

    The halves are meant for cross-fitting: choose on one half, evaluate on the other. A problem's samples of
    a mode are split evenly. An odd sample goes to the first half for every other such problem, else to the
    second. Samples stay in drawing order, and answers are numbered by first appearance in their half. Raises
    TooFewSamples if a problem has fewer than 2 samples of a mode.
    """
    ballots = source if isinstance(source, Ballots) else source.ballots()
    parts = [_split(votes, rng) for votes in ballots.parts]
    first, second = (
        Ballots.join(dict(zip(ballots.names, half, strict=True))).number_classes()
        for half in zip(*parts, strict=True)
    )
    return first, second


def _split(ballots: Ballots, rng: np.random.Generator) -> tuple[Ballots, Ballots]:
    """Returns two halves of a mode's samples; answers keep their class numbers."""
    if not isinstance(rng, np.random.Generator):
        raise ScoreError(f"rng {rng!r} can't split samples; give np.random.default_rng(seed)")
    drawn = ballots.drawn
    too_few = np.flatnonzero(drawn < 2).tolist()
    if too_few:
        names = ", ".join(repr(ballots.ids[i]) for i in too_few[:_MAX_NAMED])
        more = f" and {len(too_few) - _MAX_NAMED} more" if len(too_few) > _MAX_NAMED else ""
        raise TooFewSamples(
            f"{format_count(len(too_few), 'problem')} ({names}{more}) can't be halved: "
            "each needs 2 samples; collect more, or leave them out"
        )
    odd = drawn % 2 == 1
    size = drawn // 2 + (odd & (np.cumsum(odd) % 2 == 1))  # number of samples in each problem's first half
    keys = np.where(ballots.classes == ABSENT, np.inf, rng.random(ballots.classes.shape))
    # each sample's place in a random order, in which missing samples come last
    rank = keys.argsort(axis=1).argsort(axis=1)
    present = ballots.classes != ABSENT
    first = (rank < size[:, None]) & present
    return keep_samples(ballots, first), keep_samples(ballots, present & ~first)


def keep_first(ballots: Ballots, counts: Sequence[int]) -> Ballots:
    """Keeps the first samples of each problem; `counts` has the maximum number for each mode."""
    parts = {}
    for votes, count in zip(ballots.parts, counts, strict=True):
        present = votes.classes != ABSENT
        parts[votes.names[0]] = keep_samples(votes, present & (present.cumsum(axis=1) <= count))
    return Ballots.join(parts).number_classes()


def keep_samples(ballots: Ballots, chosen: npt.NDArray[np.bool_]) -> Ballots:
    """Keeps only the samples marked in `chosen`, shape (problems, samples), without gaps and in order."""
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
