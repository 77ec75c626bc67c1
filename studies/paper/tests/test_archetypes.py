"""Kinds of accuracy curve: found where they were planted, and said where they aren't what they are called."""

import numpy as np
import pytest

from adacompute.errors import NotRecorded
from studies.paper.archetypes import ARCHETYPE_NAMES, Archetypes, compute_archetypes
from studies.paper.paper_pool import PaperPool, score_paper_pool
from synthetic import poor, synthetic

PLANTED = {"Easy": 0.97, "Responsive": 0.6, "Diminishing": 0.33, "Hard": 0.02}
EACH = 12


@pytest.fixture(scope="module")
def case() -> PaperPool:
    chance = np.repeat(list(PLANTED.values()), EACH)
    return score_paper_pool(synthetic(len(chance), 64, chance=chance), "planted")


@pytest.fixture(scope="module")
def found(case: PaperPool) -> Archetypes:
    return compute_archetypes([case])


def test_planted_kinds_are_found(found):
    assert found.names == ARCHETYPE_NAMES
    for at, group in enumerate(found.groups):
        own = {f"p-{row:03}" for row in range(at * EACH, (at + 1) * EACH)}
        assert group.problem in own
        assert abs(group.count - EACH) <= 3


def test_groups_hold_every_problem_once(case, found):
    assert sum(group.count for group in found.groups) == len(case)
    assert found.shares.sum(axis=1) == pytest.approx(np.ones(1))
    assert sum(map(len, found.curves)) == len(case)
    for group, curves in zip(found.groups, found.curves, strict=True):
        assert curves.mean(axis=0) == pytest.approx(group.centre)
    everyone = np.concatenate(found.curves)
    assert np.sort(everyone, axis=0) == pytest.approx(np.sort(case.exact.accuracy, axis=0))


def test_easy_is_the_highest_and_hard_the_lowest_and_responsive_gains_more_than_diminishing(found):
    easy, responsive, diminishing, hard = found.groups
    assert easy.centre.mean() >= responsive.centre.mean() >= hard.centre.mean()
    assert (responsive.centre - responsive.centre[0]).mean() > (
        diminishing.centre - diminishing.centre[0]
    ).mean()


def test_a_curve_that_rises_late_is_said_not_to_be_diminishing(found):
    diminishing = found.groups[2]
    assert diminishing.centre[-1] > diminishing.centre[0] + 0.05
    early = diminishing.centre[2] - diminishing.centre[0]
    assert ("late" in diminishing.doubt) == bool(early < diminishing.rise / 2)


def test_the_oracles_shares_add_up_whether_from_the_same_samples_or_others(found):
    assert found.oracle is not None
    assert found.apart is not None
    for spent in (found.oracle, found.apart):
        assert spent.shares.sum(axis=1) == pytest.approx(np.ones(len(ARCHETYPE_NAMES)))
        assert spent.large.sum() == pytest.approx(1.0)


def test_recordings_are_grouped_together_at_the_budgets_that_all_have(case):
    short = score_paper_pool(synthetic(20, 6, seed=3), "short")
    found = compute_archetypes([case, short])
    assert found.budgets == (1, 2, 4)
    assert found.problems == (len(case), 20)
    assert found.shares.shape == (2, 4)
    assert found.shares.sum(axis=1) == pytest.approx(np.ones(2))


def test_twice_the_same_recording_gives_the_same_groups(case, found):
    again = compute_archetypes([case])
    assert [group.problem for group in again.groups] == [group.problem for group in found.groups]
    assert np.array_equal(again.shares, found.shares)


def test_fewer_different_curves_give_fewer_groups():
    cases = poor(score_paper_pool)
    assert compute_archetypes([cases["all right"]]).names == ("Easy",)
    assert compute_archetypes([cases["all wrong"]]).names == ("Hard",)
    assert compute_archetypes([cases["three samples"]]).apart is None


def test_no_recording_is_refused():
    with pytest.raises(NotRecorded, match="give one or more"):
        compute_archetypes([])
