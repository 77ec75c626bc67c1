"""The accuracy table is checked once, when it is made: each bad cell is named. Allocations and frontiers."""

import re
from typing import Any

import numpy as np
import pytest

from adacompute.errors import BudgetInvalid, BudgetOutOfRange, TableInvalid
from adacompute.records import AccuracyTable, Budget
from adacompute.solve import Frontier
from adacompute.solve.pricing import Allocation, Mix

GOOD = [[0.5, 0.9], [0.6, 0.8]]


@pytest.mark.parametrize(
    ("accuracy", "costs", "message"),
    [
        (
            [[0.5, np.nan]],
            [1, 2],
            r"accuracy of mode 2 for problem 0 \(row 0, column 1\) is nan; give a number from 0 to 1",
        ),
        ([[0.5, 0.6], [1.5, 0.7]], [1, 2], r"mode 1 for problem 1 \(row 1, column 0\) is 1.5"),
        ([[-0.1, 0.6]], [1, 2], r"row 0, column 0\) is -0.1"),
        ([[np.inf, 0.6]], [1, 2], r"row 0, column 0\) is inf"),
        (GOOD, [1, -2], r"cost of mode -2 \(column 1\) is -2.0; give a number from 0 up"),
        (GOOD, [1, np.nan], r"cost of mode .* \(column 1\) is nan"),
        (GOOD, [1, np.inf], r"cost of mode .* \(column 1\) is inf"),
        (GOOD, [2, 1], r"cost of mode 1 \(column 1\) is 1.0, below 2.0 of the mode before it; put modes in"),
        (GOOD, [[1, 2], [3, 2]], r"for problem 1 \(row 1, column 1\) is 2.0, below 3.0"),
        (GOOD, [[1, 2], [-1, 2]], r"for problem 1 \(row 1, column 0\) is -1.0"),
        (GOOD, [1, 2, 3], r"costs of shape \(3,\) don't fit accuracy of shape \(2, 2\)"),
        (GOOD, 1.0, r"costs of shape \(\) don't fit"),
        ([], [1], r"accuracy of shape \(0,\) is not a table"),
        (np.zeros((0, 2)), [1, 2], r"accuracy of shape \(0, 2\) is not a table; .* at least one of each"),
        ([0.5, 0.6], [1, 2], r"accuracy of shape \(2,\) is not a table"),
        ([[0.5], [0.6, 0.7]], [1, 2], r"accuracy can't be read as an array of numbers"),
        ([["a", "b"]], [1, 2], r"accuracy can't be read as an array of numbers"),
        (GOOD, None, r"costs .*"),
        (GOOD, [1e-300, 1], r"cost of mode 1e-300 \(column 0\) is 1e-300; .*0, or 1e-200 to 1e\+200"),
        ([[0.5 + 1j, 0.5]], [1, 2], "they are complex"),
        (np.ma.masked_array(GOOD, mask=[[0, 0], [0, 1]]), [1, 2], r"row 1, column 1\) is nan"),
    ],
)
def test_a_bad_cell_is_named(accuracy: object, costs: object, message: str):
    with pytest.raises(TableInvalid, match=message) as raised:
        AccuracyTable.of(accuracy, costs=costs)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"modes": ["a"]}, r"modes \['a'\] don't fit; give 2 names, one each"),
        ({"modes": 5}, "modes 5 don't fit; give 2 names"),
        ({"modes": [[1], [2]]}, "don't fit; give 2 names"),
        ({"modes": ["a", "a"]}, "modes hold 'a' twice"),
        ({"ids": ["p1"]}, "give 2 names, one each"),
        ({"ids": ["p1", "p1"]}, "ids hold 'p1' twice"),
        ({"standard_error": [[0.1, 0.1]]}, r"standard_error of shape \(1, 2\)"),
        ({"standard_error": [[0.1, 0.1], [-0.1, 0.1]]}, r"mode 1 for problem 1 \(row 1, column 0\) is -0.1"),
        ({"standard_error": [[0.1, np.inf], [0.1, 0.1]]}, r"row 0, column 1\) is inf"),
        ({"order": "up"}, "order 'up' is not known"),
    ],
)
def test_a_wrong_argument_is_named(more: dict, message: str):
    with pytest.raises(TableInvalid, match=message):
        AccuracyTable.of(GOOD, costs=[1, 2], **more)


