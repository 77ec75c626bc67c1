"""The section on every policy at every average cost. Knows nothing of how it was measured."""

import numpy as np

from adacompute.evaluate.beyond.frontier import RULES, Frontier, frontier_of
from adacompute.evaluate.beyond.lines import Line, measured_by
from adacompute.evaluate.bracket import Oracle
from adacompute.evaluate.entrants import OURS, PLAIN
from adacompute.evaluate.exhibits import Cell, Column, Section, Table
from adacompute.evaluate.figures.frontier import draw_frontier
from adacompute.evaluate.figures.palette import look
from adacompute.evaluate.protocols import Played
from adacompute.evaluate.report.phrases import listed
from adacompute.evaluate.rows import Evaluation

__all__ = ["matched_table", "section"]

_CLEAR = 1e-9


def section(found: Played, evaluation: Evaluation, *, oracle: Oracle | None = None) -> Section:
    """All lines, and a table at the budgets that are looked at closely."""
    frontier = frontier_of(found, oracle=oracle)
    missing = []
    if evaluation.left_out:
        names = listed([look(name).name for name in evaluation.left_out])
        missing.append(f"{names}: can't learn without grades; record grades or gold answers to have them")
    if frontier.oracle is not None and frontier.oracle.why:
        missing.append(f"the oracle's cross-fitted end: {frontier.oracle.why}")
    return Section(
        key="frontier",
        title="Frontier of every policy",
        words=_words(frontier),
        tables=(matched_table(evaluation, frontier),),
        pictures=(draw_frontier(frontier),),
        missing=tuple(missing),
    )


def matched_table(evaluation: Evaluation, frontier: Frontier) -> Table:
    """Gain over uniform of every policy at each budget, the best first."""
    budgets = [one.budget for one in evaluation.verdicts]
    names = [one.policy for one in frontier.lines]
    rows: list[tuple[Cell, ...]] = []
    for name in names:
        at = [evaluation.match(name, budget) for budget in budgets]
        cells: list[Cell] = [look(name).name]
        for one in at:
            cells += [None, None] if one is None else [one.accuracy, one.gain]
        rows.append(tuple(cells))
    middle = 1 + 2 * (len(budgets) // 2)
    rows.sort(key=lambda row: -float(row[middle]) if isinstance(row[middle], float) else 2.0)  # type: ignore[arg-type]
    columns = [Column(name="policy")]
    for budget in budgets:
        columns += [
            Column(name=f"B = {budget:g}", kind="share", about=measured_by(evaluation.basis)),
            Column(name=f"gain at {budget:g}", kind="points", about="points over uniform, 95% interval"),
        ]
    return Table(
        key="policies",
        title=f"{measured_by(evaluation.basis).capitalize()} of every policy at the same average cost",
        protocol=f"held-out, {evaluation.folds} folds, at exactly so many samples on average",
        columns=tuple(columns),
        rows=tuple(rows),
        note="95% intervals over problems of the gain over uniform, paired. Blank: it can't cost so little.",
        bold=tuple(at for at, row in enumerate(rows) if row[0] == look(OURS).name),
    )


def _words(frontier: Frontier) -> tuple[str, ...]:
    found = []
    ours = frontier.of(OURS)
    if ours is not None:
        found.append(_lead(ours, frontier))
    told = [_span(line) for line in frontier.lines if line.policy in (*RULES, "curve", "classifier")]
    sure = [text for text in told if text]
    if sure:
        found.append(f"Clearly above uniform beside that: {listed(sure)}.")
    elif told:
        found.append("No other policy is clearly above uniform at any cost looked at.")
    if frontier.oracle is not None and ours is not None:
        found.append(_oracle(ours, frontier))
    return tuple(text for text in found if text)


def _lead(ours: Line, frontier: Frontier) -> str:
    clear = ours.gain_low > _CLEAR
    sure = ours.cost[clear]
    if not len(sure):
        return "Stopping is nowhere clearly above uniform: its band holds the zero line."
    best = int(np.where(clear, ours.gain, -1.0).argmax())
    text = (
        f"Stopping is clearly above uniform from {sure[0]:.2g} to {sure[-1]:.2g} samples on average, most at "
        f"{ours.cost[best]:.2g}: {100 * ours.gain[best]:+.1f} points "
        f"({100 * ours.gain_low[best]:+.1f} to {100 * ours.gain_high[best]:+.1f})."
    )
    plain = frontier.of(PLAIN)
    if plain is not None and ours.cost[-1] < plain.cost[-1] - 0.5:
        text += (
            f" It has no use for more than {ours.cost[-1]:.1f} samples on average; uniform's line rises up "
            f"to {plain.cost[-1]:.3g}."
        )
    return text


def _span(line: Line) -> str:
    sure = line.cost[line.gain_low > _CLEAR]
    if not len(sure):
        return ""
    span = f"{sure[0]:.2g}" if len(sure) == 1 else f"{sure[0]:.2g} to {sure[-1]:.2g}"
    return f"{look(line.policy).name} at {len(sure)} of {len(line.cost)} costs ({span})"


def _oracle(ours: Line, frontier: Frontier) -> str:
    oracle = frontier.oracle
    if oracle is None:
        return ""
    costs = [cost for cost in oracle.cost.tolist() if cost > 1.01]  # at one sample all are the same
    ends = np.interp(costs, oracle.cost, oracle.high if oracle.low is None else oracle.low)
    above = [cost for cost, end in zip(costs, ends, strict=True) if (ours.at(cost) or 0.0) > end]
    name = "in-sample" if oracle.low is None else "cross-fitted"
    choices = ", ".join(map(str, oracle.choices))
    if not above:
        return (
            f"The one-shot oracle, which knows the answers and may give {choices} samples, is not below "
            f"stopping ({name}) at any cost."
        )
    return (
        f"Stopping is above the one-shot oracle ({name}; it knows the answers and may give {choices} "
        f"samples) at {len(above)} of {len(costs)} costs, from {min(above):.2g} to {max(above):.2g}: it "
        "sees votes as they come in, and the oracle decides beforehand."
    )
