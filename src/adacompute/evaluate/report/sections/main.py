"""The section on the paper's main results: methods × average budgets, and who is beaten at equal cost.

Knows nothing of how a classifier learns.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.exhibits import Cell, Column, Section, Table
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.fits import Fits
from adacompute.evaluate.paper.judged import Outcome, spread
from adacompute.evaluate.paper.main import METHODS, MainResults, main_results
from adacompute.evaluate.paper.search import unreachable
from adacompute.evaluate.report.phrases import gains, listed, points, unlike

__all__ = ["AS_PAPER", "HELD_OUT", "NAMES", "NOTHING", "matched_table", "section", "tables_of", "untold"]

AS_PAPER, HELD_OUT = "scored as the paper does", "held-out"
NAMES = {
    "fixed": "fixed-b",
    "random": "random",
    "heuristic": "heuristic (longest prompts)",
    "classifier": "classifier",
    "oracle": "oracle",
}
NOTHING = (
    "The oracle gives one sample to every problem at any average budget: more samples make no vote on this "
    "pool better, so that there is nothing to gain and nothing to imitate."
)
_ALIKE = 0.02  # samples: costs that differ by less count as the same


def section(case: Case, fits: Mapping[float, Fits]) -> Section:
    """The main table in both readings, and the classifier against all alike at its own cost."""
    found = main_results(case, fits)
    return Section(
        key="main",
        title="Main results",
        words=_words(found),
        tables=(*tables_of(found), matched_table(found)),
        missing=(*unreachable(case), *untold(case)),
    )


def untold(case: Case) -> tuple[str, ...]:
    """What else this pool doesn't allow, a line each."""
    found = []
    least, needed = int(case.ballots.drawn.min()), 2 * case.budgets[-1]
    if least < needed:
        found.append(
            f"cross-fitted oracle: choosing on half of the samples needs {needed} of every problem, and some "
            f"problem has {least}; collect more"
        )
    if not case.has_entropy:
        found.append(
            "entropy of the first sample: not recorded, so the classifier sees 15 of the paper's 16 "
            "features; collect with log-probabilities"
        )
    return tuple(found)


def tables_of(found: MainResults) -> tuple[Table, Table]:
    """The paper's table: scored as the paper does, and held-out."""
    columns = [Column(name="method")]
    for budget in found.budgets:
        columns.append(Column(name=f"B = {budget:g}", kind="share", about="accuracy"))
        columns.append(Column(name=f"cost at {budget:g}", kind="number", about="samples spent on average"))
    at = METHODS.index("classifier")
    paper = Table(
        key="main-paper",
        title=f"Main results, {AS_PAPER}",
        protocol=(
            f"In-sample: {found.seeds} classifiers, each learned from {found.learned_from} of "
            f"{found.problems} problems and scored on all of them; accuracy by disjoint windows of the "
            "samples. Mean ± standard deviation over seeds."
        ),
        columns=tuple(columns),
        rows=tuple(_row(found, found.paper, method, plain=method != "classifier") for method in METHODS),
        note=_note(found),
        bold=(at,),
    )
    rows = [_row(found, found.held_out, method) for method in METHODS]
    if found.crossfitted:
        rows.append(_crossed(found))
    rows[METHODS.index("oracle")] = ("oracle, in-sample", *rows[METHODS.index("oracle")][1:])
    held_out = Table(
        key="main-held-out",
        title=f"Main results, {HELD_OUT}",
        protocol=(
            f"Held-out: the same {found.seeds} classifiers on the problems not learned from; the heuristic's "
            "cuts from the problems learned from; accuracy over all subsets of the samples. Mean ± standard "
            "deviation over seeds, each of which judges other problems."
        ),
        columns=tuple(columns),
        rows=tuple(rows),
        note=(
            "The oracle sees the answers of the judged problems. Cross-fitted, it chooses on half of each "
            "problem's samples and is judged on the other half: at equal cost the truth lies between."
        ),
        bold=(at,),
    )
    return paper, held_out


def matched_table(found: MainResults) -> Table:
    """The classifier beside all alike at exactly its own cost, in both readings."""
    rows: list[tuple[Cell, ...]] = []  # in-sample an interval over problems would tell nothing of new ones
    for budget in found.budgets:
        one, other = found.paper["classifier", budget], found.held_out["classifier", budget]
        rows.append((budget, AS_PAPER, *_told(one), one.gain.mean, one.dealt, one.knowing.mean))
        rows.append((budget, HELD_OUT, *_told(other), other.gain, other.dealt, other.knowing))
    return Table(
        key="main-matched",
        title="The classifier against all alike at its own cost",
        protocol="As the two tables above; all seeds together, 95% intervals over problems.",
        columns=(
            Column(name="B", kind="amount"),
            Column(name="reading"),
            Column(name="cost", kind="number", about="samples the classifier spends on average"),
            Column(name="classifier", kind="share", about="accuracy"),
            Column(name="all alike", kind="share", about="accuracy of the same number of samples for all"),
            Column(name="difference", kind="points", about="classifier less all alike, points"),
            Column(
                name="dealt by lot", kind="share", about="accuracy of the classifier's own budgets, shuffled"
            ),
            Column(name="who gets them", kind="points", about="classifier less dealt by lot, points"),
        ),
        rows=tuple(rows),
        note="All alike is the best mix of two budgets: some problems, drawn by lot, get the larger one.",
        bold=tuple(range(1, len(rows), 2)),
    )


