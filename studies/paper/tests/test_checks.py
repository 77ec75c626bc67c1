"""Verdicts are told from how many recordings bear a statement out, never written by hand."""

import pytest

from studies.paper.oracle_checks import BOTH_SIDES, Check, Observation, judge_claim

YES, NO = True, False


def check(**given: object) -> Check:
    return Check(key="k", value="what", kind="points", see=lambda _: Observation(), holds="always", **given)


def seen(paper: list[bool | None], ours: list[bool | None]) -> dict[str, Observation]:
    return {
        str(at): Observation(paper=one, ours=other)
        for at, (one, other) in enumerate(zip(paper, ours, strict=True))
    }


@pytest.mark.parametrize(
    ("paper", "ours", "verdict"),
    [
        ([YES] * 6, [YES] * 5 + [NO], "agrees"),
        ([YES] * 6, [YES] * 2 + [NO] * 4, "only in-sample"),
        ([YES] * 3 + [NO] * 3, [NO] * 6, "only in-sample"),
        ([YES] * 2 + [NO] * 4, [NO] * 6, "doesn't"),
        ([YES] * 6, [YES] * 4 + [NO] * 2, "in part"),
        ([NO] * 6, [YES] * 6, "agrees"),
        ([YES] * 6, [None] * 6, "agrees"),
        ([YES] * 2 + [NO] * 4, [None] * 6, "in part"),
        ([None] * 6, [None] * 6, "can't be known"),
    ],
)
def test_the_second_reading_decides_where_there_is_one(paper: list, ours: list, verdict: str):
    assert judge_claim(check(), seen(paper, ours)).verdict == verdict


def test_only_a_held_out_reading_can_say_that_something_holds_in_sample_only():
    found = judge_claim(check(reading="over all subsets"), seen([YES] * 6, [NO] * 6))
    assert found.verdict == "doesn't"


def test_what_holds_in_the_first_reading_only_is_called_what_the_check_says():
    found = judge_claim(check(only=BOTH_SIDES), seen([YES, NO], [NO, NO]))
    assert found.verdict == BOTH_SIDES


def test_the_third_number_is_told_and_decides_nothing():
    found = judge_claim(
        check(beside="whatever each spends,"),
        {"a": Observation(paper=True, value=0.01, ours=True, own=0.02, beside=-0.03)},
    )
    assert found.verdict == "agrees"
    assert found.found == "what: +1.0; held-out +2.0; whatever each spends, -3.0"


def test_once_is_enough_where_the_paper_says_up_to():
    paper, ours = [YES] + [NO] * 5, [NO] * 6
    assert judge_claim(check(once=True), seen(paper, ours)).verdict == "only in-sample"
    assert judge_claim(check(once=True), seen(paper, paper)).verdict == "agrees"


def test_words_hold_the_range_of_both_readings_and_the_reason_of_the_verdict():
    found = judge_claim(
        check(why={"agrees": "so"}),
        {
            "a": Observation(paper=True, value=0.01, ours=True, own=-0.02, note="a: first"),
            "b": Observation(paper=True, value=0.03, ours=True, own=-0.02),
        },
    )
    assert found.found == "what: +1.0 to +3.0; held-out -2.0. a: first"
    assert (found.why, found.paper, found.ours) == ("so", (2, 2), (2, 2))
