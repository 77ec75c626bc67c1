"""`adacompute answer` as a user meets it: what it writes, what it says, and what it refuses unpaid."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from batches import ASKING, Recording, facts, said

from adacompute.client import Endpoint
from adacompute.errors import CollectError
from adacompute.policies.baselines import FixedPolicy
from adacompute.pool import open_pool
from adacompute.records import Problem
from adacompute.sampling import RequestAnswer, SourcePlan, check_output, write_answers
from adacompute.sampling.answer_file import ANSWER_COLUMNS
from upstream import Upstream

COUNT = 24


@pytest.fixture(scope="module")
def recorded():
    return facts(COUNT)


@pytest.fixture
def questions(tmp_path: Path, recorded) -> str:
    rows = [{"id": one.problem.id, "question": one.problem.question, "gold": one.problem.gold, "page": 7}
            for one in recorded]  # fmt: skip
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "in.jsonl"


def test_it_writes_answers_and_says_what_they_took(adacompute: Callable, questions: str, recorded, tmp_path):
    with Upstream(Recording(recorded)) as up:
        words = ("answer", questions, "--endpoint", up.url, "--template", "plain", "--budget", "2")
        done = adacompute(*words, "-o", "out.jsonl", "--input-price", "1", "--output-price", "2")
        assert f"{COUNT} requests answered, 2.00 samples each on average, of a budget of 2" in done.stdout
        for part in (
            "stopping, the prior in the package, down to a price of",
            "agreement",
            "accuracy",
            "cost",
            "samples  requests",
        ):
            assert part in done.stdout
        assert up.count.requests == 2 * COUNT
        again = adacompute(*words, "-o", "out.jsonl", code=1)
        assert "is there already; name another file, or give --overwrite" in again.stderr
        told = json.loads(adacompute(*words, "-o", "out.jsonl", "--overwrite", "--json").stdout)
        assert (told["added"], told["samples"], told["average"]) == (0, 2 * COUNT, 2.0)
        assert (told["requests"], told["budget"], told["policy"]) == (COUNT, 2.0, "stopping")
        assert told["file"] == "out.jsonl"
        assert up.count.requests == 2 * COUNT, "what is stored is not bought again"
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == [one.problem.id for one in recorded]
    assert list(rows[0]) == ["id", "question", "gold", "page", *ANSWER_COLUMNS]
    for row, one in zip(rows, recorded, strict=True):
        assert sum(row["votes"].values()) <= row["samples"]
        assert row["answer"] is None or row["answer"] in row["votes"]
        assert row["response"] in [None, *map(said, one.samples[: row["samples"]])]
        assert (row["page"], row["error"]) == (7, None)
    assert told["accuracy"] == pytest.approx(
        sum(r["answer"] is not None and r["answer"] == r["gold"].lower() for r in rows) / COUNT, abs=0.1
    )
    with open_pool(tmp_path / "out.pool.sqlite") as pool:
        assert pool.counts().samples == 2 * COUNT


def test_a_stored_policy_a_dry_run_and_a_limit_of_money(
    adacompute: Callable, questions: str, recorded, tmp_path
):
    FixedPolicy(2).save(tmp_path / "policy")
    with Upstream(Recording(recorded)) as up:
        words = ("answer", questions, "--endpoint", up.url, "--template", "plain", "--policy", "policy")
        money = ("--input-price", "1000", "--output-price", "1000", "--max-tokens", "64", "--json")
        dry = json.loads(adacompute(*words, "-o", "out.csv", *money, "--dry-run").stdout)
        assert (dry["samples"], dry["calls_most"], up.count.requests) == (2 * COUNT, 2 * COUNT, 0)
        done = adacompute(*words, "-o", "out.csv", *money, "--max-cost", "1.0", code=1)
        told = json.loads(done.stdout)
        assert told["stopped"] == "max-cost"
        assert told["cost_at_most"] <= 1.0
        assert 0 < told["samples"] < 2 * COUNT
        assert "with a higher --max-cost and --overwrite" in done.stderr
        whole = adacompute(*words, "-o", "out.csv", *money, "--overwrite")
        assert json.loads(whole.stdout)["average"] == 2.0
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == COUNT
    assert all(json.loads(row["votes"]) for row in rows if row["answer"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--budget", "0.5"), "budget 0.5 can't be samples a request on average; give 1 or more"),
        (("--policy", "nowhere"), "nowhere"),
        (("-o", "out.txt"), "give .jsonl, .csv, .parquet"),
        (("-o", "gone/out.csv"), "its folder is not there"),
    ],
)
def test_what_cant_be_used_is_named_in_one_line_before_anything_is_sent(
    adacompute: Callable, questions: str, recorded, words, message
):
    with Upstream(Recording(recorded)) as up:
        given = ("-o", "out.jsonl") if "-o" not in words else ()
        done = adacompute("answer", questions, "--endpoint", up.url, *given, *words, code=1)
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert up.count.requests == 0


def test_every_format_holds_the_same_whatever_a_request_brings_along(tmp_path: Path, recorded):
    problems = [
        Problem(id="a", question='a "quoted",\nline', extra={"answer": "x", "n": 1, "deep": {"k": [1]}}),
        Problem(id="b", question="½ 🎲", gold="2", level=3, extra={"n": 2.5, "flag": True}),
    ]
    answers = [
        RequestAnswer(id="a", answer="1", votes={"1": 2, "2": 1}, agreement=2 / 3, samples=3, tokens=9),
        RequestAnswer(
            id="b", answer=None, votes={}, agreement=0.0, samples=0, tokens=None, error="timeout: late"
        ),
    ]
    plan = SourcePlan(endpoint=Endpoint(url="http://127.0.0.1:9/v1"), asking=ASKING)
    with open_pool(tmp_path / "p.sqlite", create=True) as pool:
        for suffix in (".jsonl", ".csv", ".parquet"):
            write_answers(tmp_path / f"out{suffix}", problems, answers, pool, plan)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
    assert lines[0]["input_answer"] == "x"
    assert lines[0]["answer"] == "1"
    assert lines[0]["deep"] == {"k": [1]}
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as file:
        cells = list(csv.DictReader(file))
    table = pq.read_table(tmp_path / "out.parquet").to_pylist()
    for row, cell, cast in zip(lines, cells, table, strict=True):
        assert list(row) == list(cell) == list(cast)
        assert row["question"] == cell["question"] == cast["question"]
        assert row["votes"] == json.loads(cell["votes"]) == json.loads(cast["votes"])
        assert row["samples"] == int(cell["samples"]) == cast["samples"]
        assert (row["tokens"] or "") == (int(cell["tokens"]) if cell["tokens"] else "")
        assert row["error"] == (cell["error"] or None) == cast["error"]
    check_output(tmp_path / "out.csv", overwrite=True)
    with pytest.raises(CollectError, match="there already"):
        check_output(tmp_path / "out.csv", overwrite=False)
