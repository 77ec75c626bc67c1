"""The paper's tables with ours beside them, and what the paper only draws as small tables of ours.

Rows of the paper come first, in its order, then ours. Accuracies are fractions, as in the paper.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from adacompute.report.document import Cell, Column, Kind, Spread, Table
from studies.paper.ablation import LEARNER_NAMES, READINGS
from studies.paper.budget_choices import RULES, ClassifierFits, compute_spread
from studies.paper.label_efficiency import EfficiencyReading
from studies.paper.labels import Heatmap, split_groups
from studies.paper.laws import Law
from studies.paper.paper_claims import PaperRow, format_setting, load_paper
from studies.paper.runs import PooledRun, RecordingRun

__all__ = [
    "build_ablation_table",
    "build_archetypes_table",
    "build_efficiency_cost_table",
    "build_efficiency_table",
    "build_fifths_table",
    "build_gap_table",
    "build_granularity_table",
    "build_heatmap_table",
    "build_held_out_table",
    "build_implied_table",
    "build_importance_table",
    "build_labels_table",
    "build_laws_table",
    "build_levels_table",
    "build_main_table",
    "build_mechanism_table",
    "build_pareto_table",
    "build_recordings_table",
    "build_search_table",
    "compute_left_imitation",
    "compute_recall",
    "find_break_even_share",
    "find_ones_share",
]

Floats = npt.NDArray[np.float64]

AS_PAPER, HELD_OUT = "scored as the paper does", "held-out"
PAPER = "the paper"
_METHODS = ("fixed", "random", "heuristic", "classifier", "oracle")
_PAPER_METHODS = {"classifier": "ours"}  # what the paper calls it


def _accuracy_column(name: str, about: str = "") -> Column:
    return Column(name=name, kind="fraction", about=about)


def _cost_column(name: str = "cost") -> Column:
    return Column(name=name, kind="number")


def _text_columns(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name=name) for name in names)


def build_main_table(runs: Sequence[RecordingRun]) -> Table:
    """Table 1, scored as the paper does."""
    columns = [*_text_columns("setting", "B")]
    for method in _METHODS:
        columns += [_accuracy_column(method), _cost_column(f"{method}: cost")]
    rows: list[tuple[Cell, ...]] = []
    for row in load_paper().rows("tab:main", method="fixed"):
        cells: list[Cell] = [format_setting(row), f"{row['budget']:g}"]
        for method in _METHODS:
            wanted = {"model": row["model"], "data": row["data"], "budget": row["budget"]}
            paper_row = load_paper().rows("tab:main", method=_PAPER_METHODS.get(method, method), **wanted)[0]
            accuracy = paper_row["accuracy"]
            std = paper_row["std"]
            cells += [accuracy if std is None else Spread(mean=accuracy, std=std), paper_row["cost"]]
        rows.append(tuple(cells))
    for run in runs:
        for budget in run.main.budgets:
            cells = [run.name, f"{budget:g}"]
            for method in _METHODS:
                own = run.main.paper[method, budget]
                learned = method == "classifier"
                cells += [compute_spread(own.accuracy) if learned else float(own.accuracy.mean()), own.spent]
            rows.append(tuple(cells))
    return Table(
        key="main",
        title="Table 1",
        protocol=f"{AS_PAPER}: all problems, those learned from included, by the paper's windows",
        columns=tuple(columns),
        rows=tuple(rows),
    )


def build_held_out_table(runs: Sequence[RecordingRun]) -> Table:
    """The same on the problems not learned from, with the fair baseline."""
    columns = [*_text_columns("setting", "B")]
    for method in _METHODS[:-1]:
        columns += [_accuracy_column(method), _cost_column(f"{method}: cost")]
    columns += [
        _accuracy_column("uniform at that cost"),
        Column(name="classifier's gain, points", kind="points"),
    ]
    for name in ("in-sample", "cross-fitted"):
        columns += [_accuracy_column(f"oracle, {name}"), _cost_column(f"oracle, {name}: cost")]
    rows: list[tuple[Cell, ...]] = []
    for run in runs:
        for budget in run.main.budgets:
            cells: list[Cell] = [run.name, f"{budget:g}"]
            for method in _METHODS[:-1]:
                outcome = run.main.held_out[method, budget]
                learned = method == "classifier"
                cells += [
                    compute_spread(outcome.accuracy) if learned else float(outcome.accuracy.mean()),
                    outcome.spent,
                ]
            fair, crossed = run.classifier_outcome(budget), run.main.crossfitted.get(budget)
            cells += [fair.alike, fair.gain]
            oracle = run.main.held_out["oracle", budget]
            cells += [float(oracle.accuracy.mean()), oracle.spent]
            cells += (
                [None, None]
                if crossed is None
                else [_compute_mean(crossed.accuracy), _compute_mean(crossed.cost)]
            )
            rows.append(tuple(cells))
    return Table(
        key="main-held-out",
        title="Table 1, held-out",
        protocol="the fifth of the problems not learned from, over all subsets of their samples; uniform: "
        "the best mix of two budgets at the classifier's own cost. The oracle in-sample is chosen by the "
        "windows of all problems, and judged over all subsets of these; the cross-fitted one is chosen over "
        "all subsets of half of the samples and judged on the other half, so that it may come out higher. "
        "Both are chosen for B on all problems together: on a fifth of them they may spend more or less",
        columns=tuple(columns),
        rows=tuple(rows),
    )


def _compute_mean(values: Floats) -> float:
    return float(values.mean())


def build_gap_table(runs: Sequence[RecordingRun]) -> Table:
    """Table 5, both readings; beside imitation, what always answering the commonest budget imitates."""
    columns = (
        *_text_columns("setting", "B"),
        _accuracy_column("accuracy"),
        _accuracy_column("imitation"),
        _accuracy_column("commonest budget"),
        _accuracy_column("gap"),
        _cost_column(),
        _accuracy_column("held-out: accuracy"),
        _accuracy_column("held-out: imitation"),
        _accuracy_column("held-out: commonest budget"),
        Column(name="held-out: imitation less commonest, points", kind="points"),
        _accuracy_column("held-out: gap"),
        _cost_column("held-out: cost"),
    )
    rows: list[tuple[Cell, ...]] = []
    for row in load_paper().tables["tab:oracle_gap"].rows:
        wanted = {name: row[name] for name in ("model", "data", "budget")}
        ones = load_paper().rows("tab:oracle_dist", **wanted)[0]["b1"]
        own = (row["accuracy"], row["imitation"], ones, row["gap"], row["cost"])
        rows.append((format_setting(row), f"{row['budget']:g}", *own, *[None] * 6))
    for run in runs:
        for gap_result in run.gaps:
            cells: list[Cell] = [run.name, f"{gap_result.budget:g}"]
            for reading in (gap_result.paper, gap_result.held_out):
                cells += [
                    _compute_mean(value) for value in (reading.accuracy, reading.imitation, reading.majority)
                ]
                cells += [reading.ahead] if reading is gap_result.held_out else []
                cells += [_compute_mean(reading.gap), _compute_mean(reading.cost)]
            rows.append(tuple(cells))
    return Table(
        key="gap",
        title="Table 5",
        protocol=f"left {AS_PAPER}, right {HELD_OUT}, intervals over problems; the paper's commonest "
        "budget, b = 1, is from its Table 4",
        columns=columns,
        rows=tuple(rows),
    )


def build_levels_table(runs: Sequence[RecordingRun]) -> Table:
    """Table 3."""
    columns = (
        *_text_columns("setting", "level"),
        Column(name="problems", kind="count"),
        _accuracy_column("b = 1"),
        _accuracy_column("b = 16"),
        Column(name="gain, points", kind="points"),
    )
    rows: list[tuple[Cell, ...]] = []
    for row in load_paper().tables["tab:per_level"].rows:
        level = "all" if row["level"] == "GSM8K" else str(row["level"]).lower()
        rows.append((format_setting(row), level, None, row["one"], row["most"], row["gain"]))
    for run in runs:
        for level_row in (*run.levels.rows, run.levels.whole):
            cells = (level_row.problems, level_row.first.mean, level_row.last.mean, level_row.gain)
            rows.append((run.name, level_row.name, *cells))
    return Table(
        key="levels",
        title="Table 3",
        protocol="ours over all subsets of the samples; intervals over problems",
        columns=columns,
        rows=tuple(rows),
    )


def build_labels_table(runs: Sequence[RecordingRun]) -> Table:
    """Table 4."""
    names = ("b1", "b2", "b4", "b8", "b16")
    columns = (*_text_columns("setting", "B"), *(_accuracy_column(f"b = {name[1:]}") for name in names))
    rows: list[tuple[Cell, ...]] = []
    for row in load_paper().tables["tab:oracle_dist"].rows:
        rows.append((format_setting(row), f"{row['budget']:g}", *(row[name] for name in names)))
    for run in runs:
        for label_shares in run.labels:
            known = dict(zip(label_shares.budgets, label_shares.shares.tolist(), strict=True))
            cells = [known.get(int(name[1:])) for name in names]
            rows.append((run.name, f"{label_shares.budget:g}", *cells))
    return Table(
        key="labels",
        title="Table 4",
        protocol="the oracle's budgets on all problems, by the paper's windows",
        columns=columns,
        rows=tuple(rows),
    )


def build_search_table(runs: Sequence[RecordingRun]) -> Table:
    """Table 6, with the exact solve beside it."""
    columns = (
        *_text_columns("setting", "B"),
        Column(name="λ", kind="price"),
        _accuracy_column("cost"),
        _accuracy_column("distance from B"),
        Column(name="monotone", kind="flag"),
        _accuracy_column("next cost above B"),
        _accuracy_column("exact, with one problem mixed: cost"),
        Column(name="problems that bisection mixes", kind="count"),
    )
    rows: list[tuple[Cell, ...]] = []
    for row in load_paper().tables["tab:lambda_sweep"].rows:
        own = (row["price"], row["cost"], row["error"], row["monotone"])
        rows.append((format_setting(row), f"{row['budget']:g}", *own, None, None, None))
    for run in runs:
        for budget_search in run.searches:
            own = (budget_search.price, budget_search.cost, budget_search.error, budget_search.monotone)
            rest = (budget_search.above, budget_search.mixed_cost, budget_search.mixed)
            rows.append((run.name, f"{budget_search.budget:g}", *own, *rest))
    return Table(
        key="search",
        title="Table 6",
        protocol="bisection on [0, 5] in 50 steps, by the paper's windows; ours stays at B or below",
        columns=columns,
        rows=tuple(rows),
    )


_TRAIN = 0.8  # of the problems, the paper's
_SPLIT = {READINGS[0]: "rows split at random", READINGS[1]: f"{HELD_OUT}: split by question"}


def _fraction_column(name: str) -> Column:
    return Column(name=name, kind="fraction")


def build_recordings_table(runs: Sequence[RecordingRun]) -> Table:
    """What the recordings are."""
    columns = (
        Column(name="recording"),
        Column(name="model"),
        Column(name="problems", kind="count"),
        Column(name="samples of each", kind="count"),
        _fraction_column("one sample right"),
        Column(name="difficulty by"),
        Column(name="entropy", kind="flag"),
    )
    rows: list[tuple[Cell, ...]] = []
    for run in runs:
        case = run.case
        model, least = str(case.ballots.model), int(case.ballots.drawn.min())
        kind = "level" if run.levels.has_recorded_levels else "fifths"
        cells = (len(case), least, float(case.single.mean()), kind, case.has_entropy)
        rows.append((run.name, model, *cells))
    return Table(key="recordings", title="Recordings", protocol="", columns=columns, rows=tuple(rows))


def build_ablation_table(together: PooledRun) -> Table | None:
    """Tables 2 and 7: the paper's, ours split as the paper must have, ours split by question."""
    result = together.ablation
    if result is None:
        return None
    columns = (
        Column(name="learner"),
        Column(name="whose"),
        _fraction_column("accuracy"),
        _fraction_column("gap"),
        _fraction_column("imitation"),
        _fraction_column("commonest budget"),
        Column(name="cost", kind="number"),
        _fraction_column("uniform at that cost"),
    )
    rows: list[tuple[Cell, ...]] = []
    for model, name in LEARNER_NAMES.items():
        row = load_paper().rows("tab:ablation_classifier_main", learner=model)[0]
        said_cells = [
            Spread(mean=row[key], std=row[f"{key}_std"]) for key in ("accuracy", "gap", "imitation", "cost")
        ]
        rows.append((name, PAPER, *said_cells[:3], None, said_cells[3], None))
        for reading in READINGS:
            score = result.score_of(model, reading)
            whose = f"ours, {_SPLIT[reading]}"
            cells = (score.accuracy, score.gap, score.imitation, score.majority, score.cost, score.uniform)
            rows.append((name, whose, *cells))
    pooled, asked = ", ".join(result.cases), ", ".join(f"{one:g}" for one in result.targets)
    return Table(
        key="ablation",
        title="Tables 2 and 7",
        protocol=(
            f"{pooled} × B in {asked}: {result.rows:,} rows, {result.splits} splits; mean ± std over them"
        ),
        columns=columns,
        rows=tuple(rows),
    )


