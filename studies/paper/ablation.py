"""Five learners of the oracle's budgets on the same splits, and the paper's regret bound.

Rows are problems at each average budget, of one recording or several. They can be split at random, as the
paper must have done, so that most questions stand on both sides at another budget; or by question:
held-out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from adacompute.errors import TooFewSamples
from adacompute.evaluate.resampling import random_split
from adacompute.report.canvas import Canvas, colour
from adacompute.report.document import Cell, Column, Picture, Section, Spread, Table, join_words, to_plain
from studies.canvas import clip_label, ramp
from studies.paper.budget_choices import align_budgets, compute_oracle_labels, mix_accuracy
from studies.paper.learners import MLP_STEPS, fit_learner
from studies.paper.paper_pool import PaperPool
from studies.paper.price_search import TARGET_BUDGETS, describe_unreachable, select_reachable
from studies.paper.theory import net_values
from studies.paper.wording import format_points

__all__ = ["LEARNER_NAMES", "READINGS", "Ablation", "RegretPoints", "build_section", "compute_ablation"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

READINGS = ("scored as the paper does", "held-out")
LEARNER_NAMES: dict[str, str] = {  # the paper's order, and its names
    "logistic": "logistic regression",
    "svm": "SVM (RBF)",
    "forest": "random forest",
    "mlp": "MLP (64)",
    "xgboost": "boosted trees",
}
_TRAIN = 0.8
_ROUNDING = 1e-12  # rounding errors don't break a bound


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LearnerScore:
    """The score of one learner in one reading, over splits."""

    model: str  # of MODELS
    reading: str  # of READINGS
    accuracy: Spread
    gap: Spread  # of the oracle over it, on the judged rows
    imitation: Spread
    majority: Spread  # share of judged rows that have the commonest budget of those learned from
    cost: Spread  # samples on average
    uniform: Spread  # accuracy of a uniform budget at the same cost
    by_case: tuple[Spread, ...]  # (cases,) accuracy on each recording's judged rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RegretPoints:
    """The regret bound's quantities in one reading, one point per split and learner, (points,) each.

    Regret is measured by the table that the oracle's budgets were computed from, in both readings:
    the theorem is about that one.
    """

    reading: str
    model: tuple[str, ...]
    error: Floats  # ε: share of judged rows that aren't given the oracle's budget
    task: Floats  # regret in accuracy: the oracle's less the learner's
    relaxed: Floats  # regret in net value, each row at its own price


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ablation:
    """The scores of all learners in both readings, and the quantities of the regret bound."""

    cases: tuple[str, ...]
    targets: tuple[float, ...]  # average budgets
    budgets: tuple[int, ...]
    rows: int
    splits: int
    outcomes: tuple[LearnerScore, ...]  # readings × models
    points: tuple[RegretPoints, ...]  # (readings,)
    mean_gap: float  # of M over all rows, which the paper takes for the bound's factor
    worst_gap: float  # the largest M, which the theorem has
    confusion: Floats = field(repr=False)  # (readings, budgets, budgets) counts of oracle by boosted trees

    def score_of(self, model: str, reading: str) -> LearnerScore:
        """One learner in one reading."""
        return next(score for score in self.outcomes if (score.model, score.reading) == (model, reading))

    def best_score(self, reading: str) -> LearnerScore:
        """The learner with the highest accuracy in one reading."""
        return max(
            (score for score in self.outcomes if score.reading == reading),
            key=lambda score: score.accuracy.mean,
        )

    def count_above(self, which: str, *, of: str) -> int:
        """Count the points above a line: the regret named `which` over ε times the mean or worst M."""
        slope = self.mean_gap if of == "mean" else self.worst_gap
        return sum(
            int((getattr(points, which) > slope * points.error + _ROUNDING).sum()) for points in self.points
        )

    @property
    def normalised(self) -> Floats:
        """The confusion matrices, (readings, budgets, budgets); a row adds up to 1, or is NaN if empty."""
        size = self.confusion.sum(axis=2, keepdims=True)
        return np.asarray(np.where(size > 0, self.confusion / np.maximum(size, 1), np.nan))

    @property
    def slope(self) -> float:
        """Task regret per unit of ε, over all points: the line through 0 that fits them best."""
        error = np.concatenate([points.error for points in self.points])
        task = np.concatenate([points.task for points in self.points])
        return float((error * task).sum() / max(float((error**2).sum()), _ROUNDING))


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Every problem at every average budget."""

    features: Floats  # (rows, features)
    labels: Ints  # (rows,) columns
    windows: Floats  # (rows, budgets) accuracy
    exact: Floats  # (rows, budgets)
    net: Floats  # (rows, budgets) net values by the windows, at the row's own price
    owner: Ints  # (rows,) the case
    prompts: tuple[str, ...]  # (rows,)
    costs: Floats  # (budgets,)


