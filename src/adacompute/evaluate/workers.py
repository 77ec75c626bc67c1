"""Every policy on every split, by one process or several, with the same results. Knows no policy.

Each split has its own stream of random numbers, so results don't depend on who computes what when.
"""

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from threadpoolctl import threadpool_limits

from adacompute.evaluate.entrants import Entrant
from adacompute.evaluate.folds import Split
from adacompute.evaluate.measure import Ground, Measured, Setup, measure

__all__ = ["Progress", "measured"]

Progress = Callable[[int, int, str], None]  # done, of how many, what was done last
Results = dict[tuple[int, str], Measured]  # by split and name


def measured(
    setup: Setup,
    splits: Sequence[Split],
    entrants: Sequence[Entrant],
    *,
    workers: int = 1,
    progress: Progress | None = None,
) -> Results:
    """What each entrant gives on each split."""
    total, found = len(splits) * len(entrants), {}
    work = _alone if workers == 1 else _together
    for number, name, one in work(setup, splits, entrants, workers):
        found[number, name] = one
        if progress is not None:
            progress(len(found), total, f"{name}, part {number + 1} of {len(splits)}")
    return found


def _alone(
    setup: Setup, splits: Sequence[Split], entrants: Sequence[Entrant], _workers: int
) -> Iterator[tuple[int, str, Measured]]:
    for number, split in enumerate(splits):
        ground = Ground(setup, split, number)
        for entrant in entrants:
            yield number, entrant.name, _one(ground, entrant)


def _together(
    setup: Setup, splits: Sequence[Split], entrants: Sequence[Entrant], workers: int
) -> Iterator[tuple[int, str, Measured]]:
    # fresh processes: threads of a library that was used here already don't survive a fork
    context = multiprocessing.get_context("spawn")
    before = set(multiprocessing.active_children())
    with ProcessPoolExecutor(
        workers, mp_context=context, initializer=_begin, initargs=(setup, tuple(splits))
    ) as pool:
        futures = {
            pool.submit(_part, number, entrant): (number, entrant.name)
            for number in range(len(splits))
            for entrant in entrants
        }
        try:
            for future in as_completed(futures):
                yield *futures[future], future.result()
        except BaseException:  # stopped, or one has failed: nobody waits for the rest
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
            raise


class _Worker:
    """What a process keeps from one part of the work to the next: the split it was last on."""

    def __init__(self, setup: Setup, splits: tuple[Split, ...]) -> None:
        self.setup, self.splits = setup, splits
        self.ground: Ground | None = None

    def at(self, number: int) -> Ground:
        if self.ground is None or self.ground.number != number:
            self.ground = Ground(self.setup, self.splits[number], number)
        return self.ground


_WORKERS: list[_Worker] = []  # of this process: one, once it has begun


def _begin(setup: Setup, splits: tuple[Split, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it at once, without a word
    _WORKERS.append(_Worker(setup, splits))


def _part(number: int, entrant: Entrant) -> Measured:
    return _one(_WORKERS[-1].at(number), entrant)


def _one(ground: Ground, entrant: Entrant) -> Measured:
    # many small products of matrices: threads for each would wait for one another three times as long
    with threadpool_limits(limits=1):
        return measure(ground, entrant)
