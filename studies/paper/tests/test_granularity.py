"""Sets of budgets: a finer one can only help the oracle in-sample, and is told cross-fitted too."""

from itertools import pairwise

import pytest

from adacompute.errors import TooFewSamples
from adacompute.solve import solve
from studies.paper.granularity import BUDGET_SETS, Granularity, compute_granularity
from studies.paper.paper_pool import PaperPool


@pytest.fixture(scope="module")
def found(case: PaperPool) -> Granularity:
    return compute_granularity(case, quick=True, model="logistic")


def test_more_budgets_never_harm_the_oracle_in_sample(found):
    assert [tier.budgets for tier in found.tiers] == list(BUDGET_SETS.values())
    for before, tier in pairwise(found.tiers):
        assert set(before.budgets) < set(tier.budgets)
        assert tier.windows >= before.windows - 1e-12
        assert tier.exact >= before.exact - 1e-12


def test_the_default_set_is_the_cases_own(case, found):
    default = found.tiers[1]
    plan = solve(case.windows, budget=2.0)
    assert default.windows == pytest.approx(plan.mixed_accuracy)
    assert default.labels.tolist() == pytest.approx([count / len(case) for count in plan.counts])


def test_labels_are_shares_and_average_out_within_the_budget(found):
    for tier in found.tiers:
        assert tier.labels.sum() == pytest.approx(1)
        assert tier.labels @ tier.budgets <= found.at + 1e-9


def test_the_crossfitted_value_lies_below_the_one_in_sample_and_its_step_is_paired(found):
    assert found.tiers[0].step is None
    for before, tier in pairwise(found.tiers):
        assert tier.crossfitted is not None
        assert tier.crossfitted < tier.exact
        assert tier.step is not None
        assert tier.step.mean == pytest.approx(tier.crossfitted - before.crossfitted)


def test_samples_that_can_not_be_halved_leave_the_crossfitted_value_out(poor_cases):
    found = compute_granularity(poor_cases["ten problems"], quick=True, model="logistic")
    assert [tier.crossfitted for tier in found.tiers] == [None] * 3
    assert all(tier.halved is None for tier in found.tiers)


def test_sets_shrink_to_what_was_recorded_and_are_refused_when_they_no_longer_differ(poor_cases):
    found = compute_granularity(poor_cases["three samples"], quick=True, model="logistic")
    assert {tier.name: tier.budgets for tier in found.tiers} == {"default": (1, 2), "fine": (1, 2, 3)}
    with pytest.raises(TooFewSamples, match="2 samples"):
        compute_granularity(poor_cases["two samples"], quick=True, model="logistic")