def compute_ablation(
    cases: Sequence[PaperPool],
    *,
    targets: Sequence[float] = TARGET_BUDGETS,
    splits: int = 10,
    seed: int = 0,
) -> Ablation:
    """Compare the learners on all recordings together, at the budgets that they share."""
    cases = align_budgets(cases)
    budgets, kept = cases[0].budgets, select_reachable(cases[0], targets)
    if not kept:
        raise TooFewSamples(
            f"no average budget of {', '.join(f'{one:g}' for one in targets)} can be reached with "
            f"{budgets[-1]} samples; collect more samples of every problem"
        )
    rows = _build_rows(cases, kept)
    outcomes: list[LearnerScore] = []
    points: list[RegretPoints] = []
    confusion = np.zeros((len(READINGS), len(budgets), len(budgets)))
    for at, reading in enumerate(READINGS):
        rng = np.random.default_rng([seed, 0xAB1A, at])
        result = []
        for number in range(splits):
            train = _split_at_random(rows.labels, rng) if at == 0 else _split_by_question(rows.prompts, rng)
            result.append({name: _fit_learner(rows, train, name, seed=number) for name in LEARNER_NAMES})
        outcomes += [
            _score_learner(rows, [split[name] for split in result], name, at, cases) for name in LEARNER_NAMES
        ]
        points.append(_build_points(rows, result, reading))
        for split in result:
            judged, predicted = split["xgboost"].judged, split["xgboost"].predicted
            np.add.at(confusion[at], (rows.labels[judged], predicted), 1)
    gaps = np.take_along_axis(rows.net, rows.labels[:, None], axis=1)[:, 0] - rows.net.min(axis=1)
    return Ablation(
        cases=tuple(case.name for case in cases),
        targets=kept,
        budgets=budgets,
        rows=len(rows.labels),
        splits=splits,
        outcomes=tuple(outcomes),
        points=tuple(points),
        mean_gap=float(gaps.mean()),
        worst_gap=float(gaps.max()),
        confusion=confusion,
    )


