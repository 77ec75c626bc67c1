"""What the paper only draws, as small tables of ours: Figures 4, 5, 6, 9 and 11. Knows no page."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.exhibits import Cell, Column, Kind, Table
from adacompute.evaluate.paper.efficiency import Followed
from adacompute.evaluate.paper.heatmap import Heatmap
from adacompute.evaluate.paper.labels import parts
from adacompute.evaluate.paper.rules import RULES
from adacompute.evaluate.reproduction.runs import Run
from adacompute.evaluate.reproduction.tables import AS_PAPER, HELD_OUT

__all__ = ["efficiency", "efficiency_cost", "fifths", "heat", "mechanism", "pareto"]

Floats = npt.NDArray[np.float64]

_AT = (1.5, 2.0, 3.0, 4.0, 8.0)  # average budgets of Figure 4 that are told, the grid's nearest
_FIFTHS = ("hardest fifth", "hard", "middle", "easy", "easiest")


def _fraction(name: str) -> Column:
    return Column(name=name, kind="fraction")


def _first(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name=name) for name in names)


def pareto(runs: Sequence[Run]) -> Table:
    """Figure 4 at some budgets of its grid."""
    columns = (
        *_first("setting", "B"),
        *(_fraction(name) for name in (*RULES, "classifier", "oracle")),
        _fraction("held-out: classifier"),
        Column(name="held-out: cost", kind="number"),
        Column(name="held-out: gain over all alike at that cost, points", kind="points"),
        _fraction("oracle, cross-fitted"),
    )
    rows: list[tuple[Cell, ...]] = []
    for run in runs:
        paper, apart = run.pareto.paper, run.pareto.held_out
        grid = paper["classifier"].budget
        for at in dict.fromkeys(int(np.abs(np.log(grid / asked)).argmin()) for asked in _AT):
            budget = float(grid[at])
            own: list[Cell] = [
                float(paper[name].accuracy[np.abs(paper[name].budget - budget).argmin()])
                for name in (*RULES, "classifier", "oracle")
            ]
            taught, crossed = apart["classifier"], apart.get("crossfitted")
            own += [float(taught.accuracy[at]), float(taught.cost[at]), taught.gain[at]]
            where = 0 if crossed is None else int(np.abs(crossed.budget - budget).argmin())
            own += [None if crossed is None else float(crossed.accuracy[where])]
            rows.append((run.name, f"{budget:.2f}", *own))
    return Table(
        key="pareto",
        title="Figure 4",
        protocol=f"left {AS_PAPER}; {HELD_OUT}: {runs[0].pareto.folds} folds, each problem judged once, over "
        "all subsets. Budgets are those of the grid nearest to 1.5, 2, 3, 4 and 8",
        columns=columns,
        rows=tuple(rows),
    )


def heat(runs: Sequence[Run]) -> Table:
    """Figure 5, summarised."""
    columns = (
        *_first("setting", "B"),
        *(
            Column(name=f"b = 1: {name}", kind="share")
            for name in ("oracle", "classifier", f"classifier, {HELD_OUT}")
        ),
        *_first("mean budgets by group: oracle", f"classifier, {AS_PAPER}", f"classifier, {HELD_OUT}"),
        Column(name="decisions to move", kind="share"),
        Column(name=f"decisions to move, {HELD_OUT}", kind="share"),
    )
    rows: list[tuple[Cell, ...]] = []
    for run in runs:
        for one in run.heatmaps:
            shares = (one.oracle, one.paper, one.held_out)
            weights = (one.sizes, one.sizes, one.judged)
            ones = [_ones(own, weight) for own, weight in zip(shares, weights, strict=True)]
            means = [_means(one, own) for own in shares]
            moved = (one.paper_moved, one.held_out_moved)
            rows.append((run.name, f"{one.budget:g}", *ones, *means, *moved))
    return Table(
        key="heat",
        title="Figure 5",
        protocol="mean budgets from level 1 up where levels are recorded, else from the hardest fifth of "
        "one-sample accuracy to the easiest; decisions to move: the least share to change for the oracle's "
        "picture",
        columns=columns,
        rows=tuple(rows),
    )


def _ones(shares: Floats, weights: Sequence[int]) -> float:
    here = np.asarray(weights) > 0
    return float(np.average(shares[here, 0], weights=np.asarray(weights)[here]))


def _means(one: Heatmap, shares: Floats) -> str:
    means = shares @ np.asarray(one.budgets, dtype=np.float64)  # (groups,)
    return " · ".join("–" if np.isnan(mean) else f"{mean:.1f}" for mean in means)


def fifths(runs: Sequence[Run]) -> Table:
    """Figure 6, its lower row, and where its decile means are highest."""
    columns = (
        *_first("setting", "B", *_FIFTHS),
        _fraction("one-sample accuracy of the tenth that gets most"),
    )
    rows: list[tuple[Cell, ...]] = []
    for run in runs:
        for one in run.scatters:
            told = [" · ".join(f"{100 * share:.0f}" for share in own) for own in one.composition]
            told += ["–"] * (len(_FIFTHS) - len(told))
            rows.append((run.name, f"{one.budget:g}", *told, one.peak))
    most = " · ".join(str(budget) for budget in runs[0].case.budgets)
    return Table(
        key="fifths",
        title="Figure 6",
        protocol=f"the oracle by windows: percent of each fifth of one-sample accuracy that get b = {most}",
        columns=columns,
        rows=tuple(rows),
    )


def mechanism(runs: Sequence[Run]) -> Table:
    """Figure 9: between which prices the budgets drain, and who holds on how long."""
    columns = (
        *_first("setting"),
        Column(name="from λ", kind="price"),
        Column(name="to λ", kind="price"),
        Column(name="over all subsets: from λ", kind="price"),
        Column(name="to λ, then", kind="price"),
        *(Column(name=f"b > 1 up to λ: {name}", kind="price") for name in _FIFTHS),
    )
    rows: list[tuple[Cell, ...]] = []
    for run in runs:
        until = run.mechanism.critical.max(axis=0, initial=0.0)
        means: list[Cell] = [
            round(float(until[own].mean()), 4) for own in parts(run.mechanism.single, len(_FIFTHS))
        ]
        means += [None] * (len(_FIFTHS) - len(means))
        ends = (*run.staircases.windows.between(0.8), *run.staircases.exact.between(0.8))
        rows.append((run.name, *(round(end, 4) for end in ends), *means))
    return Table(
        key="mechanism",
        title="Figure 9",
        protocol="the prices between which the middle four fifths of the fall in cost happen, by windows and "
        "over all subsets; and the mean price up to which a problem keeps more than one sample, by fifths of "
        "one-sample accuracy. Rounded to four decimals",
        columns=columns,
        rows=tuple(rows),
    )


def efficiency(runs: Sequence[Run]) -> Table | None:
    """Figure 11 as a table, at B = 2."""
    columns = (_fraction("fixed"), _fraction("oracle"))
    rows: list[tuple[Cell, ...]] = [
        (name, reading, *one.accuracy, one.fixed, one.oracle) for name, reading, one in _followed(runs)
    ]
    return _by_share(
        runs, "fraction", columns, rows, key="efficiency", title="Figure 11, at B = 2", of="accuracy"
    )


def efficiency_cost(runs: Sequence[Run]) -> Table | None:
    """What each point of Figure 11 spends, and what is left of the gain at that cost."""
    columns = (
        Column(name="fixed", kind="number"),
        Column(name="gain over all alike at the cost of 100%, points", kind="points"),
    )
    rows: list[tuple[Cell, ...]] = [
        (name, reading, *one.cost, one.fixed_cost, one.gain[-1]) for name, reading, one in _followed(runs)
    ]
    title = "What Figure 11 spends, at B = 2"
    return _by_share(
        runs, "number", columns, rows, key="efficiency-cost", title=title, of="samples on average"
    )


def _followed(runs: Sequence[Run]) -> list[tuple[str, str, Followed]]:
    """Every recording's curves at B = 2, in both readings."""
    found = []
    for run in runs:
        for curve in () if run.efficiency is None else run.efficiency.curves:
            if curve.budget == 2:
                found += [(run.name, AS_PAPER, curve.paper), (run.name, HELD_OUT, curve.held_out)]
    return found


def _by_share(
    runs: Sequence[Run],
    kind: Kind,
    last: tuple[Column, ...],
    rows: Sequence[tuple[Cell, ...]],
    *,
    key: str,
    title: str,
    of: str,
) -> Table | None:
    known = [run.efficiency for run in runs if run.efficiency is not None]
    if not known:
        return None
    shares = (Column(name=f"{share:.0%}", kind=kind) for share in known[0].shares)
    return Table(
        key=key,
        title=title,
        protocol=f"{of} by share of the training problems, mean ± std over {known[0].seeds} seeds",
        columns=(*_first("setting", "reading"), *shares, *last),
        rows=tuple(rows),
    )
