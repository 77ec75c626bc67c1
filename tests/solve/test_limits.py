"""Several limits at once, against HiGHS on the full linear programme and against enumeration."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import budgeted

from adacompute.errors import Infeasible
from adacompute.records import AccuracyTable
from adacompute.solve import Cap, solve
from adacompute.solve.constraints import solve_with_limits
from adacompute.solve.pricing import Allocation
from tiers import leave_to_nightly

SAMPLES = (1.0, 2.0, 4.0, 8.0, 16.0)


def highs(table: AccuracyTable, budget: float, limits: Sequence[Cap]) -> float | None:
    """The optimum over mixed allocations, by a solver that isn't ours; None: the limits can't be met."""
    rows, modes = table.accuracy.shape
    every = [(table.costs, budget), *((limit.costs, limit.at_most) for limit in limits)]
    sizes = [max(1e-300, float(np.max(costs))) for costs, _ in every]  # HiGHS takes entries below 1e-9 for 0
    found = scipy.optimize.linprog(
        -table.accuracy.ravel() / rows,
        A_ub=np.array(
            [np.broadcast_to(c, (rows, modes)).ravel() / s for (c, _), s in zip(every, sizes, strict=True)]
        ),
        b_ub=[rows * at_most / size for (_, at_most), size in zip(every, sizes, strict=True)],
        A_eq=scipy.sparse.kron(scipy.sparse.identity(rows), np.ones((1, modes)), format="csr"),
        b_eq=np.ones(rows),
        method="highs-ipm" if rows > 1000 else "highs",  # to the same vertex, on large ones sooner
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert found.status in (0, 2), found.message
    return -float(found.fun) if found.status == 0 else None


def random_costs(rng: np.random.Generator, rows: int, modes: int) -> np.ndarray:
    """For all alike or each its own, whole or not, in small and large units, in no order."""
    shape = (modes,) if rng.random() < 0.5 else (rows, modes)
    costs = rng.random(shape) * 10 if rng.random() < 0.5 else rng.integers(0, 9, shape).astype(float)
    return costs * float(rng.choice([1e-3, 1.0, 1e3]))


def random_limit(rng: np.random.Generator, name: str, costs: np.ndarray) -> Cap:
    """From the least possible average to one that never binds."""
    low, high = float(np.mean(costs.min(axis=-1))), float(np.mean(costs.max(axis=-1)))
    share = float(rng.choice([0.0, 0.3, 0.5, 1.0, *rng.random(3)]))
    return Cap(name=name, costs=costs, at_most=low + share * (high - low))


def random_case(rng: np.random.Generator, rows: int | None = None) -> tuple[AccuracyTable, float, list[Cap]]:
    """A table of any kind, with its budget and one to three limits."""
    rows = rows or int(rng.choice([1, 2, 3, 5, 20, 60]))
    modes = int(rng.integers(1, 6))
    accuracy = rng.random((rows, modes))
    if rng.random() < 0.6:
        accuracy = np.round(accuracy * 48) / 48
    kind = rng.random()
    if kind < 0.3:
        accuracy = np.sort(accuracy, axis=1)
    elif kind < 0.5:
        accuracy[:] = accuracy[0]
    elif kind < 0.6:
        accuracy[:] = accuracy[:, :1]
    costs = random_costs(rng, rows, modes)
    order = "any" if rng.random() < 0.3 else "ascending"
    table = AccuracyTable.of(
        accuracy, costs=costs if order == "any" else np.sort(costs, axis=-1), order=order
    )
    budget = float(random_limit(rng, "samples", table.costs).at_most)
    count = int(rng.integers(1, 4))
    return table, budget, [random_limit(rng, f"l{j}", random_costs(rng, rows, modes)) for j in range(count)]


def dual_of(table: AccuracyTable, plan: Allocation, limits: Sequence[Cap]) -> float:
    """The dual value at the plan's prices, from the table alone."""
    net, total = table.accuracy.copy(), 0.0
    for use, costs in zip(plan.limits, [table.costs, *(limit.costs for limit in limits)], strict=True):
        net -= use.price * np.asarray(costs)
        total += use.price * use.at_most
    return float(net.max(axis=1).mean()) + total


