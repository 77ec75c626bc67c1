"""What the paper says of recordings together: learners side by side, kinds of curve. Knows no single one."""

from collections.abc import Callable

from adacompute.evaluate.paper.ablation import READINGS, Ablation
from adacompute.evaluate.paper.archetypes import Archetypes, Spent
from adacompute.evaluate.reproduction.checks.check import Check, Seen
from adacompute.evaluate.reproduction.runs import Pooled

__all__ = ["POOLED"]

_TREES, _OTHERS = ("forest", "xgboost"), ("logistic", "svm", "mlp")
_APART = "groups and budgets from different samples"


def _read(
    value: Callable[[Ablation, str], float], holds: Callable[[float], bool]
) -> Callable[[Pooled], Seen]:
    """Whether a number of the ablation will do, in both readings."""

    def see(pooled: Pooled) -> Seen:
        if pooled.ablation is None:
            return Seen()
        first, second = (value(pooled.ablation, reading) for reading in READINGS)
        return Seen(paper=holds(first), value=first, ours=holds(second), own=second)

    return see


def _trees(found: Ablation, reading: str, name: str) -> float:
    """The mean of the two tree learners."""
    return sum(float(getattr(found.of(model, reading), name).mean) for model in _TREES) / len(_TREES)


def _ahead(found: Ablation, reading: str) -> float:
    others = max(found.of(model, reading).accuracy.mean for model in _OTHERS)
    return _trees(found, reading, "accuracy") - others


def _times(found: Ablation, reading: str) -> float:
    trees, others = _trees(found, reading, "gap"), min(found.of(one, reading).gap.mean for one in _OTHERS)
    return others / trees if trees > 0 else float("inf")


def _linear(found: Ablation, reading: str) -> float:
    return max(found.of(model, reading).cost.mean for model in ("logistic", "svm"))


def _spent(found: Ablation, reading: str) -> float:
    return _trees(found, reading, "cost") - sum(found.targets) / len(found.targets)


def _each(found: Ablation, reading: str) -> float:
    margins = []
    for at in range(len(found.cases)):
        trees = sum(found.of(model, reading).by_case[at].mean for model in _TREES) / len(_TREES)
        margins.append(trees - max(found.of(model, reading).by_case[at].mean for model in _OTHERS))
    return min(margins)


def _broken(found: Ablation, reading: str) -> float:
    """Points above the mean gap times their error, which the paper calls a bound."""
    points = next(points for points in found.points if points.reading == reading)
    return float((points.task > found.mean_gap * points.error).mean())


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

POOLED = (
    Check(
        key="ablation-trees",
        value="mean of the trees less the best other learner",
        kind="points",
        see=_read(_ahead, lambda value: value >= 0.03),
        holds="3 points or more",
        pooled=True,
        why=dict.fromkeys(("only in-sample", "doesn't"), _REMEMBER),
    ),
    Check(
        key="ablation-gap",
        value="how many times smaller trees' mean gap is than the best other's",
        kind="number",
        see=_read(_times, lambda value: value >= 2),
        holds="twice or more",
        pooled=True,
        why=dict.fromkeys(("only in-sample", "doesn't"), _REMEMBER),
    ),
    Check(
        key="ablation-linear",
        value="cost of the dearer linear learner",
        kind="number",
        see=_read(_linear, lambda value: value <= 1.1),
        holds="1.1 or less",
        pooled=True,
    ),
    Check(
        key="ablation-cost",
        value="trees' mean cost less the oracle's",
        kind="number",
        see=_read(_spent, lambda value: abs(value) <= 0.15),
        holds="within 0.15 samples",
        pooled=True,
        why=dict.fromkeys(("only in-sample", "doesn't"), "They underspend in both splits, as in Table 5."),
    ),
    Check(
        key="ablation-each",
        value="least lead of the trees' mean on a recording",
        kind="points",
        see=_read(_each, lambda value: value >= 0.025),
        holds="2.5 points or more on each",
        pooled=True,
        why=dict.fromkeys(("only in-sample", "doesn't"), _REMEMBER),
    ),
    Check(
        key="ablation-bound",
        value="share of splits × learners above that line",
        kind="share",
        see=_read(_broken, lambda value: value == 0),
        holds="none above",
        pooled=True,
        why=dict.fromkeys(("only in-sample", "doesn't"), _MEAN),
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
