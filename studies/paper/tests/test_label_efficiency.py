"""By how much was learned: the classifier in both readings, and what must be recorded for stopping."""

from dataclasses import replace

import numpy as np
import pytest

from adacompute.evaluate.scored_pool import ScoredPool, score_pool
from adacompute.report.document import Spread
from adacompute.report.exhibits.data_efficiency import DataEfficiency, measure_data_efficiency
from studies.paper.budget_choices import compute_oracle_labels
from studies.paper.label_efficiency import EfficiencyReading, compute_efficiency
from synthetic import poor, synthetic


@pytest.fixture(scope="module")
def case() -> ScoredPool:
    return score_pool(synthetic(40, 8), "dice")


@pytest.fixture(scope="module")
def grown() -> DataEfficiency:
    return measure_data_efficiency(
        score_pool(synthetic(20, 12), "dice"), problems=(4,), samples=(8,), orders=2
    )


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
    found = compute_efficiency(poor()["three samples"], fractions=(1.0,), seeds=1)
    assert [curve.budget for curve in found.curves] == [1.5, 2.0]


def test_every_amount_is_judged_at_the_same_cost(grown):
    for one in (*grown.by_problems, *grown.by_samples):
        assert one.cost <= grown.budget + 1e-9
        assert 0.0 <= one.accuracy.mean <= 1.0
        if one.cost == pytest.approx(grown.budget):
            assert one.accuracy.mean - one.gain.mean == pytest.approx(grown.uniform.mean)


def test_only_stopping_begins_with_nothing_learned(grown):
    assert [one.problems for one in grown.of("stopping", by="problems")] == [0, 4, 10]
    assert [one.problems for one in grown.of("classifier", by="problems")] == [4, 10]
    assert [one.samples for one in grown.of("classifier", by="samples")] == [8, 12]


def test_what_is_varied_both_ways_is_the_same_where_they_meet(grown):
    by_problems = {one.problems: one for one in grown.of("stopping", by="problems")}
    assert by_problems[grown.across] == grown.of("stopping", by="samples")[-1]


def test_where_everything_is_right_nothing_is_gained():
    found = measure_data_efficiency(poor()["all right"], problems=(), samples=(), cap=4, orders=2)
    for one in (*found.by_problems, *found.by_samples):
        assert one.accuracy.mean == 1.0
        assert one.gain.mean == pytest.approx(0.0, abs=1e-12)
