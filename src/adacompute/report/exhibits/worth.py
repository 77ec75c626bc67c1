"""When routing pays and when it doesn't, and how many samples each policy needs: numbers, figure
and words.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.comparison import (
    UNREACHABLE,
    Evaluation,
    Match,
    PolicyPoints,
    Verdict,
    basis_name,
    find_least_cost,
    trace_hull,
)
from adacompute.evaluate.conclusions import EvaluationRuns, make_bootstrap
from adacompute.evaluate.measure import UNIFORM, Basis
from adacompute.evaluate.resampling import Interval, make_interval
from adacompute.report.canvas import Canvas, set_samples_axis
from adacompute.report.document import (
    Cell,
    Column,
    Picture,
    Section,
    Table,
    format_gains,
    join_words,
    to_plain,
)
from adacompute.report.theme import colour, policy_style
from adacompute.score.grades import grade_samples

Floats = npt.NDArray[np.float64]

DECIDE_BEFOREHAND = ("heuristic", "classifier", "curve")  # decide by the prompt, and perhaps the first sample
RANDOM_POLICIES = ("random", "shuffled")  # decide at random: for comparison
_SMALLEST_CHANGE = 0.02  # a smaller change of accuracy doesn't count
_DRAWS = 500  # problems drawn again; each draw needs its own hulls
_TOLERANCE = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMakeup:
    """Shares of the problems by what more samples do for them."""

    always: float  # every recorded sample is right
    never: float  # none is
    rises: float  # the vote of the most samples is right more often than one sample
    falls: float  # less often
    samples: int  # the most


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetStanding:
    """One budget: the policies clearly above uniform at the same cost, those clearly below, and the rest."""

    budget: float
    above: tuple[Match, ...]  # the best first
    level: tuple[Match, ...]
    below: tuple[Match, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """Standings at every budget, and the make-up of the problems."""

    rows: tuple[BudgetStanding, ...]
    makeup: PoolMakeup | None  # None without grades

    @property
    def pays(self) -> tuple[float, ...]:
        """Budgets at which some policy is above uniform."""
        return tuple(row.budget for row in self.rows if row.above)


def assess_worth(runs: EvaluationRuns, evaluation: Evaluation) -> Worth:
    """Assess every policy except the random ones."""
    rows, names = [], {each.name for each in runs.everyone} - set(RANDOM_POLICIES)
    for budget in runs.setup.budgets:
        matches = [match for match in evaluation.matched if match.budget == budget and match.policy in names]
        matches.sort(key=lambda match: -match.accuracy)
        gains = [(match, match.gain) for match in matches if match.gain is not None]
        above = tuple(match for match, gain in gains if (gain.low or 0.0) > 0)
        below = tuple(match for match, gain in gains if (gain.high or 0.0) < 0)
        level = tuple(match for match, _ in gains if match not in above and match not in below)
        rows.append(BudgetStanding(budget=budget, above=above, level=level, below=below))
    graded = runs.setup.basis == "accuracy"
    return Worth(rows=tuple(rows), makeup=_measure_makeup(runs) if graded else None)


def _measure_makeup(runs: EvaluationRuns) -> PoolMakeup:
    uniform = runs.get(UNIFORM).points  # exact after `reduce_order_noise`
    by_cost = np.argsort(uniform.cost.mean(axis=1), kind="stable")
    single, most = uniform.accuracy[by_cost[0]], uniform.accuracy[by_cost[-1]]  # (problems,) both
    grade = grade_samples(runs.setup.ballots)  # (problems, samples)
    has_grade = np.isfinite(grade)
    return PoolMakeup(
        always=float((np.where(has_grade, grade, 1.0).min(axis=1) >= 1.0).mean()),
        never=float((np.where(has_grade, grade, 0.0).max(axis=1) <= 0.0).mean()),
        rises=float((most - single > _SMALLEST_CHANGE).mean()),
        falls=float((single - most > _SMALLEST_CHANGE).mean()),
        samples=runs.setup.longest,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyNeed:
    """What one policy needs; infinite: it is never accurate enough."""

    policy: str
    samples: Interval  # ends may be infinite
    reached: float  # share of the draws in which it is accurate enough
    most: float  # samples on average of its most accurate setting


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededSamples:
    """Every policy, against the accuracy of `target` samples for every problem."""

    target: int  # samples
    accuracy: Interval  # that they give
    weighted: bool  # whether votes were
    basis: Basis
    rows: tuple[PolicyNeed, ...]  # the cheapest first

    def get(self, policy: str) -> PolicyNeed | None:
        return next((row for row in self.rows if row.policy == policy), None)


def find_needed_samples(runs: EvaluationRuns) -> NeededSamples:
    """Samples each policy needs for the accuracy of the most samples; both are recomputed in each draw."""
    setup, uniform = runs.setup, runs.get(UNIFORM).points
    boot = make_bootstrap(setup)
    most_accurate = uniform.accuracy[int(uniform.cost.mean(axis=1).argmax())]  # (problems,)
    shares = boot.shares[:_DRAWS] if len(most_accurate) > 1 else boot.shares[:0]
    targets = np.append(shares @ most_accurate, most_accurate.mean())  # the last one is over all problems
    longest = float(setup.longest)
    rows = [
        _find_need(result.name, result.points, shares, targets, longest=longest) for result in runs.everyone
    ]
    return NeededSamples(
        target=setup.longest,
        accuracy=boot.interval(most_accurate),
        weighted=setup.weighted,
        basis=setup.basis,
        rows=tuple(sorted(rows, key=lambda row: row.samples.mean)),
    )


def _find_need(
    policy: str, points: PolicyPoints, shares: Floats, targets: Floats, *, longest: float
) -> PolicyNeed:
    whole = np.full((1, points.cost.shape[1]), 1 / points.cost.shape[1])
    draws = np.concatenate([shares, whole])
    cost, accuracy = draws @ points.cost.T, draws @ points.accuracy.T  # (draws + 1, settings)
    needed = np.array(
        [
            find_least_cost(trace_hull(costs, values), target)
            for costs, values, target in zip(cost, accuracy, targets, strict=True)
        ]
    )
    mean, by_draw = float(needed[-1]), needed[:-1]
    if not len(by_draw):
        samples = Interval(mean=mean, low=None, high=None)
    else:
        ends = make_interval(mean, np.minimum(by_draw, UNREACHABLE))
        # an end beyond the longest lies between draws that reach the target and draws that don't
        low, high = (
            math.inf if end is None or end > longest + _TOLERANCE else end for end in (ends.low, ends.high)
        )
        samples = Interval(mean=mean, low=low, high=high)
    reached = float(np.isfinite(by_draw).mean()) if len(by_draw) else float(math.isfinite(mean))
    return PolicyNeed(policy=policy, samples=samples, reached=reached, most=float(points.curve()[0][-1]))


def draw_needed_samples(needed: NeededSamples, *, key: str = "needed") -> Picture:
    """A row for each policy, the fewest samples on top; policies that never get there say so."""
    rows = list(needed.rows)
    with Canvas(key, height=0.9 + 0.3 * len(rows)) as canvas:
        ax = canvas.axes[0]
        for at, need in enumerate(rows):
            tint = colour(policy_style(need.policy).colour)
            mean = need.samples.mean
            if not math.isfinite(mean):
                ax.annotate(
                    _describe_miss(need), (1.0, at), xytext=(2, 0), textcoords="offset points", va="center",
                    color=colour("dim"), fontsize=8.5,
                )  # fmt: skip
                canvas.mark(ax, 1.05, at, _describe_need(need, needed))
                continue
            low, high = (
                mean if end is None else min(end, float(needed.target))
                for end in (need.samples.low, need.samples.high)
            )
            ax.plot([low, high], [at, at], color=tint, linewidth=1.6, zorder=2)
            ax.plot([mean], [at], marker="o", markersize=7, color=tint, zorder=3)
            canvas.mark(ax, mean, at, _describe_need(need, needed))
        set_samples_axis(ax, needed.target, "samples a request, on average")
        ax.axvline(needed.target, color=colour("ink"), linewidth=1.2, linestyle="--", zorder=1)
        ax.set_yticks(range(len(rows)), [policy_style(row.policy).name for row in rows])
        for label, need in zip(ax.get_yticklabels(), rows, strict=True):
            label.set_color(colour(policy_style(need.policy).colour))
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ax.grid(visible=False, axis="y")
        svg = canvas.svg()
    what = basis_name(needed.basis)
    return Picture(
        key=key,
        title=f"Samples needed for the {what} of {needed.target} samples each",
        protocol="held-out, each policy on the hull of its own settings",
        svg=svg,
        alt="; ".join(_describe_need(row, needed) for row in rows),
        caption=(
            f"Uniform with {needed.target} samples each: {needed.accuracy.mean:.1%}. Lines are 95% intervals "
            "over problems; in each draw of problems the target is computed again."
        ),
        data=to_plain(
            {
                "target": needed.target,
                "accuracy": needed.accuracy,
                "samples": {row.policy: row.samples for row in rows},
                "most": {row.policy: row.most for row in rows},
            }
        ),
    )


def _describe_miss(need: PolicyNeed) -> str:
    return f"not reached, with up to {need.most:.1f} samples on average"


def _describe_need(need: PolicyNeed, needed: NeededSamples) -> str:
    name = policy_style(need.policy).name
    if not math.isfinite(need.samples.mean):
        return f"{name}: {_describe_miss(need)}"
    ends = _format_ends(need.samples, needed.target)
    return f"{name}: {need.samples.mean:.1f} samples{ends and f' ({ends})'}"


def build_section(runs: EvaluationRuns, evaluation: Evaluation) -> Section:
    """Words for each budget, the problems' make-up, and the samples needed for the accuracy of the most."""
    worth, needed = assess_worth(runs, evaluation), find_needed_samples(runs)
    words = [
        f"{_describe_budgets(worth, evaluation.verdict)} {_describe_beforehand(worth)}".strip(),
        _describe_needs(needed),
    ]
    if worth.makeup is not None:
        words.insert(1, _describe_makeup(worth.makeup, worth))
    return Section(
        key="worth",
        title="When it is worth it",
        words=tuple(words),
        tables=(_standing_table(worth, evaluation), _build_needs_table(needed)),
        pictures=(draw_needed_samples(needed),),
    )


