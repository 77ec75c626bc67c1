"""Output tokens per request, of each policy and of uniform sampling: numbers and words."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.comparison import (
    MatchedCost,
    PolicyPoints,
    PolicyResult,
    basis_name,
    find_least_cost,
    match_cost,
    trace_hull,
)
from adacompute.evaluate.conclusions import EvaluationRuns, make_bootstrap
from adacompute.evaluate.measure import OURS, UNIFORM, Basis
from adacompute.evaluate.resampling import Bootstrap, Interval, make_interval
from adacompute.pool.ballots import ABSENT
from adacompute.report.document import Cell, Column, Section, Table
from adacompute.report.theme import policy_style

Floats = npt.NDArray[np.float64]

_DRAWS = 500  # problems drawn again; each draw needs its own hull
_TAIL = 0.025  # share of the draws above a 95% interval
_TITLE = "Cost in tokens"
_NO_TOKENS = (
    "tokens: not every sample has its output tokens recorded, so cost is in samples alone; record tokens "
    "(collect does) to see them"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSpending:
    """One policy at exactly one average number of samples."""

    policy: str
    budget: float
    samples: float  # per request: the budget, or less where its best setting costs less
    tokens: Interval  # a request
    accuracy: float
    same: float | None  # tokens of uniform sampling with the same accuracy; None: more than there are
    saved: Interval | None  # share of those; None for uniform itself, or where it isn't known
    open_end: bool  # more may be saved: in some draws uniform is never as accurate
    length: Interval  # its samples' length, relative to the average sample


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUse:
    """The token use of every policy."""

    per_sample: float  # output tokens, mean over problems
    rows: tuple[TokenSpending, ...]
    basis: Basis

    def get(self, policy: str, budget: float) -> TokenSpending | None:
        return next((row for row in self.rows if (row.policy, row.budget) == (policy, budget)), None)


def _problem_tokens(runs: EvaluationRuns) -> Floats | None:
    """Mean output tokens of a sample of each problem, (problems,)."""
    ballots = runs.setup.ballots
    present = ballots.classes != ABSENT
    if not np.isfinite(ballots.tokens[present]).all():
        return None
    return np.asarray(np.where(present, ballots.tokens, 0.0).sum(axis=1) / present.sum(axis=1))


def has_tokens(runs: EvaluationRuns) -> bool:
    """Whether tokens are recorded for every sample."""
    tokens = _problem_tokens(runs)
    return tokens is not None and runs.get(UNIFORM).point_tokens is not None and tokens.mean() > 0


def measure_tokens(runs: EvaluationRuns) -> TokenUse | None:
    """Token use of every policy; None where tokens aren't recorded for every sample."""
    problem_tokens = _problem_tokens(runs)
    if problem_tokens is None or not has_tokens(runs):
        return None
    tokens_by_policy = {
        result.name: result.point_tokens for result in runs.everyone if result.point_tokens is not None
    }
    setup = runs.setup
    boot = make_bootstrap(setup)
    uniform_result = runs.get(UNIFORM)
    uniform_points = PolicyPoints(cost=tokens_by_policy[UNIFORM], accuracy=uniform_result.points.accuracy)
    uniform = _UniformTokens(uniform_points, boot.shares[:_DRAWS])
    rows = [
        row
        for result in runs.everyone
        for budget in setup.budgets
        if (
            row := _measure_spending(
                result,
                budget,
                tokens_by_policy[result.name],
                uniform,
                boot,
                problem_tokens,
                is_uniform=result is uniform_result,
            )
        )
        is not None
    ]
    return TokenUse(
        per_sample=float(problem_tokens.mean()),
        rows=tuple(rows),
        basis=setup.basis,
    )


class _UniformTokens:
    """Uniform sampling by tokens: over all problems, and in each draw of them."""

    def __init__(self, points: PolicyPoints, shares: Floats) -> None:
        self.shares = shares if points.cost.shape[1] > 1 else shares[:0]
        self.overall = points.curve()
        draws = zip(self.shares @ points.cost.T, self.shares @ points.accuracy.T, strict=True)
        self.by_draw = [trace_hull(cost, accuracy) for cost, accuracy in draws]


def _measure_spending(
    result: PolicyResult,
    budget: float,
    tokens: Floats,
    uniform: _UniformTokens,
    boot: Bootstrap,
    problem_tokens: Floats,
    *,
    is_uniform: bool,
) -> TokenSpending | None:
    mix = match_cost(result.points, budget)
    if mix is None:
        return None
    tokens_spent = _tokens_at_cost(mix, result.points.cost, tokens)
    same = find_least_cost(uniform.overall, mix.accuracy)
    saved, open_end = None, False
    if not is_uniform and math.isfinite(same):
        saved, open_end = _compute_saving(mix, tokens_spent, same, uniform)
    uniform_average = mix.cost * problem_tokens  # (problems,) tokens of as many uniform samples
    longer = boot.means(tokens_spent) / boot.means(uniform_average) if len(problem_tokens) > 1 else None
    return TokenSpending(
        policy=result.name,
        budget=budget,
        samples=mix.cost,
        tokens=boot.interval(tokens_spent),
        accuracy=mix.accuracy,
        same=same if math.isfinite(same) else None,
        saved=saved,
        open_end=open_end,
        length=make_interval(float(tokens_spent.mean() / uniform_average.mean()), longer),
    )


