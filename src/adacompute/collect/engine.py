"""What draws runs of samples into a pool, wherever it does so. Knows nothing of how."""

import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

from adacompute.collect.asking import Asking
from adacompute.collect.left import Run
from adacompute.collect.outcome import Progress, Stop
from adacompute.collect.purse import Purse
from adacompute.pool import Pool

__all__ = ["Drawer", "Engine"]


class Drawer(Protocol):
    """Draws runs; when it has drawn some, all that came of them is in the pool."""

    added: int  # samples
    failures: dict[str, str]  # problem id -> the last reason
    errors: Counter[str]  # attempts that gave nothing, by kind
    stopped: Stop | None
    why: str | None
    signal: int | None  # its number, where one stopped it

    @property
    def per_call(self) -> int | None:
        """Samples that one call gives at most, as far as was learned."""

    @property
    def logprobs(self) -> bool | None:
        """Whether log-probabilities are given, as far as was learned."""

    async def draw(self, runs: Iterator[Run]) -> None:
        """All runs; fewer where it is stopped."""

    def stop(self, how: Stop, why: str | None = None, *, number: int | None = None) -> None:
        """Begins nothing more, in good order."""

    def again(self) -> None:
        """Forgets what failed: it is asked for once more."""

    def progress(self, *, planned: int, before: int) -> Progress:
        """How far it is, of so many samples, so many of which were stored before."""


@runtime_checkable
class Engine(Protocol):
    """Where samples are drawn: in this process, or elsewhere."""

    @property
    def width(self) -> int:
        """Calls at the same time, at most."""

    def drawing(
        self,
        pool: Pool,
        *,
        asking: Asking,
        purse: Purse,
        told: Callable[[Drawer], None],
        signals: Sequence[signal.Signals] = (),
    ) -> AbstractAsyncContextManager[Drawer]:
        """A drawer into a pool, which tells how far it is; on leaving, all that came is stored.

        The first of `signals` stops it in good order; the second leaves the block at once, and gives up what
        is in flight.
        """
