"""The paper's statements about its classifier: at single budgets, along frontiers, over recordings.

Scored as the paper does: on all problems, those learned from included, beside fixed-b, which may spend
less. The second reading is held-out and, where it is about a gain, beside a uniform budget at the same
cost: at the same B the rules spend more than the classifier, so that a plain difference is partly one of
cost.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from adacompute.report.document import Column, Kind, format_cell
from studies.paper.ablation import LEARNER_NAMES, READINGS, Ablation, RegretPoints
from studies.paper.archetypes import Archetypes, BudgetShares
from studies.paper.budget_choices import RULES
from studies.paper.granularity import BudgetSet
from studies.paper.label_efficiency import EfficiencyReading
from studies.paper.oracle_checks import BOTH_SIDES, ORACLE_CHECKS, PRICE_CHECKS, Check, Observation, Verdict
from studies.paper.pareto import ParetoCurve
from studies.paper.runs import PooledRun, RecordingRun

__all__ = ["CHECKS"]

_MATCHED = "held-out, over the best uniform mix at the same cost,"


def _check_margins(run: RecordingRun) -> Observation:
    """The least margin over the best rule; held-out at the same cost, and whatever each spends."""
    result = []
    for table in (run.main.paper, run.main.held_out):
        margins = [
            table["classifier", budget].accuracy.mean()
            - max(table[rule, budget].accuracy.mean() for rule in RULES)
            for budget in run.main.budgets
        ]
        result.append(float(min(margins)))
    gains = [run.classifier_outcome(budget).gain for budget in run.main.budgets]
    rules = [run.main.held_out["heuristic", budget].gain.mean for budget in run.main.budgets]
    sure = [one.low is not None and one.low > 0 for one in gains]
    ahead = all(known and one.mean > rule for known, one, rule in zip(sure, gains, rules, strict=True))
    note = f"{run.name}: interval above zero at {sum(sure)} of {len(sure)} budgets" if any(sure) else ""
    least = min(one.mean for one in gains)
    return Observation(
        paper=result[0] > 0, value=result[0], ours=ahead, own=least, beside=result[1], note=note
    )


def _compute_gain(run: RecordingRun, budget: float) -> float:
    paper = run.main.paper
    return float(paper["classifier", budget].accuracy.mean() - paper["fixed", budget].accuracy.mean())


def _check_gain(run: RecordingRun) -> Observation:
    if 3.0 not in run.main.budgets:
        return Observation()
    first, second = _compute_gain(run, 3.0), run.classifier_outcome(3.0).gain.mean
    return Observation(paper=first >= 0.052, value=first, ours=second >= 0.052, own=second)


def _check_relative_gain(run: RecordingRun) -> Observation:
    first, second = [], []
    for budget in run.main.budgets:
        first.append(_compute_gain(run, budget) / float(run.main.paper["fixed", budget].accuracy.mean() or 1))
        second.append(run.classifier_outcome(budget).gain.mean / (run.classifier_outcome(budget).alike or 1))
    return Observation(
        paper=max(first) >= 0.128, value=max(first), ours=max(second) >= 0.128, own=max(second)
    )


def _check_consistent(run: RecordingRun) -> Observation:
    first = min(_compute_gain(run, budget) for budget in run.main.budgets)
    second = min(run.classifier_outcome(budget).gain.mean for budget in run.main.budgets)
    return Observation(paper=first >= 0.03, value=first, ours=second >= 0.03, own=second)


def _check_underspending(run: RecordingRun) -> Observation:
    """The least share of the budget that is left unspent, in both readings."""
    first = min(budget - run.main.paper["classifier", budget].spent for budget in run.main.budgets)
    second = min(budget - run.classifier_outcome(budget).spent for budget in run.main.budgets)
    return Observation(paper=first > 0, value=first, ours=second > 0, own=second)


def _check_heuristic(run: RecordingRun) -> Observation:
    result = [
        max(
            float(table["heuristic", budget].accuracy.mean() - table["fixed", budget].accuracy.mean())
            for budget in run.main.budgets
        )
        for table in (run.main.paper, run.main.held_out)
    ]
    return Observation(paper=result[0] <= 0.012, value=result[0], ours=result[1] <= 0.012, own=result[1])


def _check_imitation(run: RecordingRun) -> Observation:
    first = min(float(one.paper.imitation.mean()) for one in run.gaps)
    second = min(float(one.held_out.imitation.mean()) for one in run.gaps)
    return Observation(paper=first >= 0.91, value=first, ours=second >= 0.91, own=second)


def _check_small_gap(run: RecordingRun) -> Observation:
    first = max(float(one.paper.gap.mean()) for one in run.gaps)
    second = max(float(one.held_out.gap.mean()) for one in run.gaps)
    return Observation(paper=first <= 0.014, value=first, ours=second <= 0.014, own=second)


def _check_nearby(run: RecordingRun) -> Observation:
    """Of the problems given another budget than the oracle's, the share given the next one."""
    counts = np.zeros((2, 2))  # readings × (errors, next to it)
    for fit in (run.fits[one.budget] for one in run.gaps):
        away = np.abs(fit.predicted - fit.labels)
        for at, judged in enumerate((np.ones_like(fit.train), ~fit.train)):
            counts[at] += [(away[judged] > 0).sum(), (away[judged] == 1).sum()]
    shares = [float(near / all_) if all_ else None for all_, near in counts]
    held = [None if share is None else share > 0.5 for share in shares]
    return Observation(paper=held[0], value=shares[0], ours=held[1], own=shares[1])


