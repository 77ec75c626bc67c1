"""The paper's windows against a plain loop, and their mean over shuffled orders against the exact vote."""

import math
import random

import numpy as np
import pytest
from made_ballots import Draw, made, vote, worths

from adacompute.score.grades import AccuracyEstimates, grade_samples
from adacompute.score.plain_vote import compute_agreement, score_exact_vote, score_window_vote


def scored(problems: list[list[Draw]], *budgets: int) -> AccuracyEstimates:
    ballots = made(problems)
    return score_window_vote(ballots, grade_samples(ballots), budgets)


def by_hand(drawn: list[Draw], budget: int) -> list[float]:
    cuts = [drawn[i : i + budget] for i in range(0, len(drawn) - budget + 1, budget)]
    return [float(vote(cut, worths(drawn))) for cut in cuts]


def test_accuracy_and_error_are_those_of_a_plain_loop():
    rng = random.Random(1)
    problems = [
        [(rng.randint(-1, 3), rng.choice([0.0, 0.5, 1.0])) for _ in range(rng.choice([1, 5, 16, 17, 23]))]
        for _ in range(80)
    ]
    found = scored(problems, 1, 2, 3, 8)
    for i, drawn in enumerate(problems):
        for column, budget in enumerate((1, 2, 3, 8)):
            votes, accuracy = by_hand(drawn, budget), found.accuracy[i, column]
            error = found.standard_error[i, column]
            assert math.isnan(accuracy) if not votes else accuracy == pytest.approx(np.mean(votes))
            several = len(votes) > 1
            assert math.isnan(error) or several
            assert not several or error == pytest.approx(np.std(votes, ddof=1) / len(votes) ** 0.5)


def test_leftovers_are_unused_and_order_matters():
    drawn: list[Draw] = [(0, 1.0), (0, 1.0), (1, 0.0), (1, 0.0), (1, 0.0)]
    assert scored([drawn, drawn[::-1]], 2).accuracy[:, 0].tolist() == [0.5, 0.25]  # 00 11; 11 10


@pytest.mark.parametrize("budget", [2, 3, 8])
def test_the_mean_over_shuffled_orders_is_the_exact_accuracy(budget: int):
    rng = np.random.default_rng(budget)
    drawn = [(int(k), float(k in (0, 3))) for k in rng.integers(-1, 5, size=24)]
    orders = [[drawn[i] for i in rng.permutation(24)] for _ in range(4000)]
    found = scored(orders, budget).accuracy[:, 0]
    ballots = made([drawn])
    exact = score_exact_vote(ballots, grade_samples(ballots), (budget,)).accuracy[0, 0]
    assert abs(found.mean() - exact) < 4.5 * found.std() / len(found) ** 0.5
    assert found.std() > 0


def test_agreement_is_the_leaders_share_of_the_answers_of_a_window():
    # windows of three: 001 (2/3), 1 and two abstentions (1), all abstain (0); one sample is left over
    classes = np.array(
        [[0, 0, 1, 1, -1, -1, -1, -1, -1, 0], [0, 1, -2, -2, -2, -2, -2, -2, -2, -2]], np.int32
    )
    found = compute_agreement(classes, 3)
    assert found[0] == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert math.isnan(found[1])


def test_problems_where_all_abstain_are_wrong_and_without_grades_unknown():
    found = scored([[(-1, 0.0)] * 4, [(0, math.nan)] * 4], 2)
    assert found.accuracy[0, 0] == 0
    assert math.isnan(found.accuracy[1, 0])
    assert math.isnan(scored([[(-1, 0.0)] * 4], 8).accuracy[0, 0])