def _build_rows(cases: Sequence[PaperPool], targets: Sequence[float]) -> _Rows:
    parts: list[tuple[Floats, Ints, Floats, Floats, Floats, Ints]] = []
    most = max(case.features.shape[1] for case in cases)
    for at, case in enumerate(cases):
        features = np.full((len(case), most), np.nan)  # NaN: an entropy that this recording doesn't have
        features[:, : case.features.shape[1]] = case.features
        for target in targets:
            labels, price = compute_oracle_labels(case.windows, target)
            parts.append(
                (
                    features,
                    labels,
                    case.windows.accuracy,
                    case.exact.accuracy,
                    net_values(case.windows, price),
                    np.full(len(case), at, dtype=np.int64),
                )
            )
    features, labels, windows, exact, net, owner = (np.concatenate(part) for part in zip(*parts, strict=True))
    return _Rows(
        features=features,
        labels=labels,
        windows=windows,
        exact=exact,
        net=net,
        owner=owner,
        prompts=tuple(prompt for case in cases for _ in targets for prompt in case.ballots.prompts),
        costs=np.asarray(cases[0].windows.costs, dtype=np.float64),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Predictions:
    """What one learner predicts for the rows it hasn't learned from."""

    judged: Ints  # (judged,) rows
    predicted: Ints  # (judged,) columns
    common: int  # the commonest column of the rows learned from


def _fit_learner(rows: _Rows, train: Bools, name: str, *, seed: int) -> _Predictions:
    predict = fit_learner(name, rows.features[train], rows.labels[train], seed=seed)
    judged = np.flatnonzero(~train)
    return _Predictions(
        judged=judged,
        predicted=np.asarray(predict(rows.features[judged]), dtype=np.int64),
        common=int(np.bincount(rows.labels[train]).argmax()),
    )


def _split_at_random(labels: Ints, rng: np.random.Generator) -> Bools:
    """Select four fifths of the rows of each label: the paper's always-1 learner imitates at ± 0.000."""
    train = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        own = rng.permutation(np.flatnonzero(labels == label))
        train[own[: max(1, round(_TRAIN * len(own)))]] = True
    if train.all():  # few rows, each a label of its own
        train[rng.integers(len(train))] = False
    return train


def _split_by_question(prompts: Sequence[str], rng: np.random.Generator) -> Bools:
    train = np.zeros(len(prompts), dtype=bool)
    train[random_split(prompts, rng, train_share=_TRAIN).train] = True
    return train


def _score_learner(
    rows: _Rows, predictions: Sequence[_Predictions], name: str, at: int, cases: Sequence[PaperPool]
) -> LearnerScore:
    accuracy = rows.windows if at == 0 else rows.exact
    values, by_case = [], []
    for prediction in predictions:
        here, labels = accuracy[prediction.judged], rows.labels[prediction.judged]
        got = np.take_along_axis(here, prediction.predicted[:, None], axis=1)[:, 0]
        oracle = np.take_along_axis(here, labels[:, None], axis=1)[:, 0]
        cost = rows.costs[prediction.predicted].mean()
        uniform = mix_accuracy(rows.costs, here.mean(axis=0)[None], np.array([cost]))[0]
        imitation, majority = (prediction.predicted == labels).mean(), (labels == prediction.common).mean()
        values.append((got.mean(), (oracle - got).mean(), imitation, majority, cost, uniform))
        owner = rows.owner[prediction.judged]
        by_case.append(
            [got[owner == own].mean() if (owner == own).any() else np.nan for own in range(len(cases))]
        )
    spreads = [_compute_spread(column) for column in np.array(values, dtype=np.float64).T]
    return LearnerScore(
        model=name,
        reading=READINGS[at],
        accuracy=spreads[0],
        gap=spreads[1],
        imitation=spreads[2],
        majority=spreads[3],
        cost=spreads[4],
        uniform=spreads[5],
        by_case=tuple(_compute_spread(column) for column in np.array(by_case, dtype=np.float64).T),
    )


def _build_points(rows: _Rows, predictions: Sequence[dict[str, _Predictions]], reading: str) -> RegretPoints:
    names, values = [], []
    for split in predictions:
        for name, prediction in split.items():
            labels, at = rows.labels[prediction.judged], prediction.judged
            task = rows.windows[at, labels] - rows.windows[at, prediction.predicted]
            relaxed = rows.net[at, labels] - rows.net[at, prediction.predicted]
            names.append(name)
            values.append(((prediction.predicted != labels).mean(), task.mean(), relaxed.mean()))
    error, task, relaxed = np.array(values, dtype=np.float64).T
    return RegretPoints(reading=reading, model=tuple(names), error=error, task=task, relaxed=relaxed)


def _compute_spread(values: Floats) -> Spread:
    """Mean and deviation over splits; splits that have no such row don't count."""
    known = values[np.isfinite(values)]
    if not len(known):
        return Spread(mean=float("nan"), std=float("nan"))
    return Spread(mean=float(known.mean()), std=float(known.std(ddof=1)) if len(known) > 1 else 0.0)


_TINTS = dict(zip(READINGS, ("red", "blue"), strict=True))
_APART = 0.17  # of a row, from the middle: where each reading stands
_STEPS = 8
_ROOM = 1.3  # times the highest point: what is shown above it


def draw_ablation(ablation: Ablation, *, key: str = "ablation") -> Picture:
    """Draw accuracy by learner, the regret bound by split, and a confusion matrix per reading."""
    with Canvas(key, rows=2, columns=2, height=6.2) as canvas:
        _draw_accuracy(canvas, canvas.axes[0], ablation)
        _draw_regret(canvas, canvas.axes[1], ablation)
        for at in range(len(READINGS)):
            _draw_confusion(canvas, canvas.axes[2 + at], ablation, at)
        svg = canvas.svg()
    return Picture(
        key=key,
        title="Five learners of the oracle's budgets",
        protocol=(
            f"{ablation.rows} rows ({_describe_cases(ablation)} at B = "
            f"{', '.join(f'{one:g}' for one in ablation.targets)}), {ablation.splits} splits into 80% and "
            "20%, judged on the 20%. Scored as the paper does: rows split at random, by windows. Held-out: "
            "split by question, over all subsets."
        ),
        svg=svg,
        alt=_describe(ablation),
        caption=(
            "Colours as in the titles of c and d. a: accuracy on the judged rows, mean and standard "
            "deviation over splits. b: a point a split and learner; dashed, the mean of M times ε, which the "
            "paper takes for the bound; dotted, the theorem's, with the largest M. c, d: percent of the rows "
            "with each oracle's budget that the boosted trees give each budget."
        ),
        data=to_plain(_build_data(ablation)),
    )


def _draw_accuracy(canvas: Canvas, ax: Axes, ablation: Ablation) -> None:
    ax.set_title("a  accuracy by learner")
    names = list(LEARNER_NAMES)
    for at, reading in enumerate(READINGS):
        tint = colour(_TINTS[reading])
        for row, model in enumerate(names):
            outcome = ablation.score_of(model, reading)
            place = row + (2 * at - 1) * _APART
            for number, (case, value) in enumerate(zip(ablation.cases, outcome.by_case, strict=True)):
                if not np.isfinite(value.mean):
                    continue
                ax.plot(
                    [value.mean - value.std, value.mean + value.std],
                    [place, place],
                    color=tint,
                    linewidth=1.6,
                    alpha=0.45,
                )
                ax.plot([value.mean], [place], color=tint, marker=_choose_marker(number), markersize=5, mew=0)
                text = (
                    f"{LEARNER_NAMES[model]}, {case}, {reading}: {100 * value.mean:.1f}% ± "
                    f"{100 * value.std:.1f} at {outcome.cost.mean:.2f} samples"
                )
                canvas.mark(ax, value.mean, place, text)
    ax.set_yticks(range(len(names)), [LEARNER_NAMES[name] for name in names])
    ax.set_ylim(len(names) - 0.45, -1.05 if len(ablation.cases) > 1 else -0.55)
    if len(ablation.cases) > 1:
        style: dict[str, Any] = {"color": colour("dim"), "linestyle": "", "mew": 0, "markersize": 5}
        handles = [
            Line2D([], [], marker=_choose_marker(number), label=clip_label(case), **style)
            for number, case in enumerate(ablation.cases)
        ]
        ax.legend(
            handles=handles,
            loc="upper center",
            ncols=min(3, len(handles)),
            columnspacing=1,
            handletextpad=0,
            labelcolor=colour("dim"),
            borderaxespad=0,
        )
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.4g}%")
    ax.set_xlabel("accuracy on the judged rows")


