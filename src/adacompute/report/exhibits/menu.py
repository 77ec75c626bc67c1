"""Several models or efforts beside each other: what each gives at each cost, and what their menu adds.

The numbers are those of `evaluate_menu`, held-out; each mode's uniform votes are exact. Numbers, figures and
words of all sections of a menu's page are here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from adacompute.evaluate.menu_evaluation import MenuEvaluation, MenuRow
from adacompute.evaluate.resampling import Interval
from adacompute.pool import Ballots, Menu
from adacompute.report.canvas import Canvas, clip_label, set_accuracy_axis, set_ticks
from adacompute.report.document import (
    Cell,
    Column,
    Picture,
    Section,
    Table,
    find_clear_signs,
    join_words,
    to_plain,
)
from adacompute.report.theme import colour
from adacompute.score import list_columns, score

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "MENU",
    "ModeFacts",
    "build_limits_section",
    "build_modes_section",
    "build_policies_section",
    "build_verdict_section",
    "find_cascade",
    "find_row",
    "find_single",
    "measure_modes",
]

MENU = "menu"
SINGLES = ("best fixed mix", "stopping, mixed")  # what one has without a menu
CASCADES = ("sequential cascade", "threshold cascade")
_BAND: Any = {"alpha": 0.18, "lw": 0, "zorder": 1}
_MODE_COLOURS = ("grey", "purple", "green", "yellow", "red", "ink")  # cheapest first
_UNIFORM_SAMPLES = (1, 2, 4, 8, 16)  # samples of one mode for everyone
_LOG_RATIO = 6.0  # of the largest and the smallest cost: a wider axis is logarithmic
_SMALL_SHARE = 0.02  # of the spending: a mode below it has dropped out
_NARROW_WIDTH = 5.7  # inches: a phone shows it whole (page.css, #figure-frontier-few)
_NEVER, _UNCLEAR = "never as good", "not clear"
_ABOUT_SINGLE = "the best of the modes alone or mixed by lot, uniform or stopping"
_ABOUT_ROWS = (
    "uniform: so many samples of one mode for everyone. stopping: one mode alone, asked until its votes "
    "agree well enough. best fixed mix: the best of all uniform settings and mixes of two. joint fixed vote: "
    "so many samples of every mode for everyone. cascades: samples of a cheap mode until they agree, else a "
    "dearer one. routers: decide by the prompt, or by lot, before any sample. shuffled: what the "
    "menu drew for each request, handed to a request of another prompt."
)


_LIMITS = (
    "A menu lives on problems where the cheap mode is right, and shows it by agreeing with itself. It gains "
    "little where prices are close, where the cheap mode is hardly ever right, or where the budget is so "
    "large that everyone can have the dear mode. What is shown is of these problems, "
    "models and prices: others need recordings of their own."
)
_CASCADE_LEVEL = (
    "No clear difference from a cascade whose settings are chosen on the same recordings, anew for every "
    "budget. The menu is fitted once, and has one price for every budget."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeFacts:
    """One mode: its cost, and its votes for everyone. Accuracies are 0 to 1."""

    name: str
    cost: float  # of a sample, in the menu's unit
    samples: tuple[int, ...]  # recorded of a problem, at least and at most
    votes: tuple[tuple[int, float, float], ...] = field(repr=False)  # samples, cost, accuracy


def measure_modes(ballots: Ballots, menu: Menu, *, graded: bool) -> tuple[ModeFacts, ...]:
    """Each mode that may be drawn; without grades, votes are left out."""
    facts = []
    for mode in menu.modes:
        if not math.isfinite(mode.cost):
            continue
        drawn = ballots[mode.name].drawn
        budgets = tuple(count for count in _UNIFORM_SAMPLES if count <= int(drawn.min()))
        votes = _score_mode(ballots, menu, mode.name, budgets) if graded and budgets else ()
        samples = (int(drawn.min()), int(drawn.max()))
        facts.append(ModeFacts(name=mode.name, cost=mode.cost, samples=samples, votes=votes))
    return tuple(facts)


def _score_mode(
    ballots: Ballots, menu: Menu, name: str, budgets: Sequence[int]
) -> tuple[tuple[int, float, float], ...]:
    own = Menu(modes=(menu[name],), unit=menu.unit, currency=menu.currency)
    table = score(ballots, tuple(budgets), menu=own, mixed=False, too_few="drop")
    columns = list_columns(own, tuple(budgets), mixed=False)
    costs = np.broadcast_to(table.costs, table.accuracy.shape).mean(axis=0)
    accuracies = table.accuracy.mean(axis=0)
    return tuple(
        (column.draws[0][1], float(cost), float(accuracy))
        for column, cost, accuracy in zip(columns, costs, accuracies, strict=True)
    )


def find_row(evaluation: MenuEvaluation, policy: str, budget: float) -> MenuRow | None:
    """A policy at one of the budgets; None where it can't cost that little, or took no part."""
    return next((row for row in evaluation.rows if (row.policy, row.budget) == (policy, budget)), None)


