"""Ways of scoring and solving, as `adacompute solve` takes them: each does what its name says."""

import json

import pytest

from tiers import leave_to_nightly


@pytest.mark.parametrize(
    ("options", "protocol"),
    leave_to_nightly(
        [
            (("--aggregate", "weighted"), "weighted by logprob"),
            (("--aggregate", "weighted", "--by", "entropy"), "weighted by entropy"),
            (("--aggregate", "best-of", "--by", "logprob"), "best of b samples by logprob"),
            (("--aggregate", "any-correct"), "whether any of b samples is right"),
        ]
    ),
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


def test_a_vote_too_large_to_be_exact_is_refused_with_the_option(adacompute, tmp_path):
    pool = {"id": "p", "question": "?", "gold": "4", "samples": [{"answer": "4"}] * 300}
    (tmp_path / "large.jsonl").write_text(json.dumps(pool))
    refused = adacompute("score", "large.jsonl", "--budgets", "257", code=1).stderr
    assert "above 256, the largest that is scored exactly; give smaller budgets (--budgets)" in refused