def _choose_marker(number: int) -> str:
    """Of a recording."""
    return "osD^v<>"[number % 7]


def _draw_regret(canvas: Canvas, ax: Axes, ablation: Ablation) -> None:
    ax.set_title("b  regret by imitation error")
    reach = max(float(points.error.max(initial=0.0)) for points in ablation.points)
    reach = 1.12 * reach if reach > 0 else 1.0
    for points in ablation.points:
        tint = colour(_TINTS[points.reading])
        ax.plot(
            points.error, points.task, color=tint, linestyle="", marker="o", markersize=4.5, mew=0, alpha=0.7
        )
        _draw_points(canvas, ax, points)
    highest = max(float(points.task.max(initial=0.0)) for points in ablation.points)
    lowest = min(0.0, min(float(points.task.min(initial=0.0)) for points in ablation.points))
    top = max(_ROOM * highest, ablation.mean_gap * reach, 0.01)
    ax.set_xlim(0, reach)
    ax.set_ylim(lowest - 0.05 * top, top)
    lines = (
        (ablation.mean_gap, "--", "mean M · ε", 0.6, "left"),
        (ablation.worst_gap, ":", "largest M · ε", 0.93, "right"),
    )
    for slope, line, name, height, side in lines:
        ax.plot([0, reach], [0, slope * reach], color=colour("ink"), linestyle=line, linewidth=1.3)
        at = min(0.9 * reach, height * top / max(slope, 1e-9))
        ax.annotate(
            name,
            (at, slope * at),
            xytext=(6 if side == "left" else -6, 0),
            textcoords="offset points",
            ha=side,
            va="center",
            fontsize=8.5,
            color=colour("dim"),
        )
        canvas.mark(ax, at, slope * at, f"{name}: {100 * slope:.1f} points for each 1 of ε")
    ax.set_xlabel("imitation error ε")
    ax.set_ylabel("accuracy below the oracle's, points")
    ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}")


