"""Less noise from the few orders that policies were run on: uniform exactly, the others by its known error.

Doesn't know how anyone decides. Every policy ran on the same random orders of a problem's samples, and of a
plain vote of b samples both are known: what those orders gave, and the mean over all orders. So all alike is
replaced by the latter; and so is whoever gives each problem a whole number of samples whatever the votes. Of
the others, the part of their accuracy that goes along with uniform's error is taken off: a control variate,
whose coefficients are those of other problems. An error is zero on average whatever its coefficient, so what
is expected stays the same. (Coefficients that look at the problem's own orders, its cost among them, don't
have that: reading uniform's error at each problem's own mean cost takes a point off who stops early.)
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.entrants import PLAIN, entrants
from adacompute.evaluate.matched import Points
from adacompute.evaluate.measure import Setup
from adacompute.evaluate.pooled import Pooled
from adacompute.evaluate.protocols import Played
from adacompute.evaluate.scoring import Scoring
from adacompute.policies.confidence import confidence
from adacompute.replay.each import Exact

__all__ = ["exact_uniform", "steadied"]

Floats = npt.NDArray[np.float64]

_CONTROLS = (1, 2, 3, 4, 6, 8, 12, 16)  # samples: votes of neighbouring numbers err alike
_PARTS = 5  # of the problems: each takes its coefficients from the others
_FEWEST = 150  # problems: of fewer (60 were tried) coefficients add more noise than they take off
_RIDGE, _LITTLE = 0.1, 1e-3  # of the errors' mean square, and of the votes' own
_CLOSE = 1e-9


def steadied(found: Played) -> Played:
    """The same evaluation, with all alike exact and the others less noisy; weighted agreement stays as it is.

    A problem's accuracy may leave 0 to 1 a little: it is a part of a mean.
    """
    exact = exact_uniform(found.setup)
    if exact is None or all(one.name != PLAIN for one in found.everyone):
        return found
    alike = _Alike.of(found.of(PLAIN).points, exact)
    return replace(found, everyone=tuple(_steadied(one, alike) for one in found.everyone))


def exact_uniform(setup: Setup) -> Floats | None:
    """Votes of 1, 2, … samples, means over all subsets, (longest, problems); None: not known.

    Weighted votes of three and more are of 2,000 subsets a problem, weighed on the scale of all problems.
    """
    counts = range(1, setup.longest + 1)
    weigh = confidence(setup.ballots) if setup.weighted else None
    if weigh is not None:
        if setup.basis != "accuracy":
            return None
        return Scoring(aggregate="weighted", by=weigh).table(setup.ballots, counts).accuracy.T
    exact = Exact(setup.ballots)
    maker = entrants((PLAIN,))[0].maker
    each = [
        exact.each(maker(setup.ballots, budget=count, weigh=None, longest=setup.longest), dial=None)
        for count in counts
    ]
    return np.stack([one.accuracy if setup.basis == "accuracy" else one.agreement for one in each])


@dataclass(frozen=True, slots=True, eq=False)
class _Alike:
    """Votes of 1, 2, … samples, (longest, problems) both."""

    exact: Floats
    seen: Floats  # on the orders that everyone was run on

    @classmethod
    def of(cls, plain: Points, exact: Floats) -> "_Alike":
        seen = exact.copy()  # no error where nobody ran
        for cost, accuracy in zip(plain.cost[:, 0].tolist(), plain.accuracy, strict=True):
            seen[round(cost) - 1] = accuracy
        return cls(exact, seen)

    @property
    def controls(self) -> list[int]:
        """Rows."""
        return [count - 1 for count in _CONTROLS if count <= len(self.exact)]


def _steadied(one: Pooled, alike: _Alike) -> Pooled:
    points = replace(one.points, accuracy=_less_noisy(one.points.cost, one.points.accuracy, alike))
    return replace(one, points=points, accuracy=_less_noisy(one.cost, one.accuracy, alike))


def _less_noisy(cost: Floats, accuracy: Floats, alike: _Alike) -> Floats:
    """Settings or budgets by problems, both and the result."""
    whole = np.clip(np.rint(cost).astype(np.int64), 1, len(alike.exact))
    at = (whole - 1, np.arange(cost.shape[1]))
    beforehand = (np.abs(cost - whole) < _CLOSE) & (np.abs(accuracy - alike.seen[at]) < _CLOSE)
    sure = beforehand.all(axis=1)  # (settings,)
    found = accuracy - _noise(accuracy, alike)
    found[sure] = alike.exact[at][sure]
    return found


def _noise(accuracy: Floats, alike: _Alike) -> Floats:
    """What goes along with the error of votes, (settings, problems)."""
    problems = accuracy.shape[1]
    found = np.zeros(accuracy.shape)
    if problems < _FEWEST:
        return found
    known = alike.exact[alike.controls].T  # (problems, controls)
    error = alike.seen[alike.controls].T - known
    part = np.arange(problems) % _PARTS
    for number in range(_PARTS):
        own, others = part == number, part != number
        found[:, own] = (error[own] @ _coefficients(accuracy[:, others], error[others], known[others])).T
    return found


def _coefficients(accuracy: Floats, error: Floats, known: Floats) -> Floats:
    """Of the errors, (controls, settings): least squares beside the votes' own worth, which soaks up how
    problems differ."""
    count = error.shape[1]
    columns = np.concatenate([error, known - known.mean(axis=0)], axis=1)
    square = columns.T @ columns
    size = np.diag(square)
    ridge = np.repeat([_RIDGE * size[:count].mean(), _LITTLE * size[count:].mean()], count) + _CLOSE
    wanted = (accuracy - accuracy.mean(axis=1, keepdims=True)).T
    return np.linalg.solve(square + np.diag(ridge), columns.T @ wanted)[:count]
