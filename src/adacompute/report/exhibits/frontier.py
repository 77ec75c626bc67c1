"""Figures, tables and text on every policy's accuracy by average cost, with the oracle's bounds.

With one mode, costs are numbers of samples. With several modes, costs have the unit of the modes' costs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from adacompute.errors import format_count
from adacompute.evaluate.comparison import (
    CostCurve,
    Evaluation,
    Match,
    basis_name,
    format_samples,
    join_points,
    make_cost_grid,
    trace_curve,
)
from adacompute.evaluate.conclusions import EvaluationRuns, make_bootstrap
from adacompute.evaluate.measure import OURS, UNIFORM, Basis
from adacompute.evaluate.mode_rivals import ALL_MODES, CASCADES, SINGLES, WITHOUT
from adacompute.evaluate.oracle_bounds import Oracle
from adacompute.pool.modes import ModeSet
from adacompute.records import format_points
from adacompute.report.canvas import (
    Canvas,
    PolicyStyle,
    colour,
    policy_style,
    set_accuracy_axis,
    set_cost_axis,
    set_samples_axis,
)
from adacompute.report.document import Cell, Column, Picture, Section, Table, join_words, to_plain

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes


Floats = npt.NDArray[np.float64]

PUBLISHED_RULES = ("asc", "esc", "doubling")  # names of published stopping rules that aren't fitted
PUBLISHED = "published"  # name of a curve: the best mixes of uniform sampling and PUBLISHED_RULES
_BAND: Any = {"alpha": 0.16, "lw": 0, "zorder": 1}
# average numbers of samples at which a curve has marks, which show their values on hover
_MARKED_COSTS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
_PUBLISHED = PolicyStyle(name="published rules", colour="orange")
_CASCADE = PolicyStyle(name="better cascade", colour="orange")
_SINGLE = PolicyStyle(name=WITHOUT, colour="ink", line="--")
_COST_LABEL = "average samples per request"
_CLEARLY_ABOVE = 1e-9
_NARROW_WIDTH = 5.7  # figure width in inches that fits on a phone (see #figure-frontier-few in page.css)
_ABOUT_MODES = (
    "uniform: the same number of samples of one mode for everyone. stopping: one mode alone, asked until "
    "its votes agree well enough. best fixed mix: the best of all uniform settings and mixes of two. joint"
    " fixed vote: the same numbers of samples of every mode. cascades: samples of a cheap mode until they "
    "agree, else a more expensive one. routers: decide by the prompt, or at random, before sampling. "
    "shuffled draws: what ours drew for each request, handed to a request of another prompt. Blank: it "
    "can't cost so little."
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OracleCurve:
    """Lower and upper bounds on the oracle's accuracy, by average cost; arrays of shape (costs,)."""

    choices: tuple[int, ...]  # how many samples the oracle can give a problem
    cost: Floats = field(repr=False)
    # lower bound: choices are made and evaluated on different samples; None if there are too few samples
    low: Floats | None = field(repr=False)
    high: Floats = field(repr=False)  # upper bound: choices are made and evaluated on the same samples
    why: str = ""  # why there is no lower bound; "" if there is one


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyFrontier:
    """Curves of every policy's accuracy by average cost, from the lowest cost to the highest."""

    curves: tuple[CostCurve, ...]
    # with one mode: the best mixes of uniform sampling and published rules; None if no such rule was run
    # with several modes: at each budget, the more accurate cascade (sequential or threshold)
    published: CostCurve | None
    oracle: OracleCurve | None  # bounds on the oracle's accuracy; None if the samples have no grades
    problems: int
    folds: int
    weighted: bool  # whether votes were weighted
    basis: Basis
    longest: int  # maximum number of samples per request
    budgets: tuple[float, ...]  # average costs shown in tables
    single: CostCurve | None = None  # with several modes: the best single mode or mix of two modes
    mode_set: ModeSet | None = None  # with several modes: the modes with their costs

    @property
    def baseline(self) -> CostCurve | None:
        """The curve to compare with: uniform sampling, or with several modes the best single mode or mix."""
        return self.get(UNIFORM) if self.single is None else self.single

    @property
    def ours(self) -> str:
        """The name of the policy that the page is about."""
        return OURS if self.mode_set is None else ALL_MODES

    @property
    def base_name(self) -> str:
        """The baseline policy's name in the report's sentences."""
        return "uniform" if self.mode_set is None else SINGLES[0]

    def format_cost(self, cost: float) -> str:
        """Formats an average cost with its unit."""
        if self.mode_set is not None:
            return self.mode_set.format_cost(cost)
        return format_count(f"{cost:.3g}", "sample")

    def get(self, policy: str) -> CostCurve | None:
        """Returns a policy's curve; None if the policy wasn't evaluated."""
        return next((curve for curve in self.curves if curve.policy == policy), None)