def _describe_budgets(worth: Worth, verdict: Verdict) -> str:
    """The verdict, and at which budgets any policy is above uniform by its own interval."""
    rest = [f"{row.budget:g}" for row in worth.rows if not row.above]
    alone = "each interval by itself, not corrected for looking at several policies and budgets"
    if not worth.pays:
        return (
            f"{verdict.sentence} At {join_words(rest)} samples on average no policy is clearly above "
            f"uniform ({alone})."
        )
    pays = join_words([f"{budget:g}" for budget in worth.pays])
    tail = f", at {join_words(rest)} none is" if rest else ""
    return (
        f"{verdict.sentence} At {pays} samples on average some policy is clearly above uniform{tail} "
        f"({alone})."
    )


def _standing_table(worth: Worth, evaluation: Evaluation) -> Table:
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (row.budget, *(_list_policies(some) for some in (row.above, row.level, row.below)))
        for row in worth.rows
    )
    return Table(
        key="standing",
        title="Who is above uniform",
        protocol=f"held-out, {evaluation.folds} folds, at exactly so many samples on average",
        columns=(
            Column(name="samples on average", kind="amount"),
            Column(name="clearly above", about="points over uniform; its own 95% interval is above zero"),
            Column(name="no clear difference", about="the interval holds zero"),
            Column(name="clearly below"),
        ),
        rows=rows,
        note="Points over uniform at the same cost, the best first; random ones are left out.",
    )


