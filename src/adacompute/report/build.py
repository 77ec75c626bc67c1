"""Builds the report of a pool: evaluate every policy once, make every section from that, and say how.

Sections are made by one process or several, with the same results.
"""

import hashlib
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from adacompute.errors import AdacomputeError
from adacompute.evaluate.comparison import Evaluation, Verdict
from adacompute.evaluate.conclusions import EvaluationInputs, assemble_evaluation
from adacompute.evaluate.measure import EvaluationSetup, leave_out_short, select_graded
from adacompute.evaluate.menu_evaluation import MenuEvaluation, evaluate_menu
from adacompute.evaluate.oracle_bounds import Oracle, bracket_oracle
from adacompute.evaluate.parallel import ProgressCallback, SetupWork, open_workers, split_progress
from adacompute.evaluate.protocols import (
    AVERAGE_BUDGETS,
    LONGEST,
    EvaluationRuns,
    Votes,
    reduce_order_noise,
    run_policies,
    score_uniform_exactly,
)
from adacompute.evaluate.verdict import count_verdict_steps, judge_pool
from adacompute.pool import Ballots, Menu, fingerprint
from adacompute.report.canvas import check_drawing
from adacompute.report.document import Column, Report, ReportPart, Section, Table, join_words
from adacompute.report.exhibits import frontier, menu, token_cost, verdict, worth
from adacompute.report.exhibits.money import EXAMPLE_MONEY, Money, build_money_data

__all__ = ["JOBS", "PARTS", "Job", "Part", "ReportInputs", "build_menu_report", "build_report", "run_jobs"]

Part = tuple[str, str, str, bool]  # key, title, description, whether its sections are folded at first

