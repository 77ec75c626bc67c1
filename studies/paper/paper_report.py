"""`python -m studies.paper report`: the report of a pool with all of the paper's tables and figures.

The page is that of `adacompute report`, with the sections of the paper below it. The folds,
orders and votes of its own sections are the report's; those of the paper's sections are the paper's: 80/20
splits, several seeds, and accuracy scored both as the paper does and held-out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from adacompute.cli.options import (
    PoolPath,
    ProcessesOption,
    SeedOption,
    choose_process_count,
    format_command,
    load_settings,
)
from adacompute.cli.pool_options import read_ballots
from adacompute.cli.terminal import format_path, print_line, print_paragraph, show_progress
from adacompute.errors import AdacomputeError
from adacompute.evaluate.measure import leave_out_short, select_graded
from adacompute.evaluate.parallel import ProgressCallback, open_workers, split_progress
from adacompute.pool import Ballots
from adacompute.report.build import build_report
from adacompute.report.document import Report, ReportPart, Section
from adacompute.report.folder import check_report_folder, render_files, write_report
from studies.paper import (
    PROGRAM,
    ablation,
    archetypes,
    difficulty,
    granularity,
    importance,
    label_efficiency,
    labels,
    laws,
    main_results,
    oracle_gap,
    pareto,
    pipeline,
    price_search,
)
from studies.paper.budget_choices import ClassifierFits, fit_classifiers
from studies.paper.paper_pool import PaperPool, check_paper_pool, score_paper_pool

__all__ = ["PAPER_JOBS", "PAPER_PARTS", "build_paper_report", "report"]

PAPER_PARTS = (  # key, title, description, whether the part is collapsed at first
    ("pool", "What is in the pool", "How hard its problems are, and what more samples do for them.", False),
    (
        "paper",
        "The paper's tables and figures",
        (
            "On this pool. Scored as the paper does: fitted on a random 80% of the problems and judged on "
            "all of them, by disjoint windows of the recorded samples. Held-out: judged on the other 20%. "
            "Where the two differ, the held-out number is the one to expect of new problems."
        ),
        False,
    ),
    ("laws", "Laws", "What the paper states, checked on this pool's own table.", False),
)
_FIT_BUDGETS = (1.2, 1.5, 2.0, 3.0)  # average budgets that classifiers are fitted for
_SEEDS, _QUICK_SEEDS = 3, 2
_QUICK_NOTICE = "The paper's sections have fewer seeds, splits and grid points than the paper, too."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PaperInputs:
    """What the sections are built from."""

    name: str
    ballots: Ballots = field(repr=False)
    quick: bool
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A section to build: its place on the page, and the function that builds it."""

    key: str
    title: str
    part: str
    build: Callable[[PaperInputs], Section]
    effort: float = 1.0  # rough seconds for 600 problems; the longest jobs start first


@cache  # in each worker process, as the next one: several sections need the same
def _score_pool(inputs: PaperInputs) -> PaperPool:
    return score_paper_pool(inputs.ballots, inputs.name)


@cache
def _fit_classifiers(pool: PaperPool, *, quick: bool, seed: int) -> Mapping[float, ClassifierFits]:
    budgets = [budget for budget in _FIT_BUDGETS if budget <= pool.budgets[-1]]
    return fit_classifiers(pool, budgets, seeds=_QUICK_SEEDS if quick else _SEEDS, seed=seed)


def _fits(inputs: PaperInputs) -> Mapping[float, ClassifierFits]:
    return _fit_classifiers(_score_pool(inputs), quick=inputs.quick, seed=inputs.seed)


def _build_difficulty(inputs: PaperInputs) -> Section:
    return difficulty.build_section(_score_pool(inputs))


def _build_archetypes(inputs: PaperInputs) -> Section:
    return archetypes.build_section(_score_pool(inputs))


def _build_pipeline(_inputs: PaperInputs) -> Section:
    return pipeline.build_section()


def _build_main_results(inputs: PaperInputs) -> Section:
    return main_results.build_section(_score_pool(inputs), _fits(inputs))


def _build_oracle_gap(inputs: PaperInputs) -> Section:
    return oracle_gap.build_section(_score_pool(inputs), _fits(inputs))


def _build_pareto(inputs: PaperInputs) -> Section:
    return pareto.build_section(_score_pool(inputs), quick=inputs.quick, seed=inputs.seed)


def _build_labels(inputs: PaperInputs) -> Section:
    return labels.build_section(_score_pool(inputs), _fits(inputs))


def _build_price_search(inputs: PaperInputs) -> Section:
    return price_search.build_section(_score_pool(inputs))


def _build_ablation(inputs: PaperInputs) -> Section:
    return ablation.build_section(_score_pool(inputs), quick=inputs.quick, seed=inputs.seed)


def _build_importance(inputs: PaperInputs) -> Section:
    return importance.build_section(_score_pool(inputs), quick=inputs.quick, seed=inputs.seed)


