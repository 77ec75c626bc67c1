"""Budgets as qualities on the command line: fit finds their cost, and keeps what it found for the others."""

import json

import pytest

import adacompute as ac
from adacompute.pool.pool_files import export_file
from harness import Run

MENU = (
    *("fit", "--policy", "menu", "--join", "small=facts", "--join", "large=facts-qwen"),
    *("--cost", "small=0.1", "--cost", "large=1"),
)


@pytest.fixture
def words(tmp_path, adacompute: Run) -> str:
    """Ninety problems of the bundled recording."""
    path = tmp_path / "whole.jsonl"
    export_file(ac.bundled("words"), path)
    (tmp_path / "some.jsonl").write_text("\n".join(path.read_text().splitlines()[:90]) + "\n")
    return "some.jsonl"


@pytest.mark.slow
def test_fit_finds_the_cost_of_a_quality_and_keeps_it_with_the_policy(words: str, adacompute: Run, tmp_path):
    asked = "within 10 points of 6"
    found = json.loads(adacompute("fit", words, "-o", "policy", "--budget", asked, "--json").stdout)[
        "quality"
    ]
    assert found["quality"] == asked
    assert 1 <= found["cost"] < 6
    assert found["low"] >= -0.1
    assert found["problems"] == 90
    chart = json.loads((tmp_path / "policy" / "chart.json").read_text())
    assert [curve["samples"] for curve in chart["qualities"]] == list(range(1, 17))
    assert chart["measured"]

    (tmp_path / "questions.jsonl").write_text('{"question": "What is 2 + 3?"}\n')
    told = adacompute(
        *("answer", "questions.jsonl", "--policy", "policy", "--budget", asked, "--dry-run"),
        *("--endpoint", "http://127.0.0.1:9/v1", "--model", "m", "-o", "answers.jsonl"),
    )
    assert f"{asked}: {found['cost']:.3g} on average for 6" in told.stderr


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("fit", "facts", "--policy", "guarantee", "--budget", "as good as 8"), "told by a verdict"),
        (("fit", "facts", "--no-verdict", "--budget", "as good as 8"), "told by a verdict"),
        (("fit", "facts", "--budget", "as good as"), "as good as 8"),
        (("fit", "facts", "--budget", "as good as large"), "but there is only one; give 'as good as 8'"),
        ((*MENU, "--budget", "within 2 points of 8"), "of small, large; give 'within 2 points of large x 8'"),
        ((*MENU, "--budget", "as good as huge"), "names no mode of small, large; give 'as good as large'"),
        ((*MENU, "--budget", "as good as large"), "on 353 problems in 7 groups. Record other kinds"),
        (("fit", "facts", "--budget", "as good as 8"), "hold out single questions: --no-groups"),
        (
            (*MENU, "--no-groups", "--budget", "as good as large x 17"),
            "on 16 samples a problem; record more samples, or give 'as good as large x 16'",
        ),
        ((*MENU[:-1], "large=inf", "--budget", "as good as small"), "needs two modes with a finite cost"),
        (
            ("fit", "facts", "--no-groups", "--budget", "within 1 point of 17"),
            "or give 'within 1 point of 16'",
        ),
        (("solve", "facts", "--budget", "as good as 8"), "give an amount"),
        (
            (
                "answer",
                "q.jsonl",
                "--budget",
                "as good as 8",
                "--endpoint",
                "http://127.0.0.1:9/v1",
                "-o",
                "a.jsonl",
            ),
            "needs a policy that was measured",
        ),
    ],
)
def test_where_no_quality_can_be_told_one_line_says_why(words: tuple[str, ...], remedy: str, adacompute: Run):
    told = " ".join(adacompute(*words, code=None).stderr.split())
    assert remedy in told
    assert "learned" not in told, "it is refused before anything is learned"
