"""Tables of recordings together, of the paper's own numbers, and in place of figures. Knows no page."""

from collections.abc import Sequence

from adacompute.evaluate.exhibits import Cell, Column, Spread, Table
from adacompute.evaluate.paper.ablation import MODELS, READINGS
from adacompute.evaluate.paper.fits import Fits
from adacompute.evaluate.paper.laws import Law
from adacompute.evaluate.reproduction.runs import Pooled, Run
from adacompute.evaluate.reproduction.said import Row, said, setting
from adacompute.evaluate.reproduction.tables import HELD_OUT, PAPER

__all__ = [
    "ablation",
    "archetypes",
    "granularity",
    "implied",
    "importance",
    "laws",
    "left_for",
    "none_below",
    "ones_of",
    "recalled",
    "recordings",
]

_TRAIN = 0.8  # of the problems, the paper's
_SPLIT = {READINGS[0]: "rows split at random", READINGS[1]: f"{HELD_OUT}: split by question"}


def _fraction(name: str) -> Column:
    return Column(name=name, kind="fraction")


def recordings(runs: Sequence[Run]) -> Table:
    """What the recordings are."""
    columns = (
        Column(name="recording"),
        Column(name="model"),
        Column(name="problems", kind="count"),
        Column(name="samples of each", kind="count"),
        _fraction("one sample right"),
        Column(name="difficulty by"),
        Column(name="entropy", kind="flag"),
    )
    rows: list[tuple[Cell, ...]] = []
    for run in runs:
        case = run.case
        model, least = str(case.ballots.model), int(case.ballots.drawn.min())
        kind = "level" if run.levels.recorded else "fifths"
        cells = (len(case), least, float(case.single.mean()), kind, case.has_entropy)
        rows.append((run.name, model, *cells))
    return Table(key="recordings", title="Recordings", protocol="", columns=columns, rows=tuple(rows))


def ablation(together: Pooled) -> Table | None:
    """Tables 2 and 7: the paper's, ours split as the paper must have, ours split by question."""
    found = together.ablation
    if found is None:
        return None
    columns = (
        Column(name="learner"),
        Column(name="whose"),
        _fraction("accuracy"),
        _fraction("gap"),
        _fraction("imitation"),
        _fraction("commonest budget"),
        Column(name="cost", kind="number"),
        _fraction("all alike at that cost"),
    )
    rows: list[tuple[Cell, ...]] = []
    for model, name in MODELS.items():
        row = said().rows("tab:ablation_classifier_main", learner=model)[0]
        said_cells = [
            Spread(mean=row[key], std=row[f"{key}_std"]) for key in ("accuracy", "gap", "imitation", "cost")
        ]
        rows.append((name, PAPER, *said_cells[:3], None, said_cells[3], None))
        for reading in READINGS:
            one = found.of(model, reading)
            whose = f"ours, {_SPLIT[reading]}"
            cells = (one.accuracy, one.gap, one.imitation, one.majority, one.cost, one.uniform)
            rows.append((name, whose, *cells))
    pooled, asked = ", ".join(found.cases), ", ".join(f"{one:g}" for one in found.targets)
    return Table(
        key="ablation",
        title="Tables 2 and 7",
        protocol=f"{pooled} × B in {asked}: {found.rows:,} rows, {found.splits} splits; mean ± std over them",
        columns=columns,
        rows=tuple(rows),
    )


def implied(runs: Sequence[Run]) -> Table:
    """What Table 5 implies for the problems not learned from, by how well the others were imitated."""
    rate = recalled(runs)
    columns = (
        Column(name="setting"),
        Column(name="B"),
        _fraction("imitation, Table 5"),
        _fraction("always b = 1, Table 4"),
        _fraction("left for the other fifth, if all others were imitated"),
        Column(name="below always b = 1", kind="flag"),
        _fraction(f"left, if {rate:.3f} of them were, as ours"),
        Column(name="below always b = 1, then", kind="flag"),
    )
    rows: list[tuple[Cell, ...]] = []
    for row in said().tables["tab:oracle_gap"].rows:
        ones = ones_of(row)
        cells: list[Cell] = [setting(row), f"{row['budget']:g}", row["imitation"], ones]
        for share in (1.0, rate):
            cells += [left_for(row, share), left_for(row, share) < ones]
        rows.append(tuple(cells))
    own = [share for run in runs for fit in run.fits.values() for share in _remembered(fit)]
    return Table(
        key="implied",
        title="What Table 5 leaves for new problems",
        protocol="an inference from the paper's own numbers, (imitation − 0.8 × share) / 0.2, the share "
        "being that of the problems learned from that get the oracle's budget: not told by the paper, "
        f"{min(own):.3f} to {max(own):.3f} with ours, on average {rate:.3f}; at {none_below():.3f} or less "
        "no row is below",
        columns=columns,
        rows=tuple(rows),
    )


