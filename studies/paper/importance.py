"""Which features the boosted trees use, and which of them carry information about new problems.

The trees' own importance counts what splits gain on the rows learned from, so a feature of noise has its
share too. Beside it stands what shuffling a feature costs on problems not learned from.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from adacompute.evaluate.resampling import Split, kfold
from adacompute.policies.classifier import train_classifier
from adacompute.policies.features import FEATURE_NAMES
from adacompute.replay.matching import Bootstrap, Interval
from adacompute.report.canvas import Canvas, colour
from adacompute.report.document import Cell, Column, Picture, Section, Table, join_words, to_plain
from studies.paper.budget_choices import compute_oracle_labels
from studies.paper.learners import fit_learner
from studies.paper.paper_pool import PaperPool

__all__ = ["Importance", "build_section", "compute_importance"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BUDGET = 2.0  # samples on average, the paper's
_REPEATS = 5  # shuffles of each feature in each fold
_FOLDS = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Importance:
    """Features by their importance, and what they are like for each of the oracle's budgets."""

    budget: float  # samples on average
    names: tuple[str, ...]  # (features,) as in studies/features.md
    gain: Floats  # (features,) shares of the trees' importance, scored as the paper does: on all problems
    imitation: tuple[Interval, ...]  # (features,) held-out imitation lost by shuffling it
    accuracy: tuple[Interval, ...]  # (features,) held-out accuracy lost likewise
    kept: float  # held-out imitation with nothing shuffled
    majority: float  # held-out imitation of always the commonest budget
    classes: tuple[int, ...]  # budgets that the oracle gives to some problem
    counts: Ints  # (classes,) problems
    signature: Floats = field(repr=False)  # (features, classes) mean, in deviations over problems
    along: Floats = field(repr=False)  # (features, classes) class means, z-scored over classes: the paper's

    @property
    def order(self) -> tuple[int, ...]:
        """Features from the most gain to the least."""
        return tuple(np.argsort(-self.gain, kind="stable").tolist())

    @property
    def sure(self) -> npt.NDArray[np.bool_]:
        """Which of `signature` lie two standard errors or more from 0, (features, classes)."""
        return np.abs(self.signature) * np.sqrt(self.counts) >= 2.0

    @property
    def telling(self) -> tuple[str, ...]:
        """Features whose shuffling costs held-out imitation, with zero outside the interval."""
        found = zip(self.names, self.imitation, strict=True)
        return tuple(name for name, lost in found if lost.low is not None and lost.low > 0)


def compute_importance(
    case: PaperPool, *, budget: float = BUDGET, repeats: int = _REPEATS, seed: int = 0
) -> Importance:
    """Compute the importance of features in the boosted trees for one average budget."""
    labels, _ = compute_oracle_labels(case.windows, min(budget, float(case.budgets[-1])))
    signature, along = _compute_signatures(case.features, labels)
    lost, kept, majority = _measure_shuffling(case, labels, repeats=repeats, seed=seed)
    draws = Bootstrap.of(len(case))
    classes, counts = np.unique(labels, return_counts=True)
    return Importance(
        budget=budget,
        names=FEATURE_NAMES[: case.features.shape[1]],
        gain=compute_gains(case.features, labels, seed=seed),
        imitation=tuple(draws.interval(own) for own in lost[0]),
        accuracy=tuple(draws.interval(own) for own in lost[1]),
        kept=kept,
        majority=majority,
        classes=tuple(case.budgets[at] for at in classes),
        counts=counts,
        signature=signature,
        along=along,
    )


def compute_gains(rows: Floats, labels: Ints, *, seed: int) -> Floats:
    """How much a split on each feature adds to the boosted trees' fit, (features,): shares of their sum.

    XGBoost's own importance: a mean over splits, on the rows that are learned from. All 0 without a
    split.
    """
    shares = np.zeros(rows.shape[1])
    classes, indices = np.unique(labels, return_inverse=True)
    if len(classes) > 1:
        booster = train_classifier(rows, np.asarray(indices, dtype=np.int64), seed)
        for name, gain in booster.get_score(importance_type="gain").items():
            shares[int(name.removeprefix("f"))] = gain
    return shares / max(float(shares.sum()), np.finfo(float).tiny)


