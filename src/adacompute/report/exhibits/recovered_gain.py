"""Which share of the oracle's gain over uniform each policy has: numbers, figure and words.

The oracle knows the answers and decides beforehand; a policy that watches the votes may gain
more than it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.comparison import SMALLEST_GAIN, match_cost
from adacompute.evaluate.conclusions import make_bootstrap
from adacompute.evaluate.measure import OURS, UNIFORM
from adacompute.evaluate.oracle_bounds import Oracle
from adacompute.evaluate.protocols import EvaluationRuns
from adacompute.evaluate.resampling import Bootstrap, Interval, make_interval
from adacompute.report.canvas import Canvas
from adacompute.report.document import Column, Picture, Section, Table, join_words, to_plain
from adacompute.report.theme import colour, policy_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["build_section", "compute_recovered_shares"]

Floats = npt.NDArray[np.float64]

_SHOWN_POLICIES = ("stopping", "asc", "esc", "curve", "classifier", "heuristic")
_FLOOR, _CEILING = -1.2, 2.2  # shares beyond are drawn at the edge
_TITLE = "Share of the oracle's gain"
_NOT_SHOWN = ("random", "shuffled", "heuristic")  # yardsticks: they are in the frontier's table


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredShare:
    """One policy at one average cost; shares may pass 1, or be negative."""

    policy: str
    budget: float
    of_low: Interval | None  # of the cross-fitted oracle's gain; None: not known, or not clearly above zero
    of_high: Interval | None  # of the in-sample oracle's gain


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredShares:
    """Every policy except uniform at every budget, and the oracle's own gain."""

    budgets: tuple[float, ...]
    rows: tuple[RecoveredShare, ...]
    gains: tuple[tuple[Interval | None, Interval], ...]  # (budgets,) of the oracle: cross-fitted, in-sample
    why: str = ""  # why there is no cross-fitted bound

    def get(self, policy: str, budget: float) -> RecoveredShare | None:
        """A policy at a budget; None where it can't cost that little."""
        return next((row for row in self.rows if (row.policy, row.budget) == (policy, budget)), None)

    @property
    def policies(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.policy for row in self.rows))


def compute_recovered_shares(runs: EvaluationRuns, *, oracle: Oracle | None = None) -> RecoveredShares:
    """Shares of the oracle's gain with intervals over problems; both gains are recomputed in each draw."""
    setup = runs.setup
    oracle = Oracle.of(setup) if oracle is None else oracle
    boot, uniform = make_bootstrap(setup), runs.get(UNIFORM).points
    rows, gains = [], []
    for budget in setup.budgets:
        base = match_cost(uniform, budget)
        if base is None:
            raise ValueError(f"uniform can't cost {budget:g}, which was checked before")
        cross_fit = oracle.cross_fit_accuracy(budget)
        ends = (
            None if cross_fit is None else cross_fit - base.each,
            oracle.in_sample_accuracy(budget)[1] - base.each,
        )
        gains.append((None if ends[0] is None else boot.interval(ends[0]), boot.interval(ends[1])))
        for result in runs.everyone:
            mix = None if result.name == UNIFORM else match_cost(result.points, budget)
            if mix is not None:
                low, high = (_share_of_gain(mix.each - base.each, end, boot) for end in ends)
                rows.append(RecoveredShare(policy=result.name, budget=budget, of_low=low, of_high=high))
    return RecoveredShares(budgets=setup.budgets, rows=tuple(rows), gains=tuple(gains), why=oracle.why)


def _share_of_gain(gain: Floats, oracle_gain: Floats | None, boot: Bootstrap) -> Interval | None:
    """The mean of `gain` over the mean of `oracle_gain`, (problems,) both; None where there is
    nothing to share.
    """
    if (
        oracle_gain is None
        or oracle_gain.mean() < SMALLEST_GAIN
        or not (boot.interval(oracle_gain).low or 0.0) > 0
    ):
        return None
    mean = float(gain.mean() / oracle_gain.mean())
    oracle_means = boot.means(oracle_gain)
    if oracle_means.min() < SMALLEST_GAIN:  # in some draws there is no gain to share
        return Interval(mean=mean, low=None, high=None)
    return make_interval(mean, boot.means(gain) / oracle_means)