def _build_granularity(inputs: PaperInputs) -> Section:
    return granularity.build_section(_score_pool(inputs), quick=inputs.quick, seed=inputs.seed)


def _build_label_efficiency(inputs: PaperInputs) -> Section:
    return label_efficiency.build_section(_score_pool(inputs), quick=inputs.quick, seed=inputs.seed)


def _build_laws(inputs: PaperInputs) -> Section:
    return laws.build_section(_score_pool(inputs), _fits(inputs))


PAPER_JOBS = (  # in the order of the page
    Job(key="levels", title="Levels", part="pool", build=_build_difficulty),
    Job(key="archetypes", title="Kinds of problem", part="pool", build=_build_archetypes),
    Job(key="pipeline", title="How it works", part="paper", build=_build_pipeline),
    Job(key="main", title="Main results", part="paper", build=_build_main_results, effort=4),
    Job(key="gap", title="Oracle gap and imitation", part="paper", build=_build_oracle_gap),
    Job(key="pareto", title="Pareto frontiers", part="paper", build=_build_pareto, effort=12),
    Job(key="labels", title="Labels", part="paper", build=_build_labels),
    Job(key="solve", title="The price", part="paper", build=_build_price_search),
    Job(key="ablation", title="Learners", part="paper", build=_build_ablation, effort=20),
    Job(key="importance", title="Features", part="paper", build=_build_importance, effort=8),
    Job(key="granularity", title="Granularity", part="paper", build=_build_granularity, effort=8),
    Job(key="efficiency", title="Data efficiency", part="paper", build=_build_label_efficiency, effort=15),
    Job(key="laws", title="Statements", part="laws", build=_build_laws),
)


def build_paper_report(
    ballots: Ballots,
    *,
    name: str,
    command: str = "",
    quick: bool = False,
    seed: int = 0,
    workers: int = 1,
    progress: ProgressCallback | None = None,
) -> Report:
    """Build the report of a pool with the paper's tables and figures; needs grades or gold answers."""
    check_paper_pool(ballots, name)  # raises before minutes of work where grades or samples are too few
    first_progress, second_progress = split_progress(progress, len(PAPER_JOBS))
    result = build_report(
        ballots,
        name=name,
        command=command,
        quick=quick,
        seed=seed,
        workers=workers,
        progress=first_progress,
    )
    kept, _ = select_graded(leave_out_short(ballots.group())[0])
    inputs = PaperInputs(name=name, ballots=kept, quick=quick, seed=seed)
    sections = build_sections(inputs, workers=workers, progress=second_progress)
    parts = [
        ReportPart(
            key=key,
            title=title,
            about=about,
            sections=tuple(sections[job.key] for job in PAPER_JOBS if job.part == key),
            folded=folded,
        )
        for key, title, about, folded in PAPER_PARTS
    ]
    *first_parts, provenance = result.parts
    notices = (*result.notices, _QUICK_NOTICE) if quick else result.notices
    return replace(result, parts=(*first_parts, *parts, provenance), notices=notices)


def build_sections(inputs: PaperInputs, *, workers: int, progress: ProgressCallback) -> dict[str, Section]:
    """Builds every section; returns them by job key. A section that fails shows the reason."""
    sections: dict[str, Section] = {}
    slowest_first = sorted(PAPER_JOBS, key=lambda job: -job.effort)
    with open_workers(inputs, workers=workers) as run_tasks:
        for index, section in run_tasks(_run_job, [(job,) for job in slowest_first]):
            sections[slowest_first[index].key] = section
            progress(len(sections), len(PAPER_JOBS), slowest_first[index].title)
    return sections


def _run_job(inputs: PaperInputs, job: Job) -> Section:
    try:
        return job.build(inputs)
    except AdacomputeError as exc:
        return Section(key=job.key, title=job.title, missing=(str(exc),))


def report(
    context: typer.Context,
    source: PoolPath,
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="DIR", help="The folder to write; a report in it is replaced."
        ),
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer folds, orders, seeds and grid points: rougher numbers.")
    ] = False,
    seed: SeedOption = 0,
    workers: ProcessesOption = None,
) -> None:
    """Write one page with every table and figure of the paper on a graded pool, below its own report.

    DIR gets what `adacompute report` writes: report.html, results.json, tables/*.csv and figures/*.svg.
    """
    check_report_folder(output)  # before minutes of work
    ballots = read_ballots(source, load_settings(context).answers)
    name = format_path(Path(source.name or source))
    with show_progress(f"the paper's tables on {name}") as report_progress:
        result = build_paper_report(
            ballots,
            name=name,
            command=format_command(PROGRAM),
            quick=quick,
            seed=seed,
            workers=workers or choose_process_count(),
            progress=report_progress,
        )
    page = write_report(render_files(result), output)
    tables, pictures = len(list(result.tables())), len(list(result.pictures()))
    print_paragraph(f"{name}: {tables} tables and {pictures} figures.")
    print_line(format_path(page))
