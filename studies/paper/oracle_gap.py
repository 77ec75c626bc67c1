"""The oracle gap: how often the classifier names the oracle's budget, and what accuracy it lacks.

Beside the imitation rate stands that of always answering the commonest budget.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adacompute.replay.matching import Interval
from adacompute.report.document import (
    Cell,
    Column,
    Section,
    Table,
    find_clear_signs,
    format_gains,
    join_words,
)
from studies.paper.budget_choices import ClassifierFits, FitReading, JudgedTable, compute_spread
from studies.paper.main_results import AS_PAPER, HELD_OUT, NOTHING, select_fitted_budgets
from studies.paper.paper_pool import PaperPool
from studies.paper.price_search import describe_unreachable
from studies.paper.wording import format_points, format_shares

__all__ = ["OracleGap", "build_section", "compute_gaps"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GapReading:
    """One reading of the classifiers of one average budget; each field has one value per seed, (seeds,)."""

    accuracy: Floats
    oracle: Floats  # accuracy of the oracle's budgets on the same problems
    imitation: Floats  # share of problems given the oracle's budget
    majority: Floats  # share that has the commonest budget of the problems learned from
    cost: Floats  # samples on average
    ahead: Interval  # imitation less majority, over problems
    spent: Interval  # samples on average, over problems

    @property
    def gap(self) -> Floats:
        """What the classifier lacks of the oracle's accuracy, (seeds,)."""
        return np.asarray(self.oracle - self.accuracy)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OracleGap:
    """One average budget."""

    budget: float
    price: float  # the oracle's
    commonest: tuple[int, ...]  # samples: the commonest budgets of the problems learned from, each once
    paper: GapReading  # scored as the paper does
    held_out: GapReading


def compute_gaps(case: PaperPool, fits: Mapping[float, ClassifierFits]) -> tuple[OracleGap, ...]:
    """Oracle gap and imitation for each average budget that the pool can reach."""
    return tuple(_compute_gap(case, fits[budget]) for budget in select_fitted_budgets(case, fits))


def _compute_gap(case: PaperPool, own: ClassifierFits) -> OracleGap:
    common = np.array([np.bincount(own.labels[train]).argmax() for train in own.train])  # (seeds,)
    everyone = JudgedTable.of(case.windows, np.ones_like(own.train))
    return OracleGap(
        budget=own.budget,
        price=own.price,
        commonest=tuple(sorted({case.budgets[at] for at in common.tolist()})),
        paper=_score_reading(own.paper(case), own, common, everyone),
        held_out=_score_reading(own.held_out(case), own, common, JudgedTable.of(case.exact, ~own.train)),
    )


def _score_reading(
    reading: FitReading, own: ClassifierFits, common: npt.NDArray[np.int64], judged: JudgedTable
) -> GapReading:
    right: Bools = own.predicted == own.labels
    alike: Bools = own.labels == common[:, None]
    return GapReading(
        accuracy=reading.accuracy,
        oracle=reading.oracle,
        imitation=reading.imitation,
        majority=reading.majority,
        cost=reading.cost,
        ahead=judged.interval_over_problems(right.astype(np.float64) - alike),
        spent=judged.interval_over_problems(judged.table.costs[own.predicted]),
    )


def build_section(case: PaperPool, fits: Mapping[float, ClassifierFits]) -> Section:
    """Oracle gap and imitation, both readings side by side."""
    result = compute_gaps(case, fits)
    return Section(
        key="gap",
        title="Oracle gap and imitation",
        words=_compose_words(result),
        tables=(build_table(result),),
        missing=describe_unreachable(case),
    )


def build_table(results: Sequence[OracleGap]) -> Table:
    """Two rows for each average budget."""
    rows = [
        _build_row(one, name, own)
        for one in results
        for name, own in ((AS_PAPER, one.paper), (HELD_OUT, one.held_out))
    ]
    return Table(
        key="oracle-gap",
        title="Oracle gap and imitation",
        protocol=(
            f"{len(results[0].paper.accuracy)} classifiers, each learned from 80% of the problems. Scored as "
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


def _build_row(gap: OracleGap, name: str, reading: GapReading) -> tuple[Cell, ...]:
    values = (
        reading.accuracy,
        reading.oracle,
        reading.gap,
        reading.imitation,
        reading.majority,
        reading.cost,
    )
    return (gap.budget, name, *map(compute_spread, values))


def _compose_words(results: Sequence[OracleGap]) -> tuple[str, ...]:
    if all(one.price == 0.0 and one.commonest == (1,) and one.paper.majority.min() == 1.0 for one in results):
        return (NOTHING,)
    at = join_words([f"{one.budget:g}" for one in results])
    commonest = sorted({budget for one in results for budget in one.commonest})
    always = join_words([f"{budget}" for budget in commonest])
    first = (
        "Scored as the paper does, the classifier gives "
        f"{format_shares(one.paper.imitation.mean() for one in results)} of the problems the oracle's "
        f"budget at B = {at}, and lacks {_describe_lack([one.paper for one in results])} of its accuracy. "
        f"Held-out, these are {format_shares(one.held_out.imitation.mean() for one in results)}, and "
        f"{_describe_lack([one.held_out for one in results])}."
    )
    ahead = [one.held_out.ahead for one in results]
    second = (
        f"Always answering the commonest budget ({always} {'sample' if always == '1' else 'samples'}) is "
        f"right for {format_shares(one.held_out.majority.mean() for one in results)} of the held-out "
        f"problems. The classifier differs from that by {format_gains(ahead)}: {_describe_lead(results)}"
    )
    return first, second, _describe_spending(results)


def _describe_lack(readings: Sequence[GapReading]) -> str:
    return format_points(float(own.gap.mean()) for own in readings).replace("+", "")


def _describe_lead(results: Sequence[OracleGap]) -> str:
    where = [f"{one.budget:g}" for one in results]
    above, below = find_clear_signs([one.held_out.ahead for one in results])
    if not above and not below:
        return "it can't be distinguished from a classifier that has learned nothing but that one number."
    sentences = [f"it imitates better at B = {join_words([where[k] for k in above])}"] if above else []
    if below:
        sentences.append(f"it imitates worse at B = {join_words([where[k] for k in below])}")
    rest = len(results) - len(above) - len(below)
    return f"{' and '.join(sentences)}{', and elsewhere neither shows' if rest else ''}."


def _describe_spending(results: Sequence[OracleGap]) -> str:
    spent = join_words([f"{one.held_out.spent.mean:.2f}" for one in results])
    asked = join_words([f"{one.budget:g}" for one in results])
    text = f"Held-out it spends {spent} samples where {asked} were asked for"
    under = [
        one for one in results if one.held_out.spent.high is not None and one.held_out.spent.high < one.budget
    ]
    over = [
        one for one in results if one.held_out.spent.low is not None and one.held_out.spent.low > one.budget
    ]
    if under:
        text += f": clearly too little at B = {join_words([f'{one.budget:g}' for one in under])}"
    if over:
        text += (
            f"{',' if under else ':'} clearly too much at B = "
            f"{join_words([f'{one.budget:g}' for one in over])}"
        )
    return f"{text}{'' if under or over else ', which 95% intervals over problems allow'}."
