"""The section on how fine the set of budgets should be. Knows nothing of how the numbers are come by."""

from itertools import pairwise

from adacompute.evaluate.exhibits import Cell, Column, Section, Table
from adacompute.evaluate.figures.granularity import draw_granularity
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.granularity import SETS, Granularity, Tier, granularity
from adacompute.evaluate.report.phrases import gains, listed, points, unlike

__all__ = ["section", "table_of"]


def section(case: Case, *, quick: bool = False, model: str = "xgboost", seed: int = 0) -> Section:
    """Coarse, default and fine sets of budgets."""
    found = granularity(case, quick=quick, model=model, seed=seed)
    return Section(
        key="granularity",
        title="How fine the set of budgets should be",
        words=_words(found),
        tables=(table_of(found),),
        pictures=(draw_granularity(found),),
        missing=_missing(found, case),
    )


def table_of(found: Granularity) -> Table:
    """A row a set."""
    rows: list[tuple[Cell, ...]] = [_row(tier) for tier in found.tiers]
    return Table(
        key="granularity",
        title=f"The oracle at B = {found.at:g} by set of budgets",
        protocol=(
            f"{found.problems} problems. In-sample by windows: scored as the paper does. Cross-fitted: "
            "chosen on one half of each problem's samples, judged on the other, 2 splits, 95% interval over "
            "problems."
        ),
        columns=(
            Column(name="set"),
            Column(name="samples to choose from"),
            Column(name="in-sample, windows", kind="share", about="the oracle's accuracy"),
            Column(name="in-sample, exact", kind="share", about="over all subsets of the samples"),
            Column(name="cross-fitted", kind="share"),
            Column(name="gain over the set above", kind="points", about="cross-fitted, points"),
        ),
        rows=tuple(rows),
    )


def _row(tier: Tier) -> tuple[Cell, ...]:
    budgets = ", ".join(map(str, tier.budgets))
    return (tier.name, budgets, tier.windows, tier.exact, tier.crossfitted, tier.step)


def _words(found: Granularity) -> tuple[str, ...]:
    steps = [f"{before.name} to {tier.name}" for before, tier in pairwise(found.tiers)]
    lucky = points(tier.windows - before.windows for before, tier in pairwise(found.tiers))
    first = (
        f"At B = {found.at:g} finer sets of budgets ({listed(steps)}) change the oracle's accuracy by {lucky}"
    )
    known = [tier.step for tier in found.tiers[1:] if tier.step is not None]
    if len(known) < len(steps):
        return (
            f"{first}, scored as the paper does. That holds luck as well: more to choose from, more of it.",
        )
    above, _ = unlike(known)
    sure = listed([steps[at] for at in above]) if above else "no step"
    first += (
        f", scored as the paper does, and by {gains(known)} cross-fitted, where luck in choosing doesn't "
        f"count. What is clearly more than nothing: {sure}."
    )
    return first, _learned(found)


def _learned(found: Granularity) -> str:
    """The classifier's side, at the average budget that the labels are shown for."""
    told = []
    for tier in found.tiers:
        at = [place for place, budget in enumerate(tier.held_out.budget) if budget == found.at]
        told += [
            f"{tier.name} {tier.held_out.accuracy[k]:.1%} at {tier.held_out.cost[k]:.2f} samples" for k in at
        ]
    return (
        f"The classifier that imitates these oracles, asked for B = {found.at:g}, held-out: {listed(told)}."
    )


def _missing(found: Granularity, case: Case) -> tuple[str, ...]:
    least, missing = int(case.ballots.drawn.min()), []
    there = {tier.name: tier.budgets for tier in found.tiers}
    for name, budgets in SETS.items():
        if there.get(name) != budgets:
            most = "left out" if name not in there else f"only {', '.join(map(str, there[name]))}"
            missing.append(
                f"{name} set {', '.join(map(str, budgets))}: {most}, since some problem has {least} samples; "
                "collect 16 of each"
            )
    if found.tiers[-1].crossfitted is None:
        needed = 2 * found.tiers[-1].budgets[-1]
        missing.append(
            f"cross-fitted oracle: choosing on half of the samples needs {needed} of every problem, and some "
            f"problem has {least}; collect more"
        )
    return tuple(missing)