def find_single(evaluation: MenuEvaluation, budget: float) -> MenuRow | None:
    """The best of the modes alone or mixed by lot, uniform or stopping: what one has without a menu."""
    return _find_best(evaluation, SINGLES, budget)


def find_cascade(evaluation: MenuEvaluation, budget: float) -> MenuRow | None:
    """The cascade that is right more often at a budget, with hindsight."""
    return _find_best(evaluation, CASCADES, budget)


def _find_best(evaluation: MenuEvaluation, names: Sequence[str], budget: float) -> MenuRow | None:
    rows = [row for name in names if (row := find_row(evaluation, name, budget)) is not None]
    return max(rows, key=lambda row: row.accuracy.mean, default=None)


# ------------------------------------------------------------------------------------------ verdict


def build_verdict_section(evaluation: MenuEvaluation, modes: Sequence[ModeFacts]) -> Section:
    """The frontier in the menu's unit, and the table of budgets."""
    missing = []
    if evaluation.basis == "agreement":
        missing.append("each mode's uniform votes: they need grades; record grades or gold answers")
    return Section(
        key="verdict",
        title=evaluation.verdict,
        tables=(build_budgets_table(evaluation),),
        pictures=(draw_frontier(evaluation, modes),),
        missing=tuple(missing),
    )


def _cost_column(menu: Menu, name: str, about: str = "") -> Column:
    return Column(name=name, kind="money" if menu.unit == "money" else "amount", about=about)


def _scale_cost(menu: Menu, cost: float) -> float:
    """A cost as the page shows it: of so many requests, three digits."""
    return float(f"{cost * menu.shown_requests:.3g}")


def build_budgets_table(evaluation: MenuEvaluation) -> Table:
    """One row for each budget: fixed, cascade, menu, its gains, and what the same costs without it."""
    menu, rows = evaluation.menu, []
    for budget in evaluation.budgets:
        own, single = find_row(evaluation, MENU, budget), find_single(evaluation, budget)
        cascade, same = find_cascade(evaluation, budget), evaluation.savings.get(budget)
        cost = budget if own is None else own.cost
        row: tuple[Cell, ...] = (
            _scale_cost(menu, budget),
            None if single is None else single.accuracy.mean,
            None if cascade is None else cascade.accuracy.mean,
            None if own is None else own.accuracy.mean,
            None if single is None else single.gain,
            None if cascade is None else cascade.gain,
            *_describe_saving(menu, single, cost, same),
        )
        rows.append(row)
    return Table(
        key="menu-budgets",
        title=f"{evaluation.basis.capitalize()} at each average cost, and what the menu saves",
        protocol=_describe_protocol(evaluation),
        columns=(
            _cost_column(menu, menu.cost_unit),
            Column(name="without a menu", kind="share", about=_ABOUT_SINGLE),
            Column(name="cascade", kind="share", about="the better of two kinds, with hindsight"),
            Column(name="menu", kind="share", about="stops, asks again or asks another mode"),
            Column(name="gain", kind="points", about="points over no menu, 95% interval, paired"),
            Column(name="over the cascade", kind="points", about="points, 95% interval, paired"),
            _cost_column(menu, "no menu needs", f"{menu.cost_unit}, for the menu's {evaluation.basis}"),
            Column(name="saved", kind="percent", about="of that; below 0 the menu costs more"),
        ),
        rows=tuple(rows),
        note=(
            f"{_NEVER}: no single mode and no mix that was recorded is right as often. {_UNCLEAR}: the "
            "interval of the gain holds zero."
        ),
    )