def trace_frontier(
    runs: EvaluationRuns, evaluation: Evaluation | None = None, *, oracle: Oracle | None = None
) -> PolicyFrontier:
    """Computes every policy's curve on held-out problems, with 95% confidence intervals."""
    setup = runs.setup
    if evaluation is not None and evaluation.mode_set is not None:
        return trace_modes(evaluation)
    boot, grid = make_bootstrap(setup), make_cost_grid(float(setup.longest), setup.budgets)
    uniform = runs.get(UNIFORM).points
    lines = [trace_curve(result.name, result.points, grid, boot, base=uniform) for result in runs.everyone]
    rules = [result.points for result in runs.everyone if result.name in PUBLISHED_RULES]
    return PolicyFrontier(
        curves=tuple(line for line in lines if line is not None),
        published=trace_curve(PUBLISHED, join_points([uniform, *rules]), grid, boot, base=uniform)
        if rules
        else None,
        oracle=_trace_oracle(runs, grid, oracle) if setup.basis == "accuracy" else None,
        problems=len(setup.ballots),
        folds=runs.parts,
        weighted=setup.weighted,
        basis=setup.basis,
        longest=setup.longest,
        budgets=setup.budgets,
    )


def trace_modes(evaluation: Evaluation) -> PolicyFrontier:
    """Returns the curves for several modes, with one point at each budget of the evaluation."""
    brackets = evaluation.oracle
    lows = [bracket.low.mean for bracket in brackets if bracket.low is not None]
    oracle = OracleCurve(
        choices=(),
        cost=np.array([bracket.budget for bracket in brackets]),
        low=np.array(lows) if len(lows) == len(brackets) else None,
        high=np.array([bracket.high for bracket in brackets]),
        why=next((bracket.why for bracket in brackets if bracket.why), ""),
    )
    return PolicyFrontier(
        curves=tuple(_join_matches(evaluation, name, (name,)) for name in evaluation.policies),
        single=_join_matches(evaluation, _SINGLE.name, SINGLES),
        published=_join_matches(evaluation, _CASCADE.name, CASCADES),
        oracle=oracle if brackets else None,
        problems=evaluation.problems,
        folds=evaluation.folds,
        weighted=evaluation.votes == "weighted",
        basis=evaluation.basis,
        longest=evaluation.longest,
        budgets=evaluation.budgets,
        mode_set=evaluation.mode_set,
    )


def _join_matches(evaluation: Evaluation, label: str, policies: Sequence[str]) -> CostCurve:
    """Returns a curve that shows, at each budget, the most accurate of `policies`."""
    found = [evaluation.find_best(policies, budget) for budget in evaluation.budgets]
    matches = sorted((match for match in found if match is not None), key=lambda match: match.cost)
    gains = [match.gain for match in matches]
    columns = {
        "cost": [match.cost for match in matches],
        "accuracy": [match.accuracy for match in matches],
        "low": [match.low for match in matches],
        "high": [match.high for match in matches],
        "gain": [None if gain is None else gain.mean for gain in gains],
        "gain_low": [None if gain is None else gain.low for gain in gains],
        "gain_high": [None if gain is None else gain.high for gain in gains],
    }
    values = {name: np.array(column, dtype=np.float64) for name, column in columns.items()}
    return CostCurve(policy=label, **values)


