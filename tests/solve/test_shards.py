"""One price over many shards, against `solve` on all problems at once."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import budgeted, tables

from adacompute.errors import AdacomputeError, BudgetOutOfRange, TableInvalid
from adacompute.records import AccuracyTable, Allocation
from adacompute.solve import solve
from adacompute.solve.shard_search import (
    PriceSearch,
    ShardedAllocation,
    SlopeBracket,
    SlopeHistogram,
    TableShard,
    build_sharded_allocation,
    merge_histograms,
)

SAMPLES = np.array([1.0, 2.0, 4.0, 8.0, 16.0])


def cut(table: AccuracyTable, ends: list[int]) -> list[TableShard]:
    """The table's rows in shards that end there; two equal ends make an empty one."""
    places = [0, *sorted(min(end, len(table)) for end in ends), len(table)]
    return [
        TableShard.of(table.accuracy[a:b], costs=table.costs if table.shared_costs else table.costs[a:b])
        for a, b in pairwise(places)
    ]


def found(shards: list[TableShard], budget: float) -> tuple[PriceSearch, ShardedAllocation, list[int]]:
    search = PriceSearch(budget=budget)
    while (bracket := search.bracket) is not None:
        search.narrow(shard.histogram(bracket) for shard in shards)
    taken = [shard.take(search.quota(k)) for k, shard in enumerate(shards)]
    choice = [mode for each in taken for mode in each.choice.tolist()]
    return search, search.build_allocation((each.total, each.edge) for each in taken), choice


def one_after_the_other(shards: list[TableShard], budget: float) -> tuple[ShardedAllocation, list[int]]:
    """As one process does it: summaries merged on the way, the room handed on from shard to shard."""
    search = PriceSearch(budget=budget)
    while (bracket := search.bracket) is not None:
        search.narrow([merge_histograms((shard.histogram(bracket) for shard in shards), bracket=bracket)])
    share, start, edge, at, choice, total = search.total_quota, 0, None, 0, [], None
    for shard in shards:
        taken = shard.take(share)
        share = share.after(taken)
        if taken.edge is not None:
            edge, at = taken.edge, start
        start += len(shard)
        choice += taken.choice.tolist()
        total = taken.total if total is None else total + taken.total
    assert total is not None
    return build_sharded_allocation(total, edge, budget=budget, price=search.price, start=at), choice


def told(plan: Allocation) -> tuple[object, ...]:
    return plan.price, plan.choice.tolist(), plan.counts, list(plan.mix), plan.cost


def ends() -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, 12), max_size=7)


def whole_costs(modes: int) -> st.SearchStrategy[list[float]]:
    return st.lists(st.integers(0, 16).map(float), min_size=modes, max_size=modes).map(sorted)


@st.composite
def counted(draw: st.DrawFn) -> tuple[AccuracyTable, float]:
    """A table whose problems cost alike, in whole numbers, and a budget from cheapest to beyond dearest."""
    given_ = draw(tables(most_problems=12, shared=True))
    costs = draw(whole_costs(len(given_.modes)))
    table = AccuracyTable.of(given_.accuracy, costs=costs)
    eighths = draw(st.integers(0, int(8 * (costs[-1] - costs[0])) + 8))
    return table, costs[0] + draw(st.sampled_from((eighths / 8, eighths / 8 / 3)))


@given(counted(), ends())
def test_whole_costs_give_what_solve_gives_to_the_last_bit(
    case: tuple[AccuracyTable, float], ends: list[int]
):
    table, budget = case
    plan = solve(table, budget=budget)
    shards = cut(table, ends)
    search, result, choice = found(shards, budget)
    mix = [] if result.mix is None else [result.mix]
    assert (result.price, choice, result.counts, mix, result.cost) == told(plan)
    assert (result.accuracy, result.bound) == pytest.approx((plan.accuracy, plan.bound), abs=1e-12)
    assert result.mixed_cost == pytest.approx(plan.mixed_cost, abs=1e-12)
    assert search.rounds in (1, 3)
    assert one_after_the_other(shards, budget) == (result, choice)


@given(budgeted(most_problems=12, kinds=("fine", "parts", "falling", "copies", "zeros")), ends())
def test_any_costs_give_what_solve_gives_but_for_the_rounding_of_sums(
    case: tuple[AccuracyTable, float], ends: list[int]
):
    table, budget = case
    plan = solve(table, budget=budget)
    _, result, _ = found(cut(table, ends), budget)
    assert result.price == pytest.approx(plan.price, rel=1e-9)
    assert result.mixed_cost == pytest.approx(plan.mixed_cost, rel=1e-9, abs=1e-9)
    assert result.bound == pytest.approx(plan.bound, abs=1e-9)
    assert result.cost <= budget * (1 + 1e-11)


