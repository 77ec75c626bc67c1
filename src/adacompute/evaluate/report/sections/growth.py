"""The section on what must be recorded before a policy pays. Knows nothing of how it was come by."""

from collections.abc import Sequence

from adacompute.evaluate.bootstrap import Interval
from adacompute.evaluate.exhibits import Cell, Column, Section, Table
from adacompute.evaluate.figures.growth import draw_growth
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.growth import ORDERS, PROBLEMS, SAMPLES, Amount, Growth, growth
from adacompute.evaluate.report.phrases import gains, points

__all__ = ["section", "table_of"]

_QUICK_PROBLEMS, _QUICK_SAMPLES, _QUICK_ORDERS, _QUICK_CAP = (20,), (16,), 5, 50


def section(case: Case, *, quick: bool = False, seed: int = 0) -> Section:
    """Stopping and the classifier by problems learned from, and by samples of each."""
    found = growth(
        case,
        problems=_QUICK_PROBLEMS if quick else PROBLEMS,
        samples=_QUICK_SAMPLES if quick else SAMPLES,
        cap=_QUICK_CAP if quick else None,
        orders=_QUICK_ORDERS if quick else ORDERS,
        seed=seed,
    )
    return Section(
        key="growth",
        title="What must be recorded",
        words=_words(found),
        tables=(table_of(found),),
        pictures=(draw_growth(found),),
        missing=_missing(found),
    )


def table_of(found: Growth) -> Table:
    """A row an amount; what was varied both ways stands once."""
    seen: dict[tuple[str, int, int], Amount] = {}
    for one in (*found.by_problems, *found.by_samples):
        seen.setdefault((one.policy, one.problems, one.samples), one)
    rows: list[tuple[Cell, ...]] = [
        (one.policy, one.problems, one.samples, one.cost, one.accuracy, one.gain) for one in seen.values()
    ]
    return Table(
        key="growth",
        title=f"Accuracy at {found.budget:g} samples on average by what was recorded",
        protocol=(
            "Held-out: learned from one half of the problems, judged on the other, both ways; "
            f"{found.orders} orders, {'weighted' if found.weighted else 'plain'} votes; 95% intervals over "
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


def _words(found: Growth) -> tuple[str, ...]:
    own, theirs = (found.of(policy, by="problems") for policy in ("stopping", "classifier"))
    first = (
        f"At {found.budget:g} samples on average, stopping with nothing learned from this pool is "
        f"{gains([own[0].gain])} from uniform, and {gains([own[-1].gain])} with {own[-1].problems} problems; "
        f"{_since(own)}."
    )
    second = (
        f"The classifier is {gains([theirs[0].gain])} from uniform with {theirs[0].problems} problems and "
        f"{gains([theirs[-1].gain])} with {theirs[-1].problems}; {_since(theirs)}."
    )
    less = [found.of(policy, by="samples") for policy in ("stopping", "classifier")]
    third = " ".join(_fewer(own, found) for own in less if len(own) > 1)
    return tuple(words for words in (first, second, third) if words)


def _since(own: Sequence[Amount]) -> str:
    """From how many problems on it is clearly above uniform."""
    sure = [_above(one.gain) for one in own]
    last = max((at for at, so in enumerate(sure) if not so), default=-1)
    if last == len(own) - 1:
        return "it isn't clearly above uniform"
    count = own[last + 1].problems
    return (
        f"it is clearly above uniform from {count} problems on"
        if count
        else "it is clearly above from the start"
    )


def _above(gain: Interval) -> bool:
    return gain.low is not None and gain.low > 0


def _fewer(own: Sequence[Amount], found: Growth) -> str:
    few, many = own[0], own[-1]
    return (
        f"With {found.across} problems learned from, {few.samples} samples of each instead of {many.samples} "
        f"change the accuracy of {few.policy} by {points([few.accuracy.mean - many.accuracy.mean])}."
    )


def _missing(found: Growth) -> tuple[str, ...]:
    missing = []
    if len(found.of("stopping", by="samples")) < 2:
        missing.append(
            f"by samples of each: {found.most} of each problem are too few to leave some out; collect more"
        )
    if len(found.of("classifier", by="problems")) < 2:
        missing.append("by problems learned from: there are too few to learn from fewer; collect more")
    return tuple(missing)
