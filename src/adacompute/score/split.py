"""Two halves of every problem's samples, for cross-fitting: choose on one, judge on the other.

Knows nothing of what is chosen or judged.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.errors import ScoreError, TooFewSamples
from adacompute.pool.ballots import ABSENT, Ballots, renumber
from adacompute.pool.store import Pool

__all__ = ["halves"]

_NAMED = 3  # problems in a message


def halves(source: Pool | Ballots, rng: np.random.Generator) -> tuple[Ballots, Ballots]:
    """Each problem's samples, split at random: no sample in both halves, every problem in both.

    Of n samples a half has n/2; where n is odd, problems take turns as to which half gets one more.
    Samples stay in the order drawn, and classes are numbered anew by first appearance in their half.
    """
    if not isinstance(rng, np.random.Generator):
        raise ScoreError(f"rng {rng!r} can't split samples; give np.random.default_rng(seed)")
    ballots = source if isinstance(source, Ballots) else source.ballots()
    drawn = ballots.drawn
    few = np.flatnonzero(drawn < 2).tolist()
    if few:
        names = ", ".join(repr(ballots.ids[i]) for i in few[:_NAMED])
        more = f" and {len(few) - _NAMED} more" if len(few) > _NAMED else ""
        raise TooFewSamples(
            f"{len(few)} problem{'s' if len(few) > 1 else ''} ({names}{more}) can't be halved: two samples "
            "are the least; collect more, or leave them out"
        )
    odd = drawn % 2 == 1
    size = drawn // 2 + (odd & (np.cumsum(odd) % 2 == 1))  # of the first half, (problems,)
    keys = np.where(ballots.classes == ABSENT, np.inf, rng.random(ballots.classes.shape))
    rank = keys.argsort(axis=1).argsort(axis=1)  # each sample's place in a random order; absent ones last
    there = ballots.classes != ABSENT
    first = (rank < size[:, None]) & there
    return _part(ballots, first), _part(ballots, there & ~first)


def _part(ballots: Ballots, chosen: npt.NDArray[np.bool_]) -> Ballots:
    """These samples only, (problems, samples), moved to the left in the order drawn."""
    order = (~chosen).argsort(axis=1, kind="stable")
    width = int(chosen.sum(axis=1).max(initial=0))
    order, kept = order[:, :width], np.take_along_axis(chosen, order, 1)[:, :width]

    def moved(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        found = np.where(kept, np.take_along_axis(values, order, 1), np.nan).astype(values.dtype)
        found.setflags(write=False)
        return found

    classes = np.where(kept, np.take_along_axis(ballots.classes, order, 1), ABSENT).astype(np.int32)
    renumber(classes)
    classes.setflags(write=False)
    return replace(
        ballots,
        classes=classes,
        correct=moved(ballots.correct),
        tokens=moved(ballots.tokens),
        logprob=moved(ballots.logprob),
        entropy=moved(ballots.entropy),
    )