def _trace_oracle(runs: EvaluationRuns, grid: Floats, oracle: Oracle | None) -> OracleCurve:
    oracle = Oracle.of(runs.setup) if oracle is None else oracle
    cost, low, high = [], [], []
    for budget in grid[grid <= oracle.choices[-1]].tolist():
        cost_spent, each = oracle.in_sample_accuracy(budget)
        cross_fit = oracle.cross_fit_accuracy(budget)
        cost.append(budget)
        high.append(float(each.mean()))
        low.append(np.nan if cross_fit is None else float(cross_fit.mean()))
        if cost_spent < budget - 1e-6:  # a larger budget wouldn't make the oracle more accurate
            break
    return OracleCurve(
        choices=oracle.choices,
        cost=np.array(cost),
        low=np.array(low) if oracle.pairs else None,
        high=np.array(high),
        why=oracle.why,
    )


def draw_few(frontier: PolicyFrontier, *, match: Match | None = None, key: str = "frontier-few") -> Picture:
    """Draws the accuracy of a few policies by average cost, and an arrow for the saving in `match`."""
    uniform, ours, rules = frontier.baseline, frontier.get(frontier.ours), frontier.published
    styles = (_PUBLISHED, policy_style(UNIFORM)) if frontier.mode_set is None else (_CASCADE, _SINGLE)
    with Canvas(key, width=_NARROW_WIDTH, height=4.1) as canvas:
        ax = canvas.axes[0]
        handles: list[Any] = []
        if ours is not None:
            style, low = policy_style(frontier.ours), ours.accuracy - ours.gain
            tint = colour(style.colour)
            ax.fill_between(ours.cost, low + ours.gain_low, low + ours.gain_high, color=tint, **_BAND)
            handles.append(_draw_curve(canvas, ax, ours, style, frontier))
        if frontier.oracle is not None:
            handles.append(_draw_oracle(canvas, ax, frontier.oracle, frontier))
        for line, own in zip((rules, uniform), styles, strict=True):
            if line is not None:
                handles.append(_draw_curve(canvas, ax, line, own, frontier))
        if match is not None:
            _draw_arrow(ax, match, [line for line in (uniform, rules) if line is not None], frontier)
        _label_axes(ax, frontier)
        ax.legend(handles=handles, loc="upper left", handlelength=2.4, labelspacing=0.5, borderaxespad=0.2)
        svg = canvas.svg()
    return Picture(
        key=key,
        title="What an average number of samples buys"
        if frontier.mode_set is None
        else f"What an average cost buys ({frontier.mode_set.cost_unit})",
        protocol=_describe_protocol(frontier),
        svg=svg,
        alt=_alt_text(frontier, match),
        caption=_write_caption(frontier, few=True),
        data=to_plain(_figure_data(frontier, [line for line in (uniform, ours, rules) if line is not None])),
    )


def draw_all(frontier: PolicyFrontier) -> Picture:
    """Draws accuracy by average cost, and the gain over uniform sampling, for every policy."""
    # draw our curve last, so that it covers the others
    curves = sorted(frontier.curves, key=lambda curve: curve.policy == frontier.ours)
    with Canvas("frontier", rows=2, height=7.0, sharex=True, height_ratios=(1.15, 1)) as canvas:
        upper, lower = canvas.axes
        if frontier.oracle is not None:
            _draw_oracle(canvas, upper, frontier.oracle, frontier)
        for line in curves:
            style = policy_style(line.policy)
            _draw_curve(canvas, upper, line, style, frontier)
            if line.policy not in (UNIFORM, SINGLES[0]):
                _draw_gain(canvas, lower, line, style, frontier)
        lower.axhline(0.0, color=colour("ink"), linewidth=1.4, linestyle="--", zorder=1.5)
        _label_axes(upper, frontier)
        upper.set_xlabel("")
        upper.set_title(basis_name(frontier.basis))
        lower.set_title(f"gain over {frontier.base_name} at the same cost")
        _label_costs(lower, frontier)
        lower.yaxis.set_major_formatter(lambda value, _: f"{100 * value:+.3g}" if abs(value) > 1e-9 else "0")
        lower.set_ylabel("points")
        _draw_legend(canvas, upper, frontier)
        svg = canvas.svg()
    return Picture(
        key="frontier",
        title="Every policy at every average cost",
        protocol=_describe_protocol(frontier),
        svg=svg,
        alt=_alt_text(frontier, None),
        caption=_write_caption(frontier, few=False),
        data=to_plain(_figure_data(frontier, frontier.curves)),
    )