def draw_recovered_shares(shares: RecoveredShares, *, key: str = "recovered") -> Picture:
    """From the share of the in-sample gain to that of the cross-fitted one, at each budget."""
    names = [name for name in _SHOWN_POLICIES if name in shares.policies]
    columns = min(3, len(names))
    rows = -(-len(names) // max(1, columns))
    with Canvas(
        key, rows=rows, columns=columns, height=0.5 + 1.95 * rows, sharex=True, sharey=True
    ) as canvas:
        for ax, name in zip(canvas.axes, names, strict=False):
            _draw_panel(canvas, ax, shares, name)
        for ax in canvas.axes[len(names) :]:
            ax.set_visible(False)
        for ax in canvas.axes[::columns]:
            ax.set_ylabel("share of the gain")
        for ax in canvas.axes[-columns:]:
            ax.set_xlabel("samples on average")
        svg = canvas.svg()
    return Picture(
        key=key,
        title="Share of the oracle's gain over uniform",
        protocol="held-out, matched cost; the oracle in-sample and cross-fitted",
        svg=svg,
        alt="For each policy, which share of the one-shot oracle's gain over uniform it has at each budget.",
        caption=(
            "0% is uniform, 100% the one-shot oracle. The thick part is from the share of the in-sample gain "
            "to that of the cross-fitted gain, the thin one adds the 95% interval over problems. Above 100% "
            "is possible for policies that look at votes as they come in; what is below -120% is drawn there."
        ),
        data=to_plain(
            {
                name: [_figure_data(row) for row in shares.rows if row.policy == name]
                for name in shares.policies
            }
        ),
    )


def _draw_panel(canvas: Canvas, ax: "Axes", shares: RecoveredShares, name: str) -> None:
    style = policy_style(name)
    tint = colour(style.colour)
    ax.axhline(0.0, color=colour("ink"), linewidth=1.2, linestyle="--", zorder=1)
    ax.axhline(1.0, color=colour("green"), linewidth=1.2, zorder=1)
    for at, budget in enumerate(shares.budgets):
        share = shares.get(name, budget)
        ends = [] if share is None else [end for end in (share.of_high, share.of_low) if end is not None]
        if share is None or not ends:
            continue
        means = [end.mean for end in ends]
        low = min(end.mean if end.low is None else end.low for end in ends)
        high = max(end.mean if end.high is None else end.high for end in ends)
        ax.plot([at, at], [_clamp_share(low), _clamp_share(high)], color=tint, linewidth=1.2, zorder=2)
        ax.plot(
            [at, at],
            [_clamp_share(min(means)), _clamp_share(max(means))],
            color=tint,
            linewidth=6.0,
            zorder=3,
        )
        ax.plot([at], [_clamp_share(means[0])], marker="o", markersize=5, color=tint, zorder=4)
        text = f"{style.name} at {budget:g}: {_describe_share(share)}"
        for mean in means:
            canvas.mark(ax, at, _clamp_share(mean), text)
    ax.set_title(style.name, color=tint)
    ax.set_xticks(range(len(shares.budgets)), [f"{budget:g}" for budget in shares.budgets])
    ax.set_xlim(-0.6, len(shares.budgets) - 0.4)
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    ax.grid(visible=False, axis="x")


def _clamp_share(share: float) -> float:
    return min(_CEILING, max(_FLOOR, share))


def _describe_share(share: RecoveredShare) -> str:
    parts = []
    for end, name in ((share.of_high, "in-sample"), (share.of_low, "cross-fitted")):
        if end is not None:
            ends = "" if end.low is None or end.high is None else f" ({end.low:.0%} to {end.high:.0%})"
            parts.append(f"{end.mean:.0%}{ends} of the {name} gain")
    return ", ".join(parts)


def _figure_data(share: RecoveredShare) -> dict[str, Any]:
    return {"budget": share.budget, "cross-fitted": share.of_low, "in-sample": share.of_high}


def build_section(runs: EvaluationRuns, *, oracle: Oracle | None = None) -> Section:
    """How much of the one-shot oracle's gain over uniform each policy has."""
    if runs.setup.basis != "accuracy":
        why = "share of the oracle's gain: an oracle needs grades; record grades or gold answers"
        return Section(key="recovered", title=_TITLE, missing=(why,))
    shares = compute_recovered_shares(runs, oracle=oracle)
    has_shares = any(row.of_high is not None for row in shares.rows)
    missing = [f"the oracle's cross-fitted end: {shares.why}"] if shares.why else []
    if not has_shares:
        missing.append(
            "shares: the oracle's gain over uniform is below 0.1 points or not clearly above zero, so there "
            "is nothing to share; more problems show smaller gains"
        )
    return Section(
        key="recovered",
        title=_TITLE,
        words=_write_words(shares),
        tables=_build_tables(shares),
        pictures=(draw_recovered_shares(shares),) if has_shares else (),
        missing=tuple(missing),
    )


def _write_words(shares: RecoveredShares) -> tuple[str, ...]:
    gains = [
        f"{_format_bounds(low, high)} at {b:g}"
        for b, (low, high) in zip(shares.budgets, shares.gains, strict=True)
    ]
    first = f"What there is to gain: the oracle is above uniform by {join_words(gains)} points."
    ours = [row for row in shares.rows if row.policy == OURS and row.of_high is not None]
    if not ours:
        return (first,)
    shares_text = [f"{_format_shares(row.of_high, row.of_low)} at {row.budget:g}" for row in ours]
    second = (
        f"Stopping has {join_words(shares_text)} of that (from the share of the in-sample gain to that of "
        "the cross-fitted one)."
    )
    without_gain = []
    for name in shares.policies:
        rows = [row.of_high for row in shares.rows if row.policy == name and row.of_high is not None]
        if name != OURS and rows and all(share.mean <= 0 for share in rows):
            without_gain.append(policy_style(name).name)
    third = f"Nothing of it at any budget: {join_words(without_gain)}." if without_gain else ""
    return tuple(text for text in (first, second, third) if text)


def _build_tables(shares: RecoveredShares) -> tuple[Table, ...]:
    """A row for each policy, a column for each budget: of the in-sample gain and, where known,
    cross-fitted.
    """
    tables = [
        _build_table(shares, "in-sample", {(row.policy, row.budget): row.of_high for row in shares.rows})
    ]
    if not shares.why:
        cross_fitted = {(row.policy, row.budget): row.of_low for row in shares.rows}
        tables.append(_build_table(shares, "cross-fitted", cross_fitted))
    return tuple(tables)


def _build_table(
    shares: RecoveredShares, which: str, of: Mapping[tuple[str, float], Interval | None]
) -> Table:
    names = sorted(
        (name for name in shares.policies if name not in _NOT_SHOWN), key=lambda policy: policy != OURS
    )
    return Table(
        key=f"recovered-{which}",
        title=f"Share of the oracle's {which} gain over uniform, at the same cost",
        protocol=f"held-out, matched cost; the oracle {which}",
        columns=(
            Column(name="policy"),
            *(
                Column(name=f"at {budget:g}", kind="percent", about="samples on average; 95% intervals")
                for budget in shares.budgets
            ),
        ),
        rows=tuple(
            (policy_style(name).name, *(of.get((name, budget)) for budget in shares.budgets))
            for name in names
        ),
        note=(
            "Blank where the policy can't cost so little, or the oracle's gain is below 0.1 points or not "
            "clearly above zero. Above 100%: more than the oracle gains."
        ),
        bold=tuple(at for at, name in enumerate(names) if name == OURS),
    )


def _format_bounds(low: Interval | None, high: Interval) -> str:
    return f"{100 * high.mean:.1f}" if low is None else f"{100 * low.mean:.1f} to {100 * high.mean:.1f}"


def _format_shares(high: Interval | None, low: Interval | None) -> str:
    if high is None:
        return "–"
    return f"{high.mean:.0%}" if low is None else f"{high.mean:.0%} to {low.mean:.0%}"