def _draw_points(canvas: Canvas, ax: Axes, points: RegretPoints) -> None:
    for model, error, task, relaxed in zip(
        points.model, points.error, points.task, points.relaxed, strict=True
    ):
        text = (
            f"{LEARNER_NAMES[model]}, {points.reading}: ε {100 * error:.1f}%, {100 * task:.1f} points below "
            f"the oracle, {100 * relaxed:.1f} in net value"
        )
        canvas.mark(ax, error, task, text)


def _draw_confusion(canvas: Canvas, ax: Axes, ablation: Ablation, at: int) -> None:
    ax.set_title(f"{'cd'[at]}  {READINGS[at]}", color=colour(_TINTS[READINGS[at]]))
    tints = ramp(_STEPS)
    for (row, column), share in np.ndenumerate(ablation.normalised[at]):
        if not share > 0:
            continue
        step = min(_STEPS - 1, int(share * _STEPS))
        ax.add_patch(Rectangle((column - 0.47, row - 0.45), 0.94, 0.9, color=tints[step]))
        text = (
            f"oracle {ablation.budgets[row]}, trees {ablation.budgets[column]}: {100 * share:.1f}% of that "
            "row"
        )
        canvas.mark(ax, column, row, text)
        ink = colour("page" if step >= _STEPS / 2 else "ink")
        ax.text(column, row, f"{100 * share:.0f}", ha="center", va="center_baseline", fontsize=8, color=ink)
    count = len(ablation.budgets)
    ax.set_xlim(-0.55, count - 0.45)
    ax.set_ylim(count - 0.45, -0.55)
    ax.set_xticks(range(count), [str(budget) for budget in ablation.budgets])
    ax.set_yticks(range(count), [str(budget) for budget in ablation.budgets])
    ax.tick_params(length=0)
    ax.grid(visible=False)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
    ax.set_xlabel("samples given by the boosted trees")
    ax.set_ylabel("samples given by the oracle")


def _describe_cases(ablation: Ablation) -> str:
    return ", ".join(ablation.cases)


