"""Frontier and allocation, against HiGHS's linear programme, enumeration and the paper's bisection."""

import itertools

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

from adacompute.errors import TableInvalid
from adacompute.records import AccuracyTable
from adacompute.solve import averages, best_at, dual, frontier, solve
from adacompute.solve.pricing import Allocation

SAMPLES = (1.0, 2.0, 4.0, 8.0, 16.0)


def random_table(rng: np.random.Generator, kind: int, *, problems: int | None = None) -> AccuracyTable:
    """One of many kinds: shapes, ties, falling curves, costs of each problem's own, equal costs."""
    rows = problems or int(rng.integers(1, 30))
    modes = int(rng.integers(1, 7))
    accuracy = rng.random((rows, modes))
    if kind % 4 == 1:
        accuracy = np.round(accuracy * 48) / 48
    elif kind % 4 == 2:
        accuracy = np.sort(accuracy, axis=1)
    elif kind % 4 == 3:
        accuracy = np.round(accuracy * 3) / 3
    own = kind % 3 == 0
    costs = np.sort(rng.random((rows, modes) if own else modes) * 10, axis=-1)
    if kind % 5 == 0:
        costs = np.round(costs)  # some of them equal, some of them 0
    return AccuracyTable.of(accuracy, costs=costs, modes=range(modes))


def reach(table: AccuracyTable) -> tuple[float, float]:
    """The cheapest and the dearest average."""
    costs = table.cost_matrix
    return float(costs.min(axis=1).mean()), float(costs.max(axis=1).mean())