@given(budgeted(most_problems=12, kinds=("parts", "fine")), ends(), st.integers(1, 3))
def test_a_round_says_how_far_it_may_be_off(case: tuple[AccuracyTable, float], ends: list[int], rounds: int):
    table, budget = case
    shards = cut(table, ends)
    exact, _, _ = found(shards, budget)
    search = PriceSearch(budget=budget)
    for _ in range(rounds):
        if search.bracket is not None:
            search.narrow(shard.histogram(search.bracket) for shard in shards)
    wide = {1: 1 / 16, 2: 2**-20, 3: 0.0}[rounds]
    assert search.price <= exact.price <= search.price * (1 + wide)
    above = search.price * (1 + wide)
    spent = sum(shard.take(replaced(search, above)).total.cost for shard in shards) / len(table)
    if search.price > 0:
        assert spent <= budget * (1 + 1e-11)
        assert spent + search.doubt >= budget * (1 - 1e-11)


def replaced(search: PriceSearch, price: float) -> object:
    return replace(search.total_quota, price=price, room=-np.inf)


def test_ties_are_taken_in_order_of_rows_and_one_shard_ends_within():
    shards = [TableShard.of(np.tile([0.5, 0.75], (rows, 1)), costs=SAMPLES[:2]) for rows in (3, 0, 4, 2)]
    search, result, choice = found(shards, 1.5)
    assert choice == [1, 1, 1, 1, 0, 0, 0, 0, 0]
    assert result.mix is not None
    assert (result.mix.problem, result.mix.mode, result.mix.probability) == (4, 1, 0.5)
    assert [search.quota(k).room for k in range(4)] == [np.inf, np.inf, 1.5, -np.inf]


def test_a_large_table_in_uneven_shards_is_solved_alike():
    rng = np.random.default_rng(3)
    table = AccuracyTable.of(np.sort(rng.integers(0, 49, (30_000, 5)), axis=1) / 48, costs=SAMPLES)
    plan = solve(table, budget=2.3)
    search, result, choice = found(cut(table, [1, 7, 12_000, 12_000, 29_999]), 2.3)
    assert choice == plan.choice.tolist()
    assert (result.price, result.counts, list(plan.mix)) == (plan.price, plan.counts, [result.mix])
    assert search.nbytes < 60_000


def test_a_summary_is_small_and_holds_only_bins_that_occur():
    rng = np.random.default_rng(3)
    summary = TableShard.of(np.sort(rng.random((20_000, 5)), axis=1), costs=SAMPLES).histogram()
    assert summary.nbytes < 6_000
    assert (np.diff(summary.keys.astype(int)) > 0).all()
    assert (summary.cost > 0).all()
    assert summary.problems == 20_000
    inner = SlopeBracket(prefix=int(summary.keys[-1]), shift=32)
    assert TableShard.of(np.zeros((0, 5)), costs=SAMPLES).histogram(inner).nbytes == 40


def test_a_merged_summary_is_the_summary_of_all():
    rng = np.random.default_rng(3)
    accuracy = np.sort(rng.random((1000, 5)), axis=1)
    whole = TableShard.of(accuracy, costs=SAMPLES).histogram()
    parts = [TableShard.of(accuracy[a : a + 300], costs=SAMPLES).histogram() for a in range(0, 1000, 300)]
    one, other = merge_histograms(parts), whole
    for name in (field for field in SlopeHistogram.__slots__ if field != "bracket"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


@pytest.mark.parametrize("budget", [0.5, "2", True, float("nan")])
def test_a_budget_out_of_range_is_refused_as_solve_refuses_it(budget: float):
    table = AccuracyTable.of([[0.5, 0.9], [0.6, 0.8]], costs=[1, 2])
    with pytest.raises(BudgetOutOfRange) as alone:
        solve(table, budget=budget)
    with pytest.raises(AdacomputeError) as sharded:
        found(cut(table, [1]), budget)
    assert str(sharded.value) == str(alone.value)


def test_no_problem_at_all_is_refused():
    with pytest.raises(TableInvalid, match="no shard has a problem"):
        found([TableShard.of(np.zeros((0, 2)), costs=SAMPLES[:2])], 2.0)