def _describe_saving(
    menu: Menu, single: MenuRow | None, cost: float, same: float | None
) -> tuple[Cell, Cell]:
    """What single modes need for the same, and the share saved; nothing where no gain or loss is clear."""
    if single is None or single.gain is None or single.gain.holds_zero:
        return _UNCLEAR, _UNCLEAR
    return (_NEVER, None) if not same else (_scale_cost(menu, same), 1 - cost / same)


def _describe_protocol(evaluation: MenuEvaluation) -> str:
    by = "families" if evaluation.families else "problems"
    return f"held-out: {evaluation.problems:,} problems, {evaluation.folds} folds over {by}, at the same cost"


def draw_frontier(evaluation: MenuEvaluation, modes: Sequence[ModeFacts]) -> Picture:
    """Accuracy by average cost: every mode uniformly and stopping, the best cascade, the menu."""
    with Canvas("frontier-few", width=_NARROW_WIDTH, height=4.4) as canvas:
        ax = canvas.axes[0]
        data = {"unit": evaluation.menu.cost_unit, "menu": _draw_menu(canvas, ax, evaluation)}
        data["cascade"] = _draw_cascade(canvas, ax, evaluation)
        singles = [find_single(evaluation, budget) for budget in evaluation.budgets]
        data["without a menu"] = _draw_line(canvas, ax, evaluation, singles, "without a menu", "ink", "--")
        for at, mode in enumerate(modes):
            tint = _MODE_COLOURS[at % len(_MODE_COLOURS)]
            data[mode.name] = _draw_mode(canvas, ax, evaluation, mode, tint)
        _set_cost_axis(ax, evaluation, modes)
        set_accuracy_axis(ax, evaluation.basis)
        ax.legend(loc="lower right", handlelength=2.4, labelspacing=0.45, borderaxespad=0.2, fontsize=8)
        svg = canvas.svg()
    best = [row for budget in evaluation.budgets if (row := find_row(evaluation, MENU, budget)) is not None]
    return Picture(
        key="frontier-few",
        title=f"What an average cost buys ({evaluation.menu.cost_unit})",
        protocol=_describe_protocol(evaluation),
        svg=svg,
        alt=(
            f"{evaluation.basis.capitalize()} against average cost for the menu, the better cascade, no "
            f"menu and {join_words([mode.name for mode in modes])}. The menu: "
            + join_words(
                [f"{row.accuracy.mean:.1%} at {_describe_cost(evaluation, row.cost)}" for row in best]
            )
            + "."
        ),
        caption=(
            "Without a menu: the best of the modes alone or mixed by lot, uniform or stopping; the band is "
            "the 95% interval of the menu's gain over that. Dots: 1, 2, 4, … samples of one mode for "
            "everyone. Thin lines: one mode alone, with stopping."
        ),
        data=to_plain(data),
    )


def _describe_cost(evaluation: MenuEvaluation, cost: float) -> str:
    return evaluation.menu.format_cost(cost, unit=False)


def _collect_points(
    evaluation: MenuEvaluation, rows: Sequence[MenuRow | None]
) -> tuple[list[float], list[float], list[MenuRow]]:
    known = [row for row in rows if row is not None]
    scale = evaluation.menu.shown_requests
    return [row.cost * scale for row in known], [row.accuracy.mean for row in known], known


