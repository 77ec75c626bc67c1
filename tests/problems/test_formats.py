"""The same problems are read whatever holds them: files of every kind, packed or not, pipes, folders."""

import csv
import gzip
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adacompute.pool import open_pool
from adacompute.problems import read_problems
from adacompute.records import Problem

Write = Callable[..., Path]  # the fixture jsonl

ROWS: list[dict[str, Any]] = [
    {"id": "a", "question": "What is 6 · 7?", "gold": "42", "subject": "sums", "level": 3, "note": "é, “x”"},
    {
        "id": "b",
        "question": 'Say "ja",\nthen\tstop; 3, 4',
        "gold": None,
        "subject": None,
        "level": 2,
        "note": "n",
    },
    {
        "id": "c",
        "question": "{gold} \\boxed{} 日本",
        "gold": "7",
        "subject": "signs",
        "level": None,
        "note": None,
    },
]
WANT = (
    Problem(id="a", question="What is 6 · 7?", gold="42", subject="sums", level=3, extra={"note": "é, “x”"}),
    Problem(id="b", question='Say "ja",\nthen\tstop; 3, 4', level=2, extra={"note": "n"}),
    Problem(id="c", question="{gold} \\boxed{} 日本", gold="7", subject="signs"),
)


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def as_jsonl(folder: Path, rows: list[dict[str, Any]]) -> str:
    (folder / "p.jsonl").write_text(lines(rows), "utf-8")
    return str(folder / "p.jsonl")


def as_jsonl_gz(folder: Path, rows: list[dict[str, Any]]) -> str:
    (folder / "p.jsonl.gz").write_bytes(gzip.compress(lines(rows).encode()))
    return str(folder / "p.jsonl.gz")


def as_bom_and_blank_lines(folder: Path, rows: list[dict[str, Any]]) -> str:
    text = "\ufeff\n" + lines(rows).replace("\n", "\r\n\r\n")
    (folder / "p.ndjson").write_bytes(text.encode())
    return str(folder / "p.ndjson")


def as_json(folder: Path, rows: list[dict[str, Any]]) -> str:
    (folder / "p.json").write_text("\n" + json.dumps(rows, indent=2), "utf-8")
    return str(folder / "p.json")


def as_lines_in_json(folder: Path, rows: list[dict[str, Any]]) -> str:
    (folder / "p.json").write_text(lines(rows), "utf-8")  # what Dataset.to_json("p.json") writes
    return str(folder / "p.json")


def as_csv(folder: Path, rows: list[dict[str, Any]], *, dialect: str = "excel", name: str = "p.csv") -> str:
    with (folder / name).open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, list(rows[0]), dialect=dialect)
        writer.writeheader()
        writer.writerows(rows)
    return str(folder / name)


def as_tsv(folder: Path, rows: list[dict[str, Any]]) -> str:
    return as_csv(folder, rows, dialect="excel-tab", name="p.tsv")


def as_csv_gz(folder: Path, rows: list[dict[str, Any]]) -> str:
    path = Path(as_csv(folder, rows))
    path.with_suffix(".csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    return str(path.with_suffix(".csv.gz"))


def as_parquet(folder: Path, rows: list[dict[str, Any]]) -> str:
    pq.write_table(pa.Table.from_pylist(rows), folder / "p.parquet")
    return str(folder / "p.parquet")


def as_parquet_folder(folder: Path, rows: list[dict[str, Any]]) -> str:
    (folder / "parts" / "more").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows[:1]), folder / "parts" / "a.parquet")
    pq.write_table(pa.Table.from_pylist(rows[1:]), folder / "parts" / "more" / "b.parquet")
    return str(folder / "parts")


FORMATS = [
    as_jsonl,
    as_jsonl_gz,
    as_bom_and_blank_lines,
    as_json,
    as_lines_in_json,
    as_csv,
    as_tsv,
    as_csv_gz,
    as_parquet,
    as_parquet_folder,
]


