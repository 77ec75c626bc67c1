"""Tables over several modes against votes counted pair of subsets by pair, HiGHS, and one mode's table."""

import itertools
import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from made_ballots import Draw, made, vote, worths

import adacompute as ac
from adacompute.answers.vote import VoteWeights
from adacompute.errors import RecordNotFound, ScoreError, SourceAmbiguous, TooFewSamples
from adacompute.pool import Ballots, Mode
from adacompute.pool.ballots import ABSTAINS
from adacompute.pool.modes import Menu, join_pools
from adacompute.records import AccuracyTable, TokenPrices
from adacompute.score import list_columns

TWO = Menu(modes=(Mode(name="small", cost=0.1), Mode(name="large", cost=1.0)))
SAMPLES = st.lists(
    st.sampled_from([(0, 1.0), (1, 0.0), (2, 0.0), (3, 0.5), (ABSTAINS, 0.0)]), min_size=2, max_size=5
)
PROBLEMS = st.lists(st.tuples(SAMPLES, SAMPLES), min_size=1, max_size=3)


def pair(*problems: tuple[Sequence[Draw], Sequence[Draw]], **fields: object) -> Ballots:
    """Two modes' votes on the same problems."""
    small, large = zip(*problems, strict=True)
    return Ballots.join({"small": made(small, **fields), "large": made(large, **fields)})


def over_pairs(
    small: Sequence[Draw],
    large: Sequence[Draw],
    counts: tuple[int, int],
    *,
    worth: dict[int, Fraction] | None = None,
) -> Fraction:
    """The mean over all pairs of subsets, one by one."""
    worth = worths([*small, *large]) if worth is None else worth
    values = [
        vote([*a, *b], worth)
        for a in itertools.combinations(small, counts[0])
        for b in itertools.combinations(large, counts[1])
    ]
    return sum(values, Fraction(0)) / len(values)


def jackknife_pairs(small: Sequence[Draw], large: Sequence[Draw], counts: tuple[int, int]) -> float:
    """The delete-one standard error over the samples of both modes; classes keep their worth."""
    worth, variance = worths([*small, *large]), Fraction(0)
    for place, drawn in enumerate((small, large)):
        n = len(drawn)
        without = []
        for i in range(n):
            rest = [*drawn[:i], *drawn[i + 1 :]]
            both = (rest, large) if place == 0 else (small, rest)
            without.append(over_pairs(*both, counts, worth=worth))
        mean = sum(without, Fraction(0)) / n
        variance += Fraction(n - 1, n) * sum((value - mean) ** 2 for value in without)
    return float(variance) ** 0.5


@settings(max_examples=60, deadline=None)
@given(problems=PROBLEMS)
def test_mixed_votes_are_means_over_all_pairs_of_subsets_with_jackknife_errors(
    problems: list[tuple[list[Draw], list[Draw]]],
):
    table = ac.score(pair(*problems), modes=TWO, budgets=(1, 2))
    for row, (small, large) in enumerate(problems):
        for column, counts in enumerate(itertools.product((1, 2), repeat=2), start=4):
            expected = over_pairs(small, large, counts)
            assert table.accuracy[row, column] == pytest.approx(float(expected), abs=1e-12)
            assert table.standard_error is not None
            error = table.standard_error[row, column]
            if counts[0] < len(small) and counts[1] < len(large):
                assert error == pytest.approx(jackknife_pairs(small, large, counts), abs=1e-10)
            else:
                assert np.isnan(error)


@pytest.mark.nightly
def test_large_mixed_votes_of_many_classes_are_those_of_many_drawn_subsets():
    rng = np.random.default_rng(5)
    votes = [[(int(kind), float(kind == 0)) for kind in rng.zipf(1.7, 30) % 9] for _ in range(2)]
    ballots = pair((votes[0], votes[1]))
    exact = ac.score(ballots, modes=TWO, budgets=(12, 16))
    draws = 4000
    right = np.zeros((draws, 4))
    worth = worths([*votes[0], *votes[1]])
    for draw in range(draws):
        orders = [rng.permutation(30) for _ in range(2)]
        for column, counts in enumerate(itertools.product((12, 16), repeat=2)):
            drawn = [[v[i] for i in o[:n]] for v, o, n in zip(votes, orders, counts, strict=True)]
            right[draw, column] = vote([*drawn[0], *drawn[1]], worth)
    noise = right.std(axis=0) / draws**0.5
    assert (abs(right.mean(axis=0) - exact.accuracy[0, 4:]) < 4 * noise + 1e-6).all()