def test_an_id_stands_in_the_message_where_there_is_one():
    with pytest.raises(TableInvalid, match=r"accuracy of mode 'large' for problem 'q7' .* is 2.0"):
        AccuracyTable.of([[0.5, 2.0]], costs=[1, 2], ids=["q7"], modes=["small", "large"])


def test_a_table_doesnt_change_with_the_array_it_was_made_of():
    accuracy = np.array(GOOD)
    table = AccuracyTable.of(accuracy, costs=[1, 2])
    accuracy[0, 0] = 7
    assert table.accuracy[0, 0] == 0.5
    with pytest.raises(ValueError, match="read-only"):
        table.accuracy[0, 0] = 0.1


def test_modes_are_called_by_their_cost_or_place():
    assert AccuracyTable.of(GOOD, costs=[1, 2.5]).modes == (1, 2.5)
    assert AccuracyTable.of(GOOD, costs=[1, 1]).modes == (0, 1)
    assert AccuracyTable.of(GOOD, costs=GOOD).modes == (0, 1)


def test_a_frontier_is_read_between_and_beyond_its_vertices():
    curve = Frontier(
        cost=np.array([1.0, 2.0, 4.0]),
        accuracy=np.array([0.5, 0.7, 0.8]),
        price=np.array([np.inf, 0.2, 0.05]),
    )
    assert curve.at(1.5) == pytest.approx(0.6)
    assert curve.at(100.0) == 0.8
    assert np.asarray(curve.at([1.0, 3.0])) == pytest.approx(np.array([0.5, 0.75]))
    assert [curve.price_at(c) for c in (1.0, 1.5, 2.0, 4.0, 9.0)] == [0.2, 0.2, 0.05, 0.0, 0.0]
    for bad in (0.9, float("nan"), [1.0, 0.0]):
        with pytest.raises(BudgetOutOfRange, match=r"average cost of (0.9|nan|0.0) is not .*give 1 or more"):
            curve.at(bad)


def test_drawing_a_mix_takes_each_move_as_often_as_it_says():
    plan = Allocation(
        budget=2.0,
        price=0.1,
        choice=np.array([0, 0, 1]),
        mix=Mix(
            problems=np.array([1, 1, 2]), modes=np.array([1, 2, 0]), probabilities=np.array([0.3, 0.5, 0.25])
        ),
        cost=1.0,
        accuracy=0.5,
        mixed_cost=1.0,
        mixed_accuracy=0.5,
        bound=0.5,
        modes=(1, 2, 4),
    )
    drawn = np.array([plan.draw(np.random.default_rng(seed)) for seed in range(8000)])
    assert (drawn[:, 0] == 0).all()
    assert np.bincount(drawn[:, 1]) / 8000 == pytest.approx([0.2, 0.3, 0.5], abs=0.02)
    assert np.bincount(drawn[:, 2]) / 8000 == pytest.approx([0.25, 0.75], abs=0.02)
    assert plan.choice.tolist() == [0, 0, 1]
    assert plan.counts == (2, 1, 0)


@pytest.mark.parametrize(
    ("text", "amount", "unit"),
    [
        (3, 3.0, "samples"),
        ("1.5", 1.5, "samples"),
        ("3 samples", 3.0, "samples"),
        ("500 tokens", 500.0, "tokens"),
        ("1,000 tokens per request", 1000.0, "tokens"),
        ("2 USD per 1000", 0.002, "money"),
        ("$2 per 1,000 requests", 0.002, "money"),
        ("2 usd/1k", 0.002, "money"),
        ("0.002 USD a request", 0.002, "money"),
        ("0.002 money", 0.002, "money"),
        ("1_000 tokens", 1000.0, "tokens"),
        ("1,500 tokens", 1500.0, "tokens"),
        ("5000 usd per 1,000,000", 0.005, "money"),
    ],
)
def test_a_budget_is_read_in_the_ways_people_write_it(text: float | str, amount: float, unit: str):
    budget = Budget.parse(text)
    assert (budget.amount, budget.unit) == (pytest.approx(amount), unit)
    assert budget.currency == ("USD" if unit == "money" else "")
    assert Budget.parse(str(budget)) == budget


