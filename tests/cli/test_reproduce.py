"""`adacompute reproduce`: which recordings are taken, what is written, what is refused."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from adacompute.cli.reproduce import _short, _sources
from adacompute.evaluate.reproduction.said import said

SHARED = Path(__file__).resolve().parent.parent / "evaluate" / "reproduction" / "recorded.py"
spec = importlib.util.spec_from_file_location("recorded_for_reproduce", SHARED)
assert spec is not None
assert spec.loader is not None
recorded = importlib.util.module_from_spec(spec)
spec.loader.exec_module(recorded)

Run = Callable[..., object]


def test_the_page_and_the_json_say_the_same(adacompute: Run, tmp_path: Path):
    folder = tmp_path / "folder"
    folder.mkdir()
    recorded.written(folder / "one-tiny-1b.jsonl.gz", recorded.lines(30, 16, seed=1, levels=True))
    recorded.written(folder / "two-tiny-1b.jsonl.gz", recorded.lines(12, 4, seed=2))
    words = ("reproduce", "one", "two", "--recordings", "folder", "--quick", "--workers", "1")
    done = adacompute(*words, "-o", "page.md", "--json")
    found, page = json.loads(done.stdout), (tmp_path / "page.md").read_text("utf-8")
    assert found["recordings"] == ["one", "two"]
    assert [claim["key"] for claim in found["claims"]] == list(said().claims)
    for claim in found["claims"]:
        assert claim["found"].replace("|", "∣") in page
        assert f"**{claim['verdict']}**" in page
    assert [len(found["tables"][key][0]) for key in ("main", "gap")] == [12, 12]  # no heading twice
    for row in found["tables"]["search"]:
        if row["setting"] in ("one", "two"):
            assert f"| **{row['setting']}** | {row['B']} | {row['λ']:.4g} | {row['cost']:.3f} |" in page
    assert all(paragraph.split("](")[0][:60] in page for paragraph in found["summary"][:4])
    assert "](theory.md)" not in page  # there is none beside it
    assert "](figures/reproduction.svg)" in page
    assert (tmp_path / "figures" / "reproduction.svg").read_text("utf-8").count('class="mark"') > 12
    assert sorted(file.name for file in tmp_path.iterdir()) == ["figures", "folder", "page.md"]


def test_bundled_recordings_are_never_taken_twice(tmp_path: Path):
    for name in ("facts-smollm2-135m", "math-tiny", "math500-tiny", "notes.txt"):
        (tmp_path / (name if "." in name else f"{name}.jsonl.gz")).touch()
    assert list(_sources([], tmp_path)) == ["facts", "words", "math-tiny", "math500-tiny"]
    assert list(_sources([], None)) == ["facts", "words"]
    assert _sources(["math", "words"], tmp_path) == {
        "math": tmp_path / "math-tiny.jsonl.gz",
        "words": Path("words"),
    }
    assert _sources(["own.sqlite"], tmp_path) == {"own.sqlite": Path("own.sqlite")}


@pytest.mark.parametrize(
    ("name", "model", "short"),
    [
        ("math-qwen2.5-coder-1.5b", "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M", "math"),
        ("reasoning-gym-qwen2.5-coder-1.5b", "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M", "reasoning-gym"),
        ("math500-r1-distill-llama-8b", "deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "math500"),
        ("my-own-pool", "gpt", "my-own-pool"),
    ],
)
def test_a_recordings_name_is_what_stands_before_its_models(name: str, model: str, short: str):
    assert _short(name, model) == short


@pytest.mark.parametrize(
    ("words", "said_so"),
    [
        (("--recordings", "nowhere"), "nowhere: there is no such folder; give one with *.jsonl.gz files"),
        (("nothing",), "nothing"),
    ],
)
def test_what_isnt_there_is_named(adacompute: Run, words: tuple, said_so: str):
    done = adacompute("reproduce", *words, code=1)
    assert said_so in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_recording_without_grades_is_refused_by_name(adacompute: Run, tmp_path: Path):
    rows = [
        {key: value for key, value in row.items() if key != "gold"} for row in recorded.lines(4, 4, seed=1)
    ]
    recorded.written(tmp_path / "bare.jsonl", rows)
    done = adacompute("reproduce", "bare.jsonl", code=1)
    assert "bare.jsonl: no problem has grades or a gold answer" in done.stderr