def _draw_curve(
    canvas: Canvas, ax: "Axes", curve: CostCurve, style: PolicyStyle, frontier: PolicyFrontier
) -> "Artist":
    # a curve with a single cost needs a marker to be visible
    wide, marker = curve.policy == frontier.ours, "o" if len(set(curve.cost)) == 1 else None
    looks: dict[str, Any] = {"zorder": 3 if wide else 2, "label": style.name, "marker": marker}
    (artist,) = ax.plot(curve.cost, curve.accuracy, **looks, **_line_style(style, wide=wide))
    for at in _find_marks(curve.cost, frontier):
        text = f"{style.name} at {frontier.format_cost(curve.cost[at])}: {curve.accuracy[at]:.1%}"
        text += f" ({curve.low[at]:.1%} to {curve.high[at]:.1%})"
        if math.isfinite(curve.gain[at]) and curve.policy != UNIFORM:
            text += f", {format_points(curve.gain[at])} points over {frontier.base_name}"
        canvas.mark(ax, curve.cost[at], curve.accuracy[at], text)
    return artist


def _draw_gain(
    canvas: Canvas, ax: "Axes", curve: CostCurve, style: PolicyStyle, frontier: PolicyFrontier
) -> None:
    ours = curve.policy == frontier.ours
    if ours or curve.policy == "classifier":
        tint = colour(style.colour)
        ax.fill_between(curve.cost, curve.gain_low, curve.gain_high, color=tint, **_BAND)
    ax.plot(curve.cost, curve.gain, zorder=3 if ours else 2, **_line_style(style, wide=ours))
    for at in _find_marks(curve.cost, frontier):
        low, high = format_points(curve.gain_low[at]), format_points(curve.gain_high[at])
        gain = f"{format_points(curve.gain[at])} points ({low} to {high})"
        text = f"{style.name} at {frontier.format_cost(curve.cost[at])}: {gain}"
        canvas.mark(ax, curve.cost[at], curve.gain[at], text)


def _draw_oracle(canvas: Canvas, ax: "Axes", oracle: OracleCurve, frontier: PolicyFrontier) -> "Artist":
    """Draws a band between the oracle's bounds, or a line if the lower bound is unknown."""
    tint, name = colour("green"), policy_style("oracle").name
    artist: Artist
    if oracle.low is None:
        (artist,) = ax.plot(oracle.cost, oracle.high, color=tint, linestyle="--", linewidth=1.4, label=name)
    else:
        artist = ax.fill_between(
            oracle.cost, oracle.low, oracle.high, color=tint, alpha=0.35, lw=0, zorder=1, label=name
        )
    for at in _find_marks(oracle.cost, frontier):
        low = "" if oracle.low is None else f"{oracle.low[at]:.1%} cross-fitted, "
        text = f"{name} at {frontier.format_cost(oracle.cost[at])}: {low}{oracle.high[at]:.1%} in-sample"
        canvas.mark(ax, oracle.cost[at], oracle.high[at], text)
    return artist


def _draw_arrow(ax: "Axes", match: Match, curves: Sequence[CostCurve], frontier: PolicyFrontier) -> None:
    """Draws an arrow with a label: from uniform sampling's cost to our policy's cost at the same accuracy."""
    worth = math.inf if match.worth is None else match.worth.mean
    if not math.isfinite(worth) or worth <= 1.05 * match.cost:
        return
    height, ink = match.accuracy, colour("ink")
    arrow_style = {"arrowstyle": "-|>", "color": ink, "linewidth": 1.3, "mutation_scale": 11}
    ends = {"shrinkA": 0, "shrinkB": 3}
    ax.annotate("", (match.cost, height), xytext=(worth, height), arrowprops=arrow_style | ends, zorder=4)
    ax.plot([worth], [height], marker="o", markersize=4.5, color=ink, linestyle="", zorder=4)
    what = "accuracy" if frontier.basis == "accuracy" else "agreement"
    words = f"{format_count(format_samples(match.cost), 'sample')} instead of {format_samples(worth)}:"
    words += f"\nsame {what}, {1 - match.cost / worth:.0%} less"
    lowest = [float(np.interp(frontier.longest / 2.4, curve.cost, curve.accuracy)) for curve in curves]
    ax.annotate(
        words,
        (frontier.longest, min([height, *lowest])),
        xytext=(2, -14),
        textcoords="offset points",
        ha="right",
        va="top",
        color=ink,
        fontweight="bold",
        linespacing=1.35,
        zorder=5,
    )