def _check_copied(run: RecordingRun) -> Observation:
    if not run.heatmaps:
        return Observation()
    first = max(one.paper_moved for one in run.heatmaps)
    second = max(one.held_out_moved for one in run.heatmaps)
    note = f"{run.name}: {first:.1%}"
    return Observation(paper=first <= 0.05, value=first, ours=second <= 0.05, own=second, note=note)


_LEARNT = "Four fifths of the problems judged were learned from, and trees remember them."
_COST = "At the same B it also spends less than random: the last range is of cost as well as of choice."
_APPLES = (
    "at B = 1.5 and 3 fixed spends less than the classifier (1 and 2 samples), and 2 votes are worth little "
    "more than 1, unless samples abstain: uniform at the classifier's own cost has more."
)
_LEAN = "Spending less isn't knowing more: a classifier leans to the commonest label, b = 1."
_FAR = "b = 2 is rare, so the next budget after 1 is seldom a label: the usual error is 1 for 4 or 8."

LEARNED_CHECKS = (
    Check(
        key="main-all",
        value="least margin over the best of the three",
        kind="points",
        see=_check_margins,
        holds="above all three at every B, in the mean over seeds; held-out, the interval of its gain at the "
        "same cost is above zero at every B, and the gain above the heuristic's",
        reading=_MATCHED,
        beside="held-out, over the best of the three at the same B, whatever each spends,",
        why=dict.fromkeys(("only in-sample", "in part", "doesn't"), f"{_LEARNT} {_COST}"),
    ),
    Check(
        key="main-gain",
        value="gain over fixed",
        kind="points",
        see=_check_gain,
        holds="5.2 points or more",
        reading=_MATCHED,
        why={"only in-sample": f"{_LEARNT} And {_APPLES}"},
    ),
    Check(
        key="main-relative",
        value="largest relative gain over fixed",
        kind="share",
        see=_check_relative_gain,
        holds="12.8% or more on some recording",
        reading=_MATCHED,
        once=True,
        why={"only in-sample": f"{_LEARNT} And {_APPLES}"},
    ),
    Check(
        key="main-consistent",
        value="least gain over fixed",
        kind="points",
        see=_check_consistent,
        holds="3 points or more at every B",
        reading=_MATCHED,
        why={"only in-sample": f"{_LEARNT} And {_APPLES}", "doesn't": _APPLES},
    ),
    Check(
        key="main-under",
        value="least of what is left of B",
        kind="number",
        see=_check_underspending,
        holds="below B at every B",
        why=dict.fromkeys(("agrees", "in part"), _LEAN),
    ),
    Check(
        key="main-heuristic",
        value="largest gain over fixed",
        kind="points",
        see=_check_heuristic,
        holds="1.2 points or less at every B",
        reading="on the problems held out",  # it learns no labels: in-sample would say nothing
        why=dict.fromkeys(
            ("in part", "doesn't"),
            "It spends B where fixed spends 2 of 3: more than that is for more samples.",
        ),
    ),
    Check(
        key="gap-imitation",
        value="lowest imitation",
        kind="share",
        see=_check_imitation,
        holds="91% or more at every B",
        why=dict.fromkeys(("only in-sample", "doesn't"), _LEARNT),
    ),
    Check(
        key="gap-small",
        value="largest gap, points",
        kind="points",
        see=_check_small_gap,
        holds="1.4 points or less at every B",
        why=dict.fromkeys(("only in-sample", "doesn't"), _LEARNT),
    ),
    Check(
        key="gap-nearby",
        value="share of errors on a neighbouring budget",
        kind="share",
        see=_check_nearby,
        holds="more than half of the errors",
        why=dict.fromkeys(("doesn't", "in part"), _FAR),
    ),
    Check(
        key="heat-copy",
        value="largest share of decisions to move for the oracle's picture",
        kind="share",
        see=_check_copied,
        holds="5% or less at every B; an imitation of 0.933, as in Table 5 at B = 3, leaves room for 6.7%",
        why={"only in-sample": _LEARNT, "doesn't": _LEAN, "in part": _LEAN},
    ),
)