def _draw_menu(canvas: Canvas, ax: "Axes", evaluation: MenuEvaluation) -> dict[str, Any]:
    own = [find_row(evaluation, MENU, budget) for budget in evaluation.budgets]
    cost, accuracy, known = _collect_points(evaluation, own)
    singles = [find_single(evaluation, row.budget) for row in known]
    ends = [_find_gain_ends(row, base) for row, base in zip(known, singles, strict=True)]
    low, high = [end[0] for end in ends], [end[1] for end in ends]
    ax.fill_between(cost, low, high, color=colour("blue"), **_BAND)
    ax.plot(
        cost, accuracy, color=colour("blue"), linewidth=2.6, marker="o", markersize=5, zorder=4,
        label="menu (ours)",
    )  # fmt: skip
    for x, y, row, base in zip(cost, accuracy, known, singles, strict=True):
        text = f"menu at {_describe_cost(evaluation, row.cost)}: {y:.1%}"
        if base is not None and base.gain is not None:
            text += f", {100 * base.gain.mean:+.1f} points over no menu"
        canvas.mark(ax, x, y, text)
    return {"cost": cost, "accuracy": accuracy, "low": low, "high": high}


def _find_gain_ends(row: MenuRow, base: MenuRow | None) -> tuple[float, float]:
    """The menu's accuracy by the ends of its gain; by itself where they aren't known."""
    gain = None if base is None else base.gain
    if base is None or gain is None or gain.low is None or gain.high is None:
        return row.accuracy.mean, row.accuracy.mean
    start = row.accuracy.mean - gain.mean
    return start + gain.low, start + gain.high


def _draw_cascade(canvas: Canvas, ax: "Axes", evaluation: MenuEvaluation) -> dict[str, Any]:
    rows = [find_cascade(evaluation, budget) for budget in evaluation.budgets]
    return _draw_line(canvas, ax, evaluation, rows, "better cascade", "orange", "-")


def _draw_line(
    canvas: Canvas,
    ax: "Axes",
    evaluation: MenuEvaluation,
    rows: Sequence[MenuRow | None],
    label: str,
    tint: str,
    line: str,
) -> dict[str, Any]:
    cost, accuracy, known = _collect_points(evaluation, rows)
    if cost:
        ax.plot(cost, accuracy, color=colour(tint), linestyle=line, linewidth=1.5, zorder=3, label=label)
    for x, y, row in zip(cost, accuracy, known, strict=True):
        canvas.mark(ax, x, y, f"{row.policy} at {_describe_cost(evaluation, row.cost)}: {y:.1%}")
    return {"cost": cost, "accuracy": accuracy}


def _draw_mode(
    canvas: Canvas, ax: "Axes", evaluation: MenuEvaluation, mode: ModeFacts, tint: str
) -> dict[str, Any]:
    """One mode's uniform votes as dots, each with its number of samples, and its stopping as a thin line."""
    name, scale = clip_label(mode.name), evaluation.menu.shown_requests
    stopping = [find_row(evaluation, f"stopping: {mode.name}", budget) for budget in evaluation.budgets]
    cost, accuracy, known = _collect_points(evaluation, stopping)
    widest = _find_cost_range(evaluation, [mode])[1]
    votes = [(count, scale * paid, share) for count, paid, share in mode.votes if scale * paid <= widest]
    label = f"{name}: uniform" + (", stopping" if cost else "")
    ax.plot(
        [paid for _, paid, _ in votes], [share for _, _, share in votes], color=colour(tint), marker="o",
        markersize=4.5, linestyle="-" if cost else "", linewidth=0 if not cost else 0.0, zorder=2,
    )  # fmt: skip
    ax.plot([], [], color=colour(tint), marker="o", markersize=4.5, linewidth=1.1, label=label)
    if cost:
        ax.plot(cost, accuracy, color=colour(tint), linewidth=1.1, zorder=2)
    for count, paid, share in votes:
        text = f"{count} × {mode.name} for everyone: {share:.1%}"
        canvas.mark(ax, paid, share, text)
    if votes:
        ax.annotate(
            f"{votes[0][0]} × {name}", (votes[0][1], votes[0][2]), xytext=(5, -10),
            textcoords="offset points", color=colour(tint), fontsize=8,
        )  # fmt: skip
    for x, y, row in zip(cost, accuracy, known, strict=True):
        canvas.mark(
            ax, x, y, f"{mode.name} alone, stopping, at {_describe_cost(evaluation, row.cost)}: {y:.1%}"
        )
    return {
        "uniform": [{"samples": count, "cost": paid, "accuracy": share} for count, paid, share in votes],
        "stopping": {"cost": cost, "accuracy": accuracy},
    }