def check(table: AccuracyTable, budget: float, limits: Sequence[Cap], plan: Allocation) -> None:
    """What every allocation under several limits promises."""
    rows, choice = np.arange(len(table)), plan.choice
    share = np.zeros(table.accuracy.shape)
    share[rows, choice] = 1.0
    for move in plan.mix:
        assert 0 < move.probability <= 1
        share[move.problem, move.mode] += move.probability
        share[move.problem, choice[move.problem]] -= move.probability
    assert (share >= -1e-12).all()
    assert plan.mixed_accuracy == pytest.approx((share * table.accuracy).sum() / len(table), abs=1e-9)
    wanted = [(table.unit, table.costs, budget), *((one.name, one.costs, one.at_most) for one in limits)]
    tight = 0
    for use, (name, costs, at_most) in zip(plan.limits, wanted, strict=True):
        costs = np.broadcast_to(costs, share.shape)
        size = max(1.0, at_most, float(costs.max()))
        assert (use.name, use.at_most) == (name, at_most)
        assert use.cost == pytest.approx(costs[rows, choice].mean(), abs=1e-12 * size)
        assert use.mixed_cost == pytest.approx((share * costs).sum() / len(table), abs=1e-9 * size)
        assert use.cost <= at_most + 1e-11 * size
        assert use.mixed_cost <= at_most + 1e-9 * size
        assert use.price >= 0
        if use.slack > 1e-8 * size:
            assert use.price == 0, "a limit that isn't reached has no price"
        else:
            tight += 1
    assert np.count_nonzero(((share > 1e-8) & (share < 1 - 1e-8)).any(axis=1)) <= tight
    assert (plan.price, plan.cost) == (plan.limits[0].price, pytest.approx(plan.limits[0].cost))
    assert plan.bound == pytest.approx(dual_of(table, plan, limits), abs=1e-9)
    assert plan.accuracy <= plan.bound + 1e-10


def best_whole(table: AccuracyTable, budget: float, limits: Sequence[Cap]) -> float | None:
    """The most accurate deterministic choice within all limits, by trying every one."""
    rows = np.arange(len(table))
    ways = np.array(list(itertools.product(range(len(table.modes)), repeat=len(table))))
    within = np.ones(len(ways), dtype=bool)
    for costs, at_most in [(table.costs, budget), *((one.costs, one.at_most) for one in limits)]:
        average = np.broadcast_to(costs, table.accuracy.shape)[rows, ways].mean(axis=1)
        within &= average <= at_most + 1e-12 * max(1.0, at_most)
    return float(table.accuracy[rows, ways].mean(axis=1)[within].max()) if within.any() else None


