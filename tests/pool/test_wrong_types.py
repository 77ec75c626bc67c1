"""Values of the wrong type, too deep or not text, in files of every kind: refused, and the place is named."""

import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pool_lines import line, write

from adacompute.errors import NotAPool, PoolDamaged, PoolError, RecordInvalid
from adacompute.pool import export_file, fingerprint, import_file, open_pool
from adacompute.pool.sqlite import DEPTH_LIMIT
from adacompute.records import Problem, Sample


def deep(levels: int) -> Any:
    return json.loads("[" * levels + "]" * levels)


@pytest.mark.parametrize("levels", [DEPTH_LIMIT, 400, 600, 900])
def test_nesting_has_one_limit_wherever_it_is(tmp_path: Path, levels: int):
    for place, row in {
        "'x'": line(x=deep(levels)),
        "'parameters.x'": line(parameters={"x": deep(levels)}),
        "'samples[0].x'": line(samples=[{"answer": "4", "x": deep(levels)}]),
    }.items():
        with pytest.raises(RecordInvalid) as caught:
            open_pool(write(tmp_path / "a.jsonl", [row]))
        assert f"line 1: {place} can't be kept as JSON (nested deeper than 100 levels)" in str(caught.value)
    for row in (line(gold=deep(levels)), line(level=deep(levels)), line(samples=[deep(levels)])):
        with pytest.raises(RecordInvalid, match=r"line 1: '(gold|level|samples.0.)' is "):
            open_pool(write(tmp_path / "a.jsonl", [row]))
    columns = {"id": ["a"], "question": ["?"], "samples": [[{"answer": "4"}]]}
    table = pa.table(columns | {"parameters": [json.dumps({"x": deep(levels)})]})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(RecordInvalid, match=r"row 1: 'parameters.x' can't be kept"):
        open_pool(tmp_path / "a.parquet")
    with open_pool(tmp_path / "p.sqlite", create=True) as pool:
        for call in (
            lambda: pool.add_problem(Problem(id="a", question="?", extra={"x": deep(levels)})),
            lambda: pool.keys("m", {"x": deep(levels)}),
            lambda: fingerprint({"x": deep(levels)}),
        ):
            with pytest.raises(RecordInvalid, match="nested deeper than 100 levels"):
                call()


def test_nesting_up_to_the_limit_survives_every_format(tmp_path: Path):
    rows = [line(x=deep(DEPTH_LIMIT - 1), parameters={"x": deep(DEPTH_LIMIT - 1)})]
    before = write(tmp_path / "a.jsonl", rows)
    for suffix in (".jsonl.gz", ".parquet"):
        with open_pool(before) as pool:
            export_file(pool, tmp_path / f"o{suffix}")
        before = tmp_path / f"o{suffix}"
    with open_pool(before) as pool:
        assert list(pool.lines()) == rows


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"x": {"y": [1, b"INF"]}}, r"'x\.y\[1\]' can't be kept as JSON"),
        ({"parameters": {"stop": {"at": b"INF"}}}, r"'parameters\.stop\.at' can't be kept"),
        ({"samples": [{"answer": "4", "top": [b"INF"]}]}, r"'samples\[0\]\.top\[0\]' can't be kept"),
        ({"x": b"DIGITS"}, "4300 digits"),
        ({"gold": b"DIGITS"}, "4300 digits"),
    ],
)
def test_what_json_cant_keep_is_named_by_its_key(tmp_path: Path, fields: dict[str, Any], message: str):
    text = json.dumps(line(**fields), default=bytes.decode)
    text = text.replace('"INF"', "1e999").replace('"DIGITS"', "9" * 5000)
    with pytest.raises(RecordInvalid, match=message):
        open_pool(write(tmp_path / "a.jsonl", [text.encode()]))


def test_whole_numbers_that_python_wont_write_are_refused(tmp_path: Path):
    with open_pool(tmp_path / "p.sqlite", create=True) as pool:
        pool.add_problem(Problem(id="p", question="?"))
        for fields in ({"tokens": 10**5000}, {"extra": {"x": 10**5000}}, {"answer": 10**5000}):
            with pytest.raises(RecordInvalid):
                pool.add_samples("p", [(0, Sample(**fields))])


LOG: dict[str, Any] = {
    "eval": {"task": "t", "model": "m", "model_generate_config": {}},
    "plan": {"config": {}},
}
CHOICE = {"message": {"content": "4"}, "stop_reason": "stop", "logprobs": {"content": [{"logprob": -1.0}]}}
SAMPLE: dict[str, Any] = {
    "id": 1,
    "epoch": 1,
    "input": "?",
    "target": "4",
    "metadata": {},
    "output": {"choices": [CHOICE], "usage": {"output_tokens": 3}},
    "scores": {"match": {"value": "C", "answer": "4"}},
    "error": None,
}


