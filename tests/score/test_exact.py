"""The exact vote against every subset listed, against simulation, and where the answer is known."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_ballots import Draw, jackknife, made, over_subsets

from adacompute.errors import ScoreError
from adacompute.score.grades import AccuracyEstimates, grade_samples
from adacompute.score.plain_vote import score_exact_vote
from tiers import leave_to_nightly

draws = st.tuples(st.integers(-1, 3), st.sampled_from([0.0, 0.0, 1.0, 1.0, 0.5, 0.25]))


def scored(problems: list[list[Draw]], *budgets: int) -> AccuracyEstimates:
    ballots = made(problems)
    return score_exact_vote(ballots, grade_samples(ballots), budgets)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(draws, min_size=1, max_size=7), min_size=1, max_size=4))
def test_accuracy_and_error_are_those_of_every_subset_listed(problems: list[list[Draw]]):
    found = scored(problems, *range(1, 8))
    for i, drawn in enumerate(problems):
        for budget in range(1, 8):
            accuracy, error = found.accuracy[i, budget - 1], found.standard_error[i, budget - 1]
            if budget > len(drawn):
                assert math.isnan(accuracy)
                assert math.isnan(error)
                continue
            assert accuracy == pytest.approx(float(over_subsets(drawn, budget)), abs=1e-12)
            if budget == len(drawn):
                assert math.isnan(error)
            else:
                assert error == pytest.approx(jackknife(drawn, budget), abs=1e-9)


@settings(max_examples=15, deadline=None)
@given(st.lists(draws, min_size=10, max_size=12), st.integers(1, 9))
def test_longer_problems_agree_with_every_subset_too(drawn: list[Draw], budget: int):
    found = scored([drawn], budget)
    assert found.accuracy[0, 0] == pytest.approx(float(over_subsets(drawn, budget)), abs=1e-12)
    assert found.standard_error[0, 0] == pytest.approx(jackknife(drawn, budget), abs=1e-9)


def test_one_right_class_among_ties_by_hand():
    # of 0 0 1 1, two: both right 1/6, both wrong 1/6, else a tie; of three the majority, half of the time
    found = scored([[(0, 1.0), (0, 1.0), (1, 0.0), (1, 0.0)]], 1, 2, 3, 4)
    assert found.accuracy[0] == pytest.approx([0.5, 0.5, 0.5, 0.5])
    # of 0 0 1 and an abstention, two: 00 and 0- right, 01 shared, 1- wrong
    found = scored([[(0, 1.0), (0, 1.0), (1, 0.0), (-1, 0.0)]], 2)
    assert found.accuracy[0, 0] == pytest.approx((1 + 2 + 2 * 0.5) / 6)


def simulated(drawn: list[Draw], budget: int, count: int) -> np.ndarray:
    """The worth of votes on random subsets, counted without the package."""
    rng, kinds = np.random.default_rng(7), np.array([kind for kind, _ in drawn])
    worth = np.array(
        [max((g for k, g in drawn if k == kind), default=0.0) for kind in range(kinds.max() + 1)]
    )
    found = np.zeros(count)
    for i in range(count):
        votes = kinds[rng.permutation(len(kinds))[:budget]]
        counts = np.bincount(votes[votes >= 0], minlength=len(worth))
        leaders = counts == counts.max()
        found[i] = worth[leaders].mean() if counts.max() > 0 else 0.0
    return found


def worth_by_class(kinds: np.ndarray, right: dict[int, float]) -> list[Draw]:
    return [(int(kind), right.get(int(kind), 0.0)) for kind in kinds]


@pytest.mark.slow
@pytest.mark.parametrize("budget", leave_to_nightly([5, 2, 16, 33]))
def test_sixty_four_samples_agree_with_simulation(budget: int):
    kinds = np.random.default_rng(3).choice(
        [-1, 0, 1, 2, 3, 4, 5, 6], size=64, p=[0.1, 0.25, 0.25, *[0.08] * 5]
    )
    drawn = worth_by_class(kinds, {0: 1.0, 2: 1.0, 4: 0.5})
    votes = simulated(drawn, budget, 20_000)
    found = scored([drawn], budget).accuracy[0, 0]
    assert abs(found - votes.mean()) < 4.5 * votes.std() / len(votes) ** 0.5


@pytest.mark.parametrize(
    ("n", "budgets"), [(64, (1, 2, 3, 8, 31, 63, 64)), (300, (2, 40, 256)), (2000, (16, 256))]
)
def test_where_every_answer_is_right_only_silence_is_wrong(n: int, budgets: tuple[int, ...]):
    rng = np.random.default_rng(n)
    problems = [
        [(int(kind), 1.0) if kind >= 0 else (-1, 0.0) for kind in np.minimum(rng.zipf(1.4, n) - 2, top)]
        for top in (3, 60)
    ]
    found = scored(problems, *budgets)
    for drawn, row in zip(problems, found.accuracy, strict=True):
        silent = sum(kind < 0 for kind, _ in drawn)
        expected = [1 - math.comb(silent, budget) / math.comb(n, budget) for budget in budgets]
        assert row == pytest.approx(expected, abs=1e-12)


def test_classes_worth_one_each_in_turn_add_up_to_all_of_them():
    kinds = np.random.default_rng(5).integers(-1, 9, size=48)
    each = [worth_by_class(kinds, {kind: 1.0}) for kind in range(9)]
    whole = worth_by_class(kinds, dict.fromkeys(range(9), 1.0))
    found = scored([*each, whole], 1, 4, 16, 47).accuracy
    assert found[:-1].sum(axis=0) == pytest.approx(found[-1], abs=1e-12)


def test_one_sample_is_the_mean_grade_of_the_answers_and_all_samples_are_one_vote():
    rng = np.random.default_rng(11)
    problems = [
        [(int(k), float(g)) for k, g in zip(rng.integers(-1, 5, 20), rng.random(20) < 0.5, strict=True)]
        for _ in range(30)
    ]
    found = scored(problems, 1, 20)
    for i, drawn in enumerate(problems):
        assert found.accuracy[i, 0] == pytest.approx(sum(g for k, g in drawn if k >= 0) / 20, abs=1e-12)
        assert found.accuracy[i, 1] == pytest.approx(float(over_subsets(drawn, 20)), abs=1e-12)
    means = found.accuracy[:, 0]
    one = [jackknife(drawn, 1) for drawn in problems]
    assert found.standard_error[:, 0] == pytest.approx(one, abs=1e-12)
    assert (means > 0).all()


def test_large_pools_and_budgets_stay_within_bounds():
    rng = np.random.default_rng(2)
    thousands = rng.choice(40, size=(3, 2000), p=np.r_[0.06, 0.06, np.full(38, 0.88 / 38)])
    close = np.r_[np.zeros(131, int), np.ones(129, int)]  # b is nearly n: hardly a sample is left out
    found = scored(
        [*(worth_by_class(row, {0: 1.0}) for row in thousands), worth_by_class(close, {0: 1.0})], 1, 64, 256
    )
    assert np.isfinite(found.accuracy).all()
    assert np.isfinite(found.standard_error).all()
    assert (found.accuracy >= 0).all()
    assert (found.accuracy <= 1).all()
    assert (np.diff(found.accuracy[:3], axis=1) > 0).all()  # two leading classes: votes lift them above 6%


def test_the_error_tells_how_far_new_samples_would_move_the_accuracy():
    rng = np.random.default_rng(8)
    problems = [worth_by_class(rng.choice(4, size=48, p=[0.4, 0.3, 0.2, 0.1]), {0: 1.0}) for _ in range(400)]
    found = scored(problems, 1, 4, 16)
    spread = found.accuracy.std(axis=0, ddof=1)
    typical = np.sqrt((found.standard_error**2).mean(axis=0))
    assert typical == pytest.approx(spread, rel=0.2)


def test_a_problem_is_scored_alike_alone_and_among_others():
    rng = np.random.default_rng(4)
    problems = [
        worth_by_class(rng.integers(-1, rng.integers(1, 30), size=rng.integers(4, 40)), {0: 1.0})
        for _ in range(1100)
    ]
    together = scored(problems, 1, 4, 16)
    for i in (0, 500, 1099):
        alone = scored([problems[i]], 1, 4, 16)
        assert alone.accuracy[0] == pytest.approx(together.accuracy[i], abs=1e-12, nan_ok=True)
        assert alone.standard_error[0] == pytest.approx(together.standard_error[i], abs=1e-9, nan_ok=True)


def test_what_is_sure_is_exactly_so_at_every_budget():
    rng = np.random.default_rng(9)
    sure = [worth_by_class(np.zeros(n, int), {0: 1.0}) for n in (48, 64, 1000)]
    lost = [worth_by_class(rng.integers(-1, 5, size=64), {}), [(-1, 0.0)] * 48]
    even = [worth_by_class(np.repeat([0, 1], n), {0: 1.0}) for n in (8, 24, 500)]
    found = scored([*sure, *lost, *even], 1, 2, 3, 4, 7, 8, 16)
    assert (found.accuracy == np.repeat([1.0, 0.0, 0.5], [3, 2, 3])[:, None]).all()
    assert (found.standard_error[:5] == 0).all()


def test_problems_without_a_known_grade_have_no_accuracy():
    ballots = made([[(0, 1.0), (1, math.nan)], [(0, 1.0), (1, 0.0)]])
    found = score_exact_vote(ballots, grade_samples(ballots), (1,))
    assert math.isnan(found.accuracy[0, 0])
    assert found.accuracy[1, 0] == 0.5


def test_budgets_above_the_largest_are_refused_by_name():
    with pytest.raises(ScoreError, match=r"budget 257 is above 256.*smaller budgets"):
        scored([[(0, 1.0)] * 300], 1, 257)
