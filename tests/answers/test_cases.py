"""The hand-judged cases: what an extractor must take, and which answers are the same."""

import json
from pathlib import Path
from typing import Any

import pytest

from adacompute.answers import Classes, Task, extract_answer, same_answer
from adacompute.answers.judge import shared_judge

CASES = Path(__file__).resolve().parent.parent / "cases"
PAIRS = json.loads((CASES / "pairs.json").read_text("utf-8"))
EXTRACTIONS = json.loads((CASES / "extractions.json").read_text("utf-8"))


def group(cases: list[dict[str, Any]], key: str) -> dict[str, list[dict[str, Any]]]:
    """By kind: one test for each takes a tenth of the time that one for each case takes."""
    return {kind: [case for case in cases if case[key] == kind] for kind in {case[key]: 0 for case in cases}}


def is_judged_alike(case: dict[str, Any]) -> bool:
    task = Task(percent=case.get("percent", "unit"))
    for a, b in ((case["a"], case["b"]), (case["b"], case["a"])):
        classes = Classes(task)
        if {same_answer(a, b, task), classes.place(a) == classes.place(b)} != {case["same"]}:
            return False
    return True


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch):
    """A busy machine takes more processor time for a pair, and isn't what is tested here."""
    monkeypatch.setattr(shared_judge.helper, "limit", 1.0)
    shared_judge.forget()


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("cases", group(PAIRS, "kind").values(), ids=group(PAIRS, "kind"))
def test_pairs_are_judged_as_by_hand_in_either_order_and_as_classes(cases):
    assert [case for case in cases if not is_judged_alike(case)] == []


@pytest.mark.parametrize("cases", group(EXTRACTIONS, "extract").values(), ids=group(EXTRACTIONS, "extract"))
def test_extractors_take_what_was_judged_by_hand(cases):
    for case in cases:
        found = extract_answer(case["text"], Task(case["extract"]), finished=case.get("finished", True))
        assert found == case["answer"], case