def build_implied_table(runs: Sequence[RecordingRun]) -> Table:
    """What Table 5 implies for the problems not learned from, by how well the others were imitated."""
    rate = compute_recall(runs)
    columns = (
        Column(name="setting"),
        Column(name="B"),
        _fraction_column("imitation, Table 5"),
        _fraction_column("always b = 1, Table 4"),
        _fraction_column("left for the other fifth, if all others were imitated"),
        Column(name="below always b = 1", kind="flag"),
        _fraction_column(f"left, if {rate:.3f} of them were, as ours"),
        Column(name="below always b = 1, then", kind="flag"),
    )
    rows: list[tuple[Cell, ...]] = []
    for row in load_paper().tables["tab:oracle_gap"].rows:
        ones = find_ones_share(row)
        cells: list[Cell] = [format_setting(row), f"{row['budget']:g}", row["imitation"], ones]
        for share in (1.0, rate):
            cells += [compute_left_imitation(row, share), compute_left_imitation(row, share) < ones]
        rows.append(tuple(cells))
    own = [share for run in runs for fit in run.fits.values() for share in _compute_recall_by_seed(fit)]
    return Table(
        key="implied",
        title="What Table 5 leaves for new problems",
        protocol="an inference from the paper's own numbers, (imitation − 0.8 × share) / 0.2, the share "
        "being that of the problems learned from that get the oracle's budget: not told by the paper, "
        f"{min(own):.3f} to {max(own):.3f} with ours, on average {rate:.3f}; at "
        f"{find_break_even_share():.3f} or less no row is below",
        columns=columns,
        rows=tuple(rows),
    )


