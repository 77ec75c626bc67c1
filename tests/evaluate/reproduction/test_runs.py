"""The experiment on recordings that have little to tell: nothing breaks, and what is missing is said."""

from dataclasses import replace

from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.reproduction.beside import left_for, none_below, ones_of
from adacompute.evaluate.reproduction.drawn import (
    efficiency,
    efficiency_cost,
    fifths,
    heat,
    mechanism,
    pareto,
)
from adacompute.evaluate.reproduction.experiment import found_on
from adacompute.evaluate.reproduction.runs import Pooled, ran, three
from adacompute.evaluate.reproduction.said import said


def test_every_statement_has_a_verdict_also_on_a_poor_recording(poor: Case):
    run = ran(poor, quick=True)
    found = found_on([run], Pooled(ablation=None, archetypes=None, missing=()))
    for one in found.values():
        assert one.paper[0] <= one.paper[1] <= 1
        assert one.found
    assert found["ablation-trees"].verdict == "can't be told"


def test_every_fit_is_tried_on_every_statement_about_a_learned_policy(good: Case):
    run = ran(good, quick=True)
    tried = {law.tried for law in run.laws if law.protocol in ("scored as the paper does", "held-out")}
    assert tried == {sum(len(own.predicted) for own in run.fits.values())}
    assert min(run.fits) == 1.2
    for table in (pareto, heat, fifths, mechanism, efficiency, efficiency_cost):
        made = table([run])
        assert made is not None
        assert {row[0] for row in made.rows} == {run.name}


def test_table_5_leaves_less_for_new_problems_the_better_the_others_are_known():
    rows = said().tables["tab:oracle_gap"].rows
    below = [sum(left_for(row, share) < ones_of(row) for row in rows) for share in (1.0, 0.991, 0.98)]
    assert below == [10, 4, 0]
    assert 0.98 < none_below() < 0.991


def test_three_recordings_of_one_model_are_pooled(good: Case):
    def named(name: str, model: str) -> Case:
        return replace(good, name=name, ballots=replace(good.ballots, model=model))

    cases = [named("e", "a"), named("z", "b"), named("y", "b"), named("x", "b"), named("w", "b")]
    assert [case.name for case in three(cases)] == ["w", "x", "y"]
    assert [case.name for case in three(cases[:2])] == ["e", "z"]