_ROUNDING = 1e-9
_CROSS = "cross-fitted"


def _read_accuracies(curve: ParetoCurve, budgets: ParetoCurve) -> list[float]:
    """The accuracies of one curve at the budgets of another."""
    return [float(curve.accuracy[np.abs(curve.budget - one).argmin()]) for one in budgets.budget]


def _check_dominance(run: RecordingRun) -> Observation:
    """The share of budgets between the least and the most at which it is no worse than any rule.

    Held-out once more at the same cost: no worse than the best uniform mix.
    """
    shares = []
    for table in (run.pareto.paper, run.pareto.held_out):
        ours = table["classifier"]
        best = np.max([_read_accuracies(table[rule], ours) for rule in RULES], axis=0)
        inner = (ours.budget > 1) & (ours.budget < run.case.budgets[-1])
        shares.append(float((ours.accuracy >= best - _ROUNDING)[inner].mean()) if inner.any() else 1.0)
    curve = run.pareto.held_out["classifier"]
    inner = (curve.budget > 1) & (curve.budget < run.case.budgets[-1])
    gains = [one for one, here in zip(curve.gain, inner, strict=True) if here]
    fair = float(np.mean([one.mean >= -_ROUNDING for one in gains])) if gains else 1.0
    sure = sum(one.low is not None and one.low > 0 for one in gains)
    note = f"{run.name}: interval above zero at {sure} of {len(gains)} budgets" if sure else ""
    return Observation(
        paper=shares[0] == 1, value=shares[0], ours=fair == 1, own=fair, beside=shares[1], note=note
    )


def _check_middle(run: RecordingRun) -> Observation:
    """The average budget at which its gain over fixed is largest, in parts of fixed's accuracy."""
    peaks = []
    for table in (run.pareto.paper, run.pareto.held_out):
        ours, fixed = table["classifier"], np.array(_read_accuracies(table["fixed"], table["classifier"]))
        gain = ours.accuracy / np.maximum(fixed, _ROUNDING)
        peaks.append(float(ours.budget[gain.argmax()]))
    held = [2 <= peak <= 6 for peak in peaks]
    return Observation(paper=held[0], value=peaks[0], ours=held[1], own=peaks[1])


def _check_plateau(run: RecordingRun) -> Observation:
    """The most that anyone still gains beyond 3 samples."""
    if run.case.budgets[-1] <= 4:
        return Observation()
    most = []
    for table in (run.pareto.paper, run.pareto.held_out):
        rises = []
        for curve in table.values():
            after = curve.accuracy[curve.budget >= 3]
            rises.append(float(after.max() - after[0]))
        most.append(max(rises))
    return Observation(paper=most[0] <= 0.01, value=most[0], ours=most[1] <= 0.01, own=most[1])


def _compute_step(run: RecordingRun, before: str, after: str) -> tuple[float, float | None] | None:
    """What the oracle gains from one set to the next: in-sample by windows, and cross-fitted."""
    tiers: dict[str, BudgetSet] = (
        {} if run.granularity is None else {one.name: one for one in run.granularity.tiers}
    )
    if not {before, after} <= set(tiers):
        return None
    first, second = tiers[before], tiers[after]
    if first.crossfitted is None or second.crossfitted is None:
        return second.windows - first.windows, None
    return second.windows - first.windows, second.crossfitted - first.crossfitted


