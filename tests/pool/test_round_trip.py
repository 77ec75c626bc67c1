"""What goes in comes out, in every format and by every way."""

import gzip
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from pool_lines import line, pools, write

from adacompute.answers import Task
from adacompute.errors import DuplicateRecord, NotAPool, RecordInvalid
from adacompute.pool import export_file, import_file, open_pool

FORMATS = (".jsonl", ".jsonl.gz", ".parquet")


def read(path: Path) -> tuple[list[dict[str, Any]], str]:
    with open_pool(path) as pool:
        assert pool.verify().ok
        return list(pool.lines()), pool.digest()


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(rows=pools)
def test_any_pool_survives_every_format_and_sqlite(tmp_path_factory: pytest.TempPathFactory, rows):
    folder = tmp_path_factory.mktemp("trip")
    source = write(folder / "source.jsonl", rows)
    lines, digest = read(source)
    assert lines == rows
    import_file(source, folder / "pool.sqlite")
    assert read(folder / "pool.sqlite") == (rows, digest)
    before = folder / "pool.sqlite"
    for suffix in FORMATS:  # each made from the one before: every direction in a row
        with open_pool(before) as pool:
            export_file(pool, folder / f"out{suffix}")
        before = folder / f"out{suffix}"
        assert read(before) == (rows, digest)
    import_file(before, folder / "again.sqlite")
    assert read(folder / "again.sqlite") == (rows, digest)


@pytest.mark.parametrize("suffix", FORMATS)
def test_equal_pools_give_equal_bytes(tmp_path: Path, suffix: str):
    source = write(tmp_path / "a.jsonl", [line("p1"), line("p2", model=None, level=2)])
    files = []
    for name in ("one", "two"):
        with open_pool(source) as pool:
            export_file(pool, tmp_path / f"{name}{suffix}")
        files.append((tmp_path / f"{name}{suffix}").read_bytes())
    assert files[0] == files[1]


def test_floats_come_back_to_the_last_bit(tmp_path: Path):
    values = [0.1, 1 / 3, 5e-324, 1.7976931348623157e308, -2.220446049250313e-16]
    rows = [
        line("p", ())
        | {"samples": [{"answer": None, "correct": 0, "logprob": v, "entropy": v} for v in values]}
    ]
    source = write(tmp_path / "a.jsonl", rows)
    for suffix in FORMATS:
        with open_pool(source) as pool:
            export_file(pool, tmp_path / f"o{suffix}")
        with open_pool(tmp_path / f"o{suffix}") as pool:
            assert [s.logprob for s in next(iter(pool)).samples] == values


def test_whole_numbers_of_any_size_are_kept_as_written(tmp_path: Path):
    big = 12345678901234567890123
    rows = [line("p", (), gold=str(big), note=big, samples=[{"answer": str(big), "correct": 1, "seed": big}])]
    source = write(tmp_path / "a.jsonl", [json.dumps(rows[0] | {"gold": big}).encode()])
    lines, _ = read(source)
    assert lines == rows


def test_lines_of_several_models_and_gaps_in_the_index_are_kept(tmp_path: Path):
    rows = [
        line("p1", model="a"),
        line("p1", model="a", parameters={"temperature": 0.5}),
        line(
            "p1",
            model="b",
            samples=[{"answer": "4", "correct": 1}, {"index": 7, "answer": None, "correct": 0}],
        ),
        line("p2", model="a"),
        {"id": "p3", "question": "alone", "samples": []},
    ]
    source = write(tmp_path / "a.jsonl", rows)
    lines, digest = read(source)
    assert lines == rows
    for suffix in FORMATS:
        with open_pool(source) as pool:
            export_file(pool, tmp_path / f"o{suffix}")
            assert len(pool) == 3
            assert len(pool.models) == 3
        assert read(tmp_path / f"o{suffix}") == (rows, digest)


def test_the_digest_doesnt_depend_on_the_order_of_lines(tmp_path: Path):
    rows = [line(f"p{i}", model=m) for i in range(5) for m in ("a", "b")]
    digests = {
        read(write(tmp_path / f"{i}.jsonl", order))[1]
        for i, order in enumerate([rows, rows[::-1], rows[3:] + rows[:3]])
    }
    assert len(digests) == 1
    assert read(write(tmp_path / "x.jsonl", [*rows[:-1], line("p4", ("4",), model="b")]))[1] not in digests


def test_the_digest_depends_on_failures_and_not_on_their_order(tmp_path: Path):
    found = [
        {"index": i, "kind": kind, "attempt": 1} for i, kind in ((3, "timeout"), (3, "refused"), (4, "x"))
    ]
    cases = {
        "all": found,
        "turned": found[::-1],
        "fewer": found[:2],
        "none": [],
        "other": [*found[:2], found[0]],
    }
    digests = {
        name: read(write(tmp_path / "a.jsonl", [line(failures=failures)]))[1]
        for name, failures in cases.items()
    }
    assert digests.pop("turned") == digests["all"]
    assert len(set(digests.values())) == 4


def test_gzip_says_nothing_of_when_and_where(tmp_path: Path):
    with open_pool(write(tmp_path / "a.jsonl", [line()])) as pool:
        export_file(pool, tmp_path / "o.jsonl.gz")
    assert (tmp_path / "o.jsonl.gz").read_bytes()[:8] == b"\x1f\x8b\x08\0\0\0\0\0"  # no name, no time


@pytest.mark.parametrize(("limit", "value"), [("_GROUP_SAMPLES", 6), ("_GROUP_BYTES", 30)])
def test_parquet_is_cut_into_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
):
    monkeypatch.setattr(f"adacompute.pool.formats.{limit}", value)
    source = write(tmp_path / "a.jsonl", [line(f"p{i}") for i in range(5)])
    with open_pool(source) as pool:
        export_file(pool, tmp_path / "o.parquet")
    assert pq.ParquetFile(tmp_path / "o.parquet").num_row_groups == 3
    assert read(tmp_path / "o.parquet") == read(source)


