"""`adacompute report`, run as a user would: what it writes, what it says, what it refuses."""

import json
import random
from pathlib import Path

import pytest

QUICK = ("--quick", "--workers", "1")


def lines(*, problems: int = 8, samples: int = 3) -> str:
    """Problems from undecided to clear, without gold answers: fewer sections, so that it is soon made."""
    rng, made = random.Random(0), []
    for i in range(problems):
        answers = ["4" if rng.random() < i / problems else str(rng.randrange(4)) for _ in range(samples)]
        made.append(
            {
                "id": f"p{i}",
                "question": f"What is {i} + {i}?",
                "samples": [{"answer": a, "tokens": 20 + i} for a in answers],
            }
        )
    return "".join(json.dumps(one) + "\n" for one in made)


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a.jsonl").write_text(lines())
    return tmp_path


def test_the_headline_comes_first_the_path_last_and_the_files_are_there(adacompute, pool):
    done = adacompute("report", "inner/a.jsonl", "-o", "out", *QUICK, "--name", "mine")
    body = json.loads((pool / "out" / "results.json").read_text())
    shown = done.stdout.splitlines()
    assert " ".join(done.stdout.split()).startswith(" ".join(body["headline"].split()))
    assert shown[-1] == "out/report.html"
    assert body["pool"] == "mine"
    assert "inner" not in body["command"]  # where it lay is nobody's business
    page = (pool / "out" / "report.html").read_text("utf-8")
    assert str(pool) not in page
    assert "mine" in page
    assert "report of mine: " in done.stderr
    again = adacompute("report", "inner/a.jsonl", "-o", "out", *QUICK, "--json")
    assert json.loads(again.stdout)["pool"] == "a.jsonl"  # and the one that was there is replaced
    assert json.loads((pool / "out" / "results.json").read_text()) == json.loads(again.stdout)


def test_a_folder_of_somebody_elses_is_refused_before_any_work(adacompute, pool):
    done = adacompute("report", "nowhere.jsonl", "-o", "inner", *QUICK, code=1)
    assert done.stderr.count("\n") == 1
    assert "inner: there is 'a.jsonl' in it, which is no part of a report; name a new folder" in done.stderr
    assert (pool / "inner" / "a.jsonl").exists()


def test_a_pool_that_cannot_be_evaluated_is_refused_in_one_line_and_nothing_is_left(adacompute, pool):
    (pool / "one.jsonl").write_text(lines(problems=1))
    done = adacompute("report", "one.jsonl", "-o", "out", *QUICK, code=1)
    assert done.stderr.count("\n") == 1
    assert "can't be evaluated" in done.stderr
    assert not (pool / "out").exists()


def test_bad_prices_are_bad_usage(adacompute, pool):
    assert (
        "--input-price"
        in adacompute("report", "inner/a.jsonl", "-o", "out", "--input-price", "-1", code=2).stderr
    )
