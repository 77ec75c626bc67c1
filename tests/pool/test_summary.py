"""The summary's numbers against a plain loop, and on the recordings against their README."""

import json
import random
from fractions import Fraction
from pathlib import Path

import pytest
from pool_lines import line, write

from adacompute.errors import RecordInvalid
from adacompute.pool import bundled, open_pool, summarise


def by_hand(answers: list[str | None], budget: int) -> Fraction:
    """The vote's accuracy over disjoint windows; "4" is right."""
    windows = [answers[i : i + budget] for i in range(0, len(answers) - budget + 1, budget)]
    total = Fraction(0)
    for window in windows:
        votes = [a for a in window if a is not None]
        if votes:
            best = max(votes.count(a) for a in votes)
            leaders = {a for a in votes if votes.count(a) == best}
            total += Fraction("4" in leaders, len(leaders))
    return total / len(windows)


def test_vote_accuracy_is_that_of_a_plain_loop(tmp_path: Path):
    rng = random.Random(3)
    drawn = {
        f"p{i}": tuple(rng.choice(["4", "4", "5", "6", None]) for _ in range(rng.choice([3, 8, 16, 17])))
        for i in range(60)
    }
    drawn["none"] = (None,) * 8
    rows = [line(name, answers) for name, answers in drawn.items()]
    with open_pool(write(tmp_path / "a.jsonl", rows)) as pool:
        found = summarise(pool, budgets=(1, 2, 3, 5, 8, 16, 64))
    (source,) = found.sources
    assert set(source.votes) == {1, 2, 3, 5, 8, 16}
    for budget, estimate in source.votes.items():
        enough = [list(a) for a in drawn.values() if len(a) >= budget]
        assert estimate.problems == len(enough)
        assert estimate.mean == pytest.approx(float(sum(by_hand(a, budget) for a in enough) / len(enough)))
        assert estimate.low <= estimate.mean <= estimate.high
    assert source.accuracy == source.votes[1]
    assert (source.samples_min, source.samples_max) == (3, 17)
    assert source.agreement_budget == 16
    assert 0 < source.agreement <= 1
    assert found.gold_known == 61


def test_without_correctness_there_is_no_accuracy(tmp_path: Path):
    rows = [
        {
            "id": "p",
            "question": "?",
            "subject": "s",
            "level": 2,
            "samples": [{"answer": "4"}, {"answer": None}],
        }
    ]
    with open_pool(write(tmp_path / "a.jsonl", rows)) as pool:
        found = summarise(pool)
    (source,) = found.sources
    assert source.accuracy is None
    assert source.votes == {}
    assert source.answered == 0.5
    assert source.finished is None
    assert source.mean_tokens is None
    assert source.agreement == 1.0
    assert (found.subjects, found.levels, found.gold_known) == ({"s": 1}, {"2": 1}, 0)


def test_pools_that_are_empty_or_hold_failures_only_or_two_models(tmp_path: Path):
    with open_pool(tmp_path / "p.sqlite", create=True) as pool:
        assert summarise(pool).sources == ()
    rows = [
        line("a", ()) | {"failures": [{"index": i, "kind": k} for i, k in enumerate("xyx")]},
        line("a", model="n"),
    ]
    with open_pool(write(tmp_path / "a.jsonl", rows)) as pool:
        first, second = summarise(pool).sources
    assert first.failures == {"x": 2, "y": 1}
    assert (first.problems, first.samples, first.accuracy, first.agreement) == (0, 0, None, None)
    assert second.accuracy is not None
    assert (second.accuracy.low, second.accuracy.high) == (None, None)
    with open_pool(tmp_path / "a.jsonl") as pool, pytest.raises(RecordInvalid, match="whole numbers from 1"):
        summarise(pool, budgets=(0, 2))


@pytest.mark.parametrize(("name", "one", "sixteen"), [("facts", 0.41, 0.59), ("words", 0.64, 0.85)])
def test_the_recordings_numbers_are_those_of_their_readme(name: str, one: float, sixteen: float):
    with bundled(name) as pool:
        found = summarise(pool)
    (source,) = found.sources
    assert source.votes[1].mean == pytest.approx(one, abs=0.005)
    assert source.votes[16].mean == pytest.approx(sixteen, abs=0.011)
    assert json.loads(json.dumps(found.to_dict()))["sources"][0]["votes"]["16"]["problems"] == len(
        pool_ids(name)
    )


def pool_ids(name: str) -> list[str]:
    with bundled(name) as pool:
        return [problem.id for problem in pool.problems()]
