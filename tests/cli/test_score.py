"""`adacompute score`, run as a user would: its numbers, its files, its engines, what it refuses."""

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import adacompute as ac


@pytest.mark.slow
def test_score_tells_the_mean_of_the_table_and_writes_all_of_it(adacompute, tmp_path: Path):
    words = ("score", "facts", "--budgets", "1,4", "--cost", "tokens", "--json", "-o")
    body = json.loads(adacompute(*words, "a.csv").stdout)
    adacompute(*words, "a.parquet")
    with ac.bundled("facts") as pool:
        table = ac.score(pool, (1, 4), cost="tokens")
    assert [row["accuracy"] for row in body["rows"]] == table.accuracy.mean(axis=0).tolist()
    assert [row["cost"] for row in body["rows"]] == table.cost_matrix.mean(axis=0).tolist()
    assert all(row["low"] < row["accuracy"] < row["high"] for row in body["rows"])
    assert (body["problems"], body["unit"], body["file"]) == (len(table), "tokens", "a.csv")
    with (tmp_path / "a.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    stored = pq.read_table(tmp_path / "a.parquet").to_pylist()
    assert [row["problem"] for row in read[::2]] == list(table.ids or ())
    for name, values in (
        ("accuracy", table.accuracy),
        ("cost", table.cost_matrix),
        ("standard_error", table.standard_error),
    ):
        assert values is not None
        assert [float(row[name]) for row in read] == values.ravel().tolist()
        assert [row[name] for row in stored] == values.ravel().tolist()


@pytest.mark.slow
def test_score_shows_a_line_for_each_budget(adacompute):
    said = adacompute("score", "words", "--budgets", "1,16").stdout
    assert "words: 441 problems" in said
    assert "85.4%" in said
    assert "16 samples" in said


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("score", "words", "-o", "a.txt"), 2, "give .csv or .parquet"),
        (("score", "words", "--workers", "2"), 2, "only --engine ray has workers"),
        (("score", "words", "--engine", "ray"), 1, "adacompute export words FOLDER --shards 8"),
        (("solve", "a.jsonl", "--budget", "2", "--engine", "ray"), 1, "export a.jsonl FOLDER --shards 8"),
        (("score", "nothing", "--engine", "ray"), 1, "no such folder"),
        (("export", "words", "full", "--shards", "2"), 1, "already exists"),
        (("export", "words", "new", "--shards", "2", "--overwrite"), 2, "never replaced"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_remedy(adacompute, tmp_path: Path, words, code, said):
    (tmp_path / "a.jsonl").write_text("{}\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    done = adacompute(*words, code=code)
    assert said in " ".join(done.stderr.split())
