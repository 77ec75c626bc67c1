"""Held-out accuracy by how much was recorded: problems, and samples of each. Numbers, figure and words.

Every problem is judged by what was learned from the other half of the problems, at exactly the
same average cost. Priced stopping starts from its bundled prior, which has seen no problem of
this recording.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from adacompute.answers import VoteWeights
from adacompute.evaluate.comparison import PolicyPoints, match_cost
from adacompute.evaluate.measure import sweep_with_cache
from adacompute.evaluate.protocols import uses_weighted_votes
from adacompute.evaluate.resampling import Bootstrap, Interval, Split, kfold
from adacompute.evaluate.scored_pool import ScoredPool
from adacompute.policies.base import Policy, fit_confidence_weights
from adacompute.policies.baselines import FixedPolicy
from adacompute.policies.classifier import ClassifierPolicy
from adacompute.policies.paths import Paths, draw_paths
from adacompute.policies.stopping import StoppingPolicy
from adacompute.pool import Ballots
from adacompute.report.canvas import Canvas, set_accuracy_axis, set_ticks
from adacompute.report.document import (
    Cell,
    Column,
    Picture,
    Section,
    Table,
    format_gains,
    format_points,
    to_plain,
)
from adacompute.report.theme import colour, policy_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["DataEfficiency", "build_section", "measure_data_efficiency"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

PROBLEMS = (25, 50, 100, 200)  # to train on; beside none, and all there are
SAMPLES = (8, 16, 32)  # of each problem; beside all there are
ORDERS = 10  # of a judged problem's samples
_BUDGETS = (3.0, 2.0, 1.5)  # average samples: the first that the recording allows is used
_MOST_SAMPLES = 16
_REPEAT_UP_TO = 25  # problems: with so few it matters which, so two draws of them are used
_MIN_RATIO = 1.6  # sizes closer than this ratio to all there are get skipped
_FIXED_PROBLEMS = 50  # problems, while the number of samples varies
_PRICES = (0.0, *np.geomspace(0.004, 0.3, 14).tolist(), 1.1)
_ABOVE_BUDGET = 1.6  # times the budget, so that a classifier that underspends has a point above it

_POLICIES = ("stopping", "classifier")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingAmount:
    """One policy, trained on a certain amount of data."""

    policy: str
    problems: int  # learned from; 0: the bundled prior as it is
    samples: int  # recorded of each
    cost: float  # average samples: the budget, or less where it can't spend it
    accuracy: Interval  # held-out
    gain: Interval  # over uniform at the same cost, problem by problem


@dataclass(frozen=True, slots=True, kw_only=True)
class DataEfficiency:
    """Both policies by how much was recorded."""

    budget: float  # samples on average, met exactly
    uniform: Interval  # accuracy of uniform sampling
    by_problems: tuple[TrainingAmount, ...]  # with all samples of each
    by_samples: tuple[TrainingAmount, ...]  # with `fixed_problems` problems
    fixed_problems: int
    most: int  # samples recorded of each
    weighted: bool  # whether votes were, by confidence
    orders: int

    def get(self, policy: str, *, by: str) -> tuple[TrainingAmount, ...]:
        """One policy's amounts, by "problems" or "samples", rising."""
        amounts = self.by_problems if by == "problems" else self.by_samples
        return tuple(amount for amount in amounts if amount.policy == policy)


