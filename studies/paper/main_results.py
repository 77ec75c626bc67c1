"""The paper's main table: five ways to decide at three average budgets, and who wins at equal cost.

Held-out, rules and classifier learn from 80% of the problems and are judged on the others. The oracle sees
the judged samples themselves, so it has a second, cross-fitted value: chosen on half of each problem's
samples, judged on the other half.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from adacompute.errors import TooFewSamples
from adacompute.evaluate.oracle_bounds import Pair, Scoring, compute_expectation, score_halves
from adacompute.report.document import (
    Cell,
    Column,
    Section,
    Table,
    find_clear_signs,
    format_gains,
    join_words,
)
from adacompute.solve import solve
from studies.paper.budget_choices import (
    RULES,
    ChoiceOutcome,
    ClassifierFits,
    JudgedTable,
    choose_by_rule,
    compute_spread,
)
from studies.paper.paper_pool import PaperPool
from studies.paper.price_search import TARGET_BUDGETS, describe_unreachable, select_reachable
from studies.paper.wording import format_points

__all__ = [
    "AS_PAPER",
    "HELD_OUT",
    "METHODS",
    "METHOD_LABELS",
    "NOTHING",
    "MainResults",
    "build_section",
    "compute_main_results",
    "list_missing",
    "select_fitted_budgets",
    "split_halves",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

METHODS = (*RULES, "classifier", "oracle")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CrossfittedOracle:
    """An oracle that chose on half of each held-out problem's samples and is judged on the other half."""

    accuracy: Floats  # (seeds,)
    cost: Floats  # (seeds,) samples on average


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MainResults:
    """One recording's part of the main table, by method and average budget."""

    name: str
    budgets: tuple[float, ...]  # average ones that the pool can reach
    modes: tuple[int, ...]  # numbers of samples that may be chosen
    seeds: int
    problems: int
    learned_from: int  # problems, under each seed, about
    paper: Mapping[tuple[str, float], ChoiceOutcome] = field(repr=False)  # scored as the paper does
    held_out: Mapping[tuple[str, float], ChoiceOutcome] = field(repr=False)
    crossfitted: Mapping[float, CrossfittedOracle] = field(
        repr=False
    )  # the oracle's other end; {}: can't be known


def compute_main_results(case: PaperPool, fits: Mapping[float, ClassifierFits]) -> MainResults:
    """Compute the table of one recording; `fits` has classifiers for each average budget."""
    budgets = select_fitted_budgets(case, fits)
    train = fits[budgets[0]].train
    everyone = np.ones_like(train)
    as_paper, held_out = JudgedTable.of(case.windows, everyone), JudgedTable.of(case.exact, ~train)
    paper: dict[tuple[str, float], ChoiceOutcome] = {}
    held_out_outcomes: dict[tuple[str, float], ChoiceOutcome] = {}
    for budget in budgets:
        own = fits[budget]
        columns_by_method = {
            "classifier": own.predicted,
            "oracle": np.broadcast_to(own.labels, own.predicted.shape),
        }
        for method, columns in columns_by_method.items():
            paper[method, budget] = as_paper.compute_outcome(columns)
            held_out_outcomes[method, budget] = held_out.compute_outcome(columns)
        for rule in RULES:
            paper[rule, budget] = as_paper.compute_outcome(choose_by_rule(case, rule, budget, seen=everyone))
            held_out_outcomes[rule, budget] = held_out.compute_outcome(
                choose_by_rule(case, rule, budget, seen=train)
            )
    pairs = split_halves(case)
    return MainResults(
        name=case.name,
        budgets=budgets,
        modes=case.budgets,
        seeds=len(train),
        problems=len(case),
        learned_from=round(float(train.sum(axis=1).mean())),
        paper=paper,
        held_out=held_out_outcomes,
        crossfitted={budget: _compute_crossfitted(pairs, budget, held_out) for budget in budgets}
        if pairs
        else {},
    )


def select_fitted_budgets(case: PaperPool, fits: Mapping[float, ClassifierFits]) -> tuple[float, ...]:
    """The paper's average budgets that there are classifiers and samples for, rising; else all there are."""
    within = sorted(select_reachable(case, list(fits)))
    return tuple(budget for budget in within if budget in TARGET_BUDGETS) or tuple(within)


def split_halves(case: PaperPool) -> tuple[Pair, ...]:
    """Tables to choose on and tables to judge on, in pairs; none where samples are too few to halve."""
    try:
        return score_halves(case.ballots, case.exact, scoring=Scoring(), splits=2)
    except TooFewSamples:
        return ()


