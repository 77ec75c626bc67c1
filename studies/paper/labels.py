"""The oracle's budgets: how many problems get each, which ones, and which ones the classifier gives them to.

They are computed from the paper's windows over all problems together, as in the paper.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from adacompute.report.canvas import Canvas, colour
from adacompute.report.document import Column, Picture, Section, Table, to_plain
from studies.canvas import clip_label, ramp
from studies.paper.budget_choices import ClassifierFits, compute_oracle_labels
from studies.paper.mechanism import describe_sample, sample_rows
from studies.paper.paper_pool import QUINTILES, PaperPool
from studies.paper.price_search import TARGET_BUDGETS, describe_unreachable, select_reachable

__all__ = [
    "HEATMAP_BUDGETS",
    "Heatmap",
    "LabelShares",
    "Scatter",
    "build_section",
    "compute_heatmap",
    "compute_heatmaps",
    "compute_labels",
    "compute_scatter",
    "compute_scatters",
    "draw_heatmap",
    "draw_scatter",
    "split_groups",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_DECILES = 10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabelShares:
    """How many problems the oracle gives each budget, for one average budget."""

    budget: float  # samples on average, asked for
    price: float
    cost: float  # samples on average, of these labels
    budgets: tuple[int, ...]
    shares: Floats  # (budgets,) of all problems; they add up to 1

    @property
    def ones(self) -> float:
        """Share of problems that get the smallest budget."""
        return float(self.shares[0])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scatter:
    """Each problem's budget by its one-sample accuracy, for one average budget."""

    budget: float  # samples on average, asked for
    budgets: tuple[int, ...]
    ids: tuple[str, ...] = field(repr=False)  # (problems,)
    single: Floats = field(repr=False)  # (problems,) accuracy of one sample
    chosen: Ints = field(repr=False)  # (problems,) samples, the oracle's
    gain: Floats = field(repr=False)  # (problems,) the most that any budget adds to `single`
    decile_single: Floats = field(repr=False)  # (deciles,) mean accuracy of one sample
    decile_chosen: Floats = field(repr=False)  # (deciles,) mean budget
    fifths: tuple[str, ...]  # from the hardest to the easiest
    composition: Floats = field(repr=False)  # (fifths, budgets) shares of each fifth's problems

    @property
    def peak(self) -> float:
        """One-sample accuracy of the decile that gets most."""
        return float(self.decile_single[self.decile_chosen.argmax()])

    @property
    def inverted(self) -> bool:
        """Whether the middle gets more than both ends: neither the first nor the last tenth gets most."""
        at = int(self.decile_chosen.argmax())
        return 0 < at < len(self.decile_chosen) - 1


def compute_labels(case: PaperPool, budgets: Sequence[float] = TARGET_BUDGETS) -> tuple[LabelShares, ...]:
    """The label distribution for each average budget that the pool can reach."""
    result = []
    for budget in select_reachable(case, budgets):
        column, price = compute_oracle_labels(case.windows, budget)
        result.append(
            LabelShares(
                budget=budget,
                price=price,
                cost=float(np.asarray(case.budgets)[column].mean()),
                budgets=case.budgets,
                shares=np.bincount(column, minlength=len(case.budgets)) / len(case),
            )
        )
    return tuple(result)


def compute_scatters(case: PaperPool, budgets: Sequence[float] = TARGET_BUDGETS) -> tuple[Scatter, ...]:
    """The scatter for each average budget that the pool can reach."""
    return tuple(compute_scatter(case, budget) for budget in select_reachable(case, budgets))


def compute_scatter(case: PaperPool, budget: float) -> Scatter:
    """Compute who gets how much at one average budget."""
    column, _ = compute_oracle_labels(case.windows, budget)
    accuracy = case.windows.accuracy
    single, chosen = accuracy[:, 0], np.asarray(case.budgets, dtype=np.int64)[column]
    deciles, fifths = split_groups(single, _DECILES), split_groups(single, len(QUINTILES))
    width = len(case.budgets)
    return Scatter(
        budget=float(budget),
        budgets=case.budgets,
        ids=case.ballots.ids,
        single=single,
        chosen=chosen,
        gain=accuracy.max(axis=1) - single,
        decile_single=np.array([single[rows].mean() for rows in deciles]),
        decile_chosen=np.array([chosen[rows].mean() for rows in deciles]),
        fifths=QUINTILES[: len(fifths)],
        composition=np.array([np.bincount(column[rows], minlength=width) / len(rows) for rows in fifths]),
    )