def compute_left_imitation(row: PaperRow, share: float) -> float:
    """The imitation that a row of Table 5 leaves for the problems not learned from."""
    return float((row["imitation"] - _TRAIN * share) / (1 - _TRAIN))


def find_ones_share(row: PaperRow) -> float:
    """The share of problems with b = 1 by Table 4, for a row of Table 5."""
    wanted = {name: row[name] for name in ("model", "data", "budget")}
    return float(load_paper().rows("tab:oracle_dist", **wanted)[0]["b1"])


def find_break_even_share() -> float:
    """The share of problems learned from up to which no row leaves less than always b = 1 imitates."""
    rows = load_paper().tables["tab:oracle_gap"].rows
    return float(min((row["imitation"] - (1 - _TRAIN) * find_ones_share(row)) / _TRAIN for row in rows))


def compute_recall(runs: Sequence[RecordingRun]) -> float:
    """The share of the problems learned from that get the oracle's budget, on average over ours."""
    own = [share for run in runs for fit in run.fits.values() for share in _compute_recall_by_seed(fit)]
    return sum(own) / len(own)


def _compute_recall_by_seed(fit: ClassifierFits) -> list[float]:
    """The share of the problems learned from that get the oracle's budget, a value a seed."""
    right = fit.predicted == fit.labels
    return [float(own[train].mean()) for own, train in zip(right, fit.train, strict=True)]


