"""The experiment on recordings that have little to tell: nothing breaks, and what is missing is said."""

from dataclasses import replace

from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.reproduction.experiment import found_on
from adacompute.evaluate.reproduction.runs import Pooled, ran, three


def test_every_statement_has_a_verdict_also_on_a_poor_recording(poor: Case):
    run = ran(poor, quick=True)
    found = found_on([run], Pooled(ablation=None, archetypes=None, missing=()))
    for one in found.values():
        assert one.paper[0] <= one.paper[1] <= 1
        assert one.found
    assert found["ablation-trees"].verdict == "can't be told"


def test_three_recordings_of_one_model_are_pooled(good: Case):
    def named(name: str, model: str) -> Case:
        return replace(good, name=name, ballots=replace(good.ballots, model=model))

    cases = [named("e", "a"), named("z", "b"), named("y", "b"), named("x", "b"), named("w", "b")]
    assert [case.name for case in three(cases)] == ["w", "x", "y"]
    assert [case.name for case in three(cases[:2])] == ["e", "z"]
