"""A vertex with mixed problems made into one mode each, within all limits. Knows nothing of names or units.

The mixed problems are few, so every combination of their modes is looked at. Where none keeps the limits,
other problems give way: the one that loses least value for what it saves, one after the other. Where that
ends nowhere, an integer programme has the last word.
"""

from itertools import product

import numpy as np
import numpy.typing as npt

from adacompute.solve.planes import Planes
from adacompute.solve.recover import Vertex

__all__ = ["rounded"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

_WAYS = 4096  # combinations that are looked at
_STEPS = 64  # problems that give way
_WHOLE = 400  # problems that an integer programme is asked about
_NODES = 20_000  # of its search tree: a limit that doesn't depend on the clock


def rounded(planes: Planes, vertex: Vertex, spare: Floats) -> Ints | None:
    """One mode for each problem, (problems,), within all limits; None: there is none, or none was found."""
    over = _over(planes, vertex.choice)
    choice = _combined(planes, vertex, over, spare)
    over = _over(planes, choice)
    for _ in range(_STEPS):
        if (over <= 0).all():
            return choice
        move = _giving_way(planes, choice, over)
        if move is None:
            break
        choice[move[0]] = move[1]
        over = _over(planes, choice)
    return choice if (over <= 0).all() else _whole(planes, vertex)


def _over(planes: Planes, choice: Ints) -> Floats:
    """What a choice uses beyond each limit, summed over problems, (sides,); negative: room."""
    rows = np.arange(len(choice))
    used = np.array([float(side.of(rows, choice).sum()) for side in planes.sides])
    return used - _room(planes)


def _room(planes: Planes) -> Floats:
    return np.array([len(planes.values) * (side.right + side.slip) for side in planes.sides])


def _combined(planes: Planes, vertex: Vertex, over: Floats, spare: Floats) -> Ints:
    """The best combination of the mixed problems' modes; where none keeps the limits, the nearest to it."""
    choice, rows = vertex.choice.copy(), vertex.rows
    if not len(rows):
        return choice
    options = [np.flatnonzero(_allowed(planes, rows[[r]])[0]) for r in range(len(rows))]
    if np.prod([float(len(each)) for each in options]) > _WAYS:
        options = [np.flatnonzero(share > 0) for share in vertex.shares]
    ways = np.array(list(product(*options)))[:_WAYS]  # (ways, mixed)
    uses = np.array([side.of(rows, ways) - side.of(rows, choice[rows]) for side in planes.sides])
    beyond = np.maximum(0.0, over[:, None] + uses.sum(axis=2)).sum(axis=0)  # (ways,)
    order = np.lexsort((spare[rows, ways].sum(axis=1), -planes.values[rows, ways].sum(axis=1), beyond))
    choice[rows] = ways[order[0]]
    return choice


def _allowed(planes: Planes, rows: Ints) -> npt.NDArray[np.bool_]:
    if planes.allowed is None:
        return np.ones((len(rows), planes.values.shape[1]), dtype=bool)
    return planes.allowed[rows]


def _giving_way(planes: Planes, choice: Ints, over: Floats) -> tuple[int, int] | None:
    """The problem and mode that lose least value for what they take off; None: nothing takes anything off."""
    excess = float(np.maximum(over, 0.0).sum())
    least = np.inf
    where: tuple[int, int] | None = None
    for start, stop in planes.chunks():
        at = np.arange(stop - start)
        own = choice[start:stop]
        beyond = np.zeros((stop - start, planes.values.shape[1]))
        for side, much in zip(planes.sides, over, strict=True):
            part = np.broadcast_to(side.part(start, stop), beyond.shape)
            beyond += np.maximum(0.0, much + part - part[at, own][:, None])
        saved = excess - beyond
        saved[~_allowed(planes, np.arange(start, stop))] = 0.0
        loss = planes.values[start:stop][at, own][:, None] - planes.values[start:stop]
        rate = np.full(saved.shape, np.inf)
        # the constant keeps a large step ahead of many small ones that lose nothing either
        np.divide(np.maximum(loss, 0.0) + 1e-6, saved, out=rate, where=saved > 1e-9 * excess)
        place = int(rate.argmin())
        if rate.flat[place] < least:
            row, mode = divmod(place, len(planes.values[0]))
            least, where = float(rate.flat[place]), (start + row, mode)
    return where


def _whole(planes: Planes, vertex: Vertex) -> Ints | None:
    """By integer programme over some problems: those that are mixed, and others spread over the table."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # type: ignore[import-untyped]

    count, modes = planes.values.shape
    some = np.union1d(vertex.rows, np.arange(0, count, count // _WHOLE + 1))
    choice = vertex.choice.copy()
    others = np.setdiff1d(np.arange(count), some)
    room = _room(planes) - [float(side.of(others, choice[others]).sum()) for side in planes.sides]
    costs = [np.broadcast_to(side.rows(some), (len(some), modes)).ravel() for side in planes.sides]
    ones = np.kron(np.eye(len(some)), np.ones(modes))
    found = milp(
        -planes.values[some].ravel(),
        integrality=np.ones(len(some) * modes),
        bounds=Bounds(0.0, _allowed(planes, some).ravel().astype(float)),
        constraints=[LinearConstraint(np.array(costs), ub=room), LinearConstraint(ones, lb=1.0, ub=1.0)],
        options={"node_limit": _NODES, "mip_rel_gap": 0.0},
    )
    if found.x is None:
        return None
    choice[some] = found.x.reshape(-1, modes).argmax(axis=1)
    return choice if (_over(planes, choice) <= 0).all() else None  # its tolerance is wider than ours
