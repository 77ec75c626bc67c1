"""Decisions on plain votes that were taken before. Knows nothing of how they are taken.

There are few such tallies, and more is never drawn at a higher price: between two prices with the same answer
there is no other. So most requests find theirs here, in 2 µs instead of 100.
"""

import operator
from collections.abc import Callable
from typing import Any

from adacompute.answers import Tally

__all__ = ["Decided", "is_plain"]

_MOST = 10_000  # tallies


class Decided:
    """What was decided on each tally, and the lowest and highest price seen at which it was.

    `made_for` is all that decisions rest on beside tally and price: with another, nothing is known.
    """

    def __init__(self, made_for: tuple[Any, ...]) -> None:
        self._made_for = made_for
        self._known: dict[tuple[int, ...], dict[int, tuple[float, float]]] = {}

    def fits(self, made_for: tuple[Any, ...]) -> bool:
        """Is it still good? By identity: what was learned doesn't change in place."""
        return all(map(operator.is_, self._made_for, made_for))

    def more(self, tally: Tally, price: float, decide: Callable[[], int]) -> int:
        """How many to draw: as was decided before, or is now."""
        state = (tally.drawn, tally.answered, tally.first, tally.second, tally.kinds)
        known = self._known.get(state)
        if known is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            known = self._known[state] = {}
        for count, (low, high) in known.items():
            if low <= price <= high:
                return count
        count = decide()
        low, high = known.get(count, (price, price))
        known[count] = min(low, price), max(high, price)
        return count


def is_plain(tally: Tally) -> bool:
    """Are votes counted, not weighed? Weights hardly ever come again."""
    return tally.total == tally.answered and tally.lead == tally.first and tally.runner == tally.second
