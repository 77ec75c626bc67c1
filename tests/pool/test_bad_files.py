"""Every bad file: one clear line that names the file, the place and the remedy, and a pool left as it was."""

import gzip
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pool_lines import line, write

from adacompute import errors
from adacompute.answers import Task
from adacompute.errors import (
    DuplicateRecord,
    NotAPool,
    PoolDamaged,
    PoolError,
    PoolNotFound,
    RecordInvalid,
    TaskError,
)
from adacompute.pool import import_file, open_pool
from adacompute.pool.formats import LINE_LIMIT

GOOD = json.dumps(line("good")).encode() + b"\n"


def sample(**fields: Any) -> dict[str, Any]:
    return line("bad", ()) | {"samples": [{"answer": "4", "correct": 1} | fields]}


def failure(**fields: Any) -> dict[str, Any]:
    return line("bad", (), failures=[{"index": 0, "kind": "timeout"} | fields])


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in line("bad").items() if key != name}


BAD_LINES = {  # the second line of a file whose first is good -> what the message says
    "no_json": (b'{"id": "x"\n', "is not JSON"),
    "a_list": (b"[1, 2]\n", "is a list"),
    "a_number": (b"7\n", "is a number"),
    "nan": (
        b'{"id":"b","question":"?","samples":[{"answer":"4","logprob":NaN}]}\n',
        "NaN is not a JSON number",
    ),
    "infinity": (b'{"id":"b","question":"?","samples":[{"answer":"4","logprob":-Infinity}]}\n', "-Infinity"),
    "huge": (b'{"id":"b","question":"?","samples":[{"answer":"4","logprob":1e999}]}\n', "finite number"),
    "huge_unknown": (b'{"id":"b","question":"?","x":1e999,"samples":[]}\n', "'x' can't be kept as JSON"),
    "deep": (
        b'{"id":"b","question":"?","x":' + b"[" * 200000 + b"]" * 200000 + b',"samples":[]}\n',
        "nested|is not JSON",
    ),
    "not_utf8": (b'{"id":"b\xff","question":"?","samples":[]}\n', "not UTF-8 at byte 9"),
    "utf16": (json.dumps(line("b")).encode("utf-16"), "not UTF-8"),
    "garbage": (bytes(range(256)), "is not JSON"),
    "no_id": (without("id"), "'id' is missing"),
    "no_question": (without("question"), "'question' is missing"),
    "no_samples": (without("samples"), "'samples' is missing"),
    "id_number": (line("b") | {"id": 7}, "'id' is 7; give a string"),
    "id_empty": (line("b") | {"id": ""}, "'id' is ''; give a string that is not empty"),
    "id_long": (line("b" * 100_001), "100001 characters"),
    "question_null": (line("b", question=None), "'question' is None"),
    "gold_list": (line("b", gold=["4"]), r"'gold' is \['4'\]; give a string or a finite number"),
    "gold_true": (line("b", gold=True), "'gold' is True"),
    "subject_number": (line("b", subject=5), "'subject' is 5; give a string"),
    "level_list": (line("b", level=[1]), "'level'"),
    "level_true": (line("b", level=True), "'level' is True"),
    "level_huge": (line("b", level=2**64), "64 bits|number"),
    "model_number": (line("b", model=3), "'model' is 3; give a string"),
    "parameters_list": (line("b", parameters=[1]), "'parameters' is .*; give an object"),
    "samples_object": (line("b", samples={}), "'samples' is {}; give a list"),
    "samples_null": (line("b", samples=None), "'samples' is None"),
    "sample_number": (line("b", samples=[4]), r"'samples\[0\]' is 4; give an object"),
    "text_number": (sample(text=4), r"'samples\[0\]\.text' is 4; give a string"),
    "answer_list": (sample(answer=["4"]), r"samples\[0\]\.answer"),
    "answer_true": (sample(answer=True), r"samples\[0\]\.answer' is True"),
    "correct_text": (sample(correct="yes"), r"samples\[0\]\.correct' is 'yes'; give true, false or a number"),
    "correct_high": (sample(correct=1.5), r"samples\[0\]\.correct' is 1.5"),
    "correct_low": (sample(correct=-1), r"samples\[0\]\.correct' is -1"),
    "tokens_negative": (sample(tokens=-3), r"samples\[0\]\.tokens' is -3; give a whole number of at least 0"),
    "tokens_fraction": (sample(tokens=1.5), r"samples\[0\]\.tokens' is 1.5"),
    "tokens_true": (sample(tokens=True), r"samples\[0\]\.tokens' is True"),
    "tokens_text": (sample(tokens="3"), r"samples\[0\]\.tokens' is '3'"),
    "tokens_huge": (sample(tokens=2**63), r"samples\[0\]\.tokens"),
    "logprob_text": (sample(logprob="-3"), r"samples\[0\]\.logprob' is '-3'; give a finite number"),
    "logprob_true": (sample(logprob=True), r"samples\[0\]\.logprob"),
    "logprob_huge": (sample(logprob=-(10**400)), r"samples\[0\]\.logprob"),
    "entropy_list": (sample(entropy=[]), r"samples\[0\]\.entropy"),
    "finished_text": (sample(finished="yes"), r"samples\[0\]\.finished' is 'yes'; give true or false"),
    "finished_two": (sample(finished=2), r"samples\[0\]\.finished"),
    "index_falls": (
        line("b", samples=[{"index": 3, "answer": "4"}, {"answer": "4"}]),
        r"samples\[1\]\.index is 1 after 3",
    ),
    "index_negative": (sample(index=-1), r"samples\[0\]\.index' is -1; give 0 to 2147483647"),
    "index_huge": (sample(index=10**18), r"samples\[0\]\.index' is 1000000000000000000; give 0 to"),
    "index_beyond_64_bits": (sample(index=2**70), r"samples\[0\]\.index"),
    "index_text": (sample(index="3"), r"samples\[0\]\.index' is '3'; give 0 to"),
    "index_true": (sample(index=True), r"samples\[0\]\.index' is True"),
    "index_fraction": (sample(index=0.5), r"samples\[0\]\.index' is 0\.5"),
    "failures_object": (line("b", failures={}), "'failures' is {}; give a list"),
    "failure_text": (line("b", failures=["timeout"]), r"failures\[0\]"),
    "failure_no_kind": (failure(kind=None), r"failures\[0\]\.kind"),
    "failure_index": (failure(index=-1), r"failures\[0\]\.index"),
    "failure_attempt": (failure(attempt="two"), r"failures\[0\]\.attempt"),
    "failure_unknown": (failure(why="?"), r"'failures\[0\].why' is '\?'; leave it out"),
    "surrogate": (b'{"id":"b","question":"half \\ud800","samples":[]}\n', r"surrogate pair \(U\+D800\)"),
    "surrogate_text": (b'{"id":"b","question":"?","samples":[{"text":"x\\udfff"}]}\n', r"U\+DFFF"),
    "surrogate_unknown": (b'{"id":"b","question":"?","x":"\\ud83d","samples":[]}\n', r"U\+D83D"),
    "surrogate_id": (b'{"id":"b\\ud83d","question":"?","samples":[]}\n', r"U\+D83D"),
    "surrogate_model": (b'{"id":"b","question":"?","model":"\\ud83d","samples":[]}\n', r"U\+D83D"),
}


