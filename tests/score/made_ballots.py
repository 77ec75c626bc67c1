"""Ballots for the tests, and the vote as a person would count it: subset by subset, in fractions."""

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from adacompute.pool import Ballots
from adacompute.pool.ballots import ABSENT, ABSTAINS

Draw = tuple[int, float]  # class, grade


def made(problems: Sequence[Sequence[Draw]], **fields: Any) -> Ballots:
    """Ballots of these samples; short problems are filled up with absent ones."""
    shape = (len(problems), max(map(len, problems)))
    classes, correct = np.full(shape, ABSENT, np.int32), np.full(shape, np.nan, np.float32)
    for i, drawn in enumerate(problems):
        for j, (kind, grade) in enumerate(drawn):
            classes[i, j], correct[i, j] = kind, grade
    plain: dict[str, Any] = {
        "ids": tuple(f"p{i}" for i in range(shape[0])),
        "prompts": ("?" * 8,) * shape[0],
        "subjects": (None,) * shape[0],
        "levels": (None,) * shape[0],
        "gold_known": np.ones(shape[0], dtype=bool),
        "tokens": np.full(shape, np.nan),
        "logprob": np.full(shape, np.nan),
        "entropy": np.full(shape, np.nan),
    }
    return Ballots(classes=classes, correct=correct, **(plain | fields))


def vote(drawn: Sequence[Draw], worth: dict[int, Fraction]) -> Fraction:
    """What the plain vote on these samples is worth."""
    votes = [kind for kind, _ in drawn if kind != ABSTAINS]
    if not votes:
        return Fraction(0)
    most = max(votes.count(kind) for kind in votes)
    leaders = {kind for kind in votes if votes.count(kind) == most}
    return sum((worth[kind] for kind in leaders), Fraction(0)) / len(leaders)


def worths(drawn: Sequence[Draw]) -> dict[int, Fraction]:
    """Each class's mean grade."""
    kinds = {kind for kind, _ in drawn}
    grades = {kind: [Fraction(grade) for k, grade in drawn if k == kind] for kind in kinds}
    return {kind: sum(values, Fraction(0)) / len(values) for kind, values in grades.items()}


def over_subsets(drawn: Sequence[Draw], budget: int, worth: dict[int, Fraction] | None = None) -> Fraction:
    worth = worths(drawn) if worth is None else worth
    votes = [vote(subset, worth) for subset in itertools.combinations(drawn, budget)]
    return sum(votes, Fraction(0)) / len(votes)


def jackknife(drawn: Sequence[Draw], budget: int) -> float:
    """The delete-one standard error; classes keep their worth when a sample goes."""
    n, worth = len(drawn), worths(drawn)
    left = [over_subsets([*drawn[:i], *drawn[i + 1 :]], budget, worth) for i in range(n)]
    mean = sum(left, Fraction(0)) / n
    return float(Fraction(n - 1, n) * sum((value - mean) ** 2 for value in left)) ** 0.5
