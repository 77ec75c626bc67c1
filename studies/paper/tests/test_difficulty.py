"""Accuracy by level, or by fifth where there are no levels."""

import numpy as np
import pytest

from studies.paper.difficulty import build_section, compute_levels
from studies.paper.paper_pool import score_paper_pool
from synthetic import poor, synthetic


def test_the_groups_together_are_all_problems():
    case = score_paper_pool(synthetic(levels=[1 + i % 3 for i in range(60)]), "made")
    found = compute_levels(case)
    assert found.has_recorded_levels
    assert [row.name for row in found.rows] == ["level 1", "level 2", "level 3"]
    assert sum(row.problems for row in found.rows) == found.whole.problems == 60
    weights = [row.problems / 60 for row in found.rows]
    for part in ("first", "last", "gain"):
        mean = np.dot(weights, [getattr(row, part).mean for row in found.rows])
        assert mean == pytest.approx(getattr(found.whole, part).mean)


def test_the_gain_is_last_less_first_and_lies_in_its_interval():
    for row in compute_levels(score_paper_pool(synthetic(), "made")).rows:
        assert row.gain.mean == pytest.approx(row.last.mean - row.first.mean)
        assert row.gain.low is not None
        assert row.gain.high is not None
        assert row.gain.low <= row.gain.mean <= row.gain.high


def test_without_levels_fifths_rise_in_one_sample_accuracy_and_the_section_says_so():
    case = score_paper_pool(synthetic(), "made")
    first = [row.first.mean for row in compute_levels(case).rows]
    assert first == sorted(first)
    assert any("no levels recorded" in line for line in build_section(case).missing)


@pytest.mark.parametrize("name", sorted(poor(score_paper_pool)))
def test_a_poor_pool_gets_its_table(name: str):
    case = poor(score_paper_pool)[name]
    found = build_section(case)
    assert found.words
    assert len(found.tables[0].rows) == len(compute_levels(case).rows) + 1


def test_voting_that_buys_nothing_is_said():
    assert "buys nothing that shows" in build_section(poor(score_paper_pool)["all right"]).words[0]