def _check_coarse(run: RecordingRun) -> Observation:
    result = _compute_step(run, "coarse", "default")
    if result is None:
        return Observation()
    first, second = result
    own = None if second is None else second >= 0.005
    return Observation(paper=first >= 0.005, value=first, ours=own, own=second)


def _check_fine(run: RecordingRun) -> Observation:
    result = _compute_step(run, "default", "fine")
    if result is None:
        return Observation()
    first, second = result
    own = None if second is None else second < 0.001
    return Observation(paper=first < 0.001, value=first, ours=own, own=second)


def _check_even(run: RecordingRun) -> Observation:
    if run.importance is None:
        return Observation()
    result, name = run.importance, run.importance.names[run.importance.order[0]]
    most, least = float(result.gain.max()), float(result.gain.min())
    note = f"{run.name}: `{name}`, least {least:.3f}"
    return Observation(paper=most <= 0.115 and least >= 0.055, value=most, note=note)


def _list_curves(run: RecordingRun) -> tuple[list[EfficiencyReading], list[EfficiencyReading]] | None:
    if run.efficiency is None or not run.efficiency.curves:
        return None
    curves = run.efficiency.curves
    return [one.paper for one in curves], [one.held_out for one in curves]


def _check_quarter(run: RecordingRun) -> Observation:
    """The share of the training problems from which on it stays above fixed, at the worst B."""
    readings = _list_curves(run)
    if readings is None or run.efficiency is None:
        return Observation()
    needed = [[one.find_crossing(run.efficiency.shares) for one in reading] for reading in readings]
    worst = [None if None in each else max(one for one in each if one is not None) for each in needed]
    held = [share is not None and share <= 0.25 for share in worst]
    note = f"{run.name}: held-out it doesn't get there" if worst[1] is None else ""
    return Observation(paper=held[0], value=worst[0], ours=held[1], own=worst[1], note=note)


def _check_more_labels(run: RecordingRun) -> Observation:
    """What the training problems beyond the first fifth add, at the B where that is least."""
    readings = _list_curves(run)
    if readings is None or run.efficiency is None:
        return Observation()
    first = next(at for at, share in enumerate(run.efficiency.shares) if share >= 0.2)
    added = [min(one.accuracy[-1].mean - one.accuracy[first].mean for one in reading) for reading in readings]
    rising = [
        all(bool((np.diff([spread.mean for spread in one.accuracy]) >= 0).all()) for one in reading)
        for reading in readings
    ]
    return Observation(paper=rising[0], value=added[0], ours=rising[1], own=added[1])


def _check_slowing(run: RecordingRun) -> Observation:
    """What a fifth of the training problems adds beyond 60%, less what one adds before, at the worst B."""
    readings = _list_curves(run)
    if readings is None or run.efficiency is None:
        return Observation()
    shares = np.array(run.efficiency.shares)
    at = int(np.abs(shares - 0.6).argmin())
    if not 0 < at < len(shares) - 1:
        return Observation()
    worst = []
    for reading in readings:
        steps = []
        for one in reading:
            means = np.array([spread.mean for spread in one.accuracy])
            before = (means[at] - means[0]) / (shares[at] - shares[0])
            after = (means[-1] - means[at]) / (shares[-1] - shares[at])
            steps.append(float(after - before) / 5)
        worst.append(max(steps))
    return Observation(paper=worst[0] < 0, value=worst[0], ours=worst[1] < 0, own=worst[1])


def _check_remaining_gap(run: RecordingRun) -> Observation:
    readings = _list_curves(run)
    if readings is None:
        return Observation()
    gaps = [max(one.oracle - one.accuracy[-1].mean for one in reading) for reading in readings]
    return Observation(paper=gaps[0] <= 0.02, value=gaps[0], ours=gaps[1] <= 0.02, own=gaps[1])


_REPLAY = "On all problems the classifier recalls what it learned; on others it hardly tells them apart."
_FEWER = "fixed spends 1 or 2 samples; and a share of learned problems is judged with the rest."
_MORE = "A larger share of learned problems is a larger share of answers known beforehand."
_STRAIGHT = (
    "Scored on all problems, each problem learned from is one more known beforehand, so the curve rises "
    "nearly straight; held-out it hardly rises at all."
)
_LUCK = "Most of what it gains in-sample is luck of choosing among more; cross-fitted little is left."

