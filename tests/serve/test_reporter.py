"""The reporter alone: observers are told later, in order and in slices; nothing waits without end."""

import asyncio
import io
import json
import time
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from traffic import told

from adacompute.config import ServeConfig
from adacompute.records import Call
from adacompute.serve.watching.logs import Reporter, log_request, log_to
from adacompute.serve.watching.observability import Observability

SAMPLING: Any = SimpleNamespace(request="the request", votes=SimpleNamespace(samples=()))


class Told(Observability):
    """Keeps what it is told, and may take its time."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__(ServeConfig())
        self.heard: list[Any] = []
        self._seconds = seconds

    def on_call(self, call: Call) -> None:
        self._hear(call.at)

    def on_request_end(self, outcome: Any) -> None:
        self._hear(outcome.at)

    def on_price(self, *price: Any) -> None:
        self.heard.append(price)

    def _hear(self, what: Any) -> None:
        end = time.perf_counter() + self._seconds
        while time.perf_counter() < end:
            pass
        self.heard.append(what)


def call(at: float) -> Call:
    return Call(at=at, seconds=0.1, asked=1, got=1)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(main())


def test_what_has_ended_is_told_later_in_its_order():
    async def main() -> None:
        reporter = Reporter(seen := Told())
        for at in range(10):
            reporter.on_call(call(at))
            reporter.on_request_end(told(at + 0.5), SAMPLING)
        assert seen.heard == []
        deadline = time.monotonic() + 60.0
        while len(seen.heard) < 20 and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        assert seen.heard == [half / 2 for half in range(20)]

    run(main)


def test_a_report_tells_of_everything_at_once_and_once():
    async def main() -> None:
        reporter = Reporter(seen := Told())
        for at in range(5):
            reporter.on_request_end(told(at), SAMPLING)
        reporter.report()
        assert seen.heard == [0, 1, 2, 3, 4]
        await asyncio.sleep(0.1)
        reporter.report()
        assert len(seen.heard) == 5

    run(main)


def test_only_the_last_price_of_a_dial_is_told():
    async def main() -> None:
        reporter = Reporter(seen := Told())
        for price in (0.1, 0.2, 0.3):
            reporter.on_price("stopping", 2.0, price, 1.5)
        reporter.on_price("stopping", 4.0, 0.05, 3.5)
        reporter.report()
        assert seen.heard == [("stopping", 2.0, 0.3, 1.5, "samples"), ("stopping", 4.0, 0.05, 3.5, "samples")]

    run(main)


def test_slow_observers_hold_the_loop_for_one_slice_at_a_time():
    rounds: list[int] = []

    async def main() -> None:
        reporter = Reporter(seen := Told(seconds=0.0004))
        for at in range(60):
            reporter.on_call(call(at))
        while len(seen.heard) < 60:
            before = len(seen.heard)
            await asyncio.sleep(0)
            rounds.append(len(seen.heard) - before)

    run(main)
    assert max(rounds) <= 3  # of 0.4 ms each, in a slice of 1 ms
    assert sum(rounds) == 60


def test_however_many_end_at_once_few_wait():
    async def main() -> None:
        reporter = Reporter(seen := Told(seconds=0.0002))
        for at in range(2000):
            reporter.on_request_end(told(at), SAMPLING)
            assert at + 1 - len(seen.heard) <= 128
        reporter.report()
        assert seen.heard == list(range(2000))

    run(main)


@pytest.mark.parametrize("reports", [False, True])
def test_the_recorder_is_told_in_the_next_round_of_the_loop_and_once(reports: bool):
    recorded: list[Any] = []
    recorder: Any = SimpleNamespace(record=lambda outcome, *more: recorded.append((outcome.at, *more)))

    async def main() -> None:
        reporter = Reporter(seen := Told(), recorder)
        reporter.on_request_end(told(1.0), SAMPLING)
        reporter.on_request_end(told(2.0), SAMPLING)
        assert recorded == []  # first the reply
        if reports:  # as a gateway does at its end
            reporter.report()
        else:
            await asyncio.sleep(0)
            assert seen.heard == []
        assert recorded == [(1.0, "the request", ()), (2.0, "the request", ())]
        await asyncio.sleep(0)
        assert len(recorded) == 2

    run(main)


def test_a_line_has_the_time_at_which_its_request_ended_not_that_of_the_report():
    stream = io.StringIO()
    with log_to(stream):
        log_request(told(1_700_000_000.0, seconds=1.25))
    assert json.loads(stream.getvalue())["at"] == "2023-11-14T22:13:21.250+00:00"


def test_a_line_is_written_soon_and_the_thread_that_writes_sleeps_until_the_next():
    stream = io.StringIO()
    with log_to(stream):
        for expected in (1, 2):
            log_request(told(1.0))
            end = time.monotonic() + 5
            while stream.getvalue().count("\n") < expected and time.monotonic() < end:
                time.sleep(0.005)
            assert stream.getvalue().count("\n") == expected
