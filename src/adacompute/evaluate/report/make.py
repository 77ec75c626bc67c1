"""A pool's report: everything evaluated once, and every section made of it. Knows no HTML and no files."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from adacompute.errors import ScoreError
from adacompute.evaluate.beyond.headline import headline_of
from adacompute.evaluate.beyond.money import EXAMPLE, Money, money_data
from adacompute.evaluate.beyond.steadied import steadied
from adacompute.evaluate.beyond.tokens import tokens_of
from adacompute.evaluate.bracket import Oracle, brackets
from adacompute.evaluate.exhibits import Section
from adacompute.evaluate.measure import Setup
from adacompute.evaluate.paper.case import Case, case_of
from adacompute.evaluate.prepare import LONGEST, Votes
from adacompute.evaluate.protocols import BUDGETS, Played, played
from adacompute.evaluate.report.given import Given
from adacompute.evaluate.report.jobs import JOBS, PARTS
from adacompute.evaluate.report.made import facts_of, how
from adacompute.evaluate.report.record import Part, Report
from adacompute.evaluate.report.work import done, steps
from adacompute.evaluate.rows import Evaluation
from adacompute.evaluate.told import Shown, told
from adacompute.evaluate.workers import Progress
from adacompute.pool import Ballots

__all__ = ["POLICIES", "report"]

POLICIES = (
    "fixed",
    "random",
    "heuristic",
    "shuffled",
    "asc",
    "esc",
    "doubling",
    "classifier",
    "curve",
    "stopping",
)
_FOLDS, _FEW_FOLDS = 5, 3
_ORDERS, _FEW_ORDERS = 20, 8
_QUICK = (
    "A quick look: fewer folds and orders than the full report, so numbers are rougher, and nothing on what "
    "must be recorded. Leave --quick out for the full one."
)
_MANY = 50  # problems: with fewer, percentile intervals are too short
_FEW = (
    "Few problems: {problems}. Intervals are wide, and still too short: the percentile bootstrap that makes "
    "them is too sure of few problems. Collect {many} or more to rely on them."
)
_UNGRADED = (
    "No problem has a grade or a gold answer, so accuracy can't be told. Everywhere on this page, how often "
    "an answer is that of the vote of all of a problem's samples stands in for it. Difficulty, the "
    "oracle and what must be recorded need grades and are left out; record grades or gold answers to have them."
)


def report(
    ballots: Ballots,
    *,
    name: str,
    command: str = "",
    quick: bool = False,
    votes: Votes = "auto",
    seed: int = 0,
    money: Money = EXAMPLE,
    workers: int = 1,
    progress: Progress | None = None,
) -> Report:
    """Everything that can be told of a pool; the same whatever the number of workers.

    More workers than one are processes of their own: a script that asks for them does its work below
    `if __name__ == "__main__":`.
    """
    case, why = _case(ballots, name)
    before, after = _two_stages(progress, steps(case, JOBS))
    judged = ballots if case is None else case.ballots
    run = played(
        ballots,
        budgets=_budgets(judged),
        policies=POLICIES,
        parts=_folds(judged, quick=quick),
        votes=votes,
        orders=_FEW_ORDERS if quick else _ORDERS,
        seed=seed,
        workers=workers,
        progress=before,
    )
    run = steadied(run)  # the oracle is exact: what it is compared with must be too
    oracle = Oracle.of(run.setup) if run.setup.basis == "accuracy" else None
    evaluation = _told(run, oracle)
    given = Given(
        name=name,
        played=run,
        evaluation=evaluation,
        oracle=oracle,
        case=case,
        money=money,
        quick=quick,
        seed=seed,
    )
    sections = done(given, JOBS, workers=workers, progress=after)
    facts = facts_of(ballots, evaluation, seed=seed, quick=quick, command=command)
    head = headline_of(evaluation)
    return Report(
        name=name,
        headline=head.words,
        below=head.below,
        facts=facts,
        notices=_notices(run.setup, evaluation, why, quick=quick),
        parts=(*_parts(sections), _how(facts)),
        money=money_data(evaluation, tokens_of(run), money),
        evaluation=evaluation,
    )


def _two_stages(progress: Progress | None, later: int) -> tuple[Progress, Progress]:
    """One count over two stages, of which the second has `later` steps."""
    first = [0]  # steps of the first, which tells how many when it begins

    def before(at: int, of: int, last: str) -> None:
        first[0] = of
        if progress is not None:
            progress(at, of + later, last)

    def after(at: int, of: int, last: str) -> None:
        if progress is not None:
            progress(first[0] + at, first[0] + of, last)

    return before, after


def _parts(sections: Mapping[str, Section]) -> list[Part]:
    """Parts with at least one section, in the order of the page."""
    found = []
    for key, title, about, folded in PARTS:
        own = tuple(sections[job.key] for job in JOBS if job.part == key and job.key in sections)
        if own:
            found.append(Part(key=key, title=title, about=about, sections=own, folded=folded))
    return found


def _how(facts: Mapping[str, Any]) -> Part:
    about = "What went in, by which protocol, with which versions and seeds."
    return Part(key="made", title="How this was made", about=about, sections=(how(facts),), folded=True)


def _notices(setup: Setup, evaluation: Evaluation, why: str, *, quick: bool) -> tuple[str, ...]:
    found = [_UNGRADED] if evaluation.basis == "agreement" else []
    if why and not found:
        found.append(f"Difficulty, the oracle's gain and what must be recorded are left out: {why}")
    if evaluation.problems < _MANY:
        found.append(_FEW.format(problems=evaluation.problems, many=_MANY))
    found += _uneven(setup)
    if quick:
        found.append(_QUICK)
    return tuple(found)


def _uneven(setup: Setup) -> list[str]:
    """That one problem's few samples hold all others back, where they do."""
    drawn = setup.ballots.drawn
    fewest, usual = int(drawn.min()), int(np.median(drawn))
    if fewest >= LONGEST or usual <= fewest:
        return []
    short = np.flatnonzero(drawn == fewest)
    name = repr(setup.ballots.ids[int(short[0])])
    others = "" if len(short) == 1 else f" and {len(short) - 1:,} more problems"
    verb = "has" if len(short) == 1 else "have"
    wanted = min(usual, LONGEST)
    text = (
        f"Everything is cut to {fewest} samples a request: {name}{others} {verb} no more, though half of the "
        f"problems have {wanted} or more. Collect up to {wanted} of each, or leave out those that have fewer."
    )
    return [text]


def _told(run: Played, oracle: Oracle | None) -> Evaluation:
    ends = () if oracle is None else brackets(run.setup, oracle=oracle)
    everyone = list(run.everyone)
    return told(Shown(run.setup, everyone, ends, "held-out", run.parts, run.dropped, run.left_out))


def _case(ballots: Ballots, name: str) -> tuple[Case | None, str]:
    try:
        return case_of(ballots, name), ""
    except ScoreError as exc:
        return None, str(exc)


def _folds(ballots: Ballots, *, quick: bool) -> int:
    """As many as there are questions that differ, where those are few."""
    return max(2, min(_FEW_FOLDS if quick else _FOLDS, len(set(ballots.prompts))))


def _budgets(ballots: Ballots) -> tuple[float, ...]:
    """Those of the usual average budgets that the problem with fewest samples allows."""
    fewest = int(ballots.drawn.min())
    return tuple(budget for budget in BUDGETS if budget <= fewest) or BUDGETS[:1]