def split_groups(values: Floats, count: int) -> list[Ints]:
    """Rows in groups of equal size, from the smallest value to the largest, ties by row; none is empty.

    >>> [rows.tolist() for rows in split_groups(np.array([0.3, 0.1, 0.2]), 2)]
    [[1, 2], [0]]
    """
    return np.array_split(np.argsort(values, kind="stable"), min(count, len(values)))


HEATMAP_BUDGETS = (1.2, 1.5, 3.0)  # the paper's average budgets for this figure


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Heatmap:
    """Shares of each group's problems by budget, (groups, budgets) each; rows add up to 1.

    A group of which no problem was held out has NaN there.
    """

    budget: float  # samples on average, asked for
    kind: str  # of the groups
    groups: tuple[str, ...]
    budgets: tuple[int, ...]
    sizes: tuple[int, ...]  # (groups,) problems
    judged: tuple[int, ...]  # (groups,) held-out decisions, over all seeds
    oracle: Floats = field(repr=False)
    paper: Floats = field(repr=False)  # the classifier's, on all problems, those learned from included
    held_out: Floats = field(repr=False)  # the classifier's, on the problems not learned from
    paper_moved: float  # share of all decisions that would have to change for the oracle's picture
    held_out_moved: float  # the same, held-out, against the oracle on the same problems


def compute_heatmaps(
    case: PaperPool, fits: Mapping[float, ClassifierFits], budgets: Sequence[float] = HEATMAP_BUDGETS
) -> tuple[Heatmap, ...]:
    """A heatmap for each average budget that there are fits for."""
    return tuple(compute_heatmap(case, fits[budget]) for budget in map(float, budgets) if budget in fits)


def compute_heatmap(case: PaperPool, fits: ClassifierFits) -> Heatmap:
    """One average budget, by level or by fifth."""
    group, everyone = case.difficulty.group, np.ones_like(fits.train)
    labels = np.broadcast_to(fits.labels, fits.predicted.shape)
    width = len(case.budgets)

    def count_choices(columns: Ints, here: npt.NDArray[np.bool_]) -> Ints:
        """Decisions by group and budget, (groups, budgets)."""
        place = np.broadcast_to(group, columns.shape)[here] * width + columns[here]
        return np.bincount(place, minlength=len(case.difficulty.names) * width).reshape(-1, width)

    oracle, paper = count_choices(labels, everyone), count_choices(fits.predicted, everyone)
    held_out_oracle, held_out = count_choices(labels, ~fits.train), count_choices(fits.predicted, ~fits.train)
    return Heatmap(
        budget=fits.budget,
        kind=case.difficulty.kind,
        groups=case.difficulty.names,
        budgets=case.budgets,
        sizes=tuple(np.bincount(group, minlength=len(case.difficulty.names)).tolist()),
        judged=tuple(held_out.sum(axis=1).tolist()),
        oracle=_compute_shares(oracle),
        paper=_compute_shares(paper),
        held_out=_compute_shares(held_out),
        paper_moved=_count_moved(oracle, paper),
        held_out_moved=_count_moved(held_out_oracle, held_out),
    )


def _compute_shares(counts: Ints) -> Floats:
    total = counts.sum(axis=1, keepdims=True)
    return np.where(total > 0, counts / np.maximum(total, 1), np.nan)


def _count_moved(one: Ints, other: Ints) -> float:
    return float(np.abs(one - other).sum() / 2 / max(1, one.sum()))


_SIZES = (1.6, 2.8, 4.2, 5.8)  # points across, by what there is to gain
_GAINS = (0.1, 0.3, 0.5)  # from which on a marker is larger
_NAMED = 60  # problems of a panel that tell their values: those with most to gain
_GOLDEN = 0.618034
_SPREAD = 0.6  # of the room between two budgets, over which problems of one budget are strewn


