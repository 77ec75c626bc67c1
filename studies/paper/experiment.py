"""The paper's experiment on the recordings at hand, and the verdict on each of its statements.

Every recording is a job of its own, and so are the two that pool them; any number of processes gives the
same results.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from adacompute.evaluate.parallel import ProgressCallback, open_workers
from studies.paper.classifier_checks import CHECKS
from studies.paper.oracle_checks import Finding, Observation, judge_claim
from studies.paper.paper_claims import load_paper
from studies.paper.paper_pool import PaperPool
from studies.paper.runs import PooledRun, RecordingRun, run_pooled, run_recording

__all__ = ["Reproduction", "check_claims", "run_experiment"]

POOLED_NAME = "pooled"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reproduction:
    """The runs on every recording, on all of them together, and the verdicts on the paper's statements."""

    runs: tuple[RecordingRun, ...] = field(repr=False)  # in the order given
    pooled: PooledRun = field(repr=False)
    findings: dict[str, Finding]  # by claim, in the paper's order
    quick: bool
    seed: int
    seconds: float  # of computing, in all processes together
    workers: int


def run_experiment(
    cases: Sequence[PaperPool],
    *,
    quick: bool = False,
    seed: int = 0,
    workers: int = 1,
    progress: ProgressCallback | None = None,
) -> Reproduction:
    """Run the experiment on these recordings."""
    total, finished, seconds = len(cases) + 1, 0, 0.0
    slowest_first = sorted(range(len(cases)), key=lambda at: -len(cases[at]))
    work = [(None, quick, seed), *((at, quick, seed) for at in slowest_first)]
    runs: dict[int, RecordingRun] = {}
    pooled_runs: list[PooledRun] = []
    with open_workers(tuple(cases), workers=workers) as run_jobs:
        for place, (run, spent) in run_jobs(_run_job, work):
            finished, seconds = finished + 1, seconds + spent
            at = work[place][0]
            if at is None:
                pooled_runs.append(run)
            else:
                runs[at] = run
            if progress is not None:
                progress(finished, total, "learners and archetypes" if at is None else cases[at].name)
    ordered = tuple(runs[at] for at in range(len(cases)))
    return Reproduction(
        runs=ordered,
        pooled=pooled_runs[0],
        findings=check_claims(ordered, pooled_runs[0]),
        quick=quick,
        seed=seed,
        seconds=seconds,
        workers=workers,
    )


def check_claims(runs: Sequence[RecordingRun], together: PooledRun) -> dict[str, Finding]:
    """Check every statement of the paper on these runs."""
    findings = {}
    for key in load_paper().claims:
        check, observations = CHECKS[key], dict[str, Observation]()
        subjects: dict[str, RecordingRun | PooledRun] = {run.name: run for run in runs}
        for name, subject in ({POOLED_NAME: together} if check.pooled else subjects).items():
            observation = check.see(subject)
            observations |= {name: observation} if isinstance(observation, Observation) else observation
        findings[key] = judge_claim(check, observations)
    return findings


def _run_job(
    cases: tuple[PaperPool, ...], at: int | None, quick: bool, seed: int
) -> tuple[RecordingRun | PooledRun, float]:
    """Do one job; returns its run and the seconds of computing that it took."""
    start = time.process_time()
    if at is None:
        return run_pooled(cases, quick=quick, seed=seed), time.process_time() - start
    return run_recording(cases[at], quick=quick, seed=seed), time.process_time() - start
