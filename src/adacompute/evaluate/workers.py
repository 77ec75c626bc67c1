"""Every policy on every split, by one process or several, with the same results. Knows no policy.

Each split has its own stream of random numbers, so results don't depend on who computes what when.
"""

from collections.abc import Sequence

from adacompute.evaluate.crew import Progress, crew
from adacompute.evaluate.entrants import Entrant
from adacompute.evaluate.folds import Split
from adacompute.evaluate.measure import Ground, Measured, Setup, measure

__all__ = ["Progress", "measured"]

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
    work = [(number, entrant) for number in range(len(splits)) for entrant in entrants]
    found: Results = {}
    with crew(_Bench(setup, tuple(splits)), workers=workers) as ask:
        for place, one in ask(_part, work):
            number, entrant = work[place]
            found[number, entrant.name] = one
            if progress is not None:
                progress(len(found), len(work), f"{entrant.name}, part {number + 1} of {len(splits)}")
    return found


class _Bench:
    """What a process keeps from one part of the work to the next: the split it was last on."""

    def __init__(self, setup: Setup, splits: tuple[Split, ...]) -> None:
        self.setup, self.splits = setup, splits
        self.ground: Ground | None = None

    def at(self, number: int) -> Ground:
        if self.ground is None or self.ground.number != number:
            self.ground = Ground(self.setup, self.splits[number], number)
        return self.ground


def _part(bench: _Bench, number: int, entrant: Entrant) -> Measured:
    return measure(bench.at(number), entrant)