def _find_cost_range(evaluation: MenuEvaluation, modes: Sequence[ModeFacts]) -> tuple[float, float]:
    """The costs that the figure shows: from the cheapest sample to a bit over the largest budget."""
    scale = evaluation.menu.shown_requests
    least = min([evaluation.budgets[0], *(mode.cost for mode in modes)])
    most = max([evaluation.budgets[-1], *(mode.cost for mode in modes)])
    return scale * least, scale * most * 1.08


def _set_cost_axis(ax: "Axes", evaluation: MenuEvaluation, modes: Sequence[ModeFacts]) -> None:
    low, high = _find_cost_range(evaluation, modes)
    if low > 0 and high / low > _LOG_RATIO:
        ax.set_xscale("log")
        ax.set_xlim(low * 0.9, high * 1.04)
    else:
        ax.set_xlim(max(0.0, low - 0.05 * (high - low)), high)
    set_ticks(
        ax.xaxis, _choose_ticks([_scale_cost(evaluation.menu, budget) for budget in evaluation.budgets])
    )
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.3g}")
    ax.set_xlabel(f"{evaluation.menu.cost_unit}, on average")


def _choose_ticks(costs: Sequence[float]) -> list[float]:
    """The budgets, without those that are too close to the next for their labels."""
    ticks: list[float] = []
    for cost in costs:
        if not ticks or cost > 1.15 * ticks[-1]:
            ticks.append(cost)
    return ticks


# -------------------------------------------------------------------------------------------- modes


def build_modes_section(evaluation: MenuEvaluation, modes: Sequence[ModeFacts]) -> Section:
    """How many samples of each mode the menu draws, and what share of the spending each gets."""
    missing = () if _has_draws(evaluation) else ("what the menu draws was not measured",)
    return Section(
        key="modes",
        title="Whom it asks",
        words=_describe_shares(evaluation),
        pictures=(draw_shares(evaluation),) if not missing else (),
        tables=(build_modes_table(evaluation, modes), *([] if missing else [build_shares_table(evaluation)])),
        missing=missing,
    )


def _has_draws(evaluation: MenuEvaluation) -> bool:
    return any(row.policy == MENU and row.draws for row in evaluation.rows)


def compute_shares(evaluation: MenuEvaluation, row: MenuRow) -> dict[str, tuple[float, float, float]]:
    """By mode: mean samples, their share of all samples, and their share of the spending at mean costs."""
    names = [mode.name for mode in evaluation.menu.modes if math.isfinite(mode.cost)]
    draws = [row.draws.get(name, 0.0) for name in names]
    spent = [number * evaluation.menu[name].cost for name, number in zip(names, draws, strict=True)]
    return {
        name: (number, number / (sum(draws) or 1.0), paid / (sum(spent) or 1.0))
        for name, number, paid in zip(names, draws, spent, strict=True)
    }