def draw_scatter(scatters: Sequence[Scatter], *, key: str = "scatter") -> Picture:
    """A column for each average budget: problems above, fifths below."""
    with Canvas(key, rows=2, columns=len(scatters), height=5.4, sharey="row") as canvas:
        for at, scatter in enumerate(scatters):
            above, below = canvas.axes[at], canvas.axes[at + len(scatters)]
            above.set_title(f"B = {scatter.budget:g}")
            _draw_problems(canvas, above, scatter)
            _draw_fifths(canvas, below, scatter)
        canvas.axes[0].set_ylabel("oracle's budget, samples")
        canvas.axes[len(scatters)].set_ylabel("share of the fifth")
        _draw_key(canvas, scatters[0])
        svg = canvas.svg()
    return Picture(
        key=key,
        title="Who gets how much",
        protocol="Oracle on all problems, in-sample, on the paper's windows.",
        svg=svg,
        alt=" ".join(_describe_scatter(one) for one in scatters),
        caption=(
            "Above: a dot is a problem, larger where its best budget gains more over one sample; the line "
            "is the mean budget of each tenth of the problems. Below: the same problems in fifths by "
            "one-sample accuracy, and the budgets they get." + describe_sample(len(scatters[0].ids))
        ),
        data=to_plain(_build_scatter_data(scatters)),
    )


def _draw_problems(canvas: Canvas, ax: Axes, scatter: Scatter) -> None:
    level = np.searchsorted(scatter.budgets, scatter.chosen)
    shift = _SPREAD * ((np.arange(len(level)) * _GOLDEN) % 1 - 0.5)  # strewn evenly, the same every time
    drawn_rows = sample_rows(len(level))
    y = level + shift
    size = np.searchsorted(_GAINS, scatter.gain, side="right")
    for at, across in enumerate(_SIZES):
        rows = drawn_rows[size[drawn_rows] == at]
        ax.plot(
            scatter.single[rows],
            y[rows],
            "o",
            color=colour("blue"),
            alpha=0.4,
            markersize=across,
            markeredgewidth=0,
        )
    ax.plot(
        scatter.decile_single,
        np.interp(np.log2(scatter.decile_chosen), np.log2(scatter.budgets), np.arange(len(scatter.budgets))),
        color=colour("red"),
        marker="o",
        markersize=3.5,
        linewidth=1.6,
    )
    for row in drawn_rows[np.argsort(-scatter.gain[drawn_rows], kind="stable")[:_NAMED]]:
        text = (
            f"{scatter.ids[row]}: one sample {_format_percent(scatter.single[row])}, b = "
            f"{scatter.chosen[row]}"
        )
        canvas.mark(ax, scatter.single[row], y[row], f"{text}, at most {100 * scatter.gain[row]:+.0f} points")
    for x, mean in zip(scatter.decile_single, scatter.decile_chosen, strict=True):
        place = float(np.interp(np.log2(mean), np.log2(scatter.budgets), np.arange(len(scatter.budgets))))
        canvas.mark(
            ax, x, place, f"a tenth with one sample at {_format_percent(x)}: {mean:.2f} samples on average"
        )
    ax.set_yticks(range(len(scatter.budgets)), [str(budget) for budget in scatter.budgets])
    ax.set_ylim(-0.6, len(scatter.budgets) - 0.4)
    ax.set_xlim(-0.04, 1.04)
    ax.set_xticks([0, 0.5, 1], ["0%", "50%", "100%"])
    ax.set_xlabel("accuracy of one sample")


def _draw_fifths(canvas: Canvas, ax: Axes, scatter: Scatter) -> None:
    places = np.arange(len(scatter.fifths))
    bottom = np.zeros(len(places))
    for at, (budget, tint) in enumerate(zip(scatter.budgets, ramp(len(scatter.budgets)), strict=True)):
        share = scatter.composition[:, at]
        ax.bar(places, share, bottom=bottom, width=0.8, color=tint)
        for place in np.flatnonzero(share > 0):
            text = f"{scatter.fifths[place]}: {_format_percent(share[place])} get b = {budget}"
            canvas.mark(ax, float(place), float(bottom[place] + share[place] / 2), text)
        bottom += share
    ax.set_xticks(places, [_shorten(name) for name in scatter.fifths])
    ax.set_ylim(0, 1)
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    ax.grid(visible=False, axis="x")
    ax.set_xlabel("fifths, hardest to easiest")