def _describe(ablation: Ablation) -> str:
    sentences = []
    for reading in READINGS:
        best = ablation.best_score(reading)
        sentences.append(
            f"{reading}: {LEARNER_NAMES[best.model]} is the most accurate, {best.accuracy.mean:.1%}."
        )
    return " ".join(sentences)


def _build_data(ablation: Ablation) -> dict[str, Any]:
    return {
        "mean_gap": ablation.mean_gap,
        "worst_gap": ablation.worst_gap,
        "points": {
            points.reading: {
                "model": list(points.model),
                "error": points.error,
                "task": points.task,
                "relaxed": points.relaxed,
            }
            for points in ablation.points
        },
        "by_case": {
            f"{one.model}, {one.reading}": dict(zip(ablation.cases, one.by_case, strict=True))
            for one in ablation.outcomes
        },
        "budgets": list(ablation.budgets),
        "confusion": {reading: ablation.confusion[at] for at, reading in enumerate(READINGS)},  # rows
        "confusion_shares": {reading: ablation.normalised[at] for at, reading in enumerate(READINGS)},
    }


_SPLITS, _QUICK_SPLITS = 10, 3


def build_section(case: PaperPool, *, quick: bool = False, seed: int = 0) -> Section:
    """Five learners, two ways to split, and what the bound says."""
    result = compute_ablation([case], splits=_QUICK_SPLITS if quick else _SPLITS, seed=seed)
    return Section(
        key="ablation",
        title="Learners, and the regret bound",
        words=_compose_words(result),
        tables=(build_table(result), build_bound_table(result)),
        pictures=(draw_ablation(result),),
        missing=describe_unreachable(case),
    )


def build_table(result: Ablation) -> Table:
    """Build a row per learner and reading."""
    rows: list[tuple[Cell, ...]] = [
        (
            LEARNER_NAMES[score.model],
            score.reading,
            score.accuracy,
            score.gap,
            score.imitation,
            score.majority.mean,
            score.cost,
            score.accuracy.mean - score.uniform.mean,
        )
        for score in result.outcomes
    ]
    return Table(
        key="ablation",
        title="Learners of the oracle's budgets",
        protocol=_describe_protocol(result),
        columns=(
            Column(name="learner"),
            Column(name="reading"),
            Column(name="accuracy", kind="share"),
            Column(name="oracle gap", kind="points", about="points below the oracle on the judged rows"),
            Column(name="imitation", kind="share", about="rows given the oracle's budget"),
            Column(name="commonest budget", kind="share", about="imitation of always the commonest"),
            Column(name="cost", kind="number", about="samples on average"),
            Column(name="over uniform", kind="points", about="points over uniform at the same cost"),
        ),
        rows=tuple(rows),
        note=(
            f"Mean and standard deviation over splits. The MLP is trained for {MLP_STEPS} rounds at most. "
            "The paper's gap is to the oracle on all rows, so that its deviation is that of the accuracy."
        ),
        bold=tuple(
            at for at, one in enumerate(result.outcomes) if one.model == result.best_score(one.reading).model
        ),
    )


def build_bound_table(result: Ablation) -> Table:
    """Build the table of how many points lie above each line."""
    rows: list[tuple[Cell, ...]] = []
    every = sum(len(points.error) for points in result.points)
    for which, name in (("relaxed", "net value, each row at its own price"), ("task", "accuracy")):
        for of, slope in (("worst", result.worst_gap), ("mean", result.mean_gap)):
            rows.append(
                (
                    name,
                    "largest M · ε" if of == "worst" else "mean M · ε",
                    slope,
                    result.count_above(which, of=of),
                    every,
                    which == "relaxed" and of == "worst",
                )
            )
    return Table(
        key="regret-bound",
        title="Points above the regret bound",
        protocol=(
            f"{_describe_protocol(result)} Both readings, by the windows that the oracle's budgets come from."
        ),
        columns=(
            Column(name="regret in"),
            Column(name="line"),
            Column(name="M", kind="fraction", about="the line's slope"),
            Column(name="points above", kind="count"),
            Column(name="points", kind="count"),
            Column(name="a theorem", kind="flag", about="whether no point can lie above"),
        ),
        rows=tuple(rows),
    )


