"""How long the gateway's event loop is held by one request: all others wait for so long."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from behaviours import Reply
from running import QUESTION, Running

from upstream import Upstream

CHEAP = 1e-6  # a price at which it goes on while there is any doubt
HELD = 0.005  # seconds that it is to be held at most, on an idle machine
SLACK = 0.045  # and what a slow one may take more

KILO = 1024
BOMBS = {
    "words": "so the answer is that ",
    "boxes": "\\boxed{",
    "brackets": "({[",
    "spaces": " ",
    "lines": "\n",
    "digits": "1",
    "numbers": "1,000,000.5 ",
    "a": "a",
    "stars": "**",
    "tags": "<answer>",
    "thoughts": "<think>",
    "hashes": "#### ",
    "quotes": '"\\',
    "fences": "```json\n{",
    "fractions": "\\frac{1}{",
    "questions": "What is? ",
    "unicode": "𝟘½Ⅷ",
}


def bomb(name: str, size: int, ending: str = "") -> str:
    unit = BOMBS[name]
    return (unit * (size // len(unit) + 1))[:size] + ending


class Ticks:
    """Processor time of a gateway's loop between two ticks a millisecond apart: what it was held for.

    Not the time on the wall: on a loaded machine that is what others take.
    """

    def __init__(self, gate: Running) -> None:
        self._gate = gate
        self.longest = 0.0  # seconds

    def __enter__(self) -> "Ticks":
        self._over = threading.Event()
        self._ticking = asyncio.run_coroutine_threadsafe(self._tick(), self._gate.loop)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._ticking.result(60)

    async def _tick(self) -> None:
        last = time.thread_time()
        while not self._over.is_set():
            await asyncio.sleep(0.001)
            now = time.thread_time()
            self.longest, last = max(self.longest, now - last), now


def held(gate: Running, times: int = 3, **fields: Any) -> float:
    """Seconds that a request holds the loop, the least of some times: what it takes each time."""
    found = []
    for _ in range(times):
        with Ticks(gate) as ticks:
            assert gate.ask(**fields).status == 200
        found.append(ticks.longest)
    return min(found)


def asks(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as up:
        yield up


@pytest.fixture(scope="module")
def gate(upstream: Upstream) -> Iterator[Running]:
    with Running(upstream.url, price=CHEAP) as running:
        assert running.ask().status == 200  # what is loaded late is loaded
        yield running
