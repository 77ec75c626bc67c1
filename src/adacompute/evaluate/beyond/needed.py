"""Samples on average that each policy needs to be as accurate as the most samples for all. No drawing."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.bootstrap import Interval, interval_of
from adacompute.evaluate.entrants import PLAIN
from adacompute.evaluate.matched import Points
from adacompute.evaluate.measure import Basis
from adacompute.evaluate.protocols import Played
from adacompute.evaluate.told import boot_of
from adacompute.replay.hull import hull

__all__ = ["Need", "Needed", "needed_of"]

Floats = npt.NDArray[np.float64]

_DRAWS = 500  # of problems: each has hulls of its own
_BEYOND = 1e9  # samples: more than any
_CLOSE = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What one policy needs; infinite: it is never so accurate."""

    policy: str
    samples: Interval  # ends may be infinite
    reached: float  # share of the draws of problems in which it is so accurate
    most: float  # samples on average of its most accurate setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """Every policy, against so many samples for all problems alike."""

    target: int  # samples
    accuracy: Interval  # that they give
    weighted: bool  # votes were
    basis: Basis
    rows: tuple[Need, ...]  # the cheapest first

    def of(self, policy: str) -> Need | None:
        return next((one for one in self.rows if one.policy == policy), None)


def needed_of(found: Played) -> Needed:
    """In each draw of problems the target and every policy's hull are read anew."""
    setup, plain = found.setup, found.of(PLAIN).points
    boot = boot_of(setup)
    last = plain.accuracy[int(plain.cost.mean(axis=1).argmax())]  # (problems,) of the most samples
    shares = boot.shares[:_DRAWS] if len(last) > 1 else boot.shares[:0]
    wanted = np.append(shares @ last, last.mean())  # the last is of all problems
    most = float(setup.longest)
    rows = [_need(one.name, one.points, shares, wanted, most=most) for one in found.everyone]
    return Needed(
        target=setup.longest,
        accuracy=boot.interval(last),
        weighted=setup.weighted,
        basis=setup.basis,
        rows=tuple(sorted(rows, key=lambda one: one.samples.mean)),
    )


def _need(policy: str, points: Points, shares: Floats, wanted: Floats, *, most: float) -> Need:
    whole = np.full((1, points.cost.shape[1]), 1 / points.cost.shape[1])
    draws = np.concatenate([shares, whole])
    cost, accuracy = draws @ points.cost.T, draws @ points.accuracy.T  # (draws + 1, settings)
    each = np.array([_first(*pair) for pair in zip(cost, accuracy, wanted, strict=True)])
    mean, drawn = float(each[-1]), each[:-1]
    if not len(drawn):
        samples = Interval(mean=mean, low=None, high=None)
    else:
        ends = interval_of(mean, np.minimum(drawn, _BEYOND))
        # an end between the most and what is beyond lies between draws that get there and draws that don't
        low, high = (math.inf if end is None or end > most + _CLOSE else end for end in (ends.low, ends.high))
        samples = Interval(mean=mean, low=low, high=high)
    reached = float(np.isfinite(drawn).mean()) if len(drawn) else float(math.isfinite(mean))
    return Need(policy=policy, samples=samples, reached=reached, most=float(points.curve()[0][-1]))


def _first(cost: Floats, accuracy: Floats, wanted: float) -> float:
    """The least cost at which the hull of settings is so accurate."""
    corners = hull(cost, accuracy)
    if wanted > accuracy[corners[-1]] + _CLOSE:
        return math.inf
    return float(np.interp(wanted, accuracy[corners], cost[corners]))
