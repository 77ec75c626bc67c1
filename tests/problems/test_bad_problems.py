"""What can't be used is refused in one line that names the file, the place, the value and the remedy."""

import gzip
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adacompute.errors import AdacomputeError, ProblemsInvalid
from adacompute.pool.formats import LINE_LIMIT
from adacompute.problems import read_problems

Write = Callable[..., Path]  # the fixture jsonl

GOOD = b'{"id": "a", "question": "Why?"}\n'


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("p.jsonl", b"", ["holds no problem", "give at least one"]),
        ("p.jsonl", b"\n\n", ["holds no problem"]),
        ("p.json", b"[]", ["holds no problem"]),
        ("p.csv", b"", ["holds no problem"]),
        ("p.csv", b"question,gold\n", ["holds no problem"]),
        ("p.jsonl.gz", gzip.compress(b"", mtime=0), ["holds no problem"]),
        ("p.jsonl", GOOD + b"{oops\n", ["line 2 is not JSON", "one object a line"]),
        ("p.jsonl", GOOD + b'{"question": NaN}\n', ["line 2 is not JSON", "NaN"]),
        ("p.jsonl", GOOD + b"[1]\n", ["line 2: is a list", "one object a problem"]),
        ("p.jsonl", GOOD + b"\xff\n", ["line 2", "not UTF-8 at byte 1"]),
        ("p.jsonl", b"[" * 100_000, ["is not JSON", "nested too deeply"]),
        (
            "p.jsonl",
            b'{"question": "a?", "x": ' + b"[" * 300 + b"]" * 300 + b"}",
            ["line 1", "nested deeper"],
        ),
        ("p.jsonl", '{"question": "a"}'.encode("utf-16"), ["line 1", "not UTF-8"]),
        (
            "p.jsonl",
            GOOD + b'{"gold": "4"}\n',
            ["line 2", "'question'", "is missing", "question=NAME", "'gold'"],
        ),
        ("p.jsonl", GOOD + b'{"question": null}\n', ["line 2: 'question' is empty", "leave the row out"]),
        ("p.csv", b"question,prompt\na?,x\n,y\n", ["line 3: 'question' is empty", "leave the row out"]),
        ("p.jsonl", b'{"question": "a", "gold": null, "answer": "5"}', ["'gold' is empty", "gold=answer"]),
        ("p.jsonl", b'{"question": "a"}, oops\n', ["line 1 is not JSON: Extra data: character 18;"]),
        ("p.jsonl", '{"question": "a"}'.encode("utf-16-le"), ["line 1", "not UTF-8 but UTF-16"]),
        ("p.json", '[{"question": "a"}]'.encode("utf-16-le"), ["line 1", "not UTF-8 but UTF-16"]),
        ("p.csv", "question\na?\n".encode("utf-16"), ["line 1", "not UTF-8 but UTF-16"]),
        ("p.jsonl", b"[[1]]", ["item 1: is a list", "one object a problem"]),
        ("p.jsonl", b'{"question": 7}\n', ["line 1: 'question' is 7", "as a string"]),
        ("p.jsonl", b'{"prompt": [{"role": "user"}]}\n', ["line 1: 'prompt' is [{'role'", "as a string"]),
        ("p.jsonl", b'{"question": " "}\n', ["line 1: 'question' is ' '", "is empty"]),
        ("p.jsonl", b'{"question": "\\ud800"}\n', ["line 1", "half a surrogate pair"]),
        ("p.jsonl", GOOD + b"\n" + GOOD, ["line 3: has the id 'a' of line 1"]),
        ("p.jsonl", b'{"id": "", "question": "a"}', ["line 1: 'id' is ''", "not empty"]),
        ("p.jsonl", b'{"id": true, "question": "a"}', ["line 1: 'id' is True"]),
        ("p.jsonl", b'{"question": "a", "gold": ["x"]}', ["line 1: 'gold' is ['x']", "gold=NAME"]),
        ("p.jsonl", b'{"question": "a", "answer": true}', ["line 1: 'answer' is True"]),
        ("p.jsonl", b'{"question": "a", "subject": [1]}', ["line 1: 'subject' is [1]", "a string"]),
        ("p.jsonl", b'{"question": "a", "level": [1]}', ["line 1: 'level' is [1]", "a number or a string"]),
        ("p.jsonl", b'{"question": "a", "level": 1e999}', ["line 1", "level", "finite"]),
        ("p.jsonl.gz", gzip.compress(GOOD * 50, mtime=0)[:-9], ["gzip", "cut off"]),
        ("p.jsonl.gz", b"\x1f\x8b" + b"x" * 50, ["gzip", "corrupt"]),
        ("p.json", b'{\n"question": "a"\n}', ["line 1 is not JSON", "one list of objects"]),
        ("p.json", b'[{"question": "a"}, 5]', ["item 2: is a number"]),
        ("p.json", b'[{"question": "a"},', ["is not JSON"]),
        ("p.csv", b"question,gold\na?,1\nb?,1,2\n", ["line 3 has 3 cells, and the header 2", "quote"]),
        ("p.csv", b'question\n"a\nb"\n"c', ["line 4 is not CSV", "quotes"]),
        ("p.csv", b"question,question\na,b\n", ["line 1", "'question' twice"]),
        ("p.csv", b"question,\na,b\n", ["line 1", "without a name"]),
        ("p.csv", b"question\na?\n\xe9?\n", ["line 3 is not UTF-8 at byte 1", "save the file as UTF-8"]),
        ("p.csv", b"id,question\n1,a\n1,b\n", ["line 3: has the id '1' of line 2"]),
        ("p.csv", b"gold\n1\n", ["line 2", "'question'", "is missing", "'gold'"]),
        ("p.csv", b"question\n" + b"a" * 200_000, ["line 2", "too long for CSV", "JSON lines"]),
        ("p.parquet", b"PAR1 no", ["can't be read as Parquet"]),
        ("p.txt", b"hello", ["can't tell what kind of file", ".jsonl"]),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path: Path, name: str, data: bytes, said: list[str]):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(ProblemsInvalid) as caught:
        read_problems(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert len(message) < len(str(path)) + 400
    assert [part for part in said if part not in message] == []


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        ("none.jsonl", {}, "none.jsonl: there is no such file"),
        ("none", {}, "none: there is no such file"),
        ("n\0ne.jsonl", {}, "there is no such file"),
        ("x" * 5000, {}, "can't be read"),
        ("p.jsonl", {"preset": "gsm9k"}, "no preset 'gsm9k'; did you mean gsm8k?"),
        ("p.jsonl", {"limit": 0}, "limit 0"),
        ("p.jsonl", {"limit": True}, "limit True"),
        ("p.jsonl", {"split": "test"}, "split 'test' is for hf: names"),
        ("p.jsonl", {"columns": {"question": "text"}}, "'text' is missing"),
        (
            "p.jsonl",
            {"columns": {"gold": "reply"}},
            "has no column 'reply' for gold; there is 'id', 'question'",
        ),
        ("p.jsonl", {"columns": {"gold": "reply"}, "limit": 1}, "has no column 'reply' for gold"),
        ("p.jsonl", {"columns": {"golden": "x"}}, "'golden'; did you mean gold? the fields are id, question"),
        ("p.jsonl", {"columns": {"choices": "x"}}, "give preset multiple-choice with it"),
        ("openai/gsm8k", {}, "did you mean hf:openai/gsm8k?"),
        ("gsm8k", {}, "did you mean hf:gsm8k?"),
        ("MATH-500", {}, "did you mean hf:HuggingFaceH4/MATH-500?"),
        ("fact", {}, "did you mean facts?"),
        ("p.jsonl", {"preset": "gpqa", "columns": {"gold": "x"}}, "the right choice from 'Correct Answer'"),
        (
            "p.jsonl",
            {"preset": "gpqa", "columns": {"choices": "x"}},
            "the right choice from 'Correct Answer'",
        ),
        ("p.jsonl", {"columns": {"gold": ""}}, "give the name of a column"),
        ("facts", {"columns": {"gold": "x"}}, "facts: is a pool"),
        (".", {"split": "test"}, "hf:."),
        ("empty", {}, "a folder without .parquet files"),
    ],
)
def test_a_bad_request_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, options: Mapping[str, Any], said: str
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "p.jsonl").write_bytes(GOOD)
    with pytest.raises(ProblemsInvalid) as caught:
        read_problems(source, **options)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_may_not_be_read_is_named(jsonl: Write):
    path = jsonl([{"question": "Why?"}])
    path.chmod(0)
    try:
        path.read_bytes()
    except PermissionError:
        with pytest.raises(AdacomputeError, match=r"problems\.jsonl: .*permission"):
            read_problems(path)
    else:  # root reads all
        assert len(read_problems(path)) == 1


