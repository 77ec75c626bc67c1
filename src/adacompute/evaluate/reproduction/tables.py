"""The paper's tables with ours beside them, as far as one setting a row. Knows no Markdown.

Rows of the paper come first, in its order, then ours. Accuracies are fractions, as in the paper.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.exhibits import Cell, Column, Spread, Table
from adacompute.evaluate.paper.judged import spread
from adacompute.evaluate.reproduction.runs import Run
from adacompute.evaluate.reproduction.said import said, setting

__all__ = ["AS_PAPER", "HELD_OUT", "PAPER", "gap", "labels", "levels", "main", "main_held_out", "search"]

Floats = npt.NDArray[np.float64]

AS_PAPER, HELD_OUT = "scored as the paper does", "held-out"
PAPER = "the paper"
_METHODS = ("fixed", "random", "heuristic", "classifier", "oracle")
_SAID = {"classifier": "ours"}  # what the paper calls it


def _accuracy(name: str, about: str = "") -> Column:
    return Column(name=name, kind="fraction", about=about)


def _cost(name: str = "cost") -> Column:
    return Column(name=name, kind="number")


def _first(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name=name) for name in names)


def main(runs: Sequence[Run]) -> Table:
    """Table 1, scored as the paper does."""
    columns = [*_first("setting", "B")]
    for method in _METHODS:
        columns += [_accuracy(method), _cost(f"{method}: cost")]
    rows: list[tuple[Cell, ...]] = []
    for row in said().rows("tab:main", method="fixed"):
        cells: list[Cell] = [setting(row), f"{row['budget']:g}"]
        for method in _METHODS:
            wanted = {"model": row["model"], "data": row["data"], "budget": row["budget"]}
            one = said().rows("tab:main", method=_SAID.get(method, method), **wanted)[0]
            accuracy = one["accuracy"]
            std = one["std"]
            cells += [accuracy if std is None else Spread(mean=accuracy, std=std), one["cost"]]
        rows.append(tuple(cells))
    for run in runs:
        for budget in run.main.budgets:
            cells = [run.name, f"{budget:g}"]
            for method in _METHODS:
                own = run.main.paper[method, budget]
                learned = method == "classifier"
                cells += [spread(own.accuracy) if learned else float(own.accuracy.mean()), own.spent]
            rows.append(tuple(cells))
    return Table(
        key="main",
        title="Table 1",
        protocol=f"{AS_PAPER}: all problems, those learned from included, by the paper's windows",
        columns=tuple(columns),
        rows=tuple(rows),
    )


def main_held_out(runs: Sequence[Run]) -> Table:
    """The same on the problems not learned from, with the fair baseline."""
    columns = [*_first("setting", "B")]
    for method in _METHODS[:-1]:
        columns += [_accuracy(method), _cost(f"{method}: cost")]
    columns += [_accuracy("all alike at that cost"), Column(name="classifier's gain, points", kind="points")]
    for name in ("in-sample", "cross-fitted"):
        columns += [_accuracy(f"oracle, {name}"), _cost(f"oracle, {name}: cost")]
    rows: list[tuple[Cell, ...]] = []
    for run in runs:
        for budget in run.main.budgets:
            cells: list[Cell] = [run.name, f"{budget:g}"]
            for method in _METHODS[:-1]:
                one = run.main.held_out[method, budget]
                learned = method == "classifier"
                cells += [spread(one.accuracy) if learned else float(one.accuracy.mean()), one.spent]
            fair, crossed = run.learned(budget), run.main.crossfitted.get(budget)
            cells += [fair.alike, fair.gain]
            oracle = run.main.held_out["oracle", budget]
            cells += [float(oracle.accuracy.mean()), oracle.spent]
            cells += [None, None] if crossed is None else [_mean(crossed.accuracy), _mean(crossed.cost)]
            rows.append(tuple(cells))
    return Table(
        key="main-held-out",
        title="Table 1, held-out",
        protocol="the fifth of the problems not learned from, over all subsets of their samples; all alike: "
        "the best mix of two budgets at the classifier's own cost. The oracle in-sample is chosen by the "
        "windows of all problems, and judged over all subsets of these; the cross-fitted one is chosen over "
        "all subsets of half of the samples and judged on the other half, so that it may come out higher. "
        "Both are chosen for B on all problems together: on a fifth of them they may spend more or less",
        columns=tuple(columns),
        rows=tuple(rows),
    )


def _mean(values: Floats) -> float:
    return float(values.mean())


def gap(runs: Sequence[Run]) -> Table:
    """Table 5, both readings; beside imitation, what always answering the commonest budget imitates."""
    columns = (
        *_first("setting", "B"),
        _accuracy("accuracy"),
        _accuracy("imitation"),
        _accuracy("commonest budget"),
        _accuracy("gap"),
        _cost(),
        _accuracy("held-out: accuracy"),
        _accuracy("held-out: imitation"),
        _accuracy("held-out: commonest budget"),
        Column(name="held-out: imitation less commonest, points", kind="points"),
        _accuracy("held-out: gap"),
        _cost("held-out: cost"),
    )
    rows: list[tuple[Cell, ...]] = []
    for row in said().tables["tab:oracle_gap"].rows:
        wanted = {name: row[name] for name in ("model", "data", "budget")}
        ones = said().rows("tab:oracle_dist", **wanted)[0]["b1"]
        own = (row["accuracy"], row["imitation"], ones, row["gap"], row["cost"])
        rows.append((setting(row), f"{row['budget']:g}", *own, *[None] * 6))
    for run in runs:
        for one in run.gaps:
            cells: list[Cell] = [run.name, f"{one.budget:g}"]
            for reading in (one.paper, one.held_out):
                cells += [_mean(value) for value in (reading.accuracy, reading.imitation, reading.majority)]
                cells += [reading.ahead] if reading is one.held_out else []
                cells += [_mean(reading.gap), _mean(reading.cost)]
            rows.append(tuple(cells))
    return Table(
        key="gap",
        title="Table 5",
        protocol=f"left {AS_PAPER}, right {HELD_OUT}, intervals over problems; the paper's commonest "
        "budget, b = 1, is from its Table 4",
        columns=columns,
        rows=tuple(rows),
    )


def levels(runs: Sequence[Run]) -> Table:
    """Table 3."""
    columns = (
        *_first("setting", "level"),
        Column(name="problems", kind="count"),
        _accuracy("b = 1"),
        _accuracy("b = 16"),
        Column(name="gain, points", kind="points"),
    )
    rows: list[tuple[Cell, ...]] = []
    for row in said().tables["tab:per_level"].rows:
        level = "all" if row["level"] == "GSM8K" else str(row["level"]).lower()
        rows.append((setting(row), level, None, row["one"], row["most"], row["gain"]))
    for run in runs:
        for one in (*run.levels.rows, run.levels.whole):
            cells = (one.problems, one.first.mean, one.last.mean, one.gain)
            rows.append((run.name, one.name, *cells))
    return Table(
        key="levels",
        title="Table 3",
        protocol="ours over all subsets of the samples; intervals over problems",
        columns=columns,
        rows=tuple(rows),
    )


def labels(runs: Sequence[Run]) -> Table:
    """Table 4."""
    names = ("b1", "b2", "b4", "b8", "b16")
    columns = (*_first("setting", "B"), *(_accuracy(f"b = {name[1:]}") for name in names))
    rows: list[tuple[Cell, ...]] = []
    for row in said().tables["tab:oracle_dist"].rows:
        rows.append((setting(row), f"{row['budget']:g}", *(row[name] for name in names)))
    for run in runs:
        for one in run.labels:
            known = dict(zip(one.budgets, one.shares.tolist(), strict=True))
            cells = [known.get(int(name[1:])) for name in names]
            rows.append((run.name, f"{one.budget:g}", *cells))
    return Table(
        key="labels",
        title="Table 4",
        protocol="the oracle's budgets on all problems, by the paper's windows",
        columns=columns,
        rows=tuple(rows),
    )


def search(runs: Sequence[Run]) -> Table:
    """Table 6, with the exact solve beside it."""
    columns = (
        *_first("setting", "B"),
        Column(name="λ", kind="price"),
        _accuracy("cost"),
        _accuracy("distance from B"),
        Column(name="monotone", kind="flag"),
        _accuracy("next cost above B"),
        _accuracy("exact, with one problem mixed: cost"),
        Column(name="problems that bisection mixes", kind="count"),
    )
    rows: list[tuple[Cell, ...]] = []
    for row in said().tables["tab:lambda_sweep"].rows:
        own = (row["price"], row["cost"], row["error"], row["monotone"])
        rows.append((setting(row), f"{row['budget']:g}", *own, None, None, None))
    for run in runs:
        for one in run.searches:
            own = (one.price, one.cost, one.error, one.monotone)
            rest = (one.above, one.mixed_cost, one.mixed)
            rows.append((run.name, f"{one.budget:g}", *own, *rest))
    return Table(
        key="search",
        title="Table 6",
        protocol="bisection on [0, 5] in 50 steps, by the paper's windows; ours stays at B or below",
        columns=columns,
        rows=tuple(rows),
    )