def _measure_shuffling(
    case: PaperPool, labels: Ints, *, repeats: int, seed: int
) -> tuple[Floats, float, float]:
    """Measure what shuffling costs each judged problem in imitation and accuracy, (2, features, problems).

    Also returns the imitation with nothing shuffled, and that of the commonest label, over all
    problems.
    """
    rng = np.random.default_rng([seed, 0x1377])
    questions = len(set(case.ballots.prompts))
    lost = np.zeros((2, case.features.shape[1], len(labels)))
    hits = common = 0.0
    for split in kfold(case.ballots.prompts, min(_FOLDS, questions), rng):
        judge = _FoldJudge(case, labels, split, seed)
        rows = case.features[split.test]
        whole = judge.score_rows(rows)  # (2, judged)
        hits += whole[0].sum()
        common += (labels[split.test] == np.bincount(labels[split.train]).argmax()).sum()
        for _ in range(repeats):
            order = rng.permutation(len(rows))
            for at in range(rows.shape[1]):
                shuffled = rows.copy()
                shuffled[:, at] = rows[order, at]
                lost[:, at, split.test] += (whole - judge.score_rows(shuffled)) / repeats
    return lost, hits / len(labels), common / len(labels)


class _FoldJudge:
    """Boosted trees of one fold, asked about its judged problems."""

    def __init__(self, case: PaperPool, labels: Ints, split: Split, seed: int) -> None:
        train, test = split.train, split.test
        self.predict = fit_learner("xgboost", case.features[train], labels[train], seed=seed)
        self.labels, self.exact = labels[test], case.exact.accuracy[test]

    def score_rows(self, rows: Floats) -> Floats:
        """Whether each gets the oracle's budget, and its accuracy with what it gets, (2, judged)."""
        column = self.predict(rows)
        return np.stack([column == self.labels, self.exact[np.arange(len(rows)), column]])


def _compute_signatures(features: Floats, labels: Ints) -> tuple[Floats, Floats]:
    """Class means of each feature, (features, classes): in deviations over problems, and over classes."""
    classes = np.unique(labels)
    mean, deviation = np.nanmean(features, axis=0), np.nanstd(features, axis=0)
    scaled = (features - mean) / np.where(deviation > 0, deviation, 1.0)
    scaled = np.where(np.isnan(scaled), 0.0, scaled)  # not known: average
    signature = np.stack([scaled[labels == label].mean(axis=0) for label in classes], axis=1)
    spread = signature.std(axis=1, keepdims=True)
    along = (signature - signature.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1.0)
    return signature, along


_LINE = 0.245  # inches that a feature takes
_NONE = 0.05  # deviations that are as good as none
_FULL = 1.0  # deviations from the average that have the full colour


def draw_importance(importance: Importance, *, key: str = "importance") -> Picture:
    """Gain on what was learned from, loss held-out by shuffling, and the mean feature of each class."""
    height = 0.95 + _LINE * len(importance.names)
    with Canvas(key, columns=3, height=height, sharey=True, width_ratios=(1, 1, 1.35)) as canvas:
        first, second, third = canvas.axes
        _draw_gain(canvas, first, importance)
        _draw_loss(canvas, second, importance)
        _draw_signature(canvas, third, importance)
        first.set_yticks(range(len(importance.names)), [importance.names[at] for at in importance.order])
        first.set_ylim(len(importance.names) - 0.4, -0.6)
        for ax in canvas.axes:
            ax.tick_params(axis="y", length=0)
            ax.grid(visible=False, axis="y")
        svg = canvas.svg()
    most = importance.names[importance.order[0]]
    return Picture(
        key=key,
        title=f"The {len(importance.names)} features at B = {importance.budget:g}",
        protocol=(
            "a, scored as the paper does: boosted trees on all problems, their own importance. b, held-out: "
            "five folds by question, each feature shuffled among the judged problems, 95% interval over "
            "problems. c: all problems."
        ),
        svg=svg,
        alt=(
            f"{most} has the most gain, {100 * importance.gain[importance.order[0]]:.0f}%; features whose "
            f"shuffling clearly loses: {', '.join(importance.telling) or 'none'}."
        ),
        caption=(
            "a: gain of a split on each feature, shares of their sum. b: points of imitation lost when the "
            "feature is shuffled; with dots left of 0 the trees are better without. c: mean of the feature "
            "among the problems that the oracle gives each budget, in standard deviations over all problems; "
            "bold where it is two standard errors or more from the average."
        ),
        data=to_plain(_build_data(importance)),
    )


