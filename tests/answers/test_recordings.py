"""On real recordings we extract and grade as was recorded; docs/answers.md explains each difference."""

import gzip
import json
import random

import pytest

from adacompute.answers import Task, classify, extract_answer, same_answer
from tiers import choose_some, leave_to_nightly

pytestmark = pytest.mark.recordings

# one line, of which the last "is" or "Answer:" opens the answer: how short free-text replies read
FREE_TEXT = Task(r"regex:\A\s*(?:.*(?:\bis\b|[Aa]nswer:))?[ \t]*(.+?)[ \t.!]*(?:\n|\Z)")
TASKS = {
    "facts-smollm2-135m": FREE_TEXT,
    "words-qwen2.5-coder-1.5b": Task(),
    "reasoning-gym-qwen2.5-coder-1.5b": Task(),
    "gsm8k-qwen2.5-coder-1.5b": Task(),
    "math-qwen2.5-coder-1.5b": Task(),
    "math500-r1-distill-llama-8b": Task(),
}
AGREEMENT = 0.99


@pytest.fixture(params=leave_to_nightly(TASKS))
def recording(request, recordings):
    with gzip.open(recordings / f"{request.param}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return TASKS[request.param], choose_some([json.loads(line) for line in lines], 0)


@pytest.mark.slow
def test_our_grades_agree_with_the_recorded_ones(recording):
    task, problems = recording
    agreed = drawn = 0
    for problem in problems:
        grades = {}  # a response often repeats an answer: compare each spelling once
        for sample in problem["samples"]:
            if "text" in sample:
                answer = extract_answer(sample["text"], task, finished=bool(sample["finished"]))
            else:
                answer = sample["answer"]
            if answer not in grades:
                grades[answer] = same_answer(answer, problem["gold"], task)
            agreed += grades[answer] == bool(sample["correct"])
            drawn += 1
    assert agreed / drawn >= AGREEMENT


def test_answers_written_alike_share_a_class_and_labels_are_never_mixed(recording):
    task, problems = recording
    spellings = classes = 0
    for problem in problems:
        answers = [sample["answer"] for sample in problem["samples"]]
        labels = [sample["correct"] for sample in problem["samples"]]
        numbers = classify(answers, labels, task)
        alike = dict(zip(zip(answers, labels, strict=True), numbers, strict=True))
        assert [alike[pair] for pair in zip(answers, labels, strict=True)] == numbers
        label = dict(zip(numbers, labels, strict=True))
        assert all(label[n] == one for n, one in zip(numbers, labels, strict=True) if n >= 0)
        spellings += len({answer for answer in answers if answer is not None})
        classes += len(set(numbers) - {-1})
    assert classes >= 0.99 * spellings  # the records were written alike already: we merge hardly more


def test_the_classes_don_t_depend_on_the_order_of_the_samples(recording):
    task, problems = recording
    for problem in random.Random(0).sample(problems, min(60, len(problems))):
        answers = [sample["answer"] for sample in problem["samples"]]
        numbers = classify(answers, task=task)
        backwards = classify(answers[::-1], task=task)[::-1]
        assert len(set(numbers)) == len(set(backwards))
