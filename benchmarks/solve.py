"""Frontier and allocation beside one plain `argmax` pass and beside HiGHS. Knows nothing of pages."""

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.optimize
import scipy.sparse

from adacompute.records import AccuracyTable
from adacompute.solve import frontier, solve

SAMPLES = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
MILLION = 1_000_000
BUDGET = 2.0
Floats = npt.NDArray[np.float64]


def concave(rng: np.random.Generator, problems: int) -> Floats:
    """The hardest for us: every step of every problem is an edge, and `argmax` always ends at the last."""
    return np.cumsum(-np.sort(-rng.random((problems, 5)), axis=1), axis=1) / 5


TABLES: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "concave: four edges a problem": concave,
    "rising": lambda rng, n: np.sort(rng.random((n, 5)), axis=1),
    "rising, multiples of 1/48": lambda rng, n: np.sort(rng.integers(0, 49, (n, 5)), axis=1) / 48,
    "random": lambda rng, n: rng.random((n, 5)),
}


def best(work: Callable[[], object], times: int = 5) -> float:
    """Seconds, the best of some: what else the machine does only ever adds to it."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


def peak(work: Callable[[], object]) -> int:
    """Most bytes held at once by what `work` allocates."""
    tracemalloc.start()
    work()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def row(name: str, accuracy: Floats, costs: Floats) -> dict[str, Any]:
    """One table: how many passes of `argmax` the frontier and a single budget take, and their memory."""
    table = AccuracyTable.of(accuracy, costs=costs)
    budget = BUDGET if costs.ndim == 1 else BUDGET * float(costs[:, 0].mean())
    size = table.accuracy.nbytes + (0 if costs.ndim == 1 else table.costs.nbytes)
    once = best(lambda: accuracy.argmax(axis=1), 7)
    whole = best(lambda: frontier(table))
    single = best(lambda: solve(table, budget=budget))
    return {
        "name": name,
        "problems": len(accuracy),
        "argmax": once,
        "frontier": whole / once,
        "solve": single / once,
        "frontier_memory": 1 + peak(lambda: frontier(table)) / size,  # with the table itself
        "solve_memory": 1 + peak(lambda: solve(table, budget=budget)) / size,
        "vertices": len(frontier(table)),
    }


def passes() -> list[dict[str, Any]]:
    """A million problems, tables of several kinds."""
    rng = np.random.default_rng(0)
    rows = [row(name, make(rng, MILLION), SAMPLES) for name, make in TABLES.items()]
    tokens = SAMPLES * rng.lognormal(5, 0.5, (MILLION, 1))
    return [*rows, row("concave, costs of each problem's own", concave(rng, MILLION), tokens)]


def highs(accuracy: Floats) -> tuple[float, float]:
    """Optimum and seconds of the linear programme by HiGHS; building its matrices isn't counted."""
    rows, modes = accuracy.shape
    each = scipy.sparse.kron(scipy.sparse.identity(rows), np.ones((1, modes)), format="csr")
    spent = scipy.sparse.csr_matrix(np.tile(SAMPLES, rows)[None] / rows)
    start = time.perf_counter()
    found = scipy.optimize.linprog(
        -accuracy.ravel() / rows, A_ub=spent, b_ub=[BUDGET], A_eq=each, b_eq=np.ones(rows), method="highs-ipm"
    )
    return -float(found.fun), time.perf_counter() - start


def against_highs(problems: int = 20_000) -> list[dict[str, Any]]:
    """One budget by us and by HiGHS."""
    rng = np.random.default_rng(0)
    found = []
    for name in ("random", "rising, multiples of 1/48"):
        accuracy = TABLES[name](rng, problems)
        table = AccuracyTable.of(accuracy, costs=SAMPLES)
        ours = best(lambda table=table: solve(table, budget=BUDGET), 20)
        value, seconds = highs(accuracy)
        found.append(
            {
                "name": name,
                "solve": ours,
                "highs": seconds,
                "ratio": seconds / ours,
                "difference": abs(value - solve(table, budget=BUDGET).bound),
            }
        )
    return found
