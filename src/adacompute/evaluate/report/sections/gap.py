"""The section on the oracle gap: does the classifier imitate it, and what is lost. Knows no learner."""

from collections.abc import Mapping, Sequence

from adacompute.evaluate.exhibits import Cell, Column, Section, Table
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.fits import Fits
from adacompute.evaluate.paper.gap import Gap, GapReading, gaps
from adacompute.evaluate.paper.judged import spread
from adacompute.evaluate.paper.search import unreachable
from adacompute.evaluate.report.phrases import gains, listed, points, shares, unlike
from adacompute.evaluate.report.sections.main import AS_PAPER, HELD_OUT, NOTHING

__all__ = ["section", "table_of"]


def section(case: Case, fits: Mapping[float, Fits]) -> Section:
    """Oracle gap and imitation, both readings side by side."""
    found = gaps(case, fits)
    return Section(
        key="gap",
        title="Oracle gap and imitation",
        words=_words(found),
        tables=(table_of(found),),
        missing=unreachable(case),
    )


def table_of(found: Sequence[Gap]) -> Table:
    """Two rows for each average budget."""
    rows = [
        _row(one, name, own)
        for one in found
        for name, own in ((AS_PAPER, one.paper), (HELD_OUT, one.held_out))
    ]
    return Table(
        key="oracle-gap",
        title="Oracle gap and imitation",
        protocol=(
            f"{len(found[0].paper.accuracy)} classifiers, each learned from 80% of the problems. Scored as "
            "the paper does: on all problems, by disjoint windows. Held-out: on the problems not learned "
            "from, over all subsets of the samples. Mean ± standard deviation over seeds."
        ),
        columns=(
            Column(name="B", kind="amount"),
            Column(name="reading"),
            Column(name="accuracy", kind="share", about="of the classifier's budgets"),
            Column(
                name="oracle", kind="share", about="accuracy of the oracle's budgets on the same problems"
            ),
            Column(name="gap", kind="points", about="oracle less classifier, points"),
            Column(name="imitation", kind="share", about="problems given the oracle's budget"),
            Column(
                name="always the commonest",
                kind="share",
                about="problems whose oracle budget is the commonest of those learned from",
            ),
            Column(name="cost", kind="number", about="samples spent on average"),
        ),
        rows=tuple(rows),
        bold=tuple(range(1, len(rows), 2)),
    )


def _row(one: Gap, name: str, own: GapReading) -> tuple[Cell, ...]:
    told = (own.accuracy, own.oracle, own.gap, own.imitation, own.majority, own.cost)
    return (one.budget, name, *map(spread, told))


def _words(found: Sequence[Gap]) -> tuple[str, ...]:
    if all(one.price == 0.0 and one.commonest == (1,) and one.paper.majority.min() == 1.0 for one in found):
        return (NOTHING,)
    at = listed([f"{one.budget:g}" for one in found])
    commonest = sorted({budget for one in found for budget in one.commonest})
    always = listed([f"{budget}" for budget in commonest])
    first = (
        "Scored as the paper does, the classifier gives "
        f"{shares(one.paper.imitation.mean() for one in found)} of the problems the oracle's budget at B = "
        f"{at}, and lacks {_lacks([one.paper for one in found])} of its accuracy. Held-out, these are "
        f"{shares(one.held_out.imitation.mean() for one in found)}, and "
        f"{_lacks([one.held_out for one in found])}."
    )
    ahead = [one.held_out.ahead for one in found]
    second = (
        f"Always answering the commonest budget ({always} {'sample' if always == '1' else 'samples'}) is "
        f"right for {shares(one.held_out.majority.mean() for one in found)} of the held-out problems. The "
        f"classifier differs from that by {gains(ahead)}: {_ahead(found)}"
    )
    return first, second, _spending(found)


def _lacks(readings: Sequence[GapReading]) -> str:
    return points(float(own.gap.mean()) for own in readings).replace("+", "")


def _ahead(found: Sequence[Gap]) -> str:
    where = [f"{one.budget:g}" for one in found]
    above, below = unlike([one.held_out.ahead for one in found])
    if not above and not below:
        return "it can't be told from a classifier that has learned nothing but that one number."
    told = [f"it imitates better at B = {listed([where[k] for k in above])}"] if above else []
    if below:
        told.append(f"it imitates worse at B = {listed([where[k] for k in below])}")
    rest = len(found) - len(above) - len(below)
    return f"{' and '.join(told)}{', and elsewhere neither shows' if rest else ''}."


def _spending(found: Sequence[Gap]) -> str:
    spent = listed([f"{one.held_out.spent.mean:.2f}" for one in found])
    asked = listed([f"{one.budget:g}" for one in found])
    text = f"Held-out it spends {spent} samples where {asked} were asked for"
    under = [
        one for one in found if one.held_out.spent.high is not None and one.held_out.spent.high < one.budget
    ]
    over = [
        one for one in found if one.held_out.spent.low is not None and one.held_out.spent.low > one.budget
    ]
    if under:
        text += f": clearly too little at B = {listed([f'{one.budget:g}' for one in under])}"
    if over:
        text += (
            f"{',' if under else ':'} clearly too much at B = {listed([f'{one.budget:g}' for one in over])}"
        )
    return f"{text}{'' if under or over else ', which 95% intervals over problems allow'}."