def test_a_menu_of_one_mode_is_what_score_says_of_it():
    with ac.bundled("words") as pool:
        votes, plain = pool.ballots(), ac.score(pool, budgets=(1, 2, 8))
        priced = ac.score(pool, budgets=(1, 2, 8), cost=TokenPrices(input=1.0, output=4.0))
    ballots = Ballots.join({"qwen": votes})
    table = ac.score(ballots, modes=Menu.of(ballots, costs={"qwen": 1.0}), budgets=(1, 2, 8))
    assert table.modes == ("qwen x 1", "qwen x 2", "qwen x 8")
    assert (table.accuracy == plain.accuracy).all()
    assert (table.costs == plain.costs).all()
    assert table.standard_error is not None
    assert plain.standard_error is not None
    assert np.array_equal(table.standard_error, plain.standard_error, equal_nan=True)
    menu = Menu.of(ballots, prices={"qwen": TokenPrices(input=1.0, output=4.0)})
    money = ac.score(ballots, modes=menu, budgets=(1, 2, 8))
    assert money.unit == priced.unit == "USD"
    assert (money.costs == priced.costs).all()
    assert priced.protocol.rsplit("; ", 1)[1] in money.protocol


def test_columns_are_named_by_mode_and_number_cheapest_mode_first():
    menu = Menu(modes=(*TWO.modes, Mode(name="huge", cost=5.0), Mode(name="never", cost=np.inf)))
    names = [str(column) for column in list_columns(menu, {"small": (1, 2), "large": (1,), "huge": (1,)})]
    assert names == [
        *("small x 1", "small x 2", "large x 1", "huge x 1"),
        *("small x 1 + large x 1", "small x 2 + large x 1"),
        *("small x 1 + huge x 1", "small x 2 + huge x 1", "large x 1 + huge x 1"),
    ]
    assert len(list_columns(menu, (1, 2), mixed=False)) == 6


def test_costs_are_shared_by_problems_unless_prices_and_tokens_tell_them_apart():
    tokens = np.array([[10.0, 30.0, 20.0], [100.0, 100.0, 100.0]])
    right = [(0, 1.0)] * 3
    ballots = pair((right, right), (right, right), tokens=tokens)
    shared = ac.score(ballots, modes=TWO, budgets=(1, 2))
    assert shared.shared_costs
    assert shared.unit == "cost"
    assert shared.costs == pytest.approx([0.1, 0.2, 1.0, 2.0, 1.1, 2.1, 1.2, 2.2])
    cheap = TokenPrices(output=1.0, prompt_tokens=0)
    dear = TokenPrices(output=10.0, input=1.0, prompt_tokens=50)
    menu = Menu.of(ballots, prices={"small": cheap, "large": dear})
    money = ac.score(ballots, modes=menu, budgets=(1, 2))
    assert money.costs.shape == (2, 8)
    small, large = np.array([[20.0, 40.0], [100.0, 200.0]]), np.array([[250.0, 500.0], [1050.0, 2100.0]])
    mixes = (small[:, :, None] + large[:, None, :]).reshape(2, 4)
    assert money.costs * 1e6 == pytest.approx(np.hstack([small, large, mixes]))


def make_pairs(problems: int, seed: int = 3) -> Ballots:
    """A cheap mode that is right now and then, and a dear one that is right more often."""
    rng = np.random.default_rng(seed)
    made_problems = []
    for _ in range(problems):
        skill = rng.random(2) * (0.6, 1.0)
        made_problems.append(
            tuple(
                [(0, 1.0) if rng.random() < level else (int(rng.integers(1, 4)), 0.0) for _ in range(8)]
                for level in skill
            )
        )
    return pair(*made_problems)  # type: ignore[arg-type]