def _compose_words(result: Ablation) -> tuple[str, ...]:
    if (result.confusion.sum(axis=(0, 2)) > 0).sum() < 2:
        return ("The oracle gives every problem the same budget, so there is nothing to learn.",)
    paper, held_out = READINGS
    first, then = result.best_score(paper), result.best_score(held_out)
    plain, later = result.score_of("logistic", paper), result.score_of("logistic", held_out)
    ahead = first.accuracy.mean - plain.accuracy.mean, then.accuracy.mean - later.accuracy.mean
    split = (
        "With rows split at random, so that most questions stand on both sides at another B, "
        f"{LEARNER_NAMES[first.model]} is the most accurate, {format_points(ahead[:1])} over logistic "
        f"regression. Split by question, {LEARNER_NAMES[then.model]} is, {format_points(ahead[1:])} over it "
        f"with {then.cost.mean:.2f} samples against {later.cost.mean:.2f}: "
        f"{format_points([then.accuracy.mean - then.uniform.mean])} over uniform at its own cost."
    )
    return split, _describe_imitation(result), _describe_bound(result)


def _describe_imitation(result: Ablation) -> str:
    paper, held_out = READINGS
    better = [
        [
            LEARNER_NAMES[model]
            for model in LEARNER_NAMES
            if _format_imitation(result.score_of(model, reading))
        ]
        for reading in READINGS
    ]
    trees = result.score_of("xgboost", paper), result.score_of("xgboost", held_out)
    near = [_compute_near_share(result.confusion[at]) for at in range(len(READINGS))]
    text = (
        f"The boosted trees imitate {trees[0].imitation.mean:.1%} of the oracle's budgets scored as the "
        f"paper does and {trees[1].imitation.mean:.1%} held-out; always the commonest budget, "
        f"{trees[0].majority.mean:.1%} and {trees[1].majority.mean:.1%}. Better than always the commonest: "
        f"{join_words(better[0]) or 'no learner'} scored as the paper does, "
        f"{join_words(better[1]) or 'no learner'} held-out."
    )
    if all(one is not None for one in near):
        text += (
            f" Of the trees' errors {near[0]:.0%} and {near[1]:.0%} are one budget off; the paper says most."
        )
    return text


def _describe_bound(result: Ablation) -> str:
    every = sum(len(points.error) for points in result.points)
    return (
        f"The theorem bounds the regret in net value by ε times the largest M, {result.worst_gap:.2f} here: "
        f"{result.count_above('relaxed', of='worst')} of {every} points lie above. The paper draws that "
        "line dotted, calls it loose, and takes the dashed one, ε times the mean of M "
        f"({result.mean_gap:.2f}), for the bound, with the regret in accuracy: for that neither is one; "
        f"{result.count_above('task', of='mean')} of {every} lie above the dashed one, "
        f"{result.count_above('task', of='worst')} above the dotted one. It finds the points' slope to "
        f"match that mean; here it is {result.slope:.2f}."
    )


def _format_imitation(score: LearnerScore) -> bool:
    return score.imitation.mean > score.majority.mean


def _compute_near_share(confusion: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float | None:
    """The share of errors that are one budget off; None where there are none."""
    apart = np.abs(np.subtract.outer(np.arange(len(confusion)), np.arange(len(confusion))))
    errors = confusion[apart > 0].sum()
    return float(confusion[apart == 1].sum() / errors) if errors else None


def _describe_protocol(result: Ablation) -> str:
    targets = join_words([f"{one:g}" for one in result.targets])
    return (
        f"{result.rows} rows: problems of {join_words(result.cases)} at B = {targets}; {result.splits} "
        "splits, judged on the 20% not learned from. Scored as the paper does: rows split at random within "
        "each label, by windows. Held-out: split by question, over all subsets."
    )
