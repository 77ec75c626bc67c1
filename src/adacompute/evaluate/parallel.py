"""Runs work on shared data in one or several processes, with the same results.

Each process uses one thread for its many small matrix products: more threads would cost more than they save.
Each split has its own random numbers, so results don't depend on which process computes them.

Tasks that spend most of their time in XGBoost, which releases the GIL, can run in `Threads` of this process
instead. That avoids starting processes.
"""

import ctypes
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from typing import Any, Protocol, TypeVar

from adacompute.errors import AdacomputeError, needs_extra
from adacompute.evaluate.measure import EvaluationSetup, SplitData, SplitResult
from adacompute.evaluate.resampling import Split

ResultsBySplit = dict[tuple[int, str], SplitResult]  # keys: number of the split, name of the policy


class Compared(Protocol):
    """Policies measured together on a split; must be picklable for several workers."""

    @property
    def name(self) -> str: ...

    def measure(self, data: SplitData) -> dict[str, SplitResult]: ...


SetupWork = Callable[[EvaluationSetup], Any]  # must be picklable
RunTasks = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Iterator[tuple[int, Any]]]
ProgressCallback = Callable[[int, int, str], None]  # called with tasks done, tasks in all, name of the latest
T = TypeVar("T")

_SHARED: list[Any] = []  # one item: data shared by this process's tasks; empty before the process is set up
_INTERRUPT_SECONDS = 0.1  # seconds between attempts to interrupt a thread
_BROKEN = (
    "one of {workers} worker processes ended early, perhaps for lack of memory; use one: --workers 1 "
    '(in Python: workers=1, or put the script\'s own work below `if __name__ == "__main__":`)'
)


@contextmanager
def open_workers(shared: object, *, workers: int) -> Iterator[RunTasks]:
    """Yields a function that runs `function(shared, *arguments)` for many arguments, in parallel.

    That function yields the index and result of each task as soon as the task ends.
    """
    if workers == 1:

        def run_here(
            function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]
        ) -> Iterator[tuple[int, Any]]:
            for index, arguments in enumerate(tasks):
                yield index, call_with_one_thread(function, shared, *arguments)

        yield run_here
        return
    try:
        with _open_processes(shared, workers) as run_tasks:
            yield run_tasks
    except BrokenProcessPool as exc:
        raise AdacomputeError(_BROKEN.format(workers=workers)) from exc


@contextmanager
def _open_processes(shared: object, workers: int) -> Iterator[RunTasks]:
    # spawn instead of fork: threads started by libraries don't survive a fork
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
        except BaseException:  # interrupted, or a task failed: don't wait for the rest
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
            raise


def start_worker(shared: object = None) -> None:
    """Makes a worker process end quietly on Ctrl-C, and when its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the process at once, without a traceback
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _SHARED[:] = [shared]


def _exit_with_parent() -> None:
    """Waits for the parent process to end, then ends this one."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGKILL)


def _call_shared(function: Callable[..., T], *arguments: object) -> T:
    return call_with_one_thread(function, _SHARED[0], *arguments)


def call_with_one_thread(function: Callable[..., T], *arguments: object) -> T:
    """Calls a function with one thread for matrix products: more threads may change a result's last bits."""
    with _limit_blas():
        return function(*arguments)


def _limit_blas() -> Any:  # noqa: ANN401 - a context manager of threadpoolctl
    """Limits matrix products to one thread in the whole process, until the context ends."""
    with needs_extra("fit"):
        from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1)


class _TaskInterrupted(BaseException):
    """Raised in a thread whose result nobody needs any more."""


class Threads:
    """Threads of this process that run tasks in order of submission."""

    def __init__(self, count: int) -> None:
        self._tasks: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None] = (
            queue.SimpleQueue()
        )
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def submit(self, function: Callable[..., T], *arguments: object) -> "Future[T]":
        """Queues a call of a function; returns its future result."""
        future: Future[T] = Future()
        self._tasks.put((future, function, arguments))
        return future

    def run_beside(self, function: Callable[..., T], *arguments: object) -> "Future[T]":
        """Starts a function immediately in an additional thread: it may submit tasks and wait for them."""
        future: Future[T] = Future()
        threading.Thread(target=_complete, args=(future, function, arguments), daemon=True).start()
        return future

    def map(self, function: Callable[..., T], items: Sequence[Any]) -> list[T]:
        """Calls a function with each item; returns results in order."""
        futures = [self.submit(function, item) for item in items]
        return [future.result() for future in futures]

    def close(self, *, interrupt: bool) -> None:
        """Ends the threads. With `interrupt`, tasks end at their next line of Python; no others begin."""
        if interrupt:
            with suppress(queue.Empty):
                while (task := self._tasks.get_nowait()) is not None:
                    task[0].cancel()
                    task[0].set_running_or_notify_cancel()  # wakes waiting threads
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            while interrupt and thread.is_alive():  # try again: a destructor swallows the exception
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_TaskInterrupted)
                )
                thread.join(_INTERRUPT_SECONDS)
            thread.join()

    def _work(self) -> None:
        with suppress(_TaskInterrupted):
            while (task := self._tasks.get()) is not None:
                _complete(*task)