def _compute_crossfitted(pairs: Sequence[Pair], budget: float, judged: JudgedTable) -> CrossfittedOracle:
    plans = [(solve(chosen, budget=budget), judge) for chosen, judge in pairs]
    accuracy = np.mean(
        [compute_expectation(judge.accuracy, plan) for plan, judge in plans], axis=0
    )  # (problems,)
    cost = np.mean([compute_expectation(judge.cost_matrix, plan) for plan, judge in plans], axis=0)
    shape = judged.mask.shape
    return CrossfittedOracle(
        accuracy=judged.mean_by_seed(np.broadcast_to(accuracy, shape)),
        cost=judged.mean_by_seed(np.broadcast_to(cost, shape)),
    )


AS_PAPER, HELD_OUT = "scored as the paper does", "held-out"
METHOD_LABELS = {
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
_SAME_COST = 0.02  # samples: costs that differ by less count as the same


def build_section(case: PaperPool, fits: Mapping[float, ClassifierFits]) -> Section:
    """Build the main table in both readings, and the classifier against uniform at its own cost."""
    result = compute_main_results(case, fits)
    return Section(
        key="main",
        title="Main results",
        words=_compose_words(result),
        tables=(*build_tables(result), build_matched_table(result)),
        missing=(*describe_unreachable(case), *list_missing(case)),
    )


def list_missing(case: PaperPool) -> tuple[str, ...]:
    """List what else this pool doesn't allow, one line each."""
    result = []
    least, needed = int(case.ballots.drawn.min()), 2 * case.budgets[-1]
    if least < needed:
        result.append(
            f"cross-fitted oracle: choosing on half of the samples needs {needed} of every problem, and some "
            f"problem has {least}; collect more"
        )
    if not case.has_entropy:
        result.append(
            "entropy of the first sample: not recorded, so the classifier sees 15 of the paper's 16 "
            "features; collect with log-probabilities"
        )
    return tuple(result)


def build_tables(result: MainResults) -> tuple[Table, Table]:
    """Build the paper's table, scored as the paper does and held-out."""
    columns = [Column(name="method")]
    for budget in result.budgets:
        columns.append(Column(name=f"B = {budget:g}", kind="share", about="accuracy"))
        columns.append(Column(name=f"cost at {budget:g}", kind="number", about="samples spent on average"))
    at = METHODS.index("classifier")
    paper = Table(
        key="main-paper",
        title=f"Main results, {AS_PAPER}",
        protocol=(
            f"In-sample: {result.seeds} classifiers, each learned from {result.learned_from} of "
            f"{result.problems} problems and scored on all of them; accuracy by disjoint windows of the "
            "samples. Mean ± standard deviation over seeds."
        ),
        columns=tuple(columns),
        rows=tuple(
            _build_row(result, result.paper, method, plain=method != "classifier") for method in METHODS
        ),
        note=_compose_note(result),
        bold=(at,),
    )
    rows = [_build_row(result, result.held_out, method) for method in METHODS]
    if result.crossfitted:
        rows.append(_build_crossfitted_row(result))
    rows[METHODS.index("oracle")] = ("oracle, in-sample", *rows[METHODS.index("oracle")][1:])
    held_out = Table(
        key="main-held-out",
        title=f"Main results, {HELD_OUT}",
        protocol=(
            f"Held-out: the same {result.seeds} classifiers on the problems not learned from; the "
            "heuristic's cuts from the problems learned from; accuracy over all subsets of the samples. "
            "Mean ± standard deviation over seeds, each of which judges other problems."
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


def build_matched_table(result: MainResults) -> Table:
    """Build the table of the classifier beside uniform at exactly its own cost, in both readings."""
    rows: list[tuple[Cell, ...]] = []  # in-sample an interval over problems would tell nothing of new ones
    for budget in result.budgets:
        paper_outcome, held_out_outcome = (
            result.paper["classifier", budget],
            result.held_out["classifier", budget],
        )
        rows.append(
            (
                budget,
                AS_PAPER,
                *_format_outcome(paper_outcome),
                paper_outcome.gain.mean,
                paper_outcome.dealt,
                paper_outcome.knowing.mean,
            )
        )
        rows.append(
            (
                budget,
                HELD_OUT,
                *_format_outcome(held_out_outcome),
                held_out_outcome.gain,
                held_out_outcome.dealt,
                held_out_outcome.knowing,
            )
        )
    return Table(
        key="main-matched",
        title="The classifier against uniform at its own cost",
        protocol="As the two tables above; all seeds together, 95% intervals over problems.",
        columns=(
            Column(name="B", kind="amount"),
            Column(name="reading"),
            Column(name="cost", kind="number", about="samples the classifier spends on average"),
            Column(name="classifier", kind="share", about="accuracy"),
            Column(name="uniform", kind="share", about="accuracy of the same number of samples for all"),
            Column(name="difference", kind="points", about="classifier less uniform, points"),
            Column(
                name="dealt by lot", kind="share", about="accuracy of the classifier's own budgets, shuffled"
            ),
            Column(name="who gets them", kind="points", about="classifier less dealt by lot, points"),
        ),
        rows=tuple(rows),
        note="All alike is the best mix of two budgets: some problems, drawn by lot, get the larger one.",
        bold=tuple(range(1, len(rows), 2)),
    )


def _format_outcome(outcome: ChoiceOutcome) -> tuple[float, float, float]:
    return outcome.spent, outcome.interval.mean, outcome.alike


def _build_row(
    result: MainResults,
    outcomes: Mapping[tuple[str, float], ChoiceOutcome],
    method: str,
    *,
    plain: bool = False,
) -> tuple[Cell, ...]:
    cells: list[Cell] = [METHOD_LABELS[method]]
    for budget in result.budgets:
        outcome = outcomes[method, budget]
        cells += _build_cells(outcome.accuracy, outcome.cost, plain=plain and method != "random")
    return tuple(cells)


def _build_crossfitted_row(result: MainResults) -> tuple[Cell, ...]:
    cells: list[Cell] = ["oracle, cross-fitted"]
    for budget in result.budgets:
        cells += _build_cells(result.crossfitted[budget].accuracy, result.crossfitted[budget].cost)
    return tuple(cells)


def _build_cells(
    accuracy: npt.NDArray[np.float64], cost: npt.NDArray[np.float64], *, plain: bool = False
) -> list[Cell]:
    """Accuracy over seeds and cost; plain where seeds change nothing."""
    return [float(accuracy.mean()) if plain else compute_spread(accuracy), float(cost.mean())]


def _compose_note(result: MainResults) -> str:
    """Say what the comparison with fixed-b hides, at the budgets where it hides something."""
    sentences = []
    for budget in result.budgets:
        ours, fixed = result.paper["classifier", budget], result.paper["fixed", budget]
        if ours.spent - fixed.spent > _SAME_COST:
            sentences.append(
                f"at B = {budget:g} fixed-b spends {fixed.spent:.2f} samples and has "
                f"{fixed.interval.mean:.1%}, the classifier spends {ours.spent:.2f}, at which uniform has "
                f"{ours.alike:.1%}"
            )
    modes = ", ".join(map(str, result.modes))
    text = f"Every method chooses among {modes} samples."
    return f"{text} Fixed-b spends less than it may: {'; '.join(sentences)}." if sentences else text


def _compose_words(result: MainResults) -> tuple[str, ...]:
    if all(result.paper["oracle", budget].spent == 1.0 for budget in result.budgets):
        return (NOTHING,)
    at = join_words([f"{budget:g}" for budget in result.budgets])
    ours = [result.paper["classifier", budget] for budget in result.budgets]
    fixed = [result.paper["fixed", budget] for budget in result.budgets]
    leads = format_points(
        one.interval.mean - other.interval.mean for one, other in zip(ours, fixed, strict=True)
    )
    first = f"Scored as the paper does, the classifier differs from fixed-b by {leads} at B = {at}."
    if any(one.spent - other.spent > _SAME_COST for one, other in zip(ours, fixed, strict=True)):
        spent, theirs = (join_words([f"{each.spent:.2f}" for each in group]) for group in (ours, fixed))
        first += f" It spends {spent} samples for that and fixed-b {theirs}."
    first += f" From uniform at its own cost it differs by {format_points(one.gain.mean for one in ours)}."
    return first, _describe_held_out(result), _describe_others(result, at)


def _describe_held_out(result: MainResults) -> str:
    gain_intervals = [result.held_out["classifier", budget].gain for budget in result.budgets]
    above, below = find_clear_signs(gain_intervals)
    text = (
        "Held-out, on problems not learned from, it differs from uniform at its cost by "
        f"{format_gains(gain_intervals)}."
    )
    where = [f"{budget:g}" for budget in result.budgets]
    if above:
        text += f" It is clearly better at B = {join_words([where[k] for k in above])}."
    if below:
        text += f" It is clearly worse at B = {join_words([where[k] for k in below])}."
    if not above and not below:
        text += " Every interval holds zero: what the classifier buys can't be distinguished from nothing."
    knowing = [result.held_out["classifier", budget].knowing for budget in result.budgets]
    return (
        f"{text} From its own budgets dealt by lot it differs by {format_gains(knowing)}: that much is due "
        "to who gets them, the rest to which numbers of samples it mixes."
    )


def _describe_others(result: MainResults, at: str) -> str:
    oracle = [result.held_out["oracle", budget].gain.mean for budget in result.budgets]
    heuristic = [result.held_out["heuristic", budget].gain for budget in result.budgets]
    return (
        "What there is to win by deciding beforehand: the oracle, which sees the answers, gains "
        f"{format_points(oracle)} over uniform at its own cost, in-sample. Giving most to the longest "
        f"prompts differs by {format_gains(heuristic)}, held-out, at B = {at}."
    )
