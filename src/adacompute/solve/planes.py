"""Prices of several limits, by cutting planes. Knows nothing of names, units or what prices are for.

The dual value, G(prices) = mean over problems of max over modes of (value - prices . costs) + prices . right,
is convex and piecewise linear. Each evaluation gives a plane that lies below G everywhere; the lowest point
of the planes so far is a bound from below, and the place to evaluate next (Kelley). The planes that meet in
it carry weights: mixed by these, the choices that gave the planes keep the limits.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Lowest", "Planes", "Side", "lowest"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]

_CELLS = 1 << 17  # of a chunk
_CLOSE = 1e-12  # the planes' lowest point and the best value found have met
_MOST = 400  # planes; recovery is exact from any prices that are nearly right
_BOX = 8.0  # prices are looked for up to here first; scaled, so that few lie beyond


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Side:
    """One limit, scaled: costs count from each problem's cheapest, in units of the average range."""

    costs: Floats  # (modes,) or (problems, modes) as given
    floor: Floats  # () or (problems,) the cheapest
    scale: float  # average over problems of dearest less cheapest
    right: float  # what the average may be, scaled
    slip: float = 1e-12  # of that: what rounding may add

    def part(self, start: int, stop: int) -> Floats:
        """Scaled costs of some rows: (modes,) where all problems cost alike, else (rows, modes)."""
        if self.costs.ndim == 1:
            return np.asarray((self.costs - self.floor) / self.scale)
        return np.asarray((self.costs[start:stop] - self.floor[start:stop, None]) / self.scale)

    def rows(self, rows: Ints) -> Floats:
        """Scaled costs of these problems: (modes,) or (rows, modes), as `part`."""
        if self.costs.ndim == 1:
            return self.part(0, 0)
        return np.asarray((self.costs[rows] - self.floor[rows, None]) / self.scale)

    def of(self, rows: Ints, choice: Ints) -> Floats:
        """Scaled costs of these problems in these modes, one each."""
        if self.costs.ndim == 1:
            return np.asarray((self.costs[choice] - self.floor) / self.scale)
        return np.asarray((self.costs[rows, choice] - self.floor[rows]) / self.scale)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Planes:
    """A value to be made large under several limits."""

    values: Floats  # (problems, modes)
    sides: tuple[Side, ...]
    allowed: Bools | None = None  # (problems, modes); None: every mode

    @property
    def right(self) -> Floats:
        return np.array([side.right for side in self.sides])

    def chunks(self) -> list[tuple[int, int]]:
        """Rows to be worked on at a time, so that what is made on the way stays small."""
        rows, modes = self.values.shape
        size = max(64, _CELLS // modes)
        return [(start, min(start + size, rows)) for start in range(0, rows, size)]

    def net(self, prices: Floats, start: int, stop: int) -> Floats:
        """Values less priced costs, (rows, modes); minus infinity where a mode isn't allowed."""
        priced = [
            price * side.part(start, stop) for price, side in zip(prices, self.sides, strict=True) if price
        ]
        shared = sum((p for p in priced if p.ndim == 1), start=np.zeros(self.values.shape[1]))
        net = self.values[start:stop] - shared
        for each in priced:
            if each.ndim == 2:
                net -= each
        if self.allowed is not None:
            net[~self.allowed[start:stop]] = -np.inf
        return net

    def best(self, prices: Floats) -> Ints:
        """Each problem's best mode at these prices, the first of equal ones: (problems,)."""
        return np.concatenate([self.net(prices, *rows).argmax(axis=1) for rows in self.chunks()])

    def uses(self, choice: Ints) -> tuple[float, Floats]:
        """Averages of a choice: its value, and its scaled costs (sides,)."""
        rows = np.arange(len(choice))
        value = float(self.values[rows, choice].mean())
        return value, np.array([float(side.of(rows, choice).mean()) for side in self.sides])

    def dual(self, prices: Floats) -> float:
        """The dual value: no mixture within the limits has more."""
        total = sum(float(self.net(prices, *rows).max(axis=1).sum()) for rows in self.chunks())
        return total / len(self.values) + float(prices @ self.right)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lowest:
    """The lowest point of the dual that was found."""

    prices: Floats  # (sides,) scaled
    dual: float  # G there
    tried: tuple[Floats, ...]  # prices of the planes that meet below it
    weights: Floats  # (tried,) of their choices in the mixture, adding up to 1
    bounded: bool  # False: it lies at the edge of where we looked, and may be lower still beyond
    planes: int  # how many evaluations it took


def lowest(planes: Planes, *, furthest: float = _BOX) -> Lowest:
    """Minimises the dual value over prices from 0 up to `furthest`."""
    right = planes.right
    prices = np.zeros(len(right))
    tried: list[Floats] = []
    cuts = np.empty((0, 1 + len(right)))  # (planes, 1 + sides) height at 0, and slopes
    best, best_prices, weights = np.inf, prices, np.zeros(0)
    while len(cuts) < _MOST:
        value, used = planes.uses(planes.best(prices))
        cut = np.append(value, right - used)
        height = float(value + prices @ cut[1:])
        if height < best:
            best, best_prices = height, prices
        known = bool((cuts == cut).all(axis=1).any())
        if not known:
            cuts = np.vstack([cuts, cut])
            tried.append(prices)
        bottom, prices, weights = _bottom(cuts, furthest)
        if known or best - bottom <= _CLOSE * max(1.0, abs(best)):
            break
    met = np.flatnonzero(weights > _CLOSE)
    return Lowest(
        prices=best_prices,
        dual=best,
        tried=tuple(tried[t] for t in met),
        weights=weights[met] / weights[met].sum(),
        bounded=bool((best_prices < furthest * (1 - 1e-9)).all()),
        planes=len(cuts),
    )


def _bottom(cuts: Floats, furthest: float) -> tuple[float, Floats, Floats]:
    """The lowest point above all planes: its height, its prices, and how much each plane carries there."""
    from scipy.optimize import linprog  # type: ignore[import-untyped]

    sides = cuts.shape[1] - 1
    found = linprog(
        np.eye(1 + sides)[0],
        A_ub=np.column_stack([-np.ones(len(cuts)), cuts[:, 1:]]),
        b_ub=-cuts[:, 0],
        bounds=[(None, None)] + [(0.0, furthest)] * sides,
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if found.status != 0:  # can't be: bounded below by every plane over a box
        raise ArithmeticError(f"the planes' lowest point was not found: {found.message}")
    return float(found.fun), np.maximum(found.x[1:], 0.0), np.maximum(-found.ineqlin.marginals, 0.0)
