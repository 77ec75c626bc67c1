"""What the paper says of the price: cost by price, the search for it, who holds on longest. Knows no labels.

Where there is a second reading, it is by accuracies over all subsets of the samples instead of the paper's
windows.
"""

import numpy as np

from adacompute.evaluate.paper.labels import parts
from adacompute.evaluate.paper.search import TOLERANCE, Search
from adacompute.evaluate.reproduction.checks.check import Check, Seen
from adacompute.evaluate.reproduction.checks.oracle import EXACT, FIFTHS, MORE, ROOM
from adacompute.evaluate.reproduction.runs import Run

__all__ = ["PRICE"]


def _monotone(run: Run) -> Seen:
    stairs = run.staircases
    holds = all(one.monotone for one in run.searches) and all(
        law.holds for law in run.laws if law.key == "monotone"
    )
    return Seen(paper=holds, value=stairs.windows.tallest, own=stairs.exact.tallest)


def _range(run: Run) -> Seen:
    windows, exact = run.staircases.windows, run.staircases.exact
    return Seen(
        paper=windows.free <= 4 and windows.at(0.1) <= 1.05,
        value=windows.free,
        ours=exact.free <= 4 and exact.at(0.1) <= 1.05,
        own=exact.free,
    )


def _transition(run: Run) -> Seen:
    shares = [
        (one.at(0.01) - one.at(0.10)) / (one.free - one.cost[-1]) if one.free > one.cost[-1] else None
        for one in (run.staircases.windows, run.staircases.exact)
    ]
    held = [None if share is None else share >= 0.5 for share in shares]
    return Seen(paper=held[0], value=shares[0], ours=held[1], own=shares[1])


def _nearest(one: Search) -> float:
    """Samples between the target and the nearest of the two costs that a single price has beside it."""
    return one.error if one.above is None else min(one.error, one.above - one.budget)


def _close(run: Run) -> Seen:
    binding = [one for one in run.searches if one.binding]
    if not binding:
        return Seen()
    worst = max(map(_nearest, binding))
    return Seen(paper=worst < TOLERANCE, value=worst)


def _falls(run: Run) -> Seen:
    prices = [one.price for one in run.searches]
    if len(prices) < 2:
        return Seen()
    return Seen(
        paper=bool((np.diff(prices) < 0).all() or prices[-1] == 0),
        value=prices[0] / prices[-1] if prices[-1] > 0 else None,
    )


def _steps(run: Run) -> Seen:
    binding = [one for one in run.searches if one.binding]
    if not binding:
        return Seen()
    reached = [one.within for one in binding if one.within is not None]
    holds = len(reached) == len(binding) and max(reached) <= 10
    return Seen(paper=holds, value=float(max(reached)) if reached else None)


def _lasts(run: Run) -> Seen:
    """Up to which price a problem keeps more than one sample, by fifths of one-sample accuracy."""
    one = run.mechanism
    if len(run.case) < 10 * FIFTHS:
        return Seen()
    until = one.critical.max(axis=0, initial=0.0)
    means = [float(until[rows].mean()) for rows in parts(one.single, FIFTHS)]
    inner, ends = max(means[1:-1]), max(means[0], means[-1])
    return Seen(paper=inner > ends, value=inner / ends if ends > 0 else None)


_TIES = (
    "Accuracies are multiples of 1 over the number of windows, so many edges tie, and one price takes all."
)


PRICE = (
    Check(
        key="cost-monotone",
        value="highest stair, samples on average",
        kind="number",
        see=_monotone,
        holds="at every price tried",
        reading=EXACT,
    ),
    Check(
        key="cost-range",
        value="cost at λ = 0",
        kind="number",
        see=_range,
        holds="cost at λ = 0 up to 4, and at 0.10 up to 1.05",
        reading=EXACT,
        why={"doesn't": MORE, "in part": MORE},
    ),
    Check(
        key="cost-transition",
        value="share of the fall in cost",
        kind="share",
        see=_transition,
        holds="half of the fall or more",
        reading=EXACT,
        why=dict.fromkeys(
            ("doesn't", "in part"),
            "Over all subsets, nearly free prices buy the last votes: much of the fall is below 0.01.",
        ),
    ),
    Check(
        key="search-close",
        value="largest distance of a single price's cost from B",
        kind="fraction",
        see=_close,
        holds="below 0.05 at every B that binds, by the nearer of the two prices around it",
        why=dict.fromkeys(("doesn't", "in part"), _TIES),
    ),
    Check(
        key="search-falls",
        value="how many times higher the price is at the least B than at the most",
        kind="number",
        see=_falls,
        holds="falls, or is 0",
    ),
    Check(
        key="search-steps",
        value="most steps until a price tried costs B ± 0.05",
        kind="count",
        see=_steps,
        holds="10 or fewer, at every B that binds",
        why=dict.fromkeys(("doesn't", "in part"), _TIES),
    ),
    Check(
        key="mechanism-middle",
        value="how many times longer the best inner fifth keeps more than one sample than the ends, in λ",
        kind="number",
        see=_lasts,
        holds="an inner fifth of one-sample accuracy lasts to a higher price than both ends",
        why=dict.fromkeys(("agrees", "in part"), ROOM),
    ),
)
