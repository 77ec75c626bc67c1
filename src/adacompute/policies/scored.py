"""Accuracy at each budget, votes counted as a policy counts them. Knows nothing of what is learned from it.

One pool serves many fits (an average budget each), and weighed votes take a second to score: so the last
table of a pool is kept for as long as the pool is.
"""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from adacompute.answers import Weigh
from adacompute.pool import Ballots
from adacompute.records import AccuracyTable
from adacompute.score import score

__all__ = ["scored"]

_Key = tuple[tuple[int, ...], Weigh | None]

_LAST: WeakKeyDictionary[Ballots, tuple[_Key, AccuracyTable]] = WeakKeyDictionary()


def scored(ballots: Ballots, budgets: Sequence[int], weigh: Weigh | None) -> AccuracyTable:
    """As `score` gives it: plain votes, or weighed ones."""
    key = (tuple(budgets), weigh)
    last = _LAST.get(ballots)
    if last is not None and last[0] == key:
        return last[1]
    if weigh is None:
        table = score(ballots, budgets)
    else:
        table = score(ballots, budgets, aggregate="weighted", by=weigh)
    _LAST[ballots] = key, table
    return table