def _complete(future: "Future[T]", function: Callable[..., T], arguments: tuple[Any, ...]) -> None:
    """Calls a function and stores its result or error in `future`."""
    try:
        result = function(*arguments)
    except BaseException as exc:  # noqa: BLE001 - it is raised where the result is asked for
        future.set_exception(exc)
    else:
        future.set_result(result)


@contextmanager
def open_threads(count: int) -> Iterator[Threads]:
    """Opens threads for tasks; matrix products use one thread each, as in worker processes."""
    with _limit_blas():
        threads = Threads(count)
        try:
            yield threads
        except BaseException:
            threads.close(interrupt=True)
            raise
        threads.close(interrupt=False)


def measure_all(
    setup: EvaluationSetup,
    splits: Sequence[Split],
    policies: Sequence[Compared],
    *,
    workers: int = 1,
    threads: Threads | None = None,
    progress: ProgressCallback | None = None,
    beside: Mapping[str, SetupWork] | None = None,
) -> tuple[ResultsBySplit, dict[str, Any]]:
    """Measures each policy on each split; also runs the functions in `beside` and returns their results.

    Functions in `beside` need only the setup. They start first, because one may take as long as a split. Only
    policies count as progress. If `threads` are given, they do the work instead of `workers`.
    """
    works = list((beside or {}).items())
    steps = [(number, entrant) for number in range(len(splits)) for entrant in policies]
    results: dict[int, dict[str, SplitResult]] = {}
    others: dict[str, Any] = {}
    tasks = [*((None, work) for _, work in works), *steps]
    cache = _SplitCache(setup, tuple(splits))
    opened = open_workers(cache, workers=workers) if threads is None else _share_threads(cache, threads)
    with opened as run_tasks:
        for index, result in run_tasks(_run_task, tasks):
            if index < len(works):
                others[works[index][0]] = result
                continue
            number, entrant = steps[index - len(works)]
            results[index] = result
            if progress is not None:
                progress(len(results), len(steps), f"{entrant.name}, part {number + 1} of {len(splits)}")
    by_split = {
        (steps[index - len(works)][0], name): result
        for index in sorted(results)
        for name, result in results[index].items()
    }
    return by_split, others


@contextmanager
def _share_threads(shared: object, threads: Threads) -> Iterator[RunTasks]:
    """Does what `open_workers` does, in threads shared with other tasks."""

    def run_in_threads(
        function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[int, Any]]:
        indices = {threads.submit(function, shared, *arguments): at for at, arguments in enumerate(tasks)}
        for future in as_completed(indices):
            yield indices[future], future.result()

    yield run_in_threads


class _SplitCache:
    """Keeps the data of the split that a process used last, for its next task."""

    def __init__(self, setup: EvaluationSetup, splits: tuple[Split, ...]) -> None:
        self.setup, self.splits = setup, splits
        self.split_data: SplitData | None = None

    def at(self, number: int) -> SplitData:
        data = self.split_data  # read once: another thread may replace it
        if data is None or data.number != number:
            data = self.split_data = SplitData(self.setup, self.splits[number], number)
        return data


def _run_task(cache: _SplitCache, number: int | None, task: Any) -> Any:  # noqa: ANN401 - `Compared` or `SetupWork`
    """Measures policies on a split; without a split, does work that needs only the setup."""
    return task(cache.setup) if number is None else task.measure(cache.at(number))


def split_progress(
    progress: ProgressCallback | None, second_steps: int
) -> tuple[ProgressCallback, ProgressCallback]:
    """Joins the progress of two stages into one; returns a callback for each stage."""
    first_stage = [0]  # number of steps of the first stage, known once it begins

    def report_first(done: int, total: int, last: str) -> None:
        first_stage[0] = total
        if progress is not None:
            progress(done, total + second_steps, last)

    def report_second(done: int, total: int, last: str) -> None:
        if progress is not None:
            progress(first_stage[0] + done, first_stage[0] + total, last)

    return report_first, report_second
