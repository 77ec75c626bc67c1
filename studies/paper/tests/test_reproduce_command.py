"""`python -m studies.paper reproduce`: which recordings are taken, what is written, what is refused."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import recorded

from adacompute.errors import SourceAmbiguous
from studies.paper.paper_claims import load_paper
from studies.paper.reproduce_command import _choose_names, _list_sources, _RecordingSource, _remove_model
from tiers import leave_to_nightly

Run = Callable[..., object]


@pytest.mark.nightly
def test_the_page_and_the_json_say_the_same(paper: Run, tmp_path: Path):
    folder = tmp_path / "folder"
    folder.mkdir()
    recorded.written(folder / "one-tiny-1b.jsonl.gz", recorded.lines(30, 16, seed=1, levels=True))
    recorded.written(folder / "two-tiny-1b.jsonl.gz", recorded.lines(12, 4, seed=2))
    words = ("reproduce", "one", "two", "--recordings", "folder", "--quick", "--workers", "1")
    done = paper(*words, "-o", str(tmp_path / "new" / "page.md"), "--json")
    found, page = json.loads(done.stdout), (tmp_path / "new" / "page.md").read_text("utf-8")
    told = (
        "python -m studies.paper reproduce one two --recordings folder -o page.md --quick --workers 1 --json"
    )
    assert f"Made by `{told}`" in page
    assert found["recordings"] == ["one", "two"]
    assert [claim["key"] for claim in found["claims"]] == list(load_paper().claims)
    for claim in found["claims"]:
        assert claim["found"].replace("|", "∣") in page
        assert f"**{claim['verdict']}**" in page
    assert [len(found["tables"][key][0]) for key in ("main", "gap")] == [12, 13]  # no heading twice
    for row in found["tables"]["search"]:
        if row["setting"] in ("one", "two"):
            assert f"| **{row['setting']}** | {row['B']} | {row['λ']:.4g} | {row['cost']:.3f} |" in page
    assert all(paragraph.split("](")[0][:60] in page for paragraph in found["summary"][:4])
    assert "](theory.md)" not in page  # there is none beside it
    assert "](figures/reproduction.svg)" in page
    assert (tmp_path / "new" / "figures" / "reproduction.svg").read_text("utf-8").count('class="mark"') > 12
    assert sorted(file.name for file in (tmp_path / "new").iterdir()) == ["figures", "page.md"]


def at_hand(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / f"{name}.jsonl.gz").touch()
    return folder


def test_the_files_of_bundled_recordings_are_never_taken_and_others_that_begin_so_are(tmp_path: Path):
    (tmp_path / "notes.txt").touch()
    at_hand(tmp_path, "facts-smollm2-135m", "facts-of-mine", "math-tiny", "math500-tiny")
    found = [one.name for one in _list_sources([], tmp_path)]
    assert found == ["facts", "words", "facts-of-mine", "math-tiny", "math500-tiny"]
    assert [one.name for one in _list_sources([], None)] == ["facts", "words"]


def test_a_recording_is_named_by_its_file_or_by_how_that_begins_and_taken_once(tmp_path: Path):
    at_hand(tmp_path, "math-tiny", "math500-tiny", "own", "own-more")
    math = tmp_path / "math-tiny.jsonl.gz"
    assert _list_sources(["math", "words"], tmp_path) == [
        _RecordingSource("math", math),
        _RecordingSource("words", Path("words")),
    ]
    assert _list_sources(["own"], tmp_path) == [_RecordingSource("own", tmp_path / "own.jsonl.gz")]
    assert _list_sources(["own.sqlite"], tmp_path) == [_RecordingSource("own.sqlite", Path("own.sqlite"))]
    assert _list_sources(["math", "math-tiny", "math"], tmp_path) == [_RecordingSource("math", math)]


def test_a_name_that_several_begin_with_is_refused_with_all_of_them(tmp_path: Path):
    at_hand(tmp_path, "math-hard-m1", "math-m1")
    with pytest.raises(SourceAmbiguous, match=r"math: several .* name one of math-hard-m1, math-m1"):
        _list_sources(["math"], tmp_path)


def test_no_two_recordings_have_one_name():
    one, two = (Path("a", f"math-{end}.jsonl.gz") for end in ("tiny-1b", "Tiny-1B-instruct"))
    sources = [_RecordingSource(path.name.removesuffix(".jsonl.gz"), path) for path in (one, two)]
    assert _choose_names(sources, ["Tiny-1B-Instruct"] * 2) == ["math-tiny-1b", "math-Tiny-1B-instruct"]
    assert _choose_names(sources[:1], ["Tiny-1B-Instruct"]) == ["math"]
    same = [_RecordingSource("x", Path(folder, "x.jsonl.gz")) for folder in "ab"]
    with pytest.raises(SourceAmbiguous, match=r"a/x.jsonl.gz and b/x.jsonl.gz: two recordings of one name"):
        _choose_names(same, ["m", "m"])


@pytest.mark.parametrize("where", leave_to_nightly([".", "file/page.md", "n" * 256]))
def test_where_no_page_can_be_is_said_before_any_work(paper: Run, tmp_path: Path, where: str):
    (tmp_path / "file").touch()
    done = paper("reproduce", "nothing", "-o", where, code=1)
    assert where.split("/")[0] in done.stderr
    assert "nothing" not in done.stderr
    assert done.stderr.count("\n") == 1
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


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
    assert _remove_model(name, model) == short


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("words", "said_so"),
    [
        (("--recordings", "nowhere"), "nowhere: there is no such folder; give one with *.jsonl.gz files"),
        (("nothing",), "nothing"),
    ],
)
def test_what_isnt_there_is_named(paper: Run, words: tuple, said_so: str):
    done = paper("reproduce", *words, code=1)
    assert said_so in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.nightly
def test_a_recording_without_grades_is_refused_by_name(paper: Run, tmp_path: Path):
    rows = [
        {key: value for key, value in row.items() if key != "gold"} for row in recorded.lines(4, 4, seed=1)
    ]
    recorded.written(tmp_path / "bare.jsonl", rows)
    done = paper("reproduce", "bare.jsonl", code=1)
    assert "bare.jsonl: no problem has grades or a gold answer" in done.stderr
