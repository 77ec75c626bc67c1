"""Builds the report of a pool: evaluates every policy once, then makes all sections from the results."""

import hashlib
import platform
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from adacompute.errors import format_count
from adacompute.evaluate.comparison import OTHER_HALF, Evaluation, Verdict
from adacompute.evaluate.conclusions import EvaluationRuns, assemble_evaluation
from adacompute.evaluate.measure import (
    AVERAGE_BUDGETS,
    LONGEST,
    ROUND_LIMITS,
    EvaluationSetup,
    Votes,
    leave_out_short,
    select_graded,
)
from adacompute.evaluate.oracle_bounds import Oracle, bracket_oracle
from adacompute.evaluate.parallel import ProgressCallback, SetupWork, split_progress
from adacompute.evaluate.protocols import (
    evaluate_modes,
    reduce_order_noise,
    run_policies,
    score_uniform_exactly,
)
from adacompute.evaluate.verdict import count_verdict_steps, judge_pool
from adacompute.pool import Ballots, fingerprint
from adacompute.pool.groups import count_in_groups
from adacompute.pool.modes import ModeSet
from adacompute.report.canvas import check_drawing
from adacompute.report.document import Column, Report, ReportPart, Section, Table, join_words
from adacompute.report.exhibits import frontier, modes, verdict, worth
from adacompute.report.exhibits.frontier import PolicyFrontier, trace_frontier
from adacompute.report.exhibits.money import EXAMPLE_MONEY, Money, build_money_data

# packages whose versions can change the report's numbers
_PACKAGES = ("numpy", "scipy", "scikit-learn", "matplotlib", "xgboost-cpu", "xgboost")
_HELD_OUT_PROTOCOL = (
    "Held-out: the problems are split into folds, groups of similar ones whole; a policy is fitted, and its "
    "dial calibrated, on the other folds, then run on the others' samples, in many random orders. Uniform "
    "sampling is exact over all orders; its known error on these orders is used to correct the others. "
    "Policies are compared at exactly the same average cost, on the upper concave hull of each one's own "
    "settings. Intervals are 95%, by bootstrap over groups, and paired where two policies are compared."
)
_MODES_PROTOCOL = (
    "Held-out: the problems are split into folds, groups of similar ones whole; ours, cascades, mixes and "
    "routers are fitted or chosen on the other folds, then run on the others' samples, in many random "
    "orders. All are compared at the same average cost, by a mix of two of their own settings. Intervals are "
    "95%, by bootstrap over groups, and paired where two policies are compared."
)
POLICIES = (
    *("fixed", "random", "heuristic", "shuffled", "asc", "esc", "doubling"),
    *("classifier", "curve", "stopping", *ROUND_LIMITS),
)
# names of two further results that `run_policies` computes, besides those of the policies
_EXACT, _ORACLE = "uniform sampling, exact", "oracle"
_FOLDS, _FEW_FOLDS = 5, 2
_ORDERS, _FEW_ORDERS = 20, 8
_FEW_MODE_ORDERS = 12
_QUICK_NOTICE = (
    "A quick look: fewer folds and orders than the full report, so numbers are rougher. Leave --quick out "
    "for the full one."
)
_UNGRADED_NOTICE = (
    "No problem has a grade or a gold answer, so accuracy isn't known. Everywhere on this page, how often an "
    f"answer is that of {OTHER_HALF} (of the most expensive mode), which no policy draws, stands in for it."
)
_NO_ORACLE = " The oracle needs grades and is left out; record grades or gold answers to have it."


def _score_oracle(setup: EvaluationSetup) -> Oracle | None:
    """Computes the oracle's accuracy tables; None if the samples have no grades."""
    return Oracle.of(setup) if setup.basis == "accuracy" else None


