"""The price for an average budget: the paper's bisection step by step, the exact solve, and cost by price.

Both searches work on the same table, the paper's windows, so that only the search differs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullLocator

from adacompute.records import AccuracyTable
from adacompute.report.canvas import colour
from adacompute.report.document import Column, Picture, Section, Table, to_plain
from adacompute.solve import averages, best_at, frontier, solve
from adacompute.solve.pricing import Trace
from studies.canvas import LabelledCanvas
from studies.paper.mechanism import (
    Mechanism,
    compute_mechanism,
    draw_mechanism,
    draw_price_axis,
    format_price,
)
from studies.paper.paper_pool import PaperPool

__all__ = [
    "TARGET_BUDGETS",
    "TOLERANCE",
    "BudgetSearch",
    "Staircases",
    "build_section",
    "compute_staircase",
    "compute_staircases",
    "describe_unreachable",
    "draw_staircase",
    "search_prices",
    "select_reachable",
]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Staircase:
    """Average cost by price: `cost[k]` from `price[k]` up to the next price; the last one without end."""

    price: Floats = field(repr=False)  # (stairs,) rising, from 0
    cost: Floats = field(repr=False)  # (stairs,) falling, samples on average

    def at(self, price: float) -> float:
        """The average cost at a price."""
        return float(self.cost[np.searchsorted(self.price, price, side="right") - 1])

    @property
    def free(self) -> float:
        """The average cost where samples cost nothing: no problem wants more."""
        return float(self.cost[0])

    @property
    def tallest(self) -> float:
        """The highest stair in samples on average: a single price can miss a budget by as much."""
        return float(-np.diff(self.cost).min(initial=0.0))

    def between(self, share: float) -> tuple[float, float]:
        """The prices between which the middle `share` of all the fall happens; both 0 where none does."""
        fall = self.cost[0] - self.cost
        if fall[-1] <= 0:
            return 0.0, 0.0
        ends = np.searchsorted(fall / fall[-1], [(1 - share) / 2, (1 + share) / 2])
        return float(self.price[ends[0]]), float(self.price[ends[1]])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Staircases:
    """The staircase of one recording, by both estimators of accuracy."""

    name: str
    windows: Staircase  # the paper's
    exact: Staircase  # over all subsets


def compute_staircase(table: AccuracyTable) -> Staircase:
    """Compute every stair of a table; ties go to the cheaper budget, as everywhere.

    >>> stairs = compute_staircase(AccuracyTable.of([[0.5, 0.9], [0.6, 0.8]], costs=[1, 2]))
    >>> stairs.price.round(3).tolist(), stairs.cost.tolist()
    ([0.0, 0.2, 0.4], [2.0, 1.5, 1.0])
    """
    curve = frontier(table)  # from the highest price down; the first is infinite
    price = np.append(curve.price[1:], 0.0)  # each vertex is left where the next edge begins to pay
    return Staircase(price=price[::-1].copy(), cost=curve.cost[::-1].copy())


def compute_staircases(case: PaperPool) -> Staircases:
    """Both staircases of a recording."""
    return Staircases(
        name=case.name, windows=compute_staircase(case.windows), exact=compute_staircase(case.exact)
    )


TARGET_BUDGETS = (1.5, 2.0, 3.0)  # the paper's average budgets
TOLERANCE = 0.05  # samples: how near the paper says that a single price comes
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BudgetSearch:
    """One average budget: what a single price reaches by bisection, and the exact solution."""

    budget: float  # samples on average, asked for
    price: float  # found by bisection on [0, 5] in 50 steps; 0: the budget isn't binding
    cost: float  # samples on average of that single price, not above the budget
    error: float  # |cost - budget|
    above: float | None  # the cost one stair up, above the budget; None: the budget isn't binding
    monotone: bool  # whether the cost never rose with the price, over all prices tried
    within: int | None  # steps until a price tried came within 0.05 of the budget; None: none did
    mixed: int  # problems that bisection has to mix, to meet the budget
    exact_price: float  # of the exact solve
    exact_cost: float  # samples on average of its deterministic choice
    mixed_cost: float  # with its one mixed problem
    accuracy: float  # of the deterministic choice
    bound: float  # which nothing within the budget passes
    trace: Trace = field(repr=False)  # of the bisection; no steps where the budget isn't binding

    @property
    def binding(self) -> bool:
        """Whether a larger budget would buy accuracy."""
        return self.above is not None

    @property
    def gap(self) -> float:
        """An upper bound on how far the deterministic choice is from the best possible."""
        return max(0.0, self.bound - self.accuracy)


def select_reachable(case: PaperPool, budgets: Sequence[float] = TARGET_BUDGETS) -> tuple[float, ...]:
    """Those average budgets that the pool has samples for."""
    return tuple(float(budget) for budget in budgets if budget <= case.budgets[-1])


def describe_unreachable(case: PaperPool, budgets: Sequence[float] = TARGET_BUDGETS) -> tuple[str, ...]:
    """Describe the average budgets that the pool has too few samples for, one line each."""
    return tuple(
        f"B = {budget:g}: some problem has too few samples for a budget above {case.budgets[-1]}; "
        "collect more samples of every problem"
        for budget in budgets
        if budget > case.budgets[-1]
    )


def search_price(table: AccuracyTable, budget: float) -> BudgetSearch:
    """Search the price for one average budget, by bisection and exactly."""
    result = solve(table, budget=budget, method="bisection")
    exact = solve(table, budget=budget)
    trace = result.trace
    assert trace is not None  # a bisection has one
    near = np.flatnonzero(np.abs(trace.cost - budget) <= TOLERANCE + _ROUNDING)
    return BudgetSearch(
        budget=float(budget),
        price=result.price,
        cost=result.cost,
        error=abs(result.cost - budget),
        above=_find_cost_above(compute_staircase(table), budget),
        monotone=_is_monotone(table, trace),
        within=int(near[0]) + 1 if len(near) else None,
        mixed=len(result.mix.problems),
        exact_price=exact.price,
        exact_cost=exact.cost,
        mixed_cost=exact.mixed_cost,
        accuracy=exact.accuracy,
        bound=exact.bound,
        trace=trace,
    )


def search_prices(case: PaperPool, budgets: Sequence[float] = TARGET_BUDGETS) -> tuple[BudgetSearch, ...]:
    """Search the price for each average budget that the pool can reach, on the paper's windows."""
    return tuple(search_price(case.windows, budget) for budget in select_reachable(case, budgets))


