"""The main table: five ways to decide, in both readings, and what each brings at its own cost."""

from dataclasses import replace

import numpy as np
import pytest

from adacompute.report.document import Spread, Table
from studies.paper import main_results
from studies.paper.budget_choices import (
    RULES,
    ClassifierFits,
    JudgedTable,
    choose_by_rule,
    compute_spread,
    fit_classifiers,
)
from studies.paper.main_results import METHODS, MainResults, compute_main_results
from studies.paper.paper_pool import PaperPool
from studies.paper.price_search import TARGET_BUDGETS
from synthetic import POOR

SEEDS = 3


@pytest.fixture(scope="module")
def fits(case: PaperPool) -> dict[float, ClassifierFits]:
    return fit_classifiers(case, (1.2, *TARGET_BUDGETS), seeds=SEEDS, model="logistic")


@pytest.fixture(scope="module")
def found(case: PaperPool, fits: dict[float, ClassifierFits]) -> MainResults:
    return compute_main_results(case, fits)


def test_both_readings_are_those_of_the_fits(case, fits, found):
    assert found.budgets == TARGET_BUDGETS  # not 1.2, which serves another table
    for budget in TARGET_BUDGETS:
        for outcomes, reading in (
            (found.paper, fits[budget].paper(case)),
            (found.held_out, fits[budget].held_out(case)),
        ):
            assert outcomes["classifier", budget].accuracy == pytest.approx(reading.accuracy)
            assert outcomes["classifier", budget].cost == pytest.approx(reading.cost)
            assert outcomes["oracle", budget].accuracy == pytest.approx(reading.oracle)


def test_a_classifier_that_answers_as_the_oracle_brings_what_the_oracle_brings(case, fits):
    perfect = {
        budget: replace(own, predicted=np.tile(own.labels, (SEEDS, 1))) for budget, own in fits.items()
    }
    found = compute_main_results(case, perfect)
    for outcomes in (found.paper, found.held_out):
        for budget in TARGET_BUDGETS:
            one, other = outcomes["classifier", budget], outcomes["oracle", budget]
            assert one.accuracy == pytest.approx(other.accuracy)
            assert one.gain == other.gain


def test_rules_keep_their_budgets(case, found):
    for budget in TARGET_BUDGETS:
        largest = max(mode for mode in case.budgets if mode <= budget)
        assert found.paper["fixed", budget].spent == largest
        assert found.paper["heuristic", budget].spent == pytest.approx(budget, abs=16 / len(case))
        assert found.paper["random", budget].spent == pytest.approx(budget, abs=0.5)


def test_the_heuristic_gives_most_to_the_longest_prompts_it_has_seen(case):
    seen = np.ones((1, len(case)), dtype=bool)
    columns = choose_by_rule(case, "heuristic", 2.0, seen=seen)[0]
    lengths = np.array([len(prompt) for prompt in case.ballots.prompts])
    assert lengths[columns > 0].min() >= lengths[columns == 0].max()


def test_held_out_counts_only_problems_not_learned_from(case, fits, found):
    train = fits[2.0].train
    one = found.held_out["fixed", 2.0]
    for seed, own in enumerate(train):
        assert one.accuracy[seed] == pytest.approx(case.exact.accuracy[~own, 1].mean())


def test_all_alike_gain_nothing_over_the_best_mix_and_dealing_them_by_lot_changes_nothing(found):
    for outcomes in (found.paper, found.held_out):
        for budget in TARGET_BUDGETS:
            one = outcomes["fixed", budget]
            assert (
                max(one.gain.mean, one.gain.high) <= 1e-12
            )  # two votes may be worth less than 1 and 4, mixed
            if budget < 2:
                assert [one.gain.mean, one.gain.low] == pytest.approx([0, 0], abs=1e-12)
            assert one.knowing.mean == pytest.approx(0, abs=1e-12)