def _draw_gain(canvas: Canvas, ax: Axes, importance: Importance) -> None:
    ax.set_title("a  gain, in-sample")
    for row, at in enumerate(importance.order):
        ax.barh(row, importance.gain[at], height=0.62, color=colour("red"))
        canvas.mark(
            ax,
            importance.gain[at] / 2,
            row,
            f"{importance.names[at]}: {100 * importance.gain[at]:.1f}% of the gain",
        )
    ax.set_xlim(0, max(float(importance.gain.max()) * 1.08, 0.01))
    ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
    ax.set_xlabel("share of the gain")


def _draw_loss(canvas: Canvas, ax: Axes, importance: Importance) -> None:
    ax.set_title("b  loss, held-out")
    ax.axvline(0, color=colour("line"), linewidth=1)
    for row, at in enumerate(importance.order):
        lost = importance.imitation[at]
        low, high = (lost.mean if end is None else end for end in (lost.low, lost.high))
        tint = colour("blue" if importance.names[at] in importance.telling else "grey")
        ax.plot([low, high], [row, row], color=tint, linewidth=1.6, alpha=0.6)
        ax.plot([lost.mean], [row], color=tint, marker="o", markersize=4.5, mew=0)
        text = (
            f"{importance.names[at]}, shuffled: {100 * lost.mean:+.1f} points of imitation lost "
            f"({100 * low:+.1f} to {100 * high:+.1f}), {100 * importance.accuracy[at].mean:+.1f} of accuracy"
        )
        canvas.mark(ax, lost.mean, row, text)
    ax.margins(x=0.06)
    ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}")
    ax.set_xlabel("points of imitation")


def _draw_signature(canvas: Canvas, ax: Axes, importance: Importance) -> None:
    """Draw class means in two colours, fainter near the average; the palette's own, for dark pages."""
    ax.set_title("c  mean by oracle's budget")
    for row, at in enumerate(importance.order):
        for column, budget in enumerate(importance.classes):
            value = float(importance.signature[at, column])
            faint = min(1.0, abs(value) / _FULL)
            near = abs(value) < _NONE
            tint = colour("grey" if near else "orange" if value > 0 else "blue")
            place = (column - 0.47, row - 0.43)
            ax.add_patch(Rectangle(place, 0.94, 0.86, color=tint, alpha=0.08 + 0.47 * faint))
            weight = "bold" if importance.sure[at, column] else "normal"
            ax.text(
                column,
                row,
                "0" if near else f"{value:+.1f}",
                ha="center",
                va="center_baseline",
                fontsize=8,
                fontweight=weight,
                color=colour("ink" if importance.sure[at, column] else "dim"),
            )
            text = (
                f"{importance.names[at]} at b = {budget} ({importance.counts[column]} problems): "
                f"{value:+.2f} deviations from the average; z-scored over budgets, as in the paper, "
                f"{importance.along[at, column]:+.1f}"
            )
            canvas.mark(ax, column, row, text)
    ax.set_xlim(-0.55, len(importance.classes) - 0.45)
    names = [
        f"{budget}\n({count})" for budget, count in zip(importance.classes, importance.counts, strict=True)
    ]
    ax.set_xticks(range(len(importance.classes)), names)
    ax.grid(visible=False)
    ax.tick_params(length=0)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
    ax.set_xlabel("samples given (problems)")


