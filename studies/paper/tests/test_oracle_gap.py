"""Oracle gap and imitation: zero for the oracle itself, and beside what always one answer would get."""

from dataclasses import replace

import numpy as np
import pytest

from studies.paper import oracle_gap
from studies.paper.budget_choices import ClassifierFits, fit_classifiers
from studies.paper.oracle_gap import compute_gaps
from studies.paper.paper_pool import PaperPool
from synthetic import POOR

SEEDS = 2


@pytest.fixture(scope="module")
def fits(case: PaperPool) -> dict[float, ClassifierFits]:
    return fit_classifiers(case, (1.5, 3.0), seeds=SEEDS, model="logistic")


def test_the_oracle_itself_has_no_gap_and_imitates_all(case, fits):
    perfect = {
        budget: replace(own, predicted=np.tile(own.labels, (SEEDS, 1))) for budget, own in fits.items()
    }
    for one in compute_gaps(case, perfect):
        for reading in (one.paper, one.held_out):
            assert reading.gap == pytest.approx(0)
            assert reading.imitation == pytest.approx(1)


def test_always_the_commonest_budget_is_not_ahead_of_itself(case, fits):
    common = np.array([np.bincount(fits[3.0].labels[train]).argmax() for train in fits[3.0].train])
    lazy = replace(fits[3.0], predicted=np.repeat(common[:, None], len(case), axis=1))
    (one,) = compute_gaps(case, {3.0: lazy})
    for reading in (one.paper, one.held_out):
        assert reading.imitation == pytest.approx(reading.majority)
        assert (reading.ahead.mean, reading.ahead.low, reading.ahead.high) == (0, 0, 0)
        assert reading.ahead.holds_zero
    assert one.commonest == tuple(sorted({case.budgets[at] for at in common.tolist()}))


def test_ahead_and_spent_are_those_of_the_judged_problems(case, fits):
    for one in compute_gaps(case, fits):
        own = fits[one.budget]
        apart = ~own.train
        right = (own.predicted == own.labels)[apart].mean()
        assert one.held_out.ahead.mean == pytest.approx(right - one.held_out.majority.mean())  # equal shares
        assert one.held_out.spent.mean == pytest.approx(case.exact.costs[own.predicted][apart].mean())
        assert one.held_out.gap == pytest.approx(one.held_out.oracle - one.held_out.accuracy)


def test_the_table_has_both_readings_of_every_budget_and_the_words_say_what_shows(case, fits):
    section = oracle_gap.build_section(case, fits)
    (table,) = section.tables
    assert [row[:2] for row in table.rows] == [
        (budget, reading) for budget in (1.5, 3.0) for reading in ("scored as the paper does", "held-out")
    ]
    held_out = [one.held_out for one in compute_gaps(case, fits)]
    worse = [own for own in held_out if own.ahead.high is not None and own.ahead.high < 0]
    assert ("imitates worse" in section.words[1]) == bool(worse)
    assert f"{held_out[0].spent.mean:.2f}" in section.words[2]


@pytest.mark.parametrize("name", POOR)
def test_a_poor_pool_gets_its_table(poor_cases, name: str):
    case = poor_cases[name]
    budgets = [budget for budget in (1.5, 3.0) if budget <= case.budgets[-1]]
    section = oracle_gap.build_section(case, fit_classifiers(case, budgets, seeds=1, model="logistic"))
    assert len(section.tables[0].rows) == 2 * len(budgets)
    assert section.words