@pytest.mark.slow
@pytest.mark.parametrize("seed", leave_to_nightly(range(40), but=8))
def test_allocations_agree_with_the_full_linear_programme(seed):
    rng = np.random.default_rng(seed)
    for _ in range(8):  # 320 tables in all
        table, budget, limits = random_case(rng)
        expected = highs(table, budget, limits)
        try:
            plan = solve_with_limits(table, budget, limits)
        except Infeasible as exc:
            refused = "together" in str(exc)  # else: only mixing meets the limits
            assert refused == (expected is None)
            continue
        assert expected is not None
        assert plan.bound == pytest.approx(expected, abs=1e-9)
        assert plan.mixed_accuracy == pytest.approx(expected, abs=1e-9)
        check(table, budget, limits, plan)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_the_best_deterministic_choice_lies_between_accuracy_and_bound(seed):
    rng = np.random.default_rng(1000 + seed)
    for _ in range(6):
        table, budget, limits = random_case(rng, rows=int(rng.integers(1, 6)))
        best = best_whole(table, budget, limits)
        try:
            plan = solve_with_limits(table, budget, limits)
        except Infeasible:
            assert best is None, "what is refused has no deterministic choice"
            continue
        assert best is not None
        assert plan.accuracy - 1e-10 <= best <= plan.bound + 1e-10


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(budgeted(), st.booleans())
def test_a_limit_that_does_not_bind_changes_nothing(given_budget, own):
    table, budget = given_budget
    costs = np.arange(table.accuracy.size, dtype=float).reshape(table.accuracy.shape) % 7
    limit = Cap(name="seconds", costs=costs if own else costs[0], at_most=7.0)
    plan, alone = solve_with_limits(table, budget, [limit]), solve(table, budget=budget)
    assert plan.bound == pytest.approx(alone.bound, abs=1e-9)
    assert plan.limits[1].price == 0
    assert plan.limits[1].slack > 0
    # several prices may do for one budget: both are where the dual value is lowest
    net = table.accuracy - plan.price * table.cost_matrix
    assert net.max(axis=1).mean() + plan.price * budget == pytest.approx(alone.bound, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("kind", leave_to_nightly(["random", "parts of 48", "copies"]))
@pytest.mark.parametrize("second", ["tokens", "seconds", "against"])
def test_thousands_of_problems_are_solved_exactly_with_few_of_them_mixed(kind, second):
    rng = np.random.default_rng(5)
    rows = 3000
    accuracy = np.sort(rng.random((rows, 5)), axis=1)
    if kind != "random":
        accuracy = np.round(accuracy * 48) / 48
    if kind == "copies":
        accuracy = accuracy[np.arange(rows) % 7]
    table = AccuracyTable.of(accuracy, costs=SAMPLES)
    tokens = rng.lognormal(6, 0.5, (rows, 1)) * np.array(SAMPLES)
    limits = {
        "tokens": [Cap(name="tokens", costs=tokens, at_most=float(tokens.mean(axis=0)[1]) * 0.9)],
        "seconds": [Cap(name="seconds", costs=[3, 2, 6, 5, 4], at_most=2.9)],
        "against": [Cap(name="seconds", costs=SAMPLES[::-1], at_most=9.0)],
    }[second]
    plan = solve_with_limits(table, 2.0, limits)
    assert plan.bound == pytest.approx(highs(table, 2.0, limits), abs=1e-9)
    assert plan.mixed_accuracy == pytest.approx(plan.bound, abs=1e-10)
    assert plan.gap < 6 / rows
    check(table, 2.0, limits, plan)
    again = solve_with_limits(table, 2.0, limits)
    assert (again.choice == plan.choice).all()
    assert [(m.problem, m.mode, m.probability) for m in again.mix] == [
        (m.problem, m.mode, m.probability) for m in plan.mix
    ]


@pytest.mark.slow
def test_where_every_problem_is_tied_ten_thousand_are_solved_with_two_of_them_mixed():
    rows = np.random.default_rng(5).random((10_000, 5))
    accuracy = (np.round(np.sort(rows, axis=1) * 48) / 48)[np.arange(len(rows)) % 7]
    table = AccuracyTable.of(accuracy, costs=SAMPLES)
    limits = [Cap(name="seconds", costs=SAMPLES[::-1], at_most=9.0)]
    plan = solve_with_limits(table, 2.0, limits)
    check(table, 2.0, limits, plan)
    assert plan.mixed_accuracy == pytest.approx(plan.bound, abs=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_tables_of_a_few_different_rows_agree_with_the_full_linear_programme(seed):
    rng = np.random.default_rng(2000 + seed)
    for _ in range(6):
        table, budget, limits = random_case(rng, rows=int(rng.integers(1, 5)))
        copies = rng.integers(0, len(table), int(rng.choice([7, 40, 300])))
        budget = max(budget, float(table.cost_matrix[copies].min(axis=1).mean()))
        limits = [
            Cap(
                name=limit.name,
                costs=(costs := np.broadcast_to(limit.costs, table.accuracy.shape)[copies]),
                at_most=max(limit.at_most, float(costs.min(axis=1).mean())),
            )
            for limit in limits
        ]
        table = AccuracyTable.of(table.accuracy[copies], costs=table.cost_matrix[copies], order="any")
        expected = highs(table, budget, limits)
        try:
            plan = solve_with_limits(table, budget, limits)
        except Infeasible as exc:
            refused = "together" in str(exc)
            assert refused == (expected is None)
            continue
        assert plan.bound == pytest.approx(expected, abs=1e-9)
        assert plan.mixed_accuracy == pytest.approx(expected, abs=1e-9)
        check(table, budget, limits, plan)


def test_where_highs_gives_up_at_its_tightest_tolerance_a_wider_one_follows(monkeypatch):
    linprog, tolerances = scipy.optimize.linprog, []

    def give_up(c, *, options, **programme):
        solution = linprog(c, options=options, **programme)
        tolerances.append(options["primal_feasibility_tolerance"])
        if tolerances[-1] == min(tolerances):
            solution.status = 4
        return solution

    monkeypatch.setattr(scipy.optimize, "linprog", give_up)
    table = AccuracyTable.of([[0.5, 0.9], [0.6, 0.8]], costs=[1, 2])
    limits = [Cap(name="seconds", costs=[1, 5], at_most=2.0)]
    plan = solve_with_limits(table, 2.0, limits)
    assert plan.bound == pytest.approx(0.65)
    assert len(set(tolerances)) == 2


def test_solve_hands_limits_on_and_names_the_budget_by_its_unit():
    table = AccuracyTable.of([[0.5, 0.9], [0.6, 0.8]], costs=[1, 2], unit="tokens")
    plan = solve(table, budget=2.0, limits=[Cap(name="seconds", costs=[1, 5], at_most=2.0)])
    assert [use.name for use in plan.limits] == ["tokens", "seconds"]
    assert [(m.problem, m.mode, m.probability) for m in plan.mix] == [(0, 1, pytest.approx(0.5))]
    assert plan.price == 0
    assert not plan.binding
    assert plan.limits[0].slack == pytest.approx(0.75)
    assert plan.limits[1].price == pytest.approx(0.1)
    assert not plan.choice.flags.writeable


@pytest.mark.parametrize("order", ["ascending", "any"])
def test_of_equally_good_modes_the_cheaper_is_taken(order):
    costs = np.array([[1.0, 2.0, 4.0]] * 50) if order == "ascending" else np.array([[4.0, 1.0, 2.0]] * 50)
    table = AccuracyTable.of(np.full((50, 3), 0.5), costs=costs, order=order)
    plan = solve_with_limits(table, 3.0, [Cap(name="seconds", costs=[1, 1, 1], at_most=1.0)])
    assert plan.cost == plan.mixed_cost == 1.0
    assert len(plan.mix) == 0


def test_a_budget_that_only_the_cheapest_modes_keep_has_a_price_at_which_none_wants_more():
    rng = np.random.default_rng(9)
    table = AccuracyTable.of(rng.random((40, 5)), costs=[1, 1, 2, 4, 8])
    limit = Cap(name="seconds", costs=rng.random((40, 5)), at_most=0.5)
    plan = solve_with_limits(table, 1.0, [limit])
    assert plan.cost == 1.0
    assert plan.price > 0
    assert plan.bound == pytest.approx(highs(table, 1.0, [limit]), abs=1e-9)
    check(table, 1.0, [limit], plan)


def test_limits_that_just_touch_are_met():
    table = AccuracyTable.of([[0.2, 0.4, 0.9]] * 4, costs=[1, 3, 3])
    limit = Cap(name="seconds", costs=[3, 1, 9], at_most=2.0)  # half and half is all there is
    plan = solve_with_limits(table, 2.0, [limit])
    assert plan.bound == pytest.approx(0.3)
    assert plan.counts == (2, 2, 0)


@pytest.mark.slow
def test_other_problems_give_way_where_rounding_the_mixed_ones_breaks_a_limit():
    rng = np.random.default_rng(3)
    found = 0
    for _ in range(60):
        costs = [rng.integers(1, 9, (12, 3)).astype(float) for _ in range(3)]
        table = AccuracyTable.of(rng.random((12, 3)), costs=costs[0], order="any")
        limits = [
            Cap(name=f"l{j}", costs=c, at_most=float(c.min(axis=1).mean()) + 1.6) for j, c in enumerate(costs)
        ]
        try:
            plan = solve_with_limits(table, limits[0].at_most, limits[1:])
        except Infeasible:
            continue
        check(table, limits[0].at_most, limits[1:], plan)
        found += any(move.probability == 1 for move in plan.mix)
    assert found > 0


def test_costs_that_are_the_same_whatever_is_chosen_have_no_price():
    table = AccuracyTable.of([[0.5, 0.9], [0.6, 0.8]], costs=[1, 2])
    plan = solve_with_limits(table, 1.5, [Cap(name="s", costs=[[3, 3], [0, 0]], at_most=1.5)])
    assert plan.limits[1].price == 0
    assert plan.limits[1].mixed_cost == 1.5
    assert plan.bound == pytest.approx(0.75)