def measure_data_efficiency(
    pool: ScoredPool,
    *,
    problems: Sequence[int] = PROBLEMS,
    samples: Sequence[int] = SAMPLES,
    orders: int = ORDERS,
    seed: int = 0,
) -> DataEfficiency:
    """Stopping and the classifier, trained on more and more of one half and judged on the other."""
    ballots = pool.ballots
    most = int(ballots.drawn.min())
    longest = min(_MOST_SAMPLES, most)
    budget = next((candidate for candidate in _BUDGETS if candidate < longest), _BUDGETS[-1])
    rng = np.random.default_rng([seed, 0x6507])
    weighted = uses_weighted_votes(ballots, "auto")
    halves = [
        _Half(ballots, split, rng, weighted=weighted, orders=orders, longest=longest)
        for split in kfold(ballots.prompts, 2, rng)
    ]
    available = min(len(half.train) for half in halves)
    sizes = [*(size for size in problems if size * _MIN_RATIO <= available), available]
    fixed_problems = max((size for size in sizes if size <= _FIXED_PROBLEMS), default=available)
    cuts = [cut for cut in samples if 2 <= cut < most and cut > budget]
    finder = _AmountFinder(halves, budget, Bootstrap.of(len(ballots)))
    by_problems = [finder.find_amount("stopping", 0, most)]
    for policy in _POINT_MAKERS:
        by_problems += [finder.find_amount(policy, size, most) for size in sizes]
    by_samples = [
        finder.find_amount(policy, fixed_problems, cut) for policy in _POINT_MAKERS for cut in (*cuts, most)
    ]
    return DataEfficiency(
        budget=budget,
        uniform=finder.draws.interval(finder.uniform_at(budget)),
        by_problems=tuple(by_problems),
        by_samples=tuple(by_samples),
        fixed_problems=fixed_problems,
        most=most,
        weighted=weighted,
        orders=orders,
    )


class _Half:
    """The problems to judge, and the others in the order in which they are used for training."""

    def __init__(
        self,
        ballots: Ballots,
        split: Split,
        rng: np.random.Generator,
        *,
        weighted: bool,
        orders: int,
        longest: int,
    ) -> None:
        self.ballots, self.test, self.longest = ballots, split.test, longest
        self.weighted = weighted
        self.train: Ints = rng.permutation(split.train)
        self._test_ballots, self._orders, self._seed = (
            ballots.only(split.test),
            orders,
            int(rng.integers(2**31)),
        )
        self._paths_by_weights: dict[VoteWeights | None, Paths] = {}

    def training_ballots(self, problems: int, samples: int, repeat: int) -> Ballots:
        """One repeat's training problems, with the first samples of each."""
        rows = np.sort(self.train[repeat * problems : (repeat + 1) * problems])
        return _cut_samples(self.ballots.only(rows), samples)

    def points(self, policies: Sequence[Policy], dials: Sequence[float | None]) -> tuple[Floats, Floats]:
        """Cost and accuracy of each policy at each dial on the judged problems, (settings, judged) both."""
        sweeps = [sweep_with_cache(policy, self.paths(policy.weigh), dials) for policy in policies]
        return np.concatenate([sweep.cost for sweep in sweeps]), np.concatenate(
            [sweep.accuracy for sweep in sweeps]
        )

    def paths(self, weigh: VoteWeights | None) -> Paths:
        """Test paths: the same orders whatever the weights."""
        if weigh not in self._paths_by_weights:
            rng = np.random.default_rng(self._seed)
            self._paths_by_weights = {
                weigh: draw_paths(
                    self._test_ballots, rng=rng, orders=self._orders, longest=self.longest, weigh=weigh
                )
            }
        return self._paths_by_weights[weigh]

    @property
    def weigh(self) -> VoteWeights | None:
        """Vote weights for policies that learn nothing else."""
        return fit_confidence_weights(self.ballots.only(self.train)) if self.weighted else None


@dataclass(frozen=True, slots=True)
class _FittedPolicy:
    """A policy trained on a certain amount of a half."""

    policy: str
    budget: float
    problems: int
    samples: int
    repeat: int

    def __call__(self, half: _Half) -> tuple[Floats, Floats]:
        train = half.training_ballots(self.problems, self.samples, self.repeat)
        return _POINT_MAKERS[self.policy](half, self.budget, train)


