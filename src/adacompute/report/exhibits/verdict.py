"""The first section of the page: what accuracy an average budget buys, and what that costs."""

import math

import numpy as np

from adacompute.evaluate.comparison import Evaluation, Match, OracleBracket, Verdict, VerdictRow, basis_name
from adacompute.evaluate.conclusions import EvaluationRuns
from adacompute.evaluate.measure import OURS, UNIFORM
from adacompute.evaluate.mode_rivals import ALL_MODES, NEEDED, WITHOUT
from adacompute.pool.ballots import ABSENT
from adacompute.pool.modes import ModeSet
from adacompute.replay.matching import Interval
from adacompute.report.document import Cell, Column, Section, Table, compute_saved
from adacompute.report.exhibits.frontier import PolicyFrontier, draw_few
from adacompute.report.exhibits.modes import cost_column, scale_cost
from adacompute.report.exhibits.money import Money, build_money_table, needs_column

_NO_TOKENS = (
    "money: not every sample has its output tokens recorded, so only samples can be counted; record tokens "
    "(collect does) to see prices"
)
_LAST_COLUMNS = (
    Column(name="rounds", kind="tenths", about="of samples that are asked for at once; uniform has 1"),
    Column(name="rounds of 95%", kind="amount", about="95% of requests take no more"),
    Column(name="oracle, cross-fitted", kind="share", about="knows the answers; decides beforehand"),
    Column(name="oracle, in-sample", kind="share", about="chosen and judged on the same samples"),
)


def build_section(
    runs: EvaluationRuns, evaluation: Evaluation, frontier: PolicyFrontier, *, money: Money
) -> Section:
    """Builds the page's first section: a figure with a few curves, a table of money, and a table by budget.

    The title is the verdict's sentence. The table by budget shows the verdict's numbers, so that it agrees
    with the title. If there are too few problems for a verdict, it shows the evaluation's numbers.
    """
    missing = []
    if frontier.oracle is not None and frontier.oracle.why:
        missing.append(f"the oracle's cross-fitted end: {frontier.oracle.why}")
    if evaluation.mode_set is None and not _has_tokens(runs):
        missing.append(_NO_TOKENS)
    tables = [build_money_table(money, evaluation)] if money.compute_savings(evaluation.verdict) else []
    tables.append(build_budgets_table(evaluation))
    return Section(
        key="verdict",
        title=evaluation.verdict.sentence,
        tables=tuple(tables),
        pictures=(draw_few(frontier, match=find_verdict_match(evaluation.verdict)),),
        missing=tuple(missing),
    )


def _has_tokens(runs: EvaluationRuns) -> bool:
    """Returns whether response tokens are recorded for every sample."""
    ballots = runs.setup.ballots
    tokens = ballots.tokens[ballots.classes != ABSENT]
    return bool(np.isfinite(tokens).all() and tokens.any())


def find_verdict_match(verdict: Verdict) -> Match | None:
    """Returns the comparison that the verdict's sentence describes; None if the policy doesn't pay."""
    row = verdict.row(verdict.budget)
    if row is None or not verdict.pays or verdict.policy is None:
        return None
    return _make_match(verdict.policy, row)


def _make_match(policy: str, row: VerdictRow) -> Match:
    return Match(
        policy=policy,
        budget=row.budget,
        cost=row.cost,
        accuracy=row.accuracy,
        low=None,
        high=None,
        gain=row.gain,
        lead=None,
        recovered=(None, None),
        worth=row.worth,
        rounds=row.rounds,
        rounds_p95=row.rounds_p95,
    )