def build_laws_table(runs: Sequence[RecordingRun]) -> Table:
    """Every statement of the theory on every recording's own table."""
    columns = (
        Column(name="statement"),
        Column(name="form"),
        Column(name="held: the oracle, or scored as the paper does"),
        Column(name="held-out"),
        Column(name="recordings where it held always"),
    )
    rows: list[tuple[Cell, ...]] = []
    for key in dict.fromkeys(law.key for run in runs for law in run.laws):
        own = [law for run in runs for law in run.laws if law.key == key]
        apart = [law for law in own if law.protocol == HELD_OUT]
        first = [law for law in own if law.protocol != HELD_OUT]
        always = sum(all(law.holds for law in run.laws if law.key == key) for run in runs)
        cells = (_format_held(first), _format_held(apart), f"{always} of {len(runs)}")
        rows.append((own[0].statement, own[0].form, *cells))
    budgets = sorted({budget for run in runs for budget in run.fits})
    raised = [law for run in runs for law in run.laws if law.key == "optimal" and law.protocol == HELD_OUT]
    return Table(
        key="laws",
        title="Statements",
        protocol=f"classifiers at B = {', '.join(f'{one:g}' for one in budgets)}, every seed. Held-out, "
        "Theorem 3 is tried with B raised to what the oracle's own budgets cost on the problems judged, "
        f"where that is more than B: in {sum(law.raised for law in raised)} of "
        f"{sum(law.tried for law in raised)} cases",
        columns=columns,
        rows=tuple(rows),
    )