@pytest.mark.parametrize(
    ("name", "suffix"), [(name, (".jsonl", ".jsonl.gz")[i % 2]) for i, name in enumerate(BAD_LINES)]
)
def test_a_bad_line_is_named_and_nothing_of_its_file_is_kept(tmp_path: Path, name: str, suffix: str):
    bad, message = BAD_LINES[name]
    source = write(tmp_path / f"bad{suffix}", [GOOD, bad])
    import_file(write(tmp_path / "old.jsonl", [line("old")]), tmp_path / "pool.sqlite")
    with open_pool(tmp_path / "pool.sqlite") as pool:
        before, rows = pool.digest(), dump(tmp_path / "pool.sqlite")
    with pytest.raises(RecordInvalid, match=message) as caught:
        import_file(source, tmp_path / "pool.sqlite")
    assert_one_line(caught.value, str(source), "line 2")
    with pytest.raises(RecordInvalid, match=message):
        open_pool(source)
    with pytest.raises(RecordInvalid, match=message):
        import_file(source, tmp_path / "new.sqlite")
    with open_pool(tmp_path / "pool.sqlite") as pool:
        assert pool.digest() == before
        assert pool.verify().ok
    assert dump(tmp_path / "pool.sqlite") == rows
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["old.jsonl", "pool.sqlite", source.name])


