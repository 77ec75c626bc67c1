"""The numbers of the exhibits, on an evaluation whose every number is known."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from handmade import BUDGETS, EACH, evaluated, handmade

from adacompute.evaluate.comparison import Evaluation, format_samples
from adacompute.evaluate.conclusions import EvaluationRuns
from adacompute.evaluate.oracle_bounds import Oracle
from adacompute.evaluate.protocols import run_policies
from adacompute.records import TokenPrices
from adacompute.replay.matching import Interval
from adacompute.report.document import Column, compute_saved, format_cell
from adacompute.report.exhibits.frontier import PolicyFrontier, trace_frontier
from adacompute.report.exhibits.money import (
    Money,
    build_money_data,
    build_money_table,
    describe_money,
    find_saving,
)
from adacompute.report.exhibits.worth import list_above, measure_makeup
from synthetic import synthetic


@pytest.fixture(scope="module")
def found() -> EvaluationRuns:
    return handmade()


@pytest.fixture(scope="module")
def oracle(found: EvaluationRuns) -> Oracle:
    return Oracle.of(found.setup)


@pytest.fixture(scope="module")
def evaluation(found: EvaluationRuns, oracle: Oracle) -> Evaluation:
    return evaluated(found, oracle)


@pytest.fixture(scope="module")
def frontier(found: EvaluationRuns, oracle: Oracle) -> PolicyFrontier:
    return trace_frontier(found, oracle=oracle)


def test_half_the_cost_is_the_uniform_line_moved_by_a_doubling(frontier: PolicyFrontier):
    plain, ours = frontier.get("fixed"), frontier.get("stopping")
    for cost in (1.0, 1.5, 2.0, 4.0, 8.0):
        assert ours.at(cost) == pytest.approx(plain.at(2 * cost), abs=1e-9)
    assert ours.cost[-1] == 8.0  # its best setting, and no further
    assert plain.cost[-1] == 16.0
    assert ours.at(9.0) is None


def test_bands_hold_their_lines_and_uniform_gains_nothing_over_itself(frontier: PolicyFrontier):
    for line in frontier.curves:
        assert (line.low <= line.accuracy).all()
        assert (line.accuracy <= line.high).all()
        assert (line.gain_low <= line.gain + 1e-12).all()
        assert (line.gain <= line.gain_high + 1e-12).all()
    for name in ("fixed", "curve"):
        assert np.allclose(frontier.get(name).gain, 0.0, atol=1e-12)
    assert np.allclose(frontier.get("heuristic").gain, -0.05, atol=1e-9)


def test_every_budget_asked_for_is_on_the_grid(frontier: PolicyFrontier):
    for budget in BUDGETS:
        assert np.isclose(frontier.get("fixed").cost, budget).any()
        assert np.isclose(frontier.oracle.cost, budget).any()


def test_the_oracles_ends_rise_and_the_in_sample_one_is_above(frontier: PolicyFrontier):
    oracle = frontier.oracle
    assert (np.diff(oracle.high) >= -1e-12).all()
    assert (oracle.high >= oracle.low - 1e-9).all()
    assert oracle.choices == (1, 2, 4, 8, 16)


@pytest.mark.parametrize(("value", "text"), [(8.0, "8"), (7.96, "8"), (9.49, "9.5"), (16.0, "16")])
def test_samples_are_written_with_a_tenth_at_most(value: float, text: str):
    assert format_samples(value) == text


def test_money_is_tokens_times_prices(evaluation: Evaluation):
    money = Money(prices=TokenPrices(input=1.0, output=4.0), requests=1000)
    data = build_money_data(evaluation, money)
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data["prompt_tokens_per_request"] == 100.0
    for row, one in zip(data["rows"], money.compute_savings(evaluation.verdict), strict=True):
        assert row["same_as"] == pytest.approx(2 * row["budget"])
        assert one.cost == row["cost"] == pytest.approx(row["budget"] * (100 * 1.0 + EACH * 4.0) / 1e6)
        assert one.amount == pytest.approx(one.cost)  # twice as much is paid uniformly


def test_without_tokens_nothing_has_a_price():
    money = Money(prices=TokenPrices(output=1.0))
    bare = evaluated(handmade(tokens=False))
    assert money.compute_savings(bare.verdict) == ()
    assert build_money_data(bare, money)["words"] is None


def test_where_uniform_needs_more_than_was_recorded_its_price_is_a_bound(evaluation: Evaluation):
    money = Money(prices=TokenPrices(output=1.0))
    row = evaluation.verdict.row(6.0)
    assert row is not None
    assert row.use is not None
    use = replace(row.use, uniform_tokens=16 * EACH)  # of the most recorded
    endless = replace(row, worth=Interval(mean=math.inf, low=14.9, high=math.inf), use=use)
    beyond = replace(evaluation, verdict=replace(evaluation.verdict, rows=(endless,), budget=6.0))
    data = build_money_data(beyond, money)
    assert data["rows"][0]["same_as"] is None
    (saving,) = money.compute_savings(beyond.verdict)
    assert saving.is_bound
    table = build_money_table(money, beyond)
    texts = [format_cell(cell, column) for cell, column in zip(table.rows[0], table.columns, strict=True)]
    assert texts[1] == "> 16 (14.9 to > 16)"
    assert all(text.startswith("> ") for text in (texts[3], *texts[5:]))
    assert table.records()[0]["money saved"] is None  # a bound is no value
    assert "costs more than 0.800 USD" in data["words"]


def test_money_is_said_in_the_readers_currency_and_claims_no_saving_that_is_not_certain(
    evaluation: Evaluation,
):
    money = Money(prices=TokenPrices(input=1.0, output=4.0, currency="EUR"), prompt_tokens=100.0)
    data = build_money_data(evaluation, money)
    assert data["words"] == (
        "At 4 EUR per million output tokens and 1 per million of prompts, 1,000 requests cost 0.900 EUR at 3 "
        "samples on average; uniform sampling costs 1.80 EUR for the same accuracy, so 0.900 EUR (50%) are "
        "saved."
    )
    saving = find_saving(data)
    assert saving is not None
    unsure = describe_money(saving, money, pays=False)
    assert unsure.endswith("no saving over uniform sampling is certain.")
    undecided = replace(evaluation, verdict=replace(evaluation.verdict, decided="not decided yet"))
    sure, hidden = (build_money_table(money, each) for each in (evaluation, undecided))
    assert [column.name for column in sure.columns[-3:]] == ["EUR saved", "EUR saved a month", "money saved"]
    assert not any("saved" in column.name for column in hidden.columns)
    assert len(hidden.rows[0]) == len(hidden.columns)


def test_where_the_same_accuracy_costs_more_money_that_is_said(evaluation: Evaluation):
    money = Money(prices=TokenPrices(output=1.0))
    saving = find_saving(build_money_data(evaluation, money))
    assert saving is not None
    dear = replace(saving, cost=0.003, same_cost=0.002)
    words = describe_money(dear, money, pays=True)
    assert words.endswith(
        "uniform sampling costs 2.00 USD for the same accuracy, 1.00 USD less: this costs more."
    )
    assert "saved" not in words


@pytest.mark.parametrize(
    ("needed", "shown"),
    [
        (Interval(mean=6.0, low=4.0, high=10.0), "50% (25% to 70%)"),
        (Interval(mean=10.0, low=5.0, high=math.inf), "70% (40% to > 81%)"),
        (Interval(mean=math.inf, low=math.inf, high=math.inf), "> 81% (> 81% to > 81%)"),
        (Interval(mean=2.0, low=None, high=None), "-50%"),
    ],
)
def test_what_is_saved_is_a_bound_exactly_where_uniform_needs_more_than_was_recorded(
    needed: Interval, shown: str
):
    saved = compute_saved(3.0, needed, longest=16)
    assert format_cell(saved, Column(name="saved", kind="percent")) == shown


def test_who_is_above_uniform_is_told_by_intervals(evaluation: Evaluation, found: EvaluationRuns):
    above = list_above(found, evaluation)
    assert tuple(above) == BUDGETS
    assert all([one.policy for one in matches] == ["stopping"] for matches in above.values())
    makeup = measure_makeup(found)
    right = found.setup.ballots.correct
    assert makeup.always == pytest.approx((right.min(axis=1) == 1).mean())
    assert makeup.never == pytest.approx((right.max(axis=1) == 0).mean())
    assert makeup.rises == 1.0


@pytest.mark.slow
def test_tokens_are_known_at_every_setting_of_a_dial():
    run = run_policies(synthetic(24, 8), budgets=(2, 3), policies=("fixed", "stopping"), parts=2, orders=3)
    tokens = run.get("stopping").point_tokens
    assert tokens.shape == run.get("stopping").points.cost.shape
    assert np.isfinite(tokens).all()
