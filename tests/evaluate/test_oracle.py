"""The oracle's bracket: what was chosen by luck doesn't keep it when other samples judge."""

from dataclasses import replace

import numpy as np
import pytest

from adacompute import AccuracyTable, Ballots, TokenPrices, frontier, score, solve
from adacompute.errors import TooFewSamples
from adacompute.evaluate import (
    Scoring,
    bracket_modes,
    compare_with_uniform,
    cross_fit,
    paired_interval,
    score_halves,
)
from adacompute.evaluate.oracle_bounds import compute_expectation
from adacompute.pool.ballots import ABSENT
from adacompute.pool.modes import Menu
from adacompute.score.grades import halves
from shared import read_votes
from tiers import leave_to_nightly

BUDGETS = (1, 2, 4, 8)
VOTE = Scoring()


@pytest.fixture(scope="module")
def words() -> Ballots:
    return read_votes("words")


@pytest.fixture(scope="module")
def table(words: Ballots) -> AccuracyTable:
    return score(words, BUDGETS)


def coins(problems: int, samples: int, *, seed: int = 3) -> Ballots:
    """Problems that are all alike: each sample is right by the throw of a coin, whatever the problem."""
    right = np.random.default_rng(seed).random((problems, samples)) < 0.5
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
    found = compare_with_uniform(scored, solve(scored, budget=2), score_halves(ballots, scored, scoring=VOTE))
    assert found.crossfitted is not None
    assert found.plan.mixed_accuracy > found.uniform.accuracy.mean + 0.03
    assert found.crossfitted.accuracy.mean == pytest.approx(0.5, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("budget", leave_to_nightly([3, 1.5, 2, 4, 6]))
def test_on_a_recording_crossfitted_lies_between_alike_and_in_sample(words, table, budget: float):
    found = compare_with_uniform(table, solve(table, budget=budget), score_halves(words, table, scoring=VOTE))
    assert found.crossfitted is not None
    assert found.uniform.accuracy.mean < found.crossfitted.accuracy.mean < found.plan.mixed_accuracy
    assert found.crossfitted.cost == pytest.approx(budget)


def test_choosing_and_judging_on_the_same_table_is_the_plan(table):
    plan = solve(table, budget=1.7)
    assert cross_fit([(table, table)], budget=1.7).accuracy.mean == pytest.approx(plan.mixed_accuracy)
    assert compute_expectation(table.accuracy, plan).mean() == pytest.approx(plan.mixed_accuracy)
    assert compute_expectation(table.cost_matrix, plan).mean() == pytest.approx(1.7)


def test_no_choice_is_worth_more_than_the_judges_own_frontier(words, table):
    for chosen, judge in score_halves(words, table, scoring=VOTE, splits=2):
        assert cross_fit([(chosen, judge)], budget=2).accuracy.mean <= frontier(judge).at(2.0) + 1e-12


def test_each_half_serves_as_both_and_the_same_seed_gives_the_same(words, table):
    pairs, again = (
        score_halves(words, table, scoring=VOTE, splits=1, rng=np.random.default_rng(5)) for _ in range(2)
    )
    (one, other), (back, forth) = pairs
    assert one is forth
    assert other is back
    assert not np.array_equal(one.accuracy, other.accuracy)
    assert np.array_equal(one.accuracy, again[0][0].accuracy)


def test_dropped_problems_stay_out_of_the_halves():
    ballots = coins(30, 16)
    classes = ballots.classes.copy()
    classes[7, 1:] = -2
    ragged = replace(ballots, classes=classes)
    scored = score(ragged, BUDGETS, too_few="drop")
    assert scored.dropped == ("coin-7",)
    for chosen, judge in score_halves(ragged, scored, scoring=VOTE, splits=1):
        assert chosen.ids == judge.ids == scored.ids


def test_too_few_samples_for_two_halves_are_named():
    ballots = coins(5, 15)
    with pytest.raises(TooFewSamples, match=r"needs 16 .* 'coin-0' has 15"):
        score_halves(ballots, score(ballots, BUDGETS), scoring=VOTE)


def test_halves_are_scored_in_the_way_that_all_samples_were(words):
    how = Scoring(aggregate="any-correct")
    scored = how.score_table(words, (1, 16))
    fitted = cross_fit(score_halves(words, scored, scoring=how, splits=2), budget=99)
    assert scored.accuracy[:, 1].mean() > score(words, (16,)).accuracy.mean() + 0.03  # votes don't reach it
    assert fitted.accuracy.mean == pytest.approx(scored.accuracy[:, 1].mean(), abs=0.02)


def test_a_crossfitted_choice_spends_about_the_budget_in_tokens(words):
    how = Scoring(cost="tokens")
    scored = how.score_table(words, BUDGETS)
    fitted = cross_fit(score_halves(words, scored, scoring=how, splits=2), budget=600)
    assert fitted.cost == pytest.approx(600, rel=0.01)


def test_a_token_budget_just_at_the_cheapest_still_has_a_lower_end(words):
    how = Scoring(cost="tokens")
    scored = how.score_table(words, BUDGETS)
    cheapest = float(scored.cost_matrix[:, 0].mean())  # in one of two halves tokens are dearer
    fitted = cross_fit(score_halves(words, scored, scoring=how, splits=1), budget=cheapest)
    assert fitted.cost == pytest.approx(cheapest, rel=0.01)


def test_the_difference_is_from_the_crossfitted_to_the_in_sample_value(words, table):
    found = compare_with_uniform(table, solve(table, budget=2), score_halves(words, table, scoring=VOTE))
    assert found.crossfitted is not None
    base = found.uniform.accuracy.mean
    assert found.difference.low_end == found.crossfitted.accuracy.mean - base
    assert found.difference.high_end == found.plan.mixed_accuracy - base
    assert found.difference.interval == paired_interval(found.crossfitted.each, found.uniform.each)
    alone = compare_with_uniform(table, found.plan, ()).difference
    assert (alone.low_end, alone.interval, alone.high_end) == (None, None, found.difference.high_end)


def test_a_paired_interval_is_that_of_the_differences_and_narrower_than_either(words, table):
    found = compare_with_uniform(table, solve(table, budget=2), score_halves(words, table, scoring=VOTE))
    assert found.crossfitted is not None
    assert found.difference.interval is not None
    each = found.crossfitted.each - found.uniform.each
    low, high = found.difference.interval
    assert (low + high) / 2 == pytest.approx(found.difference.low_end)
    assert (high - low) / 2 == pytest.approx(1.96 * each.std(ddof=1) / len(each) ** 0.5, rel=1e-4)
    assert found.uniform.accuracy.low is not None
    assert found.uniform.accuracy.high is not None
    assert high - low < found.uniform.accuracy.high - found.uniform.accuracy.low


def test_problems_that_differ_alike_have_no_interval():
    assert paired_interval(np.array([0.5]), np.array([0.4])) is None
    assert paired_interval(np.array([0.5, 0.5]), np.array([0.25, 0.25])) is None
    low, high = paired_interval(np.array([0.0, 0.0]), np.array([0.0, 1.0])) or (0.0, 0.0)
    assert low < -0.5 < high  # a loss is no less than 0 for being one


def test_prompt_tokens_of_each_problem_go_with_the_problems_that_are_kept():
    ballots = read_votes("facts")
    short = ballots.classes.copy()
    short[0, 8:] = -2  # the first problem has too few samples
    ballots = replace(ballots, classes=short)
    price = TokenPrices(input=1, output=1, prompt_tokens=list(range(1, len(ballots) + 1)))
    how = Scoring(cost=price)
    table = how.score_table(ballots, (1, 4, 16), too_few="drop")
    (one, _), *_ = score_halves(ballots, table, scoring=how, splits=1)
    assert one.ids == table.ids
    assert one.costs[:, 0] == pytest.approx(table.costs[:, 0], rel=0.9)
    assert np.corrcoef(one.costs[:, 0], table.costs[:, 0])[0, 1] > 0.99


def two_coins(problems: int, first: int, second: int) -> Ballots:
    """Two modes that throw coins; right answers are class 0 in both, and wrong ones class 1."""
    modes = (coins(problems, first), coins(problems, second, seed=4))
    return two_modes(*(replace(mode, classes=(mode.correct == 0).astype(np.int32)) for mode in modes))


def two_modes(first: Ballots, second: Ballots) -> Ballots:
    return Ballots.join({"cheap": first, "dear": second})


def test_of_pure_luck_in_two_modes_in_sample_claims_much_and_crossfitted_nothing():
    ballots = two_coins(300, 8, 8)
    menu = Menu.of(ballots, costs={"cheap": 0.5, "dear": 1.0})
    (found,) = bracket_modes(ballots, menu, [1.2], choices=(1, 2, 4))
    assert found.low is not None
    assert found.high > 0.6
    assert found.low.mean == pytest.approx(0.5, abs=0.03)
    assert found.cost == pytest.approx(1.2)


def test_a_menu_of_one_mode_has_the_bracket_of_that_mode(words, table):
    ballots = Ballots.join({"qwen": words})
    menu = Menu.of(ballots, costs={"qwen": 1.0})
    pairs = score_halves(words, table, scoring=VOTE, rng=np.random.default_rng(8), splits=2)
    menu_pairs = score_halves(
        ballots,
        table,
        scoring=Scoring(mode_set=menu),
        choices=BUDGETS,
        rng=np.random.default_rng(8),
        splits=2,
    )
    for left, right in zip(pairs, menu_pairs, strict=True):
        assert all((a.accuracy == b.accuracy).all() for a, b in zip(left, right, strict=True))
    (found,) = bracket_modes(ballots, menu, [2.0], choices=BUDGETS, splits=1)
    assert found.high == solve(table, budget=2.0).mixed_accuracy


def test_halves_of_modes_hold_every_sample_once_and_one_answer_has_one_class_in_both_modes():
    ballots = two_coins(20, 6, 9)
    parts = halves(ballots, np.random.default_rng(1))
    for row in range(20):
        for name in ballots.names:
            both = np.concatenate([part[name].correct[row] for part in parts])
            whole = ballots[name].correct[row]
            assert sorted(both[~np.isnan(both)].tolist()) == sorted(whole.tolist())
        for part in parts:
            kept = part.classes[row] != ABSENT
            kinds = set(zip(part.classes[row][kept].tolist(), part.correct[row][kept].tolist(), strict=True))
            assert len(kinds) == len({number for number, _ in kinds}) == len({grade for _, grade in kinds})


def test_an_oracle_over_modes_is_no_worse_than_over_one_and_says_where_halves_are_too_small():
    ballots = two_coins(30, 6, 6)
    alone = Menu.of(ballots, costs={"dear": 1.0})
    both = Menu.of(ballots, costs={"cheap": 0.5, "dear": 1.0})
    (one_mode,) = bracket_modes(ballots, alone, [2.0], choices=(1, 4))
    (two,) = bracket_modes(ballots, both, [2.0], choices=(1, 4))
    assert two.high >= one_mode.high
    assert two.low is one_mode.low is None
    assert two.why.startswith("half of each mode's samples are too few to choose on: mode 'cheap': 30 of 30")


def test_the_bracket_of_a_menu_in_money(words):
    shuffled = words.only(np.arange(len(words))[:60])
    ballots = two_modes(shuffled, shuffled)
    prices = {"cheap": TokenPrices(output=1.0, prompt_tokens=0), "dear": TokenPrices(output=9.0)}
    menu = Menu.of(ballots, prices=prices)
    (found,) = bracket_modes(ballots, menu, [2 * menu.costs[0]], choices=(1, 2), splits=2)
    assert found.low is not None
    assert found.low.mean < found.high