def dump(path: Path) -> list[tuple[Any, ...]]:
    with sqlite3.connect(path) as connection:
        tables = ("problems", "sources", "records", "samples", "failures", "settings", "migrations")
        rows = [row for table in tables for row in connection.execute(f"SELECT '{table}', * FROM {table}")]
    connection.close()
    return rows


def assert_one_line(error: Exception, *parts: str) -> None:
    text = str(error)
    assert "\n" not in text
    assert "; " in text, "a remedy follows"
    for part in parts:
        assert part in text


def test_a_line_over_the_limit_is_refused_without_reading_it_whole(tmp_path: Path):
    source = tmp_path / "bomb.jsonl.gz"
    with gzip.open(source, "wb") as file:
        file.write(GOOD)
        for _ in range(LINE_LIMIT // (1 << 20) + 1):
            file.write(b" " * (1 << 20))
    with pytest.raises(RecordInvalid, match=f"line 2 is longer than {LINE_LIMIT} bytes"):
        open_pool(source)


def test_truncated_and_corrupt_gzip(tmp_path: Path):
    whole = gzip.compress(b"".join(json.dumps(line(f"p{i}")).encode() + b"\n" for i in range(500)), mtime=0)
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(PoolError, match=r"cut\.jsonl\.gz: the gzip data ends too early (after line|within)"):
        open_pool(tmp_path / "cut.jsonl.gz")
    flipped = bytearray(whole)
    flipped[-6] ^= 0xFF  # in the checksum
    (tmp_path / "flip.jsonl.gz").write_bytes(flipped)
    with pytest.raises(PoolError, match=r"flip\.jsonl\.gz: the gzip data is corrupt"):
        open_pool(tmp_path / "flip.jsonl.gz")
    (tmp_path / "none.jsonl.gz").write_bytes(GOOD)
    with pytest.raises(PoolError, match=r"none\.jsonl\.gz: the gzip data is corrupt"):
        open_pool(tmp_path / "none.jsonl.gz")


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf\r\n"])
def test_an_empty_file_holds_no_problem(tmp_path: Path, content: bytes):
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(RecordInvalid, match="holds no problem"):
        open_pool(tmp_path / "a.jsonl")


def test_ids_given_twice_name_both_lines(tmp_path: Path):
    again = write(tmp_path / "a.jsonl", [line("p1"), line("p2"), b"\n", line("p1")])
    with pytest.raises(
        DuplicateRecord, match="line 4: id 'p1' is already in line 1 with the same model"
    ) as caught:
        open_pool(again)
    assert_one_line(caught.value, "a.jsonl")
    other = write(tmp_path / "b.jsonl", [line("p1"), line("p2"), line("p2", question="Another?", model="x")])
    with pytest.raises(DuplicateRecord, match="line 3: id 'p2' is already in line 2 with another question"):
        open_pool(other)
    bare = {"id": "p", "question": "?", "samples": []}
    with pytest.raises(DuplicateRecord, match="line 2: id 'p' is already in line 1 with another question"):
        open_pool(write(tmp_path / "c.jsonl", [bare, bare | {"question": "Another?"}]))


def test_a_problem_alone_may_be_given_again_before_and_after_its_samples(tmp_path: Path):
    full = line("p")
    bare = {"id": "p", "question": full["question"], "gold": "4", "samples": []}
    for name, rows in {"a": [full, bare], "b": [bare, full], "c": [bare, full, bare, bare]}.items():
        with open_pool(write(tmp_path / f"{name}.jsonl", rows)) as pool:
            assert list(pool.lines()) == [full]
    import_file(tmp_path / "a.jsonl", tmp_path / "p.sqlite")
    done = import_file(write(tmp_path / "d.jsonl", [bare]), tmp_path / "p.sqlite")
    assert (done.problems, done.samples, done.skipped) == (0, 0, 1)


def test_what_is_already_in_the_pool_is_an_error_or_skipped(tmp_path: Path):
    first = write(tmp_path / "a.jsonl", [line("p1"), line("p2")])
    more = write(tmp_path / "b.jsonl", [line("p2"), line("p3"), line("p1", model="other")])
    clash = write(tmp_path / "c.jsonl", [line("p4"), line("p1", question="Another?")])
    pool = tmp_path / "pool.sqlite"
    import_file(first, pool)
    with pytest.raises(
        DuplicateRecord, match=r'b.jsonl: line 1: id .p2. is already in the pool .*existing="skip"'
    ):
        import_file(more, pool)
    for existing in ("error", "skip"):
        with pytest.raises(
            DuplicateRecord, match="line 2: id 'p1' is already in the pool with another question"
        ):
            import_file(clash, pool, existing=existing)
    done = import_file(more, pool, existing="skip")
    assert (done.problems, done.samples, done.skipped) == (1, 6, 1)
    with open_pool(pool) as opened:
        assert opened.counts().problems == 3
        assert opened.verify().ok
    with pytest.raises(PoolError, match='give "error" or "skip"'):
        import_file(more, pool, existing="replace")
    with pytest.raises(PoolError, match="format 'csv' is not known"):
        import_file(more, pool, format="csv")


def other_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p.write_text("hello, this is a text file\n"), "is not a pool"),
        (lambda p: p.write_bytes(b""), "empty file"),
        (lambda p: p.write_bytes(os.urandom(5000)), "is not a pool"),
        (lambda p: p.write_bytes(b"SQLite format 3\0"), "something else"),
        (other_database, "an SQLite database of something else"),
    ],
    ids=["text", "empty", "garbage", "cut", "other_sqlite"],
)
@pytest.mark.parametrize("way", ["read", "write", "create", "import_into"])
def test_a_file_that_is_no_pool_is_said_so_and_not_touched(tmp_path: Path, make, message: str, way: str):
    path = tmp_path / "thing.sqlite"
    make(path)
    content, stamp = path.read_bytes(), path.stat().st_mtime_ns
    source = write(tmp_path / "a.jsonl", [line()])
    with pytest.raises(NotAPool, match=message):
        {
            "read": lambda: open_pool(path),
            "write": lambda: open_pool(path, write=True),
            "create": lambda: open_pool(path, create=True),
            "import_into": lambda: import_file(source, path),
        }[way]()
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (content, stamp)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.jsonl", "thing.sqlite"]


