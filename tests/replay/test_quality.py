"""A quality given to calibrate: what it costs is measured on the samples that are given, and holds there."""

from dataclasses import replace

import numpy as np
import pytest
from made_menus import make_menu_ballots

from adacompute.errors import BudgetInvalid, TooFewSamples
from adacompute.policies import AdaptiveConsistency, FixedPolicy, StoppingPolicy
from adacompute.policies.modes.policy import MenuPolicy
from adacompute.policies.paths import grade_by_other_half
from adacompute.pool import Ballots
from adacompute.pool.modes import Menu
from adacompute.replay import calibrate, replay
from adacompute.replay.matching import PolicyPoints, UniformVotes, compare_qualities
from adacompute.score import score
from adacompute.score.grades import keep_first
from shared import read_votes


def words() -> Ballots:
    return read_votes("words")


@pytest.mark.slow
def test_the_cost_of_a_quality_is_where_the_policy_is_as_accurate():
    policy = AdaptiveConsistency()
    price = calibrate(policy, words(), budget="as good as 8")
    found = replay(policy, words(), price=price)
    rival = score(words(), (8,)).accuracy.mean()  # exact, over all subsets of eight
    assert 2 < found.cost < 6
    assert rival - 0.002 < found.accuracy.mean < rival + 0.015  # better by what makes it sure
    wider = calibrate(policy, words(), budget="within 3 points of 8")
    assert replay(policy, words(), price=wider).cost < found.cost - 0.5


@pytest.mark.slow
def test_without_grades_a_quality_is_measured_by_samples_that_are_not_drawn():
    votes = words()
    bare = replace(votes, correct=np.full_like(votes.correct, np.nan), gold_known=np.zeros(len(votes), bool))
    halved, policy = grade_by_other_half(bare), AdaptiveConsistency(longest=8)
    found = [calibrate(policy, each, budget="as good as 4", orders=10) for each in (bare, halved)]
    assert found[0] == pytest.approx(found[1], rel=0.01)  # the same cost, met on twice the samples
    with pytest.raises(TooFewSamples, match="fewer than the 16 samples"):
        calibrate(AdaptiveConsistency(), keep_first(bare, [24]), budget="as good as 4")


def test_a_quality_of_a_menu_costs_what_its_unit_says():
    ballots = make_menu_ballots({"small": 0.5, "large": 0.9}, problems=60)
    policy = MenuPolicy(Menu.of(ballots, costs={"small": 0.02, "large": 1.0}), longest=6)
    price = calibrate(policy, ballots, budget="within 5 points of large", orders=10)
    found = replay(policy, ballots, price=price, orders=10)
    right = ballots["large"].correct.mean()  # one sample, whatever policy
    assert 0.02 < found.cost < 1.2
    assert found.accuracy.mean > right - 0.05


@pytest.mark.parametrize(
    ("policy", "budget", "words_"),
    [
        (FixedPolicy(4), "as good as 8", "no price or threshold"),
        (AdaptiveConsistency(), "as good as 32", "give 16, or fewer"),
        (AdaptiveConsistency(), "as good as large", "give 16, or fewer"),
        (AdaptiveConsistency(), "as good as", "give e.g."),
    ],
)
def test_what_can_not_be_told_is_refused(policy, budget: str, words_: str):
    with pytest.raises(BudgetInvalid, match=words_):
        calibrate(policy, words(), budget=budget)


def test_few_problems_tell_nothing():
    with pytest.raises(BudgetInvalid, match="20 problems with a gold answer"):
        calibrate(AdaptiveConsistency(), words().only(range(20)), budget="as good as 4", orders=4)


def test_problems_that_it_was_fitted_on_show_nothing():
    some = words().only(range(0, 360, 12))
    policy = StoppingPolicy(weigh=None).fit(some)
    with pytest.raises(BudgetInvalid, match="fitted on 30 of these 30 problems"):
        calibrate(policy, some, budget="as good as 4")


def test_between_two_settings_gains_are_mixed_by_cost():
    cost, right = np.array([[4.0, 2.0, 3.0], [1.0, 1.0, 1.0]]), np.array([[0.4, 0.0, 0.2], [0.0, 0.0, 0.3]])
    rival = UniformVotes(1, None, 1.0, np.zeros(3))
    (curve,) = compare_qualities(PolicyPoints(cost=cost, accuracy=right), [rival], digits=".4g")
    assert (curve.costs[0], curve.costs[-1]) == (1, 3)
    for target, gain in zip(curve.costs, curve.gains, strict=True):
        assert gain == pytest.approx(0.1 + (target - 1) / 2 * 0.1, abs=1e-5)
