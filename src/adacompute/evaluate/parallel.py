"""Work on shared data, in this process or in several, with the same results.

Each task runs with one thread: the work is many small matrix products, for which threads cost
more than they save, and there are as many processes as cores. Each split has its own random
stream, so results don't depend on which process computes what.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any, TypeVar

from adacompute.errors import AdacomputeError, needs_extra
from adacompute.evaluate.measure import (
    ComparedPolicy,
    EvaluationSetup,
    SplitData,
    SplitResult,
    measure_policy,
)
from adacompute.evaluate.resampling import Split

__all__ = ["ProgressCallback", "SetupWork", "measure_all", "open_workers", "split_progress", "start_worker"]

ResultsBySplit = dict[tuple[int, str], SplitResult]  # by split and name

SetupWork = Callable[[EvaluationSetup], Any]  # picklable
RunTasks = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Iterator[tuple[int, Any]]]
ProgressCallback = Callable[[int, int, str], None]  # tasks done, of how many, and the last one's name
T = TypeVar("T")

_SHARED: list[Any] = []  # the shared data of this process: one item, once it has started
_BROKEN = (
    "one of {workers} worker processes ended early, perhaps for lack of memory; use one: --workers 1 "
    '(in Python: workers=1, or put the script\'s own work below `if __name__ == "__main__":`)'
)


@contextmanager
def open_workers(shared: object, *, workers: int) -> Iterator[RunTasks]:
    """Open a way to run `function(shared, *arguments)` for many arguments.

    What it yields gives the index and the result of each task as they finish.
    """
    if workers == 1:

        def run_here(
            function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]
        ) -> Iterator[tuple[int, Any]]:
            for index, arguments in enumerate(tasks):
                yield index, _call_with_one_thread(function, shared, *arguments)

        yield run_here
        return
    try:
        with _open_processes(shared, workers) as run_tasks:
            yield run_tasks
    except BrokenProcessPool as exc:
        raise AdacomputeError(_BROKEN.format(workers=workers)) from exc


@contextmanager
def _open_processes(shared: object, workers: int) -> Iterator[RunTasks]:
    # spawn, not fork: threads that a library has already started don't survive a fork
    context = multiprocessing.get_context("spawn")
    before = set(multiprocessing.active_children())
    with ProcessPoolExecutor(
        workers, mp_context=context, initializer=start_worker, initargs=(shared,)
    ) as pool:

        def run_in_processes(
            function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]
        ) -> Iterator[tuple[int, Any]]:
            indices = {
                pool.submit(_call_shared, function, *arguments): at for at, arguments in enumerate(tasks)
            }
            for future in as_completed(indices):
                yield indices[future], future.result()

        try:
            yield run_in_processes
        except BaseException:  # interrupted, or a task has failed: don't wait for the rest
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
            raise


def start_worker(shared: object = None) -> None:
    """Prepare a worker process: it ends quietly on Ctrl-C, and with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the process at once, without a traceback
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _SHARED[:] = [shared]


def _exit_with_parent() -> None:
    """End this process when its parent is gone: nobody waits for it any more."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGKILL)


def _call_shared(function: Callable[..., T], *arguments: object) -> T:
    return _call_with_one_thread(function, _SHARED[0], *arguments)


def _call_with_one_thread(function: Callable[..., T], *arguments: object) -> T:
    with needs_extra("fit"):
        from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        return function(*arguments)


def measure_all(
    setup: EvaluationSetup,
    splits: Sequence[Split],
    policies: Sequence[ComparedPolicy],
    *,
    workers: int = 1,
    progress: ProgressCallback | None = None,
    beside: Mapping[str, SetupWork] | None = None,
) -> tuple[ResultsBySplit, dict[str, Any]]:
    """Measure each policy on each split; and what the work `beside` gives, by its name.

    That work needs the setup alone. It is begun first, since one of its parts may take as long as a whole
    split. Only policies count as steps of the progress.
    """
    works = list((beside or {}).items())
    steps = [(number, entrant) for number in range(len(splits)) for entrant in policies]
    results: ResultsBySplit = {}
    others: dict[str, Any] = {}
    tasks = [*((_work_task, work) for _, work in works), *((_measure_task, *step) for step in steps)]
    with open_workers(_SplitCache(setup, tuple(splits)), workers=workers) as run_tasks:
        for index, result in run_tasks(_run_task, tasks):
            if index < len(works):
                others[works[index][0]] = result
                continue
            number, entrant = steps[index - len(works)]
            results[number, entrant.name] = result
            if progress is not None:
                progress(len(results), len(steps), f"{entrant.name}, part {number + 1} of {len(splits)}")
    return results, others


class _SplitCache:
    """Keeps the split that a process last worked on, for its next task."""

    def __init__(self, setup: EvaluationSetup, splits: tuple[Split, ...]) -> None:
        self.setup, self.splits = setup, splits
        self.split_data: SplitData | None = None

    def at(self, number: int) -> SplitData:
        if self.split_data is None or self.split_data.number != number:
            self.split_data = SplitData(self.setup, self.splits[number], number)
        return self.split_data


def _run_task(cache: _SplitCache, task: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
    return task(cache, *arguments)


def _work_task(cache: _SplitCache, work: SetupWork) -> Any:  # noqa: ANN401 - whatever the work gives
    return work(cache.setup)


def _measure_task(cache: _SplitCache, number: int, compared: ComparedPolicy) -> SplitResult:
    return measure_policy(cache.at(number), compared)


def split_progress(
    progress: ProgressCallback | None, second_steps: int
) -> tuple[ProgressCallback, ProgressCallback]:
    """One progress count over two stages, of which the second has `second_steps` steps."""
    first_stage = [0]  # steps of the first stage, known once it has begun

    def report_first(done: int, total: int, last: str) -> None:
        first_stage[0] = total
        if progress is not None:
            progress(done, total + second_steps, last)

    def report_second(done: int, total: int, last: str) -> None:
        if progress is not None:
            progress(first_stage[0] + done, first_stage[0] + total, last)

    return report_first, report_second