def test_wrong_paths(tmp_path: Path):
    source = write(tmp_path / "a.jsonl", [line()])
    (tmp_path / "folder").mkdir()
    for name in ("none.sqlite", "none.jsonl", "no/such.sqlite"):
        with pytest.raises(PoolNotFound, match="there is no such"):
            open_pool(tmp_path / name)
    with pytest.raises(PoolNotFound, match="create=True"):
        open_pool(tmp_path / "none.sqlite", write=True)
    for call in (lambda p: open_pool(p, create=True), lambda p: import_file(source, p)):
        with pytest.raises(PoolNotFound, match=r"its folder is not there; create .*no first"):
            call(tmp_path / "no" / "pool.sqlite")
    with pytest.raises(NotAPool, match=r"is a folder without \.parquet files"):
        open_pool(tmp_path / "folder")
    with pytest.raises(NotAPool, match="unknown suffix"):
        import_file(write(tmp_path / "a.csv", [b"a,b\n"]), tmp_path / "p.sqlite")
    with pytest.raises(NotAPool, match="name it"):
        import_file(source, tmp_path / "p.jsonl")
    with pytest.raises(PoolError, match="is a file to read"):
        open_pool(source, write=True)
    with pytest.raises(PoolNotFound, match="there is no such file"):
        import_file(tmp_path / "none.jsonl", tmp_path / "p.sqlite")
    assert not list(tmp_path.glob("*.lock"))


def test_another_task_than_the_pools_own_is_refused(tmp_path: Path):
    source = write(tmp_path / "a.jsonl", [line()])
    import_file(source, tmp_path / "p.sqlite", task=Task("boxed"))
    with open_pool(tmp_path / "p.sqlite") as pool:
        assert pool.task == Task("boxed")
    for call in (
        lambda t: open_pool(tmp_path / "p.sqlite", task=t),
        lambda t: import_file(source, tmp_path / "p.sqlite", task=t),
    ):
        with pytest.raises(TaskError, match="was made with"):
            call(Task("number"))