@pytest.mark.parametrize("written", FORMATS, ids=lambda way: way.__name__)
def test_every_format_gives_the_same_problems(tmp_path: Path, written: Callable[..., str]):
    found = read_problems(written(tmp_path, ROWS))
    assert found.problems == WANT
    assert found.template is None
    assert found.extract is None


@pytest.mark.parametrize("written", [as_jsonl, as_csv, as_parquet], ids=lambda way: way.__name__)
def test_a_limit_takes_the_first(tmp_path: Path, written: Callable[..., str]):
    source = written(tmp_path, ROWS)
    assert read_problems(source, limit=2).problems == WANT[:2]
    assert read_problems(source, limit=9).problems == WANT


@given(
    st.lists(
        st.fixed_dictionaries(
            {"question": st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)},
            optional={"gold": st.text(st.characters(exclude_categories=["Cs"]), min_size=1)},
        ),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_comes_out_of_json_csv_and_parquet_as_it_went_in(tmp_path: Path, rows: list[dict[str, str]]):
    full = [{"question": row["question"], "gold": row.get("gold")} for row in rows]
    want = [(row["question"], row["gold"]) for row in full]
    for written in (as_jsonl, as_csv, as_parquet):
        found = read_problems(written(tmp_path, full))
        assert [(problem.question, problem.gold) for problem in found] == want


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Callable[[bytes], Path]]:
    """A named pipe that some bytes are written into, once."""
    threads = []

    def made(data: bytes) -> Path:
        path = tmp_path / "pipe"
        os.mkfifo(path)
        threads.append(threading.Thread(target=path.write_bytes, args=(data,)))
        threads[-1].start()
        return path

    yield made
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("packed", [False, True])
def test_a_pipe_is_read_once(pipe: Callable[[bytes], Path], packed: bool):
    data = lines(ROWS).encode()
    assert read_problems(pipe(gzip.compress(data) if packed else data)).problems == WANT


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_standard_input_is_json_lines(name: str):
    script = f"from adacompute.problems import read_problems; print(read_problems({name!r}).problems)"
    done = subprocess.run([sys.executable, "-c", script], input=lines(ROWS).encode(), capture_output=True)
    assert (done.stdout.decode().strip(), done.stderr) == (repr(WANT), b"")


def test_standard_input_may_be_a_plain_file(tmp_path: Path):
    (tmp_path / "rows").write_text(lines(ROWS), "utf-8")
    script = "from adacompute.problems import read_problems; print(read_problems('/dev/stdin').problems)"
    with (tmp_path / "rows").open("rb") as rows:
        done = subprocess.run([sys.executable, "-c", script], stdin=rows, capture_output=True)
    assert (done.stdout.decode().strip(), done.stderr) == (repr(WANT), b"")


@pytest.mark.parametrize("written", [as_jsonl, as_csv, as_parquet], ids=lambda way: way.__name__)
def test_what_is_read_can_be_stored_and_is_known_when_read_again(tmp_path: Path, written: Callable[..., str]):
    source = written(tmp_path, ROWS)
    with open_pool(tmp_path / "p.sqlite", create=True) as pool:
        assert pool.add_problems(read_problems(source)) == 3
        assert pool.add_problems(read_problems(source)) == 0
        assert tuple(pool.problems()) == WANT


def test_ids_that_are_missing_are_made_of_the_question_and_stay_when_rows_move(jsonl: Write):
    rows = [{"question": f"What is {i} + 1?"} for i in range(5)]
    ids = {problem.question: problem.id for problem in read_problems(jsonl(rows))}
    moved = {problem.question: problem.id for problem in read_problems(jsonl(rows[::-1]))}
    assert moved == ids
    assert len(set(ids.values())) == 5


def test_a_question_asked_again_gets_an_id_of_its_own(jsonl: Write):
    first, second, third = read_problems(jsonl([{"question": "Why?", "gold": gold} for gold in "abc"]))
    assert (second.id, third.id) == (f"{first.id}-2", f"{first.id}-3")


@pytest.mark.parametrize(
    ("given", "want"), [(7, "7"), (7.0, "7"), (0.5, "0.5"), ("x y", "x y"), (2**70, str(2**70))]
)
def test_numbers_as_ids_become_text(jsonl: Write, given: object, want: str):
    (problem,) = read_problems(jsonl([{"id": given, "question": "Why?"}]))
    assert problem.id == want


