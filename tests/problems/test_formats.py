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

from adacompute.errors import ProblemsInvalid
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
            optional={
                "gold": st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
            },
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


@pytest.mark.parametrize(
    "text",
    [
        "Question;Answer;Note\na, b?;1;x\nc?;2;\n",
        "Question\tAnswer\tNote\na, b?\t1\tx\nc?\t2\t\n",
        'sep=;\n"Question";"Answer";"Note"\na, b?;1;x\nc?;2;\n',
        ',Question,Answer,Note\n0,"a, b?",1,x\n1,c?,2,\n2,,,\n',  # as pandas writes its index
        '\nQuestion,Answer,Note\n\n"a, b?",1,x\n,,\n , ,\nc?,2,\n,,,,,\n',  # as spreadsheets leave them
    ],
)
def test_csv_is_read_as_spreadsheets_and_pandas_write_it(tmp_path: Path, text: str):
    (tmp_path / "p.csv").write_text(text)
    found = [(p.question, p.gold, p.extra) for p in read_problems(tmp_path / "p.csv")]
    assert found == [("a, b?", "1", {"Note": "x"}), ("c?", "2", {})]


def test_tsv_may_have_commas_after_all(tmp_path: Path):
    (tmp_path / "p.tsv").write_text("question,answer\na?,1\n")
    assert [p.gold for p in read_problems(tmp_path / "p.tsv")] == ["1"]


def test_a_json_list_is_read_under_any_name_and_from_a_pipe(tmp_path: Path, pipe: Callable[[bytes], Path]):
    data = b"\n" * 100 + json.dumps(ROWS, indent=1).encode()
    (tmp_path / "p.jsonl").write_bytes(data)
    assert read_problems(tmp_path / "p.jsonl").problems == WANT
    assert read_problems(pipe(data.lstrip())).problems == WANT


def test_csv_in_a_pipe_is_told_what_a_pipe_is_read_as(pipe: Callable[[bytes], Path]):
    with pytest.raises(ProblemsInvalid, match=r"line 1 is not JSON.*pipe is read as JSON lines.*\.csv"):
        read_problems(pipe(b"question,answer\na?,1\n"))


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
