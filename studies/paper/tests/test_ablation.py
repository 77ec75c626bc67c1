"""Learners of the oracle's budgets: what is looked up when rows are split at random, and the regret bound."""

from dataclasses import replace

import numpy as np
import pytest

from adacompute.errors import TooFewSamples
from studies.paper.ablation import LEARNER_NAMES, READINGS, Ablation, compute_ablation
from studies.paper.learners import fit_learner
from studies.paper.paper_pool import PaperPool, score_paper_pool
from synthetic import poor, synthetic

SPLITS = 2
PAPER, HELD_OUT = READINGS


@pytest.fixture(scope="module")
def case() -> PaperPool:
    return score_paper_pool(synthetic(40, 16), "dice")


@pytest.fixture(scope="module")
def found(case: PaperPool) -> Ablation:
    return compute_ablation([case], splits=SPLITS)


def test_what_is_to_be_learned_from_noise_is_looked_up_where_rows_are_split_at_random(found):
    # no feature of these prompts tells anything, but each prompt is told from the others by its numbers
    seen, new = found.score_of("forest", PAPER), found.score_of("forest", HELD_OUT)
    assert seen.imitation.mean > new.imitation.mean
    assert seen.imitation.mean > seen.majority.mean


def test_the_same_share_of_each_label_is_judged_where_rows_are_split_at_random(found):
    for model in LEARNER_NAMES:
        assert found.score_of(model, PAPER).majority.std == pytest.approx(0.0, abs=1e-12)


def test_no_relaxed_regret_is_negative_or_above_the_theorems_bound(found):
    assert found.count_above("relaxed", of="worst") == 0
    for some in found.points:
        assert (some.relaxed >= -1e-12).all()
        assert (some.relaxed <= found.worst_gap * some.error + 1e-12).all()
        assert len(some.error) == SPLITS * len(LEARNER_NAMES)
    assert found.mean_gap <= found.worst_gap


def test_points_above_a_line_are_counted(found):
    low = replace(found, mean_gap=0.0)
    wrong = sum(int((some.task > 1e-12).sum()) for some in found.points)
    assert low.count_above("task", of="mean") == wrong
    assert 0 <= found.count_above("task", of="mean") <= wrong


def test_confusion_counts_every_judged_row_and_its_diagonal_is_the_imitation(found):
    trees = found.score_of("xgboost", PAPER)
    counts = found.confusion[0]
    assert np.trace(counts) / counts.sum() == pytest.approx(trees.imitation.mean)
    known = found.normalised[0][counts.sum(axis=1) > 0]
    assert known.sum(axis=1) == pytest.approx(np.ones(len(known)))


def test_error_and_imitation_are_two_sides_of_one(found):
    for some in found.points:
        for model in LEARNER_NAMES:
            own = [error for name, error in zip(some.model, some.error, strict=True) if name == model]
            assert 1 - np.mean(own) == pytest.approx(found.score_of(model, some.reading).imitation.mean)


def test_a_feature_that_names_the_label_is_learned_by_all_in_both_readings(case):
    from studies.paper.budget_choices import compute_oracle_labels

    labels, _ = compute_oracle_labels(case.windows, 2.0)
    told = np.zeros_like(case.features)
    told[np.arange(len(labels)), labels] = 1.0
    found = compute_ablation([replace(case, features=told)], targets=(2.0,), splits=1)
    for reading in READINGS:
        assert found.score_of("forest", reading).imitation.mean >= 0.85
        assert found.score_of("logistic", reading).imitation.mean >= 0.85


def test_recordings_without_entropy_stand_beside_those_with_it(case):
    bare = score_paper_pool(synthetic(20, 6, signals=False, seed=2), "bare")
    found = compute_ablation([case, bare], targets=(1.5,), splits=1)
    assert found.rows == len(case) + len(bare)
    assert found.budgets == (1, 2, 4)
    assert all(len(one.by_case) == 2 for one in found.outcomes)


def test_where_nothing_is_to_be_learned_everyone_imitates_perfectly():
    found = compute_ablation([poor(score_paper_pool)["all right"]], splits=1)
    assert all(one.imitation.mean == 1.0 for one in found.outcomes)
    assert found.slope == 0.0


@pytest.mark.parametrize("name", LEARNER_NAMES)
def test_a_class_that_is_absent_is_never_predicted_and_a_single_one_always(name: str):
    rng = np.random.default_rng(1)
    rows, others = rng.normal(size=(160, 7)), rng.normal(size=(300, 7))
    labels = np.array([1, 4, 16])[np.digitize(rows[:, 0], [-0.5, 0.5])]
    rows[rng.random(rows.shape) < 0.1] = others[rng.random(others.shape) < 0.1] = np.nan
    predict = fit_learner(name, rows, labels, seed=0)
    assert set(predict(others)) <= {1, 4, 16}
    assert (predict(rows) == labels).mean() > 0.6
    assert set(fit_learner(name, rows, np.full(160, 4), seed=0)(others)) == {4}


def test_budgets_out_of_reach_are_refused_where_none_is_left():
    with pytest.raises(TooFewSamples, match="collect more samples"):
        compute_ablation([poor(score_paper_pool)["three samples"]], targets=(3.0,))
