"""Work on one thing that all share, by one process or several, with the same results. Knows no section."""

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any, TypeVar

__all__ = ["Ask", "crew"]

Ask = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Iterator[tuple[int, Any]]]
T = TypeVar("T")

_SHARED: list[Any] = []  # of this process: one, once it has begun


@contextmanager
def crew(shared: object, *, workers: int) -> Iterator[Ask]:
    """Asks `function(shared, *arguments)` for each arguments; gives place and result as they are done."""
    if workers == 1:

        def alone(function: Callable[..., Any], many: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
            for at, arguments in enumerate(many):
                yield at, function(shared, *arguments)

        yield alone
        return
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
    _SHARED[:] = [shared]


def _one(function: Callable[..., T], *arguments: object) -> T:
    return function(_SHARED[0], *arguments)
