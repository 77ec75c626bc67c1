"""Processor time of the event loop, shared by requests: none holds it up for long, however many come at once.

A task runs until it waits for something, and all tasks that are ready run in one round of the loop. Where 200
replies arrive at once, that is one round of 200 times some milliseconds, in which nothing else is served. So
each asks for a turn before a piece of work: at once while little was done in this round, else in a later one.
"""

import asyncio
from collections import deque
from time import perf_counter

__all__ = ["LoopShare"]

_BUDGET = 0.008  # seconds of a round of the loop, after which others wait for the next
_TURNS = 4  # given in one round to those who wait


class LoopShare:
    """Gives turns to pieces of work of a millisecond or so. For one event loop."""

    def __init__(self) -> None:
        self._until = 0.0  # when this round's budget is used up
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False  # whether `_begin_round` will be called in the next round

    async def take_turn(self) -> None:
        """Returns when there is processor time for one more piece of work: mostly at once."""
        if not self._waiting:
            if not self._is_scheduled:
                self._until, self._is_scheduled = perf_counter() + _BUDGET, True
                asyncio.get_running_loop().call_soon(self._begin_round)
                return
            if perf_counter() < self._until:
                return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn  # where that is cancelled, its turn is skipped

    def _begin_round(self) -> None:
        given = 0
        while self._waiting and given < _TURNS:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                given += 1
        self._is_scheduled = bool(given)
        if self._is_scheduled:
            self._until = perf_counter() + _BUDGET
            asyncio.get_running_loop().call_soon(self._begin_round)
