"""Several processes or threads on one thing: one that ends early is told of, and none outlives its owner."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError, Future
from pathlib import Path

import numpy as np
import pytest

from adacompute.errors import AdacomputeError
from adacompute.evaluate.measure import EvaluationSetup
from adacompute.evaluate.parallel import open_threads, open_workers
from adacompute.evaluate.protocols import run_policies
from adacompute.evaluate.verdict import measure_paired
from shared import read_votes

ASLEEP = """
import time
from adacompute.evaluate.parallel import open_workers
with open_workers(600, workers=2) as ask:
    list(ask(time.sleep, [(), ()]))
"""


@pytest.mark.slow
def test_a_process_that_ends_early_is_told_of_with_what_to_do(tmp_path: Path):
    with pytest.raises(AdacomputeError, match="--workers 1") as told, open_workers(9, workers=2) as ask:
        list(ask(os._exit, [(), ()]))
    assert "\n" not in str(told.value)


def count_problems(setup: EvaluationSetup) -> int:
    return len(setup.ballots)


@pytest.mark.slow
def test_work_beside_the_policies_is_done_by_any_number_of_workers_and_is_no_step():
    ballots = read_votes("facts").only(range(0, 353, 10))
    for workers in (1, 2):
        steps: list[tuple[int, int]] = []
        runs = run_policies(
            ballots,
            policies=("fixed", "asc"),
            parts=2,
            orders=2,
            workers=workers,
            progress=lambda done, total, _, steps=steps: steps.append((done, total)),
            beside={"problems": count_problems},
        )
        assert runs.beside == {"problems": len(ballots)}
        assert sorted(steps) == [(done, 4) for done in (1, 2, 3, 4)]
        assert {result.name for result in runs.everyone} == {"fixed", "asc"}


@pytest.mark.slow
def test_results_are_the_same_from_threads_as_without():
    ballots = read_votes("words").only(range(0, 300, 10))
    expected = measure_paired(ballots, policy="stopping", repeats=1).points
    with open_threads(3) as threads:
        results = threads.run_beside(
            lambda: measure_paired(ballots, policy="stopping", repeats=1, threads=threads)
        ).result()
    assert np.array_equal(results.points.cost, expected.cost)
    assert np.array_equal(results.points.accuracy, expected.accuracy)


def test_threads_take_tasks_in_order_and_raise_their_errors():
    with open_threads(1) as threads:
        order: list[int] = []
        assert threads.map(lambda number: (order.append(number), number * 2)[1], [3, 1, 2]) == [6, 2, 4]
        failed: Future[int] = threads.submit(int, "three")
        with pytest.raises(ValueError, match="three"):
            failed.result()
    assert order == [3, 1, 2]


def test_interrupted_threads_end_at_once_and_begin_nothing_more():
    begun = threading.Event()

    def loop() -> None:
        begun.set()
        while True:
            time.sleep(0.001)

    tasks: list[Future[None]] = []

    def start_and_stop() -> None:
        with open_threads(1) as threads:
            tasks.extend([threads.submit(loop), threads.submit(loop)])
            begun.wait()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start_and_stop()
    running, queued = tasks
    assert running.exception() is not None
    with pytest.raises(CancelledError):
        queued.result()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc, which Linux alone has")
def test_no_process_outlives_a_killed_parent():
    process = subprocess.Popen([sys.executable, "-c", ASLEEP], start_new_session=True)
    try:
        ours: set[int] = set()
        while len(ours) < 3:  # two, and Python's own that looks after what they share
            assert process.poll() is None
            ours = _children(process.pid)
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    until = time.monotonic() + 60
    while any(map(_runs, ours)):
        assert time.monotonic() < until, "still there"
        time.sleep(0.05)


def _children(pid: int) -> set[int]:
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        found |= {int(one) for one in (task / "children").read_text().split()}
    return found


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
