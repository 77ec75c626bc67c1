"""How often an answer wins the vote of b of n samples. Knows class sizes only: no grades, no problems.

An answer given by `own` of the samples wins with t votes if no other has more, and shares the win where
others have t too. Draw each sample with chance p: classes are then independent, and the chance that

    own has t votes, the others none above t, all together b

is a coefficient of a product of polynomials in z, one factor a class: its binomial chances up to t votes,
the last times y. The integral over y from 0 to 1 turns y^j into 1/(j + 1), the share among j + 1 leaders;
Gauss-Legendre nodes make it exact. Divided by the chance of b in all, p has no effect but on rounding.

Products are sums of logarithms, so all rows at once are one matrix product over the sizes that occur, at
points z on the unit circle; a Fourier sum then reads off the coefficient. Taking one sample of a class
away changes one factor: one more matrix product. With more than half of b, nobody else can lead: there the
chance is the hypergeometric one.
"""

from dataclasses import dataclass
from functools import cache, lru_cache
from math import ceil, log

import numpy as np
import numpy.typing as npt
from numpy.polynomial.legendre import leggauss

from adacompute.score.grades import Floats, Ints

__all__ = ["Lead", "lead"]

_Longs = npt.NDArray[np.longdouble]

_CELLS = 1 << 19  # complex numbers held at a time in each of a few arrays, 8 MB each
_NEGLIGIBLE = log(1e-18)  # what the Fourier sum may mix in, relative to what it reads


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lead:
    """A class's expected share of the win, each row a class. Shares of less samples are NaN where b = n."""

    share: Floats  # (rows,) of b of all n samples
    less_own: Floats  # (rows,) one of the class's own samples taken away, so b of n - 1
    less_other: Floats  # (rows, sizes) one sample of another class of that size taken away; 0: there is none


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Circle:
    """Where the polynomials are evaluated: half of an odd number of points, the rest being conjugates."""

    chance: float  # p of a sample to be drawn
    points: Floats  # (points,) angles
    weights: Floats  # (points,) of the Fourier sum