def build_budgets_table(evaluation: Evaluation) -> Table:
    """Builds a table by average budget: results of uniform sampling, our policy, and the oracle's bounds."""
    what, verdict = basis_name(evaluation.basis), evaluation.verdict
    if evaluation.mode_set is not None:
        return _build_costs_table(evaluation, evaluation.mode_set)
    rows = []
    for budget in [row.budget for row in verdict.rows] or evaluation.budgets:
        judged = verdict.row(budget)
        uniform, ours = evaluation.match(UNIFORM, budget), evaluation.match(OURS, budget)
        uniform_accuracy = None if uniform is None else uniform.accuracy
        if judged is not None:
            uniform_accuracy, ours = judged.uniform, _make_match(verdict.policy or OURS, judged)
        bracket = next((each for each in evaluation.oracle if each.budget == budget), None)
        rows.append(_budget_row(budget, uniform_accuracy, ours, bracket, longest=evaluation.longest))
    return Table(
        key="budgets",
        title=f"{what.capitalize()} at each average budget",
        protocol=verdict.protocol
        or (
            f"held-out, {evaluation.folds} folds, {evaluation.votes} votes, at exactly so many samples on "
            "average"
        ),
        columns=(
            Column(name="samples on average", kind="amount"),
            Column(name="uniform", kind="share", about="the same for every problem"),
            Column(name="stopping", kind="share", about="decides as the votes come in"),
            Column(name="gain", kind="points", about="points over uniform, 95% interval of this row alone"),
            needs_column(evaluation.longest),
            Column(name="samples saved", kind="percent", about="of those"),
            *_LAST_COLUMNS,
        ),
        rows=tuple(rows),
        note=(
            f"95% intervals over problems. > {evaluation.longest}: more than were recorded; what is saved is "
            f"then counted against {evaluation.longest}, and is more."
        ),
    )


def _build_costs_table(evaluation: Evaluation, mode_set: ModeSet) -> Table:
    """Builds a table by average cost for several modes: the best single mode, our policy, oracle bounds."""
    brackets = {bracket.budget: bracket for bracket in evaluation.oracle}
    rows: list[tuple[Cell, ...]] = []
    for row in evaluation.verdict.rows:
        needed = row.worth.mean
        saved: tuple[Cell, Cell] = (None, None)
        if not row.gain.holds_zero:
            saved = scale_cost(mode_set, needed), 1 - row.cost / needed if math.isfinite(needed) else None
        rows.append(
            (
                scale_cost(mode_set, row.budget),
                row.uniform,
                row.accuracy,
                row.gain,
                *saved,
                row.rounds,
                row.rounds_p95,
                *_list_ends(brackets.get(row.budget)),
            )
        )
    return Table(
        key="budgets",
        title=f"{evaluation.basis.capitalize()} at each average cost, and what asking several modes saves",
        protocol=evaluation.verdict.protocol,
        columns=(
            cost_column(mode_set, mode_set.cost_unit),
            Column(name=WITHOUT, kind="share", about="the best of the modes alone or mixed"),
            Column(name=ALL_MODES, kind="share", about="stops, asks again or asks another mode"),
            Column(name="gain", kind="points", about="points over single modes, 95% interval, paired"),
            cost_column(mode_set, NEEDED, f"{mode_set.cost_unit}, for the same {evaluation.basis}"),
            Column(name="saved", kind="percent", about="of that; below 0 it costs more"),
            *_LAST_COLUMNS,
        ),
        rows=tuple(rows),
        note="Blank: the interval of the gain holds zero, or it isn't known.",
    )


def _budget_row(
    budget: float, uniform: float | None, ours: Match | None, bracket: OracleBracket | None, *, longest: int
) -> tuple[Cell, ...]:
    own: tuple[Cell, ...] = (None,) * 6
    if ours is not None:
        saved = None if ours.worth is None else compute_saved(ours.cost, ours.worth, longest=longest)
        accuracy = Interval(mean=ours.accuracy, low=ours.low, high=ours.high)
        own = (accuracy, ours.gain, ours.worth, saved, ours.rounds, ours.rounds_p95)
    return (budget, uniform, *own, *_list_ends(bracket))


def _list_ends(bracket: OracleBracket | None) -> tuple[Cell, Cell]:
    return (None, None) if bracket is None else (bracket.low, bracket.high)