SWEEP_CHECKS = (
    Check(
        key="pareto-dominates",
        value="share of budgets at which it is no worse than all three",
        kind="share",
        see=_check_dominance,
        holds="at every budget of the grid, in the mean",
        reading="held-out, than the best uniform mix at the same cost,",
        beside="held-out, than all three at the same B, whatever each spends,",
        why=dict.fromkeys(("only in-sample", "in part", "doesn't"), _REPLAY),
    ),
    Check(
        key="pareto-middle",
        value="budget of the largest relative gain over fixed",
        kind="number",
        see=_check_middle,
        holds="from 2 to 6",
        why={"agrees": "fixed gives 2 samples up to B = 4: just below, the gain over it is largest."},
    ),
    Check(
        key="pareto-plateau",
        value="most that a method still gains beyond B = 3",
        kind="points",
        see=_check_plateau,
        holds="1 point or less, for all methods",
        why=dict.fromkeys(
            ("doesn't", "in part"), "These models gain from votes up to 16; three of them are not enough."
        ),
    ),
    Check(
        key="efficiency-quarter",
        value="share of the training problems needed, at the worst B",
        kind="share",
        see=_check_quarter,
        holds="a quarter or less, at every B",
        why=dict.fromkeys(("only in-sample", "doesn't", "in part"), _FEWER),
    ),
    Check(
        key="efficiency-more",
        value="what the training problems beyond the first fifth add, at the worst B",
        kind="points",
        see=_check_more_labels,
        holds="no share has less than the one before, in the mean over seeds, at every B",
        why=dict.fromkeys(("only in-sample", "doesn't", "in part"), _MORE),
    ),
    Check(
        key="efficiency-less",
        value="points that a fifth of them adds beyond 60%, less those that one adds before, at the worst B",
        kind="points",
        see=_check_slowing,
        holds="below zero at every B",
        reading="on the problems held out",  # where it hardly rises, in-sample would be the wrong word
        why=dict.fromkeys(("doesn't", "in part"), _STRAIGHT),
    ),
    Check(
        key="efficiency-gap",
        value="largest gap with all of them",
        kind="points",
        see=_check_remaining_gap,
        holds="2 points or less",
        why=dict.fromkeys(("only in-sample", "doesn't", "in part"), _MORE),
    ),
    Check(
        key="granularity-coarse",
        value="gain",
        kind="points",
        see=_check_coarse,
        holds="0.5 points or more",
        reading=_CROSS,
    ),
    Check(
        key="granularity-fine",
        value="gain",
        kind="points",
        see=_check_fine,
        holds="less than 0.1 points",
        reading=_CROSS,
        why=dict.fromkeys(("doesn't", "in part"), _LUCK),
    ),
    Check(
        key="importance-even",
        value="largest share of gain of one feature",
        kind="fraction",
        see=_check_even,
        holds="none above 0.11 and none below 0.06, rounded",
        why=dict.fromkeys(("doesn't", "in part"), "Features that are the same for all prompts gain nothing."),
    ),
)


_TREES, _OTHERS = ("forest", "xgboost"), ("logistic", "svm", "mlp")
_APART = "groups and budgets from different samples"


def _make_check(
    value: Callable[[Ablation, str], float],
    holds: Callable[[float], bool],
    note: Callable[[Ablation], str] = lambda _: "",
) -> Callable[[PooledRun], Observation]:
    """Whether a number of the ablation will do, in both readings."""

    def see(pooled: PooledRun) -> Observation:
        if pooled.ablation is None:
            return Observation()
        first, second = (value(pooled.ablation, reading) for reading in READINGS)
        told = note(pooled.ablation)
        return Observation(paper=holds(first), value=first, ours=holds(second), own=second, note=told)

    return see