def test_permission_denied(tmp_path: Path):
    import_file(write(tmp_path / "a.jsonl", [line()]), tmp_path / "p.sqlite")
    (tmp_path / "p.sqlite").chmod(0)
    (tmp_path / "a.jsonl").chmod(0)
    script = (
        "import os, sys, urllib.parse\n"  # before the standard library is out of reach
        "from adacompute.errors import PoolError\n"
        "from adacompute.pool import open_pool\n"
        "if os.getuid() == 0: os.setuid(65534)\n"
        "for path in sys.argv[1:]:\n"
        "    try: open_pool(path)\n"
        "    except PoolError as exc: print(exc)\n"
    )
    with tempfile.TemporaryDirectory() as folder:  # pytest's own is closed to other users
        Path(folder).chmod(0o755)
        paths = [shutil.copy(tmp_path / name, folder) for name in ("p.sqlite", "a.jsonl")]
        done = subprocess.run(
            [sys.executable, "-c", script, *paths], capture_output=True, text=True, check=False
        )
    assert done.stdout.splitlines() == [
        f"{path}: Permission denied; check the permissions of the file and its folder" for path in paths
    ], done.stderr


def test_parquet_of_the_wrong_shape(tmp_path: Path):
    def table(**columns: Any) -> Path:
        pq.write_table(pa.table(columns), tmp_path / "a.parquet")
        return tmp_path / "a.parquet"

    samples = [[{"answer": "4"}]]
    for message, columns in {
        "has no column 'question'; it has id": {"id": ["a"]},
        "column 'samples' is list<.*: string>; give a list of structs": {
            "id": ["a"],
            "question": ["?"],
            "samples": [["x"]],
        },
        r"row 1: 'id' is 7; give a string": {"id": [7], "question": ["?"], "samples": samples},
        r"row 1: 'id' is missing": {
            "id": pa.array([None], pa.string()),
            "question": ["?"],
            "samples": samples,
        },
        r"row 1: 'samples\[0\].tokens' is 'x'": {
            "id": ["a"],
            "question": ["?"],
            "samples": [[{"tokens": "x"}]],
        },
        r"row 1: 'samples\[0\].logprob' is nan": {
            "id": ["a"],
            "question": ["?"],
            "samples": [[{"logprob": float("nan")}]],
        },
        r"row 1: 'samples' is missing": {
            "id": ["a"],
            "question": ["?"],
            "samples": pa.array([None], pa.list_(pa.struct([("answer", pa.string())]))),
        },
        r"row 1: 'extra' is 'x'; give JSON": {
            "id": ["a"],
            "question": ["?"],
            "samples": samples,
            "extra": ["x"],
        },
        r"row 1: 'when' can't be kept as JSON": {
            "id": ["a"],
            "question": ["?"],
            "samples": samples,
            "when": [b"\xff"],
        },
    }.items():
        with pytest.raises(RecordInvalid, match=message):
            open_pool(table(**columns))


def test_damaged_parquet(tmp_path: Path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(NotAPool, match="is not a Parquet file") as caught:
        open_pool(tmp_path / "a.parquet")
    assert_one_line(caught.value)
    pq.write_table(
        pa.table(
            {
                "id": [f"p{i}" for i in range(999)],
                "question": ["?" * 50] * 999,
                "samples": [[{"answer": "4"}]] * 999,
            }
        ),
        tmp_path / "b.parquet",
        compression="zstd",
        use_dictionary=False,
    )
    content = bytearray((tmp_path / "b.parquet").read_bytes())
    content[40:400] = bytes(360)
    (tmp_path / "b.parquet").write_bytes(content)
    with pytest.raises((PoolDamaged, NotAPool, RecordInvalid)) as caught:
        open_pool(tmp_path / "b.parquet")
    assert_one_line(caught.value, "b.parquet")


def test_no_private_error_leaves_the_room():
    from adacompute.pool.rows import Flaw

    assert not hasattr(errors, Flaw.__name__)