def build_modes_table(evaluation: MenuEvaluation, modes: Sequence[ModeFacts]) -> Table:
    """Each mode: what a sample costs, what one and more of them give."""
    menu = evaluation.menu
    most = {mode.name: mode.votes[-1] if mode.votes else None for mode in modes}
    rows: list[tuple[Cell, ...]] = []
    for mode in modes:
        last = most[mode.name]
        least, largest = mode.samples
        rows.append(
            (
                mode.name,
                _scale_cost(menu, mode.cost),
                mode.cost / modes[0].cost if modes[0].cost else None,
                mode.votes[0][2] if mode.votes else None,
                None if last is None else f"{last[2]:.1%} ({last[0]} samples)",
                f"{largest}" if least == largest else f"{least} to {largest}",
            )
        )
    per = f"{menu.currency} for 1,000 samples" if menu.unit == "money" else f"{menu.unit} of a sample"
    return Table(
        key="menu-modes",
        title="The modes of the menu",
        protocol="uniform votes are exact, over all subsets of the recorded samples",
        columns=(
            Column(name="mode"),
            _cost_column(menu, per, "on average over the recorded samples where prices are given"),
            Column(name="times the cheapest", kind="tenths"),
            Column(name="one sample", kind="share", about="how often it is right"),
            Column(name="most samples", about="a vote for everyone, as many as were recorded, 16 at most"),
            Column(name="recorded", about="samples of a problem"),
        ),
        rows=tuple(rows),
    )


def build_shares_table(evaluation: MenuEvaluation) -> Table:
    """What the menu draws at each budget."""
    menu, rows = evaluation.menu, []
    names = [mode.name for mode in menu.modes if math.isfinite(mode.cost)]
    for budget in evaluation.budgets:
        own = find_row(evaluation, MENU, budget)
        if own is None or not own.draws:
            continue
        shares = compute_shares(evaluation, own)
        cells: list[Cell] = [_scale_cost(menu, budget)]
        for name in names:
            cells += [shares[name][0], shares[name][2]]
        rows.append(tuple(cells))
    columns = [_cost_column(menu, menu.cost_unit)]
    for name in names:
        columns += [
            Column(name=f"samples of {name}", kind="number", about="a request, on average"),
            Column(name=f"share of cost, {name}", kind="percent", about="of what the menu spends"),
        ]
    return Table(
        key="menu-shares",
        title="What the menu draws at each average cost",
        protocol=_describe_protocol(evaluation),
        columns=tuple(columns),
        rows=tuple(rows),
    )


def draw_shares(evaluation: MenuEvaluation) -> Picture:
    """Stacked bars: each mode's share of the samples and of the spending at each budget."""
    rows = [
        row
        for budget in evaluation.budgets
        if (row := find_row(evaluation, MENU, budget)) is not None and row.draws
    ]
    names = [mode.name for mode in evaluation.menu.modes if math.isfinite(mode.cost)]
    shares = [compute_shares(evaluation, row) for row in rows]
    with Canvas("menu-shares", columns=2, height=3.0, sharey=True) as canvas:
        for ax, part, title in zip(canvas.axes, (1, 2), ("of the samples", "of the cost"), strict=True):
            bottom = np.zeros(len(rows))
            for at, name in enumerate(names):
                heights = np.array([share[name][part] for share in shares])
                tint = colour(_MODE_COLOURS[at % len(_MODE_COLOURS)])
                ax.bar(np.arange(len(rows)), heights, bottom=bottom, color=tint, width=0.72)
                for x, (height, base, row) in enumerate(zip(heights, bottom, rows, strict=True)):
                    text = f"{name} at {_describe_cost(evaluation, row.cost)}: {height:.0%} {title}"
                    canvas.mark(ax, x, base + height / 2, text)
                bottom += heights
            ax.set_title(f"share {title}")
            ax.set_xticks(np.arange(len(rows)), [_describe_cost(evaluation, row.budget) for row in rows])
            ax.set_xlabel(evaluation.menu.cost_unit)
            ax.grid(visible=False, axis="x")
            ax.set_ylim(0, 1)
        set_accuracy_axis(canvas.axes[0], "")
        handles: list[Any] = [
            canvas.axes[0].bar([0], [0], color=colour(_MODE_COLOURS[at % len(_MODE_COLOURS)]))
            for at in range(len(names))
        ]
        canvas.figure.legend(handles, [clip_label(name) for name in names], loc="outside upper left", ncols=4)
        svg = canvas.svg()
    return Picture(
        key="menu-shares",
        title="Who gets the samples, and who the money"
        if evaluation.menu.unit == "money"
        else "Who is asked",
        protocol=_describe_protocol(evaluation),
        svg=svg,
        alt="; ".join(_describe_shares(evaluation)) or "Shares of samples and cost by mode.",
        data=to_plain(
            {
                name: {
                    "budget": [row.budget for row in rows],
                    "samples": [share[name][0] for share in shares],
                    "share of samples": [share[name][1] for share in shares],
                    "share of cost": [share[name][2] for share in shares],
                }
                for name in names
            }
        ),
    )


