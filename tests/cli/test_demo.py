"""`adacompute demo`: the verdict first, in the words of the tables, and no more than was measured."""

import json
from pathlib import Path

import pytest

import adacompute as ac


@pytest.fixture(scope="module")
def shown() -> str:
    """What it prints, as the README shows it: that this is what it prints is tests/docs' to see."""
    readme = (Path(__file__).resolve().parent.parent.parent / "README.md").read_text("utf-8")
    return readme.split("$ make demo\n", 1)[1].split("```", 1)[0]


def test_the_verdict_comes_first_with_its_protocol_and_interval(shown: str):
    told = shown.split("\n\n")[1].replace("\n    ", " ").replace("\n  ", " ").split("\n")
    assert len(told) == len(ac.bundled_names())
    for name, verdict in zip(ac.bundled_names(), told, strict=True):
        assert verdict.startswith(f"{name}: with stopping, 3 samples on average are right on ")
        assert "as good as" in verdict
        if "uniform ones" in verdict:
            assert "(held-out, 3 folds; 95% interval over problems" in verdict


def test_the_held_out_table_and_the_oracles_are_told_apart(shown: str):
    note = " ".join(shown.split())
    for part in (
        "policies, held-out (3 folds), votes weighted by confidence",
        "accuracy at exactly so many samples on average",
        "calibrated beforehand on other problems",
        "an oracle that decides beforehand, plain votes",
        "oracle is chosen with the answers known",
        "mean of 5 random splits); the upper end chooses and judges on the same samples",
        "a real model on this machine, live",
        "30 samples in adacompute-demo/pool.sqlite",
    ):
        assert part in note, part


def test_it_gives_what_solve_and_evaluate_give_and_what_a_real_model_said(adacompute, tmp_path: Path):
    # 40 samples can't be halved out of 64: then there is one end, and why
    whole = json.loads(adacompute("demo", "words", "--json", ADACOMPUTE_SCORE_BUDGETS="3,40").stdout)
    body, live = whole["words"], whole["live"]
    assert (live["planned"], live["stored"], live["complete"], len(live["requests"])) == (30, 30, True, 6)
    assert all(sum(one["votes"].values()) == 5 for one in live["requests"])
    gateway = live["gateway"]
    assert len(gateway["requests"]) == 6
    assert all(one["samples"] >= 1 and one["tokens"] > 0 for one in gateway["requests"])
    with ac.open_pool(tmp_path / live["pool"]) as pool:
        assert pool.verify().ok
        assert pool.counts().samples == 30
    (four,) = (one for one in body["frontier"] if one["budget"] == 4)
    solved = json.loads(adacompute("solve", "words", "--budget", "4", "--budgets", "3,40", "--json").stdout)
    assert {name: solved[name] for name in four} == four
    assert four["crossfitted"] is None
    assert set(four["difference"]) == {"low_end", "high_end", "interval"}
    held_out = body["held_out"]
    assert (held_out["problems"], held_out["folds"], held_out["protocol"]) == (441, 3, "held-out")
    assert {row["policy"] for row in held_out["rows"]} == {"fixed", "asc", "stopping", "peers"}


def test_budgets_that_no_recording_has_are_refused(adacompute):
    assert "fewer than 99 samples" in adacompute("demo", code=1, ADACOMPUTE_SCORE_BUDGETS="99").stderr
