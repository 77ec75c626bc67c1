"""What must be recorded: each policy by how many problems and samples it learned from."""

import xml.etree.ElementTree as ET

import pytest

from adacompute.evaluate.scored_pool import score_pool
from adacompute.report.exhibits.data_efficiency import DataEfficiency, build_section, measure_data_efficiency
from synthetic import poor, synthetic


@pytest.fixture(scope="module")
def grown() -> DataEfficiency:
    return measure_data_efficiency(
        score_pool(synthetic(20, 12), "dice"), problems=(4,), samples=(8,), orders=2
    )


def test_every_amount_is_judged_at_the_same_cost(grown):
    for one in (*grown.by_problems, *grown.by_samples):
        assert one.cost <= grown.budget + 1e-9
        assert 0.0 <= one.accuracy.mean <= 1.0
        if one.cost == pytest.approx(grown.budget):
            assert one.accuracy.mean - one.gain.mean == pytest.approx(grown.uniform.mean)


def test_only_stopping_begins_with_nothing_learned(grown):
    assert [one.problems for one in grown.get("stopping", by="problems")] == [0, 4, 10]
    assert [one.problems for one in grown.get("classifier", by="problems")] == [4, 10]
    assert [one.samples for one in grown.get("classifier", by="samples")] == [8, 12]


def test_what_is_varied_both_ways_is_the_same_where_they_meet(grown):
    by_problems = {one.problems: one for one in grown.get("stopping", by="problems")}
    assert by_problems[grown.fixed_problems] == grown.get("stopping", by="samples")[-1]


def test_where_everything_is_right_nothing_is_gained():
    found = measure_data_efficiency(poor()["all right"], problems=(), samples=(), orders=2)
    for one in (*found.by_problems, *found.by_samples):
        assert one.accuracy.mean == 1.0
        assert one.gain.mean == pytest.approx(0.0, abs=1e-12)


def test_the_section_names_its_protocol_and_says_what_a_poor_pool_lacks():
    section = build_section(score_pool(synthetic(20, 16), "made"))
    assert "Held-out" in section.pictures[0].protocol
    ET.fromstring(section.pictures[0].svg)
    lacking = build_section(poor()["two samples"])
    assert lacking.words
    assert any("collect" in line for line in lacking.missing)
