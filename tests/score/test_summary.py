"""The summary's numbers against a plain loop, and on the recordings against their README."""

import itertools
import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pool_lines import line, write

from adacompute.errors import RecordInvalid
from adacompute.pool import bundled, open_pool
from adacompute.score import SourceSummary, summarise
from adacompute.score.pool_summary import estimate_mean


def by_hand(answers: list[str | None], budget: int) -> Fraction:
    """The vote's accuracy over all subsets; "4" is right."""
    total, count = Fraction(0), 0
    for subset in itertools.combinations(answers, budget):
        votes, count = [a for a in subset if a is not None], count + 1
        if votes:
            best = max(votes.count(a) for a in votes)
            leaders = {a for a in votes if votes.count(a) == best}
            total += Fraction("4" in leaders, len(leaders))
    return total / count


def test_vote_accuracy_is_that_of_a_plain_loop(tmp_path: Path):
    rng = random.Random(3)
    drawn = {
        f"p{i}": tuple(rng.choice(["4", "4", "5", "6", None]) for _ in range(rng.choice([3, 8, 9, 10])))
        for i in range(40)
    }
    drawn["none"] = (None,) * 8
    rows = [line(name, answers) for name, answers in drawn.items()]
    with open_pool(write(tmp_path / "a.jsonl", rows)) as pool:
        found = summarise(pool, budgets=(1, 2, 3, 5, 8, 10, 64))
    (source,) = found.sources
    assert set(source.votes) == {1, 2, 3, 5, 8, 10}
    for budget, estimate in source.votes.items():
        enough = [list(a) for a in drawn.values() if len(a) >= budget]
        assert estimate.problems == len(enough)
        assert estimate.mean == pytest.approx(float(sum(by_hand(a, budget) for a in enough) / len(enough)))
        assert estimate.low <= estimate.mean <= estimate.high
    assert source.accuracy is not None
    assert source.accuracy.mean == pytest.approx(source.votes[1].mean)
    assert (source.samples_min, source.samples_max) == (3, 10)
    half = sum(len(answers) >= 8 for answers in drawn.values())
    assert (source.agreement_budget, source.agreement_problems) == (8, half)
    assert 0 < source.agreement <= 1
    assert source.unvotable == 0
    assert found.gold_known == 41


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


@pytest.mark.nightly
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


def summary_of(
    tmp_path: Path, *problems: list[dict[str, Any]], budgets=(1, 2, 4), gold=None
) -> SourceSummary:
    rows = [
        {"id": f"p{i}", "question": "?", "model": "m", "samples": drawn} | ({"gold": gold} if gold else {})
        for i, drawn in enumerate(problems)
    ]
    with open_pool(write(tmp_path / "a.jsonl", rows)) as pool:
        (source,) = summarise(pool, budgets=budgets).sources
    return source


def graded(*correct: float) -> list[dict[str, Any]]:
    return [{"correct": value} for value in correct]


def answered(*answers: str | None) -> list[dict[str, Any]]:
    return [{"answer": answer, "correct": int(answer == "4")} for answer in answers]


def test_grades_without_answers_have_an_accuracy_and_no_vote(tmp_path: Path):
    only = summary_of(tmp_path, graded(1, 0, 1, 1), graded(0, 0, 0, 1), graded(0, 0, 0, 0))
    assert only.accuracy is not None
    assert only.accuracy.mean == pytest.approx(1 / 3)  # of 3/4, 1/4 and 0
    assert (only.votes, only.unvotable) == ({}, 3)
    assert (only.agreement, only.agreement_budget, only.agreement_problems) == (None, None, 0)
    assert (only.classes_mean, only.classes_max) == (None, 0)
    mixed = summary_of(tmp_path, graded(1, 0, 1, 1), graded(0, 0, 0, 1), answered("4", "5", "4", "4"))
    assert mixed.accuracy is not None
    assert (mixed.accuracy.mean, mixed.accuracy.problems) == (pytest.approx(7 / 12), 3)  # 3/4, 1/4, 3/4
    assert mixed.unvotable == 2
    found = {budget: (vote.mean, vote.problems) for budget, vote in mixed.votes.items()}
    assert found == {1: (0.75, 1), 2: (0.75, 1), 4: (1.0, 1)}  # a tie and a win: 3/4
    assert (mixed.agreement, mixed.agreement_budget, mixed.agreement_problems) == (0.75, 4, 1)
    assert mixed.classes_mean == 2