def build_report(
    ballots: Ballots,
    *,
    mode_set: ModeSet | None = None,
    name: str,
    command: str = "",
    quick: bool = False,
    votes: Votes = "auto",
    seed: int = 0,
    money: Money = EXAMPLE_MONEY,
    workers: int = 1,
    progress: ProgressCallback | None = None,
    wait_for_verdict: Callable[[], Verdict] | None = None,
) -> Report:
    """Evaluates a pool and builds its report.

    If the samples are of several modes, `mode_set` has the modes' costs, and the page compares the modes.
    `wait_for_verdict` returns the verdict of `judge_pool`, if another thread or process computes it.

    `workers` is a number of processes, and doesn't change the report. With more than one, scripts need
    `if __name__ == "__main__":`.
    """
    check_drawing()
    ballots = ballots.group()
    several = mode_set is not None
    verdict_steps = 0 if several or wait_for_verdict is not None else count_verdict_steps(ballots)
    first_progress, rest_progress = split_progress(progress, verdict_steps + 1)
    verdict_progress, page_progress = split_progress(rest_progress, 1)
    options: dict[str, Any] = {"votes": votes, "seed": seed, "workers": workers, "progress": first_progress}
    oracle, kept = None, ballots
    if mode_set is not None:
        folds, orders = _FEW_FOLDS if quick else _FOLDS, _FEW_MODE_ORDERS if quick else None
        runs, evaluation = evaluate_modes(ballots, mode_set, folds=folds, orders=orders, **options)
    else:
        kept, short = leave_out_short(ballots)
        runs, oracle = _run_policies(kept, quick=quick, **options)
        if wait_for_verdict is None:
            judged = judge_pool(ballots, votes=votes, workers=workers, progress=verdict_progress)
        else:
            judged = wait_for_verdict()
        brackets = () if oracle is None else bracket_oracle(runs.setup, oracle=oracle)
        evaluation = assemble_evaluation(runs, judged, oracle=brackets, short=short)
    parts = _build_parts(runs, evaluation, trace_frontier(runs, evaluation, oracle=oracle), money)
    page_progress(1, 1, "figures and tables")
    facts = collect_facts(kept, evaluation, seed=seed, quick=quick, command=command)
    return Report(
        name=name,
        headline=evaluation.verdict.sentence,
        below=evaluation.verdict.support,
        facts=facts,
        notices=_build_notices(runs.setup, evaluation, quick=quick),
        parts=(*parts, _build_provenance_part(facts)),
        money=None if several else build_money_data(evaluation, money),
        evaluation=evaluation,
    )


def _run_policies(
    ballots: Ballots,
    *,
    quick: bool,
    **options: Any,  # noqa: ANN401 - of run_policies
) -> tuple[EvaluationRuns, Oracle | None]:
    """Runs every policy and the oracle on one mode; reduces the noise from random orders of the samples."""
    graded, _ = select_graded(ballots)
    beside: dict[str, SetupWork] = {_EXACT: score_uniform_exactly, _ORACLE: _score_oracle}
    runs = run_policies(
        ballots,
        budgets=_choose_budgets(graded),
        policies=POLICIES,
        parts=_FEW_FOLDS if quick else _FOLDS,
        orders=_FEW_ORDERS if quick else _ORDERS,
        beside=beside,
        **options,
    )
    return reduce_order_noise(replace(runs, beside={}), runs.beside[_EXACT]), runs.beside[_ORACLE]


def _build_parts(
    runs: EvaluationRuns, evaluation: Evaluation, curves: PolicyFrontier, money: Money
) -> list[ReportPart]:
    """Builds the parts of the page, for one mode or for several."""
    first = verdict.build_section(runs, evaluation, curves, money=money)
    parts = [ReportPart(key="verdict", title="Verdict", about="", sections=(first,))]
    every_policy = frontier.build_section(evaluation, curves)
    if evaluation.mode_set is None:
        held_out = (worth.build_section(runs, evaluation), every_policy)
    else:
        held_out = (every_policy, modes.build_limits(evaluation))
        sections = (modes.build_section(runs, evaluation),)
        about = "What they cost and give."
        parts.append(ReportPart(key="modes", title="Modes", about=about, sections=sections))
    about = "Fitted on other problems than it is judged on."
    parts.append(ReportPart(key="held-out", title="Every policy, held-out", about=about, sections=held_out))
    return parts


def _build_provenance_part(facts: Mapping[str, Any]) -> ReportPart:
    about = "What went in, by which protocol, with which versions and seeds."
    return ReportPart(
        key="made", title="How this was made", about=about, sections=(build_provenance(facts),), folded=True
    )