def _label_costs(ax: "Axes", frontier: PolicyFrontier) -> None:
    if frontier.mode_set is None:
        set_samples_axis(ax, frontier.longest, _COST_LABEL)
    else:
        label = f"{frontier.mode_set.cost_unit}, on average"
        set_cost_axis(ax, frontier.budgets, partial(frontier.mode_set.format_cost, unit=False), label)


def _label_axes(ax: "Axes", frontier: PolicyFrontier) -> None:
    _label_costs(ax, frontier)
    set_accuracy_axis(ax, basis_name(frontier.basis))


def _draw_legend(canvas: Canvas, ax: "Axes", frontier: PolicyFrontier) -> None:
    """Draws a legend above both panels, because labels next to the curves would overlap."""
    middle = 4.0 if frontier.mode_set is None else frontier.budgets[len(frontier.budgets) // 2]
    curves = sorted(frontier.curves, key=lambda curve: -float(np.interp(middle, curve.cost, curve.accuracy)))
    handles: list[Any] = [
        ax.plot([], [], **_line_style(policy_style(curve.policy), wide=curve.policy == frontier.ours))[0]
        for curve in curves
    ]
    names = [policy_style(curve.policy).name for curve in curves]
    if frontier.oracle is not None:
        handles.insert(0, ax.fill_between([], [], [], color=colour("green"), alpha=0.35, lw=0))
        names.insert(0, policy_style("oracle").name)
    canvas.figure.legend(handles, names, loc="outside upper left", ncols=4, handlelength=2.4)


def _line_style(style: PolicyStyle, *, wide: bool) -> dict[str, Any]:
    return {"color": colour(style.colour), "linestyle": style.line, "linewidth": 2.6 if wide else 1.5}


def _find_marks(cost: Floats, frontier: PolicyFrontier) -> list[int]:
    """Returns the indices of a curve's points that show their values on hover.

    With several modes, these are all points. With one mode, they are the points at round numbers of samples,
    and the last point.
    """
    if frontier.mode_set is not None:
        return list(range(len(cost)))
    indices = {len(cost) - 1}
    for samples in _MARKED_COSTS:
        at = int(np.abs(cost - samples).argmin())
        if abs(cost[at] - samples) < 1e-3:
            indices.add(at)
    return sorted(indices)


def _describe_protocol(frontier: PolicyFrontier) -> str:
    votes = "weighted" if frontier.weighted else "plain"
    return (
        f"held-out: {frontier.problems:,} problems, {frontier.folds} folds, {votes} votes; "
        "each policy on the hull of its own settings"
    )


def _write_caption(frontier: PolicyFrontier, *, few: bool) -> str:
    text = f"Bands are 95% intervals, over problems, of the gain over {frontier.base_name} at the same cost. "
    if frontier.mode_set is not None:
        text += "Single modes: the best of the modes alone or mixed at random, uniform or stopping. "
    elif few:
        text += "Published rules: the best mix of uniform, Adaptive-Consistency, ESC and doubling. "
    if frontier.oracle is not None and frontier.mode_set is None:
        choices = ", ".join(map(str, frontier.oracle.choices))
        text += f"The one-shot oracle knows the answers and decides beforehand (samples: {choices})"
        text += ": its band is from cross-fitted up to in-sample." if frontier.oracle.low is not None else "."
        if frontier.oracle.why:
            text += " Only its in-sample end is known here."
    return text.strip()


def _alt_text(frontier: PolicyFrontier, match: Match | None) -> str:
    names = ", ".join(policy_style(curve.policy).name for curve in frontier.curves)
    what = basis_name(frontier.basis).capitalize()
    text = f"{what} against samples on average, 1 to {frontier.longest}, for {names}."
    if frontier.mode_set is not None:
        text = f"{what} against average cost ({frontier.mode_set.cost_unit}) for {names}."
    if match is not None and match.worth is not None and math.isfinite(match.worth.mean):
        text += (
            f" At {format_count(format_samples(match.cost), 'sample')} on average {match.policy} "
            f"is as good as {match.worth.mean:.1f} "
            "for every problem."
        )
    return text


def _figure_data(frontier: PolicyFrontier, curves: Sequence[CostCurve]) -> dict[str, Any]:
    names = ("cost", "accuracy", "low", "high", "gain", "gain_low", "gain_high")
    data: dict[str, Any] = {curve.policy: {name: getattr(curve, name) for name in names} for curve in curves}
    if frontier.oracle is not None:
        data["oracle"] = {
            "choices": frontier.oracle.choices,
            "cost": frontier.oracle.cost,
            "cross-fitted": frontier.oracle.low,
            "in-sample": frontier.oracle.high,
        }
    return data


def build_section(evaluation: Evaluation, frontier: PolicyFrontier) -> Section:
    """Builds the section with the curves of all policies, and tables of their results at each budget."""
    missing = []
    if evaluation.left_out:
        names = join_words([policy_style(name).name for name in evaluation.left_out])
        missing.append(f"{names}: can't learn without grades; record grades or gold answers to have them")
    if frontier.oracle is not None and frontier.oracle.why:
        missing.append(f"the oracle's cross-fitted end: {frontier.oracle.why}")
    return Section(
        key="frontier",
        title="Frontier of every policy",
        words=_write_words(frontier),
        tables=(build_policy_table(evaluation, frontier), _build_rounds_table(evaluation)),
        pictures=(draw_all(frontier),),
        missing=tuple(missing),
    )


def build_policy_table(evaluation: Evaluation, frontier: PolicyFrontier) -> Table:
    """Builds the table of every policy's accuracy and gain at each budget, best at the middle budget first.

    The gain is over uniform sampling; with several modes, it is our policy's gain over the row's policy.
    """
    budgets, mode_set = evaluation.budgets, evaluation.mode_set
    rows: list[tuple[Cell, ...]] = []
    for curve in frontier.curves:
        cells: list[Cell] = [policy_style(curve.policy).name]
        for budget in budgets:
            match = evaluation.match(curve.policy, budget)
            difference = None if match is None else match.gain if mode_set is None else match.lead
            cells += [None if match is None else match.accuracy, difference]
        rows.append(tuple(cells))
    middle = 1 + 2 * (len(budgets) // 2)
    rows.sort(key=lambda row: -float(row[middle]) if isinstance(row[middle], float) else 2.0)  # type: ignore[arg-type]
    columns = [Column(name="policy")]
    over = "points over uniform" if mode_set is None else "points of our policy over it"
    for budget in budgets:
        cost = evaluation.format_budget(budget)
        columns += [
            Column(name=f"B = {cost}", kind="share", about=basis_name(evaluation.basis)),
            Column(name=f"gain at {cost}", kind="points", about=f"{over}, 95% interval"),
        ]
    return Table(
        key="policies",
        title=f"{basis_name(evaluation.basis).capitalize()} of every policy at the same average cost",
        protocol=f"held-out, {evaluation.folds} folds, at exactly so many samples on average"
        if mode_set is None
        else f"held-out, {evaluation.folds} folds, at the same average cost ({mode_set.cost_unit})",
        columns=tuple(columns),
        rows=tuple(rows),
        note="95% intervals over problems of the gain over uniform, paired. Blank: it can't cost so little."
        if mode_set is None
        else _ABOUT_MODES,
        bold=tuple(at for at, row in enumerate(rows) if row[0] == policy_style(frontier.ours).name),
    )


def _build_rounds_table(evaluation: Evaluation) -> Table:
    """Builds the table of every policy's number of rounds at each budget."""
    columns = [Column(name="policy")]
    for budget in evaluation.budgets:
        cost = evaluation.format_budget(budget)
        columns.append(Column(name=f"at {cost}", kind="number", about="rounds a request, on average"))
        columns.append(Column(name=f"95% at {cost}", kind="amount", about="95% of requests take no more"))
    rows: list[tuple[Cell, ...]] = []
    for name in evaluation.policies:
        matches = [evaluation.match(name, budget) for budget in evaluation.budgets]
        pairs = [(None, None) if match is None else (match.rounds, match.rounds_p95) for match in matches]
        rows.append((policy_style(name).name, *(cell for pair in pairs for cell in pair)))
    return Table(
        key="rounds",
        title="Rounds of every policy at the same average cost",
        protocol=f"held-out, {evaluation.folds} folds; a round is the samples that are asked for at once",
        columns=tuple(columns),
        rows=tuple(rows),
        note="An answer takes about as long as its rounds. Blank: it can't cost so little.",
    )


def _write_words(frontier: PolicyFrontier) -> tuple[str, ...]:
    texts = []
    ours = frontier.get(frontier.ours)
    if ours is not None:
        texts.append(_describe_lead(ours, frontier))
    spans = [
        _describe_span(line)
        for line in frontier.curves
        if line.policy in (*PUBLISHED_RULES, "curve", "classifier", *CASCADES, "prompt router")
    ]
    clear = [text for text in spans if text]
    if clear:
        texts.append(f"Also clearly above {frontier.base_name}: {join_words(clear)}.")
    elif spans:
        texts.append(f"No other policy is clearly above {frontier.base_name} at any cost looked at.")
    if frontier.oracle is not None and ours is not None and frontier.mode_set is None:
        texts.append(_describe_oracle(ours, frontier))
    return tuple(text for text in texts if text)


def _describe_lead(ours: CostCurve, frontier: PolicyFrontier) -> str:
    clear = ours.gain_low > _CLEARLY_ABOVE
    clear_costs = ours.cost[clear]
    name, base = (
        ("Stopping" if frontier.mode_set is None else "The policy over all modes"),
        frontier.base_name,
    )
    scale, unit = 1, "samples on average"
    if frontier.mode_set is not None:
        scale, unit = frontier.mode_set.shown_requests, f"on average ({frontier.mode_set.cost_unit})"
    if not len(clear_costs):
        return f"{name} is nowhere clearly above {base}: its band holds the zero line."
    best = int(np.where(clear, ours.gain, -1.0).argmax())
    text = (
        f"{name} is clearly above {base} from {scale * clear_costs[0]:.2g} to {scale * clear_costs[-1]:.2g} "
        f"{unit}, most at "
        f"{scale * ours.cost[best]:.2g}: {format_points(ours.gain[best])} points "
        f"({format_points(ours.gain_low[best])} to {format_points(ours.gain_high[best])})."
    )
    uniform = frontier.get(UNIFORM)
    if uniform is not None and ours.cost[-1] < uniform.cost[-1] - 0.5:
        text += (
            f" It has no use for more than {ours.cost[-1]:.1f} samples on average; uniform's line rises up "
            f"to {uniform.cost[-1]:.3g}."
        )
    return text


def _describe_span(curve: CostCurve) -> str:
    clear_costs = curve.cost[curve.gain_low > _CLEARLY_ABOVE]
    if not len(clear_costs):
        return ""
    span = (
        f"{clear_costs[0]:.2g}" if len(clear_costs) == 1 else f"{clear_costs[0]:.2g} to {clear_costs[-1]:.2g}"
    )
    return f"{policy_style(curve.policy).name} at {len(clear_costs)} of {len(curve.cost)} costs ({span})"


def _describe_oracle(ours: CostCurve, frontier: PolicyFrontier) -> str:
    oracle = frontier.oracle
    if oracle is None:
        return ""
    # leave out a cost of one sample, at which all policies are the same
    costs = [cost for cost in oracle.cost.tolist() if cost > 1.01]
    ends = np.interp(costs, oracle.cost, oracle.high if oracle.low is None else oracle.low)
    above = [cost for cost, end in zip(costs, ends, strict=True) if (ours.at(cost) or 0.0) > end]
    name = "in-sample" if oracle.low is None else "cross-fitted"
    choices = ", ".join(map(str, oracle.choices))
    if not above:
        return (
            f"The one-shot oracle, which knows the answers and may give {choices} samples, is not below "
            f"stopping ({name}) at any cost."
        )
    return (
        f"Stopping is above the one-shot oracle ({name}; it knows the answers and may give {choices} "
        f"samples) at {len(above)} of {len(costs)} costs, from {min(above):.2g} to {max(above):.2g}: it "
        "sees votes as they come in, and the oracle decides beforehand."
    )