@pytest.mark.parametrize(
    "text", ["", "tokens", "-3", "0", "nan", "inf", "1e300 tokens", "2 USD per 0", "$2 USD", "3 samples each"]
)
def test_a_budget_that_cannot_be_spent_is_refused(text: str):
    with pytest.raises(BudgetInvalid, match=r"give"):
        Budget.parse(text)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("0,5 USD per 1000", "0.5"),
        ("1,5 samples", "1.5"),
        ("0,500 tokens", "0.500"),
        ("2 USD per 1,00", "1.00"),
    ],
)
def test_a_decimal_comma_is_refused_and_not_left_out(text: str, written: str):
    for currency in ("USD", None):
        with pytest.raises(
            BudgetInvalid, match=rf"groups thousands.*write {re.escape(written)}, or give e\.g"
        ):
            Budget.parse(text, currency=currency)


@pytest.mark.parametrize("text", ["0.02 USD per 1,000 requets", "3 for requets", "2 USD per 10 requets"])
def test_a_word_that_is_no_request_is_named(text: str):
    with pytest.raises(
        BudgetInvalid, match=r"can't be read; 'requets' is not known: write requests, or give"
    ):
        Budget.parse(text)


@pytest.mark.parametrize(
    "text",
    ["1,,0 tokens", "1__0 tokens", "1_ tokens", "12 per", "12 USD per", "12/", "500 tok", "5 s"],
)
def test_half_a_budget_and_a_unit_cut_short_are_refused(text: str):
    for currency in ("USD", "TOK", None):
        if (text, currency) != ("500 tok", "TOK"):
            with pytest.raises(BudgetInvalid, match=r"give e\.g\. 3, '500 tokens'"):
                Budget.parse(text, currency=currency)


def test_a_currency_is_three_letters_or_that_of_the_prices():
    assert Budget.parse("2 eur per 1000", currency=None).currency == "EUR"
    assert Budget.parse("2 Credits per 1000", currency="credits") == Budget(0.002, "money", "credits")
    assert Budget.parse("2 credits per 1000", currency=None).currency == "credits", (
        "compared with prices later"
    )
    with pytest.raises(BudgetInvalid, match="'credits', which is neither a unit nor a currency"):
        Budget.parse("2 credits per 1000", currency="USD")


def test_a_budget_of_no_known_unit_and_money_without_a_currency_are_refused():
    with pytest.raises(BudgetInvalid, match="unit 'bananas' is not known; give samples, tokens, money"):
        Budget(3, "bananas")  # type: ignore[arg-type]
    with pytest.raises(BudgetInvalid, match="money without a currency"):
        Budget(3, "money")


def test_a_budget_in_another_currency_than_the_prices_is_refused():
    assert Budget.parse("2 EUR per 1000", currency="EUR").currency == "EUR"
    with pytest.raises(BudgetInvalid, match=r"2 EUR per 1,000 requests is not in USD"):
        Budget.parse("2 EUR per 1000")
    with pytest.raises(BudgetInvalid, match=r"not in USD"):
        Budget.parse(Budget(0.002, "money", "EUR"))


def test_a_bare_number_that_seems_meant_in_samples_says_what_it_counted():
    assert Budget.parse(500, unit="tokens") == Budget(500.0, "tokens")
    assert Budget.parse("0.002", unit="money") == Budget(0.002, "money", "USD")
    with pytest.raises(BudgetInvalid, match=r"3 is counted in tokens here.*write '3 samples' or '3 tokens'"):
        Budget.parse(3, unit="tokens")
    with pytest.raises(BudgetInvalid, match=r"3 is counted in USD per request here; write '3 samples'"):
        Budget.parse("3", unit="money")
    assert Budget.parse("3 samples", unit="money") == Budget.parse(3)


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (500, "samples", Budget(500, "samples")),
        ("5USD", "samples", Budget(5, "money", "USD")),
        ("$5", "samples", Budget(5, "money", "USD")),
        (5, "money", Budget(5, "money", "USD")),
        (20, "tokens", Budget(20, "tokens")),
        ("1,000,000 tokens", "money", Budget(1e6, "tokens")),
        ("5 USD per 1000", "money", "is per request"),
        ("5 EUR", "money", "is not in USD"),
        ("much", "money", "can't be read"),
    ],
)
def test_a_cap_is_a_sum_in_the_words_of_a_budget(value: float | str, unit: Any, expected: object):
    if isinstance(expected, Budget):
        assert Budget.parse(value, unit=unit, total=True) == expected
        return
    with pytest.raises(BudgetInvalid, match=str(expected)):
        Budget.parse(value, unit=unit, total=True)
