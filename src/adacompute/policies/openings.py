"""What votes of b samples are worth once the first of them is known. Knows nothing of policies or prices.

A policy that looks at the first sample keeps it: the votes to compare are those that begin with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adacompute.answers import Weigh
from adacompute.answers.weigh import UNIT
from adacompute.pool import Ballots
from adacompute.score.grades import class_values, grades
from adacompute.score.weighted import units

__all__ = ["Openings", "openings"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_CELLS = 1 << 22  # pairs of draws compared at a time


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Openings:
    """Random orders of each problem's samples."""

    entropy: Floats  # (problems, orders) of the first sample, nats; NaN: not known
    accuracy: Floats  # (problems, orders, budgets) worth of the answer that leads after so many samples


def openings(
    ballots: Ballots,
    budgets: Sequence[int],
    *,
    orders: int,
    rng: np.random.Generator,
    weigh: Weigh | None = None,
) -> Openings:
    """Votes along random orders, ties to the first seen; each sample begins about as many as another.

    Problems have as many samples as the largest budget, and grades: whoever scored them knows.
    """
    drawn, longest = ballots.drawn, budgets[-1]
    weights = np.full(ballots.classes.shape, UNIT) if weigh is None else units(ballots, weigh)
    sizes, worth = class_values(ballots.classes, grades(ballots))
    worth = np.where(sizes > 0, worth, 0.0)
    entropy = np.empty((len(ballots), orders))
    accuracy = np.empty((len(ballots), orders, len(budgets)))
    step = max(1, _CELLS // (orders * longest**2))
    for start in range(0, len(ballots), step):
        rows = np.arange(start, min(start + step, len(ballots)))
        order = _orders(
            drawn[rows], orders, ballots.classes.shape[1], longest, rng
        )  # (rows, orders, longest)
        at = rows[:, None, None]
        entropy[rows] = ballots.entropy[rows[:, None], order[:, :, 0]]
        classes = ballots.classes[at, order].reshape(-1, longest)
        led = _leaders(classes, weights[at, order].reshape(-1, longest), budgets)  # (paths, budgets)
        owner = np.repeat(rows, orders)[:, None]
        value = np.where(led >= 0, worth[owner, np.maximum(led, 0)], 0.0) if worth.shape[1] else led * 0.0
        accuracy[rows] = value.reshape(len(rows), orders, len(budgets))
    return Openings(entropy=entropy, accuracy=accuracy)


def _orders(drawn: Ints, orders: int, samples: int, longest: int, rng: np.random.Generator) -> Ints:
    """Which samples come, in turn, (problems, orders, longest); the first ones evenly spread."""
    keys = rng.random((len(drawn), orders, samples))
    absent = np.arange(samples) >= drawn[:, None]
    keys[np.broadcast_to(absent[:, None, :], keys.shape)] = 2.0
    start = np.argsort(np.where(absent, 2.0, rng.random((len(drawn), samples))), axis=1)
    turn = np.arange(orders) % drawn[:, None]  # (problems, orders)
    first = np.take_along_axis(start, turn, axis=1)
    np.put_along_axis(keys, first[:, :, None], -1.0, axis=2)
    return np.asarray(np.argsort(keys, axis=2)[:, :, :longest])


def _leaders(classes: npt.NDArray[np.int32], weights: Ints, budgets: Sequence[int]) -> Ints:
    """The class that leads after each budget, (paths, budgets); -1 where none has answered."""
    longest = classes.shape[1]
    seen = (classes[:, :, None] == classes[:, None, :]).argmax(axis=2)  # (paths, longest) first such draw
    cast = np.where(classes >= 0, weights, 0)
    sums = np.zeros(classes.shape, dtype=np.int64)
    rows, led, at = np.arange(len(classes)), [], 0
    for budget in budgets:
        for draw in range(at, min(budget, longest)):
            sums[rows, seen[:, draw]] += cast[:, draw]
        at = budget
        best = sums.argmax(axis=1)  # of equals the first seen
        led.append(np.where(sums[rows, best] > 0, classes[rows, best], -1))
    return np.stack(led, axis=1).astype(np.int64)
