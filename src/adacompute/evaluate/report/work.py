"""Every job done, by one process or several, with the same results. Knows no section by its inside."""

from collections.abc import Sequence

from adacompute.errors import AdacomputeError
from adacompute.evaluate.crew import Progress, crew
from adacompute.evaluate.exhibits import Section
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.report.given import Given, Job

__all__ = ["done", "steps"]

_SLOW = "left out of a quick look, since it takes long; leave --quick out to have it"


def steps(case: Case | None, jobs: Sequence[Job]) -> int:
    """How often `done` tells of progress."""
    return len(_possible(case, jobs))


def done(given: Given, jobs: Sequence[Job], *, workers: int, progress: Progress) -> dict[str, Section]:
    """Every section that this pool allows, by the job's key; one that is refused says why instead."""
    possible = _possible(given.case, jobs)
    slowest_first = sorted(possible, key=lambda job: -job.effort)
    total, at = steps(given.case, jobs), 0
    found: dict[str, Section] = {}
    with crew(given, workers=workers) as ask:
        for place, section in ask(_made, [(job,) for job in slowest_first]):
            found[slowest_first[place].key] = section
            at += 1
            progress(at, total, slowest_first[place].title)
    return {job.key: found[job.key] for job in possible}


def _possible(case: Case | None, jobs: Sequence[Job]) -> list[Job]:
    return [job for job in jobs if case is not None or not job.graded]


def _made(given: Given, job: Job) -> Section:
    if job.slow and given.quick:
        return Section(key=job.key, title=job.title, missing=(_SLOW,))
    try:
        return job.make(given)
    except AdacomputeError as exc:
        return Section(key=job.key, title=job.title, missing=(str(exc),))
