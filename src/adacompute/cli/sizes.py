"""Which budgets samples are scored at, where nobody has named any. Knows nothing of votes."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from adacompute.cli.show import counted, message
from adacompute.errors import TooFewSamples

__all__ = ["Counted", "allowed"]


class Counted(Protocol):
    """Problems with their numbers of samples: ballots, or what is known of shards."""

    @property
    def ids(self) -> Sequence[str]:
        """(problems,)"""

    @property
    def drawn(self) -> npt.NDArray[np.int64]:
        """(problems,) samples."""


def allowed(ballots: Counted, defaults: tuple[int, ...], *, drop: bool) -> tuple[int, ...]:
    """Those of the default budgets that the samples allow; says so on stderr where they are fewer.

    Problems with less than half of the samples that the middle one has don't decide for all the others:
    they are an error, or left alone where problems are to be dropped.
    """
    drawn = ballots.drawn
    short = 2 * drawn < np.median(drawn)  # (problems,)
    if drawn.min() >= defaults[-1]:
        return defaults
    if short.any() and not drop:
        raise TooFewSamples(_refusal(ballots, defaults))
    fewest = int(drawn[~short].min())
    found = _within(defaults, fewest)
    if found != defaults:
        listed = ", ".join(map(str, found))
        kept = " of those kept" if short.any() else ""
        why = f"the problem with fewest samples{kept} has {fewest}"
        message(f"scored at {listed}: {why}; --budgets chooses others")
    return found


def _within(budgets: tuple[int, ...], most: int) -> tuple[int, ...]:
    return tuple(budget for budget in budgets if budget <= most)


def _refusal(ballots: Counted, defaults: tuple[int, ...]) -> str:
    drawn = ballots.drawn
    row, fewest = int(drawn.argmin()), int(drawn.min())
    listed = ",".join(map(str, _within(defaults, fewest)))
    return (
        f"problem {ballots.ids[row]!r} has {counted(fewest, 'sample')}, less than half of what most have; "
        f"give --budgets {listed} or --too-few drop, or collect more"
    )
