"""The section on features: which are used, and which tell anything. Knows nothing of how they are read."""

from adacompute.evaluate.exhibits import Cell, Column, Section, Table
from adacompute.evaluate.figures.importance import draw_importance
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.importance import BUDGET, Importance, importance
from adacompute.evaluate.report.phrases import listed
from adacompute.features import NAMES

__all__ = ["section", "table_of"]

_QUICK = 2  # shuffles
_LUCK = 0.0455  # share of averages that lie two standard errors or more from 0 by luck


def section(case: Case, *, quick: bool = False, seed: int = 0) -> Section:
    """The boosted trees' importance, what shuffling costs, and each budget's mean features."""
    found = importance(case, repeats=_QUICK, seed=seed) if quick else importance(case, seed=seed)
    return Section(
        key="importance",
        title="Features",
        words=_words(found),
        tables=(table_of(found),),
        pictures=(draw_importance(found),),
        missing=_missing(found, case),
    )


def table_of(found: Importance) -> Table:
    """A row a feature, the most gain first."""
    rows: list[tuple[Cell, ...]] = [
        (found.names[at], float(found.gain[at]), found.imitation[at], found.accuracy[at])
        for at in found.order
    ]
    return Table(
        key="importance",
        title=f"Features at B = {found.budget:g}",
        protocol=(
            "Gain, scored as the paper does: boosted trees learned from all problems. Lost by shuffling, "
            "held-out: five folds by question, 95% interval over problems."
        ),
        columns=(
            Column(name="feature"),
            Column(name="gain", kind="share", about="of a split on it, as a share of the sum"),
            Column(name="imitation lost", kind="points", about="by shuffling it, held-out"),
            Column(name="accuracy lost", kind="points", about="by shuffling it, held-out"),
        ),
        rows=tuple(rows),
    )


def _words(found: Importance) -> tuple[str, ...]:
    used = [float(gain) for gain in found.gain if gain > 0]
    first = f"{len(used)} of {len(found.names)} features are split on at all"
    if used:
        first += (
            f", with {min(used):.0%} to {max(used):.0%} of the gain each; the paper has 6% to 11% and reads "
            "from it that each tells something. That is gain on the problems learned from, where noise has "
            "its share too."
        )
    told = listed(found.telling) if found.telling else "no feature"
    second = (
        f"On problems not learned from, shuffling clearly costs imitation with {told}. The trees name the "
        f"oracle's budget for {found.kept:.1%} of them, always the commonest for {found.majority:.1%}."
    )
    cells, sure = found.signature.size, int(found.sure.sum())
    third = (
        f"Of {cells} mean features by budget {sure} lie two standard errors or more from the average; luck "
        f"alone would give about {_LUCK * cells:.0f}. The paper shows these z-scored over budgets, which "
        "makes every row as vivid as any other, and names features that aren't among its 16; one of them, "
        "single_pass_acc, is the accuracy table's own first column."
    )
    return (first if used else f"{first}.", second, third)


def _missing(found: Importance, case: Case) -> tuple[str, ...]:
    missing = []
    if len(found.names) < len(NAMES):
        missing.append(
            f"{NAMES[-1]}: most first samples have no entropy recorded; record log-probabilities for it"
        )
    if len(found.classes) == 1:
        missing.append(
            f"importance: the oracle gives every problem {found.classes[0]} at B = {BUDGET:g}, so there is "
            "nothing to learn; collect problems whose answers vary"
        )
    if case.budgets[-1] < BUDGET:
        missing.append(f"B = {BUDGET:g}: some problem has too few samples; collect more of each")
    return tuple(missing)