def _format_held(own: Sequence[Law]) -> str | None:
    return f"{sum(law.held for law in own)} of {sum(law.tried for law in own)}" if own else None


def build_archetypes_table(together: PooledRun) -> Table | None:
    """Figure 7 as a table."""
    result = together.archetypes
    if result is None:
        return None
    columns = (
        Column(name="cluster"),
        Column(name="problems", kind="count"),
        _fraction_column("b = 1"),
        _fraction_column(f"b = {result.budgets[-1]}"),
        *(Column(name=name, kind="share") for name in result.cases),
        Column(name="gets b = 1 at B = 2", kind="share"),
        Column(name="of all samples in b ≥ 4", kind="share"),
    )
    rows: list[tuple[Cell, ...]] = []
    for at, group in enumerate(result.groups):
        shares = [float(share) for share in result.shares[:, at]]
        spent: list[Cell] = [None, None]
        if result.oracle is not None:
            spent = [float(result.oracle.shares[at, 0]), float(result.oracle.large[at])]
        ends = (group.count, float(group.centre[0]), float(group.centre[-1]))
        rows.append((group.name, *ends, *shares, *spent))
    return Table(
        key="archetypes",
        title="Figure 7",
        protocol="k-means of accuracy curves over all subsets, recordings together; the oracle by windows",
        columns=columns,
        rows=tuple(rows),
    )