def _make_tree_check(
    value: Callable[[Ablation, str, str], float], holds: Callable[[float], bool], kind: Kind
) -> Callable[[PooledRun], dict[str, Observation]]:
    """Check each of the two tree learners, since a mean could hide one behind the other."""
    column = Column(name="", kind=kind)

    def see(pooled: PooledRun) -> dict[str, Observation]:
        observations: dict[str, Observation] = {}
        for model in _TREES if pooled.ablation is not None else ():
            observed = _make_check(_bind_model(value, model), holds)(pooled)
            both = f"{format_cell(observed.value, column)}, held-out {format_cell(observed.own, column)}"
            observations[LEARNER_NAMES[model]] = replace(observed, note=f"{LEARNER_NAMES[model]}: {both}")
        return observations

    return see


def _bind_model(value: Callable[[Ablation, str, str], float], model: str) -> Callable[[Ablation, str], float]:
    return lambda ablation, reading: value(ablation, reading, model)


def _compute_lead(ablation: Ablation, reading: str, model: str) -> float:
    others = max(ablation.score_of(other, reading).accuracy.mean for other in _OTHERS)
    return ablation.score_of(model, reading).accuracy.mean - others


def _compute_ratio(ablation: Ablation, reading: str, model: str) -> float:
    own, others = (
        ablation.score_of(model, reading).gap.mean,
        min(ablation.score_of(one, reading).gap.mean for one in _OTHERS),
    )
    return others / own if own > 0 else float("inf")


def _compute_linear(ablation: Ablation, reading: str) -> float:
    return max(ablation.score_of(model, reading).cost.mean for model in ("logistic", "svm"))


def _compute_cost(ablation: Ablation, reading: str, model: str) -> float:
    return ablation.score_of(model, reading).cost.mean - sum(ablation.targets) / len(ablation.targets)


def _compute_least_lead(ablation: Ablation, reading: str, model: str) -> float:
    return min(
        ablation.score_of(model, reading).by_case[at].mean
        - max(ablation.score_of(other, reading).by_case[at].mean for other in _OTHERS)
        for at in range(len(ablation.cases))
    )


def _select_points(ablation: Ablation, reading: str) -> RegretPoints:
    return next(points for points in ablation.points if points.reading == reading)


def _count_broken(ablation: Ablation, reading: str) -> float:
    """Points above the mean gap times their error, which the paper calls a bound."""
    points = _select_points(ablation, reading)
    return float((points.task > ablation.mean_gap * points.error).mean())


def _compute_slope(ablation: Ablation, reading: str) -> float:
    """The slope of the points, the line through 0 that fits them best, in parts of the mean gap."""
    points = _select_points(ablation, reading)
    slope = float((points.error * points.task).sum() / max(float((points.error**2).sum()), 1e-12))
    return slope / ablation.mean_gap if ablation.mean_gap > 0 else float("nan")


def _compute_steepest(ablation: Ablation) -> str:
    """The largest slope that an envelope could have."""
    if ablation.mean_gap <= 0:
        return ""
    steepest = max(
        float((points.task / np.maximum(points.error, 1e-12)).max(initial=0.0)) for points in ablation.points
    )
    return (
        f"mean gap {ablation.mean_gap:.2f}, slope of all points {ablation.slope:.2f}, steepest point "
        f"{steepest:.2f}, largest gap {ablation.worst_gap:.2f}"
    )


def _check_four(pooled: PooledRun) -> dict[str, Observation]:
    result = pooled.archetypes
    if result is None:
        return {}
    return {
        group.name: Observation(
            paper=not group.doubt,
            value=float(group.centre[0]),
            note=f"{group.name} {group.doubt}" if group.doubt else "",
        )
        for group in result.groups
    }


def _find_large_share(archetypes: Archetypes, spent: BudgetShares | None) -> float | None:
    if spent is None or "Responsive" not in archetypes.names:
        return None
    return float(spent.large[archetypes.names.index("Responsive")])


def _check_all(pooled: PooledRun) -> Observation:
    result = pooled.archetypes
    if result is None:
        return Observation()
    return _observe(_find_large_share(result, result.oracle), _find_large_share(result, result.apart), 0.9)


def _check_ends(pooled: PooledRun) -> Observation:
    result = pooled.archetypes
    if result is None:
        return Observation()
    values = [
        None
        if spent is None
        else min(float(spent.shares[result.names.index(name), 0]) for name in ("Easy", "Hard"))
        for spent in (result.oracle, result.apart)
        if {"Easy", "Hard"} <= set(result.names)
    ]
    return _observe(values[0], values[1], 0.9) if values else Observation()


