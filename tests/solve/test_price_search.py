"""One price over many blocks, against `solve` on all problems at once."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import budgeted, prices, tables

from adacompute.records import AccuracyTable
from adacompute.solve import best_at, solve
from adacompute.solve.hull import round_slopes
from adacompute.solve.price_search import Edge, PriceSearch, Quota, choose, count_choices

SAMPLES = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
Blocks = list[np.ndarray]


def cut(table: AccuracyTable, ends: list[int]) -> Blocks:
    """The table's rows in blocks that end there; two equal ends make an empty one."""
    places = [0, *sorted(min(end, len(table)) for end in ends), len(table)]
    return [table.accuracy[a:b] for a, b in pairwise(places)]


def search_price(blocks: Blocks, costs: np.ndarray, budget: float) -> PriceSearch:
    search = PriceSearch(costs, budget=budget, problems=sum(map(len, blocks)))
    while len(search.prices):
        search.narrow([count_choices(block, costs, search.prices) for block in blocks])
    return search


def choose_all(
    blocks: Blocks, costs: np.ndarray, search: PriceSearch, *, step: int = 5
) -> tuple[list[int], Edge | None, int]:
    """The columns, the edge at which the budget ends and its row over all; a block is served in steps."""
    columns: list[int] = []
    edge, edge_row = None, 0
    for block, quota in zip(blocks, search.quotas(len(blocks)), strict=True):
        for start in range(0, len(block), step):
            choice = choose(block[start : start + step], costs, quota)
            quota = quota.after(choice)
            if edge is None and choice.edge is not None:
                edge, edge_row = choice.edge, len(columns) + choice.edge.row
            columns += choice.columns.tolist()
    return columns, edge, edge_row


def ends() -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, 12), max_size=7)


@st.composite
def counted(draw: st.DrawFn) -> tuple[AccuracyTable, float]:
    """A table whose problems cost whole numbers, and a budget from cheapest to beyond dearest."""
    given_ = draw(tables(most_problems=12, shared=True))
    modes = len(given_.modes)
    costs = sorted(draw(st.lists(st.integers(0, 16).map(float), min_size=modes, max_size=modes)))
    table = AccuracyTable.of(given_.accuracy, costs=costs)
    eighths = draw(st.integers(0, int(8 * (costs[-1] - costs[0])) + 8))
    return table, costs[0] + draw(st.sampled_from((eighths / 8, eighths / 8 / 3)))


@given(counted(), ends())
def test_whole_costs_give_what_solve_gives_to_the_last_bit(
    case: tuple[AccuracyTable, float], ends: list[int]
):
    table, budget = case
    plan, blocks = solve(table, budget=budget), cut(table, ends)
    search = search_price(blocks, table.costs, budget)
    columns, edge, row = choose_all(blocks, table.costs, search)
    assert columns == plan.choice.tolist()
    assert search.passes in (1, 5)
    assert (edge.slope if edge else search.price) == plan.price
    mixed = [(row, edge.mode, edge.probability)] if edge and edge.probability else []
    assert mixed == [(move.problem, move.mode, move.probability) for move in plan.mix]


@given(budgeted(most_problems=12, kinds=("fine", "parts", "falling", "copies", "zeros"), shared=True), ends())
def test_any_costs_give_what_solve_gives_but_for_the_rounding_of_sums(
    case: tuple[AccuracyTable, float], ends: list[int]
):
    table, budget = case
    plan, blocks = solve(table, budget=budget), cut(table, ends)
    search = search_price(blocks, table.costs, budget)
    columns, _, _ = choose_all(blocks, table.costs, search)
    assert search.price == pytest.approx(plan.price, rel=1e-9)
    assert table.costs[columns].mean() <= budget * (1 + 1e-11)
    assert table.accuracy[np.arange(len(table)), columns].mean() <= plan.bound + 1e-9


@given(tables(shared=True), st.lists(prices(), min_size=1, max_size=5))
def test_problems_are_counted_by_the_mode_that_is_best_at_each_price(
    table: AccuracyTable, given_: list[float]
):
    asked = np.sort(given_)
    counts = count_choices(table.accuracy, table.costs, asked)
    assert counts.shape == (len(asked), len(table.modes))
    for price, found in zip(asked.tolist(), counts, strict=True):
        columns = choose(table.accuracy, table.costs, Quota(price=price)).columns
        assert found.tolist() == np.bincount(columns, minlength=len(table.modes)).tolist()


@given(tables(shared=True), prices())
def test_a_price_alone_buys_what_is_best_at_it(table: AccuracyTable, price: float):
    rounded = round_slopes(np.array([price]))
    found = choose(table.accuracy, table.costs, Quota(price=float(rounded[0])))
    assert found.columns.tolist() == best_at(table, price).tolist()
    assert (found.tied, found.edge) == (0.0, None)


def test_ties_are_taken_in_order_of_rows_and_one_block_ends_within():
    blocks = [np.tile([0.5, 0.75], (rows, 1)) for rows in (3, 0, 4, 2)]
    search = search_price(blocks, SAMPLES[:2], 1.5)
    columns, edge, row = choose_all(blocks, SAMPLES[:2], search)
    assert columns == [1, 1, 1, 1, 0, 0, 0, 0, 0]
    assert edge is not None
    assert (row, edge.mode, edge.probability) == (4, 1, 0.5)


def test_a_large_table_in_uneven_blocks_is_solved_alike():
    rng = np.random.default_rng(3)
    table = AccuracyTable.of(np.sort(rng.integers(0, 49, (30_000, 5)), axis=1) / 48, costs=SAMPLES)
    plan, blocks = solve(table, budget=2.3), cut(table, [1, 7, 12_000, 12_000, 29_999])
    search = search_price(blocks, SAMPLES, 2.3)
    columns, edge, row = choose_all(blocks, SAMPLES, search, step=9_000)
    assert columns == plan.choice.tolist()
    assert edge is not None
    assert edge.slope == plan.price
    assert [move.problem for move in plan.mix] == [row]
