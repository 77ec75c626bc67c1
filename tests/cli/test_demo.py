"""`adacompute demo`: the verdict first, in the words of the tables, and no more than was measured."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import adacompute as ac


@pytest.fixture(scope="module")
def shown() -> str:
    """What it prints: run once, because it fits policies."""
    program = str(Path(sys.executable).parent / "adacompute")
    return subprocess.run([program, "demo"], capture_output=True, text=True, check=True, timeout=300).stdout


def test_the_verdict_comes_first_with_its_protocol_and_interval(shown: str):
    told = shown.split("\n\n")[1].replace("\n    ", " ").replace("\n  ", " ").split("\n")
    assert len(told) == len(ac.bundled_names())
    for name, verdict in zip(ac.bundled_names(), told, strict=True):
        assert verdict.startswith(f"{name}: with stopping, 3 samples on average are right on ")
        assert "as good as" in verdict
        if "uniform ones" in verdict:
            assert "(held-out, 5 folds; 95% interval over problems" in verdict


def test_the_held_out_table_and_the_oracles_are_told_apart(shown: str):
    note = " ".join(shown.split())
    for part in (
        "policies, held-out (5 folds), votes weighted by confidence",
        "accuracy at exactly so many samples on average",
        "calibrated beforehand on other problems",
        "an oracle that decides beforehand, plain votes",
        "oracle is chosen with the answers known",
        "mean of 5 random splits); the upper end chooses and judges on the same samples",
    ):
        assert part in note, part


def test_it_gives_what_solve_gives_under_the_same_names_and_what_evaluate_gives(adacompute):
    body = json.loads(adacompute("demo", "--json").stdout)["words"]
    (two,) = (one for one in body["frontier"] if one["budget"] == 2)
    solved = json.loads(adacompute("solve", "words", "--budget", "2", "--json").stdout)
    assert {name: solved[name] for name in two} == two
    assert set(two["crossfitted"]) == {"accuracy", "low", "high", "cost", "splits"}
    assert set(two["difference"]) == {"low_end", "high_end", "interval"}
    held_out = body["held_out"]
    assert (held_out["problems"], held_out["folds"], held_out["protocol"]) == (441, 5, "held-out")
    assert {row["policy"] for row in held_out["rows"]} == {"fixed", "asc", "stopping", "peers"}


def test_without_halves_there_is_one_end_and_no_word_of_two(adacompute):
    # 40 samples can't be halved out of 64
    shown = " ".join(adacompute("demo", ADACOMPUTE_SCORE_BUDGETS="3,40").stdout.split())
    assert "60.3% with 40" in shown
    assert "an upper end only (choosing on half of the samples needs 80" in shown
    assert "lower end" not in shown


def test_budgets_that_no_recording_has_are_refused(adacompute):
    assert "fewer than 99 samples" in adacompute("demo", code=1, ADACOMPUTE_SCORE_BUDGETS="99").stderr
