"""The classifier by how much it learned from, in both readings."""

from dataclasses import replace

import numpy as np
import pytest

from adacompute.report.document import Spread
from studies.paper.budget_choices import compute_oracle_labels
from studies.paper.label_efficiency import EfficiencyReading, compute_efficiency
from studies.paper.paper_pool import PaperPool, score_paper_pool
from synthetic import poor, synthetic


@pytest.fixture(scope="module")
def case() -> PaperPool:
    return score_paper_pool(synthetic(40, 8), "dice")


def test_accuracy_on_all_problems_grows_with_the_share_that_was_learned_from(case):
    found = compute_efficiency(case, targets=(2.0,), fractions=(0.2, 1.0), seeds=2)
    (curve,) = found.curves
    assert found.learned == (6, 32)
    assert curve.paper.accuracy[1].mean > curve.paper.accuracy[0].mean  # of dice nothing else can be learned
    assert curve.paper.accuracy[1].mean <= curve.paper.oracle + 1e-12
    assert curve.paper.fixed == pytest.approx(case.windows.accuracy[:, 1].mean())


def test_a_feature_that_names_the_budget_reaches_the_oracle_held_out_too(case):
    labels, _ = compute_oracle_labels(case.windows, 2.0)
    told = replace(case, features=np.repeat(labels[:, None].astype(np.float64), 2, axis=1))
    (curve,) = compute_efficiency(told, targets=(2.0,), fractions=(1.0,), seeds=2).curves
    assert curve.paper.accuracy[0].mean == pytest.approx(curve.paper.oracle, abs=0.03)
    assert curve.held_out.accuracy[0].mean == pytest.approx(curve.held_out.oracle, abs=0.05)


def test_the_share_from_which_on_a_curve_stays_above_fixed():
    def curve(*means: float) -> EfficiencyReading:
        spreads = tuple(Spread(mean=mean, std=0.0) for mean in means)
        return EfficiencyReading(
            accuracy=spreads, cost=spreads, gain=spreads, oracle=1.0, fixed=0.5, fixed_cost=1.0
        )

    shares = (0.1, 0.5, 1.0)
    assert curve(0.6, 0.6, 0.6).find_crossing(shares) == 0.1
    assert curve(0.6, 0.4, 0.6).find_crossing(shares) == 1.0
    assert curve(0.4, 0.6, 0.5).find_crossing(shares) is None


def test_budgets_out_of_reach_have_no_curve():
    found = compute_efficiency(poor(score_paper_pool)["three samples"], fractions=(1.0,), seeds=1)
    assert [curve.budget for curve in found.curves] == [1.5, 2.0]