def _describe_beforehand(worth: Worth) -> str:
    """Whether it pays to decide before votes are seen."""
    better: dict[str, list[str]] = {}
    for row in worth.rows:
        for match in row.above:
            if match.policy in DECIDE_BEFOREHAND:
                better.setdefault(match.policy, []).append(f"{row.budget:g}")
    if better:
        names = join_words([f"{policy_style(name).name} at {join_words(at)}" for name, at in better.items()])
        return f"Deciding beforehand is enough to be clearly above it for {names}."
    candidates = [
        match for row in worth.rows for match in (*row.level, *row.below) if match.policy in DECIDE_BEFOREHAND
    ]
    if not candidates:
        return ""
    best = max(candidates, key=lambda match: match.gain.mean if match.gain else -1.0)
    gain = format_gains([best.gain]) if best.gain else ""
    return (
        f"Deciding beforehand is no better than uniform here: at best {policy_style(best.policy).name} at "
        f"{best.budget:g}, {gain}."
    )


def _describe_makeup(makeup: PoolMakeup, worth: Worth) -> str:
    text = (
        f"Of the problems, {makeup.always:.0%} are right in every recorded sample and {makeup.never:.0%} in "
        f"none: more samples change nothing there. A vote of {makeup.samples} is right more often than one "
        f"sample, by over 2 points, on {makeup.rises:.0%} of the problems, and less often on "
        f"{makeup.falls:.0%}."
    )
    if not worth.pays and makeup.rises < 0.2:
        text += " With so few problems that voting helps there is little to gain by deciding who gets more."
    return text