def solve_by_highs(table: AccuracyTable, budget: float) -> float:
    rows, columns = table.accuracy.shape
    found = scipy.optimize.linprog(
        -table.accuracy.ravel() / rows,
        A_ub=scipy.sparse.csr_matrix(table.cost_matrix.reshape(1, -1) / rows),
        b_ub=[budget],
        A_eq=scipy.sparse.kron(scipy.sparse.identity(rows), np.ones((1, columns)), format="csr"),
        b_eq=np.ones(rows),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert found.status == 0, found.message
    return -float(found.fun)


@pytest.mark.parametrize("budget", [0.15, 0.4, 1.0, 2.5])
def test_frontier_and_solve_by_a_menus_cost_agree_with_highs(budget: float):
    table = ac.score(make_pairs(40), modes=TWO, budgets={"small": (1, 2, 4), "large": (1, 3)})
    expected = solve_by_highs(table, budget)
    assert ac.solve(table, budget=budget).bound == pytest.approx(expected, abs=1e-9)
    assert ac.frontier(table).at(budget) == pytest.approx(expected, abs=1e-9)


def test_frontier_and_solve_by_money_that_differs_by_problem_agree_with_highs():
    ballots = make_pairs(30)
    tokens = np.random.default_rng(2).integers(5, 300, (2, 30, 8)).astype(float)
    parts = [
        made(
            [
                list(zip(c.tolist(), g.tolist(), strict=True))
                for c, g in zip(b.classes, b.correct, strict=True)
            ],
            tokens=t,
        )
        for b, t in zip(ballots.parts, tokens, strict=True)
    ]
    ballots = Ballots.join(dict(zip(ballots.names, parts, strict=True)))
    prices = {"small": TokenPrices(output=1.0), "large": TokenPrices(output=8.0, input=1.0)}
    table = ac.score(ballots, modes=Menu.of(ballots, prices=prices), budgets=(1, 2, 4))
    cheapest, dearest = (float(end(table.cost_matrix, axis=1).mean()) for end in (np.min, np.max))
    for share in (0.0, 0.1, 0.4):
        budget = cheapest + share * (dearest - cheapest)
        assert ac.solve(table, budget=budget).bound == pytest.approx(solve_by_highs(table, budget), abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), dearer=st.floats(1.0, 20.0))
def test_a_dearer_copy_of_a_mode_never_raises_the_frontier(seed: int, dearer: float):
    both = make_pairs(6, seed)
    alone = ac.score(both, modes=Menu.of(both, costs={"large": 1.0}), budgets=(1, 2, 4))
    twice = Ballots.join({"large": both["large"], "copy": both["large"]})
    menu = Menu.of(twice, costs={"large": 1.0, "copy": dearer})
    table = ac.score(twice, modes=menu, budgets=(1, 2, 4), mixed=False)
    curve, base = ac.frontier(table), ac.frontier(alone)
    for cost in (1.0, 1.3, 2.0, 3.7):
        assert curve.at(cost) == pytest.approx(base.at(cost), abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), cheap=st.floats(0.01, 3.0), mixed=st.booleans())
def test_one_more_mode_never_lowers_the_frontier(seed: int, cheap: float, mixed: bool):
    both = make_pairs(6, seed)
    base = ac.frontier(ac.score(both, modes=Menu.of(both, costs={"large": 1.0}), budgets=(1, 2, 4)))
    menu = Menu.of(both, costs={"small": cheap, "large": 1.0})
    curve = ac.frontier(ac.score(both, modes=menu, budgets=(1, 2, 4), mixed=mixed))
    for cost in (1.0, 1.3, 2.0, 3.7, 9.0):
        assert curve.at(cost) >= base.at(cost) - 1e-12


def test_a_mode_of_infinite_cost_has_no_column():
    both = make_pairs(4)
    menu = Menu.of(both, costs={"small": np.inf, "large": 1.0})
    assert ac.score(both, modes=menu, budgets=(1, 2)).modes == ("large x 1", "large x 2")
    with pytest.raises(ScoreError, match="every mode "):
        ac.score(both, modes=Menu.of(both, costs={"small": np.inf}), budgets=(1,))


