"""Reading the recordings with their questions: votes of one, two and four samples are no less often right."""

import gzip
from pathlib import Path
from typing import Any

import orjson
import pytest

from adacompute.answers import Tally, extract_answer, same_answer
from adacompute.records import Sample
from tiers import leave_to_nightly

SAMPLES = 8  # of each problem
NAMES = (
    "facts-smollm2-135m",
    "words-qwen2.5-coder-1.5b",
    "reasoning-gym-qwen2.5-coder-1.5b",
    "gsm8k-qwen2.5-coder-1.5b",
    "math-qwen2.5-coder-1.5b",
    "modes/facts-qwen2.5-coder-1.5b",
    "modes/gsm8k-qwen2.5-coder-1.5b-direct",
)


SHARES = {
    "facts-smollm2-135m": [0.418, 0.429, 0.501],
    "modes/facts-qwen2.5-coder-1.5b": [0.903, 0.908, 0.923],
}


def read_samples(problem: dict[str, Any], question: str | None) -> list[Sample]:
    samples = []
    for stored in problem["samples"][:SAMPLES]:
        finished = stored.get("finished") != 0
        answer = extract_answer(stored["text"], finished=finished, question=question)
        samples.append(Sample(answer=answer, finished=finished))
    return samples


def count_right(samples: list[Sample], gold: str, size: int, *, winner: bool) -> int:
    """Votes of so many samples that are right; without a winner, the first sample is the answer."""
    right = 0
    for start in range(0, len(samples), size):
        group = samples[start : start + size]
        tally = Tally.of(group)
        answer = (tally.winner if not tally.is_outweighed else group[0].answer) if winner else tally.leader
        right += same_answer(answer, gold)
    return right


@pytest.mark.slow
@pytest.mark.recordings
@pytest.mark.parametrize("name", leave_to_nightly(NAMES))
def test_votes_are_no_less_often_right_with_the_question(name: str, recordings: Path):
    without, with_question, problems = [0, 0, 0], [0, 0, 0], 0
    with gzip.open(recordings / f"{name}.jsonl.gz") as lines:
        for line in lines:
            problem = orjson.loads(line)
            problems += 1
            plain, asked = read_samples(problem, None), read_samples(problem, problem["question"])
            for at, size in enumerate((1, 2, 4)):
                without[at] += count_right(plain, problem["gold"], size, winner=False)
                with_question[at] += count_right(asked, problem["gold"], size, winner=True)
    assert all(new >= old for old, new in zip(without, with_question, strict=True)), (without, with_question)
    votes = [problems * SAMPLES / size for size in (1, 2, 4)]
    shares = [right / count for right, count in zip(with_question, votes, strict=True)]
    assert shares == pytest.approx(SHARES.get(name, shares), abs=0.005)  # docs/design/answers.md
