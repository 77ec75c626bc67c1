"""The critical price of every plain tally (draws, votes of the first two answers). Knows no weights.

Backward induction over recorded paths, price by price: after t draws, the value of going on is what the
paths that pass through a tally went on to get, by the choices already made for later tallies, less the price
of their draws. A tally's critical price is the highest at which going on still pays.

Tallies that few problems have passed through are left to their neighbours: the table is the middle of its
two monotone envelopes, so more votes of the first never mean more sampling, nor fewer of the second.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from adacompute.paths import Paths

__all__ = ["LEAST", "counts_table", "look_up"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_PRICES = np.geomspace(0.0005, 0.25, 28)
_FEW = 4  # problems: fewer say nothing of a tally
LEAST = 1e-5  # the critical price of what is never worth going on


def counts_table(recordings: Sequence[Paths], values: Sequence[Floats]) -> Floats:
    """Logarithms of critical prices, (draws, first, second), each from 0 (draws from 1 on: row t - 1).

    `values` are what each path's answer is worth after each draw, (longest, paths), one a recording.
    """
    longest = recordings[0].longest
    worth = np.concatenate(values, axis=1)
    keys = [_keys(recordings, t, longest) for t in range(longest - 1)]
    problems = _problems(recordings)
    goes = [np.ones((len(_PRICES), (longest + 1) ** 2), dtype=bool) for _ in keys]
    for row, price in enumerate(_PRICES):
        later = worth[-1].copy()
        for t in range(longest - 2, -1, -1):
            gain = np.bincount(keys[t], later - price - worth[t], minlength=(longest + 1) ** 2)
            goes[t][row] = gain > 0
            later = np.where(goes[t][row][keys[t]], later - price, worth[t])
    table = np.zeros((longest - 1, longest + 1, longest + 1))
    for t, key in enumerate(keys):
        kept = np.minimum.accumulate(goes[t], axis=0).sum(
            axis=0
        )  # prices at which it goes on, from the least
        critical = np.log(_between()[kept]).reshape(longest + 1, longest + 1)
        seen = (_distinct(key, problems, longest) >= _FEW).reshape(longest + 1, longest + 1)
        table[t] = _middle(critical, seen)
    return table


def look_up(table: Floats, drawn: Ints, first: Ints, second: Ints) -> Floats:
    """Logarithms of critical prices of tallies, (requests,); those beyond the table count as its last."""
    last = table.shape[1] - 1
    return np.asarray(
        table[
            np.minimum(np.maximum(drawn, 1), len(table)) - 1,
            np.minimum(first, last),
            np.minimum(second, last),
        ]
    )


def _keys(recordings: Sequence[Paths], t: int, longest: int) -> Ints:
    return np.concatenate(
        [one.first[t].astype(np.int64) * (longest + 1) + one.second[t] for one in recordings]
    )


def _problems(recordings: Sequence[Paths]) -> Ints:
    """The problem of each path, numbered through all recordings."""
    starts = np.cumsum([0, *(len(one.ballots) for one in recordings)])
    return np.concatenate([one.problems + start for one, start in zip(recordings, starts, strict=False)])


def _distinct(key: Ints, problems: Ints, longest: int) -> Ints:
    """How many problems pass through each tally."""
    pairs = np.unique(key * (problems.max() + 1) + problems)
    return np.bincount(pairs // (problems.max() + 1), minlength=(longest + 1) ** 2)


def _between() -> Floats:
    """The price that stands for "goes on at the first k prices, and not at the next", by k."""
    middle = np.sqrt(_PRICES[:-1] * _PRICES[1:])
    return np.concatenate([[LEAST], middle, [_PRICES[-1] * 1.1]])


def _middle(critical: Floats, seen: npt.NDArray[np.bool_]) -> Floats:
    """The middle of the monotone envelopes of what was seen, (first, second); the least where nothing was."""
    if not seen.any():
        return np.full(critical.shape, np.log(LEAST))
    high = np.where(seen, critical, -np.inf)  # the most of any tally with more margin
    high = np.maximum.accumulate(np.maximum.accumulate(high[::-1], axis=0)[::-1], axis=1)
    low = np.where(seen, critical, np.inf)  # the least of any tally with less margin
    low = np.minimum.accumulate(np.minimum.accumulate(low, axis=0)[:, ::-1], axis=1)[:, ::-1]
    high = np.where(np.isfinite(high), high, np.log(LEAST))
    low = np.where(np.isfinite(low), low, critical[seen].max())
    return np.asarray((high + low) / 2)
