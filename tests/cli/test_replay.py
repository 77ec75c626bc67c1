"""`adacompute replay`, run as a user would: what a saved policy costs and gives."""

import json
from pathlib import Path

import numpy as np
import pytest

import adacompute as ac
from adacompute.policies.baselines import FixedPolicy


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    """A policy of each kind of dial, saved."""
    ac.StoppingPolicy(longest=4).save(tmp_path / "stopping")
    FixedPolicy(budget=2).save(tmp_path / "fixed")
    return tmp_path


@pytest.mark.slow
def test_replay_gives_what_calibrate_and_replay_give(adacompute, policies):
    words = ("replay", "facts", "--policy", "stopping", "--budget", "2.5", "--orders", "4", "--json")
    body = json.loads(adacompute(*words).stdout)
    policy = ac.load_policy(policies / "stopping")
    with ac.bundled("facts") as pool:
        price = ac.calibrate(policy, pool, 2.5, orders=4, rng=np.random.default_rng(0))
        found = ac.replay(policy, pool, price=price, orders=4, rng=np.random.default_rng(0))
    assert body == {"pool": "facts", "budget": 2.5, **json.loads(json.dumps(found.to_dict()))}


@pytest.mark.slow
def test_a_pool_that_was_exported_as_shards_gives_the_same(adacompute, policies):
    problem = {"question": "2 + 2?", "gold": "4", "samples": [{"answer": answer} for answer in "44353444"]}
    lines = (json.dumps({"id": f"p{number}", **problem}) + "\n" for number in range(30))
    (policies / "few.jsonl").write_text("".join(lines), "utf-8")
    adacompute("export", "few.jsonl", "shards", "--shards", "3")
    assert len(list((policies / "shards").iterdir())) == 3
    words = ("--policy", "stopping", "--price", "0.05", "--orders", "4", "--json")
    here, there = (json.loads(adacompute("replay", name, *words).stdout) for name in ("few.jsonl", "shards"))
    assert there | {"pool": "few.jsonl"} == here


def test_replay_shows_cost_accuracy_and_how_it_was_come_by(adacompute, policies):
    said = adacompute("replay", "facts", "--policy", "fixed").stdout
    for part in (
        "2 samples a request",
        "too few groups",
        "with the vote of all samples",
        "bootstraps",
    ):
        assert part in said


@pytest.mark.slow
def test_a_policy_on_what_it_was_fitted_on_is_said_to_be_in_sample(adacompute, policies):
    with ac.bundled("words") as pool:
        ac.StoppingPolicy(longest=2, weigh=None, features=False).fit(pool).save(policies / "own")
    done = adacompute("replay", "words", "--policy", "own", "--price", "0.1", "--orders", "2", "--json")
    assert json.loads(done.stdout)["in_sample"] == 441
    assert "in-sample: the policy was fitted on 441 of these 441 problems" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("stopping",), "needs --budget B or --price X"),
        (("stopping", "--budget", "2", "--price", "1"), "one of them"),
        (("fixed", "--budget", "2"), "made for one budget"),
    ],
)
def test_a_dial_that_is_missing_or_of_no_use_is_bad_usage(adacompute, policies, words, said):
    done = adacompute("replay", "words", "--policy", *words, code=2)
    assert said in " ".join(done.stderr.split())
