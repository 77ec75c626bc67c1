"""From prices back to an allocation with few mixed problems. Knows nothing of names or units.

Most problems have one best mode at the prices, by a clear margin: they are fixed. The nearest to undecided go
into a small linear programme, whose simplex solution is a vertex: it mixes no more problems than limits bind.
Where thousands are tied (accuracies are fractions), most of them take the modes that the cutting planes' own
mixture gives them, and the programme settles the rest. It is done when the value reached is the dual value,
which no allocation exceeds; else more problems are left open, in the end all of them.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from adacompute.solve.planes import Lowest, Planes

__all__ = ["Vertex", "recovered"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

_OPEN = 256  # problems left open at first
_WIDER = 8  # times as many, each time that wasn't enough
_TIED = 1e-9  # of value: no clear margin
_MET = 1e-11  # value and dual value agree
_NONE = 1e-9  # of a problem: a share that is only rounding
_GOLDEN = 0.6180339887498949  # its multiples fall evenly between 0 and 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Vertex:
    """A mode for each problem but a few, which are mixed."""

    choice: Ints  # (problems,) the mixed ones' largest share
    rows: Ints  # (mixed,) rising
    shares: Floats  # (mixed, modes) of each mode, adding up to 1
    prices: Floats  # (sides,) scaled
    dual: float  # at these prices
    value: float  # average, mixed


def recovered(planes: Planes, found: Lowest, *, spare: Floats, first: int | None) -> Vertex:
    """The vertex at the lowest point of the dual.

    Of equally good ones it is cheap in `spare`, (problems, modes), where side number `first` asks no price.
    """
    best: Vertex | None = None
    count, rows = _OPEN, len(planes.values)
    while True:
        tried = _attempt(planes, found, count, spare=spare, first=first)
        if tried is not None and (best is None or tried.value > best.value):
            best = tried
        if best is not None and (best.dual - best.value <= _MET or count >= rows):
            return best
        if count >= rows:
            raise ArithmeticError(
                "limits that can be met were found not to be; this is a bug: please report it"
            )
        if tried is not None and tried.dual < found.dual:
            found = replace(found, prices=tried.prices, dual=tried.dual)
        count *= _WIDER


def _attempt(planes: Planes, found: Lowest, count: int, *, spare: Floats, first: int | None) -> Vertex | None:
    """With about `count` problems left open; None: these can't make up for what the others use."""
    choice, rows = _parted(planes, found, count)
    choice = _cheapened(planes, choice, spare)
    fixed = np.ones(len(choice), dtype=bool)
    fixed[rows] = False
    others = np.flatnonzero(fixed)
    room = planes.right * len(choice)
    room -= [float(side.of(others, choice[others]).sum()) for side in planes.sides]
    few = _Few.of(planes, rows, room)
    solved = few.solve(-few.values, equal=np.zeros(len(room), dtype=bool))
    if solved is None:
        return None
    shares, prices = solved
    dual = planes.dual(prices)
    if dual > found.dual + _MET:  # right for the open ones only
        prices, dual = found.prices, found.dual
    if first is None or prices[first] == 0:
        shares = few.cheaper(shares, prices, spare[rows])
    prices, dual = _slackened(planes, prices, dual, few.left(shares) / len(choice))
    choice[rows] = shares.argmax(axis=1)
    value = float(planes.values[others, choice[others]].sum() + (shares * few.values).sum()) / len(choice)
    mixed = shares.max(axis=1) < 1
    return Vertex(
        choice=choice, rows=rows[mixed], shares=shares[mixed], prices=prices, dual=dual, value=value
    )


def _parted(planes: Planes, found: Lowest, count: int) -> tuple[Ints, Ints]:
    """Each problem's mode as far as it is decided, (problems,), and the rows left open."""
    choice, margin = [], []
    for rows in planes.chunks():
        net = planes.net(found.prices, *rows)
        choice.append(net.argmax(axis=1))
        top = net.max(axis=1)
        net[np.arange(len(net)), choice[-1]] = -np.inf
        margin.append(top - net.max(axis=1))
    best, apart = np.concatenate(choice), np.concatenate(margin)
    if count >= len(best):
        return best, np.arange(len(best))
    tied = np.flatnonzero(apart <= _TIED)
    if len(tied) <= 4 * count:
        near = np.argsort(apart, kind="stable")[:count]
        return best, np.union1d(tied, near)
    ways = np.array([planes.best(prices)[tied] for prices in found.tried])  # (tried, tied)
    order = np.lexsort(ways)
    stride = len(tied) // (4 * count) + 1
    some = np.zeros(len(tied), dtype=bool)
    some[::stride] = True
    rest = order[~some]
    even = np.arange(1, len(rest) + 1) * _GOLDEN % 1
    which = np.minimum(np.searchsorted(np.cumsum(found.weights), even), len(ways) - 1)
    best[tied[rest]] = ways[which, rest]
    return best, np.sort(tied[order[some]])


