"""Which problems a figure draws one by one where a pool has more than an eye or a page can hold.

Knows nothing of the problems: it takes so many of so many, the same ones every time.
"""

import numpy as np
import numpy.typing as npt

__all__ = ["picked", "picked_words"]

_MOST = 1500  # problems
_SEED = 0xC20D


def picked(problems: int, most: int = _MOST) -> npt.NDArray[np.int64]:
    """The rows to draw, rising: all, or a fixed random sample of `most`.

    >>> len(picked(40)), len(picked(40_000))
    (40, 1500)
    """
    if problems <= most:
        return np.arange(problems)
    return np.sort(np.random.default_rng(_SEED).choice(problems, most, replace=False))


def picked_words(problems: int, most: int = _MOST) -> str:
    """What a caption says of it: nothing where all are drawn, else a sentence with a space before it."""
    if problems <= most:
        return ""
    return f" Of the {problems:,} problems a random {most:,} are drawn one by one; all else is of all."