def highs(table: AccuracyTable, budget: float) -> float:
    """The optimum of the linear programme over mixed allocations, by a solver that isn't ours."""
    rows, modes = table.accuracy.shape
    each = scipy.sparse.kron(scipy.sparse.identity(rows), np.ones((1, modes)), format="csr")
    found = scipy.optimize.linprog(
        -table.accuracy.ravel() / rows,
        A_ub=scipy.sparse.csr_matrix(table.cost_matrix.reshape(1, -1) / rows),
        b_ub=[budget],
        A_eq=each,
        b_eq=np.ones(rows),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert found.status == 0, found.message
    return -float(found.fun)


@pytest.mark.parametrize("kind", range(60))
def test_bound_and_frontier_agree_with_highs_on_six_tables_of_each_kind(kind: int):
    rng = np.random.default_rng(kind)
    for _ in range(6):  # 360 tables in all
        table = random_table(rng, kind)
        cheapest, dearest = reach(table)
        budget = cheapest + (dearest - cheapest) * float(rng.random())
        plan, curve = solve(table, budget=budget), frontier(table)
        expected = highs(table, budget)
        assert plan.bound == pytest.approx(expected, abs=1e-9)
        assert curve.at(budget) == pytest.approx(expected, abs=1e-9)
        assert dual(table, plan.price, budget) == pytest.approx(expected, abs=1e-9)


def check(table: AccuracyTable, plan: Allocation) -> None:
    """What every allocation promises."""
    cost, accuracy = averages(table, plan.choice)
    assert (plan.cost, plan.accuracy) == (cost, accuracy)
    assert plan.cost <= plan.budget * (1 + 1e-11)
    assert plan.accuracy <= plan.bound + 1e-12
    assert len(plan.mix) <= 1
    assert sum(plan.counts) == len(table)
    for move in plan.mix:
        assert 0 < move.probability <= 1
        row, here = move.problem, plan.choice[move.problem]
        gain = table.accuracy[row, move.mode] - table.accuracy[row, here]
        assert 0 < plan.gap <= gain / len(table) + 1e-12
        assert table.cost_matrix[row, move.mode] > table.cost_matrix[row, here]
    if plan.mix:
        assert plan.mixed_cost == pytest.approx(plan.budget, abs=1e-9)
    assert plan.mixed_accuracy == pytest.approx(plan.bound, abs=1e-12)


@pytest.mark.parametrize("kind", range(60))
def test_choice_keeps_the_budget_and_one_mixed_problem_meets_it(kind: int):
    rng = np.random.default_rng(100 + kind)
    table = random_table(rng, kind)
    cheapest, dearest = reach(table)
    for budget in (cheapest, dearest, dearest + 1, *rng.uniform(cheapest, dearest, 5)):
        plan = solve(table, budget=float(budget))
        check(table, plan)
        assert plan.binding == (plan.price > 0)
        if not plan.binding:
            assert plan.accuracy == pytest.approx(table.accuracy.max(axis=1).mean(), abs=1e-12)


@pytest.mark.parametrize("kind", range(40))
def test_the_best_deterministic_choice_lies_between_accuracy_and_bound(kind: int):
    rng = np.random.default_rng(200 + kind)
    table = random_table(rng, kind, problems=int(rng.integers(1, 6)))
    cheapest, dearest = reach(table)
    budget = float(rng.uniform(cheapest, dearest))
    plan = solve(table, budget=budget)
    columns = range(len(table.modes))
    every = (averages(table, np.array(c)) for c in itertools.product(columns, repeat=len(table)))
    best = max(accuracy for cost, accuracy in every if cost <= budget + 1e-12)
    assert plan.accuracy - 1e-12 <= best <= plan.bound + 1e-12


@pytest.mark.parametrize("kind", range(20))
def test_every_vertex_is_what_its_price_gives(kind: int):
    table = random_table(np.random.default_rng(300 + kind), kind)
    curve = frontier(table)
    assert curve.price[0] == np.inf
    assert (np.diff(curve.price[1:]) < 0).all()
    assert (np.diff(curve.cost) > 0).all()
    assert (np.diff(curve.accuracy) > 0).all()
    following = np.append(curve.price[1:], 0.0)
    for at in range(len(curve)):
        cost, accuracy = averages(table, best_at(table, float(following[at])))  # ties to the cheaper: here
        assert cost == pytest.approx(curve.cost[at], abs=1e-12)
        assert accuracy == pytest.approx(curve.accuracy[at], abs=1e-11)  # slopes are rounded
        assert curve.price_at(float(curve.cost[at])) == following[at]


def test_price_is_what_the_frontier_says_and_cost_never_rises_with_it():
    table = random_table(np.random.default_rng(7), 1, problems=200)
    curve = frontier(table)
    budgets = np.linspace(*reach(table), 50)
    plans = [solve(table, budget=float(budget)) for budget in budgets]
    there = [curve.price_at(float(budget)) for budget in budgets]
    assert [plan.price for plan in plans] == pytest.approx(there, rel=1e-10)
    prices = np.unique(np.concatenate([curve.price[1:], curve.price[1:] * (1 + 1e-9), np.linspace(0, 1, 30)]))
    costs = [averages(table, best_at(table, float(price)))[0] for price in prices]
    assert (np.diff(costs) <= 0).all()


def test_best_at_is_the_argmax_of_net_value_with_ties_to_the_cheaper():
    rng = np.random.default_rng(8)
    for kind in range(30):
        table = random_table(rng, kind)
        price = float(rng.random())
        net = table.accuracy - price * table.cost_matrix
        chosen = net[np.arange(len(table)), best_at(table, price)]
        assert chosen == pytest.approx(net.max(axis=1), abs=1e-12)
    assert best_at(AccuracyTable.of([[0.5, 0.9]], costs=[1, 2]), 0.4).tolist() == [
        0
    ]  # 0.9 - 0.5 is above 0.4
    tied = AccuracyTable.of([[0.25, 0.5, 0.75]], costs=[1, 2, 3])
    assert best_at(tied, 0.25).tolist() == [0]
    assert best_at(tied, 0.2).tolist() == [2]


def test_edges_of_one_slope_are_taken_in_order_of_rows():
    table = AccuracyTable.of([[0.1, 0.3]] * 5, costs=[1, 3])
    plan = solve(table, budget=2.0)
    assert plan.choice.tolist() == [1, 1, 0, 0, 0]
    assert [(m.problem, m.mode, m.probability) for m in plan.mix] == [(2, 1, pytest.approx(0.5))]
    assert plan.price == pytest.approx(0.1)


def test_points_on_one_line_but_for_the_thirteenth_decimal_are_one_edge():
    table = AccuracyTable.of([[0.5, 0.6666666666667, 1.0]], costs=[1, 2, 4])
    assert len(frontier(table)) == 2
    assert solve(table, budget=2.0).choice.tolist() == [0]


def test_slopes_that_differ_by_rounding_alone_are_one_price():
    thirds = [[0.0, 0.1 * 3], [0.0, 0.3], [0.1, 0.4], [0.2, 0.5], [0.7, 1.0]]
    assert len(frontier(AccuracyTable.of(thirds, costs=[1, 2]))) == 2


def test_the_same_input_gives_the_same_bytes():
    table = random_table(np.random.default_rng(9), 3, problems=5000)
    budget = float(np.mean(reach(table)))
    plans = [solve(table, budget=budget) for _ in range(2)]
    curves = [frontier(table) for _ in range(2)]
    assert plans[0].choice.tobytes() == plans[1].choice.tobytes()
    assert repr(plans[0].bound) == repr(plans[1].bound)
    assert curves[0].accuracy.tobytes() == curves[1].accuracy.tobytes()
    assert not plans[0].choice.flags.writeable
    assert not curves[0].price.flags.writeable


@pytest.mark.parametrize("order", ["shuffled", "rising", "falling", "periodic"])
@pytest.mark.parametrize("own", [False, True])
def test_a_long_table_is_solved_alike_whatever_the_order_of_its_rows(order: str, own: bool):
    rng = np.random.default_rng(10)
    rows = 80_000  # long enough that some rows are looked at first, to guess the price
    accuracy = np.sort(np.round(rng.random((rows, 5)) * 48) / 48, axis=1)
    gain = accuracy[:, -1] - accuracy[:, 0]
    if order in ("rising", "falling"):
        accuracy = accuracy[np.argsort(gain if order == "rising" else -gain)]
    elif order == "periodic":
        accuracy[::2] = accuracy[0]  # and every other row tells nothing of the rest
        accuracy[:: rows // 3000] = [0, 1, 1, 1, 1]
    costs = np.array(SAMPLES) * (1 + rng.random((rows, 1))) if own else np.array(SAMPLES)
    table = AccuracyTable.of(accuracy, costs=costs)
    curve = frontier(table)
    for budget in (1.6, 2.5, 7.0):
        plan = solve(table, budget=budget)
        check(table, plan)
        assert plan.bound == pytest.approx(curve.at(budget), abs=1e-12)
        assert plan.price == pytest.approx(curve.price_at(budget), rel=1e-10)


def test_the_papers_bisection_agrees_and_keeps_its_trace():
    rng = np.random.default_rng(11)
    for kind in range(12):
        table = random_table(rng, kind * 5 + 1, problems=100)
        cheapest, dearest = reach(table)
        budget = float(rng.uniform(cheapest, dearest))
        exact, paper = solve(table, budget=budget), solve(table, budget=budget, method="bisection")
        assert paper.mixed_accuracy == pytest.approx(exact.bound, abs=1e-9)
        assert paper.bound == pytest.approx(exact.bound, abs=1e-9)
        assert paper.price == pytest.approx(exact.price, abs=1e-12)
        assert paper.cost <= budget * (1 + 1e-12)
        trace = paper.trace
        assert trace is not None
        if exact.binding:
            assert len(trace.price) == 50
            assert paper.mixed_cost == pytest.approx(budget, abs=1e-9)
            assert (trace.cost_low >= trace.cost).all()
            assert (trace.cost >= trace.cost_high).all()
            assert trace.high[-1] - trace.low[-1] == pytest.approx(5 / 2**49)


def test_a_single_price_can_miss_the_budget_and_mixing_meets_it():
    table = AccuracyTable.of([[0.25, 0.5]] * 10, costs=[1, 2])
    plan = solve(table, budget=1.45, method="bisection")
    assert plan.cost == 1.0  # all problems change their mode at one and the same price
    assert len(plan.mix) == 10
    drawn = np.array([averages(table, plan.draw(np.random.default_rng(i)))[0] for i in range(4000)])
    assert drawn.mean() == pytest.approx(1.45, abs=0.01)


def test_modes_are_names_with_costs_in_any_order_of_size_by_problem():
    accuracy = [[0.5, 0.9, 0.6], [0.4, 0.45, 0.95]]
    costs = [[1.0, 5.0, 3.0], [1.0, 2.0, 9.0]]
    with pytest.raises(TableInvalid, match=r"mode 'large'.*row 0, column 2.*order='any'"):
        AccuracyTable.of(accuracy, costs=costs, modes=["small", "effort", "large"])
    table = AccuracyTable.of(accuracy, costs=costs, modes=["small", "effort", "large"], order="any")
    for budget in (1.0, 2.0, 3.0, 4.4, 7.0, 9.0):
        plan = solve(table, budget=budget)
        check(table, plan)
        assert plan.bound == pytest.approx(highs(table, budget), abs=1e-9)
        assert plan.modes == ("small", "effort", "large")
    assert solve(table, budget=3.0).choice.tolist() == [1, 0]


def test_a_free_better_mode_is_always_taken():
    table = AccuracyTable.of([[0.2, 0.6, 0.5, 0.7], [0.6, 0.2, 0.9, 0.9]], costs=[1, 1, 2, 2], modes="abcd")
    curve = frontier(table)
    assert (curve.cost[0], curve.accuracy[0]) == (1.0, pytest.approx(0.6))
    assert solve(table, budget=1).choice.tolist() == [1, 0]
    assert solve(table, budget=2).choice.tolist() == [3, 2]


def test_a_price_is_the_slope_itself_and_not_what_it_was_rounded_to():
    assert solve(AccuracyTable.of([[0.5, 0.9], [0.6, 0.8]], costs=[1, 2]), budget=1.25).price == 0.9 - 0.5


def test_the_last_vertex_is_the_best_there_is_to_the_last_bit():
    rng = np.random.default_rng(12)
    for _ in range(200):
        accuracy = np.round(np.sort(rng.random((5, 4)), axis=1) * 48) / 48
        curve = frontier(AccuracyTable.of(accuracy, costs=[1, 3, 7, 11]))
        assert curve.accuracy[-1] == pytest.approx(accuracy.max(axis=1).mean(), abs=1e-15)
        assert (curve.accuracy <= curve.accuracy[-1]).all()


def test_at_a_vertex_nothing_is_mixed():
    rng = np.random.default_rng(13)
    accuracy = np.round(np.sort(rng.random((1000, 5)), axis=1) * 48) / 48
    table = AccuracyTable.of(accuracy, costs=np.array(SAMPLES) * rng.lognormal(5, 0.5, (1000, 1)))
    curve = frontier(table)
    for cost in curve.cost[1 :: len(curve) // 20].tolist():
        assert len(solve(table, budget=cost).mix) == 0


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1.0, 1e9])
def test_the_scale_of_costs_doesnt_matter(scale: float):
    table = random_table(np.random.default_rng(15), 1, problems=25)
    scaled = AccuracyTable.of(table.accuracy, costs=table.costs * scale, modes=table.modes)
    budget = float(np.mean(reach(table)))
    one, other = solve(table, budget=budget), solve(scaled, budget=budget * scale)
    assert one.choice.tolist() == other.choice.tolist()
    assert other.bound == pytest.approx(highs(table, budget), abs=1e-9)
    assert other.price * scale == pytest.approx(one.price, rel=1e-9)


def test_three_hundred_modes_are_solved_too():
    rng = np.random.default_rng(16)
    table = AccuracyTable.of(np.sort(rng.random((40, 300)), axis=1), costs=np.arange(1.0, 301.0))
    plan = solve(table, budget=20.0)
    assert plan.bound == pytest.approx(highs(table, 20.0), abs=1e-9)
    assert plan.bound == pytest.approx(frontier(table).at(20.0), abs=1e-10)


def test_modes_in_any_order_of_shared_costs_are_solved_as_in_order():
    rng = np.random.default_rng(17)
    accuracy = rng.random((500, 5))
    back = AccuracyTable.of(accuracy[:, ::-1], costs=SAMPLES[::-1], modes="edcba", order="any")
    plan, mirror = solve(back, budget=3.0), solve(AccuracyTable.of(accuracy, costs=SAMPLES), budget=3.0)
    assert (4 - plan.choice).tolist() == mirror.choice.tolist()
    assert plan.bound == mirror.bound
    assert (
        best_at(back, 0.05).tolist()
        == (4 - best_at(AccuracyTable.of(accuracy, costs=SAMPLES), 0.05)).tolist()
    )
