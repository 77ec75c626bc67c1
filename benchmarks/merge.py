"""One price over many shards: summaries and their merging, beside sorting all edges at once.

Knows nothing of pages. Shards are simulated: made, summed up, and dropped.
"""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.records import AccuracyTable
from adacompute.solve import solve
from adacompute.solve.shard_search import PriceSearch, SlopeHistogram, TableShard

SAMPLES = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
BUDGET = 2.3
SHARDS, ROWS = 1000, 100_000
TOGETHER = (1_000_000, 10_000_000)  # problems that are also solved at once
_BASES = 8  # shards that are made of random numbers; the others are these, times a number of their own
Floats = npt.NDArray[np.float64]


def _bases(rows: int) -> list[Floats]:
    """Concave curves, as predicted ones are: every step an edge, the first worth most."""
    rng = np.random.default_rng(0)
    gains = [
        -np.sort(-(rng.random((rows, 5)) ** 3), axis=1) * (1.0, 1.0, 0.6, 0.3, 0.1) for _ in range(_BASES)
    ]
    return [np.asfortranarray(np.cumsum(gain, axis=1) / 4) for gain in gains]


def _shards(shards: int, bases: list[Floats]) -> Iterator[Floats]:
    for number in range(shards):
        yield bases[number % _BASES] * (1.0 - 0.3 * number / shards)


def searched(shards: int, rows: int) -> dict[str, Any]:
    """Seconds of making all summaries, hulls included, and of merging them; bytes of each round's."""
    bases = _bases(rows)
    search, made, merging, sizes = PriceSearch(budget=BUDGET), 0.0, 0.0, []
    while (bracket := search.bracket) is not None:
        summaries: list[SlopeHistogram] = []
        for accuracy in _shards(shards, bases):
            start = time.perf_counter()
            summaries.append(TableShard.of(accuracy, costs=SAMPLES).histogram(bracket))
            made += time.perf_counter() - start
        start = time.perf_counter()
        search.narrow(summaries)
        merging += time.perf_counter() - start
        sizes.append(sum(summary.nbytes for summary in summaries) / shards)
    return {"made": made, "merging": merging, "sizes": sizes, "price": search.price}


def at_once(problems: int, rows: int = ROWS) -> dict[str, Any]:
    """All edges sorted by numpy, and `solve`, on one table of the same problems."""
    accuracy = np.concatenate(list(_shards(problems // rows, _bases(rows))))
    costs = np.broadcast_to(np.diff(SAMPLES)[:, None], (4, problems))
    start = time.perf_counter()
    slopes = TableShard.of(accuracy, costs=SAMPLES).slopes
    order = np.argsort(slopes, axis=None)[::-1]
    reach = np.cumsum(costs.reshape(-1)[order]) + problems
    price = slopes.reshape(-1)[order[np.searchsorted(reach, BUDGET * problems, side="right")]]
    sorting = time.perf_counter() - start
    table = AccuracyTable(accuracy=np.asfortranarray(accuracy), costs=SAMPLES, modes=(1, 2, 4, 8, 16))
    start = time.perf_counter()
    plan = solve(table, budget=BUDGET)
    return {"sorting": sorting, "solve": time.perf_counter() - start, "price": price, "exact": plan.price}


def run(*, shards: int = SHARDS) -> list[dict[str, Any]]:
    """One row a number of problems; the last has no alternative that fits into memory."""
    rows: list[dict[str, Any]] = []
    for problems in (*TOGETHER, shards * ROWS):
        ours = searched(problems // ROWS, ROWS)
        other = at_once(problems) if problems in TOGETHER else None
        if other is not None and not np.isclose(ours["price"], other["price"], rtol=1e-9):
            raise AssertionError(f"prices differ: {ours['price']} and {other['price']}")
        rows.append({"problems": problems, "shards": problems // ROWS, **ours, "other": other})
    return rows