def left_for(row: Row, share: float) -> float:
    """The imitation that a row of Table 5 leaves for the problems not learned from."""
    return float((row["imitation"] - _TRAIN * share) / (1 - _TRAIN))


def ones_of(row: Row) -> float:
    """The share of problems with b = 1 by Table 4, for a row of Table 5."""
    wanted = {name: row[name] for name in ("model", "data", "budget")}
    return float(said().rows("tab:oracle_dist", **wanted)[0]["b1"])


def none_below() -> float:
    """The share of problems learned from up to which no row leaves less than always b = 1 imitates."""
    rows = said().tables["tab:oracle_gap"].rows
    return float(min((row["imitation"] - (1 - _TRAIN) * ones_of(row)) / _TRAIN for row in rows))


def recalled(runs: Sequence[Run]) -> float:
    """The share of the problems learned from that get the oracle's budget, on average over ours."""
    own = [share for run in runs for fit in run.fits.values() for share in _remembered(fit)]
    return sum(own) / len(own)


def _remembered(fit: Fits) -> list[float]:
    """The share of the problems learned from that get the oracle's budget, a value a seed."""
    right = fit.predicted == fit.labels
    return [float(own[train].mean()) for own, train in zip(right, fit.train, strict=True)]


def laws(runs: Sequence[Run]) -> Table:
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
        cells = (_held(first), _held(apart), f"{always} of {len(runs)}")
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


def _held(own: Sequence[Law]) -> str | None:
    return f"{sum(law.held for law in own)} of {sum(law.tried for law in own)}" if own else None


def archetypes(together: Pooled) -> Table | None:
    """Figure 7 as a table."""
    found = together.archetypes
    if found is None:
        return None
    columns = (
        Column(name="cluster"),
        Column(name="problems", kind="count"),
        _fraction("b = 1"),
        _fraction(f"b = {found.budgets[-1]}"),
        *(Column(name=name, kind="share") for name in found.cases),
        Column(name="gets b = 1 at B = 2", kind="share"),
        Column(name="of all samples in b ≥ 4", kind="share"),
    )
    rows: list[tuple[Cell, ...]] = []
    for at, group in enumerate(found.groups):
        shares = [float(share) for share in found.shares[:, at]]
        spent: list[Cell] = [None, None]
        if found.oracle is not None:
            spent = [float(found.oracle.shares[at, 0]), float(found.oracle.large[at])]
        ends = (group.count, float(group.centre[0]), float(group.centre[-1]))
        rows.append((group.name, *ends, *shares, *spent))
    return Table(
        key="archetypes",
        title="Figure 7",
        protocol="k-means of accuracy curves over all subsets, recordings together; the oracle by windows",
        columns=columns,
        rows=tuple(rows),
    )


def granularity(runs: Sequence[Run]) -> Table:
    """Figure 12 (c) as a table."""
    names = ("coarse", "default", "fine")
    columns = (
        Column(name="setting"),
        *(_fraction(name) for name in names),
        *(_fraction(f"cross-fitted: {name}") for name in names),
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


def importance(runs: Sequence[Run]) -> Table:
    """Figure 13 (a) as a table: the trees' own importance, and what tells anything of new problems."""
    columns = (
        Column(name="setting"),
        Column(name="most gain"),
        _fraction("its share"),
        _fraction("least share"),
        Column(name="held-out, shuffling costs imitation"),
        _fraction("imitation held-out"),
        _fraction("commonest budget"),
    )
    rows: list[tuple[Cell, ...]] = []
    for run in runs:
        found = run.importance
        if found is None:
            continue
        telling = ", ".join(f"`{name}`" for name in found.telling) or "of none"
        top = f"`{found.names[found.order[0]]}`"
        shares = (float(found.gain.max()), float(found.gain.min()))
        rows.append((run.name, top, *shares, telling, found.kept, found.majority))
    return Table(
        key="importance",
        title="Figure 13 (a)",
        protocol="boosted trees at B = 2: gain on all problems; shuffled on problems not learned from",
        columns=columns,
        rows=tuple(rows),
    )
