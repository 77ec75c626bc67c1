"""Presets on rows of our own in the datasets' shapes: question, gold, choices, prompt and extractor."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adacompute.answers import Task, extract_answer, same_answer
from adacompute.errors import ProblemsInvalid
from adacompute.problems import PRESETS, read_problems
from adacompute.records import Problem

Write = Callable[..., Path]  # the fixture jsonl

GPQA = {
    "Record ID": "rec1",
    "Question": "Which gas do plants take in?",
    "Correct Answer": "Carbon dioxide\n",
    "Incorrect Answer 1": "Helium",
    "Incorrect Answer 2": "Neon",
    "Incorrect Answer 3": "Argon",
    "Subdomain": "Botany",
    "High-level domain": "Biology",
    "Explanation": "They just do.",
    "Canary String": "x",
}


def one(path: Path, preset: str, **options: Any) -> Problem:
    (problem,) = read_problems(path, preset=preset, **options)
    return problem


@pytest.mark.parametrize(
    ("preset", "row", "want"),
    [
        (
            "gsm8k",
            {
                "question": "A crate holds 1,250 nails. How many do two hold?",
                "answer": "2 * 1250 = <<2*1250=2500>>2500\n#### 2,500",
            },
            {"gold": "2500", "extra": {}},
        ),
        ("gsm8k", {"question": "Owe?", "answer": "It falls.\n#### -3.5"}, {"gold": "-3.5"}),
        (
            "math",
            {
                "problem": "Find $x$ if $2x = 1$.",
                "level": "Level 3",
                "type": "Algebra",
                "solution": "First $\\boxed{7}$, no: halving gives $\\boxed{\\frac{1}{2}}$.",
            },
            {"gold": "\\frac{1}{2}", "level": 3, "subject": "Algebra", "extra": {}},
        ),
        ("math", {"problem": "p?", "level": "Level ?", "solution": "\\boxed{2}"}, {"level": "Level ?"}),
        (
            "math-500",
            {
                "problem": "Add 1 and 2.",
                "solution": "It is \\boxed{3}.",
                "answer": "3",
                "subject": "Prealgebra",
                "level": 1,
                "unique_id": "test/prealgebra/1.json",
            },
            {
                "id": "test/prealgebra/1.json",
                "gold": "3",
                "subject": "Prealgebra",
                "level": 1,
                "extra": {"solution": "It is \\boxed{3}."},
            },
        ),
        (
            "mmlu",
            {"question": "2 + 2?", "choices": ["1", "4", "2", "3"], "answer": 1, "subject": "sums"},
            {"gold": "B", "subject": "sums", "extra": {"choices": ["1", "4", "2", "3"]}},
        ),
        # by number, although a choice reads the same
        ("mmlu", {"question": "q?", "choices": ["1", "4", "2", "3"], "answer": "2"}, {"gold": "C"}),
        ("mmlu", {"question": "q?", "A": "x", "B": "y", "C": "z", "D": "w", "answer": "D"}, {"gold": "D"}),
        (
            "mmlu",
            {
                "question": "q?",
                "options": list("qrstuvwxyz"),
                "answer": "J",
                "answer_index": 9,
                "category": "law",
            },
            {"gold": "J", "subject": "law", "extra": {"answer_index": 9, "choices": list("qrstuvwxyz")}},
        ),
        ("mmlu", {"question": "q?", "choices": '["x", "y"]', "answer": "1"}, {"gold": "B"}),
        ("multiple-choice", {"question": "q?", "choices": ["x", "y"], "answer": "y"}, {"gold": "B"}),
        ("multiple-choice", {"prompt": "q?", "choices": [1, 2.5], "answer": "(b)"}, {"gold": "B"}),
        ("multiple-choice", {"question": "q?", "choices": ["B", "A"], "answer": "A"}, {"gold": "A"}),
        ("multiple-choice", {"question": "q?", "choices": ["x", "y"]}, {"gold": None}),
        ("multiple-choice", {"question": "q?", "choices": ["x", "y"], "answer": ""}, {"gold": None}),
        ("mmlu", {"question": "q?", "choices": ["x", "y"], "answer": " "}, {"gold": None}),
        ("mmlu", {"question": "q?", "A": "x", "B": "y", "C": "z", "D": None, "answer": "C"}, {"gold": "C"}),
        ("mmlu", {"question": "q?", "choices": None, "options": ["x", "y"], "answer": "B"}, {"gold": "B"}),
        ("mmlu", {"Question": "q?", "Choices": ["x", "y"], "ANSWER": "B"}, {"question": "q?", "gold": "B"}),
        (
            "mmlu",  # the prompt has letters of its own, and a line between
            {"question": "q?\n", "choices": ["A) red", "B) blue"], "answer": 1},
            {"question": "q?", "gold": "B", "extra": {"choices": ["red", "blue"]}},
        ),
        (
            "multiple-choice",
            {"question": "q?", "choices": ["A. red", "B. blue"], "answer": "B. blue"},
            {"gold": "B", "extra": {"choices": ["red", "blue"]}},
        ),
        (
            "mmlu",
            {"question": "q?", "choices": ["A. Smith", "J. Doe"], "answer": 1},
            {"extra": {"choices": ["A. Smith", "J. Doe"]}},
        ),
        (
            "multiple-choice",  # labels of the row's own count before places: "1" is the first
            {
                "question": "q?",
                "choices": {"text": ["x", "y", "z"], "label": ["1", "2", "3"]},
                "answerKey": "1",
            },
            {"gold": "A", "extra": {"choices": ["x", "y", "z"]}},
        ),
        (
            "multiple-choice",
            {"question_stem": "q?", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": "B"},
            {"question": "q?", "gold": "B"},
        ),
    ],
)
def test_a_preset_reads_the_rows_of_its_dataset(
    jsonl: Write, preset: str, row: dict[str, Any], want: dict[str, Any]
):
    problem = one(jsonl([row]), preset)
    assert {name: getattr(problem, name) for name in want} == want


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_brings_its_prompt_and_its_extractor(jsonl: Write, name: str):
    preset = PRESETS[name]
    row = {
        "question": "q?", "problem": "q?", "Question": "q?", "choices": ["x", "y"],
        "answer": "#### 1" if name == "gsm8k" else "1", "solution": "\\boxed{1}", **GPQA,
    }  # fmt: skip
    found = read_problems(jsonl([row]), preset=name)
    assert found.template is not None
    assert found.template.name == preset.template
    assert found.extract == preset.extract
    (problem,) = found
    gold = problem.gold or ""
    reply = f"So we are done.\nAnswer: {gold}" if preset.choices else f"So \\boxed{{{gold}}}."
    answer = extract_answer(reply, Task(extract=preset.extract))
    assert answer is not None
    assert same_answer(answer, gold)
    assert found.template.messages(problem)


def test_gpqa_shuffles_by_seed_and_id_alone_and_keeps_the_right_one_right(jsonl: Write):
    rows = [GPQA | {"Record ID": f"rec{i}"} for i in range(200)]
    first = read_problems(jsonl(rows), preset="gpqa", seed=1)
    for problem in first:
        assert problem.gold is not None
        assert problem.extra["choices"]["ABCD".index(problem.gold)] == "Carbon dioxide"
        assert sorted(problem.extra["choices"]) == ["Argon", "Carbon dioxide", "Helium", "Neon"]
        assert set(problem.extra) == {"choices"}
        assert problem.subject == "Botany"
    assert read_problems(jsonl(rows), preset="gpqa", seed=1) == first
    moved = read_problems(jsonl(rows[::-1]), preset="gpqa", seed=1)
    assert set(map(repr, moved)) == set(map(repr, first))
    other = read_problems(jsonl(rows), preset="gpqa", seed=2)
    assert [p.gold for p in other] != [p.gold for p in first]
    # each letter is right about as often: 4 standard deviations of 50 ± 6.1
    assert all(25 < Counter(p.gold for p in first)[letter] < 75 for letter in "ABCD")


def test_the_same_question_with_other_choices_is_another_problem(jsonl: Write):
    rows = [{"question": "Which is true?", "choices": [f"x{i}", "y"], "answer": 0} for i in range(3)]
    ids = [problem.id for problem in read_problems(jsonl(rows), preset="mmlu")]
    assert ids == [problem.id for problem in read_problems(jsonl(rows[::-1]), preset="mmlu")][::-1]
    assert len(set(ids)) == 3


def test_mmlu_is_the_same_from_csv_and_json(tmp_path: Path, jsonl: Write):
    (tmp_path / "p.csv").write_text("question,A,B,C,D,answer,subject\nWhich?,w,x,y,z,C,law\n")
    row = {"question": "Which?", "choices": ["w", "x", "y", "z"], "answer": 2, "subject": "law"}
    assert one(tmp_path / "p.csv", "mmlu") == one(jsonl([row]), "mmlu")


def test_columns_go_before_those_of_the_preset(jsonl: Write):
    row = {"frage": "q?", "question": "no", "answer": "#### 1", "loesung": "#### 2"}
    assert one(jsonl([row]), "gsm8k", columns={"question": "frage", "gold": "loesung"}).gold == "2"


@pytest.mark.parametrize(
    ("preset", "row", "said"),
    [
        (
            "gsm8k",
            {"question": "q?", "answer": "42"},
            "'answer' is '42'; give a solution that ends with ####",
        ),
        ("gsm8k", {"question": "q?"}, "'answer' is missing; give a solution"),
        ("gsm8k", {"problem": "q?", "answer": "#### 1"}, "'question' is missing"),
        ("math", {"problem": "q?", "solution": "It is 4."}, "'solution' is 'It is 4.'; give a solution with"),
        ("math", {"problem": "q?", "solution": 4}, "'solution' is 4"),
        (
            "mmlu",
            {"question": "q?", "answer": 1},
            "has no choices; give a list in 'choices', or columns A, B",
        ),
        ("mmlu", {"question": "q?", "choices": ["x"], "answer": 0}, "has 1 choices; give 2 to 10"),
        ("mmlu", {"question": "q?", "choices": list("abcdefghijk"), "answer": 0}, "has 11 choices"),
        (
            "mmlu",
            {"question": "q?", "choices": ["x", "y"], "answer": 2},
            "'answer' is 2; give a letter from A to B",
        ),
        ("mmlu", {"question": "q?", "choices": ["x", "y"], "answer": "C"}, "'answer' is 'C'"),
        ("mmlu", {"question": "q?", "choices": ["x", "y"], "answer": "x y"}, "'answer' is 'x y'"),
        ("mmlu", {"question": "q?", "choices": ["x", ["y"]], "answer": 1}, "'choices[1]' is ['y']"),
        ("mmlu", {"question": "q?", "choices": "x, y", "answer": 1}, "'choices' is 'x, y'; give a JSON list"),
        ("mmlu", {"question": "q?", "choices": 5, "answer": 1}, "'choices' is 5; give a list of texts"),
        ("multiple-choice", {"question": "q?", "choices": ["2", "1", "0"], "answer": "2"}, "give its letter"),
        (
            "multiple-choice",
            {"question": "q?", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": "C"},
            "'answerKey' is 'C'; give one of A, B",
        ),
        (
            "multiple-choice",
            {"question": "q?", "choices": {"text": ["x", "y"], "label": ["A"]}, "answerKey": "A"},
            "as many labels as texts",
        ),
        ("gpqa", {k: v for k, v in GPQA.items() if "Answer" not in k}, "'Correct Answer' is missing"),
        ("gpqa", GPQA | {"Correct Answer": None}, "'Correct Answer' is empty; give every choice"),
        ("gpqa", GPQA | {"Correct Answer": " "}, "'Correct Answer' is empty; give every choice"),
        ("gpqa", GPQA | {"Incorrect Answer 2": ""}, "'Incorrect Answer 2' is empty"),
        (
            "gpqa",
            {k.replace("Correct Answer", "Corect Answer"): v for k, v in GPQA.items()},
            "'Correct Answer' is missing; give every choice, or leave the row out; there is 'Canary String'",
        ),
        (
            "mmlu",
            {"question": "q?", "A": "w", "B": None, "C": "y", "D": "z", "answer": "D"},
            "'B' is empty, and 'D' isn't; give the choices without a gap",
        ),
        (
            "math-500",
            {"problem": "q?", "solution": "It is \\boxed{4}.", "level": "Level 1", "type": "Algebra"},
            "has no answer but in 'solution', as in MATH; read it with --preset math, or with --columns",
        ),
    ],
)
def test_a_row_that_is_not_in_the_dataset_s_shape_is_refused(
    jsonl: Write, preset: str, row: dict[str, Any], said: str
):
    path = jsonl([row])
    with pytest.raises(ProblemsInvalid) as caught:
        read_problems(path, preset=preset)
    assert str(caught.value).startswith(f"{path}: line 1: ")
    assert said in str(caught.value)


@pytest.mark.recordings
@pytest.mark.parametrize("name", ["gsm8k-qwen2.5-coder-1.5b", "math-qwen2.5-coder-1.5b"])
def test_a_gold_of_the_real_datasets_survives_being_written_in_their_shape(
    recordings: Path, jsonl: Write, name: str
):
    """The recorded golds came from the datasets; put back into that shape, we read the same."""
    known = read_problems(recordings / f"{name}.jsonl.gz").problems
    if name.startswith("gsm8k"):
        rows = [{"question": p.question, "answer": f"Think.\n#### {p.gold}"} for p in known]
        found = read_problems(jsonl(rows), preset="gsm8k")
    else:
        rows = [
            {"problem": p.question, "solution": f"So $\\boxed{{{p.gold}}}$.", "level": f"Level {p.level}"}
            for p in known
        ]
        found = read_problems(jsonl(rows), preset="math")
        assert [p.level for p in found] == [p.level for p in known]
    golds = [(p.gold or "", q.gold or "") for p, q in zip(known, found, strict=True)]
    assert len(golds) == 300
    assert [pair for pair in golds if pair[0] != pair[1] and not same_answer(*pair)] == []
    assert json.dumps([p.question for p in found]) == json.dumps([p.question for p in known])


def test_a_set_in_which_some_problems_have_choices_is_asked_by_one_template(jsonl):
    rows = [
        {"question": "Which is a colour?", "choices": ["dog", "red"], "answer": "red"},
        {"question": "2 + 2?", "answer": "4"},
    ]
    mixed = read_problems(jsonl(rows), preset="multiple-choice")
    assert [problem.gold for problem in mixed] == ["B", "4"]
    mixed.check(mixed.template)
    contents = [mixed.template.messages(problem)[-1]["content"] for problem in mixed]
    assert contents == ["Which is a colour?\n\nA) dog\nB) red", "2 + 2?"]
    task = Task(extract=mixed.extract)
    assert [extract_answer(f"So.\nAnswer: {gold}", task) for gold in ("B", "4")] == ["B", "4"]
    with pytest.raises(ProblemsInvalid, match="no problem has choices"):
        read_problems(jsonl(rows[1:]), preset="multiple-choice")