def _draw_key(canvas: Canvas, scatter: Scatter) -> None:
    tints = ramp(len(scatter.budgets))
    canvas.figure.legend(
        [Patch(color=tint) for tint in tints],
        [f"b = {budget}" for budget in scatter.budgets],
        loc="outside lower center",
        ncols=len(tints),
    )


def _shorten(name: str) -> str:
    return {"hardest fifth": "1st", "hard fifth": "2nd", "middle fifth": "3rd", "easy fifth": "4th"}.get(
        name, "5th"
    )


def _describe_scatter(scatter: Scatter) -> str:
    return (
        f"At B = {scatter.budget:g} the tenth of problems with most samples has a one-sample accuracy of "
        f"{_format_percent(scatter.peak)} and gets {scatter.decile_chosen.max():.1f} on average."
    )


def _format_percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _build_scatter_data(scatters: Sequence[Scatter]) -> dict[str, object]:
    """Build a row per problem, with its budget at each average, then the tenths and fifths."""
    first = scatters[0]
    chosen = {f"{one.budget:g}": one.chosen for one in scatters}
    return {
        "problems": [
            {"id": name, "single": first.single[row], "gain": first.gain[row]}
            | {"budget": {average: own[row] for average, own in chosen.items()}}
            for row, name in enumerate(first.ids)
        ],
        "averages": {
            f"{one.budget:g}": {
                "tenths": {"single": one.decile_single, "budget": one.decile_chosen},
                "fifths": {
                    name: dict(zip(one.budgets, shares, strict=True))
                    for name, shares in zip(one.fifths, one.composition, strict=True)
                },
            }
            for one in scatters
        },
    }


_STEPS = 8  # of the colours
_LINE = 0.2  # inches that a group takes


def draw_heatmap(heatmaps: Sequence[Heatmap], *, key: str = "heatmap") -> Picture:
    """A column for each average budget: oracle, classifier on all problems, classifier held-out."""
    groups = len(heatmaps[0].groups)
    height = 0.75 + 3 * (0.32 + _LINE * groups)
    with Canvas(key, rows=3, columns=len(heatmaps), height=height, sharex=True, sharey=True) as canvas:
        for at, heatmap in enumerate(heatmaps):
            readings = (
                (f"oracle, B = {heatmap.budget:g}", heatmap.oracle),
                ("scored as the paper does", heatmap.paper),
                ("held-out", heatmap.held_out),
            )
            for row, (title, shares) in enumerate(readings):
                ax = canvas.axes[row * len(heatmaps) + at]
                if row == 0 or at == 0:  # a reading's name may be wider than a column
                    ax.set_title(title)
                _draw_cells(canvas, ax, heatmap, shares, title)
            canvas.axes[2 * len(heatmaps) + at].set_xlabel("budget b, samples")
        svg = canvas.svg()
    return Picture(
        key=key,
        title="Budgets by difficulty",
        protocol=(
            "Oracle on all problems by the paper's windows; classifier on all problems (scored as the paper "
            "does), and on the problems not learned from, all seeds together (held-out)."
        ),
        svg=svg,
        alt=" ".join(_describe_heatmap(one) for one in heatmaps),
        caption=(
            f"Percent of each group's problems that get each budget, by {heatmaps[0].kind}. First row: the "
            "oracle. Below it the same classifier, asked about all problems and about those it hadn't seen."
        ),
        data=to_plain({f"{one.budget:g}": _build_heatmap_data(one) for one in heatmaps}),
    )


def _draw_cells(
    canvas: Canvas, ax: Axes, heatmap: Heatmap, shares: npt.NDArray[np.float64], title: str
) -> None:
    tints = ramp(_STEPS)
    for (row, column), share in np.ndenumerate(shares):
        if not share > 0:  # none, or none held out
            continue
        step = min(_STEPS - 1, int(share * _STEPS))
        ax.add_patch(Rectangle((column - 0.47, row - 0.45), 0.94, 0.9, color=tints[step]))
        where = f"{title}, {heatmap.groups[row]}"
        canvas.mark(ax, column, row, f"{where}: {100 * share:.1f}% get b = {heatmap.budgets[column]}")
        if round(100 * share):
            ink = colour("page" if step >= _STEPS / 2 else "ink")
            ax.text(
                column, row, f"{100 * share:.0f}", ha="center", va="center_baseline", fontsize=8, color=ink
            )
    ax.set_xlim(-0.55, len(heatmap.budgets) - 0.45)
    ax.set_ylim(len(heatmap.groups) - 0.45, -0.55)
    ax.set_xticks(range(len(heatmap.budgets)), [str(budget) for budget in heatmap.budgets])
    ax.set_yticks(range(len(heatmap.groups)), [clip_label(name) for name in heatmap.groups])
    ax.tick_params(length=0)
    ax.grid(visible=False)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)


