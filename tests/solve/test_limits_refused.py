"""Limits that can't be, or can't be met: each is refused by name, with what would do."""

import pytest

from adacompute.errors import BudgetOutOfRange, Infeasible, TableInvalid
from adacompute.records import AccuracyTable
from adacompute.solve import Cap
from adacompute.solve.constraints import solve_with_limits


def test_limits_that_cannot_be_met_together_name_each_other_and_the_least_possible():
    table = AccuracyTable.of([[0.2, 0.4]] * 3, costs=[1, 3])
    with pytest.raises(Infeasible) as caught:
        solve_with_limits(table, 1.5, [Cap(name="seconds", costs=[3, 1], at_most=2.0)])
    assert str(caught.value).startswith("limit 'seconds' at 2.0 can't be met together with 'samples' at 1.5")
    assert "the least average of 'seconds' is 2.5;" in str(caught.value)
    with pytest.raises(Infeasible, match=r"'seconds' at 2.0 .* 'samples' at 1.0: .* is 3;"):
        solve_with_limits(table, 1.0, [Cap(name="seconds", costs=[3, 1], at_most=2.0)])


def test_limits_that_only_mixing_meets_are_refused_saying_so():
    table = AccuracyTable.of([[0.2, 0.4]], costs=[1, 3])
    with pytest.raises(
        Infeasible, match=r"no choice of one mode .* 'samples' at 2 and 'seconds' at 2; mixing 1 "
    ):
        solve_with_limits(table, 2.0, [Cap(name="seconds", costs=[3, 1], at_most=2.0)])


TABLE = AccuracyTable.of([[0.5, 0.9], [0.6, 0.8]], costs=[1, 2], ids=["a", "b"])


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ([1, 2, 3], r"limit 's': costs of shape \(3,\) .*; give \(2,\) .* or \(2, 2\)"),
        ([[1, 2]], r"shape \(1, 2\)"),
        (3.0, r"shape \(\)"),
        (["x", "y"], r"limit 's': costs can't be read"),
        ([1, float("nan")], r"limit 's': cost of mode 2 \(column 1\) is nan"),
        ([[1, 2], [-1, 2]], r"limit 's': cost of mode 1 for problem 'b' \(row 1, column 0\) is -1\.0"),
        ([1, float("inf")], r"limit 's': .* is inf; give a number from 0 up"),
    ],
)
def test_costs_that_cannot_be_are_refused_with_their_place(costs, message):
    with pytest.raises(TableInvalid, match=message):
        solve_with_limits(TABLE, 1.5, [Cap(name="s", costs=costs, at_most=2.0)])


@pytest.mark.parametrize("at_most", ["2", None, float("nan"), float("inf"), True, 1j])
def test_a_limit_that_is_no_number_is_refused(at_most):
    with pytest.raises(BudgetOutOfRange, match=r"limit 's' has at_most .*; give a finite number"):
        solve_with_limits(TABLE, 1.5, [Cap(name="s", costs=[1, 2], at_most=at_most)])


def test_a_limit_below_its_cheapest_average_is_refused_with_the_least_possible():
    with pytest.raises(
        BudgetOutOfRange, match=r"limit 's' at 1\.5 is below the least possible average \(2\)"
    ):
        solve_with_limits(TABLE, 1.5, [Cap(name="s", costs=[[1, 2], [4, 3]], at_most=1.5)])


@pytest.mark.parametrize("names", [["s", "s"], ["samples"]])
def test_limits_of_the_same_name_are_refused(names):
    with pytest.raises(TableInvalid, match="two limits are called"):
        solve_with_limits(TABLE, 1.5, [Cap(name=name, costs=[1, 2], at_most=2.0) for name in names])
