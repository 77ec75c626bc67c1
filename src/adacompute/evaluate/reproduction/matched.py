"""A classifier beside all problems alike at the same cost: the fair baseline. Knows not how it decided."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.bootstrap import Bootstrap, Interval, interval_of
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.fits import Fits
from adacompute.evaluate.paper.mixing import mixed

__all__ = ["Alike", "alike"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """The best mix for all alike, on the problems held out, as often as they are judged."""

    cost: float  # samples on average, the classifier's
    accuracy: float
    gain: Interval  # of the classifier over it, over problems, samples spent drawn anew with them


def alike(case: Case, fits: Fits) -> Alike:
    """All alike at the classifier's own cost, held-out."""
    times = (~fits.train).sum(axis=0)  # (problems,)
    here = np.flatnonzero(times)
    rows = np.arange(len(case))
    own = (case.exact.accuracy[rows, fits.predicted] * ~fits.train).sum(axis=0)
    cost = (case.exact.costs[fits.predicted] * ~fits.train).sum(axis=0)
    sums = np.column_stack([own, cost, case.exact.accuracy * times[:, None]])[here]  # (judged, 2 + budgets)
    mean = sums.sum(axis=0) / times.sum()
    accuracy = float(mixed(case.exact.costs, mean[None, 2:], mean[1:2])[0])
    draws = None
    if len(here) > 1:
        shares = Bootstrap.of(len(here)).shares
        each = (shares @ sums) / (shares @ times[here])[:, None]
        draws = each[:, 0] - mixed(case.exact.costs, each[:, 2:], each[:, 1])
    return Alike(cost=float(mean[1]), accuracy=accuracy, gain=interval_of(float(mean[0]) - accuracy, draws))