def _find_cost_above(stairs: Staircase, budget: float) -> float | None:
    dearer = stairs.cost[stairs.cost > budget * (1 + 1e-12)]
    return float(dearer.min()) if len(dearer) else None


def _is_monotone(table: AccuracyTable, trace: Trace) -> bool:
    """Whether the cost never rises with the price, at the prices tried and on a grid of others."""
    prices = np.unique(np.concatenate([trace.price, [0.0], np.geomspace(1e-4, 5.0, 60)]))
    costs = [averages(table, best_at(table, float(price)))[0] for price in prices]
    return bool((np.diff(costs) <= _ROUNDING).all())


_TINTS = ("blue", "orange", "purple", "green")
_STEPS = 25  # shown: by then every bracket is narrower than the line
_FLOOR = 1e-3  # of the residual's axis


def draw_search(searches: Sequence[BudgetSearch], stairs: Staircase, *, key: str = "search") -> Picture:
    """Brackets of price and cost, the residual, and the prices tried, for each binding average budget."""
    binding = [one for one in searches if one.binding]
    tints = [colour(_TINTS[at % len(_TINTS)]) for at in range(len(binding))]
    with LabelledCanvas(key, rows=2, columns=2, height=5.6) as canvas:
        prices, costs, residual, visited = canvas.axes
        _draw_prices(prices, binding, tints)
        _draw_costs(canvas, costs, binding, tints)
        _draw_residual(canvas, residual, binding, tints)
        _draw_visited(canvas, visited, binding, tints, stairs)
        for ax in (prices, costs, residual):
            ax.set_xlim(0.5, _STEPS + 0.5)
            ax.set_xticks([1, 5, 10, 15, 20, 25])
            ax.set_xlabel("step")
        svg = canvas.svg()
    return Picture(
        key=key,
        title="The bisection for the price",
        protocol="Bisection on [0, 5], 50 steps, on the paper's windows; the first 25 steps are shown.",
        svg=svg,
        alt=" ".join(_describe_search(one) for one in searches),
        caption=(
            "(a) The bracket of prices closes on one value (dashed: its lower end). (b) The costs at its "
            "two ends close on B only as far as the stairs allow; what stays shaded is slack. (c) The "
            f"residual of each price tried, with the tolerance {TOLERANCE:g} that the paper names. (d) The "
            "prices tried, on the staircase."
        ),
        data=to_plain({f"{one.budget:g}": _build_data(one) for one in searches}),
    )


