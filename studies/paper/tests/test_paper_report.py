"""`python -m studies.paper report`: every table and figure of the paper on one page, and what is refused."""

from collections.abc import Callable
from pathlib import Path

import pytest
import recorded

from adacompute.report.document import Report
from adacompute.report.folder import render_files
from studies.paper.paper_report import PAPER_JOBS, PAPER_PARTS, build_paper_report
from synthetic import synthetic

TABLES = {  # of the paper, by our keys
    "main-paper",
    "main-held-out",
    "ablation",
    "levels",
    "labels",
    "oracle-gap",
    "search",
    "archetypes",
    "importance",
    "granularity",
    "efficiency",
    "regret-bound",
    "laws",
}
FIGURES = {
    "pipeline",
    "motivation",
    "staircase",
    "pareto",
    "heatmap",
    "scatter",
    "archetypes",
    "search",
    "mechanism",
    "ablation",
    "efficiency",
    "granularity",
    "importance",
}


@pytest.fixture(scope="module")
def made() -> Report:
    return build_paper_report(synthetic(24, 16), name="made", quick=True)


@pytest.mark.nightly
def test_every_table_and_figure_of_the_paper_is_on_the_page(made: Report):
    assert {table.key for table in made.tables()} >= TABLES
    assert {picture.key for picture in made.pictures()} >= FIGURES
    files = render_files(made)
    assert {f"tables/{key}.csv" for key in TABLES} | {f"figures/{key}.svg" for key in FIGURES} <= set(files)
    page = files["report.html"].decode()
    for key in ("worth", "frontier", *(job.key for job in PAPER_JOBS)):
        assert f'"section-{key}"' in page


def test_every_job_has_its_part_and_its_own_key():
    keys = ["verdict", "worth", "frontier", *(job.key for job in PAPER_JOBS)]
    assert len(set(keys)) == len(keys)
    assert {job.part for job in PAPER_JOBS} == {key for key, *_ in PAPER_PARTS}


def test_a_pool_without_grades_is_refused_before_any_work(paper: Callable[..., object], tmp_path: Path):
    rows = [{key: row[key] for key in row if key != "gold"} for row in recorded.lines(4, 4, seed=1)]
    recorded.written(tmp_path / "bare.jsonl", rows)
    done = paper("report", "bare.jsonl", "-o", "out", code=1)
    assert "bare.jsonl: no problem has grades or a gold answer" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