class _AmountFinder:
    """Measures amounts, each once."""

    def __init__(self, halves: Sequence[_Half], budget: float, draws: Bootstrap) -> None:
        self.halves, self.budget, self.draws = halves, budget, draws
        self._cache: dict[tuple[str, int, int], TrainingAmount] = {}
        self._uniform = self._pool_halves(_uniform_points)

    def uniform_at(self, cost: float) -> Floats:
        """Each problem's part in the uniform accuracy at an average cost, (problems,)."""
        mix = match_cost(self._uniform, cost)
        assert mix is not None  # a cost is at least 1, and one sample is among the settings
        return mix.each

    def find_amount(self, policy: str, problems: int, samples: int) -> TrainingAmount:
        """A policy trained on this amount, at the budget."""
        key = (policy, problems, samples)
        if key not in self._cache:
            self._cache[key] = self._measure_amount(*key)
        return self._cache[key]

    def _measure_amount(self, policy: str, problems: int, samples: int) -> TrainingAmount:
        available = min(len(half.train) for half in self.halves)
        repeats = 2 if 0 < problems <= _REPEAT_UP_TO and 2 * problems <= available else 1
        runs = [
            self._pool_halves(_FittedPolicy(policy, self.budget, problems, samples, repeat))
            for repeat in range(repeats)
        ]
        points = PolicyPoints(
            cost=np.mean([run.cost for run in runs], axis=0),
            accuracy=np.mean([run.accuracy for run in runs], axis=0),
        )
        mix = match_cost(points, self.budget)
        assert mix is not None
        return TrainingAmount(
            policy=policy,
            problems=problems,
            samples=samples,
            cost=mix.cost,
            accuracy=self.draws.interval(mix.each),
            gain=self.draws.difference(mix.each, self.uniform_at(max(1.0, mix.cost))),
        )

    def _pool_halves(self, points: Callable[[_Half], tuple[Floats, Floats]]) -> PolicyPoints:
        """Pool both halves: each problem's numbers are those of the half that it was judged in."""
        parts = [points(half) for half in self.halves]
        pooled = np.empty((2, len(parts[0][0]), sum(len(half.test) for half in self.halves)))
        for half, part in zip(self.halves, parts, strict=True):
            pooled[:, :, half.test] = part
        return PolicyPoints(cost=pooled[0], accuracy=pooled[1])


def _uniform_points(half: _Half) -> tuple[Floats, Floats]:
    counts = range(1, half.longest + 1)
    policies = [FixedPolicy(float(n), budgets=counts, longest=half.longest, weigh=half.weigh) for n in counts]
    return half.points(policies, [None])


def _stopping_points(half: _Half, budget: float, train: Ballots) -> tuple[Floats, Floats]:  # noqa: ARG001
    longest = min(half.longest, int(train.drawn.min(initial=half.longest)))
    policy = StoppingPolicy(weigh="auto" if half.weighted else None, longest=longest).copy_without(
        half.ballots
    )
    return half.points([policy.fit(train) if len(train) else policy], _PRICES)


def _classifier_points(half: _Half, budget: float, train: Ballots) -> tuple[Floats, Floats]:
    longest = min(half.longest, int(train.drawn.min()))
    weigh = fit_confidence_weights(train) if half.weighted else None
    single: Policy = FixedPolicy(1.0, longest=longest, weigh=weigh)
    classifiers = [
        ClassifierPolicy(longest=longest, weigh=weigh).fit(train, budget=min(asked, float(longest)))
        for asked in (budget, _ABOVE_BUDGET * budget)
    ]
    return half.points([single, *classifiers], [None])


_POINT_MAKERS: dict[str, Callable[[_Half, float, Ballots], tuple[Floats, Floats]]] = {
    "stopping": _stopping_points,
    "classifier": _classifier_points,
}


def _cut_samples(ballots: Ballots, samples: int) -> Ballots:
    """The first samples of each problem."""
    return replace(ballots, **{name: getattr(ballots, name)[:, :samples] for name in ballots.sample_arrays})