def _describe_shares(evaluation: MenuEvaluation) -> tuple[str, ...]:
    """What the menu asks at the smallest and the largest budget, and which modes it has no use for."""
    rows = [
        row
        for budget in evaluation.budgets
        if (row := find_row(evaluation, MENU, budget)) is not None and row.draws
    ]
    if not rows:
        return ()
    ends = [rows[0], rows[-1]] if len(rows) > 1 else rows
    texts = []
    for row in ends:
        shares = compute_shares(evaluation, row)
        parts = [f"{number:.2f} of {name}" for name, (number, _, _) in shares.items()]
        texts.append(f"at {_describe_cost(evaluation, row.budget)} a request gets {join_words(parts)}")
    sentence = f"In samples on average, {'; '.join(texts)} ({evaluation.menu.cost_unit})."
    every = [compute_shares(evaluation, row) for row in rows]
    unused = [name for name in every[0] if all(share[name][2] < _SMALL_SHARE for share in every)]
    if not unused:
        return (sentence,)
    return (sentence, f"It has no use for {join_words(unused)} here: less than 2% of the cost at any budget.")


# ----------------------------------------------------------------------------------------- policies


def build_policies_section(evaluation: MenuEvaluation) -> Section:
    """Every policy at each budget, and the menu's gain over it."""
    return Section(
        key="policies",
        title="Everything that was compared",
        words=_describe_lead(evaluation),
        tables=(build_policies_table(evaluation),),
    )


