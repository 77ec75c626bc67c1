"""Features: noise has its share of the gain, and tells nothing of new problems."""

from dataclasses import replace

import numpy as np
import pytest

from adacompute.policies.features import FEATURE_NAMES
from studies.paper.budget_choices import compute_oracle_labels
from studies.paper.importance import compute_gains, compute_importance
from studies.paper.paper_pool import PaperPool, score_paper_pool
from synthetic import poor, synthetic


@pytest.fixture(scope="module")
def case() -> PaperPool:
    return score_paper_pool(synthetic(40, 16), "dice")


@pytest.fixture(scope="module")
def planted(case: PaperPool) -> PaperPool:
    """One feature names the oracle's budget, the others are dice."""
    labels, _ = compute_oracle_labels(case.windows, 2.0)
    told = np.random.default_rng(0).random(case.features.shape)
    told[:, 3] = labels
    return replace(case, features=told)


def test_noise_has_its_share_of_the_gain_and_loses_nothing_when_shuffled(case):
    noise = replace(case, features=np.random.default_rng(1).random(case.features.shape))
    found = compute_importance(noise, repeats=2)
    assert found.gain.sum() == pytest.approx(1.0)
    assert (found.gain > 0).sum() > 8
    assert len(found.telling) <= 1
    assert found.kept <= found.majority + 0.1


def test_a_feature_that_names_the_budget_is_found_both_ways(planted):
    found = compute_importance(planted, repeats=2)
    assert found.order[0] == 3
    assert FEATURE_NAMES[3] in found.telling
    assert found.kept > found.majority
    assert found.imitation[3].mean == max(lost.mean for lost in found.imitation)


def test_signatures_are_class_means_that_average_to_nothing(case):
    found = compute_importance(case, repeats=1)
    assert found.counts.sum() == len(case)
    weighted = (found.signature * found.counts).sum(axis=1) / len(case)
    assert weighted == pytest.approx(np.zeros(len(found.names)), abs=1e-9)
    spread = found.along.std(axis=1)
    assert ((np.abs(spread - 1) < 1e-9) | (spread == 0)).all()


def test_without_entropy_there_are_fifteen_features():
    assert compute_importance(poor(score_paper_pool)["no signals"], repeats=1).names == FEATURE_NAMES[:-1]


def test_one_class_has_no_importance():
    found = compute_importance(poor(score_paper_pool)["all right"], repeats=1)
    assert found.classes == (1,)
    assert not found.gain.any()
    assert found.kept == 1.0


def test_gains_are_the_shares_of_what_was_split_on():
    rng = np.random.default_rng(0)
    rows = rng.random((200, 3))
    rows[:, 1] = 0.0  # never split on
    found = compute_gains(rows, (rows[:, 2] > 0.5).astype(np.int64), seed=0)
    assert found.sum() == pytest.approx(1.0)
    assert found[1] == 0.0
    assert found[2] > found[0]