def _draw_prices(ax: Axes, searches: Sequence[BudgetSearch], tints: Sequence[str]) -> None:
    ax.set_title("(a) bracket of λ")
    draw_price_axis(ax, 5.0 / 1.3, vertical=True, label=False)
    ax.set_ylabel("price λ")
    for budget_search, tint in zip(searches, tints, strict=True):
        steps = np.arange(1, len(budget_search.trace.low) + 1)
        ax.fill_between(steps, budget_search.trace.low, budget_search.trace.high, color=tint, alpha=0.12)
        ax.plot(steps, budget_search.trace.high, color=tint, linewidth=1.4)
        ax.plot(steps, budget_search.trace.low, color=tint, linewidth=1.4, linestyle="--")


def _draw_costs(
    canvas: LabelledCanvas, ax: Axes, searches: Sequence[BudgetSearch], tints: Sequence[str]
) -> None:
    ax.set_title("(b) cost at its ends")
    ax.set_ylabel("samples on average")
    for budget_search, tint in zip(searches, tints, strict=True):
        steps = np.arange(1, len(budget_search.trace.low) + 1)
        ax.fill_between(
            steps, budget_search.trace.cost_high, budget_search.trace.cost_low, color=tint, alpha=0.15
        )
        ax.plot(steps, budget_search.trace.cost_low, color=tint, linewidth=1.4, linestyle="--")
        ax.plot(steps, budget_search.trace.cost_high, color=tint, linewidth=1.4)
        ax.axhline(budget_search.budget, color=tint, linewidth=0.8, linestyle=":")
    ends = [
        (_STEPS + 0.5, one.budget, f"B = {one.budget:g}", tint)
        for one, tint in zip(searches, tints, strict=True)
    ]
    canvas.label_ends(ax, ends)


def _draw_residual(
    canvas: LabelledCanvas, ax: Axes, searches: Sequence[BudgetSearch], tints: Sequence[str]
) -> None:
    ax.set_title("(c) residual")
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_ylabel("|cost − B|, samples")
    for budget_search, tint in zip(searches, tints, strict=True):
        missed = np.abs(budget_search.trace.cost - budget_search.budget)[:_STEPS]
        steps = np.arange(1, len(missed) + 1)
        ax.plot(steps, np.maximum(missed, _FLOOR), color=tint, linewidth=1.4, marker="o", markersize=2.6)
        for step, much, price in zip(steps, missed, budget_search.trace.price, strict=False):
            text = (
                f"B = {budget_search.budget:g}, step {step}: λ = {format_price(float(price))}, off by "
                f"{much:.3f}"
            )
            canvas.mark(ax, float(step), max(float(much), _FLOOR), text)
    ax.axhline(TOLERANCE, color=colour("ink"), linewidth=0.9, linestyle="--")
    ax.annotate(
        f"{TOLERANCE:g}",
        (_STEPS, TOLERANCE),
        xytext=(2, 2),
        textcoords="offset points",
        ha="right",
        fontsize=8.5,
    )