def build_policies_table(evaluation: MenuEvaluation) -> Table:
    """Accuracy of each, and the menu's gain over it, the best first."""
    names = list(dict.fromkeys(row.policy for row in evaluation.rows))
    middle = evaluation.budgets[len(evaluation.budgets) // 2]
    known = {name: find_row(evaluation, name, middle) for name in names}
    names.sort(key=lambda name: -(-1.0 if (row := known[name]) is None else row.accuracy.mean))
    rows: list[tuple[Cell, ...]] = []
    for name in names:
        cells: list[Cell] = [name]
        for budget in evaluation.budgets:
            row = find_row(evaluation, name, budget)
            cells += [None, None] if row is None else [row.accuracy.mean, row.gain]
        rows.append(tuple(cells))
    columns = [Column(name="policy")]
    for budget in evaluation.budgets:
        cost = _describe_cost(evaluation, budget)
        columns += [
            Column(name=f"at {cost}", kind="share", about=evaluation.basis),
            Column(name=f"menu's gain at {cost}", kind="points", about="points over it, 95% interval"),
        ]
    if evaluation.oracle:
        cells = ["oracle, cross-fitted"]
        brackets = {bracket.budget: bracket for bracket in evaluation.oracle}
        for budget in evaluation.budgets:
            low = brackets[budget].low if budget in brackets else None
            cells += [None if low is None else low.mean, None]
        rows.append(tuple(cells))
    return Table(
        key="menu-policies",
        title=f"{evaluation.basis.capitalize()} at the same average cost ({evaluation.menu.cost_unit})",
        protocol=_describe_protocol(evaluation),
        columns=tuple(columns),
        rows=tuple(rows),
        note=f"{_ABOUT_ROWS} Blank: it can't cost that, or isn't known.",
        bold=tuple(at for at, row in enumerate(rows) if row[0] == MENU),
    )


def _describe_lead(evaluation: MenuEvaluation) -> tuple[str, ...]:
    """Over which policies the menu is clearly ahead, and which are clearly ahead of it."""
    ahead: list[str] = []
    level: list[str] = []
    behind: list[str] = []
    for name in dict.fromkeys(row.policy for row in evaluation.rows if row.gain is not None):
        gains = [row.gain for row in evaluation.rows if row.policy == name and row.gain is not None]
        above, below = find_clear_signs(gains)
        (behind if below else ahead if above else level).append(name)
    texts = []
    if ahead:
        texts.append(
            f"Clearly ahead, at one cost or more, of {join_words(ahead)}; never clearly behind these."
        )
    if level:
        texts.append(f"Not clearly different at any cost from {join_words(level)}.")
    if behind:
        texts.append(f"Clearly behind, at one cost or more: {join_words(behind)} did better there.")
    return tuple(texts)


# ------------------------------------------------------------------------------------------- limits


def build_limits_section(evaluation: MenuEvaluation, modes: Sequence[ModeFacts]) -> Section:
    """Where the menu isn't worth it on this pool, and what that depends on."""
    return Section(
        key="limits",
        title="When it isn't worth it",
        words=(
            *_describe_unclear(evaluation),
            *_describe_cascade(evaluation),
            *_describe_ratio(modes),
            _LIMITS,
        ),
    )


def _describe_unclear(evaluation: MenuEvaluation) -> tuple[str, ...]:
    gains = [
        (budget, row.gain)
        for budget in evaluation.budgets
        if (row := find_single(evaluation, budget)) is not None and row.gain is not None
    ]
    if not gains:
        return ()
    above, below = find_clear_signs([gain for _, gain in gains])
    unit = evaluation.menu.cost_unit
    if len(above) == len(gains):
        return (f"Over no menu, the gain is clear at every cost looked at ({unit}).",)
    unclear = [_format_gain_at(evaluation, *gains[at]) for at in range(len(gains)) if at not in above]
    text = f"No clear gain over single modes at {join_words(unclear)} points ({unit}, 95% interval)."
    if below:
        text += " Where the interval is below zero, do without a menu."
    return (text,)


def _format_gain_at(evaluation: MenuEvaluation, budget: float, gain: Interval) -> str:
    low, high = gain.low or 0.0, gain.high or 0.0
    cost = _describe_cost(evaluation, budget)
    return f"{cost}: {100 * gain.mean:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


def _describe_cascade(evaluation: MenuEvaluation) -> tuple[str, ...]:
    rows = [find_cascade(evaluation, budget) for budget in evaluation.budgets]
    gains = [row.gain for row in rows if row is not None and row.gain is not None]
    if not gains:
        return ()
    above, below = find_clear_signs(gains)
    if below:
        count = f"{len(below)} of {len(gains)}"
        return (f"A cascade, tuned as it was, is clearly better at {count} costs: prefer one there.",)
    if not above:
        return (_CASCADE_LEVEL,)
    count = f"{len(above)} of {len(gains)}"
    return (f"It is clearly ahead of the better of two cascades, tuned as it was, at {count} costs.",)


def _describe_ratio(modes: Sequence[ModeFacts]) -> tuple[str, ...]:
    if len(modes) < 2 or not modes[0].cost:
        return ()
    ratio = modes[-1].cost / modes[0].cost
    text = f"Here a sample of {modes[-1].name} costs {ratio:.3g} times one of {modes[0].name}."
    return (f"{text} With other prices, make this page again: they decide more than the policy does.",)
