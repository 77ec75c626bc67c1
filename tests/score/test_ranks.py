"""Best-of and any-correct are means over every subset: checked by listing the subsets."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_ballots import made as plain

from adacompute.errors import NotRecorded, ScoreError
from adacompute.pool.ballots import ABSTAINS, Ballots
from adacompute.score.aggregates import score_any_correct, score_best_of
from adacompute.score.grades import grade_samples as grades_of

Draw = tuple[int, float, float]  # class, grade, score


def made(problems: Sequence[Sequence[Draw]], **signals: np.ndarray) -> tuple[Ballots, np.ndarray]:
    """Ballots of these samples, and their scores; short problems are filled up with absent samples."""
    shape = (len(problems), max(map(len, problems)))
    scores = np.full(shape, np.nan)
    for i, drawn in enumerate(problems):
        scores[i, : len(drawn)] = [score for _, _, score in drawn]
    return plain([[(kind, grade) for kind, grade, _ in drawn] for drawn in problems], **signals), scores


def best(drawn: Sequence[Draw]) -> float:
    """One choice, as a person would make it."""
    answered = [d for d in drawn if d[0] != ABSTAINS or d[1] > 0]
    if not answered:
        return 0.0
    top = max(d[2] for d in answered)
    tied = [d[1] for d in answered if d[2] == top]
    return sum(tied) / len(tied)


def over_subsets(drawn: Sequence[Draw], budget: int) -> float:
    return float(np.mean([best(subset) for subset in itertools.combinations(drawn, budget)]))


def jackknife(drawn: Sequence[Draw], budget: int) -> float:
    n = len(drawn)
    if budget > n - 1:
        return math.nan
    left = [over_subsets([*drawn[:i], *drawn[i + 1 :]], budget) for i in range(n)]
    return math.sqrt((n - 1) / n * sum((u - np.mean(left)) ** 2 for u in left))


GRADES = st.sampled_from([0.0, 1.0, 0.25])
ANSWERS = st.tuples(st.integers(0, 3), GRADES, st.integers(-2, 2).map(float))
ABSTENTIONS = st.tuples(st.just(ABSTAINS), st.just(0.0), st.sampled_from([1.0, 2.0, math.nan]))
PROBLEMS = st.lists(st.lists(ANSWERS | ABSTENTIONS, min_size=3, max_size=8), min_size=1, max_size=4)


@given(PROBLEMS)
def test_best_of_is_the_mean_over_every_subset(problems: list[list[Draw]]):
    ballots, scores = made(problems)
    scored = score_best_of(ballots, grades_of(ballots), (1, 2, 3), scores)
    wanted = [[over_subsets(drawn, b) for b in (1, 2, 3)] for drawn in problems]
    np.testing.assert_allclose(scored.accuracy, wanted, atol=1e-10)
    assert not scored.simulated


@given(PROBLEMS)
def test_its_standard_error_is_the_delete_one_jackknife(problems: list[list[Draw]]):
    ballots, scores = made(problems)
    scored = score_best_of(ballots, grades_of(ballots), (1, 2, 3), scores)
    wanted = [[jackknife(drawn, b) for b in (1, 2, 3)] for drawn in problems]
    np.testing.assert_allclose(scored.standard_error, wanted, atol=1e-9)


@given(st.integers(1, 400), st.data())
def test_any_correct_is_the_published_pass_at_k(n: int, data: st.DataObject):
    right = data.draw(st.integers(0, n))
    budget = data.draw(st.integers(1, n))
    ballots, _ = made([[(0, 1.0, 0.0)] * right + [(1, 0.0, 0.0)] * (n - right)])
    scored = score_any_correct(ballots, grades_of(ballots), (budget,))
    # Chen et al. 2021, the numerically stable product
    product = 0.0 if n - right < budget else np.prod(1.0 - budget / np.arange(n - right + 1, n + 1))
    np.testing.assert_allclose(scored.accuracy[0, 0], 1.0 - product, atol=1e-10)


@given(PROBLEMS)
def test_any_correct_is_the_mean_of_the_best_grade(problems: list[list[Draw]]):
    ballots, _ = made(problems)
    scored = score_any_correct(ballots, grades_of(ballots), (1, 2, 3))
    for i, drawn in enumerate(problems):
        for k, b in enumerate((1, 2, 3)):
            subsets = [max(d[1] for d in subset) for subset in itertools.combinations(drawn, b)]
            assert scored.accuracy[i, k] == pytest.approx(np.mean(subsets), abs=1e-10)
            by_grade = [(0, d[1], d[1]) for d in drawn]
            assert scored.standard_error[i, k] == pytest.approx(jackknife(by_grade, b), abs=1e-9, nan_ok=True)


def test_thousands_of_samples_neither_overflow_nor_leave_the_unit_interval():
    rng = np.random.default_rng(0)
    problems = [
        [(0, float(rng.random() < 0.3), float(rng.random())) for _ in range(n)] for n in (4000, 3000, 2999)
    ]
    ballots, scores = made(problems)
    for scored in (
        score_best_of(ballots, grades_of(ballots), (1, 1500, 2999), scores),
        score_any_correct(ballots, grades_of(ballots), (1, 1500, 2999)),
    ):
        assert np.isfinite(scored.accuracy).all()
        assert ((scored.accuracy >= 0) & (scored.accuracy <= 1)).all()
        assert np.isnan(scored.standard_error[2, 2])
        assert np.isfinite(np.delete(scored.standard_error.ravel(), 8)).all()


def test_the_named_scores_are_log_probability_per_token_and_minus_entropy():
    tokens, logprob = np.array([[10.0, 2.0, 4.0]]), np.array([[-5.0, -3.0, -8.0]])
    ballots, _ = made(
        [[(0, 1.0, 0), (1, 0.0, 0), (2, 0.5, 0)]],
        tokens=tokens,
        logprob=logprob,
        entropy=np.array([[0.9, 0.5, 0.1]]),
    )
    graded = grades_of(ballots)
    assert score_best_of(ballots, graded, (3,), "logprob").accuracy[0, 0] == 1.0
    assert score_best_of(ballots, graded, (3,), "entropy").accuracy[0, 0] == 0.5


def test_a_sample_without_a_score_is_named_with_its_problem():
    ballots, scores = made([[(0, 1.0, 1.0), (0, 1.0, 1.0)], [(0, 1.0, 2.0), (1, 0.0, math.nan)]])
    with pytest.raises(NotRecorded, match=r"sample 1 of problem 'p1' has no score"):
        score_best_of(ballots, grades_of(ballots), (1,), scores)
    with pytest.raises(NotRecorded, match=r"sample 0 of problem 'p0' has no tokens and log-prob"):
        score_best_of(ballots, grades_of(ballots), (1,), "logprob")


def test_scores_of_another_name_are_refused():
    ballots, _ = made([[(0, 1.0, 1.0), (0, 1.0, 1.0)]])
    with pytest.raises(ScoreError, match="give 'logprob', 'entropy' or an array"):
        score_best_of(ballots, grades_of(ballots), (1,), "length")


def test_null_answers_that_were_graded_are_no_abstentions():
    ballots, scores = made([[(ABSTAINS, 1.0, 1.0), (ABSTAINS, 0.0, 2.0)]])
    # the answers weren't recorded: the second sample has the better score, and is wrong
    assert score_best_of(ballots, grades_of(ballots), (2,), scores).accuracy[0, 0] == 0.0
