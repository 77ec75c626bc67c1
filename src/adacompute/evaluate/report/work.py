"""Every job done, by one process or several, with the same results. Knows no section by its inside."""

from collections.abc import Mapping, Sequence

from adacompute.errors import AdacomputeError
from adacompute.evaluate.crew import Progress, crew
from adacompute.evaluate.exhibits import Section
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.fits import Fits, fitted
from adacompute.evaluate.report.given import Given, Job

__all__ = ["BUDGETS", "done", "steps"]

BUDGETS = (1.2, 1.5, 2.0, 3.0)  # that the paper's classifiers are fitted for, where the pool reaches so far
_SLOW = "left out of a quick look, since it takes long; leave --quick out to have it"
_SEEDS, _FEW_SEEDS = 3, 2


def steps(case: Case | None, jobs: Sequence[Job]) -> int:
    """How often `done` tells of progress."""
    return len(_allowed(case)) + len(_possible(case, jobs))


def done(given: Given, jobs: Sequence[Job], *, workers: int, progress: Progress) -> dict[str, Section]:
    """Every section that this pool allows, by the job's key; one that is refused says why instead."""
    budgets, possible = _allowed(given.case), _possible(given.case, jobs)
    slowest_first = sorted(possible, key=lambda job: -job.effort)
    total, at = steps(given.case, jobs), 0
    fits: dict[float, Fits] = {}
    found: dict[str, Section] = {}
    with crew(given, workers=workers) as ask:
        for place, one in ask(_fit, [(budget,) for budget in budgets]):
            fits[budgets[place]] = one
            at += 1
            progress(at, total, f"classifier at {budgets[place]:g}")
        fits = {budget: fits[budget] for budget in budgets}  # in the order asked for, whoever was first
        for place, section in ask(_made, [(job, fits) for job in slowest_first]):
            found[slowest_first[place].key] = section
            at += 1
            progress(at, total, slowest_first[place].title)
    return {job.key: found[job.key] for job in possible}


def _possible(case: Case | None, jobs: Sequence[Job]) -> list[Job]:
    return [job for job in jobs if case is not None or not job.graded]


def _allowed(case: Case | None) -> tuple[float, ...]:
    return () if case is None else tuple(budget for budget in BUDGETS if budget <= case.budgets[-1])


def _fit(given: Given, budget: float) -> Fits:
    seeds = _FEW_SEEDS if given.quick else _SEEDS
    return fitted(given.known, [budget], seeds=seeds, seed=given.seed)[budget]


def _made(given: Given, job: Job, fits: Mapping[float, Fits]) -> Section:
    if job.slow and given.quick:
        return Section(key=job.key, title=job.title, missing=(_SLOW,))
    try:
        return job.make(given, fits)
    except AdacomputeError as exc:
        return Section(key=job.key, title=job.title, missing=(str(exc),))
