"""The section on the price: search, staircase, mechanism. Knows nothing of policies."""

from collections.abc import Sequence

from adacompute.evaluate.exhibits import Column, Section, Table
from adacompute.evaluate.figures.mechanism import draw_mechanism
from adacompute.evaluate.figures.prices import price_text
from adacompute.evaluate.figures.search import draw_search
from adacompute.evaluate.figures.staircase import draw_staircase
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.mechanism import Mechanism, mechanism
from adacompute.evaluate.paper.search import TOLERANCE, Search, searches, unreachable
from adacompute.evaluate.paper.staircase import Staircases, staircases

__all__ = ["section", "table_of"]

_LOOSE = (
    "bisection diagnostics: no B is binding, since even for free the oracle spends less; "
    "samples that don't change votes can't be spent, so there is nothing to collect"
)


def section(case: Case) -> Section:
    """How the price is found, and what it does."""
    found, stairs, how = searches(case), staircases(case), mechanism(case)
    binding = any(one.binding for one in found)
    return Section(
        key="solve",
        title="The price",
        words=_words(found, stairs, how),
        tables=(table_of(found),) if found else (),
        pictures=(
            draw_staircase(stairs, found),
            *((draw_search(found, stairs.windows),) if binding else ()),
            draw_mechanism(how),
        ),
        missing=(*unreachable(case), *(() if binding else (_LOOSE,))),
    )


def table_of(found: Sequence[Search]) -> Table:
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
                one.budget,
                one.price,
                one.cost,
                one.error,
                one.above,
                one.monotone,
                one.mixed,
                one.exact_price,
                one.exact_cost,
                one.mixed_cost,
                one.gap,
            )
            for one in found
        ),
        note="λ = 0: the budget isn't binding, even for free the oracle spends no more.",
    )


def _words(found: Sequence[Search], stairs: Staircases, how: Mechanism) -> tuple[str, ...]:
    low, high = stairs.windows.between(0.8)
    words = [
        f"For free (λ = 0) the oracle would spend {stairs.windows.free:.2f} samples on average by the "
        f"paper's windows, {stairs.exact.free:.2f} by all subsets, not {how.budgets[-1]} for all: where "
        "more samples gain nothing it takes none."
        + (
            f" Four fifths of the fall happen between λ = {price_text(low)} and {price_text(high)}."
            if high > 0
            else " The cost is the same at every price: no vote gains from more samples."
        )
    ]
    binding = [one for one in found if one.binding]
    if binding:
        words.append(_missed(binding, stairs))
    return tuple(words)


def _missed(binding: Sequence[Search], stairs: Staircases) -> str:
    worst = max(binding, key=lambda one: one.error)
    near = sum(one.error < TOLERANCE for one in binding)
    of = "every B" if near == len(binding) else f"{near} of {len(binding)} budgets B"
    return (
        f"Cost falls in stairs, the tallest {stairs.windows.tallest:.2f} samples high: a single price comes "
        f"within {TOLERANCE:g} samples of {of} (furthest off: {worst.cost:.3f} for B = {worst.budget:g}). "
        f"The exact solve meets each B by mixing one problem, and its deterministic choice is within "
        f"{100 * max(one.gap for one in binding):.2f} points of the best there is."
    )