def build_granularity_table(runs: Sequence[RecordingRun]) -> Table:
    """Figure 12 (c) as a table."""
    names = ("coarse", "default", "fine")
    columns = (
        Column(name="setting"),
        *(_fraction_column(name) for name in names),
        *(_fraction_column(f"cross-fitted: {name}") for name in names),
    )
    rows: list[tuple[Cell, ...]] = []
    for run in runs:
        tiers = {} if run.granularity is None else {tier.name: tier for tier in run.granularity.tiers}
        own = [tiers[name].windows if name in tiers else None for name in names]
        crossed = [tiers[name].crossfitted if name in tiers else None for name in names]
        rows.append((run.name, *own, *crossed))
    return Table(
        key="granularity",
        title="Figure 12 (c)",
        protocol="oracle at B = 2: in-sample by windows; chosen on one half of the samples, judged on "
        "the other",
        columns=columns,
        rows=tuple(rows),
    )


def build_importance_table(runs: Sequence[RecordingRun]) -> Table:
    """Figure 13 (a) as a table: the trees' own importance, and what tells anything of new problems."""
    columns = (
        Column(name="setting"),
        Column(name="most gain"),
        _fraction_column("its share"),
        _fraction_column("least share"),
        Column(name="held-out, shuffling costs imitation"),
        _fraction_column("imitation held-out"),
        _fraction_column("commonest budget"),
    )
    rows: list[tuple[Cell, ...]] = []
    for run in runs:
        result = run.importance
        if result is None:
            continue
        telling = ", ".join(f"`{name}`" for name in result.telling) or "of none"
        top = f"`{result.names[result.order[0]]}`"
        shares = (float(result.gain.max()), float(result.gain.min()))
        rows.append((run.name, top, *shares, telling, result.kept, result.majority))
    return Table(
        key="importance",
        title="Figure 13 (a)",
        protocol="boosted trees at B = 2: gain on all problems; shuffled on problems not learned from",
        columns=columns,
        rows=tuple(rows),
    )


_AT = (1.5, 2.0, 3.0, 4.0, 8.0)  # average budgets of Figure 4 that are told, the grid's nearest
_FIFTHS = ("hardest fifth", "hard", "middle", "easy", "easiest")


