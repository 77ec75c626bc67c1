"""Predicted against realised, for accuracy and for cost: numbers, figures and words.

Everything is out of fold: predictions and dials come from other problems than those they are
judged on.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.comparison import Evaluation, basis_name
from adacompute.evaluate.conclusions import make_bootstrap
from adacompute.evaluate.measure import AGREEMENT, OURS, UNIFORM, Basis, Forecast
from adacompute.evaluate.protocols import EvaluationRuns
from adacompute.evaluate.resampling import Interval, make_interval
from adacompute.report.canvas import Canvas, set_ticks
from adacompute.report.document import Cell, Column, Picture, Section, Table, to_plain
from adacompute.report.theme import colour, policy_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["build_section", "measure_calibration"]

Floats = npt.NDArray[np.float64]

_BINS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Requests for which about the same probability was given."""

    probability: float  # mean
    correct: Interval  # share, with its interval over problems
    share: float  # of all requests


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCalibration:
    """One policy: the probabilities it gives for its answers, against how often they are right."""

    policy: str
    what: str  # kind of probability: ACCURACY or AGREEMENT
    budget: float
    bins: tuple[Bin, ...]  # by rising probability, as equal in size as ties allow
    error: float  # expected calibration error: mean distance of probability and correct, over requests
    bias: Interval  # probability minus correct, on average: above 0 it is overconfident

    @property
    def miscalibrated_bins(self) -> tuple[Bin, ...]:
        """Bins whose interval excludes the stated probability, the worst first."""
        outside = [group for group in self.bins if not _interval_holds(group.correct, group.probability)]
        return tuple(sorted(outside, key=lambda group: -abs(group.probability - group.correct.mean)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RealisedCost:
    """One policy at one budget: samples asked for, and spent out of fold."""

    policy: str
    budget: float
    cost: Interval
    reached: bool  # False: no setting of its dial meets the budget


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationResult:
    """Calibration of accuracy and of cost."""

    policies: tuple[PolicyCalibration, ...]
    costs: tuple[RealisedCost, ...]
    basis: Basis

    def costs_of(self, policy: str) -> tuple[RealisedCost, ...]:
        """A policy's realised cost at each budget."""
        return tuple(row for row in self.costs if row.policy == policy)


def measure_calibration(runs: EvaluationRuns, evaluation: Evaluation) -> CalibrationResult:
    """Calibration of the policies that say how sure they are, and of every policy's cost except uniform's."""
    boot = make_bootstrap(runs.setup)
    policies = [
        _calibrate_policy(result.name, result.forecast, boot.shares)
        for result in runs.everyone
        if result.forecast is not None and np.isfinite(result.forecast.correct).all()
    ]
    costs = []
    for result in runs.everyone:
        if result.name == UNIFORM:  # has no dial: it takes the next whole number below
            continue
        for at, budget in enumerate(runs.setup.budgets):
            cost = boot.interval(result.cost[at])
            costs.append(
                RealisedCost(policy=result.name, budget=budget, cost=cost, reached=result.reached[at])
            )
    return CalibrationResult(policies=tuple(policies), costs=tuple(costs), basis=evaluation.basis)


def _calibrate_policy(policy: str, forecast: Forecast, shares: Floats) -> PolicyCalibration:
    bin_of = _assign_bins(forecast.probability)  # (requests,)
    count = int(bin_of.max()) + 1
    problems = shares.shape[1]
    # requests, their probabilities and how many were right, by problem and bin
    at = forecast.problem * count + bin_of
    size, probability, correct = (
        np.bincount(at, weights=values, minlength=problems * count).reshape(problems, count)
        for values in (np.ones(len(at)), forecast.probability, forecast.correct)
    )
    bin_sizes = size.sum(axis=0)
    bins = []
    for k in range(count):
        drawn_size = shares @ size[:, k]
        nonempty = drawn_size > 0
        draws = (shares @ correct[:, k])[nonempty] / drawn_size[nonempty] if problems > 1 else None
        mean = float(correct[:, k].sum() / bin_sizes[k])
        bins.append(
            Bin(
                probability=float(probability[:, k].sum() / bin_sizes[k]),
                correct=make_interval(mean, draws),
                share=float(bin_sizes[k] / bin_sizes.sum()),
            )
        )
    by_problem = (probability - correct).sum(axis=1), size.sum(axis=1)  # (problems,) both
    bias = float(by_problem[0].sum() / by_problem[1].sum())
    return PolicyCalibration(
        policy=policy,
        what=forecast.what,
        budget=forecast.budget,
        bins=tuple(bins),
        error=float(sum(group.share * abs(group.probability - group.correct.mean) for group in bins)),
        bias=make_interval(
            bias, (shares @ by_problem[0]) / (shares @ by_problem[1]) if problems > 1 else None
        ),
    )


def _interval_holds(interval: Interval, value: float) -> bool:
    return interval.low is None or interval.high is None or interval.low <= value <= interval.high


def _assign_bins(probability: Floats) -> npt.NDArray[np.int64]:
    """The bin of each request, (requests,): equal in size except for ties."""
    last = np.arange(1, _BINS) * len(probability) // _BINS  # requests up to the end of each bin but the last
    edges = np.unique(np.sort(probability)[np.maximum(last, 1) - 1])
    return np.unique(np.searchsorted(edges, probability, side="left"), return_inverse=True)[1].astype(
        np.int64
    )


def draw_calibration(calibration: CalibrationResult, *, key: str = "calibration") -> Picture:
    """A panel for each policy that says how sure it is."""
    with Canvas(key, columns=len(calibration.policies), height=3.8, sharey=True) as canvas:
        for ax, policy in zip(canvas.axes, calibration.policies, strict=True):
            _draw_panel(canvas, ax, policy)
        canvas.axes[0].set_ylabel(
            "right" if calibration.basis == "accuracy" else basis_name(calibration.basis)
        )
        svg = canvas.svg()
    errors = ", ".join(
        f"{policy_style(policy.policy).name} {policy.error:.3f}" for policy in calibration.policies
    )
    return Picture(
        key=key,
        title="Said against realised",
        protocol="held-out: said of problems that weren't learned from",
        svg=svg,
        alt=f"What policies say of their answers against how often those are right; error {errors}.",
        caption=(
            "On the dashed line what is said is true. Each point is about a tenth of all requests, or more "
            "where the same is said of many (larger points), with its 95% interval over problems."
        ),
        data=to_plain({policy.policy: _figure_data(policy) for policy in calibration.policies}),
    )


def _draw_panel(canvas: Canvas, ax: "Axes", policy: PolicyCalibration) -> None:
    style = policy_style(policy.policy)
    tint = colour(style.colour)
    ax.plot([0, 1], [0, 1], color=colour("ink"), linewidth=1.2, linestyle="--", zorder=1)
    for bin_ in policy.bins:
        low, high = (
            bin_.correct.mean if end is None else end for end in (bin_.correct.low, bin_.correct.high)
        )
        ax.plot([bin_.probability, bin_.probability], [low, high], color=tint, linewidth=1.4, zorder=2)
        size = 4.0 + 14.0 * bin_.share
        ax.plot([bin_.probability], [bin_.correct.mean], marker="o", markersize=size, color=tint, zorder=3)
        text = (
            f"said {bin_.probability:.1%}, right {bin_.correct.mean:.1%} ({low:.1%} to {high:.1%}); "
            f"{bin_.share:.0%} of requests"
        )
        canvas.mark(ax, bin_.probability, bin_.correct.mean, text)
    ax.set_title(style.name, color=tint)
    ax.set_xlabel(f"{policy.what} at B = {policy.budget:g}")
    ax.set_xlim(-0.02, 1.02)
    ax.set_ylim(-0.02, 1.02)
    for axis in (ax.xaxis, ax.yaxis):
        set_ticks(axis, [0, 0.25, 0.5, 0.75, 1])
        axis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    ax.annotate(
        f"calibration error {policy.error:.3f}",
        (0.03, 0.95),
        xycoords="axes fraction",
        va="top",
        fontsize=8.5,
    )


def draw_costs(calibration: CalibrationResult, *, key: str = "spent") -> Picture:
    """Samples spent out of fold against samples asked for, as a ratio."""
    names = list(dict.fromkeys(row.policy for row in calibration.costs))
    with Canvas(key, height=3.6) as canvas:
        ax = canvas.axes[0]
        ax.axhline(0.0, color=colour("ink"), linewidth=1.2, linestyle="--", zorder=1)
        ends = []
        for name in names:
            style = policy_style(name)
            rows = calibration.costs_of(name)
            budgets = [row.budget for row in rows]
            over = [row.cost.mean / row.budget - 1 for row in rows]
            tint = colour(style.colour)
            ax.plot(
                budgets, over, color=tint, linestyle=style.line, linewidth=1.5, marker="o", markersize=3.5
            )
            ends.append((budgets[-1], over[-1], style.name, tint))
            for row, value in zip(rows, over, strict=True):
                text = (
                    f"{style.name}: {row.cost.mean:.2f} samples for {row.budget:g} asked for ({value:+.0%})"
                )
                canvas.mark(ax, row.budget, value, text + ("" if row.reached else "; no setting meets it"))
        ax.set_xscale("log", base=2)
        budgets = sorted({row.budget for row in calibration.costs})
        set_ticks(ax.xaxis, budgets)
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.set_xlabel("samples on average asked for")
        ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:+.0f}%" if abs(value) > 1e-9 else "0")
        ax.set_ylabel("spent, beyond what was asked")
        canvas.label_ends(ax, ends)
        svg = canvas.svg()
    return Picture(
        key=key,
        title="Spent against asked for",
        protocol="held-out: dials set on other problems than those that are paid for here",
        svg=svg,
        alt="How far each policy's cost is from the average budget that was asked for.",
        caption=(
            "Uniform has no dial to set, and is left out. Doubling can't meet an average below 2 samples: "
            "there it is the nearest setting's cost."
        ),
        data=to_plain(
            {
                name: [
                    {"budget": row.budget, "cost": row.cost, "reached": row.reached}
                    for row in calibration.costs_of(name)
                ]
                for name in names
            }
        ),
    )


def _figure_data(policy: PolicyCalibration) -> dict[str, Any]:
    bins = [{"said": each.probability, "right": each.correct, "share": each.share} for each in policy.bins]
    return {"what": policy.what, "budget": policy.budget, "error": policy.error, "bins": bins}


def build_section(runs: EvaluationRuns, evaluation: Evaluation) -> Section:
    """Calibration of accuracy, where a policy gives a probability, and of cost."""
    calibration = measure_calibration(runs, evaluation)
    missing = []
    if not calibration.policies:
        missing.append("what policies say of their answers: none of those compared says how sure it is")
    elif not any(policy.policy == "curve" for policy in calibration.policies):
        missing.append(
            "accuracy predicted by a curve: it can't learn without grades; record grades to have it"
        )
    return Section(
        key="calibration",
        title="Calibration",
        words=(
            *(_describe_policy(policy, calibration) for policy in calibration.policies),
            _describe_costs(calibration),
        ),
        tables=(*((_bins_table(calibration),) if calibration.policies else ()), _costs_table(calibration)),
        pictures=(
            *((draw_calibration(calibration),) if calibration.policies else ()),
            draw_costs(calibration),
        ),
        missing=tuple(missing),
    )


def _describe_policy(policy: PolicyCalibration, calibration: CalibrationResult) -> str:
    name = policy_style(policy.policy).name.capitalize()
    what = "is right" if calibration.basis == "accuracy" else "agrees with the full vote"
    if policy.what == AGREEMENT:
        head = (
            f"{name} doesn't predict its accuracy; it reports how far the votes agree where it stopped, "
            "which the gateway returns as `agreement`"
        )
    else:
        head = f"{name} predicts the accuracy of the vote that it buys"
    bias = policy.bias
    if bias.holds_zero:
        tail = f"on average that is right{_describe_errors(policy)}"
    else:
        way = "above" if bias.mean > 0 else "below"
        tail = f"on average that is {100 * abs(bias.mean):.1f} points {way} the share that {what}"
    return f"{head}: {tail}; the expected calibration error is {policy.error:.3f} at B = {policy.budget:g}."


def _describe_errors(policy: PolicyCalibration) -> str:
    """Where the policy is wrong, and whether errors above and below cancel out."""
    over = [each for each in policy.miscalibrated_bins if each.probability > each.correct.mean]
    under = [each for each in policy.miscalibrated_bins if each.probability < each.correct.mean]
    examples = [
        f"where it says {each[0].probability:.0%}, {each[0].correct.mean:.0%} are right"
        for each in (under, over)
        if each
    ]
    why = "errors cancel" if over and under else "not everywhere"
    return f", but {why}: {' and '.join(examples)}" if examples else ""


def _describe_costs(calibration: CalibrationResult) -> str:
    rows = calibration.costs_of(OURS)
    if not rows:
        return ""
    worst = max(rows, key=lambda row: abs(row.cost.mean / row.budget - 1))
    text = (
        f"A price set on other problems makes stopping cost {worst.cost.mean:.2f} where {worst.budget:g} was "
        f"asked for, at worst ({worst.cost.mean / worst.budget - 1:+.0%})"
    )
    return f"{text}; live, the pacer moves the price until the average is met."


def _bins_table(calibration: CalibrationResult) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (policy_style(policy.policy).name, policy.what, each.probability, each.correct, each.share)
        for policy in calibration.policies
        for each in policy.bins
    ]
    return Table(
        key="calibration",
        title="Said against realised",
        protocol="held-out: said of problems that weren't learned from",
        columns=(
            Column(name="policy"),
            Column(name="what is said"),
            Column(name="said", kind="share", about="mean of the bin"),
            Column(name="right", kind="share", about="95% interval over problems"),
            Column(name="of requests", kind="share"),
        ),
        rows=tuple(rows),
        note="Ten bins as equal in size as ties allow.",
    )