def changed(value: Any, path: str, new: Any) -> Any:
    """A copy with another value at a dotted path."""
    made = json.loads(json.dumps(value))
    *way, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    at = made
    for key in way:
        at = at[key]
    at[last] = new
    return made


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("output", 5),
        ("output.choices", 5),
        ("output.choices.0", "x"),
        ("output.choices.0.message", "x"),
        ("output.choices.0.stop_reason", []),
        ("output.choices.0.logprobs", []),
        ("output.choices.0.logprobs.content", {}),
        ("output.choices.0.logprobs.content.0", 5),
        ("output.usage", 5),
        ("scores", []),
        ("scores.match", "C"),
        ("metadata", "x"),
        ("error", "boom"),
        ("id", None),
        ("epoch", deep(700)),
    ],
)
def test_inspect_samples_of_the_wrong_type_are_named(tmp_path: Path, path: str, value: Any):
    good = LOG | {"samples": [SAMPLE, changed(SAMPLE, "epoch", 2)]}
    (tmp_path / "a.json").write_text(json.dumps(good))
    assert import_file(tmp_path / "a.json", tmp_path / "good.sqlite", format="inspect").samples == 2
    (tmp_path / "a.json").write_text(json.dumps(changed(good, f"samples.1.{path}", value)))
    with pytest.raises(RecordInvalid, match=r"a\.json: sample 2: ") as caught:
        import_file(tmp_path / "a.json", tmp_path / "p.sqlite", format="inspect")
    assert path.split(".")[-1].strip("0") in str(caught.value)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("eval", 5, "'eval' is 5"),
        ("eval.model", ["m"], "'eval.model' is"),
        ("eval.task", ["t"], "'eval.task' is"),
        ("eval.model_generate_config", 5, "'eval.model_generate_config' is 5"),
        ("plan", [], r"'plan' is \[\]"),
        ("plan.config", {"temperature": float("nan")}, r"'parameters.temperature' can't be kept"),
        ("plan.config", {"stop": deep(700)}, r"'parameters.stop' can't be kept"),
    ],
)
def test_inspect_headers_of_the_wrong_type_are_named(tmp_path: Path, path: str, value: Any, message: str):
    (tmp_path / "a.json").write_text(json.dumps(changed(LOG | {"samples": [SAMPLE]}, path, value)))
    with pytest.raises(RecordInvalid, match=message):
        import_file(tmp_path / "a.json", tmp_path / "p.sqlite", format="inspect")


LM_EVAL: dict[str, Any] = {
    "doc_id": 1,
    "doc": {},
    "target": "4",
    "arguments": {"gen_args_0": {"arg_0": "Q: ?", "arg_1": {}}},
    "resps": [["4"]],
    "filtered_resps": ["4"],
    "filter": "none",
    "metrics": ["acc"],
    "acc": 1.0,
}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("arguments.gen_args_0", None, "holds no prompt"),
        ("arguments.gen_args_0", 5, "'arguments.gen_args_0' is 5"),
        ("metrics", 5, "'metrics' is 5"),
        ("metrics", [[]], r"'metrics' is \[\]"),
        ("doc_id", True, "'doc_id' is True"),
        ("doc_id", deep(700), "'doc_id' is |nested"),
        ("filter", ["x"], "'filter' is"),
        ("resps", [["5"]], "doc_id 1 is there twice"),
        ("resps", [["4", "5"]], "doc_id 1 is there twice"),
        ("arguments.gen_args_0.arg_1", {"t": 1}, "doc_id 1 is there twice"),
    ],
)
def test_lm_eval_samples_of_the_wrong_type_are_named(tmp_path: Path, path: str, value: Any, message: str):
    rows = [LM_EVAL, changed(LM_EVAL | {"filter": "other"}, path, value)]
    log = write(tmp_path / "samples_a.jsonl", rows)
    with pytest.raises(RecordInvalid, match=f"line 2: .*{message}"):
        import_file(log, tmp_path / "p.sqlite", format="lm-eval")


@pytest.mark.parametrize("extra", [[5], [True], [["x"]], ["[1]"], ["{"]])
def test_an_extra_column_that_holds_no_object_is_refused(tmp_path: Path, extra: list[Any]):
    columns = {"id": ["a"], "question": ["?"], "samples": [[{"answer": "4"}]]}
    pq.write_table(pa.table(columns | {"extra": extra}), tmp_path / "a.parquet")
    with pytest.raises(RecordInvalid, match=r"row 1: 'extra' is .*; give (a JSON object|JSON)"):
        open_pool(tmp_path / "a.parquet")
    samples = [[{"answer": "4", "extra": None}], [{"answer": "4", "extra": extra[0]}]]
    pq.write_table(
        pa.table({"id": ["a", "b"], "question": ["?", "?"], "samples": samples}), tmp_path / "b.parquet"
    )
    with pytest.raises(RecordInvalid, match=r"row 2: 'samples\[0\].extra' is .*; give (a JSON object|JSON)"):
        open_pool(tmp_path / "b.parquet")