def _build_notices(setup: EvaluationSetup, evaluation: Evaluation, *, quick: bool) -> tuple[str, ...]:
    ungraded = _UNGRADED_NOTICE + (_NO_ORACLE if evaluation.mode_set is None else "")
    notices = [ungraded] if evaluation.basis == "agreement" else []
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
    """Returns a notice if problems with few samples limit how many samples of every problem are used."""
    counts = setup.ballots.drawn
    fewest, median = int(counts.min()), int(np.median(counts))
    if setup.mode_set is not None or fewest >= LONGEST or median <= fewest:
        return []
    short = np.flatnonzero(counts == fewest)
    name = repr(setup.ballots.ids[int(short[0])])
    others = "" if len(short) == 1 else f" and {len(short) - 1:,} more problems"
    verb = "has" if len(short) == 1 else "have"
    wanted = min(median, LONGEST)
    text = (
        f"Everything is cut to {format_count(fewest, 'sample')} a request: {name}{others} {verb} no more, "
        f"though half of the problems have {wanted} or more. Collect up to {wanted} of each, or leave out "
        "those that have fewer."
    )
    return [text]


def _choose_budgets(ballots: Ballots) -> tuple[float, ...]:
    """Returns the default budgets that every problem has enough samples for."""
    fewest = int(ballots.drawn.min())
    return tuple(budget for budget in AVERAGE_BUDGETS if budget <= fewest) or (1.0,)


def hash_ballots(ballots: Ballots) -> str:
    """Returns a hash of all data that a report uses: questions, votes, grades, tokens, log-probabilities."""
    names = ["gold_known", "classes", "correct", "tokens", "logprob", "entropy"]
    # if no confidence signals are recorded, leave them out, so that hashes of older pools stay the same
    names += ["signals"] if ballots.signals is not None else []
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
    """Returns the report's inputs and the versions of packages as plain data for JSON."""
    drawn = np.concatenate([part.drawn for part in ballots.parts])
    mode_set = evaluation.mode_set
    model: str | None = f"of {join_words(list(ballots.names))}"
    parameters: Mapping[str, Any] = {}
    if mode_set is None:
        model, parameters = ballots.model, dict(ballots.parameters)
    versions = {"Python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return {
        "adacompute": version("adacompute"),
        "problems": evaluation.problems,
        "groups": evaluation.groups,
        "dropped": evaluation.dropped,
        "short": evaluation.short,
        "samples": int(drawn.sum()),
        "samples_least": int(drawn.min()),
        "samples_most": int(drawn.max()),
        "model": model,
        "parameters": parameters,
        "parameters_fingerprint": fingerprint(parameters),
        "basis": evaluation.basis,
        "votes": evaluation.votes,
        "folds": evaluation.folds,
        "orders": evaluation.orders,
        "longest": evaluation.longest,
        "seed": seed,
        "quick": quick,
        "command": command,
        "digest": " ".join(map(hash_ballots, ballots.parts)),
        "versions": versions,
    }


def build_provenance(facts: Mapping[str, Any]) -> Section:
    """Builds the report's last section, a table of its inputs and of package versions."""
    samples = f"{facts['samples']:,} in all, {facts['samples_least']} to {facts['samples_most']} a problem"
    if facts["samples_least"] == facts["samples_most"]:
        samples = f"{facts['samples']:,} in all, {facts['samples_most']} a problem"
    problems = count_in_groups(facts["problems"], facts["groups"])
    problems += f", and {facts['dropped']:,} left out for want of grades or answers"
    if facts["short"]:
        problems += f", {facts['short']:,} for want of samples"
    parameters = ", ".join(f"{name} {value}" for name, value in facts["parameters"].items())
    rows = (
        ("model", facts["model"] or "not named"),
        ("sampling parameters", parameters or "none recorded"),
        ("problems", problems),
        ("samples", samples),
        ("judged by", "grades or gold answers" if facts["basis"] == "accuracy" else OTHER_HALF),
        ("votes", "weighted by confidence" if facts["votes"] == "weighted" else "plain"),
        ("held-out", f"{facts['folds']} folds, {facts['orders']} random orders of the samples"),
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
    words = (_MODES_PROTOCOL if " " in facts["digest"] else _HELD_OUT_PROTOCOL,)
    return Section(key="made", title="What went in", tables=(table,), words=words)
