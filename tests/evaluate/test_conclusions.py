"""Verdicts in words: never more than the interval says."""

import math

import pytest

from adacompute.evaluate import Interval, Match
from adacompute.evaluate.conclusions import describe_worth, judge_budget, summarise_verdicts


def match(policy: str, budget: float, gain: tuple[float, float, float] | None, **change: object) -> Match:
    given = {
        "policy": policy,
        "budget": budget,
        "cost": budget,
        "accuracy": 0.7 if gain is None else 0.7 + gain[0],
        "low": 0.6,
        "high": 0.8,
        "gain": None if gain is None else Interval(mean=gain[0], low=gain[1], high=gain[2]),
        "lead": None,
        "recovered": (None, None),
        "worth": None,
    }
    return Match(**(given | change))  # type: ignore[arg-type]


FIXED = match("fixed", 2, None)


def test_an_interval_that_holds_zero_is_no_gain():
    found = judge_budget(2, [FIXED, match("stopping", 2, (0.01, -0.002, 0.022))], basis="accuracy")
    assert found.better is False
    assert "uniform is as good here: +1.0 points (95% interval -0.2 to +2.2)" in found.words
    assert "Uniform is as good here" in summarise_verdicts([found], [FIXED], basis="accuracy")


def test_an_interval_above_zero_is_one():
    found = judge_budget(2, [FIXED, match("stopping", 2, (0.02, 0.01, 0.03))], basis="accuracy")
    assert found.better is True
    assert "stopping is right on 72.0%, +2.0 points (95% interval +1.0 to +3.0) above uniform" in found.words


def test_below_uniform_is_said_so_and_won_by_nobody():
    worse = match("classifier", 2, (-0.02, -0.03, -0.01))
    found = judge_budget(2, [FIXED, worse], basis="accuracy")
    assert found.better is False
    assert "uniform is better here: -2.0 points" in found.words
    assert summarise_verdicts([found], [FIXED, worse], basis="accuracy").startswith("Uniform is as good here")


def test_the_best_of_several_is_said_to_be_picked_afterwards():
    several = [FIXED, match("curve", 2, (0.01, 0.001, 0.02)), match("stopping", 2, (0.02, 0.01, 0.03))]
    found = judge_budget(2, several, basis="accuracy")
    assert found.policy == "stopping"
    assert "(the best of 2 learned policies, picked afterwards)" in found.words


def test_where_some_budgets_gain_the_others_are_named_too():
    wins, draws = match("stopping", 2, (0.02, 0.01, 0.03)), match("stopping", 4, (0.01, -0.01, 0.03))
    several = [FIXED, match("fixed", 4, None), wins, draws]
    verdicts = [judge_budget(budget, several, basis="accuracy") for budget in (2, 4)]
    said = summarise_verdicts(verdicts, several, basis="accuracy")
    assert "above uniform at 1 of 2 budgets (2); at the others uniform is as good" in said
    assert "stopping at 2, +2.0 points (95% interval +1.0 to +3.0)" in said


def test_without_grades_no_word_of_being_right():
    found = judge_budget(2, [FIXED, match("stopping", 2, (0.02, 0.01, 0.03))], basis="agreement")
    assert "agrees with the full vote on 72.0%" in found.words
    assert "right" not in found.words


def test_nobody_to_judge_or_to_compare_with_is_said():
    assert judge_budget(2, [FIXED], basis="accuracy").better is None
    alone = judge_budget(2, [match("stopping", 2, None)], basis="accuracy")
    assert (alone.better, "took no part" in alone.words) == (None, True)
    assert (
        summarise_verdicts([alone], [], basis="accuracy")
        == "No policy can be compared with uniform sampling here."
    )


@pytest.mark.parametrize(
    ("worth", "words"),
    [
        (None, ""),
        (
            Interval(mean=5.04, low=4.2, high=6.0),
            ", as good as 5.0 uniform samples (95% interval 4.2 to 6.0)",
        ),
        (Interval(mean=5.0, low=4.2, high=math.inf), "(95% interval 4.2 to more than there are)"),
        (Interval(mean=math.inf, low=9.0, high=math.inf), ", more than any number of uniform samples here"),
    ],
)
def test_what_it_is_worth_in_uniform_samples_has_its_interval(worth: Interval | None, words: str):
    said = describe_worth(match("stopping", 2, (0.02, 0.01, 0.03), worth=worth))
    assert words in said
    assert bool(said) == bool(words)