def test_a_huge_line_is_refused_before_it_is_parsed(tmp_path: Path):
    path = tmp_path / "p.jsonl.gz"
    path.write_bytes(gzip.compress(GOOD + b" " * (LINE_LIMIT + 1), compresslevel=1, mtime=0))
    with pytest.raises(ProblemsInvalid, match=f"line 2 is longer than {LINE_LIMIT} bytes"):
        read_problems(path)


def test_bytes_in_a_table_are_refused_by_column(tmp_path: Path):
    table = pa.table({"question": ["a?", "b?"], "image": [None, {"bytes": b"\x89PNG", "path": None}]})
    pq.write_table(table, tmp_path / "p.parquet")
    with pytest.raises(ProblemsInvalid, match=r"row 2: 'image\.bytes' holds bytes.*leave that column out"):
        read_problems(tmp_path / "p.parquet")


def test_an_error_in_a_folder_names_the_part(tmp_path: Path):
    pq.write_table(pa.table({"question": ["a?"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"query": ["b?"]}), tmp_path / "b.parquet")
    with pytest.raises(ProblemsInvalid, match=r"b\.parquet row 1: 'question'.* is missing.*'query'"):
        read_problems(tmp_path)


@given(st.sampled_from([".jsonl", ".json", ".csv", ".tsv", ".parquet"]), st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_problems_or_refused_in_one_line(tmp_path: Path, suffix: str, data: st.DataObject):
    path = tmp_path / f"p{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.table({"question": ["a?", "b?"], "gold": ["1", None], "x": [[1], [2, 3]]}), path)
        whole = bytearray(path.read_bytes())
        for at, byte in data.draw(st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)))):
            whole[at] = byte
    else:
        parts = st.sampled_from(
            [b"{", b"}", b"[", b"]", b'"', b",", b":", b"\n", b"question", b"\t", b"1", b"null"]
        )
        whole = bytearray(b"".join(data.draw(st.lists(parts | st.binary(max_size=4), max_size=30))))
    path.write_bytes(whole)
    message = f"{path}"
    try:
        read_problems(path)
    except ProblemsInvalid as exc:
        message = str(exc)
    assert "\n" not in message
    assert str(path) in message