def _build_data(importance: Importance) -> dict[str, Any]:
    features = {
        importance.names[at]: {
            "gain": importance.gain[at],
            "imitation_lost": importance.imitation[at],
            "accuracy_lost": importance.accuracy[at],
            "mean_by_budget": _group_by_budget(importance, importance.signature[at]),
            "z_over_budgets": _group_by_budget(importance, importance.along[at]),
        }
        for at in importance.order
    }
    return {"problems": _group_by_budget(importance, importance.counts), "features": features}


def _group_by_budget(importance: Importance, values: npt.NDArray[Any]) -> dict[int, Any]:
    return dict(zip(importance.classes, values, strict=True))


_QUICK_SHUFFLES = 2  # shuffles
_CHANCE_SHARE = 0.0455  # share of averages that lie two standard errors or more from 0 by luck


def build_section(case: PaperPool, *, quick: bool = False, seed: int = 0) -> Section:
    """The boosted trees' importance, what shuffling costs, and each budget's mean features."""
    result = (
        compute_importance(case, repeats=_QUICK_SHUFFLES, seed=seed)
        if quick
        else compute_importance(case, seed=seed)
    )
    return Section(
        key="importance",
        title="Features",
        words=_compose_words(result),
        tables=(build_table(result),),
        pictures=(draw_importance(result),),
        missing=_list_missing(result, case),
    )


def build_table(result: Importance) -> Table:
    """Build a row per feature, the most gain first."""
    rows: list[tuple[Cell, ...]] = [
        (result.names[at], float(result.gain[at]), result.imitation[at], result.accuracy[at])
        for at in result.order
    ]
    return Table(
        key="importance",
        title=f"Features at B = {result.budget:g}",
        protocol=(
            "Gain, scored as the paper does: boosted trees learned from all problems. Lost by shuffling, "
            "held-out: five folds by question, 95% interval over problems."
        ),
        columns=(
            Column(name="feature"),
            Column(name="gain", kind="share", about="of a split on it, as a share of the sum"),
            Column(name="imitation lost", kind="points", about="by shuffling it, held-out"),
            Column(name="accuracy lost", kind="points", about="by shuffling it, held-out"),
        ),
        rows=tuple(rows),
    )


def _compose_words(result: Importance) -> tuple[str, ...]:
    used = [float(gain) for gain in result.gain if gain > 0]
    first = f"{len(used)} of {len(result.names)} features are split on at all"
    if used:
        first += (
            f", with {min(used):.0%} to {max(used):.0%} of the gain each; the paper has 6% to 11% and reads "
            "from it that each tells something. That is gain on the problems learned from, where noise has "
            "its share too."
        )
    feature_text = join_words(result.telling) if result.telling else "no feature"
    second = (
        f"On problems not learned from, shuffling clearly costs imitation with {feature_text}. The trees "
        f"name the oracle's budget for {result.kept:.1%} of them, always the commonest for "
        f"{result.majority:.1%}."
    )
    cells, sure = result.signature.size, int(result.sure.sum())
    third = (
        f"Of {cells} mean features by budget {sure} lie two standard errors or more from the average; luck "
        f"alone would give about {_CHANCE_SHARE * cells:.0f}. The paper shows these z-scored over budgets, "
        "which makes every row as vivid as any other, and names features that aren't among its 16; one of "
        "them, single_pass_acc, is the accuracy table's own first column."
    )
    return (first if used else f"{first}.", second, third)


def _list_missing(result: Importance, case: PaperPool) -> tuple[str, ...]:
    missing = []
    if len(result.names) < len(FEATURE_NAMES):
        missing.append(
            f"{FEATURE_NAMES[-1]}: most first samples have no entropy recorded; record log-probabilities "
            "for it"
        )
    if len(result.classes) == 1:
        missing.append(
            f"importance: the oracle gives every problem {result.classes[0]} at B = {BUDGET:g}, so there is "
            "nothing to learn; collect problems whose answers vary"
        )
    if case.budgets[-1] < BUDGET:
        missing.append(f"B = {BUDGET:g}: some problem has too few samples; collect more of each")
    return tuple(missing)