def test_two_columns_of_one_name_are_refused(tmp_path: Path):
    samples = pa.array([[{"answer": "4"}]])
    table = pa.Table.from_arrays(
        [pa.array(["a"]), pa.array(["?"]), samples, pa.array(["b"])], ["id", "question", "samples", "id"]
    )
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(RecordInvalid, match="has two columns 'id'; give each its own name"):
        open_pool(tmp_path / "a.parquet")
    answer = pa.array(["4"])
    structs = pa.StructArray.from_arrays([answer, answer], names=["answer", "answer"])
    drawn = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), structs)
    pq.write_table(pa.table({"id": ["a"], "question": ["?"], "samples": drawn}), tmp_path / "b.parquet")
    with pytest.raises((RecordInvalid, PoolDamaged), match=r"two fields 'answer'|can't be read"):
        open_pool(tmp_path / "b.parquet")


def test_parquet_that_is_no_utf8_is_refused(tmp_path: Path):
    half = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(struct.pack("<2i", 0, 2)), pa.py_buffer(b"\xff\xfe")]
    )
    samples = [[{"answer": "4"}]]
    pq.write_table(pa.table({"id": ["a"], "question": half, "samples": samples}), tmp_path / "a.parquet")
    with pytest.raises(PoolDamaged, match=r"can't be read after row 0 .*utf-8"):
        open_pool(tmp_path / "a.parquet")
    table = pa.table({"id": ["a"], "question": ["?"], "samples": samples, "zzzzzz": ["x"]})
    pq.write_table(table, tmp_path / "b.parquet", store_schema=False)
    content = (tmp_path / "b.parquet").read_bytes().replace(b"zzzzzz", b"\xff\xfe\xff\xfe\xff\xfe")
    (tmp_path / "b.parquet").write_bytes(content)
    with pytest.raises(NotAPool, match=r"is not a Parquet file .*utf-8"):
        open_pool(tmp_path / "b.parquet")


def packed(path: Path, texts: list[str]) -> Path:
    with zipfile.ZipFile(path, "w", compression=zipfile.ZIP_DEFLATED) as file:
        file.writestr("header.json", json.dumps(LOG))
        for i, text in enumerate(texts, start=1):
            choice = {"message": {"content": text}}
            file.writestr(
                f"samples/{i}.json", json.dumps(SAMPLE | {"epoch": i, "output": {"choices": [choice]}})
            )
    return path


@pytest.mark.parametrize(
    ("offset", "value", "error", "message"),
    [
        (6, 99, NotAPool, "is not a zip archive .zip file version 9.9"),  # version needed
        (8, 1, PoolError, "is encrypted; give a log without a password"),  # flags
        (10, 77, PoolDamaged, "can't be unpacked .*compression"),  # method
        (45, 0x7F, (NotAPool, PoolDamaged), "copy the log again"),  # place of the member
    ],
)
def test_archives_of_other_kinds_are_refused(
    tmp_path: Path, offset: int, value: int, error: Any, message: str
):
    content = bytearray(packed(tmp_path / "a.eval", ["4"]).read_bytes())
    content[content.rindex(b"PK\x01\x02") + offset] = value
    (tmp_path / "a.eval").write_bytes(content)
    with pytest.raises(error, match=message):
        import_file(tmp_path / "a.eval", tmp_path / "p.sqlite", format="inspect")


def test_an_archive_is_bounded_by_its_own_size_and_by_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = packed(tmp_path / "a.eval", ["x" * 300_000] * 3)
    assert import_file(path, tmp_path / "good.sqlite", format="inspect").samples == 3
    monkeypatch.setattr("adacompute.pool.importers.KEPT_LIMIT", 700_000)
    with pytest.raises(PoolError, match="holds more than 700000 bytes to put together; import its files one"):
        import_file(path, tmp_path / "p.sqlite", format="inspect")
    monkeypatch.setattr("adacompute.pool.importers.FREE_BYTES", 100_000)
    with pytest.raises(PoolError, match="more than a log of its size has; check its origin"):
        import_file(path, tmp_path / "p.sqlite", format="inspect")
    assert not (tmp_path / "p.sqlite").exists()


def test_errors_are_one_line_whatever_the_path(tmp_path: Path):
    folder = tmp_path / "two\nlines"
    folder.mkdir()
    for call in (
        lambda: open_pool(folder / "none.sqlite"),
        lambda: open_pool(write(folder / "a.jsonl", [b"{"])),
        lambda: import_file(folder / "a.jsonl", folder / "p.sqlite"),
    ):
        with pytest.raises(PoolError, match=r"two\\nlines") as caught:
            call()
        assert len(str(caught.value).splitlines()) == 1