def _draw_visited(
    canvas: LabelledCanvas,
    ax: Axes,
    searches: Sequence[BudgetSearch],
    tints: Sequence[str],
    stairs: Staircase,
) -> None:
    ax.set_title("(d) prices tried")
    end = draw_price_axis(ax, float(stairs.price[-1]), label=False)
    ax.set_xlabel("price λ")
    ax.set_ylabel("samples on average")
    ax.step(
        np.append(stairs.price, end),
        np.append(stairs.cost, stairs.cost[-1]),
        where="post",
        color=colour("grey"),
        linewidth=1.2,
    )
    for budget_search, tint in zip(searches, tints, strict=True):
        here = budget_search.trace.price <= end
        ax.plot(
            budget_search.trace.price[here], budget_search.trace.cost[here], "o", color=tint, markersize=3.4
        )
        for price, cost in zip(
            budget_search.trace.price[here][:_STEPS], budget_search.trace.cost[here], strict=False
        ):
            text = (
                f"B = {budget_search.budget:g}: at λ = {format_price(float(price))}, {cost:.2f} samples on "
                "average"
            )
            canvas.mark(ax, float(price), float(cost), text)


def _describe_search(budget_search: BudgetSearch) -> str:
    if not budget_search.binding:
        return (
            f"B = {budget_search.budget:g} is not binding: at price 0 the oracle spends "
            f"{budget_search.cost:.2f}."
        )
    return (
        f"For B = {budget_search.budget:g} it ends at price {format_price(budget_search.price)} and "
        f"{budget_search.cost:.3f} samples."
    )


def _build_data(budget_search: BudgetSearch) -> dict[str, object]:
    names = ("low", "high", "price", "cost", "cost_low", "cost_high")
    steps = {name: getattr(budget_search.trace, name) for name in names}
    return {
        "binding": budget_search.binding,
        "price": budget_search.price,
        "cost": budget_search.cost,
        "steps": steps,
    }


_MARKS = 60  # of one staircase


def draw_staircase(
    stairs: Staircases, targets: Sequence[BudgetSearch] = (), *, key: str = "staircase"
) -> Picture:
    """Both staircases, and the average budgets that were looked for."""
    both = ((stairs.exact, "blue", "all subsets"), (stairs.windows, "orange", "the paper's windows"))
    highest = max(float(one.price[-1]) for one, _, _ in both)
    with LabelledCanvas(key, height=3.3) as canvas:
        ax = canvas.axes[0]
        end = draw_price_axis(ax, highest)
        for target in targets:
            ax.axhline(target.budget, color=colour("dim"), linewidth=0.8, linestyle=":", zorder=1)
        canvas.label_ends(ax, [(end, one.budget, f"B = {one.budget:g}", colour("dim")) for one in targets])
        for one, tint, name in both:
            x, y = np.append(one.price, end), np.append(one.cost, one.cost[-1])
            ax.step(x, y, where="post", color=colour(tint), linewidth=1.6, label=name)
            _add_marks(canvas, one, name)
        ax.legend(loc="upper right")
        top = max(stairs.exact.free, stairs.windows.free, *(one.budget for one in targets), 2.0)
        ax.set_ylim(0.9, 1.08 * top)
        ax.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        ax.set_ylabel("samples on average")
        svg = canvas.svg()
    return Picture(
        key=key,
        title="Cost falls as the price rises",
        protocol="Oracle on all problems, in-sample; every stair of the table, no grid of prices.",
        svg=svg,
        alt=(
            f"A staircase from {stairs.windows.free:.2f} samples on average at price 0 (the paper's windows; "
            f"{stairs.exact.free:.2f} by all subsets) down to {stairs.windows.cost[-1]:.2f}."
        ),
        caption=(
            "C̄(λ), the average cost of the oracle's budgets at each price. Each stair is a price at which "
            "some problem's next samples stop paying; a B between two stairs is not met by any single price."
        ),
        data=to_plain(
            {
                name: {"price": one.price, "cost": one.cost}
                for one, name in ((stairs.windows, "windows"), (stairs.exact, "exact"))
            }
        ),
    )