@pytest.mark.parametrize(
    ("row", "field", "want"),
    [
        ({"prompt": "Why?"}, "question", "Why?"),
        ({"problem": "Why?"}, "question", "Why?"),
        ({"input": "Why?"}, "question", "Why?"),
        ({"question": "Why?", "answer": 42}, "gold", "42"),
        ({"question": "Why?", "target": 0.5}, "gold", "0.5"),
        ({"question": "Why?", "answer": 10**30}, "gold", "1" + "0" * 30),
        ({"question": "Why?", "gold": "a", "answer": "b"}, "extra", {"answer": "b"}),
        ({"question": "Why?", "solution": "So 42."}, "gold", None),  # by preset alone: it holds more
        ({"question": "Why?", "category": "x"}, "subject", "x"),
        ({"question": "Why?", "type": "x"}, "subject", "x"),
        ({"question": "Why?", "type": ["x"]}, "extra", {"type": ["x"]}),
        ({"question": "Why?", "difficulty": "hard"}, "level", "hard"),
        ({"question": "Why?", "difficulty": {"a": 1}}, "extra", {"difficulty": {"a": 1}}),
        ({"question": "Why?", "level": "Level 4"}, "level", 4),
        ({"question": "Why?", "level": "Level ?"}, "level", "Level ?"),
        ({"question": "Why?", "level": "4"}, "level", "4"),
        ({"question": "Why?", "answer": ""}, "gold", None),  # as an empty cell of CSV
        ({"question": "Why?", "subject": ""}, "subject", None),
        ({"question": "Why?", "x": None, "y": {"z": None}}, "extra", {"y": {"z": None}}),
        ({"question": "Why?", "model": "m", "samples": [], "parameters": {}}, "extra", {}),
    ],
)
def test_columns_are_known_by_their_usual_names(jsonl: Write, row: dict[str, Any], field: str, want: object):
    (problem,) = read_problems(jsonl([row]))
    assert getattr(problem, field) == want


def test_columns_can_be_named(jsonl: Write):
    row = {"text": "Why?", "reply": 4, "question": "no", "topic": "t", "hard": 2, "key": 9}
    columns = {"question": "text", "gold": "reply", "subject": "topic", "level": "hard", "id": "key"}
    (problem,) = read_problems(jsonl([row]), columns=columns)
    assert problem == Problem(id="9", question="Why?", gold="4", subject="t", level=2)


def test_a_level_of_csv_is_a_number_where_it_looks_like_one(tmp_path: Path):
    (tmp_path / "p.csv").write_text("question,level\na?,3\nb?,2.5\nc?,hard\nd?,\n")
    assert [problem.level for problem in read_problems(tmp_path / "p.csv")] == [3, 2.5, "hard", None]


def test_dates_decimals_and_missing_numbers_of_parquet_become_plain_data(tmp_path: Path):
    table = pa.table(
        {
            "question": ["Why?"],
            "day": [date(2026, 1, 2)],
            "at": [datetime(2026, 1, 2, 3, 4)],  # noqa: DTZ001 - as files have it
            "list": [[1, None]],
            "nan": [float("nan")],
            "nested": [{"a": [1.5]}],
        }
    )
    pq.write_table(table, tmp_path / "p.parquet")
    (problem,) = read_problems(tmp_path / "p.parquet")
    assert problem.extra == {
        "day": "2026-01-02",
        "at": "2026-01-02T03:04:00",
        "list": [1, None],
        "nested": {"a": [1.5]},
    }


def test_the_libraries_of_other_sources_are_not_loaded_for_a_file(jsonl: Write):
    path = jsonl(ROWS)
    script = (
        "import sys; from adacompute.problems import read_problems, Template\n"
        f"read_problems({str(path)!r}); Template.named('boxed')\n"
        "heavy = {'datasets', 'huggingface_hub', 'reasoning_gym', 'pyarrow', 'pandas'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
