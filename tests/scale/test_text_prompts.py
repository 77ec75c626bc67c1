"""Budgets for prompts in JSONL and CSV: the same as for Parquet, with the rows as they were written."""

import csv
import gzip
import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prompt_files import budgets_in, file_of, questions

from adacompute.errors import ScaleError
from adacompute.policies.baselines import FixedPolicy
from adacompute.policies.curve import CurvePolicy
from adacompute.scale.allocate import allocate

FIXED = FixedPolicy(2.0)


def write_jsonl(path: Path, prompts: list[str]) -> Path:
    lines = "".join(json.dumps({"id": i, "prompt": text}) + "\n" for i, text in enumerate(prompts))
    path.write_bytes(gzip.compress(lines.encode()) if path.suffix == ".gz" else lines.encode())
    return path


def write_csv(path: Path, prompts: list[str]) -> Path:
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter="\t" if path.suffix == ".tsv" else ",")
    writer.writerow(["id", "prompt"])
    writer.writerows(enumerate(prompts))
    raw = text.getvalue().encode()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


def read_budgets(path: Path) -> list[int]:
    text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
    if ".jsonl" in path.suffixes:
        return [json.loads(line)["budget"] for line in text.splitlines()]
    delimiter = "\t" if path.suffix == ".tsv" else ","
    return [int(row["budget"]) for row in csv.DictReader(text.splitlines(keepends=True), delimiter=delimiter)]


def check_same_as_parquet(folder: Path, curve: CurvePolicy, name: str, *, engine: str) -> None:
    prompts = [*questions()[:300], 'says "hi", and\nmore', "Được không?", ""]
    write = write_jsonl if "jsonl" in name else write_csv
    source = write(folder / f"in.{name}", prompts)
    expected = allocate(
        file_of(folder / "in.parquet", prompts), curve, budget=2.3, into=folder / "out.parquet"
    )
    result = allocate(source, curve, budget=2.3, into=folder / f"out.{name}", engine=engine)  # type: ignore[arg-type]
    assert read_budgets(folder / f"out.{name}") == budgets_in(folder / "out.parquet")
    assert (result.cost, result.counts, result.price) == (expected.cost, expected.counts, expected.price)
    assert not list(folder.glob(".*")), "nothing is left beside it"


@pytest.mark.parametrize("name", ["jsonl", "csv", "tsv", "jsonl.gz", "csv.gz"])
def test_text_files_get_the_budgets_of_the_same_prompts_in_parquet(
    tmp_path: Path, curve: CurvePolicy, name: str
):
    check_same_as_parquet(tmp_path, curve, name, engine="local")


@pytest.mark.nightly
@pytest.mark.usefixtures("on_ray")
@pytest.mark.parametrize("name", ["jsonl", "csv"])
def test_on_ray_they_get_the_same(tmp_path: Path, curve: CurvePolicy, name: str):
    check_same_as_parquet(tmp_path, curve, name, engine="ray")


def test_lines_and_cells_stay_as_they_are_written(tmp_path: Path):
    lines = [
        '{"question": "Größe?", "n": 12345678901234567890123, "x": 1.50, "deep": {"a": [1, null]}}',
        '  {"x": "\\u00e9", "question":"?"  }  ',
    ]
    (tmp_path / "in.jsonl").write_text("\ufeff" + "\n\n".join(lines) + "\n")
    allocate(tmp_path / "in.jsonl", FIXED, budget=2, into=tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text() == (
        lines[0][:-1] + ', "budget": 2}\n{"x": "\\u00e9", "question":"?", "budget": 2}\n'
    )
    cells = 'id,text,note\n007,"What, ""now""?",\n1e5,"two\nlines", kept \n'
    (tmp_path / "in.csv").write_text(cells)
    allocate(tmp_path / "in.csv", FIXED, budget=2, into=tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == (
        'id,text,note,budget\n007,"What, ""now""?",,2\n1e5,"two\nlines", kept ,2\n'
    )


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("in.jsonl", "{}\n", r"in\.jsonl: line 1: has no column prompt, question, text, but nothing"),
        ("in.jsonl", '{"prompt": "a"}\n{"prompt": 7}\n', r"line 2: 'prompt' is 7, not text; fill or drop it"),
        ("in.jsonl", '{"prompt": "a"}\n{"text": "b"}\n', r"line 2: has no columns 'prompt'; there are text"),
        ("in.jsonl", '{"prompt": "a", "budget": 1}\n', r"line 1: has 'budget' already"),
        ("in.jsonl", '{"prompt": "a"\n', r"line 1 is not JSON .*; write one object a line"),
        ("in.jsonl", "[1]\n", r"line 1 is not a JSON object"),
        ("in.jsonl", "\n", r"in\.jsonl: holds no prompts; give at least one row"),
        (
            "in.csv",
            "",
            r"in\.csv: has no column prompt, question, text, but nothing; say which with --column",
        ),
        ("in.csv", "prompt\n", r"in\.csv: holds no prompts"),
        ("in.csv", "prompt,x\na\n", r"row 1 has 1 cells, not 2 as the first line"),
        ("in.csv", "prompt,prompt\na,b\n", r"has 2 columns 'prompt'"),
        ("in.csv", 'prompt\n"a', r"in\.csv: can't be read \(unexpected end of data\)"),
        ("in.jsonl.gz", "not packed", r"in\.jsonl\.gz: can't be read"),
    ],
)
def test_what_cant_be_used_is_named_with_its_place_and_nothing_is_written(
    tmp_path: Path, name: str, text: str, said: str
):
    (tmp_path / name).write_text(text)
    with pytest.raises(ScaleError, match=said) as error:
        allocate(tmp_path / name, FIXED, budget=2, into=tmp_path / name.replace("in", "out", 1))
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_an_output_that_names_another_format_is_refused(tmp_path: Path):
    pq.write_table(pa.table({"prompt": ["a"]}), tmp_path / "in.parquet")
    write_jsonl(tmp_path / "in.jsonl", ["a"])
    for source, into, said in (
        ("in.parquet", "out.jsonl", "would be Parquet.*such as out.parquet"),
        ("in.jsonl", "out.parquet", "would be JSONL.*such as out.jsonl"),
        ("in.jsonl", "out.csv", "would be JSONL"),
        ("none.jsonl", "out.jsonl", "there is no such file"),
    ):
        with pytest.raises(ScaleError, match=said):
            allocate(tmp_path / source, FIXED, budget=2, into=tmp_path / into)


def test_the_command_takes_them_too(
    adacompute: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path
):
    FIXED.save(tmp_path / "policy")
    write_csv(tmp_path / "in.csv", questions()[:20])
    words = ["allocate", "in.csv", "--policy", "policy", "-o", "out.csv", "--budget", "2"]
    assert "20 prompts in 1 file" in adacompute(*words).stdout
    assert read_budgets(tmp_path / "out.csv") == [2] * 20
    assert "is there already" in adacompute(*words, code=1).stderr