def _describe_needs(needed: NeededSamples) -> str:
    what = basis_name(needed.basis)
    reached = [row for row in needed.rows if math.isfinite(row.samples.mean) and row.policy != UNIFORM]
    votes = "weighted" if needed.weighted else "plain"
    head = f"For the {what} of {needed.target} samples each ({needed.accuracy.mean:.1%}, {votes} votes)"
    never = [policy_style(row.policy).name for row in needed.rows if not math.isfinite(row.samples.mean)]
    tail = f" Not reached at any setting tried: {join_words(never)}." if never else ""
    if not reached:
        return f"{head} no policy needs less.{tail}"
    needs = []
    for row in reached:
        ends = _format_ends(row.samples, needed.target)
        interval = ends and f" (95% interval {ends})"
        needs.append(f"{policy_style(row.policy).name} needs {row.samples.mean:.1f}{interval}")
    return f"{head}, {join_words(needs)} on average.{tail}"


def _format_ends(interval: Interval, longest: int) -> str:
    if interval.low is None or interval.high is None:
        return ""
    high = f"{interval.high:.1f}" if math.isfinite(interval.high) else f"more than {longest}"
    return f"{interval.low:.1f} to {high}"


def _build_needs_table(needed: NeededSamples) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for need in needed.rows:
        reached = math.isfinite(need.samples.mean)
        rows.append(
            (
                policy_style(need.policy).name,
                need.samples if reached else None,
                1 - need.samples.mean / needed.target if reached and need.policy != UNIFORM else None,
                need.reached,
                need.most,
            )
        )
    return Table(
        key="needed",
        title=f"Samples needed for the {basis_name(needed.basis)} of {needed.target} samples each",
        protocol="held-out, each policy on the hull of its own settings",
        columns=(
            Column(name="policy"),
            Column(name="samples needed", kind="number", about="on average, 95% interval over problems"),
            Column(name="samples saved", kind="share", about=f"of {needed.target} samples"),
            Column(name="reached", kind="share", about="of the draws of problems"),
            Column(name="most spent", kind="number", about="samples on average of its most accurate setting"),
        ),
        rows=tuple(rows),
        note="Blank: never so accurate, at any of the settings tried.",
    )


def _list_policies(matches: tuple[Match, ...]) -> str:
    gains = (f"{policy_style(m.policy).name} {100 * m.gain.mean:+.1f}" for m in matches if m.gain)
    return ", ".join(gains) or "–"
