"""A policy that judges states, at many dials: each state of each path is judged once. Knows no folds.

What going on is worth at a state (its critical price, or how unsure the leader is) doesn't depend on the
dial; only the decision does. So the verdicts on all paths are found once, and the policy's own `decide` looks
them up: the answers are the same.
"""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

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


_JUDGES = ("critical", "unsure")  # methods that give every state one number; policies decide by it alone


def swept_once(policy: Policy, paths: Paths, dials: Sequence[float | None]) -> Sweep:
    """As `adacompute.replay.sweep`, each state judged once and not once a dial, where that can be."""
    if _judging(policy) is None or len(dials) < 2:
        return sweep(policy, paths, dials)
    remembered = Remembered(policy, paths)
    found = [Each.of(paths, remembered.run(dial)) for dial in dials]
    return Sweep(
        dials=tuple(dials), **{name: np.array([getattr(one, name) for one in found]) for name in _NAMES}
    )


def _judging(policy: Policy) -> str | None:
    return next((name for name in _JUDGES if hasattr(policy, name)), None)


class Remembered:
    """A policy along paths at one dial after another: what it reads, and what it can of states, once."""

    def __init__(self, policy: Policy, paths: Paths) -> None:
        self._policy, self._paths = policy, paths
        judging = _judging(policy)
        if judging is None:
            self._reading = policy.read(paths.ballots.prompts)
            return
        stand_in: Any = copy.copy(policy)
        setattr(stand_in, judging, _Known(policy, paths, judging))
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
    """The verdicts on every path after each draw, found when first asked for."""

    def __init__(self, policy: Any, paths: Paths, judging: str) -> None:  # noqa: ANN401 - whatever judges
        self.judge, self.paths = getattr(policy, judging), paths
        self.reading = policy.read(paths.ballots.prompts)[paths.problems]
        self.rows = np.arange(len(paths))
        self.found: dict[int, Floats] = {}

    def __call__(self, numbers: Floats, standing: Standing) -> Floats:
        """Of the paths with these numbers, where they stand; nothing (NaN) of those that haven't begun."""
        at = numbers[:, 0].astype(np.int64)
        verdicts = np.full(len(at), np.nan)
        for drawn in np.unique(standing.drawn).tolist():
            if drawn > 0:
                here = standing.drawn == drawn
                verdicts[here] = self._after(drawn)[at[here]]
        return verdicts

    def _after(self, drawn: int) -> Floats:
        if drawn not in self.found:
            standing = self.paths.standing(self.rows, np.full(len(self.rows), drawn, dtype=np.int64))
            self.found[drawn] = self.judge(self.reading, standing)
        return self.found[drawn]