def _add_marks(canvas: LabelledCanvas, stairs: Staircase, name: str) -> None:
    """Mark stairs spread evenly over the fall, each with its price and cost."""
    fall = np.linspace(stairs.cost[0], stairs.cost[-1], min(_MARKS, len(stairs.cost)))
    for at in np.unique(np.searchsorted(-stairs.cost, -fall)):
        price, cost = float(stairs.price[at]), float(stairs.cost[at])
        text = f"{name}: from λ = {format_price(price)} on, {cost:.2f} samples on average"
        canvas.mark(canvas.axes[0], price, cost, text)


_LOOSE = (
    "bisection diagnostics: no B is binding, since even for free the oracle spends less; "
    "samples that don't change votes can't be spent, so there is nothing to collect"
)


def build_section(case: PaperPool) -> Section:
    """How the price is found, and what it does."""
    result, stairs, how = search_prices(case), compute_staircases(case), compute_mechanism(case)
    binding = any(one.binding for one in result)
    return Section(
        key="solve",
        title="The price",
        words=_compose_words(result, stairs, how),
        tables=(build_table(result),) if result else (),
        pictures=(
            draw_staircase(stairs, result),
            *((draw_search(result, stairs.windows),) if binding else ()),
            draw_mechanism(how),
        ),
        missing=(*describe_unreachable(case), *(() if binding else (_LOOSE,))),
    )


def build_table(results: Sequence[BudgetSearch]) -> Table:
    """The search for λ: bisection's single price, then the exact solve."""
    return Table(
        key="search",
        title="The search for λ",
        protocol="Oracle on all problems, in-sample, on the paper's windows; bisection on [0, 5], 50 steps.",
        columns=(
            Column(name="B", kind="amount"),
            Column(name="λ, bisection", kind="price"),
            Column(
                name="cost", kind="fraction", about="samples on average at that single price, not above B"
            ),
            Column(name="off by", kind="fraction", about="|cost − B|"),
            Column(
                name="one stair up", kind="fraction", about="the next cost above B that a single price gives"
            ),
            Column(name="monotone", kind="flag"),
            Column(name="mixed by bisection", kind="count", about="problems mixed to meet B exactly"),
            Column(name="λ, exact", kind="price"),
            Column(name="cost, exact", kind="fraction", about="of its deterministic choice"),
            Column(name="with one mixed", kind="fraction", about="expected cost with its one mixed problem"),
            Column(name="gap", kind="price", about="bound less accuracy: what any other choice could add"),
        ),
        rows=tuple(
            (
                item.budget,
                item.price,
                item.cost,
                item.error,
                item.above,
                item.monotone,
                item.mixed,
                item.exact_price,
                item.exact_cost,
                item.mixed_cost,
                item.gap,
            )
            for item in results
        ),
        note="λ = 0: the budget isn't binding, even for free the oracle spends no more.",
    )


def _compose_words(results: Sequence[BudgetSearch], stairs: Staircases, how: Mechanism) -> tuple[str, ...]:
    low, high = stairs.windows.between(0.8)
    words = [
        f"For free (λ = 0) the oracle would spend {stairs.windows.free:.2f} samples on average by the "
        f"paper's windows, {stairs.exact.free:.2f} by all subsets, not {how.budgets[-1]} for all: where "
        "more samples gain nothing it takes none."
        + (
            f" Four fifths of the fall happen between λ = {format_price(low)} and {format_price(high)}."
            if high > 0
            else " The cost is the same at every price: no vote gains from more samples."
        )
    ]
    binding = [one for one in results if one.binding]
    if binding:
        words.append(_describe_misses(binding, stairs))
    return tuple(words)


def _describe_misses(binding: Sequence[BudgetSearch], stairs: Staircases) -> str:
    worst = max(binding, key=lambda one: one.error)
    near = sum(one.error < TOLERANCE for one in binding)
    of = "every B" if near == len(binding) else f"{near} of {len(binding)} budgets B"
    return (
        f"Cost falls in stairs, the tallest {stairs.windows.tallest:.2f} samples high: a single price comes "
        f"within {TOLERANCE:g} samples of {of} (furthest off: {worst.cost:.3f} for B = {worst.budget:g}). "
        f"The exact solve meets each B by mixing one problem, and its deterministic choice is within "
        f"{100 * max(one.gap for one in binding):.2f} points of the best there is."
    )
