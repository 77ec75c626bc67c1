"""How long the gateway's event loop is held by one request: all others wait for so long."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from behaviours import Reply
from running import Running

from timing import find_least
from upstream import Upstream

CHEAP = 1e-6  # a price at which it goes on while there is any doubt
HELD = 0.05  # seconds that it may be held; 0.005 on an idle machine

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

    Not the time on the wall: on a loaded machine that is what others take. `clock` may count more threads.
    """

    def __init__(self, gate: Running, clock: Callable[[], float] = time.thread_time) -> None:
        self._gate = gate
        self._clock = clock
        self.longest = 0.0  # seconds

    def __enter__(self) -> "Ticks":
        self._over = threading.Event()
        self._ticking = asyncio.run_coroutine_threadsafe(self._tick(), self._gate.loop)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._ticking.result(60)

    async def _tick(self) -> None:
        last = self._clock()
        while not self._over.is_set():
            await asyncio.sleep(0.001)
            now = self._clock()
            self.longest, last = max(self.longest, now - last), now


def hold(
    gate: Running,
    work: Callable[[], object],
    limit: float = HELD,
    clock: Callable[[], float] = time.thread_time,
) -> float:
    """Seconds that the work holds the loop of a gateway, the least of several times."""

    def measure() -> float:
        with Ticks(gate, clock) as ticks:
            work()
        return ticks.longest

    return find_least(measure, limit)


def hold_by_asking(gate: Running, **fields: Any) -> float:
    def ask() -> None:
        assert gate.ask(**fields).status == 200

    return hold(gate, ask)


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


def answers(*texts: str) -> Callable[[int, dict[str, Any]], Reply]:
    """As many of these as are asked for, one after the other."""

    def script(_number: int, body: dict[str, Any]) -> Reply:
        return Reply(texts=[texts[i % len(texts)] for i in range(body.get("n", 1))], logprobs=False)

    return script


@pytest.mark.parametrize("name", BOMBS)
def test_c12_a_long_prompt_does_not_hold_the_event_loop(gate: Running, upstream: Upstream, name: str):
    size = 100 * KILO // len(BOMBS[name].encode()) * len(BOMBS[name])  # 100 KB, in characters
    upstream.script = answers("The answer is 41.", "The answer is 42.")
    seconds = hold_by_asking(gate, messages=asks(bomb(name, size)))
    print(f"a prompt of {name}: held for {1000 * seconds:.1f} ms")
    assert seconds < HELD


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_c12_a_long_response_does_not_hold_the_event_loop(gate: Running, upstream: Upstream, name: str):
    size = 64 * KILO // len(BOMBS[name].encode()) * len(BOMBS[name])
    upstream.script = answers(bomb(name, size), bomb(name, size, " The answer is 42."))
    seconds = hold_by_asking(gate)
    print(f"responses of {name}: held for {1000 * seconds:.1f} ms")
    assert seconds < HELD


def test_c12_an_operators_pattern_that_never_ends_does_not_hold_the_event_loop(upstream: Upstream):
    upstream.script = answers("a" * 60_000 + "!", "b")
    pattern = {"extract": r"regex:(a+)+$"}
    with Running(upstream.url, price=0.5, answers=pattern, vote="always") as slow:
        others: list[float] = []

        def ask_another() -> None:
            began = time.monotonic()
            assert slow.get("/healthz").status == 200
            others.append(time.monotonic() - began)

        def ask_beside_others() -> None:
            asking = threading.Thread(target=slow.ask)
            asking.start()
            while asking.is_alive():
                ask_another()
            asking.join()

        seconds = hold(slow, ask_beside_others)
    print(f"a pattern without end: held for {1000 * seconds:.1f} ms, others waited {max(others):.3f} s")
    assert seconds < HELD


def test_c12_hostile_bodies_up_to_the_limit_hold_the_event_loop_for_little(gate: Running, upstream: Upstream):
    upstream.script = answers("The answer is 42.")
    bodies = (
        b"[" * 4_000_000,
        b'{"a":' * 700_000,
        b'"' + b"\\" * 3_999_990,
        b"[1," * 1_300_000,
        b"1" * 4_000_000,
    )

    def ask_all() -> None:
        assert {gate.ask(body).status for body in bodies} == {400}

    assert hold(gate, ask_all, 0.5) < 0.5
