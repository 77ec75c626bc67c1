"""`adacompute report`, run as a user would: what it writes, what it says, what it refuses."""

import json
import os
import random
import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest

QUICK = ("--quick", "--workers", "1")
GIVEN = (
    *("--name", "my $HOME", "--input-price", "0", "--output-price", "2.5", "--currency", "C$", "--json"),
    *("--requests", "7", "--prompt-tokens", "9", "--votes", "plain", "--seed", "4294967295"),
)


def lines(*, problems: int = 8, samples: int = 6) -> str:
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
    again = adacompute("report", str(pool / "inner" / "a.jsonl"), "-o", str(pool / "out"), *QUICK, *GIVEN)
    assert json.loads(again.stdout)["pool"] == "my $HOME"  # and the one that was there is replaced
    assert json.loads((pool / "out" / "results.json").read_text()) == json.loads(again.stdout)
    # all that was given, and of the places only the last part
    words = ["adacompute", "report", "a.jsonl", "-o", "out", *QUICK, *GIVEN]
    assert shlex.split(json.loads(again.stdout)["command"]) == words


@pytest.mark.nightly  # `report/test_build.py` has others
def test_hostile_names_are_neither_markup_nor_a_traceback(installed, pool):
    hostile = "</script><img src=x onerror=alert(1)>\"'&{{style}}$\\frac{\u202e\u0007"
    rows = [json.loads(line) | {"model": hostile, "level": hostile} for line in lines().splitlines()]
    (pool / "h.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    odd = os.fsdecode(b"a\xffb\x01")
    options = ("--name", odd + hostile, "--currency", odd, "--no-groups")
    done = installed("report", "h.jsonl", "-o", "out", *QUICK, *options)
    assert "\x1b" not in done.stdout
    body = json.loads((pool / "out" / "results.json").read_text("utf-8"))
    assert body["pool"].startswith("a\ufffdb\ufffd</script>")
    assert body["money"]["currency"] == "a\ufffdb\ufffd"
    assert body["model"] == hostile
    assert "<img" not in (pool / "out" / "report.html").read_text("utf-8")
    for figure in (pool / "out" / "figures").iterdir():
        ElementTree.fromstring(figure.read_bytes())


def test_a_folder_where_a_file_is_in_the_way_is_refused_before_any_work(adacompute, pool):
    (pool / "inner" / "results.json").write_text("mine")
    done = adacompute("report", "nowhere.jsonl", "-o", "inner", *QUICK, code=1)
    assert done.stderr.count("\n") == 1
    assert "inner: there is 'results.json' in it, which is not part of a report; name another" in done.stderr
    assert (pool / "inner" / "results.json").read_text() == "mine"


@pytest.mark.parametrize(
    ("few", "words"), [({"problems": 1}, "can't be evaluated"), ({"samples": 3}, "needs 4 samples")]
)
def test_a_pool_that_cannot_be_evaluated_is_refused_in_one_line_and_nothing_is_left(
    adacompute, pool, few: dict[str, int], words: str
):
    (pool / "few.jsonl").write_text(lines(**few))
    done = adacompute("report", "few.jsonl", "-o", "out", *QUICK, code=1)
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
    assert not (pool / "out").exists()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--input-price", "-1"), "--input-price"),
        (("--output-price", "inf", "--input-price", "1"), "--output-price"),
        (("--output-price", "nan", "--input-price", "1"), "--output-price"),
        (("--prompt-tokens", "inf"), "--prompt-tokens"),
        (("--input-price", "1"), "--output-price"),
        (("--output-price", "1"), "--input-price"),
        (("--seed", str(2**32)), "--seed"),
    ],
)
def test_amounts_that_cannot_be_are_bad_usage(adacompute, pool, words: tuple[str, ...], named: str):
    done = adacompute("report", "inner/a.jsonl", "-o", "out", *words, code=2)
    assert named in done.stderr
    assert not (pool / "out").exists()


def test_nothing_is_said_of_more_samples_where_each_problem_has_one(adacompute, tmp_path):
    made = [json.loads(line) | {"gold": "4"} for line in lines(problems=40, samples=1).splitlines()]
    (tmp_path / "one.jsonl").write_text("".join(json.dumps(line) + "\n" for line in made))
    adacompute("report", "one.jsonl", "-o", "out", *QUICK)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "40 problems, 1 sample of each" in page
    assert "no vote of these" not in page