def _describe_heatmap(heatmap: Heatmap) -> str:
    return (
        f"At B = {heatmap.budget:g}, {100 * heatmap.paper_moved:.0f}% of the classifier's decisions would "
        f"have to change for the oracle's picture on all problems, {100 * heatmap.held_out_moved:.0f}% "
        "held-out."
    )


def _build_heatmap_data(heatmap: Heatmap) -> dict[str, object]:
    return {
        "kind": heatmap.kind,
        "groups": heatmap.groups,
        "problems": heatmap.sizes,
        "budgets": heatmap.budgets,
        "oracle": heatmap.oracle,  # a row a group, a column a budget
        "paper": heatmap.paper,
        "held_out": heatmap.held_out,
    }


def build_section(case: PaperPool, fits: Mapping[float, ClassifierFits]) -> Section:
    """Label distribution, scatter and heatmap."""
    shares, spread, heat = compute_labels(case), compute_scatters(case), compute_heatmaps(case, fits)
    pictures = (*((draw_scatter(spread),) if spread else ()), *((draw_heatmap(heat),) if heat else ()))
    return Section(
        key="labels",
        title="Who gets how much",
        words=_compose_words(shares, spread, heat),
        tables=(build_table(shares),) if shares else (),
        pictures=pictures,
        missing=describe_unreachable(case, sorted({*TARGET_BUDGETS, *HEATMAP_BUDGETS})),
    )


def build_table(label_shares: Sequence[LabelShares]) -> Table:
    """The label distribution, a row for each average budget."""
    budgets = label_shares[0].budgets
    return Table(
        key="labels",
        title="The oracle's budgets",
        protocol="Oracle on all problems, in-sample, on the paper's windows.",
        columns=(
            Column(name="B", kind="amount"),
            Column(name="price λ", kind="price"),
            Column(name="cost", kind="number", about="samples on average, of these budgets"),
            *(Column(name=f"b = {budget}", kind="share") for budget in budgets),
        ),
        rows=tuple((one.budget, one.price, one.cost, *map(float, one.shares)) for one in label_shares),
    )


def _compose_words(
    shares: Sequence[LabelShares], spread: Sequence[Scatter], heat: Sequence[Heatmap]
) -> tuple[str, ...]:
    if not shares:
        return ()
    first, last = shares[0], shares[-1]
    ones = f"At B = {first.budget:g} the oracle gives one sample to {first.ones:.0%} of the problems"
    if last is not first:
        ones += f", at B = {last.budget:g} to {last.ones:.0%}"
    words = [f"{ones}: the rest of the budget goes to the others.{_describe_shape(spread[-1])}"]
    if heat:
        heatmap = heat[-1]
        words.append(
            f"The heatmap shows the same budgets by {heatmap.kind}. For the classifier's picture at B = "
            f"{heatmap.budget:g} to become the oracle's, {heatmap.paper_moved:.0%} of its decisions would "
            "have to change when it is asked about all problems, those it learned from included (scored as "
            f"the paper does), and {heatmap.held_out_moved:.0%} when it is asked about new ones (held-out). "
            "Matching shares are not matching problems: imitation, problem by problem, is in the oracle-gap "
            "table."
        )
    return tuple(words)


def _describe_shape(scatter: Scatter) -> str:
    if scatter.decile_chosen.max() <= scatter.decile_chosen.min():
        return " All tenths of the problems get the same."
    where = f"problems that one sample answers {scatter.peak:.0%} of the time"
    if scatter.inverted:
        return f" Most goes to {where}; the easiest and the hardest get less, the paper's inverted U."
    return f" Most goes to {where}, at one end of the scale: not the paper's inverted U."
