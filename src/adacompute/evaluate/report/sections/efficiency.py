"""The section on how many labelled problems the paper's classifier needs. Knows no other policy."""

from adacompute.evaluate.exhibits import Cell, Column, Section, Table
from adacompute.evaluate.figures.efficiency import draw_efficiency
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.efficiency import SHARES, Curve, Efficiency, Followed, efficiency
from adacompute.evaluate.paper.search import unreachable
from adacompute.evaluate.report.phrases import listed, points

__all__ = ["section", "table_of"]

_QUICK_SHARES, _QUICK_SEEDS = (0.2, 0.6, 1.0), 2


def section(case: Case, *, quick: bool = False, seed: int = 0) -> Section:
    """Accuracy by share of the training part, in both readings."""
    found = efficiency(
        case,
        fractions=_QUICK_SHARES if quick else SHARES,
        seeds=_QUICK_SEEDS if quick else 4,
        seed=seed,
    )
    return Section(
        key="efficiency",
        title="Data efficiency of the classifier",
        words=_words(found),
        tables=(table_of(found),),
        pictures=(draw_efficiency(found),) if found.curves else (),
        missing=unreachable(case),
    )


def table_of(found: Efficiency) -> Table:
    """A row a budget and share."""
    rows: list[tuple[Cell, ...]] = []
    for curve in found.curves:
        for at, count in enumerate(found.learned):
            row: tuple[Cell, ...] = (curve.budget, found.shares[at], count)
            for own in (curve.paper, curve.held_out):
                row = (*row, own.accuracy[at], own.cost[at], own.gain[at])
            rows.append(row)
    kinds: list[Column] = []
    for reading in ("scored as the paper does", "held-out"):
        kinds += [
            Column(name=f"accuracy, {reading}", kind="share"),
            Column(name=f"cost, {reading}", kind="number", about="samples on average"),
            Column(name=f"over all alike, {reading}", kind="points", about="points, at the same cost"),
        ]
    return Table(
        key="efficiency",
        title="The classifier by how much it learned from",
        protocol=(
            f"Boosted trees on shares of a random 80% of {found.problems} problems, {found.seeds} seeds, "
            "mean and standard deviation over them. Scored as the paper does: on all problems, by windows. "
            "Held-out: on the other 20%, over all subsets."
        ),
        columns=(
            Column(name="B", kind="amount"),
            Column(name="share", kind="share", about="of the training part"),
            Column(name="problems", kind="count", about="learned from"),
            *kinds,
        ),
        rows=tuple(rows),
    )


def _words(found: Efficiency) -> tuple[str, ...]:
    if not found.curves:
        return ()
    budgets = listed([f"{curve.budget:g}" for curve in found.curves])
    grown = [points(_grown(own) for own in _followed(found, which)) for which in ("paper", "held_out")]
    last = points(own.gain[-1].mean for own in _followed(found, "held_out"))
    first = (
        f"From {found.learned[0]} to {found.learned[-1]} problems learned from, accuracy at B = {budgets} "
        f"grows by {grown[0]} scored as the paper does, and by {grown[1]} held-out. All problems include "
        "those learned from, whose share grows too."
    )
    second = (
        f"{_crossing(found)} Such a budget may cost less than the classifier: with all that it learned, "
        f"held-out, the classifier is {last} from all alike at its own cost."
    )
    return first, second


def _crossing(found: Efficiency) -> str:
    paper, held_out = (
        listed([_from(found, own) for own in _followed(found, which)]) for which in ("paper", "held_out")
    )
    return (
        "The share of the training part from which on it stays above all alike with the largest budget not "
        f"above B: {paper} scored as the paper does, {held_out} held-out; the paper says 20 to 25%."
    )


def _from(found: Efficiency, own: Followed) -> str:
    share = own.crosses(found.shares)
    return "none" if share is None else f"{share:.0%}"


def _grown(own: Followed) -> float:
    return own.accuracy[-1].mean - own.accuracy[0].mean


def _followed(found: Efficiency, which: str) -> list[Followed]:
    def one(curve: Curve) -> Followed:
        return curve.paper if which == "paper" else curve.held_out

    return [one(curve) for curve in found.curves]
