"""Dense frontiers: who may be above whom, and that held-out is held-out."""

from dataclasses import replace

import numpy as np
import pytest

from studies.paper.budget_choices import compute_oracle_labels
from studies.paper.paper_pool import PaperPool, score_paper_pool
from studies.paper.pareto import ParetoFrontiers, compute_pareto, fit_folds, space_budgets
from synthetic import poor, synthetic

METHODS = {"fixed", "random", "heuristic", "classifier", "oracle"}


@pytest.fixture(scope="module")
def found(case: PaperPool) -> ParetoFrontiers:
    return compute_pareto(case, quick=True, model="logistic")


def test_every_method_is_there_in_both_readings(found):
    assert set(found.paper) == METHODS
    assert set(found.held_out) == METHODS | {"uniform", "crossfitted"}
    assert found.grid[0] == 1
    assert found.grid[-1] == 16


def test_in_sample_nobody_is_above_the_oracle_at_what_was_spent(case, found):
    for method in METHODS - {"oracle"}:
        curve = found.paper[method]
        bound = np.interp(curve.cost, found.paper["oracle"].cost, found.paper["oracle"].accuracy)
        # between grid points the true frontier, being concave, lies above its chords
        slack = np.diff(found.paper["oracle"].accuracy).max()
        assert (curve.accuracy <= bound + slack).all()
    assert (np.diff(found.paper["oracle"].accuracy) >= -1e-12).all()


def test_fixed_is_a_staircase_and_all_alike_are_its_concave_hull(case, found):
    uniform = found.held_out["uniform"]
    means = case.exact.accuracy.mean(axis=0)
    for cost, accuracy in zip(uniform.cost, uniform.accuracy, strict=True):
        best = max(
            np.interp(cost, [low, high], [means[one], means[other]])
            for one, low in enumerate(case.budgets)
            for other, high in enumerate(case.budgets)
            if low <= cost <= high
        )
        assert accuracy == pytest.approx(best)
    assert set(np.round(found.paper["fixed"].cost, 9)) <= set(map(float, case.budgets))


def test_folds_judge_every_problem_once_and_part_no_question():
    ballots = synthetic(30, 16)
    twice = replace(ballots, prompts=ballots.prompts[:15] * 2)
    case = score_paper_pool(twice, "twice")
    (one,) = fit_folds(case, case.windows, [2.0], folds=5, model="logistic", seed=0)
    assert (~one.train).sum(axis=0).tolist() == [1] * 30
    assert (one.train[:, :15] == one.train[:, 15:]).all()


def test_a_sated_oracle_is_learned_once(case):
    last, beyond = fit_folds(case, case.windows, [15.0, 16.0], folds=2, model="logistic", seed=0)
    labels, price = compute_oracle_labels(case.windows, 15.0)
    assert price == 0.0
    assert (beyond.labels == labels).all()
    assert beyond.predicted is last.predicted


def test_at_one_sample_all_are_the_same(case, found):
    for curves in (found.paper, found.held_out):
        for method in METHODS:
            assert curves[method].cost[0] == pytest.approx(1)
            assert curves[method].accuracy[0] == pytest.approx(case.single.mean())


def test_the_same_seed_gives_the_same_curves(case, found):
    again = compute_pareto(case, quick=True, model="logistic")
    for method in METHODS:
        assert (again.held_out[method].accuracy == found.held_out[method].accuracy).all()


def test_doublings_are_met_exactly():
    grid = space_budgets(16, 24)
    assert {1.0, 2.0, 4.0, 8.0, 16.0} <= set(grid.tolist())


def test_a_poor_pool_has_a_shorter_grid():
    found = compute_pareto(poor(score_paper_pool)["three samples"], quick=True, model="logistic")
    assert found.grid[-1] == 2
    assert "crossfitted" not in found.held_out
