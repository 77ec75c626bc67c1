"""Samples in tables of anybody's columns: one row a sample or lists of them, in every kind of file."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import adacompute as ac
from adacompute.errors import AdacomputeError, RecordInvalid

COLUMNS = {"question": "prompt", "text": "output", "gold": "label", "tokens": "length", "correct": "right"}
ROWS = [
    {"prompt": "2 + 2?", "output": "It is 4.", "label": "4", "length": 5, "right": True, "id": 1},
    {"prompt": "3 + 3?", "output": "It is 6.", "label": "6", "length": 6, "right": True, "id": 2},
    {"prompt": "2 + 2?", "output": "It is 5.", "label": "4", "length": 7, "right": False, "id": 3},
]
LISTS = [
    {"prompt": "2 + 2?", "output": ["It is 4.", "It is 5."], "label": "4", "length": [5, 7], "right": [1, 0]},
    {"prompt": "3 + 3?", "output": ["It is 6."], "label": "6", "length": [6], "right": [True]},
]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            table = csv.DictWriter(file, rows[0])
            table.writeheader()
            table.writerows(
                {name: json.dumps(cell) if isinstance(cell, list) else cell for name, cell in row.items()}
                for row in rows
            )
    else:
        lines = "\n".join(map(json.dumps, rows))
        path.write_text(json.dumps(rows) if path.suffix == ".json" else lines)
    return path


@pytest.mark.parametrize("rows", [ROWS, LISTS], ids=["rows", "lists"])
@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv", "parquet"])
def test_rows_with_one_sample_and_rows_with_lists_become_the_same_pool(
    tmp_path: Path, suffix: str, rows: list[dict[str, Any]]
):
    if rows is LISTS and suffix == "parquet":  # its columns have one type
        rows = [{**row, "right": [bool(right) for right in row["right"]]} for row in rows]
    file = write(tmp_path / f"mine.{suffix}", rows)
    done = ac.import_file(ac.read_samples(file, columns=COLUMNS), tmp_path / "mine.sqlite")
    assert (done.problems, done.samples) == (2, 3)
    with ac.open_pool(tmp_path / "mine.sqlite") as pool:
        first, second = list(pool)
    assert (first.problem.question, first.problem.gold) == ("2 + 2?", "4")
    assert [(each.text, each.answer, each.correct, each.tokens) for each in first.samples] == [
        ("It is 4.", "4", 1.0, 5),
        ("It is 5.", "5", 0.0, 7),
    ]
    assert [each.answer for each in second.samples] == ["6"]


@pytest.mark.parametrize(
    ("columns", "rows", "want"),
    [
        ({"answer": "a"}, [{"question": "Why?", "a": 42}, {"question": "Why?", "a": None}], ["42", None]),
        ({"text": "t"}, [{"question": "Why?", "t": "It is 4.", "answer": "5"}], ["4"]),  # 5 is the gold
        ({"answer": "answer"}, [{"question": "Why?", "answer": "5", "target": "6"}], ["5"]),
        # a response in the column of answers is read as one
        (
            {"answer": "a"},
            [{"question": "What is 2 + 2?", "a": ["It is 4.", "So\n#### 4", "4"]}],
            ["4", "4", "4"],
        ),
        (
            {"id": "key"},
            [{"key": 7, "question": "2?", "text": "4"}, {"key": 7, "question": "2?", "text": "5"}],
            ["4", "5"],
        ),
    ],
)
def test_fields_without_a_column_are_found_by_their_usual_names(
    tmp_path: Path, columns: dict[str, str], rows: list[dict[str, Any]], want: list[str | None]
):
    file = write(tmp_path / "mine.jsonl", rows)
    ac.import_file(ac.read_samples(file, columns=columns), tmp_path / "mine.sqlite")
    with ac.open_pool(tmp_path / "mine.sqlite") as pool:
        (recorded,) = pool
    assert [sample.answer for sample in recorded.samples] == want


@pytest.mark.parametrize(
    ("columns", "row", "words"),
    [
        (
            {"text": "out"},
            {"question": "Why?", "output": "4"},
            "line 1: has no response; give e.g. --columns",
        ),
        ({"txet": "output"}, {"question": "Why?", "output": "4"}, "did you mean text?"),
        (
            {"tokens": "n"},
            {"question": "Why?", "text": "4", "n": "many"},
            "line 1: 'samples[0].tokens' is 'many'",
        ),
        ({"text": "o"}, {"question": "Why?", "o": ["4", "5"], "tokens": [1]}, "lists of different lengths"),
        ({"text": "o", "model": "m"}, {"question": "Why?", "o": "4"}, "has no column 'm' for model"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_with_the_place_and_the_remedy(
    tmp_path: Path, columns: dict[str, str], row: dict[str, Any], words: str
):
    file = write(tmp_path / "mine.jsonl", [row])
    with pytest.raises(AdacomputeError) as refused:
        ac.import_file(ac.read_samples(file, columns=columns), tmp_path / "mine.sqlite")
    assert words in str(refused.value)
    assert not (tmp_path / "mine.sqlite").exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"question": "2?", "response": "4"}, "--columns question=question,text=response"),
        ({"question": "2?", "texxt": "4"}, "--columns question=question,text=texxt"),
        ({"q": "2?", "r": "4"}, '"samples": [{"text": "It is 4."}]'),
        ({"id": "a", "question": "2?", "samples": [{"txt": "4"}]}, "samples[0] has 'txt', but no text"),
        ({"id": "a", "question": "2?", "samples": [{"reponse": "4"}]}, "name it 'text'"),
        ({"id": "a", "question": "2?", "samples": [{"answr": "4"}]}, "name it 'answer'"),
    ],
)
def test_another_shape_than_a_pool_files_is_told_what_is_expected(
    tmp_path: Path, line: dict[str, Any], words: str
):
    with pytest.raises(RecordInvalid) as refused:
        ac.import_file(write(tmp_path / "mine.jsonl", [line]), tmp_path / "mine.sqlite")
    assert words in str(refused.value)


def test_gold_answers_are_read_as_replies_are(tmp_path: Path):
    rows = [
        {"question": "Liegt Paris in Deutschland?", "text": ["Nein", "Ja, das stimmt."], "gold": "Nein"},
        {
            "question": "Wie viele Beine hat eine Spinne?",
            "text": ["Acht.", "Sie hat 6 Beine."],
            "gold": "acht",
        },
        {"question": "What is 2 + 2?", "text": ['The answer is "4."', "The answer is 5."], "gold": "4"},
    ]
    table = ac.read_samples(write(tmp_path / "mine.jsonl", rows), columns={"text": "text"})
    ac.import_file(table, tmp_path / "mine.sqlite")
    pool = ac.open_pool(tmp_path / "mine.sqlite")
    assert [[sample.correct for sample in recorded.samples] for recorded in pool] == [[1.0, 0.0]] * 3


def test_the_command_imports_a_table(adacompute: Callable[..., Any], tmp_path: Path):
    write(tmp_path / "mine.csv", ROWS)
    words = ("import", "mine.csv", "--pool", "mine.sqlite")
    assert "--columns question=prompt,text=output" in adacompute(*words, code=1).stderr
    named = ("--columns", "question=prompt,text=output,gold=label")
    assert "added 2 problems and 3 samples" in adacompute(*words, *named).stdout
