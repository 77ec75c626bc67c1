"""Shrinking takes the winner's curse off what a choice claims, and leaves the rest of the table alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

import adacompute as ac
from adacompute.errors import ScoreError
from adacompute.records import AccuracyTable
from adacompute.score.grades import grade_samples, halves
from adacompute.score.plain_vote import score_exact_vote
from shared import read_votes
from studies.shrinkage import shrink
from synthetic import make_ballots

BUDGETS = (1, 2, 4, 8, 16)
PRICES = (0.01, 0.04)


def measured(seed: int, *, problems: int = 400, samples: int = 16) -> tuple[AccuracyTable, np.ndarray]:
    """A table of votes of 1, 3 and 7 on samples that are right or wrong, and the true accuracies."""
    rng = np.random.default_rng(seed)
    p = rng.beta(0.6, 0.6, problems)  # many near 0 and near 1, as problems are
    right = rng.random((problems, samples)) < p[:, None]
    ballots = make_ballots(np.where(right, 0, 1), right)
    scored = score_exact_vote(ballots, right.astype(float), (1, 3, 7))
    truth = np.stack([binom.sf(b // 2, b, p) for b in (1, 3, 7)], axis=1)
    return AccuracyTable.of(scored.accuracy, costs=[1, 3, 7], standard_error=scored.standard_error), truth


def claimed_and_real(table: AccuracyTable, judge: np.ndarray, price: float) -> tuple[float, float]:
    """What choosing by this price says it gives, and what it gives by other samples, less what it costs."""
    worth, real = (accuracy - price * table.cost_matrix for accuracy in (table.accuracy, judge))
    choice = worth.argmax(axis=1)[:, None]
    return tuple(float(np.take_along_axis(values, choice, 1).mean()) for values in (worth, real))


@pytest.mark.parametrize("seed", range(5))
def test_it_is_nearer_to_the_truth_and_claims_less_too_much(seed: int):
    table, truth = measured(seed)
    shrunk = shrink(table)
    assert ((shrunk.accuracy - truth) ** 2).mean() < 0.95 * ((table.accuracy - truth) ** 2).mean()
    before, after = (np.subtract(*claimed_and_real(t, truth, 0.01)) for t in (table, shrunk))
    assert abs(after) < 0.6 * before


def test_over_many_tables_most_of_the_bias_is_gone_and_the_errors_are_honest():
    claims, ratios = [], []
    for seed in range(20):
        table, truth = measured(seed)
        shrunk = shrink(table)
        claims.append([np.subtract(*claimed_and_real(t, truth, 0.01)) for t in (table, shrunk)])
        ratios.append((shrunk.standard_error**2).mean() / ((shrunk.accuracy - truth) ** 2).mean())
    before, after = np.mean(claims, axis=0)
    assert before > 0.015
    assert abs(after) < 0.4 * before
    assert 0.85 < np.mean(ratios) < 1.25


@pytest.mark.slow
@pytest.mark.parametrize("name", ["facts", "words"])
def test_on_real_samples_claims_come_nearer_and_choices_are_as_good(name: str):
    ballots, found = read_votes(name), []
    for seed in range(3):
        parts = halves(ballots, np.random.default_rng(seed))
        scored = [score_exact_vote(part, grade_samples(part), BUDGETS) for part in parts]
        for mine, other in (scored, scored[::-1]):
            table = AccuracyTable.of(mine.accuracy, costs=BUDGETS, standard_error=mine.standard_error)
            both = (table, shrink(table))
            found.append([[claimed_and_real(t, other.accuracy, price) for t in both] for price in PRICES])
    for (raw_claim, raw_real), (claim, real) in np.mean(found, axis=0):
        assert abs(claim - real) < 0.7 * (raw_claim - raw_real)
        assert real > raw_real - 0.002


def test_unanimous_rows_are_not_taken_for_certain():
    table, _ = measured(0)
    unanimous = table.standard_error == 0
    shrunk = shrink(table)
    assert unanimous.any()
    assert (shrunk.standard_error[unanimous] > 0.02).all()  # 16 of 16 right: Laplace's rule says 0.05 before
    assert (shrunk.standard_error[unanimous] < 0.06).all()
    assert (shrunk.standard_error <= np.maximum(table.standard_error, 0.13)).all()


def test_without_noise_nothing_moves():
    _, truth = measured(1)
    exact = AccuracyTable.of(truth, costs=[1, 3, 7], standard_error=np.full(truth.shape, 1e-6))
    np.testing.assert_allclose(shrink(exact).accuracy, truth, atol=1e-3)
    np.testing.assert_array_equal(
        shrink(AccuracyTable.of([[0, 1], [1, 1]], costs=[1, 2], standard_error=np.zeros((2, 2)))).accuracy,
        [[0, 1], [1, 1]],
    )


def test_a_row_without_neighbours_stays_where_it_is():
    accuracy = np.vstack([np.full((50, 2), 0.9), [[0.1, 0.2]]])
    table = AccuracyTable.of(accuracy, costs=[1, 4], standard_error=np.full(accuracy.shape, 0.01))
    np.testing.assert_allclose(shrink(table).accuracy, accuracy, atol=1e-9)


@given(st.integers(0, 1000))
def test_the_order_of_rows_has_no_effect(seed: int):
    table, _ = measured(seed, problems=20)
    order = np.random.default_rng(seed).permutation(20)
    turned = AccuracyTable.of(
        table.accuracy[order], costs=table.costs, standard_error=table.standard_error[order]
    )
    np.testing.assert_allclose(shrink(turned).accuracy, shrink(table).accuracy[order], atol=1e-12)


@given(st.integers(0, 1000), st.integers(1, 30), st.integers(8, 40))
def test_accuracies_stay_accuracies_and_errors_stay_errors(seed: int, problems: int, samples: int):
    shrunk = shrink(measured(seed, problems=problems, samples=samples)[0])
    assert ((shrunk.accuracy >= 0) & (shrunk.accuracy <= 1)).all()
    assert (np.isfinite(shrunk.standard_error) & (shrunk.standard_error >= 0)).all()


@pytest.mark.parametrize("costs", [[0, 0, 0], [0, 1, 1], [2, 2, 2]])
def test_free_modes_and_modes_of_one_cost_can_be_shrunk(costs: list[int]):
    table, truth = measured(2)
    same = AccuracyTable.of(table.accuracy, costs=costs, standard_error=table.standard_error)
    assert ((shrink(same).accuracy - truth) ** 2).mean() < ((table.accuracy - truth) ** 2).mean()


def test_large_tables_are_compared_with_a_part_of_themselves():
    table, truth = measured(3, problems=10_000)
    shrunk = shrink(table)
    assert ((shrunk.accuracy - truth) ** 2).mean() < 0.9 * ((table.accuracy - truth) ** 2).mean()


def test_everything_else_is_kept_and_the_protocol_says_so():
    table = AccuracyTable.of(
        [[0.5, 0.75], [0.25, 0.5]],
        costs=[1, 4],
        modes=["small", "large"],
        standard_error=[[0.1, 0.1], [0.1, 0.1]],
        ids=["a", "b"],
        unit="tokens",
        dropped=["c"],
        protocol="exact vote",
    )
    shrunk = shrink(table)
    for name in ("costs", "modes", "ids", "unit", "ascending", "dropped"):
        assert getattr(shrunk, name) is getattr(table, name)
    assert shrunk.protocol.startswith("exact vote; shrunk")
    with pytest.raises(ValueError, match="read-only"):
        shrunk.accuracy[0, 0] = 0


def test_a_table_that_does_not_say_how_noisy_it_is_is_refused():
    with pytest.raises(ScoreError, match="without standard errors can't be shrunk"):
        shrink(AccuracyTable.of([[0.5, 0.6]], costs=[1, 2]))
    table = AccuracyTable.of(
        [[0.5, 0.6]], costs=[1, 2], ids=["p"], modes=[1, 16], standard_error=[[0.1, np.nan]]
    )
    with pytest.raises(ScoreError, match=r"of problem 'p' in mode 16 is nan.*fewer samples"):
        shrink(table)


@pytest.mark.parametrize("name", ["facts", "words"])
def test_a_modes_mean_over_problems_is_left_as_it_is(name: str):
    table = ac.score(read_votes(name))
    assert shrink(table).accuracy.mean(axis=0) == pytest.approx(table.accuracy.mean(axis=0), abs=1e-4)