def _tokens_at_cost(mix: MatchedCost, cost: Floats, tokens: Floats) -> Floats:
    """Each problem's part in the tokens at that cost, (problems,), as `MatchedCost.each` is for accuracy."""
    (low, high), share = mix.settings, mix.probability
    mixed, spent = ((1 - share) * values[low] + share * values[high] for values in (tokens, cost))
    cost_step = float((cost[high] - cost[low]).mean())
    tokens_per_cost = (
        float((tokens[high] - tokens[low]).mean()) / cost_step if cost_step > 0 and mix.price else 0.0
    )
    return np.asarray(mixed - tokens_per_cost * (spent - mix.cost))


def _compute_saving(
    mix: MatchedCost, tokens_spent: Floats, same: float, uniform: _UniformTokens
) -> tuple[Interval, bool]:
    """The share saved, and whether its upper end is only a lower bound."""
    mean = 1 - float(tokens_spent.mean()) / same
    if not len(uniform.by_draw):
        return Interval(mean=mean, low=None, high=None), False
    needs = np.array(
        [
            find_least_cost(own, wanted)
            for wanted, own in zip(uniform.shares @ mix.each, uniform.by_draw, strict=True)
        ]
    )
    largest = np.array([cost[-1] for cost, _ in uniform.by_draw])  # the cost of uniform at its best
    interval = make_interval(mean, 1 - (uniform.shares @ tokens_spent) / np.minimum(needs, largest))
    return interval, float(np.isinf(needs).mean()) > _TAIL


def build_section(runs: EvaluationRuns) -> Section:
    """The tokens of each policy, and what it saves against uniform sampling of the same accuracy."""
    tokens = measure_tokens(runs)
    if tokens is None:
        return Section(key="tokens", title=_TITLE, missing=(_NO_TOKENS,))
    return Section(
        key="tokens",
        title=_TITLE,
        words=_write_words(tokens),
        tables=(_build_table(tokens),),
    )


def _write_words(tokens: TokenUse) -> tuple[str, ...]:
    first = f"A sample has {tokens.per_sample:,.0f} output tokens on average."
    ours = [row for row in tokens.rows if row.policy == OURS]
    if not ours:
        return (first,)
    middle = ours[len(ours) // 2]
    second = (
        f"At {middle.budget:g} samples on average those that stopping draws are {_describe_length(middle)}"
    )
    savings = [(row, row.saved) for row in ours if row.saved is not None]
    if not savings:
        return f"{first} {second}.", f"No uniform number of samples has the same {basis_name(tokens.basis)}."
    best, saved = max(savings, key=lambda pair: pair[1].mean if pair[1].low is None else pair[1].low)
    ends = ""
    if saved.low is not None and saved.high is not None:
        ends = f" (95% interval {saved.low:.0%} to {saved.high:.0%}{' or more' if best.open_end else ''})"
    head = f"Against uniform samples of the same {basis_name(tokens.basis)} it saves"
    if saved.holds_zero:
        return (
            f"{first} {second}.",
            f"{head} nothing that is clear: {saved.mean:.0%} at {best.budget:g}{ends}.",
        )
    return (
        f"{first} {second}.",
        f"{head} {saved.mean:.0%} of the tokens at best, at {best.budget:g} on average{ends}.",
    )


def _describe_length(spending: TokenSpending) -> str:
    """How long the drawn samples are, compared with the average; the reason only where the
    difference is clear.
    """
    length = spending.length
    if length.low is None or length.high is None or length.low <= 1.0 <= length.high:
        return "not clearly longer or shorter than the average one"
    ends = f"(95% interval {length.low - 1:+.0%} to {length.high - 1:+.0%})"
    longer, kind = ("longer", "long") if length.mean > 1 else ("shorter", "short")
    return (
        f"{abs(length.mean - 1):.0%} {longer} than the average one {ends}: it draws more of the problems "
        f"whose answers are {kind}"
    )


def _build_table(tokens: TokenUse) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (policy_style(row.policy).name, row.budget, row.accuracy, row.tokens, row.same, row.saved)
        for row in tokens.rows
    ]
    return Table(
        key="tokens",
        title="Output tokens a request",
        protocol="held-out, at exactly so many samples on average",
        columns=(
            Column(name="policy"),
            Column(name="samples on average", kind="amount"),
            Column(name=basis_name(tokens.basis), kind="share"),
            Column(name="tokens", kind="count", about="output tokens a request, 95% interval over problems"),
            Column(name="uniform needs", kind="count", about="output tokens for the same accuracy"),
            Column(name="tokens saved", kind="percent", about="of those; 95% interval"),
        ),
        rows=tuple(rows),
        note=(
            "Blank: uniform is never as accurate; where that holds only in some draws of problems, what is "
            "saved counts there against the most it writes, and may be more. Below 0% uniform writes less."
        ),
        bold=tuple(at for at, row in enumerate(rows) if row[0] == policy_style(OURS).name),
    )