def draw_data_efficiency(result: DataEfficiency, *, key: str = "growth") -> Picture:
    """By number of problems, and by samples of each, at one average cost."""
    with Canvas(key, columns=2, height=3.7, sharey=True, width_ratios=(1.25, 1)) as canvas:
        first, second = canvas.axes
        first.set_title("a  by problems learned from")
        second.set_title("b  by samples of each")
        for ax, by in ((first, "problems"), (second, "samples")):
            counts = sorted(
                {getattr(amount, by) for policy in _POLICIES for amount in result.get(policy, by=by)}
            )
            _draw_uniform(canvas, ax, result, len(counts) - 1)
            for policy in _POLICIES:
                _draw_line(canvas, ax, result.get(policy, by=by), counts, by)
            ax.set_xlim(-0.25, len(counts) - 0.9)
            set_ticks(ax.xaxis, range(len(counts)))
            ax.set_xticks(range(len(counts)), ["none" if count == 0 else str(count) for count in counts])
        ends = [_end_label(result.get(policy, by="samples"), policy) for policy in _POLICIES]
        place = max(0, len({amount.samples for amount in result.by_samples}) - 1)
        uniform = (float(place), result.uniform.mean, "uniform", colour("ink"))
        canvas.label_ends(second, [(place, y, name, tint) for y, name, tint in ends] + [uniform])
        first.set_xlabel(f"problems, {result.most} samples of each")
        second.set_xlabel(f"samples of each, {result.fixed_problems} problems")
        set_accuracy_axis(first, f"accuracy at {result.budget:g} samples")
        svg = canvas.svg()
    return Picture(
        key=key,
        title="What must be recorded",
        protocol=(
            "Held-out: learned from one half of the problems, judged on the other, both ways; all at exactly "
            f"{result.budget:g} samples on average, {result.orders} orders, "
            f"{'weighted' if result.weighted else 'plain'} votes. Bars: 95% intervals over problems of the "
            "difference to uniform."
        ),
        svg=svg,
        alt=" ".join(_describe_policy(result, policy) for policy in _POLICIES),
        caption=(
            "Uniform: the same for every problem. With no problem learned from, stopping decides by the "
            "prior that comes with the package, which has seen none of these prompts."
        ),
        data=to_plain(
            {
                "budget": result.budget,
                "uniform": result.uniform,
                "by_problems": [_amount_data(amount) for amount in result.by_problems],
                "by_samples": [_amount_data(amount) for amount in result.by_samples],
            }
        ),
    )


def _draw_uniform(canvas: Canvas, ax: "Axes", result: DataEfficiency, last: int) -> None:
    style, value = policy_style("fixed"), result.uniform.mean
    ax.plot([-0.25, last], [value, value], color=colour(style.colour), linestyle=style.line, linewidth=1.3)
    canvas.mark(ax, -0.15, result.uniform.mean, f"uniform: {100 * result.uniform.mean:.1f}%")


def _draw_line(
    canvas: Canvas, ax: "Axes", amounts: Sequence[TrainingAmount], counts: Sequence[int], by: str
) -> None:
    if not amounts:
        return
    tint = colour(policy_style(amounts[0].policy).colour)
    places = [counts.index(getattr(amount, by)) for amount in amounts]
    ax.plot(
        places, [amount.accuracy.mean for amount in amounts], color=tint, marker="o", markersize=4.5, mew=0
    )
    for place, amount in zip(places, amounts, strict=True):
        if amount.gain.low is not None and amount.gain.high is not None:
            base = amount.accuracy.mean - amount.gain.mean  # uniform's accuracy
            ax.plot(
                [place, place],
                [base + amount.gain.low, base + amount.gain.high],
                color=tint,
                linewidth=1.5,
                alpha=0.5,
            )
        learned = (
            f"{amount.problems} problems × {amount.samples} samples" if amount.problems else "nothing learned"
        )
        gain = f"{100 * amount.gain.mean:+.1f} points over uniform"
        if amount.gain.low is not None and amount.gain.high is not None:
            gain += f" ({100 * amount.gain.low:+.1f} to {100 * amount.gain.high:+.1f})"
        text = f"{amount.policy}, {learned}: {100 * amount.accuracy.mean:.1f}%, {gain}"
        canvas.mark(ax, place, amount.accuracy.mean, text)


def _end_label(amounts: Sequence[TrainingAmount], policy: str) -> tuple[float, str, str]:
    return amounts[-1].accuracy.mean, policy, colour(policy_style(policy).colour)


def _describe_policy(result: DataEfficiency, policy: str) -> str:
    amounts = result.get(policy, by="problems")
    return (
        f"{policy}: {amounts[0].accuracy.mean:.1%} with {amounts[0].problems} problems, "
        f"{amounts[-1].accuracy.mean:.1%} with {amounts[-1].problems}."
    )


def _amount_data(amount: TrainingAmount) -> dict[str, Any]:
    return {
        "policy": amount.policy,
        "problems": amount.problems,
        "samples": amount.samples,
        "cost": amount.cost,
        "accuracy": amount.accuracy,
        "gain": amount.gain,
    }


