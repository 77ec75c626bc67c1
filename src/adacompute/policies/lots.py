"""Lots that a prompt draws, and shares of budgets that average out. Knows nothing of tallies or policies.

A lot is a hash of the seed and the prompt: the same request gets the same lot, live, in a batch and replayed.
"""

import hashlib
from collections.abc import Sequence
from typing import Literal

import numpy as np

from adacompute.errors import BudgetOutOfRange
from adacompute.paths.standing import Floats

__all__ = ["Spread", "key", "lots", "shares"]

Spread = Literal["adjacent", "ends", "all"]

_HALVINGS = 200  # of an interval of tilts: far below what a number can tell
_TILT = 800.0  # at which all but the nearest budget has no share left


def lots(prompts: Sequence[str], *, seed: int) -> Floats:
    """A number from 0 to below 1 for each prompt, (prompts,), as if drawn at random.

    >>> one, other = lots(["What is 2 + 2?", "What is 2 + 3?"], seed=0).tolist()
    >>> one == lots(["What is 2 + 2?"], seed=0).item(), one == other
    (True, False)
    """
    return np.array([(key(prompt, seed=seed) >> 11) * 2.0**-53 for prompt in prompts], dtype=np.float64)


def key(prompt: str, *, seed: int = 0) -> int:
    """A hash of 64 bits of the seed and the prompt."""
    text = prompt.encode("utf-8", "surrogatepass")  # half a pair may come out of a cut conversation
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, salt=seed.to_bytes(8, "big")).digest(), "big")


def shares(budgets: Sequence[int], average: float, spread: Spread) -> Floats:
    """What share of requests gets each budget, (budgets,), so that they average out; the largest at most.

    `spread` says among which: the two budgets "adjacent" to the average, the cheapest and the dearest
    ("ends"), or "all", as evenly as the average allows (the distribution of maximum entropy).

    >>> shares((1, 2, 4), 3.0, "adjacent").tolist(), shares((1, 2, 4), 3.25, "ends").tolist()
    ([0.0, 0.5, 0.5], [0.25, 0.0, 0.75])
    """
    modes = np.asarray(budgets, dtype=np.float64)
    if average < modes[0]:
        raise BudgetOutOfRange(
            f"budget {average:g} is below the cheapest mode ({budgets[0]}); give from {budgets[0]} up"
        )
    found = np.zeros(len(modes))
    if average >= modes[-1]:
        found[-1] = 1.0
        return found
    if spread == "all" and average > modes[0]:
        return _even(modes, average)
    above = int(np.searchsorted(modes, average, side="right")) if spread == "adjacent" else len(modes) - 1
    below = above - 1 if spread == "adjacent" else 0
    found[above] = (average - modes[below]) / (modes[above] - modes[below])
    found[below] = 1.0 - found[above]
    return found


def _even(modes: Floats, average: float) -> Floats:
    """Shares proportional to exp(tilt * budget), with the tilt that meets the average."""

    def at(tilt: float) -> Floats:
        powers = tilt * modes
        weights = np.exp(powers - powers.max())
        return np.asarray(weights / weights.sum())

    low, high = -_TILT, _TILT
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if at(middle) @ modes < average else (low, middle)
    return at((low + high) / 2)