_PACKAGES = ("numpy", "scipy", "scikit-learn", "matplotlib", "xgboost-cpu", "xgboost")
_HELD_OUT_PROTOCOL = (
    "Held-out: the problems are split into folds; a policy is fitted, and its dial calibrated, on the other "
    "folds, then run on the samples of the problems that it hasn't seen, in many random orders. Uniform "
    "sampling is exact over all orders; its known error on these orders is used to correct the others. "
    "Policies are compared at exactly the same average cost, on the upper concave hull of each one's own "
    "settings. Intervals are 95%, by bootstrap over problems, and paired where two policies are compared."
)
_HELD_OUT_ABOUT = "Fitted on other problems than it is judged on."
PARTS: tuple[Part, ...] = (
    ("verdict", "Verdict", "", False),
    ("held-out", "Every policy, held-out", _HELD_OUT_ABOUT, False),
)
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
_EXACT, _ORACLE = "uniform sampling, exact", "oracle"  # work that is done beside the evaluation
_FOLDS, _FEW_FOLDS = 5, 2
_ORDERS, _FEW_ORDERS = 20, 8
_QUICK_NOTICE = (
    "A quick look: fewer folds and orders than the full report, so numbers are rougher. Leave --quick out "
    "for the full one."
)
_UNGRADED_NOTICE = (
    "No problem has a grade or a gold answer, so accuracy isn't known. Everywhere on this page, how often "
    "an answer is that of the vote of all of a problem's samples stands in for it. The oracle needs grades "
    "and is left out; record grades or gold answers to have it."
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReportInputs:
    """One pool with its evaluation: what sections are built from."""

    name: str
    runs: EvaluationRuns = field(repr=False)  # every policy, held-out
    evaluation: Evaluation = field(repr=False)  # the same, compared and in words
    oracle: Oracle | None = field(repr=False)  # None without grades
    money: Money
    quick: bool
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One section: its part of the page, and the function that builds it."""

    key: str
    title: str
    part: str
    build: Callable[[ReportInputs], Section]
    effort: float = 1.0  # rough seconds for 600 problems; the longest start first


def _build_verdict(inputs: ReportInputs) -> Section:
    return verdict.build_section(inputs.runs, inputs.evaluation, money=inputs.money, oracle=inputs.oracle)


def _build_frontier(inputs: ReportInputs) -> Section:
    return frontier.build_section(inputs.runs, inputs.evaluation, oracle=inputs.oracle)


def _build_worth(inputs: ReportInputs) -> Section:
    return worth.build_section(inputs.runs, inputs.evaluation)


def _build_token_cost(inputs: ReportInputs) -> Section:
    return token_cost.build_section(inputs.runs)


def _score_oracle(setup: EvaluationSetup) -> Oracle | None:
    """The oracle's tables; None without grades."""
    return Oracle.of(setup) if setup.basis == "accuracy" else None


JOBS = (  # in the order of the page
    Job(key="verdict", title="Verdict", part="verdict", build=_build_verdict),
    Job(key="worth", title="When it is worth it", part="held-out", build=_build_worth),
    Job(key="frontier", title="Frontier", part="held-out", build=_build_frontier, effort=3),
    Job(key="tokens", title="Tokens", part="held-out", build=_build_token_cost),
)


def run_jobs(
    inputs: ReportInputs, jobs: Sequence[Job], *, workers: int, progress: ProgressCallback
) -> dict[str, Section]:
    """Every section, by the job's key; one that fails says why instead."""
    sections: dict[str, Section] = {}
    slowest_first = sorted(jobs, key=lambda job: -job.effort)
    with open_workers(inputs, workers=workers) as run_tasks:
        for index, section in run_tasks(_run_job, [(job,) for job in slowest_first]):
            sections[slowest_first[index].key] = section
            progress(len(sections), len(jobs), slowest_first[index].title)
    return {job.key: sections[job.key] for job in jobs}


def _run_job(inputs: ReportInputs, job: Job) -> Section:
    try:
        return job.build(inputs)
    except AdacomputeError as exc:
        return Section(key=job.key, title=job.title, missing=(str(exc),))


def build_report(
    ballots: Ballots,
    *,
    name: str,
    command: str = "",
    quick: bool = False,
    votes: Votes = "auto",
    seed: int = 0,
    money: Money = EXAMPLE_MONEY,
    workers: int = 1,
    progress: ProgressCallback | None = None,
    wait_for_verdict: Callable[[], Verdict] | None = None,
    jobs: Sequence[Job] = JOBS,
    parts: Sequence[Part] = PARTS,
) -> Report:
    """Evaluate a pool and build its report; the same whatever the number of workers.

    `jobs` are its sections and `parts` its parts, in the order of the page; a study adds its own.
    `wait_for_verdict` gives the verdict of `judge_pool` where another process makes it meanwhile.

    Workers above one are processes: a script that asks for them puts its work below
    `if __name__ == "__main__":`.
    """
    check_drawing()
    kept, short = leave_out_short(ballots)
    verdict_steps = count_verdict_steps(ballots) if wait_for_verdict is None else 0
    first_progress, rest_progress = split_progress(progress, verdict_steps + len(jobs))
    verdict_progress, second_progress = split_progress(rest_progress, len(jobs))
    graded, _ = select_graded(kept)
    beside: dict[str, SetupWork] = {_EXACT: score_uniform_exactly, _ORACLE: _score_oracle}
    runs = run_policies(
        kept,
        budgets=_choose_budgets(graded),
        policies=POLICIES,
        parts=_choose_folds(graded, quick=quick),
        votes=votes,
        orders=_FEW_ORDERS if quick else _ORDERS,
        seed=seed,
        workers=workers,
        progress=first_progress,
        beside=beside,
    )
    # the oracle is exact, so what it is compared with should be less noisy
    others, oracle = runs.beside, runs.beside[_ORACLE]
    runs = reduce_order_noise(replace(runs, beside={}), others[_EXACT])
    if wait_for_verdict is None:
        pool_verdict = judge_pool(ballots, votes=votes, workers=workers, progress=verdict_progress)
    else:
        pool_verdict = wait_for_verdict()
    evaluation = _evaluate_runs(runs, oracle, pool_verdict, short=short)
    inputs = ReportInputs(
        name=name,
        runs=runs,
        evaluation=evaluation,
        oracle=oracle,
        money=money,
        quick=quick,
        seed=seed,
    )
    sections = run_jobs(inputs, jobs, workers=workers, progress=second_progress)
    facts = collect_facts(kept, evaluation, seed=seed, quick=quick, command=command)
    return Report(
        name=name,
        headline=evaluation.verdict.sentence,
        below=evaluation.verdict.support,
        facts=facts,
        notices=_build_notices(runs.setup, evaluation, quick=quick),
        parts=(*_build_parts(sections, jobs, parts), _build_provenance_part(facts)),
        money=build_money_data(evaluation, money),
        evaluation=evaluation,
    )


_MENU_ORDERS, _FEW_MENU_ORDERS = 40, 12
_MENU_HEADLINES = {
    True: "A menu of these modes is worth it.",
    False: "A menu of these modes isn't worth it.",
    None: "Whether a menu of these modes is worth it can't be told yet.",
}
_MENU_PROTOCOL = (
    "Held-out: the problems are split into folds; the menu, cascades, mixes and routers are fitted or chosen "
    "on the other folds, then run on the samples of the problems that they haven't seen, in many random "
    "orders. All are compared at the same average cost, by a mix of two of their own settings. Intervals are "
    "95%, by bootstrap over problems, and paired where two policies are compared."
)
_MENU_UNGRADED = (
    "No problem has a grade or a gold answer, so accuracy isn't known. Everywhere on this page, how often an "
    "answer is that of the vote of all samples of the dearest mode stands in for it."
)


def build_menu_report(
    ballots: Ballots,
    priced_menu: Menu,
    *,
    name: str,
    command: str = "",
    quick: bool = False,
    plain_votes: bool = False,
    seed: int = 0,
    workers: int = 1,
    progress: ProgressCallback | None = None,
) -> Report:
    """Evaluate a menu of several modes and build its report."""
    check_drawing()
    evaluation = evaluate_menu(
        ballots,
        priced_menu,
        folds=max(2, min(_FEW_FOLDS if quick else _FOLDS, len(set(ballots.prompts)))),
        orders=_FEW_MENU_ORDERS if quick else _MENU_ORDERS,
        seed=seed,
        workers=workers,
        weigh=None if plain_votes else "auto",
        progress=progress,
    )
    modes = menu.measure_modes(ballots, priced_menu, graded=evaluation.basis == "accuracy")
    facts = _collect_menu_facts(ballots, evaluation, seed=seed, quick=quick, command=command)
    notices = [_MENU_UNGRADED] if evaluation.basis == "agreement" else []
    notices += [_QUICK_NOTICE] if quick else []
    parts = (
        ("verdict", "Verdict", "", menu.build_verdict_section(evaluation, modes)),
        ("modes", "Modes", "What they cost and give.", menu.build_modes_section(evaluation, modes)),
        ("held-out", "Every policy, held-out", _HELD_OUT_ABOUT, menu.build_policies_section(evaluation)),
        ("limits", "Limits", "", menu.build_limits_section(evaluation, modes)),
    )
    return Report(
        name=name,
        headline=_MENU_HEADLINES[evaluation.worth],
        below=evaluation.verdict,
        facts=facts,
        notices=tuple(notices),
        parts=(
            *(
                ReportPart(key=key, title=title, about=about, sections=(section,))
                for key, title, about, section in parts
            ),
            ReportPart(
                key="made",
                title="How this was made",
                about="What went in, by which protocol, with which versions and seeds.",
                sections=(_build_menu_provenance(facts, evaluation),),
                folded=True,
            ),
        ),
        evaluation=evaluation,
    )


def _collect_menu_facts(
    ballots: Ballots, evaluation: MenuEvaluation, *, seed: int, quick: bool, command: str
) -> dict[str, Any]:
    hashes = {mode: hash_ballots(votes) for mode, votes in zip(ballots.names, ballots.parts, strict=True)}
    drawn = np.concatenate([votes.drawn for votes in ballots.parts])
    return {
        "adacompute": version("adacompute"),
        "problems": evaluation.problems,
        "samples": int(drawn.sum()),
        "samples_least": int(drawn.min()),
        "samples_most": int(drawn.max()),
        "model": f"of {join_words(list(ballots.names))}",
        "menu": evaluation.menu.dump(),
        "basis": evaluation.basis,
        "folds": evaluation.folds,
        "families": evaluation.families,
        "seed": seed,
        "quick": quick,
        "command": command,
        "digests": hashes,
        "versions": {"Python": platform.python_version(), **_package_versions()},
    }


def _build_menu_provenance(facts: Mapping[str, Any], evaluation: MenuEvaluation) -> Section:
    costs = [
        f"{mode.name} {evaluation.menu.format_cost(mode.cost, unit=False)}" for mode in evaluation.menu.modes
    ]
    digests = ", ".join(f"{mode} {digest[:16]}" for mode, digest in facts["digests"].items())
    rows = (
        ("adacompute", facts["adacompute"]),
        ("cost of a sample", f"{', '.join(costs)} ({evaluation.menu.cost_unit})"),
        ("problems", f"{facts['problems']:,}"),
        ("samples", f"{facts['samples']:,} in all"),
        ("held-out", evaluation.protocol),
        ("seed", str(facts["seed"])),
        ("command", facts["command"]),
        ("hashes of the samples", digests),
        ("versions", ", ".join(f"{name} {release}" for name, release in facts["versions"].items())),
    )
    table = Table(
        key="made",
        title="What went in",
        protocol="the same command on the same samples gives the same numbers, with any number of workers.",
        columns=(Column(name="what"), Column(name="value")),
        rows=rows,
    )
    return Section(key="made", title="What went in", tables=(table,), words=(_MENU_PROTOCOL,))


def _build_parts(
    sections: Mapping[str, Section], jobs: Sequence[Job], parts: Sequence[Part]
) -> list[ReportPart]:
    """Parts with at least one section, in the order of the page."""
    report_parts = []
    for key, title, about, folded in parts:
        built = tuple(sections[job.key] for job in jobs if job.part == key and job.key in sections)
        if built:
            report_parts.append(ReportPart(key=key, title=title, about=about, sections=built, folded=folded))
    return report_parts


def _build_provenance_part(facts: Mapping[str, Any]) -> ReportPart:
    about = "What went in, by which protocol, with which versions and seeds."
    return ReportPart(
        key="made", title="How this was made", about=about, sections=(build_provenance(facts),), folded=True
    )


def _build_notices(setup: EvaluationSetup, evaluation: Evaluation, *, quick: bool) -> tuple[str, ...]:
    notices = [_UNGRADED_NOTICE] if evaluation.basis == "agreement" else []
    if evaluation.short:
        count, verb = (
            (f"{evaluation.short:,} problems", "are") if evaluation.short > 1 else ("1 problem", "is")
        )
        notices.append(f"{count} with fewer than {evaluation.longest} samples {verb} left out.")
    notices += _uneven_notices(setup)
    if quick:
        notices.append(_QUICK_NOTICE)
    return tuple(notices)


def _uneven_notices(setup: EvaluationSetup) -> list[str]:
    """A notice where the few samples of one problem limit all others."""
    counts = setup.ballots.drawn
    fewest, median = int(counts.min()), int(np.median(counts))
    if fewest >= LONGEST or median <= fewest:
        return []
    short = np.flatnonzero(counts == fewest)
    name = repr(setup.ballots.ids[int(short[0])])
    others = "" if len(short) == 1 else f" and {len(short) - 1:,} more problems"
    verb = "has" if len(short) == 1 else "have"
    wanted = min(median, LONGEST)
    text = (
        f"Everything is cut to {fewest} samples a request: {name}{others} {verb} no more, though half of the "
        f"problems have {wanted} or more. Collect up to {wanted} of each, or leave out those that have fewer."
    )
    return [text]


def _evaluate_runs(
    runs: EvaluationRuns, oracle: Oracle | None, pool_verdict: Verdict, *, short: int
) -> Evaluation:
    return assemble_evaluation(
        EvaluationInputs(
            setup=runs.setup,
            everyone=list(runs.everyone),
            oracle=() if oracle is None else bracket_oracle(runs.setup, oracle=oracle),
            protocol="held-out",
            parts=runs.parts,
            dropped=runs.dropped,
            left_out=runs.left_out,
            verdict=pool_verdict,
            short=short,
        )
    )


def _choose_folds(ballots: Ballots, *, quick: bool) -> int:
    """The number of folds, at most the number of different questions."""
    return max(2, min(_FEW_FOLDS if quick else _FOLDS, len(set(ballots.prompts))))


def _choose_budgets(ballots: Ballots) -> tuple[float, ...]:
    """The usual average budgets that the problem with fewest samples allows."""
    fewest = int(ballots.drawn.min())
    return tuple(budget for budget in AVERAGE_BUDGETS if budget <= fewest) or AVERAGE_BUDGETS[:1]


def hash_ballots(ballots: Ballots) -> str:
    """A hash of everything a report looks at: questions, votes, grades, tokens, log-probabilities."""
    names = ["gold_known", "classes", "correct", "tokens", "logprob", "entropy"]
    names += ["signals"] if ballots.signals is not None else []  # else the hash is that of older versions
    hasher = hashlib.sha256()
    for fields in zip(ballots.ids, ballots.prompts, ballots.subjects, ballots.levels, strict=True):
        hasher.update(repr(fields).encode("utf-8", "replace"))
    for name in names:
        values = np.ascontiguousarray(getattr(ballots, name))
        hasher.update(f"{name} {values.dtype.str} {values.shape}".encode())
        hasher.update(values.tobytes())
    return hasher.hexdigest()


def collect_facts(
    ballots: Ballots, evaluation: Evaluation, *, seed: int, quick: bool, command: str
) -> dict[str, Any]:
    """What went in and which versions made it, as plain data."""
    return {
        "adacompute": version("adacompute"),
        "problems": evaluation.problems,
        "dropped": evaluation.dropped,
        "short": evaluation.short,
        "samples": int(ballots.drawn.sum()),
        "samples_least": int(ballots.drawn.min()),
        "samples_most": int(ballots.drawn.max()),
        "model": ballots.model,
        "parameters": dict(ballots.parameters),
        "parameters_fingerprint": fingerprint(ballots.parameters),
        "basis": evaluation.basis,
        "votes": evaluation.votes,
        "folds": evaluation.folds,
        "orders": evaluation.orders,
        "longest": evaluation.longest,
        "seed": seed,
        "quick": quick,
        "command": command,
        "digest": hash_ballots(ballots),
        "versions": {"Python": platform.python_version(), **_package_versions()},
    }


def build_provenance(facts: Mapping[str, Any], *, missing: tuple[str, ...] = ()) -> Section:
    """The last section: what went in and what was used."""
    samples = f"{facts['samples']:,} in all, {facts['samples_least']} to {facts['samples_most']} a problem"
    if facts["samples_least"] == facts["samples_most"]:
        samples = f"{facts['samples']:,} in all, {facts['samples_most']} a problem"
    problems = f"{facts['problems']:,}, and {facts['dropped']:,} left out for want of grades"
    if facts["short"]:
        problems += f", {facts['short']:,} for want of samples"
    parameters = ", ".join(f"{name} {value}" for name, value in facts["parameters"].items())
    rows = (
        ("model", facts["model"] or "not named"),
        ("sampling parameters", parameters or "none recorded"),
        ("problems", problems),
        ("samples", samples),
        (
            "judged by",
            "grades or gold answers" if facts["basis"] == "accuracy" else "agreement with the full vote",
        ),
        ("votes", "weighted by confidence" if facts["votes"] == "weighted" else "plain"),
        ("held-out", f"{facts['folds']} folds over problems, {facts['orders']} random orders of the samples"),
        ("seed", str(facts["seed"])),
        ("command", facts["command"]),
        ("hash of the samples", facts["digest"]),
        ("versions", ", ".join(f"{name} {release}" for name, release in facts["versions"].items())),
    )
    table = Table(
        key="made",
        title="What went in",
        protocol="the same command on the same samples gives the same numbers, with any number of workers.",
        columns=(Column(name="what"), Column(name="value")),
        rows=(("adacompute", facts["adacompute"]), *rows),
    )
    return Section(
        key="made", title="What went in", tables=(table,), words=(_HELD_OUT_PROTOCOL,), missing=missing
    )


def _package_versions() -> dict[str, str]:
    """The versions of the libraries that made the numbers, as far as they are installed."""
    versions = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions
