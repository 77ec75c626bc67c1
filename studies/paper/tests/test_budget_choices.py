"""All alike at a classifier's own cost: no mix of two budgets is better, and nobody gains over himself."""

from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest

from adacompute.records import AccuracyTable
from adacompute.solve import frontier
from studies.paper.budget_choices import (
    ChoiceOutcome,
    ClassifierFits,
    JudgedTable,
    fit_classifiers,
    mix_accuracy,
)
from studies.paper.paper_pool import PaperPool


@pytest.mark.parametrize("seed", range(5))
def test_a_mix_of_two_is_the_hull_of_the_budgets(seed: int):
    rng = np.random.default_rng(seed)
    costs, accuracy = np.array([1.0, 2.0, 4.0, 8.0]), np.maximum.accumulate(rng.random(4))
    asked = rng.uniform(1, 8, 20)
    best = frontier(AccuracyTable.of(accuracy[None], costs=costs))
    found = mix_accuracy(costs, np.tile(accuracy, (20, 1)), asked)
    assert found == pytest.approx([best.at(float(one)) for one in asked])


def test_no_mix_within_the_cost_is_better():
    costs, accuracy = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.4, 0.6])
    found = mix_accuracy(costs, accuracy[None], np.array([3.0]))[0]
    for low, high in combinations_with_replacement(range(3), 2):
        for share in np.linspace(0, 1, 11):
            if (1 - share) * costs[low] + share * costs[high] <= 3:
                assert (1 - share) * accuracy[low] + share * accuracy[high] <= found + 1e-12


@pytest.fixture(scope="module")
def taught(good: PaperPool) -> ClassifierFits:
    return fit_classifiers(good, [3.0], seeds=2)[3.0]


def alike(case: PaperPool, fits: ClassifierFits) -> ChoiceOutcome:
    return JudgedTable.of(case.exact, ~fits.train).compute_outcome(fits.predicted)


def test_who_gives_all_problems_the_same_gains_nothing(good: PaperPool, taught: ClassifierFits):
    found = alike(good, replace(taught, predicted=np.full_like(taught.predicted, 2)))
    assert found.spent == 4
    assert found.gain.mean <= 1e-12
    assert found.gain.high is not None
    assert found.gain.high <= 1e-12


def test_who_knows_the_oracles_budgets_gains(good: PaperPool, taught: ClassifierFits):
    known = np.broadcast_to(taught.labels, taught.predicted.shape)
    found = alike(good, replace(taught, predicted=known))
    assert found.gain.low is not None
    assert found.gain.low > 0