def build_pareto_table(runs: Sequence[RecordingRun]) -> Table:
    """Figure 4 at some budgets of its grid."""
    columns = (
        *_text_columns("setting", "B"),
        *(_fraction_column(name) for name in (*RULES, "classifier", "oracle")),
        _fraction_column("held-out: classifier"),
        Column(name="held-out: cost", kind="number"),
        Column(name="held-out: gain over uniform at that cost, points", kind="points"),
        _fraction_column("oracle, cross-fitted"),
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


def build_heatmap_table(runs: Sequence[RecordingRun]) -> Table:
    """Figure 5, summarised."""
    columns = (
        *_text_columns("setting", "B"),
        *(
            Column(name=f"b = 1: {name}", kind="share")
            for name in ("oracle", "classifier", f"classifier, {HELD_OUT}")
        ),
        *_text_columns("mean budgets by group: oracle", f"classifier, {AS_PAPER}", f"classifier, {HELD_OUT}"),
        Column(name="decisions to move", kind="share"),
        Column(name=f"decisions to move, {HELD_OUT}", kind="share"),
    )
    rows: list[tuple[Cell, ...]] = []
    for run in runs:
        for heatmap in run.heatmaps:
            shares = (heatmap.oracle, heatmap.paper, heatmap.held_out)
            weights = (heatmap.sizes, heatmap.sizes, heatmap.judged)
            ones = [_compute_ones(own, weight) for own, weight in zip(shares, weights, strict=True)]
            means = [_compute_means(heatmap, own) for own in shares]
            moved = (heatmap.paper_moved, heatmap.held_out_moved)
            rows.append((run.name, f"{heatmap.budget:g}", *ones, *means, *moved))
    return Table(
        key="heat",
        title="Figure 5",
        protocol="mean budgets from level 1 up where levels are recorded, else from the hardest fifth of "
        "one-sample accuracy to the easiest; decisions to move: the least share to change for the oracle's "
        "picture",
        columns=columns,
        rows=tuple(rows),
    )


def _compute_ones(shares: Floats, weights: Sequence[int]) -> float:
    here = np.asarray(weights) > 0
    return float(np.average(shares[here, 0], weights=np.asarray(weights)[here]))


def _compute_means(heatmap: Heatmap, shares: Floats) -> str:
    means = shares @ np.asarray(heatmap.budgets, dtype=np.float64)  # (groups,)
    return " · ".join("–" if np.isnan(mean) else f"{mean:.1f}" for mean in means)


def build_fifths_table(runs: Sequence[RecordingRun]) -> Table:
    """Figure 6, its lower row, and where its decile means are highest."""
    columns = (
        *_text_columns("setting", "B", *_FIFTHS),
        _fraction_column("one-sample accuracy of the tenth that gets most"),
    )
    rows: list[tuple[Cell, ...]] = []
    for run in runs:
        for scatter in run.scatters:
            compositions = [" · ".join(f"{100 * share:.0f}" for share in own) for own in scatter.composition]
            compositions += ["–"] * (len(_FIFTHS) - len(compositions))
            rows.append((run.name, f"{scatter.budget:g}", *compositions, scatter.peak))
    most = " · ".join(str(budget) for budget in runs[0].case.budgets)
    return Table(
        key="fifths",
        title="Figure 6",
        protocol=f"the oracle by windows: percent of each fifth of one-sample accuracy that get b = {most}",
        columns=columns,
        rows=tuple(rows),
    )


def build_mechanism_table(runs: Sequence[RecordingRun]) -> Table:
    """Figure 9: between which prices the budgets drain, and who holds on how long."""
    columns = (
        *_text_columns("setting"),
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
            round(float(until[own].mean()), 4) for own in split_groups(run.mechanism.single, len(_FIFTHS))
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


def build_efficiency_table(runs: Sequence[RecordingRun]) -> Table | None:
    """Figure 11 as a table, at B = 2."""
    columns = (_fraction_column("fixed"), _fraction_column("oracle"))
    rows: list[tuple[Cell, ...]] = [
        (name, reading, *one.accuracy, one.fixed, one.oracle) for name, reading, one in _list_readings(runs)
    ]
    return _build_share_table(
        runs, "fraction", columns, rows, key="efficiency", title="Figure 11, at B = 2", of="accuracy"
    )


def build_efficiency_cost_table(runs: Sequence[RecordingRun]) -> Table | None:
    """What each point of Figure 11 spends, and what is left of the gain at that cost."""
    columns = (
        Column(name="fixed", kind="number"),
        Column(name="gain over uniform at the cost of 100%, points", kind="points"),
    )
    rows: list[tuple[Cell, ...]] = [
        (name, reading, *one.cost, one.fixed_cost, one.gain[-1])
        for name, reading, one in _list_readings(runs)
    ]
    title = "What Figure 11 spends, at B = 2"
    return _build_share_table(
        runs, "number", columns, rows, key="efficiency-cost", title=title, of="samples on average"
    )


def _list_readings(runs: Sequence[RecordingRun]) -> list[tuple[str, str, EfficiencyReading]]:
    """Every recording's curves at B = 2, in both readings."""
    result = []
    for run in runs:
        for curve in () if run.efficiency is None else run.efficiency.curves:
            if curve.budget == 2:
                result += [(run.name, AS_PAPER, curve.paper), (run.name, HELD_OUT, curve.held_out)]
    return result


def _build_share_table(
    runs: Sequence[RecordingRun],
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
        columns=(*_text_columns("setting", "reading"), *shares, *last),
        rows=tuple(rows),
    )
