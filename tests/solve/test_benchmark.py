"""The benchmarks of scoring and solving still run, on little; their speed is nobody's test."""

import numpy as np
import pytest

from harness import import_script


def test_the_solve_benchmark_measures_time_memory_and_vertices():
    solve = import_script("solve", "benchmarks")
    for make in solve.TABLES.values():
        row = solve.row("some", make(np.random.default_rng(0), 3000), solve.SAMPLES)
        assert row["frontier"] > 0
        assert row["solve"] > 0
        assert 1 < row["frontier_memory"] < 10
        assert row["vertices"] > 1


def test_the_comparison_with_highs_compares_the_same_optimum():
    rows = import_script("solve", "benchmarks").against_highs(problems=300)
    assert len(rows) == 2
    assert all(row["difference"] < 1e-7 for row in rows)


def test_the_simulation_that_scoring_is_compared_with_gives_the_same_accuracies():
    score = import_script("score", "benchmarks")
    with score.ac.bundled("facts") as pool:
        ballots = score.first(pool.ballots(), 48, 6)
    simulated = score.simulate(ballots, (1, 4), np.random.default_rng(0))
    exact = score.score_exact_vote(ballots, score.grade_samples(ballots), (1, 4)).accuracy
    assert simulated == pytest.approx(exact, abs=0.1)  # a thousand subsets a cell: six standard errors