def lead(others: Floats, own: Ints, sizes: Ints, *, total: int, budget: int) -> Lead:
    """Every row's share of the win: `own` (rows,) of `total` samples, among the others that it meets.

    `others` (rows, sizes) says how many other classes of each of `sizes` there are; the first column counts
    abstentions, whatever its size says.
    """
    circle = _circle(total, budget)
    sums, lesser = np.zeros((2, len(own)))  # (rows,) each
    shifted = np.zeros(others.shape)  # (rows, sizes)
    ways, fewer = (np.exp(_log_binomial(mine, budget // 2, circle.chance)) for mine in (own, own - 1))
    around = np.concatenate([sizes, np.maximum(sizes - 1, 0)])
    chances = _log_binomial(around, budget // 2, circle.chance)  # (2 * sizes, votes)
    room = max(1, _CELLS // (len(around) * len(circle.points)))
    for votes in range(1, budget // 2 + 1):
        live = np.flatnonzero(own >= votes)
        for nodes, weights in _nodes(budget, votes, room=room):
            logs, ratios = _factors(chances[:, : votes + 1], nodes, circle)
            reading = _reading(weights, circle, budget - votes)
            step = max(1, _CELLS // reading.size)
            for rows in (live[i : i + step] for i in range(0, len(live), step)):
                read = np.exp((others[rows] @ logs).view(np.complex128) + reading).view(np.float64)
                plain = read[:, ::2].sum(axis=1)  # (rows,) real parts
                sums[rows] += ways[rows, votes] * plain
                lesser[rows] += fewer[rows, votes] * plain
                shifted[rows] += ways[rows, votes, None] * (read @ ratios)
    whole, less = np.exp(_log_binomial(np.array([total, total - 1]), budget, circle.chance)[:, budget])
    share = sums / whole + _majority(own, total, budget)
    if budget == total:
        return Lead(share=share, less_own=np.full_like(share, np.nan), less_other=shifted * np.nan)
    sure = _majority(own, total - 1, budget)[:, None]
    return Lead(
        share=share,
        less_own=lesser / less + _majority(own - 1, total - 1, budget),
        # a size that no other class has was never in the product: what was read of it means nothing
        less_other=np.where(others > 0, shifted / less + sure, 0.0),
    )


def _circle(total: int, budget: int) -> _Circle:
    """`budget` is the likeliest number drawn; there are so many points that no other is mistaken for it."""
    p = min(budget / total, 1 - 0.5 / total)
    chances = _log_binomial(np.array([total]), total, p)[0]  # (total + 1,)
    likely = np.flatnonzero(chances - chances[budget] > _NEGLIGIBLE)[-1]
    count = max(budget, int(likely) - budget + 1) | 1  # odd: at -1 a factor may vanish
    half = np.arange(count // 2 + 1)
    return _Circle(chance=p, points=2 * np.pi * half / count, weights=np.where(half == 0, 1.0, 2.0) / count)


def _factors(chances: Floats, nodes: Floats, circle: _Circle) -> tuple[Floats, Floats]:
    """Each size's factor for `votes` of the leader, at each node y and point z, (sizes, columns).

    First its logarithm; then, transposed, what multiplies the product when the class has a sample less, so
    that a product with real and imaginary parts side by side gives the real part.
    """
    votes = chances.shape[1] - 1
    scale = chances.max(axis=1)  # (2 * sizes,) a factor may be too small for a number, its logarithm is not
    coefficients = np.exp(chances - scale[:, None])
    powers = np.exp(1j * circle.points * np.arange(votes + 1)[:, None])  # (t, points)
    head = coefficients[:, :votes] @ powers[:votes]  # (2 * sizes, points)
    last = coefficients[:, votes:] * powers[votes]
    count = len(chances) // 2
    head[0], head[count] = 1 - circle.chance + circle.chance * np.exp(1j * circle.points), 1.0
    last[[0, count]] = scale[[0, count]] = 0.0  # an abstention is in nobody's way
    factors = head[:, None, :] + nodes[:, None] * last[:, None, :]  # (2 * sizes, nodes, points)
    logs = (np.log(factors) + scale[:, None, None]).reshape(2 * count, -1)
    ratios = np.exp(logs[count:] - logs[:count]).conj()
    return logs[:count].view(np.float64), np.ascontiguousarray(ratios.view(np.float64).T)


def _reading(weights: Floats, circle: _Circle, place: int) -> npt.NDArray[np.complex128]:
    """Logarithms of what reads the coefficient of z^place, integrated over y, (nodes * points,)."""
    turned = np.log(circle.weights) - 1j * place * circle.points
    return np.asarray((np.log(weights)[:, None] + turned).ravel())


@cache
def _gauss(count: int) -> tuple[Floats, Floats]:
    nodes, weights = leggauss(count)
    return (nodes + 1) / 2, weights / 2  # from 0 to 1


def _nodes(budget: int, votes: int, *, room: int) -> list[tuple[Floats, Floats]]:
    """Nodes and weights exact for as many ties as `votes` each of `budget` allow, `room` at a time."""
    nodes, weights = _gauss(ceil(budget // votes / 2))
    return [(nodes[i : i + room], weights[i : i + room]) for i in range(0, len(nodes), room)]


@lru_cache(maxsize=32)
def _log_factorials(upto: int) -> _Longs:
    """Of 0 to `upto`. In double precision 64! would be right to 13 digits, and every share with it."""
    found = np.zeros(upto + 1, dtype=np.longdouble)
    found[1:] = np.cumsum(np.log(np.arange(1, upto + 1, dtype=np.longdouble)))
    found.setflags(write=False)
    return found


def _log_choose(n: Ints, k: Ints) -> _Longs:
    """Logarithm of n over k, broadcast; -inf where there is no way."""
    fits = (k >= 0) & (k <= n)
    logs = _log_factorials(int(n.max(initial=0)))
    top, part = np.where(fits, n, 0), np.where(fits, k, 0)
    return np.asarray(np.where(fits, logs[top] - logs[part] - logs[top - part], -np.inf))


def _log_binomial(n: Ints, upto: int, p: float) -> Floats:
    """Logarithms of the chances of 0 to `upto` of n samples, each with chance p, (n, upto + 1)."""
    k, chance = np.arange(upto + 1), np.longdouble(p)
    logs = _log_choose(n[:, None], k) + k * np.log(chance) + (n[:, None] - k) * np.log(1 - chance)
    return np.asarray(logs, dtype=np.float64)


def _majority(own: Ints, total: int, budget: int) -> Floats:
    """The chance of more than half of `budget` of `total` samples, (rows,): nobody else can lead then."""
    votes = np.arange(budget // 2 + 1, budget + 1)
    sizes, where = np.unique(own, return_inverse=True)
    logs = _log_choose(sizes[:, None], votes) + _log_choose(total - sizes[:, None], budget - votes)
    logs -= _log_choose(np.array(total), np.array(budget))  # (sizes, votes)
    return np.asarray(np.exp(logs.astype(np.float64)).sum(axis=1)[where])
