"""The section on kinds of accuracy curve. Knows nothing of how they were found."""

from adacompute.evaluate.exhibits import Cell, Column, Section, Table
from adacompute.evaluate.figures.archetypes import draw_archetypes, draw_motivation
from adacompute.evaluate.paper.archetypes import BUDGET, KINDS, Archetypes, Spent, archetypes
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.report.phrases import listed

__all__ = ["section", "table_of"]


def section(case: Case) -> Section:
    """Four problems, and the four groups behind them."""
    found = archetypes([case])
    return Section(
        key="archetypes",
        title="Kinds of problem: what more samples do",
        words=_words(found),
        tables=(table_of(found),),
        pictures=(draw_motivation(found), draw_archetypes(found)),
        missing=_missing(found, case),
    )


def table_of(found: Archetypes) -> Table:
    """A row a group."""
    last = found.budgets[-1]
    rows: list[tuple[Cell, ...]] = []
    for at, group in enumerate(found.groups):
        rows.append(
            (
                group.name,
                group.count,
                group.count / sum(found.problems),
                float(group.centre[0]),
                float(group.centre[-1]),
                group.rise,
                not group.doubt,
                *(_spent(own, at) for own in (found.oracle, found.apart)),
                *(_large(own, at) for own in (found.oracle, found.apart)),
            )
        )
    return Table(
        key="archetypes",
        title="Kinds of accuracy curve",
        protocol=(
            f"k-means on the accuracy curves of {sum(found.problems)} problems over all subsets of their "
            f"samples; the oracle at B = {BUDGET:g} from the same samples by windows, as in the paper, and "
            "from other samples than the groups."
        ),
        columns=(
            Column(name="kind"),
            Column(name="problems", kind="count"),
            Column(name="share", kind="share"),
            Column(name="accuracy, 1 sample", kind="share"),
            Column(name=f"accuracy, {last} samples", kind="share"),
            Column(name="rise", kind="points"),
            Column(
                name="like the paper's", kind="flag", about="its mean curve has the shape it is named for"
            ),
            Column(name="given 1, same samples", kind="share", about="by the oracle"),
            Column(name="given 1, other samples", kind="share", about="by the oracle"),
            Column(name="of large budgets, same", kind="share", about="samples in budgets of 4 and more"),
            Column(name="of large budgets, other", kind="share", about="samples in budgets of 4 and more"),
        ),
        rows=tuple(rows),
    )


def _words(found: Archetypes) -> tuple[str, ...]:
    total, last = sum(found.problems), found.budgets[-1]
    told = [
        f"{group.name} ({group.count / total:.0%} of them: {group.centre[0]:.0%} with 1 sample, "
        f"{group.centre[-1]:.0%} with {last})"
        for group in found.groups
    ]
    words = [f"By what voting does for them, the {total} problems fall into: {listed(told)}."]
    doubts = [f"{group.name} {group.doubt}" for group in found.groups if group.doubt]
    words.append(
        f"Not all look like what the paper names so: {'; '.join(doubts)}."
        if doubts
        else "Each looks like what the paper names so."
    )
    if found.oracle is not None:
        words.append(_oracle(found, found.oracle))
    return tuple(words)


def _oracle(found: Archetypes, own: Spent) -> str:
    at = int(own.large.argmax())
    told = (
        f"At B = {BUDGET:g} the oracle spends {own.large[at]:.0%} of the samples of its budgets of 4 and "
        f"more on {found.names[at]}"
    )
    if found.apart is not None:
        told += f"; {found.apart.large[at]:.0%} where groups and budgets are told from different samples"
    ends = [
        f"{own.shares[at, 0]:.0%} of {name}"
        for at, name in enumerate(found.names)
        if name in ("Easy", "Hard")
    ]
    return f"{told}. It gives one sample to {listed(ends)}. The paper has it give nearly all to Responsive."


def _spent(own: Spent | None, at: int) -> float | None:
    return None if own is None else float(own.shares[at, 0])


def _large(own: Spent | None, at: int) -> float | None:
    return None if own is None else float(own.large[at])


def _missing(found: Archetypes, case: Case) -> tuple[str, ...]:
    missing = []
    least = int(case.ballots.drawn.min())
    if len(found.groups) < len(KINDS):
        missing.append(
            f"{len(KINDS)} kinds of curve: only {len(found.groups)} different curves are there; collect more "
            "problems, or more samples of each"
        )
    if found.oracle is None:
        missing.append(f"oracle at B = {BUDGET:g}: some problem has {least} samples; collect more of each")
    elif found.apart is None:
        missing.append(
            f"groups and oracle from different samples: that needs {2 * found.budgets[-1]} of every problem, "
            f"and some problem has {least}; collect more"
        )
    return tuple(missing)