def test_abstentions_are_wrong_in_votes_and_in_accuracy(tmp_path: Path):
    found = summary_of(tmp_path, answered(None, None), answered("4", None))
    assert found.accuracy is not None
    assert (found.accuracy.mean, found.unvotable) == (0.25, 0)  # of 0 and 1/2
    assert {b: (v.mean, v.problems) for b, v in found.votes.items()} == {1: (0.25, 2), 2: (0.5, 2)}


@pytest.mark.parametrize(
    ("drawn", "gold", "accuracy"),
    [
        ([{"answer": None}], None, None),  # nothing is known
        ([{"answer": None, "correct": None}], "4", 0.0),
        ([{"answer": "4", "correct": 1}, {"answer": None}], None, 0.5),
        ([{"answer": "4", "correct": 1}, {"answer": None, "correct": None}], "4", 0.5),
        ([{"answer": "4", "correct": None}, {"answer": "5", "correct": 0}], None, None),
        ([{"answer": "4", "correct": None}, {"answer": None}], "4", None),
        ([{"answer": None, "correct": 0.5}, {"answer": None, "correct": 0}], None, 0.25),
    ],
)
def test_an_unknown_grade_is_wrong_only_for_an_abstention_where_others_are_known(
    tmp_path: Path, drawn, gold, accuracy
):
    found = summary_of(tmp_path, drawn, gold=gold)
    assert (found.accuracy and found.accuracy.mean) == accuracy


def test_agreement_is_at_the_largest_budget_that_half_of_the_problems_have(tmp_path: Path):
    four, eight = answered(*"4455"), answered(*"44444455")
    ragged = summary_of(tmp_path, answered(*"4" * 16), four, four, four, budgets=(1, 2, 4, 8, 16))
    assert (ragged.agreement_budget, ragged.agreement_problems) == (4, 4)
    assert ragged.agreement == pytest.approx((1 + 3 * 0.5) / 4)
    half = summary_of(tmp_path, eight, eight, four, four, budgets=(1, 2, 4, 8, 16))
    assert (half.agreement, half.agreement_budget, half.agreement_problems) == (0.75, 8, 2)
    assert summary_of(tmp_path, four, budgets=(8, 16)).agreement is None


def test_medians_and_classes_by_hand(tmp_path: Path):
    found = summary_of(tmp_path, answered("4"), answered("5", "6"), answered("4", "5", "6", "7", None, "4"))
    assert (found.samples_median, found.samples_min, found.samples_max) == (2.0, 1, 6)
    assert (found.classes_mean, found.classes_max) == (pytest.approx((1 + 2 + 4) / 3), 4)


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([0.4, 0.6, 0.5], 0.386841, 0.613159),  # 0.5 -+ 1.959964 * 0.1 / sqrt(3)
        ([1.0, 0.0, 1.0, 1.0], 0.260009, 1.0),  # 0.75 -+ 1.959964 * 0.5 / 2, cut at 1
        ([0.0, 0.0, 0.0, 0.0], 0.0, 0.489891),  # no spread: Wilson's, z^2 / (4 + z^2)
        ([1.0, 1.0, 1.0, 1.0], 0.510109, 1.0),
    ],
)
def test_the_interval_is_the_normal_one_over_problems(values: list[float], low: float, high: float):
    found = estimate_mean(np.array(values))
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-6), pytest.approx(high, abs=1e-6))
