"""Fields are found by the names of columns, and ids are made where there are none."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adacompute.problems import read_problems
from adacompute.problems.problem_set import IdMaker
from adacompute.records import Problem

Write = Callable[..., Path]  # the fixture jsonl


def test_ids_that_are_missing_are_made_of_the_question_and_stay_when_rows_move(jsonl: Write):
    rows = [{"question": f"What is {i} + 1?"} for i in range(5)]
    ids = {problem.question: problem.id for problem in read_problems(jsonl(rows))}
    moved = {problem.question: problem.id for problem in read_problems(jsonl(rows[::-1]))}
    assert moved == ids
    assert len(set(ids.values())) == 5


def test_a_question_asked_again_gets_an_id_of_its_own(jsonl: Write):
    first, second, third = read_problems(jsonl([{"question": "Why?", "gold": gold} for gold in "abc"]))
    assert (second.id, third.id) == (f"{first.id}-2", f"{first.id}-3")


@pytest.mark.parametrize(
    ("given", "want"), [(7, "7"), (7.0, "7"), (0.5, "0.5"), ("x y", "x y"), (2**70, str(2**70))]
)
def test_numbers_as_ids_become_text(jsonl: Write, given: object, want: str):
    (problem,) = read_problems(jsonl([{"id": given, "question": "Why?"}]))
    assert problem.id == want


@pytest.mark.parametrize(
    ("row", "field", "want"),
    [
        ({"prompt": "Why?"}, "question", "Why?"),
        ({"problem": "Why?"}, "question", "Why?"),
        ({"input": "Why?"}, "question", "Why?"),
        ({"question": "Why?", "answer": 42}, "gold", "42"),
        ({"question": "Why?", "target": 0.5}, "gold", "0.5"),
        ({"question": "Why?", "answer": 10**30}, "gold", "1" + "0" * 30),
        ({"question": "Why?", "gold": "a", "answer": "b"}, "extra", {"answer": "b"}),
        ({"question": "Why?", "solution": "So 42."}, "gold", None),  # by preset alone: it holds more
        ({"question": "Why?", "category": "x"}, "subject", "x"),
        ({"question": "Why?", "type": "x"}, "subject", "x"),
        ({"question": "Why?", "type": ["x"]}, "extra", {"type": ["x"]}),
        ({"question": "Why?", "difficulty": "hard"}, "level", "hard"),
        ({"question": "Why?", "difficulty": {"a": 1}}, "extra", {"difficulty": {"a": 1}}),
        ({"question": "Why?", "level": "Level 4"}, "level", 4),
        ({"question": "Why?", "level": "Level ?"}, "level", "Level ?"),
        ({"question": "Why?", "level": "4"}, "level", "4"),
        ({"question": "Why?", "answer": ""}, "gold", None),  # as an empty cell of CSV
        ({"question": "Why?", "answer": " \n"}, "gold", None),
        ({"Question": "Why?", "Answer": "b"}, "gold", "b"),
        ({"PROMPT": "Why?"}, "question", "Why?"),
        ({"question": "Why?", "Question": "no", "GOLD": 1}, "extra", {"Question": "no"}),
        ({"question": "Why?", "subject": ""}, "subject", None),
        ({"question": "Why?", "x": None, "y": {"z": None}}, "extra", {"y": {"z": None}}),
        ({"question": "Why?", "model": "m", "samples": [], "parameters": {}}, "extra", {}),
    ],
)
def test_columns_are_known_by_their_usual_names(jsonl: Write, row: dict[str, Any], field: str, want: object):
    (problem,) = read_problems(jsonl([row]))
    assert getattr(problem, field) == want


def test_many_equal_questions_take_no_longer_each_than_few(jsonl: Write):
    looked_up = []

    class Places(dict[str, None]):
        def __contains__(self, key: object) -> bool:
            looked_up.append(key)
            return super().__contains__(key)

    places = Places()
    ids = IdMaker(places)
    for _ in range(1000):
        places[ids.make_id("Why?", None)] = None
    assert len(looked_up) == len(places) == 1000
    last = read_problems(jsonl([{"question": "Why?"}] * 3000)).problems[-1]
    assert last.id.endswith("-3000")


def test_a_named_column_may_come_after_the_limit(jsonl: Write):
    rows = [{"question": "a?"}, {"question": "b?", "reply": "1"}]
    assert [p.gold for p in read_problems(jsonl(rows), columns={"gold": "reply"}, limit=1)] == [None]


def test_columns_can_be_named(jsonl: Write):
    row = {"text": "Why?", "reply": 4, "question": "no", "topic": "t", "hard": 2, "key": 9}
    columns = {"question": "text", "gold": "reply", "subject": "topic", "level": "hard", "id": "key"}
    (problem,) = read_problems(jsonl([row]), columns=columns)
    assert problem == Problem(id="9", question="Why?", gold="4", subject="t", level=2)


def test_a_level_of_csv_is_a_number_where_it_looks_like_one(tmp_path: Path):
    (tmp_path / "p.csv").write_text("question,level\na?,3\nb?,2.5\nc?,hard\nd?,\n")
    assert [problem.level for problem in read_problems(tmp_path / "p.csv")] == [3, 2.5, "hard", None]
