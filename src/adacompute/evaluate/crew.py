"""Work on one thing that all share, by one process or several, with the same results. Knows no work.

Every piece of it has one thread: many small products of matrices, for which threads would wait for one
another three times as long, and as many processes as there are cores.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

from adacompute.errors import AdacomputeError

__all__ = ["Ask", "Progress", "crew"]

Ask = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Iterator[tuple[int, Any]]]
Progress = Callable[[int, int, str], None]  # done, of how many, what was done last
T = TypeVar("T")

_SHARED: list[Any] = []  # of this process: one, once it has begun
_BROKEN = (
    "a process of {workers} ended before its work was done, perhaps for want of memory; use one: --workers 1 "
    '(in Python workers=1, or the script\'s own work below `if __name__ == "__main__":`)'
)


@contextmanager
def crew(shared: object, *, workers: int) -> Iterator[Ask]:
    """Asks `function(shared, *arguments)` for each arguments; gives place and result as they are done."""
    if workers == 1:

        def alone(function: Callable[..., Any], many: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
            for at, arguments in enumerate(many):
                yield at, _single(function, shared, *arguments)

        yield alone
        return
    try:
        with _pool(shared, workers) as ask:
            yield ask
    except BrokenProcessPool as exc:
        raise AdacomputeError(_BROKEN.format(workers=workers)) from exc


@contextmanager
def _pool(shared: object, workers: int) -> Iterator[Ask]:
    # fresh processes: threads of a library that was used here already don't survive a fork
    context = multiprocessing.get_context("spawn")
    before = set(multiprocessing.active_children())
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(shared,)) as pool:

        def together(
            function: Callable[..., Any], many: Sequence[tuple[Any, ...]]
        ) -> Iterator[tuple[int, Any]]:
            places = {pool.submit(_one, function, *arguments): at for at, arguments in enumerate(many)}
            for future in as_completed(places):
                yield places[future], future.result()

        try:
            yield together
        except BaseException:  # stopped, or one has failed: nobody waits for the rest
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
            raise


def _begin(shared: object) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it at once, without a word
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _SHARED[:] = [shared]


def _end_with_parent() -> None:
    """A process that nobody waits for any more, since its parent was killed, ends too."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGKILL)


def _one(function: Callable[..., T], *arguments: object) -> T:
    return _single(function, _SHARED[0], *arguments)


def _single(function: Callable[..., T], *arguments: object) -> T:
    with threadpool_limits(limits=1):
        return function(*arguments)
