"""The hand-judged cases: what an extractor must take, and which answers are the same."""

import json
from pathlib import Path

import pytest

from adacompute.answers import Classes, Task, extract_answer, same_answer

CASES = Path(__file__).resolve().parent.parent / "cases"
PAIRS = json.loads((CASES / "pairs.json").read_text("utf-8"))
EXTRACTIONS = json.loads((CASES / "extractions.json").read_text("utf-8"))


@pytest.mark.parametrize("case", PAIRS, ids=lambda case: f"{case['kind']}: {case['a']} | {case['b']}"[:60])
def test_pairs_are_judged_as_by_hand_in_either_order_and_as_classes(case):
    task = Task(percent=case.get("percent", "unit"))
    a, b = case["a"], case["b"]
    assert same_answer(a, b, task) is case["same"]
    assert same_answer(b, a, task) is case["same"]
    for first, second in ((a, b), (b, a)):
        classes = Classes(task)
        assert (classes.place(first) == classes.place(second)) is case["same"]


@pytest.mark.parametrize("case", EXTRACTIONS, ids=lambda case: f"{case['extract']}: {case['kind']}"[:60])
def test_extractors_take_what_was_judged_by_hand(case):
    task = Task(case["extract"])
    assert extract_answer(case["text"], task, finished=case.get("finished", True)) == case["answer"]