def _cheapened(planes: Planes, choice: Ints, spare: Floats) -> Ints:
    """The choice, each problem in the cheapest mode that is as good and uses no more of any limit."""
    better = choice.copy()
    for start, stop in planes.chunks():
        at = np.arange(stop - start)
        own = choice[start:stop]
        values, costs = planes.values[start:stop], spare[start:stop]
        good = values >= values[at, own][:, None]
        good &= costs < costs[at, own][:, None]
        if not good.any():
            continue
        for side in planes.sides:
            part = np.broadcast_to(side.part(start, stop), values.shape)
            good &= part <= part[at, own][:, None]
        if planes.allowed is not None:
            good &= planes.allowed[start:stop]
        cheap = np.where(good, costs, np.inf).argmin(axis=1)
        better[start:stop] = np.where(good.any(axis=1), cheap, own)
    return better


def _slackened(planes: Planes, prices: Floats, dual: float, left: Floats) -> tuple[Floats, float]:
    """No price on a limit that isn't reached, unless the dual value says otherwise."""
    free = np.where(left > _TIED, 0.0, prices)
    if (free == prices).all():
        return prices, dual
    anew = planes.dual(free)
    return (free, anew) if anew <= dual + _MET else (prices, dual)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Few:
    """The linear programme of the open problems."""

    values: Floats  # (rows, modes)
    costs: Floats  # (sides, rows, modes) scaled
    room: Floats  # (sides,) what all of them together may use
    allowed: npt.NDArray[np.bool_]  # (rows, modes)

    @classmethod
    def of(cls, planes: Planes, rows: Ints, room: Floats) -> "_Few":
        values = planes.values[rows]
        costs = [np.broadcast_to(side.rows(rows), values.shape) for side in planes.sides]
        allowed = np.ones(values.shape, dtype=bool) if planes.allowed is None else planes.allowed[rows]
        return cls(
            values=values, costs=np.array(costs).reshape(-1, *values.shape), room=room, allowed=allowed
        )

    def left(self, shares: Floats) -> Floats:
        """What of the room isn't used, (sides,)."""
        return np.asarray(self.room - (self.costs * shares).sum(axis=(1, 2)))

    def solve(self, aim: Floats, *, equal: npt.NDArray[np.bool_]) -> tuple[Floats, Floats] | None:
        """Shares (rows, modes) at a vertex where `aim` is least, and the prices (sides,); None: no room."""
        from scipy.optimize import linprog  # type: ignore[import-untyped]
        from scipy.sparse import csr_array, vstack  # type: ignore[import-untyped]

        rows, modes = self.values.shape
        sides = self.costs.reshape(-1, rows * modes)
        whole = _ones(rows, modes)
        slip = 1e-12 * np.maximum(1.0, np.abs(self.room))  # rounding is not to cost us a solution
        found = linprog(
            aim.ravel(),
            A_ub=csr_array(sides[~equal]) if (~equal).any() else None,
            b_ub=(self.room + slip)[~equal] if (~equal).any() else None,
            A_eq=vstack([whole, csr_array(sides[equal])]) if equal.any() else whole,
            b_eq=np.concatenate([np.ones(rows), self.room[equal]]),
            bounds=np.column_stack([np.zeros(rows * modes), self.allowed.ravel().astype(float)]),
            method="highs-ds",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        if found.status != 0:
            return None
        shares = np.where(found.x < _NONE, 0.0, found.x).reshape(rows, modes)
        shares /= shares.sum(axis=1, keepdims=True)
        prices = np.zeros(len(sides))
        if (~equal).any():
            prices[~equal] = np.maximum(-found.ineqlin.marginals, 0.0)
        return shares, prices

    def cheaper(self, shares: Floats, prices: Floats, spare: Floats) -> Floats:
        """Shares of the same value that are cheapest in `spare`, (rows, modes)."""
        net = np.where(self.allowed, self.values - np.tensordot(prices, self.costs, axes=1), -np.inf)
        equal = (net >= net.max(axis=1, keepdims=True) - _MET / 10) & self.allowed
        found = replace(self, allowed=equal).solve(spare / max(1e-300, float(spare.max())), equal=prices > 0)
        if found is None or (found[0] * self.values).sum() < (shares * self.values).sum() - _MET:
            return shares
        return found[0]


def _ones(rows: int, modes: int) -> object:
    """(rows, rows * modes): the shares of one problem add up to 1."""
    from scipy.sparse import csr_array

    places = np.arange(rows * modes)
    return csr_array((np.ones(rows * modes), places, np.arange(0, rows * modes + 1, modes)))
