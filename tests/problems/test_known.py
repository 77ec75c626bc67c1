"""Rows in a known dataset's shape are not misread without its preset; a prompt never leaves choices out."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adacompute.errors import ProblemsInvalid
from adacompute.pool import open_pool
from adacompute.problems import PRESETS, Template, read_problems

Write = Callable[..., Path]  # the fixture jsonl

GSM8K = {"question": "How many?", "answer": "9 + 9 = <<9+9=18>>18\n#### 18"}
MATH = {"problem": "Find $x$.", "level": "Level 1", "type": "Algebra", "solution": "So $x = \\boxed{3}$."}
MMLU = {"question": "Which?", "subject": "law", "choices": ["w", "x", "y", "z"], "answer": 1}
LETTERS = {"question": "Which?", "A": "w", "B": "x", "C": "y", "D": "z", "answer": "C"}
ARC = {
    "id": "a",
    "question": "Which?",
    "choices": {"text": ["w", "x"], "label": ["A", "B"]},
    "answerKey": "B",
}
GPQA = {"Question": "Which?", "Correct Answer": "w", **{f"Incorrect Answer {i}": f"x{i}" for i in (1, 2, 3)}}


@pytest.mark.parametrize(
    ("row", "remedy", "as_it_is"),
    [
        (GSM8K, "--preset gsm8k", {"gold": "answer"}),
        (MATH, "--preset math", {"question": "problem"}),
        (MMLU, "--preset mmlu", {"question": "question"}),
        (MMLU | {"options": MMLU["choices"], "choices": None}, "--preset mmlu", {"question": "question"}),
        (MMLU | {"choices": '["x", "y"]'}, "--preset mmlu", {"gold": "answer"}),
        (LETTERS, "--preset mmlu", {"question": "question"}),
        (LETTERS | {"answer": 2}, "--preset mmlu", {"gold": "answer"}),
        (ARC, "or multiple-choice", {"question": "question"}),
        (GPQA, "--preset gpqa", {"question": "Question"}),
    ],
)
def test_a_known_shape_is_refused_with_its_preset_unless_columns_say_otherwise(
    jsonl: Write, row: dict[str, Any], remedy: str, as_it_is: dict[str, str]
):
    path = jsonl([{"question": "Why?"}, row])
    with pytest.raises(ProblemsInvalid) as caught:
        read_problems(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: line 2: ")
    assert remedy in message
    (field, column) = next(iter(as_it_is.items()))
    assert f"--columns {field}={column} " in message or field == "gold"
    assert "\n" not in message
    kept = read_problems(jsonl([row]), columns=as_it_is)
    kept.check(Template.named("plain"))
    assert kept.problems[0].gold in (None, str(row.get("answer")))
    preset = remedy.removeprefix("--preset ").removeprefix("or ")
    assert read_problems(jsonl([row]), preset=preset).problems[0].gold


def test_a_known_shape_is_known_in_csv(tmp_path: Path):
    for number, row in enumerate((GSM8K, MATH, LETTERS, GPQA)):
        path = tmp_path / f"{number}.csv"
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(row))
            writer.writeheader()
            writer.writerow(row)
        with pytest.raises(ProblemsInvalid, match="read it with --preset"):
            read_problems(path)


@pytest.mark.parametrize(
    "row",
    [
        {"question": "Why?", "gold": "18", "solution": "So \\boxed{18}."},
        {"question": "Why?", "answer": "a #### b"},
        {"question": "Why?", "answer": "## Title\n#### Part\nmore"},
        {"question": "What is A + B?", "A": 3, "B": 4, "answer": 1},
        {"question": "Why?", "options": {"verbose": True}, "answer": "x"},
        {"question": "Why?", "choices": "many", "answer": "x"},
    ],
)
def test_what_only_resembles_a_known_shape_is_read(jsonl: Write, row: dict[str, Any]):
    (problem,) = read_problems(jsonl([row]))
    assert problem.gold == str(row.get("gold", row.get("answer")))


def test_a_preset_is_known_whatever_its_capitals(jsonl: Write):
    assert read_problems(jsonl([GSM8K]), preset="GSM8K").problems[0].gold == "18"


@pytest.mark.parametrize("name", [name for name, preset in PRESETS.items() if preset.choices])
def test_choices_are_asked_only_with_a_template_that_shows_them(jsonl: Write, tmp_path: Path, name: str):
    found = read_problems(jsonl([{**LETTERS, **GPQA}]), preset=name)
    found.check(Template.named("choice"))
    with open_pool(tmp_path / "p.sqlite", create=True) as pool:
        pool.add_problems(found)
    again = read_problems(tmp_path / "p.sqlite")
    assert (again.template, again.extract) == (found.template, found.extract)
    for each in (found, again):
        for template in ("plain", "boxed", "answer-line"):
            with pytest.raises(ProblemsInvalid) as caught:
                each.check(Template.named(template))
            assert f"template '{template}' doesn't show them; use --template choice" in str(caught.value)


@pytest.mark.slow
def test_problems_without_choices_are_asked_with_any_template(jsonl: Write):
    for source in (jsonl([{"question": "Why?"}]), "facts", "words"):
        found = read_problems(source, limit=5)
        for template in ("plain", "boxed", "answer-line"):
            found.check(Template.named(template))
            assert not found.choices
