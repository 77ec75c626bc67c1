"""What the paper says of recordings together: learners side by side, kinds of curve. Knows no single one."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from adacompute.evaluate.exhibits import Column, Kind, written
from adacompute.evaluate.paper.ablation import MODELS, READINGS, Ablation, Points
from adacompute.evaluate.paper.archetypes import Archetypes, Spent
from adacompute.evaluate.reproduction.checks.check import BOTH_SIDES, Check, Seen, Verdict
from adacompute.evaluate.reproduction.runs import Pooled

__all__ = ["POOLED"]

_TREES, _OTHERS = ("forest", "xgboost"), ("logistic", "svm", "mlp")
_APART = "groups and budgets from different samples"


def _read(
    value: Callable[[Ablation, str], float],
    holds: Callable[[float], bool],
    note: Callable[[Ablation], str] = lambda _: "",
) -> Callable[[Pooled], Seen]:
    """Whether a number of the ablation will do, in both readings."""

    def see(pooled: Pooled) -> Seen:
        if pooled.ablation is None:
            return Seen()
        first, second = (value(pooled.ablation, reading) for reading in READINGS)
        told = note(pooled.ablation)
        return Seen(paper=holds(first), value=first, ours=holds(second), own=second, note=told)

    return see


def _each_tree(
    value: Callable[[Ablation, str, str], float], holds: Callable[[float], bool], kind: Kind
) -> Callable[[Pooled], dict[str, Seen]]:
    """The same for each of the two tree learners: a mean would hide the one behind the other."""
    column = Column(name="", kind=kind)

    def see(pooled: Pooled) -> dict[str, Seen]:
        found: dict[str, Seen] = {}
        for model in _TREES if pooled.ablation is not None else ():
            one = _read(_one_of(value, model), holds)(pooled)
            both = f"{written(one.value, column)}, held-out {written(one.own, column)}"
            found[MODELS[model]] = replace(one, note=f"{MODELS[model]}: {both}")
        return found

    return see


def _one_of(value: Callable[[Ablation, str, str], float], model: str) -> Callable[[Ablation, str], float]:
    return lambda found, reading: value(found, reading, model)


def _ahead(found: Ablation, reading: str, model: str) -> float:
    others = max(found.of(other, reading).accuracy.mean for other in _OTHERS)
    return found.of(model, reading).accuracy.mean - others


def _times(found: Ablation, reading: str, model: str) -> float:
    own, others = found.of(model, reading).gap.mean, min(found.of(one, reading).gap.mean for one in _OTHERS)
    return others / own if own > 0 else float("inf")


def _linear(found: Ablation, reading: str) -> float:
    return max(found.of(model, reading).cost.mean for model in ("logistic", "svm"))


def _spent(found: Ablation, reading: str, model: str) -> float:
    return found.of(model, reading).cost.mean - sum(found.targets) / len(found.targets)


def _everywhere(found: Ablation, reading: str, model: str) -> float:
    return min(
        found.of(model, reading).by_case[at].mean
        - max(found.of(other, reading).by_case[at].mean for other in _OTHERS)
        for at in range(len(found.cases))
    )


def _of(found: Ablation, reading: str) -> Points:
    return next(points for points in found.points if points.reading == reading)


def _broken(found: Ablation, reading: str) -> float:
    """Points above the mean gap times their error, which the paper calls a bound."""
    points = _of(found, reading)
    return float((points.task > found.mean_gap * points.error).mean())


def _slope(found: Ablation, reading: str) -> float:
    """The slope of the points, the line through 0 that fits them best, in parts of the mean gap."""
    points = _of(found, reading)
    slope = float((points.error * points.task).sum() / max(float((points.error**2).sum()), 1e-12))
    return slope / found.mean_gap if found.mean_gap > 0 else float("nan")


def _steepest(found: Ablation) -> str:
    """What an envelope could be at the most."""
    if found.mean_gap <= 0:
        return ""
    steepest = max(
        float((points.task / np.maximum(points.error, 1e-12)).max(initial=0.0)) for points in found.points
    )
    return (
        f"mean gap {found.mean_gap:.2f}, slope of all points {found.slope:.2f}, steepest point "
        f"{steepest:.2f}, largest gap {found.worst_gap:.2f}"
    )


def _four(pooled: Pooled) -> dict[str, Seen]:
    found = pooled.archetypes
    if found is None:
        return {}
    return {
        group.name: Seen(
            paper=not group.doubt,
            value=float(group.centre[0]),
            note=f"{group.name} {group.doubt}" if group.doubt else "",
        )
        for group in found.groups
    }


def _large(found: Archetypes, spent: Spent | None) -> float | None:
    if spent is None or "Responsive" not in found.names:
        return None
    return float(spent.large[found.names.index("Responsive")])


def _all(pooled: Pooled) -> Seen:
    found = pooled.archetypes
    if found is None:
        return Seen()
    return _seen(_large(found, found.oracle), _large(found, found.apart), 0.9)


def _ends(pooled: Pooled) -> Seen:
    found = pooled.archetypes
    if found is None:
        return Seen()
    values = [
        None
        if spent is None
        else min(float(spent.shares[found.names.index(name), 0]) for name in ("Easy", "Hard"))
        for spent in (found.oracle, found.apart)
        if {"Easy", "Hard"} <= set(found.names)
    ]
    return _seen(values[0], values[1], 0.9) if values else Seen()


def _seen(first: float | None, second: float | None, least: float) -> Seen:
    held = [None if value is None else value >= least for value in (first, second)]
    return Seen(paper=held[0], value=first, ours=held[1], own=second)


_REMEMBER = (
    "Split at random, a question stands on both sides at another B, and trees remember it: it is there three "
    "times in our rows, nine times in the paper's, whose three models share their questions."
)
_HELPED = "Four votes also help problems that one sample mostly gets right, and those are called easy."
_MEAN = "The theorem's factor is the largest gap, not the mean."

_LOOSE = "A mean over all budgets given wrongly is far above what a learner's own errors cost."
_FAILS: tuple[Verdict, ...] = (BOTH_SIDES, "doesn't", "in part")

POOLED = (
    Check(
        key="ablation-trees",
        value="a tree learner less the best other learner",
        kind="points",
        see=_each_tree(_ahead, lambda value: value >= 0.04, "points"),
        holds="4 points or more, for each of the two",
        pooled=True,
        only=BOTH_SIDES,
        why=dict.fromkeys(_FAILS, _REMEMBER),
    ),
    Check(
        key="ablation-gap",
        value="how many times smaller a tree learner's gap is than the best other's",
        kind="number",
        see=_each_tree(_times, lambda value: value >= 3, "number"),
        holds="3 times or more, for each of the two",
        pooled=True,
        only=BOTH_SIDES,
        why=dict.fromkeys(_FAILS, _REMEMBER),
    ),
    Check(
        key="ablation-linear",
        value="cost of the dearer linear learner",
        kind="number",
        see=_read(_linear, lambda value: value <= 1.05),
        holds="1.05 or less",
        pooled=True,
        only=BOTH_SIDES,
    ),
    Check(
        key="ablation-cost",
        value="a tree learner's cost less the oracle's",
        kind="number",
        see=_each_tree(_spent, lambda value: abs(value) <= 0.15, "number"),
        holds="within 0.15 samples, for each of the two",
        pooled=True,
        only=BOTH_SIDES,
        why=dict.fromkeys(_FAILS, "They underspend in both splits, as in Table 5."),
    ),
    Check(
        key="ablation-each",
        value="least lead of a tree learner on a recording",
        kind="points",
        see=_each_tree(_everywhere, lambda value: value >= 0.03, "points"),
        holds="3 points or more on each, for each of the two",
        pooled=True,
        only=BOTH_SIDES,
        why=dict.fromkeys(_FAILS, _REMEMBER),
    ),
    Check(
        key="ablation-bound",
        value="share of splits × learners above that line",
        kind="share",
        see=_read(_broken, lambda value: value == 0),
        holds="none above",
        pooled=True,
        only=BOTH_SIDES,
        why=dict.fromkeys(_FAILS, _MEAN),
    ),
    Check(
        key="ablation-tight",
        value="slope of the points, in parts of the mean gap",
        kind="share",
        see=_read(_slope, lambda value: 0.8 <= value <= 1.25, _steepest),
        holds="80 to 125%",
        pooled=True,
        only=BOTH_SIDES,
        why=dict.fromkeys(_FAILS, _LOOSE),
    ),
    Check(
        key="archetypes-four",
        value="one-sample accuracy of the clusters",
        kind="fraction",
        see=_four,
        holds="a cluster looks as the paper says",
        pooled=True,
    ),
    Check(
        key="archetypes-all",
        value="share of all samples in budgets of 4 and more",
        kind="share",
        see=_all,
        holds="90% or more",
        reading=_APART,
        pooled=True,
        why=dict.fromkeys(("doesn't", "in part"), _HELPED),
    ),
    Check(
        key="archetypes-ends",
        value="the lower of the two shares with b = 1",
        kind="share",
        see=_ends,
        holds="90% or more of both",
        reading=_APART,
        pooled=True,
        why=dict.fromkeys(("doesn't", "in part"), _HELPED),
    ),
)