def test_answers_are_extracted_and_graded_where_absent_and_then_written_out(tmp_path: Path):
    rows = [
        {
            "id": "p",
            "question": "2 + 2?",
            "gold": 4,
            "samples": [
                {"text": "so \\boxed{4}"},
                {"text": "\\boxed{5}"},
                {"text": "", "answer": None},
                {"answer": 4.0},
            ],
        }
    ]
    source = write(tmp_path / "a.jsonl", rows)
    with open_pool(source, task=Task("boxed")) as pool:
        export_file(pool, tmp_path / "b.jsonl")
        recorded = next(iter(pool))
    assert recorded.problem.gold == "4"
    assert [s.answer for s in recorded.samples] == ["4", "5", None, "4.0"]
    assert [s.correct for s in recorded.samples] == [1.0, 0.0, 0.0, 1.0]
    assert recorded.classes == (0, 1, -1, 0)
    written = json.loads((tmp_path / "b.jsonl").read_text())
    assert written["samples"][0] == {"text": "so \\boxed{4}", "answer": "4", "correct": 1}


def test_an_explicit_null_is_not_graded_and_a_null_answer_not_extracted(tmp_path: Path):
    rows = [
        line("p", ())
        | {
            "samples": [
                {"text": "4", "answer": "4", "correct": None},
                {"text": "4", "answer": None, "correct": 0},
            ]
        }
    ]
    lines, _ = read(write(tmp_path / "a.jsonl", rows))
    assert lines == rows


def test_bom_crlf_and_blank_lines_are_accepted(tmp_path: Path):
    body = "\r\n".join(["", json.dumps(line("p1")), "   ", json.dumps(line("p2")), ""]).encode()
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + body)
    assert [row["id"] for row in read(tmp_path / "a.jsonl")[0]] == ["p1", "p2"]


def test_a_folder_of_parquet_is_one_pool(tmp_path: Path):
    for i in range(3):
        with open_pool(write(tmp_path / f"{i}.jsonl", [line(f"p{i}")])) as pool:
            (tmp_path / "folder").mkdir(exist_ok=True)
            export_file(pool, tmp_path / "folder" / f"part-{i}.parquet")
    lines, _ = read(tmp_path / "folder")
    assert [row["id"] for row in lines] == ["p0", "p1", "p2"]
    with open_pool(write(tmp_path / "x.jsonl", [line("p1")])) as pool:
        export_file(pool, tmp_path / "folder" / "part-9.parquet")
    with pytest.raises(
        DuplicateRecord, match=r"part-9\.parquet row 1: id 'p1' is already in part-1\.parquet row 1"
    ):
        open_pool(tmp_path / "folder")


def test_parquet_of_another_writer_is_read(tmp_path: Path):
    rows = [
        {
            "id": "p1",
            "question": "?",
            "gold": "4",
            "source": {"page": 3},
            "samples": [
                {"answer": "4", "tokens": 3, "rank": 1},
                {"answer": None, "tokens": None, "rank": None},
            ],
        },
        {"id": "p2", "question": "?", "gold": None, "source": None, "samples": []},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    lines, _ = read(tmp_path / "a.parquet")
    assert lines == [
        {
            "id": "p1",
            "question": "?",
            "gold": "4",
            "source": {"page": 3},
            "samples": [
                {"answer": "4", "correct": 1, "tokens": 3, "rank": 1},
                {"answer": None, "correct": 0},
            ],
        },
        {"id": "p2", "question": "?", "samples": []},
    ]


def test_export_leaves_a_file_alone_unless_told(tmp_path: Path):
    source = write(tmp_path / "a.jsonl", [line()])
    (tmp_path / "out.jsonl").write_text("precious")
    with open_pool(source) as pool:
        with pytest.raises(DuplicateRecord, match="overwrite=True"):
            export_file(pool, tmp_path / "out.jsonl")
        assert (tmp_path / "out.jsonl").read_text() == "precious"
        export_file(pool, tmp_path / "out.jsonl", overwrite=True)
        with pytest.raises(NotAPool, match="unknown suffix"):
            export_file(pool, tmp_path / "out.csv")
    assert read(tmp_path / "out.jsonl") == read(source)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.jsonl", "out.jsonl"]


def test_an_empty_pool_has_nothing_to_export(tmp_path: Path):
    with (
        open_pool(tmp_path / "p.sqlite", create=True) as pool,
        pytest.raises(RecordInvalid, match="no problem"),
    ):
        export_file(pool, tmp_path / "out.jsonl")


def test_opening_a_file_leaves_no_trace_even_when_killed(tmp_path: Path):
    source = write(tmp_path / "a.jsonl.gz", [line(f"p{i}") for i in range(50)])
    assert gzip.decompress(source.read_bytes())
    script = (
        "import os, sys; from adacompute.pool import open_pool; "
        "p = open_pool(sys.argv[1]); len(p); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(source)], env=os.environ | {"TMPDIR": str(tmp_path)}, check=False
    )
    assert done.returncode == -9
    assert [p.name for p in tmp_path.iterdir()] == ["a.jsonl.gz"]


@pytest.mark.parametrize("compress", [False, True])
def test_a_pipe_is_read_like_a_file(tmp_path: Path, compress: bool):
    whole = write(tmp_path / "a.jsonl", [line()]).read_bytes()
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    sender = threading.Thread(target=pipe.write_bytes, args=(gzip.compress(whole) if compress else whole,))
    sender.start()
    assert import_file(pipe, tmp_path / "p.sqlite").problems == 1
    sender.join(10)
