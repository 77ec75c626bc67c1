"""Runs tasks on shared data in one process or several; the number of processes doesn't change the results.

Each process uses one thread for its many small matrix products, because more threads would take longer. Each
split has its own random numbers, so it doesn't matter which process measures it.

Tasks that spend most of their time in XGBoost, which releases the GIL, can run in `Threads` of this process.
Then no processes have to be started.
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
    """One or more policies that are measured together on a split; must be picklable for other processes."""

    @property
    def name(self) -> str: ...

    def measure(self, data: SplitData) -> dict[str, SplitResult]: ...


SetupWork = Callable[[EvaluationSetup], Any]  # must be picklable, because other processes call it
RunTasks = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Iterator[tuple[int, Any]]]
# called with the numbers of finished tasks and of all tasks, and the name of the latest finished task
ProgressCallback = Callable[[int, int, str], None]
T = TypeVar("T")

# in a worker process: one item, the data that all its tasks share; empty in other processes
_SHARED: list[Any] = []
_INTERRUPT_SECONDS = 0.1  # pause in seconds between attempts to interrupt a thread
_BROKEN = (
    "one of {workers} worker processes ended early, perhaps for lack of memory; use one: --workers 1 "
    '(in Python: workers=1, or put the script\'s own work below `if __name__ == "__main__":`)'
)


@contextmanager
def open_workers(shared: object, *, workers: int) -> Iterator[RunTasks]:
    """Yields a runner: `run(function, tasks)` calls `function(shared, *arguments)` for each tuple in `tasks`.

    The runner yields the index and result of each call as soon as the call ends. The calls run in `workers`
    processes; 1 means this process. Raises AdacomputeError if a process ends early.
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
    # "spawn", because libraries have started threads, which a fork wouldn't copy
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
        except BaseException:  # after an interrupt or a failed task, don't wait for other tasks
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
            raise


def start_worker(shared: object = None) -> None:
    """Sets up a worker process, which must end quietly on Ctrl-C and when its parent process ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the process at once, without a traceback
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _SHARED[:] = [shared]


def _exit_with_parent() -> None:
    """Waits until the parent process ends, then ends this process."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGKILL)


def _call_shared(function: Callable[..., T], *arguments: object) -> T:
    return call_with_one_thread(function, _SHARED[0], *arguments)


def call_with_one_thread(function: Callable[..., T], *arguments: object) -> T:
    """Calls a function with one thread for matrix products; more could change the last bits of a result."""
    with _limit_blas():
        return function(*arguments)


def _limit_blas() -> Any:  # noqa: ANN401 - a context manager of threadpoolctl
    """Returns a context manager that limits matrix products in the whole process to one thread."""
    with needs_extra("fit"):
        from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1)


class _TaskInterrupted(BaseException):
    """Raised in a thread to end it, because its result is no longer needed."""


class Threads:
    """Threads of this process that start tasks in the order in which they were submitted."""

    def __init__(self, count: int) -> None:
        self._tasks: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None] = (
            queue.SimpleQueue()
        )
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def submit(self, function: Callable[..., T], *arguments: object) -> "Future[T]":
        """Queues a call of a function; returns a future with its result."""
        future: Future[T] = Future()
        self._tasks.put((future, function, arguments))
        return future

    def run_beside(self, function: Callable[..., T], *arguments: object) -> "Future[T]":
        """Starts a function at once in a new thread, where it may submit tasks and wait for them."""
        future: Future[T] = Future()
        threading.Thread(target=_complete, args=(future, function, arguments), daemon=True).start()
        return future

    def map(self, function: Callable[..., T], items: Sequence[Any]) -> list[T]:
        """Calls a function with each item; returns results in order."""
        futures = [self.submit(function, item) for item in items]
        return [future.result() for future in futures]

    def close(self, *, interrupt: bool) -> None:
        """Ends the threads after their tasks; `interrupt` ends running tasks early, and drops queued ones."""
        if interrupt:
            with suppress(queue.Empty):
                while (task := self._tasks.get_nowait()) is not None:
                    task[0].cancel()
                    task[0].set_running_or_notify_cancel()  # wakes threads that wait for the result
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            # repeat, because an exception that is raised inside a destructor doesn't end the thread
            while interrupt and thread.is_alive():
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
    """Opens threads for tasks; each matrix product uses one thread, as in worker processes."""
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
    """Measures each policy on each split, and calls each function in `beside` with the setup.

    Returns the results of the policies, and a map from the names in `beside` to the functions' results. These
    functions start first, because one may take as long as a whole split. `progress` counts only policies. If
    `threads` are given, `workers` is ignored.
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
    """Yields the same runner as `open_workers`, but its calls run in threads that other tasks use too."""

    def run_in_threads(
        function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[int, Any]]:
        indices = {threads.submit(function, shared, *arguments): at for at, arguments in enumerate(tasks)}
        for future in as_completed(indices):
            yield indices[future], future.result()

    yield run_in_threads


class _SplitCache:
    """Keeps the data of the latest split in memory, because the next task often needs the same split."""

    def __init__(self, setup: EvaluationSetup, splits: tuple[Split, ...]) -> None:
        self.setup, self.splits = setup, splits
        self.split_data: SplitData | None = None

    def at(self, number: int) -> SplitData:
        data = self.split_data  # read the attribute only once, because another thread may replace it
        if data is None or data.number != number:
            data = self.split_data = SplitData(self.setup, self.splits[number], number)
        return data


def _run_task(cache: _SplitCache, number: int | None, task: Any) -> Any:  # noqa: ANN401 - `Compared` or `SetupWork`
    """Measures the policies in `task` on the split `number`; if that is None, calls `task` with the setup."""
    return task(cache.setup) if number is None else task.measure(cache.at(number))


def split_progress(
    progress: ProgressCallback | None, second_steps: int
) -> tuple[ProgressCallback, ProgressCallback]:
    """Makes a callback for each of two stages of work; they report progress as if it were one stage.

    `second_steps` is the second stage's number of steps.
    """
    first_stage = [0]  # holds the first stage's number of steps, which is known only when that stage begins

    def report_first(done: int, total: int, last: str) -> None:
        first_stage[0] = total
        if progress is not None:
            progress(done, total + second_steps, last)

    def report_second(done: int, total: int, last: str) -> None:
        if progress is not None:
            progress(first_stage[0] + done, first_stage[0] + total, last)

    return report_first, report_second