def build_section(pool: ScoredPool, *, seed: int = 0) -> Section:
    """Stopping and the classifier by problems trained on, and by samples of each."""
    result = measure_data_efficiency(pool, seed=seed)
    return Section(
        key="growth",
        title="What must be recorded",
        words=_write_words(result),
        tables=(build_amounts_table(result),),
        pictures=(draw_data_efficiency(result),),
        missing=_missing_parts(result),
    )


def build_amounts_table(result: DataEfficiency) -> Table:
    """A row for each amount; an amount that occurs in both series stands once."""
    amounts: dict[tuple[str, int, int], TrainingAmount] = {}
    for amount in (*result.by_problems, *result.by_samples):
        amounts.setdefault((amount.policy, amount.problems, amount.samples), amount)
    rows: list[tuple[Cell, ...]] = [
        (amount.policy, amount.problems, amount.samples, amount.cost, amount.accuracy, amount.gain)
        for amount in amounts.values()
    ]
    return Table(
        key="growth",
        title=f"Accuracy at {result.budget:g} samples on average by what was recorded",
        protocol=(
            "Held-out: learned from one half of the problems, judged on the other, both ways; "
            f"{result.orders} orders, {'weighted' if result.weighted else 'plain'} votes; 95% intervals over "
            "problems."
        ),
        columns=(
            Column(name="policy"),
            Column(name="problems", kind="count", about="learned from; 0: the bundled prior as it is"),
            Column(name="samples of each", kind="count"),
            Column(name="cost", kind="number", about="samples on average"),
            Column(name="accuracy", kind="share"),
            Column(name="over uniform", kind="points", about="points, at the same cost"),
        ),
        rows=tuple(rows),
    )


def _write_words(result: DataEfficiency) -> tuple[str, ...]:
    stopping, classifier = (result.get(policy, by="problems") for policy in ("stopping", "classifier"))
    first = (
        f"At {result.budget:g} samples on average, stopping with nothing learned from this pool is "
        f"{format_gains([stopping[0].gain])} from uniform, "
        f"and {format_gains([stopping[-1].gain])} with {stopping[-1].problems} problems; "
        f"{_describe_threshold(stopping)}."
    )
    second = (
        f"The classifier is {format_gains([classifier[0].gain])} from uniform "
        f"with {classifier[0].problems} problems and "
        f"{format_gains([classifier[-1].gain])} with {classifier[-1].problems}; "
        f"{_describe_threshold(classifier)}."
    )
    by_samples = [result.get(policy, by="samples") for policy in ("stopping", "classifier")]
    third = " ".join(_describe_fewer_samples(own, result) for own in by_samples if len(own) > 1)
    return tuple(words for words in (first, second, third) if words)


def _describe_threshold(amounts: Sequence[TrainingAmount]) -> str:
    """From how many problems on it is clearly above uniform."""
    clear = [_is_clearly_above(amount.gain) for amount in amounts]
    last = max((at for at, so in enumerate(clear) if not so), default=-1)
    if last == len(amounts) - 1:
        return "it isn't clearly above uniform"
    count = amounts[last + 1].problems
    return (
        f"it is clearly above uniform from {count} problems on"
        if count
        else "it is clearly above from the start"
    )


def _is_clearly_above(gain: Interval) -> bool:
    return gain.low is not None and gain.low > 0


def _describe_fewer_samples(amounts: Sequence[TrainingAmount], result: DataEfficiency) -> str:
    few, many = amounts[0], amounts[-1]
    return (
        f"With {result.fixed_problems} problems learned from, {few.samples} "
        f"samples of each instead of {many.samples} "
        f"change the accuracy of {few.policy} by {format_points([few.accuracy.mean - many.accuracy.mean])}."
    )


def _missing_parts(result: DataEfficiency) -> tuple[str, ...]:
    missing = []
    if len(result.get("stopping", by="samples")) < 2:
        missing.append(
            f"by samples of each: {result.most} of each problem are too few to leave some out; collect more"
        )
    if len(result.get("classifier", by="problems")) < 2:
        missing.append("by problems learned from: there are too few to learn from fewer; collect more")
    return tuple(missing)
