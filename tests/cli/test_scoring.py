"""Ways of scoring, shrinking and solving, as `adacompute solve` takes them: each does what its name says."""

import json

import pytest

import adacompute as ac
from adacompute.evaluate import Scoring, cross_fit, score_halves


@pytest.mark.parametrize(
    ("options", "protocol"),
    [
        (("--aggregate", "weighted"), "weighted by logprob"),
        (("--aggregate", "weighted", "--by", "entropy"), "weighted by entropy"),
        (("--aggregate", "best-of", "--by", "logprob"), "best of b samples by logprob"),
        (("--aggregate", "any-correct"), "whether any of b samples is right"),
        (("--estimator", "windows"), "disjoint windows"),
        (("--shrink",), "empirical Bayes"),
        (("--method", "bisection"), "all subsets"),
    ],
)
def test_each_way_of_scoring_says_so_and_keeps_the_budget(adacompute, options, protocol: str):
    words = ("solve", "facts", "--budget", "2", "--budgets", "1,2,4", *options, "--json")
    body = json.loads(adacompute(*words).stdout)
    assert protocol in body["protocol"]
    assert body["cost"] <= 2
    assert body["accuracy"] <= body["bound"] + 1e-9
    assert body["uniform"]["accuracy"] <= body["bound"] + 1e-9
    fitted = body["crossfitted"]
    assert fitted["low"] < fitted["accuracy"] < fitted["high"]
    assert body["uniform"]["accuracy"] - 0.01 < fitted["accuracy"] < body["mixed_accuracy"] + 0.01


def test_any_correct_is_cross_fitted_as_such(adacompute):
    words = ("solve", "facts", "--budget", "99", "--budgets", "1,8", "--aggregate", "any-correct", "--json")
    body = json.loads(adacompute(*words).stdout)
    assert body["crossfitted"]["accuracy"] == pytest.approx(body["uniform"]["accuracy"], abs=0.02)


def test_both_methods_find_the_same_bound(adacompute):
    words = ("solve", "facts", "--budget", "2.3", "--json")
    exact, paper = (json.loads(adacompute(*words, "--method", m).stdout) for m in ("exact", "bisection"))
    assert exact["bound"] == pytest.approx(paper["bound"], abs=1e-9)


@pytest.mark.slow
def test_shrinking_changes_what_the_oracle_claims_and_not_uniform(adacompute):
    words = ("solve", "facts", "--budget", "2")
    plain, pulled = (json.loads(adacompute(*words, *more, "--json").stdout) for more in ((), ("--shrink",)))
    assert plain["uniform"] == pulled["uniform"]
    assert [p["uniform"] for p in plain["curve"]] == [p["uniform"] for p in pulled["curve"]]
    assert plain["accuracy"] != pulled["accuracy"]
    shown, before = adacompute(*words, "--shrink").stdout, adacompute(*words).stdout
    assert last_column(shown) == last_column(before)
    said = " ".join(shown.split())
    assert "as shrunk 48.3%; cross-fitted 48.2%" in said
    assert "+4.1 points cross-fitted (+4.1 as shrunk) at the same average cost (cross-fitted 95%" in said
    assert "oracle, as shrunk" in said
    assert "upper end" not in said


def last_column(shown: str) -> list[str]:
    return [line.split()[-1] for line in shown.splitlines()[3:8]]


@pytest.mark.slow
def test_with_shrink_halves_are_chosen_on_shrunk(adacompute):
    body = json.loads(adacompute("solve", "facts", "--budget", "2", "--shrink", "--json").stdout)
    with ac.bundled("facts") as facts:
        ballots = facts.ballots()
    scored = Scoring().score_table(ballots, body["budgets"])
    pulled, plain = (
        cross_fit(score_halves(ballots, scored, scoring=Scoring(), shrink=shrink), budget=2).accuracy.mean
        for shrink in (True, False)
    )
    assert body["crossfitted"]["accuracy"] == pulled != plain
