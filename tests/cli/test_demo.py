"""`adacompute demo`: the verdict first, in the words of the tables, and no more than was measured."""

import json

import adacompute as ac


def test_the_verdict_comes_first_and_says_what_the_oracle_knows(adacompute):
    shown = adacompute("demo").stdout
    told = " ".join(shown.split("\n\n")[1].split())
    assert told.count("(chosen with the answers known)") == len(ac.bundled_names())
    assert "words: the oracle's 4 samples on average" in told
    assert "are worth 5.4 to 6.1 uniform ones (80.0–81.0%)" in told
    note = " ".join(shown.split())
    assert "2 on average is 4 samples for a random third and 1 for the rest" in note
    assert "mean of 5 random splits); the upper end chooses and judges on the same samples" in note


def test_it_gives_what_solve_gives_under_the_same_names(adacompute):
    (two,) = (
        one
        for one in json.loads(adacompute("demo", "--json").stdout)["words"]["frontier"]
        if one["budget"] == 2
    )
    solved = json.loads(adacompute("solve", "words", "--budget", "2", "--json").stdout)
    assert {name: solved[name] for name in two} == two
    assert set(two["crossfitted"]) == {"accuracy", "low", "high", "cost", "splits"}
    assert set(two["difference"]) == {"low_end", "high_end", "interval"}


def test_without_halves_there_is_one_end_and_no_word_of_two(adacompute):
    # 40 samples can't be halved out of 64
    shown = " ".join(adacompute("demo", ADACOMPUTE_SCORE_BUDGETS="3,40").stdout.split())
    assert "60.3% with 40" in shown
    assert "an upper end only (choosing on half of the samples needs 80" in shown
    assert "lower end" not in shown
    body = json.loads(adacompute("demo", "--json", ADACOMPUTE_SCORE_BUDGETS="3,40").stdout)
    first = body["facts"]["frontier"][0]
    assert first["crossfitted"] is None
    assert "needs 80 of each problem" in first["crossfitted_why"]


def test_budgets_that_no_recording_has_are_refused(adacompute):
    assert "fewer than 99 samples" in adacompute("demo", code=1, ADACOMPUTE_SCORE_BUDGETS="99").stderr