def test_score_takes_joined_votes_and_refuses_what_is_for_one_mode():
    both = make_pairs(5)
    table = ac.score(both, modes=TWO, budgets={"small": (1, 2), "large": (1,)})
    assert table.modes[-1] == "small x 2 + large x 1"
    assert ac.score(both, modes=TWO).modes[:4] == ("small x 1", "small x 2", "small x 4", "small x 8")
    options: list[dict[str, object]] = [
        {"cost": "tokens"}, {"model": "m"}, {"aggregate": "best-of"},
        {"estimator": "windows"}, {"by": VoteWeights(signal="logprob", scale=-1.0)}, {"parameters": {}},
    ]  # fmt: skip
    for option in options:
        with pytest.raises(ScoreError, match=f"{next(iter(option))} .* is for one mode, not for several"):
            ac.score(both, modes=TWO, **option)  # type: ignore[arg-type]
    with pytest.raises(RecordNotFound, match="no mode 'large' in the pool; there are small"):
        ac.score(both["small"], modes=TWO)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budgets": {"small": (1,)}}, r"there are no budgets for mode 'large'; give some, e.g. {'large'"),
        ({"budgets": {"small": (1,), "large": (1,), "x": (1,)}}, r"'x' in budgets is not a mode;"),
        ({"budgets": (2, 1)}, r"budgets \(2, 1\) can't be used"),
        ({"too_few": "skip"}, r"too_few 'skip' is not known; give one of 'error', 'drop'"),
    ],
)
def test_what_cant_be_scored_is_refused_in_one_line(options: dict[str, object], message: str):
    with pytest.raises(ScoreError, match=message):
        ac.score(make_pairs(2), modes=TWO, **options)  # type: ignore[arg-type]


def test_a_mixed_vote_has_16_samples_of_each_mode_at_most():
    ballots = pair(([(0, 1.0)] * 17, [(0, 1.0)] * 17))
    with pytest.raises(ScoreError, match="budget 17 is above 16, the most samples of each mode"):
        ac.score(ballots, modes=TWO, budgets=(1, 17))
    assert ac.score(ballots, modes=TWO, budgets=(1, 17), mixed=False).accuracy.min() == 1.0


def test_problems_with_too_few_samples_in_a_mode_are_named_or_left_out():
    long, short = [(0, 1.0)] * 3, [(0, 1.0)] * 2
    ballots = pair((long, long), (long, short), (short, long))
    with pytest.raises(TooFewSamples, match=r"mode 'small': 1 of 3 problems has fewer than 3 samples: 'p2'"):
        ac.score(ballots, modes=TWO, budgets=(1, 3))
    table = ac.score(ballots, modes=TWO, budgets=(1, 3), too_few="drop")
    assert table.ids == ("p0",)
    assert table.dropped == ("p1", "p2")
    with pytest.raises(ScoreError, match="no problem can be scored in every mode"):
        ac.score(pair((long, short), (short, long)), modes=TWO, budgets=(1, 3), too_few="drop")


def test_a_pool_with_several_sources_is_scored_by_its_menu(tmp_path: Path):
    files = []
    for model, answers in (("a", ["4", "5", "4"]), ("b", ["4", "4", "4"])):
        samples = [{"answer": answer, "tokens": 10} for answer in answers]
        line = {"id": "p", "question": "2 + 2?", "gold": "4", "model": model, "samples": samples}
        files.append(json.dumps(line) + "\n")
    path = tmp_path / "both.jsonl"
    path.write_text("".join(files))
    with ac.open_pool(path) as pool:
        table = ac.score(pool, modes=Menu.of(pool, costs={"a": 1.0, "b": 3.0}), budgets=(1, 2))
        with pytest.raises(SourceAmbiguous):
            ac.score(pool, budgets=(1, 2))  # without a menu, one source is named, as before
    assert table.modes[:4] == ("a x 1", "a x 2", "b x 1", "b x 2")
    assert table.accuracy[0] == pytest.approx([2 / 3, 2 / 3, 1, 1, 5 / 6, 1, 1, 1], abs=1e-12)


@pytest.mark.nightly
def test_two_real_modes_on_facts(recordings: Path):
    pools = {
        "smol": recordings / "facts-smollm2-135m.jsonl.gz",
        "qwen": recordings / "modes" / "facts-qwen2.5-coder-1.5b.jsonl.gz",
    }
    with join_pools(pools) as pool:
        menu = Menu.of(pool, costs={"smol": 0.1, "qwen": 1.0})
        table = ac.score(pool, modes=menu, budgets={"smol": (1, 2, 4), "qwen": (1, 2)})
        assert ac.score(pool, budgets=(1,)).unit == "tokens"
    single = table.accuracy[:, [0, 3]].mean(axis=0)
    assert single == pytest.approx([0.408, 0.895], abs=0.001)
    assert (
        ac.frontier(table).at(0.5) > 0.515 + (0.842 - 0.515) / 3
    )  # the best fixed mix: design.md, section 9
