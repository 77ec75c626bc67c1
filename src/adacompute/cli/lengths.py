"""How far a policy can learn to go on, where problems have different numbers of samples. Knows no policy.

Recorded traffic has one sample of most prompts and many of a few. A policy is learned from problems that have
as many samples as it may ask for; the others can't say what would have come.
"""

import numpy as np

from adacompute.errors import TooFewSamples
from adacompute.paths.standing import Ints
from adacompute.pool import Ballots

__all__ = ["MOST", "enough"]

MOST = 16  # samples a request, where nothing else is said

_LEAST, _SHARE = 50, 0.05  # problems to learn from: so many, and this share of all


def enough(ballots: Ballots, asked: int | None = None) -> tuple[Ballots, int]:
    """The problems to learn from, and how many samples each of them has at least; `asked` is that number.

    Otherwise it is the largest, to 16, that 50 problems and a twentieth of all have; where so many don't have
    two samples, that all have that do.
    """
    longest = _longest(ballots.drawn) if asked is None else asked
    rows = np.flatnonzero(ballots.drawn >= longest)
    if not len(rows):
        raise TooFewSamples(
            f"no problem has {longest} samples, the most is {int(ballots.drawn.max())}; give --longest "
            f"{int(ballots.drawn.max())} or less"
        )
    return (ballots if len(rows) == len(ballots) else ballots.only(rows)), longest


def _longest(drawn: Ints) -> int:
    several = int((drawn > 1).sum())
    if not several:
        return 1
    wanted = min(several, max(_LEAST, -(-len(drawn) // round(1 / _SHARE))))
    return min(MOST, int(np.sort(drawn)[-wanted]))