def test_gain_and_lot_agree_with_counting_by_hand(case):
    rng = np.random.default_rng(3)
    mask = rng.random((2, len(case))) < 0.4
    columns = rng.integers(0, 5, (2, len(case)))
    one = JudgedTable.of(case.exact, mask).compute_outcome(columns)
    seeds, rows = np.nonzero(mask)
    chosen = columns[seeds, rows]
    accuracy, alike = case.exact.accuracy[rows, chosen].mean(), case.exact.accuracy[rows].mean(axis=0)
    cost = case.exact.costs[chosen].mean()
    assert (one.interval.mean, one.spent) == (pytest.approx(accuracy), pytest.approx(cost))
    assert one.alike == pytest.approx(np.interp(cost, case.exact.costs, alike))
    assert one.dealt == pytest.approx(np.bincount(chosen, minlength=5) / len(chosen) @ alike)
    for interval, other in ((one.gain, one.alike), (one.knowing, one.dealt)):
        assert interval.mean == pytest.approx(accuracy - other)
        assert interval.low is not None
        assert interval.high is not None
        assert interval.low < interval.mean < interval.high


def test_one_judged_problem_has_no_interval(case):
    mask = np.zeros((1, len(case)), dtype=bool)
    mask[0, 7] = True
    one = JudgedTable.of(case.exact, mask).compute_outcome(np.full((1, len(case)), 4))
    assert one.interval.mean == pytest.approx(case.exact.accuracy[7, 4])
    assert (one.interval.low, one.gain.high) == (None, None)


def test_the_crossfitted_oracle_is_there_where_samples_can_be_halved(poor_cases, found):
    assert set(found.crossfitted) == set(TARGET_BUDGETS)
    few = poor_cases["no signals"]
    assert (
        compute_main_results(few, fit_classifiers(few, (1.5,), seeds=1, model="logistic")).crossfitted == {}
    )


def test_one_seed_has_no_spread():
    assert compute_spread(np.array([0.5])) == Spread(mean=0.5, std=0.0)


def cell(table: Table, row: str, column: str) -> object:
    names = [one.name for one in table.columns]
    return next(cells for cells in table.rows if cells[0] == row)[names.index(column)]


def test_the_tables_hold_the_numbers(case, fits, found):
    paper, held_out, matched = main_results.build_section(case, fits).tables
    assert [row[0] for row in paper.rows] == [main_results.METHOD_LABELS[method] for method in METHODS]
    assert cell(paper, "classifier", "B = 2") == compute_spread(found.paper["classifier", 2.0].accuracy)
    assert cell(held_out, "classifier", "cost at 3") == pytest.approx(found.held_out["classifier", 3.0].spent)
    assert cell(held_out, "oracle, cross-fitted", "B = 2") == compute_spread(found.crossfitted[2.0].accuracy)
    assert [row[1] for row in matched.rows] == ["scored as the paper does", "held-out"] * 3
    assert matched.rows[1][5] == found.held_out["classifier", 1.5].gain
    assert f"{found.paper['classifier', 1.5].alike:.1%}" in paper.note


@pytest.mark.parametrize("name", POOR)
def test_a_poor_pool_gets_its_tables(poor_cases, name: str):
    case = poor_cases[name]
    budgets = [budget for budget in TARGET_BUDGETS if budget <= case.budgets[-1]]
    section = main_results.build_section(case, fit_classifiers(case, budgets, seeds=1, model="logistic"))
    assert section.words
    assert [len(table.rows) for table in section.tables] == [5, 5, 2 * len(budgets)]
    assert any("cross-fitted" in line for line in section.missing)
    assert len([line for line in section.missing if line.startswith("B = ")]) == len(TARGET_BUDGETS) - len(
        budgets
    )
    assert (section.words == (main_results.NOTHING,)) == (name in ("all right", "all wrong", "two samples"))


def test_every_rule_is_a_method():
    assert set(RULES) < set(METHODS)
