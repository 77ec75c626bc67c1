"""The oracle's bracket: what was chosen by luck doesn't keep it when other samples judge."""

from dataclasses import replace

import numpy as np
import pytest

from adacompute import AccuracyTable, Ballots, bundled, frontier, score, solve
from adacompute.errors import TooFewSamples
from adacompute.evaluate import compared, crossfitted, halved
from adacompute.evaluate.oracle import expected

BUDGETS = (1, 2, 4, 8)


@pytest.fixture(scope="module")
def words() -> Ballots:
    with bundled("words") as pool:
        return pool.ballots()


@pytest.fixture(scope="module")
def table(words: Ballots) -> AccuracyTable:
    return score(words, BUDGETS)


def coins(problems: int, samples: int) -> Ballots:
    """Problems that are all alike: each sample is right by the throw of a coin, whatever the problem."""
    right = np.random.default_rng(3).random((problems, samples)) < 0.5
    nothing = np.full(right.shape, np.nan)
    return Ballots(
        ids=tuple(f"coin-{i}" for i in range(problems)),
        prompts=("?",) * problems,
        subjects=(None,) * problems,
        levels=(None,) * problems,
        gold_known=np.ones(problems, dtype=bool),
        classes=np.where(right == right[:, :1], 0, 1).astype(np.int32),
        correct=right.astype(np.float32),
        tokens=nothing,
        logprob=nothing,
        entropy=nothing,
    )


def test_of_pure_luck_in_sample_claims_much_and_crossfitted_nothing():
    ballots = coins(400, 16)
    scored = score(ballots, BUDGETS)
    found = compared(scored, solve(scored, budget=2), halved(ballots, scored))
    assert found.crossfitted is not None
    assert found.plan.mixed_accuracy > found.uniform.accuracy.mean + 0.03
    assert found.crossfitted.accuracy.mean == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("budget", [1.5, 2, 3, 4, 6])
def test_on_a_recording_crossfitted_lies_between_alike_and_in_sample(words, table, budget: float):
    found = compared(table, solve(table, budget=budget), halved(words, table))
    assert found.crossfitted is not None
    assert found.uniform.accuracy.mean < found.crossfitted.accuracy.mean < found.plan.mixed_accuracy
    assert found.crossfitted.cost == pytest.approx(budget)


def test_choosing_and_judging_on_the_same_table_is_the_plan(table):
    plan = solve(table, budget=1.7)
    assert crossfitted([(table, table)], budget=1.7).accuracy.mean == pytest.approx(plan.mixed_accuracy)
    assert expected(table.accuracy, plan).mean() == pytest.approx(plan.mixed_accuracy)
    assert expected(table.cost_matrix, plan).mean() == pytest.approx(1.7)


def test_no_choice_is_worth_more_than_the_judges_own_frontier(words, table):
    for chosen, judge in halved(words, table, splits=2):
        assert crossfitted([(chosen, judge)], budget=2).accuracy.mean <= frontier(judge).at(2.0) + 1e-12


def test_each_half_serves_as_both_and_the_same_seed_gives_the_same(words, table):
    pairs, again = (halved(words, table, splits=1, rng=np.random.default_rng(5)) for _ in range(2))
    (one, other), (back, forth) = pairs
    assert one is forth
    assert other is back
    assert not np.array_equal(one.accuracy, other.accuracy)
    assert np.array_equal(one.accuracy, again[0][0].accuracy)


def test_only_the_table_to_choose_on_is_shrunk(words, table):
    rng = np.random.default_rng(5)
    plain = halved(words, table, splits=1, rng=rng)
    shrunk = halved(words, table, splits=1, rng=np.random.default_rng(5), shrink=True)
    for (chosen, judge), (pulled, same) in zip(plain, shrunk, strict=True):
        assert np.array_equal(judge.accuracy, same.accuracy)
        assert not np.array_equal(chosen.accuracy, pulled.accuracy)


def test_dropped_problems_stay_out_of_the_halves():
    ballots = coins(30, 16)
    classes = ballots.classes.copy()
    classes[7, 1:] = -2
    ragged = replace(ballots, classes=classes)
    scored = score(ragged, BUDGETS, too_few="drop")
    assert scored.dropped == ("coin-7",)
    for chosen, judge in halved(ragged, scored, splits=1):
        assert chosen.ids == judge.ids == scored.ids


def test_too_few_samples_for_two_halves_are_named():
    ballots = coins(5, 15)
    with pytest.raises(TooFewSamples, match=r"needs 16 .* 'coin-0' has 15"):
        halved(ballots, score(ballots, BUDGETS))
