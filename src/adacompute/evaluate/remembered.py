"""A policy with critical prices at many prices: each state of each path is judged once. Knows no folds.

What going on is worth at a state doesn't depend on the dial; only the decision does. So the critical prices
of all paths are found once, and the policy's own `decide` looks them up: the answers are the same.
"""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from adacompute.paths import Paths, Standing
from adacompute.policies.base import Policy
from adacompute.replay.each import Each
from adacompute.replay.run import Run, run
from adacompute.replay.sweep import Sweep, sweep

__all__ = ["Remembered", "swept_once"]

Floats = npt.NDArray[np.float64]

_NAMES = ("cost", "accuracy", "agreement", "waves", "tokens")


@runtime_checkable
class _Pricing(Protocol):
    """Has a critical price for every state, and decides by it alone."""

    def critical(self, reading: Floats, standing: Standing) -> Floats: ...


def swept_once(policy: Policy, paths: Paths, dials: Sequence[float | None]) -> Sweep:
    """As `adacompute.replay.sweep`, each state judged once and not once a dial, where that can be."""
    if not isinstance(policy, _Pricing) or len(dials) < 2:
        return sweep(policy, paths, dials)
    remembered = Remembered(policy, paths)
    found = [Each.of(paths, remembered.run(dial)) for dial in dials]
    return Sweep(
        dials=tuple(dials), **{name: np.array([getattr(one, name) for one in found]) for name in _NAMES}
    )


class Remembered:
    """A policy along paths at one dial after another: what it reads, and what it can of states, once."""

    def __init__(self, policy: Policy, paths: Paths) -> None:
        self._policy, self._paths = policy, paths
        if not isinstance(policy, _Pricing):
            self._reading = policy.read(paths.ballots.prompts)
            return
        stand_in: Any = copy.copy(policy)
        stand_in.critical = _Known(policy, paths).critical
        self._policy = stand_in
        # every path is a problem of its own here, and its number is what is read of its prompt
        self._paths = replace(paths, ballots=_Rows(len(paths)), orders=1)  # type: ignore[arg-type]
        self._reading = np.arange(len(paths), dtype=np.float64)[:, None]

    def run(self, dial: float | None) -> Run:
        """As `adacompute.replay.run`."""
        return run(self._policy, self._paths, dial=dial, reading=self._reading)


class _Rows:
    """So many problems of which nothing is asked."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count


class _Known:
    """The critical prices of every path after each draw, found when first asked for."""

    def __init__(self, policy: Any, paths: Paths) -> None:  # noqa: ANN401 - whatever has critical prices
        self.policy, self.paths = policy, paths
        self.reading = policy.read(paths.ballots.prompts)[paths.problems]
        self.rows = np.arange(len(paths))
        self.found: dict[int, Floats] = {}

    def critical(self, numbers: Floats, standing: Standing) -> Floats:
        """Of the paths with these numbers, where they stand."""
        at = numbers[:, 0].astype(np.int64)
        critical = np.empty(len(at))
        for drawn in np.unique(standing.drawn).tolist():
            here = standing.drawn == drawn
            critical[here] = self._after(drawn)[at[here]]
        return critical

    def _after(self, drawn: int) -> Floats:
        if drawn not in self.found:
            standing = self.paths.standing(self.rows, np.full(len(self.rows), drawn, dtype=np.int64))
            self.found[drawn] = self.policy.critical(self.reading, standing)
        return self.found[drawn]
