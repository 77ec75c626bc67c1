"""The tests' own way of running the command: forked from a warm process, it does what it does installed."""

import json
import os
import subprocess

import pytest

from tiers import leave_to_nightly

LINE = {"id": "p", "question": "?", "gold": "1", "samples": [{"answer": "1"}, {"answer": "2"}]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "environ", "code"),
    leave_to_nightly(
        [
            (("pool", "a.jsonl"), {"ADACOMPUTE_SCORE_BUDGETS": "2"}, 0),
            (("pool", "no.jsonl"), {}, 1),
            (("pool", "a.jsonl", "--percent", "half"), {"COLUMNS": "60"}, 2),
        ]
    ),
)
def test_a_forked_command_says_and_ends_as_the_installed_one(
    adacompute, installed, tmp_path, words, environ, code
):
    (tmp_path / "a.jsonl").write_text(json.dumps(LINE))
    forked, anew = (run(*words, code=code, **environ) for run in (adacompute, installed))
    assert (forked.stdout, forked.stderr) == (anew.stdout, anew.stderr)


def test_no_run_leaves_anything_to_the_next(adacompute, tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps(LINE))
    before = adacompute("pool", "a.jsonl", "--json").stdout
    adacompute("pool", "a.jsonl", "--json", ADACOMPUTE_SCORE_BUDGETS="2")
    adacompute("pool", code=2)
    assert adacompute("pool", "a.jsonl", "--json").stdout == before


def test_one_that_takes_too_long_is_killed_and_the_next_is_run(warm, tmp_path):
    os.mkfifo(tmp_path / "endless.jsonl")
    here = {"folder": tmp_path, "environ": os.environ}
    with pytest.raises(subprocess.TimeoutExpired):
        warm().run("pool", "endless.jsonl", timeout=0.5, **here)
    assert warm().run("pool", **here).returncode == 2


def test_a_start_that_only_a_new_python_heeds_is_one(warm, tmp_path):
    assert warm().can(os.environ | {"COLUMNS": "40"})
    assert not warm().can(os.environ | {"PYTHONIOENCODING": "latin-1"})
    assert not warm().can(os.environ | {"LC_ALL": "nowhere"})
    with pytest.raises(AssertionError):
        warm().run("--version", folder=tmp_path, environ=os.environ | {"PYTHONUTF8": "0"})
