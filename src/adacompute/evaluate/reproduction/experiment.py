"""The paper's experiment on recordings at hand, and what came of each of its statements. Knows no page.

Every recording is a piece of work of its own, so are the two that pool them: by one process or several, with
the same results.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from adacompute.evaluate.crew import Progress, crew
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.reproduction.checks import CHECKS, Finding, Seen, finding
from adacompute.evaluate.reproduction.runs import Pooled, Run, pooled, ran
from adacompute.evaluate.reproduction.said import said

__all__ = ["Reproduction", "found_on", "reproduced"]

POOLED = "pooled"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reproduction:
    """All of it."""

    runs: tuple[Run, ...] = field(repr=False)  # in the order given
    pooled: Pooled = field(repr=False)
    findings: dict[str, Finding]  # by claim, in the paper's order
    quick: bool
    seed: int
    seconds: float  # of computing, in all processes together
    workers: int


def reproduced(
    cases: Sequence[Case],
    *,
    quick: bool = False,
    seed: int = 0,
    workers: int = 1,
    progress: Progress | None = None,
) -> Reproduction:
    """The experiment on these recordings."""
    total, done, seconds = len(cases) + 1, 0, 0.0
    slowest_first = sorted(range(len(cases)), key=lambda at: -len(cases[at]))
    work = [(None, quick, seed), *((at, quick, seed) for at in slowest_first)]
    runs: dict[int, Run] = {}
    together: list[Pooled] = []
    with crew(tuple(cases), workers=workers) as ask:
        for place, (one, spent) in ask(_part, work):
            done, seconds = done + 1, seconds + spent
            at = work[place][0]
            if at is None:
                together.append(one)
            else:
                runs[at] = one
            if progress is not None:
                progress(done, total, "learners and archetypes" if at is None else cases[at].name)
    ordered = tuple(runs[at] for at in range(len(cases)))
    return Reproduction(
        runs=ordered,
        pooled=together[0],
        findings=found_on(ordered, together[0]),
        quick=quick,
        seed=seed,
        seconds=seconds,
        workers=workers,
    )


def found_on(runs: Sequence[Run], together: Pooled) -> dict[str, Finding]:
    """What came of every statement."""
    found = {}
    for key in said().claims:
        check, seen = CHECKS[key], dict[str, Seen]()
        subjects: dict[str, Run | Pooled] = {run.name: run for run in runs}
        for name, subject in ({POOLED: together} if check.pooled else subjects).items():
            one = check.see(subject)
            seen |= {name: one} if isinstance(one, Seen) else one
        found[key] = finding(check, seen)
    return found


def _part(cases: tuple[Case, ...], at: int | None, quick: bool, seed: int) -> tuple[Run | Pooled, float]:
    """A piece of the work, and the seconds of computing that it took."""
    begun = time.process_time()
    if at is None:
        return pooled(cases, quick=quick, seed=seed), time.process_time() - begun
    return ran(cases[at], quick=quick, seed=seed), time.process_time() - begun