def _observe(first: float | None, second: float | None, least: float) -> Observation:
    held = [None if value is None else value >= least for value in (first, second)]
    return Observation(paper=held[0], value=first, ours=held[1], own=second)


_REMEMBER = (
    "Split at random, a question stands on both sides at another B, and trees remember it: it is there three "
    "times in our rows, nine times in the paper's, whose three models share their questions."
)
_HELPED = "Four votes also help problems that one sample mostly gets right, and those are called easy."
_MEAN = "The theorem's factor is the largest gap, not the mean."

_LOOSE = "A mean over all budgets given wrongly is far above what a learner's own errors cost."
_FAILS: tuple[Verdict, ...] = (BOTH_SIDES, "doesn't", "in part")

POOLED_CHECKS = (
    Check(
        key="ablation-trees",
        value="a tree learner less the best other learner",
        kind="points",
        see=_make_tree_check(_compute_lead, lambda value: value >= 0.04, "points"),
        holds="4 points or more, for each of the two",
        pooled=True,
        only=BOTH_SIDES,
        why=dict.fromkeys(_FAILS, _REMEMBER),
    ),
    Check(
        key="ablation-gap",
        value="how many times smaller a tree learner's gap is than the best other's",
        kind="number",
        see=_make_tree_check(_compute_ratio, lambda value: value >= 3, "number"),
        holds="3 times or more, for each of the two",
        pooled=True,
        only=BOTH_SIDES,
        why=dict.fromkeys(_FAILS, _REMEMBER),
    ),
    Check(
        key="ablation-linear",
        value="cost of the dearer linear learner",
        kind="number",
        see=_make_check(_compute_linear, lambda value: value <= 1.05),
        holds="1.05 or less",
        pooled=True,
        only=BOTH_SIDES,
    ),
    Check(
        key="ablation-cost",
        value="a tree learner's cost less the oracle's",
        kind="number",
        see=_make_tree_check(_compute_cost, lambda value: abs(value) <= 0.15, "number"),
        holds="within 0.15 samples, for each of the two",
        pooled=True,
        only=BOTH_SIDES,
        why=dict.fromkeys(_FAILS, "They underspend in both splits, as in Table 5."),
    ),
    Check(
        key="ablation-each",
        value="least lead of a tree learner on a recording",
        kind="points",
        see=_make_tree_check(_compute_least_lead, lambda value: value >= 0.03, "points"),
        holds="3 points or more on each, for each of the two",
        pooled=True,
        only=BOTH_SIDES,
        why=dict.fromkeys(_FAILS, _REMEMBER),
    ),
    Check(
        key="ablation-bound",
        value="share of splits × learners above that line",
        kind="share",
        see=_make_check(_count_broken, lambda value: value == 0),
        holds="none above",
        pooled=True,
        only=BOTH_SIDES,
        why=dict.fromkeys(_FAILS, _MEAN),
    ),
    Check(
        key="ablation-tight",
        value="slope of the points, in parts of the mean gap",
        kind="share",
        see=_make_check(_compute_slope, lambda value: 0.8 <= value <= 1.25, _compute_steepest),
        holds="80 to 125%",
        pooled=True,
        only=BOTH_SIDES,
        why=dict.fromkeys(_FAILS, _LOOSE),
    ),
    Check(
        key="archetypes-four",
        value="one-sample accuracy of the clusters",
        kind="fraction",
        see=_check_four,
        holds="a cluster looks as the paper says",
        pooled=True,
    ),
    Check(
        key="archetypes-all",
        value="share of all samples in budgets of 4 and more",
        kind="share",
        see=_check_all,
        holds="90% or more",
        reading=_APART,
        pooled=True,
        why=dict.fromkeys(("doesn't", "in part"), _HELPED),
    ),
    Check(
        key="archetypes-ends",
        value="the lower of the two shares with b = 1",
        kind="share",
        see=_check_ends,
        holds="90% or more of both",
        reading=_APART,
        pooled=True,
        why=dict.fromkeys(("doesn't", "in part"), _HELPED),
    ),
)


CHECKS = {
    check.key: check
    for check in (*PRICE_CHECKS, *ORACLE_CHECKS, *LEARNED_CHECKS, *SWEEP_CHECKS, *POOLED_CHECKS)
}