def _told(one: Outcome) -> tuple[float, float, float]:
    return one.spent, one.interval.mean, one.alike


def _row(
    found: MainResults, outcomes: Mapping[tuple[str, float], Outcome], method: str, *, plain: bool = False
) -> tuple[Cell, ...]:
    cells: list[Cell] = [NAMES[method]]
    for budget in found.budgets:
        one = outcomes[method, budget]
        cells += _cells(one.accuracy, one.cost, plain=plain and method != "random")
    return tuple(cells)


def _crossed(found: MainResults) -> tuple[Cell, ...]:
    cells: list[Cell] = ["oracle, cross-fitted"]
    for budget in found.budgets:
        cells += _cells(found.crossfitted[budget].accuracy, found.crossfitted[budget].cost)
    return tuple(cells)


def _cells(
    accuracy: npt.NDArray[np.float64], cost: npt.NDArray[np.float64], *, plain: bool = False
) -> list[Cell]:
    """Accuracy over seeds and cost; plain where seeds change nothing."""
    return [float(accuracy.mean()) if plain else spread(accuracy), float(cost.mean())]


def _note(found: MainResults) -> str:
    """What the comparison with fixed-b hides, at the budgets where it hides something."""
    told = []
    for budget in found.budgets:
        ours, fixed = found.paper["classifier", budget], found.paper["fixed", budget]
        if ours.spent - fixed.spent > _ALIKE:
            told.append(
                f"at B = {budget:g} fixed-b spends {fixed.spent:.2f} samples and has "
                f"{fixed.interval.mean:.1%}, the classifier spends {ours.spent:.2f}, at which all alike has "
                f"{ours.alike:.1%}"
            )
    modes = ", ".join(map(str, found.modes))
    text = f"Every method chooses among {modes} samples."
    return f"{text} Fixed-b spends less than it may: {'; '.join(told)}." if told else text


def _words(found: MainResults) -> tuple[str, ...]:
    if all(found.paper["oracle", budget].spent == 1.0 for budget in found.budgets):
        return (NOTHING,)
    at = listed([f"{budget:g}" for budget in found.budgets])
    ours = [found.paper["classifier", budget] for budget in found.budgets]
    fixed = [found.paper["fixed", budget] for budget in found.budgets]
    leads = points(one.interval.mean - other.interval.mean for one, other in zip(ours, fixed, strict=True))
    first = f"Scored as the paper does, the classifier differs from fixed-b by {leads} at B = {at}."
    if any(one.spent - other.spent > _ALIKE for one, other in zip(ours, fixed, strict=True)):
        spent, theirs = (listed([f"{each.spent:.2f}" for each in group]) for group in (ours, fixed))
        first += f" It spends {spent} samples for that and fixed-b {theirs}."
    first += f" From all alike at its own cost it differs by {points(one.gain.mean for one in ours)}."
    return first, _held_out(found), _others(found, at)


def _held_out(found: MainResults) -> str:
    told = [found.held_out["classifier", budget].gain for budget in found.budgets]
    above, below = unlike(told)
    text = f"Held-out, on problems not learned from, it differs from all alike at its cost by {gains(told)}."
    where = [f"{budget:g}" for budget in found.budgets]
    if above:
        text += f" It is clearly better at B = {listed([where[k] for k in above])}."
    if below:
        text += f" It is clearly worse at B = {listed([where[k] for k in below])}."
    if not above and not below:
        text += " Every interval holds zero: what the classifier buys here can't be told from nothing."
    knowing = [found.held_out["classifier", budget].knowing for budget in found.budgets]
    return (
        f"{text} From its own budgets dealt by lot it differs by {gains(knowing)}: that much is due to who "
        "gets them, the rest to which numbers of samples it mixes."
    )


def _others(found: MainResults, at: str) -> str:
    oracle = [found.held_out["oracle", budget].gain.mean for budget in found.budgets]
    heuristic = [found.held_out["heuristic", budget].gain for budget in found.budgets]
    return (
        "What there is to win by deciding beforehand: the oracle, which sees the answers, gains "
        f"{points(oracle)} over all alike at its own cost, in-sample. Giving most to the longest prompts "
        f"differs by {gains(heuristic)}, held-out, at B = {at}."
    )