def _costs_table(calibration: CalibrationResult) -> Table:
    """A row for each policy, a column for each budget."""
    budgets = tuple(dict.fromkeys(row.budget for row in calibration.costs))
    rows: list[tuple[Cell, ...]] = []
    names = dict.fromkeys(row.policy for row in calibration.costs)
    for name in sorted(names, key=lambda policy: policy != OURS):  # ours on top
        by_budget = {row.budget: row for row in calibration.costs_of(name)}
        farthest = max((row.cost.mean / row.budget - 1 for row in by_budget.values()), key=abs)
        unreached = ", ".join(f"{row.budget:g}" for row in by_budget.values() if not row.reached)
        costs = (by_budget[budget].cost if budget in by_budget else None for budget in budgets)
        rows.append((policy_style(name).name, *costs, farthest, unreached or None))
    return Table(
        key="spent",
        title="Samples spent against samples asked for",
        protocol="held-out: dials set on other problems than those that are paid for here",
        columns=(
            Column(name="policy"),
            *(
                Column(
                    name=f"for {budget:g}",
                    kind="number",
                    about="samples spent on average where so many were asked for, 95% interval over problems",
                )
                for budget in budgets
            ),
            Column(name="farthest off", kind="share", about="spent over asked for, less one"),
            Column(name="out of reach", about="asked for, and no setting of the dial meets it"),
        ),
        rows=tuple(rows),
        note="Uniform has no dial to set, and is left out.",
        bold=tuple(at for at, row in enumerate(rows) if row[0] == policy_style(OURS).name),
    )
