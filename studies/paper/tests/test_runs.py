"""The experiment on recordings that have little to tell: nothing breaks, and what is missing is said."""

from dataclasses import replace

import pytest

from studies.paper.comparison_tables import (
    build_efficiency_cost_table,
    build_efficiency_table,
    build_fifths_table,
    build_heatmap_table,
    build_mechanism_table,
    build_pareto_table,
    compute_left_imitation,
    find_break_even_share,
    find_ones_share,
)
from studies.paper.experiment import check_claims
from studies.paper.paper_claims import load_paper
from studies.paper.paper_pool import PaperPool
from studies.paper.runs import PooledRun, choose_pooled, run_recording


@pytest.mark.nightly  # test_paper_report.py runs the whole study once
def test_every_statement_has_a_verdict_also_on_a_poor_recording(poor: PaperPool):
    run = run_recording(poor, quick=True)
    found = check_claims([run], PooledRun(ablation=None, archetypes=None, missing=()))
    for one in found.values():
        assert one.paper[0] <= one.paper[1] <= 1
        assert one.found
    assert found["ablation-trees"].verdict == "can't be known"


@pytest.mark.nightly  # test_paper_report.py runs the whole study once
def test_every_fit_is_tried_on_every_statement_about_a_learned_policy(good: PaperPool):
    run = run_recording(good, quick=True)
    tried = {law.tried for law in run.laws if law.protocol in ("scored as the paper does", "held-out")}
    assert tried == {sum(len(own.predicted) for own in run.fits.values())}
    assert min(run.fits) == 1.2
    for table in (
        build_pareto_table,
        build_heatmap_table,
        build_fifths_table,
        build_mechanism_table,
        build_efficiency_table,
        build_efficiency_cost_table,
    ):
        made = table([run])
        assert made is not None
        assert {row[0] for row in made.rows} == {run.name}


def test_table_5_leaves_less_for_new_problems_the_better_the_others_are_known():
    rows = load_paper().tables["tab:oracle_gap"].rows
    below = [
        sum(compute_left_imitation(row, share) < find_ones_share(row) for row in rows)
        for share in (1.0, 0.991, 0.98)
    ]
    assert below == [10, 4, 0]
    assert 0.98 < find_break_even_share() < 0.991


def test_three_recordings_of_one_model_are_pooled(good: PaperPool):
    def named(name: str, model: str) -> PaperPool:
        (mode,) = good.ballots.modes
        return replace(good, name=name, ballots=replace(good.ballots, modes=(replace(mode, model=model),)))

    cases = [named("e", "a"), named("z", "b"), named("y", "b"), named("x", "b"), named("w", "b")]
    assert [case.name for case in choose_pooled(cases)] == ["w", "x", "y"]
    assert [case.name for case in choose_pooled(cases[:2])] == ["e", "z"]
