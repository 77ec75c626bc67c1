"""Pools and pool files as sources of problems: their problems, without their samples."""

import json
from pathlib import Path

import pytest

from adacompute.errors import NotAPool, ProblemsInvalid
from adacompute.pool import bundled, bundled_names, export_file, import_file, open_pool
from adacompute.problems import read_problems
from adacompute.records import Problem, Sample
from tiers import leave_to_nightly

PROBLEMS = (
    Problem(id="a", question="Why?", gold="x", subject="s", level=2.5, extra={"k": [1, {"z": None}]}),
    Problem(id="b", question="How?", level="hard", extra={"when": "2026"}),
)


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """A pool with two models' samples."""
    with open_pool(tmp_path / "p.sqlite", create=True) as made:
        for problem in PROBLEMS:
            made.add_problem(problem)
            for model in ("m1", "m2"):
                made.add_samples(
                    problem.id, [(0, Sample(text="x", tokens=3))], model=model, parameters={"t": 1}
                )
        for name in ("p.jsonl", "p.jsonl.gz", "p.parquet"):
            export_file(made, tmp_path / name)
    return tmp_path / "p.sqlite"


@pytest.mark.parametrize("name", ["p.sqlite", "p.jsonl", "p.jsonl.gz", "p.parquet"])
def test_a_pool_and_its_exports_give_its_problems_once(pool: Path, name: str):
    assert read_problems(pool.parent / name).problems == PROBLEMS
    assert read_problems(pool.parent / name, limit=1).problems == PROBLEMS[:1]


def test_a_pool_file_gives_what_a_pool_makes_of_it(tmp_path: Path):
    lines = [
        {"id": "a", "question": "Why?", "gold": None, "level": "3", "x": None, "samples": []},
        {"id": "b", "question": " ", "gold": "", "subject": "", "type": "t", "answer": 5, "samples": []},
        {"id": "c", "question": "How?", "gold": 10**30, "level": 2.0, "k": {"n": None}, "samples": []},
    ]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    import_file(tmp_path / "p.jsonl", tmp_path / "p.sqlite")
    with open_pool(tmp_path / "p.sqlite") as pool:
        export_file(pool, tmp_path / "p.parquet")
        want = tuple(pool.problems())
    for name in ("p.jsonl", "p.sqlite", "p.parquet"):
        assert read_problems(tmp_path / name).problems == want
    with open_pool(tmp_path / "p.sqlite", write=True) as pool:
        assert pool.add_problems(read_problems(tmp_path / "p.jsonl")) == 0  # all known, none changed


def test_a_pool_is_known_by_its_content_not_its_name(pool: Path):
    other = pool.rename(pool.with_name("pool"))
    assert read_problems(other).problems == PROBLEMS


@pytest.mark.slow
@pytest.mark.parametrize("name", leave_to_nightly(bundled_names()))
def test_a_bundled_recording_gives_its_problems_with_its_prompt(name: str):
    with bundled(name) as pool:
        want = tuple(pool.problems())
    found = read_problems(name)
    assert found.problems == want
    assert found.template is not None
    want_names = {
        "facts": "answer-line",
        "words": "boxed",
        "facts-qwen": "answer-line",
        "words-direct": "direct",
    }
    assert found.template.name == want_names[name]


def test_two_lines_of_one_id_that_differ_are_refused(pool: Path):
    path = pool.parent / "p.jsonl"
    path.write_text(path.read_text("utf-8").replace("Why?", "Why not?", 1), "utf-8")
    with pytest.raises(ProblemsInvalid, match="has the id 'a' of line 1"):
        read_problems(path)


def test_what_is_no_pool_or_an_empty_one_is_refused(tmp_path: Path):
    with open_pool(tmp_path / "empty.sqlite", create=True):
        pass
    with pytest.raises(ProblemsInvalid, match="a pool without problems"):
        read_problems(tmp_path / "empty.sqlite")
    (tmp_path / "no.sqlite").write_bytes(b"SQLite format 3\0" + b"x" * 200)
    with pytest.raises(NotAPool):
        read_problems(tmp_path / "no.sqlite")


@pytest.mark.recordings
def test_the_recordings_beside_the_checkout_are_read_without_their_samples(recordings: Path):
    found = read_problems(recordings / "reasoning-gym-qwen2.5-coder-1.5b.jsonl.gz")
    assert len(found) == 600
    assert all(set(problem.extra) & {"samples", "model"} == set() for problem in found)
    assert all(problem.gold for problem in found)
