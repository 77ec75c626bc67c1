"""The weighted vote: by listing every subset where one can, and within its stated error elsewhere."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_ballots import made as plain

from adacompute.answers import VoteWeights
from adacompute.errors import NotRecorded
from adacompute.pool.ballots import ABSTAINS, Ballots
from adacompute.records import Sample
from adacompute.score import aggregates
from adacompute.score.aggregates import compute_weight_units, score_weighted_vote
from adacompute.score.grades import grade_samples as grades_of
from shared import read_votes

Draw = tuple[int, float]  # class, mean log-probability
WEIGH = VoteWeights(signal="logprob", scale=-0.5)
PLAIN = VoteWeights(signal="logprob", scale=-0.5, sharpness=0.0)


def made(problems: Sequence[Sequence[Draw]], worth: Sequence[float] = (1.0, 0.0, 0.5, 0.0)) -> Ballots:
    """Ballots of these samples, each class with its worth; short problems are filled up with absent ones."""
    shape = (len(problems), max(map(len, problems)))
    tokens, logprob = (np.full(shape, np.nan) for _ in range(2))
    for i, drawn in enumerate(problems):
        for j, (_, sure) in enumerate(drawn):
            tokens[i, j], logprob[i, j] = 8.0, 8.0 * sure
    graded = [[(kind, worth[kind] if kind >= 0 else 0.0) for kind, _ in drawn] for drawn in problems]
    return plain(graded, tokens=tokens, logprob=logprob)


def vote(drawn: Sequence[Draw], weigh: VoteWeights, worth: Sequence[float] = (1.0, 0.0, 0.5, 0.0)) -> float:
    """One vote with the real `Weigh`, as a tally counts it."""
    sums: dict[int, int] = {}
    for kind, sure in drawn:
        if kind >= 0:
            sums[kind] = sums.get(kind, 0) + weigh.units(Sample(tokens=8, logprob=8.0 * sure))
    leaders = [kind for kind, total in sums.items() if total == max(sums.values())]
    return sum(worth[kind] for kind in leaders) / len(leaders) if leaders else 0.0


def over_subsets(drawn: Sequence[Draw], budget: int, weigh: VoteWeights) -> float:
    return float(np.mean([vote(subset, weigh) for subset in itertools.combinations(drawn, budget)]))


def jackknife(drawn: Sequence[Draw], budget: int, weigh: VoteWeights) -> float:
    n = len(drawn)
    if budget == n:
        return math.nan
    left = [over_subsets([*drawn[:i], *drawn[i + 1 :]], budget, weigh) for i in range(n)]
    return math.sqrt((n - 1) * np.var(left))


def scored(
    ballots: Ballots, budgets: Sequence[int], weigh: VoteWeights | None, seed: int = 0, draws: int = 2000
):
    rng = np.random.default_rng(seed)
    return score_weighted_vote(ballots, grades_of(ballots), budgets, weigh=weigh, rng=rng, draws=draws)


SURE = st.sampled_from([-0.1, -0.4, -0.5, -2.0])  # few values, so that weights tie
DRAWS = st.tuples(st.sampled_from([ABSTAINS, 0, 1, 2, 3]), SURE)
PROBLEMS = st.lists(st.lists(DRAWS, min_size=4, max_size=7), min_size=1, max_size=3)


@pytest.mark.parametrize("weigh", [PLAIN, WEIGH], ids=["equal weights", "by log-probability"])
@given(problems=PROBLEMS)
def test_with_few_samples_it_is_the_mean_over_every_subset(problems: list[list[Draw]], weigh: VoteWeights):
    found = scored(made(problems), (1, 2, 3, 4), weigh)
    wanted = [[over_subsets(drawn, b, weigh) for b in (1, 2, 3, 4)] for drawn in problems]
    errors = [[jackknife(drawn, b, weigh) for b in (1, 2, 3, 4)] for drawn in problems]
    np.testing.assert_allclose(found.accuracy, wanted, atol=1e-10)
    np.testing.assert_allclose(found.standard_error, errors, atol=1e-7)
    assert not found.simulated
    assert not found.simulation_error.any()


@settings(max_examples=25, deadline=None)
@given(st.lists(DRAWS, min_size=10, max_size=13), st.integers(3, 5), st.integers(0, 2**31))
def test_a_simulation_lies_within_five_of_its_stated_errors(drawn: list[Draw], budget: int, seed: int):
    found = scored(made([drawn]), (budget,), WEIGH, seed, draws=100)
    off = abs(found.accuracy[0, 0] - over_subsets(drawn, budget, WEIGH))
    assert off <= 5 * found.simulation_error[0, 0] + 1e-10


def test_pairs_and_single_samples_are_exact_however_many_samples_there_are():
    rng = np.random.default_rng(1)
    drawn = [(int(k), float(s)) for k, s in zip(rng.integers(-1, 4, 60), -rng.random(60), strict=True)]
    found = scored(made([drawn]), (1, 2, 60), WEIGH, draws=10)
    pairs = [over_subsets(drawn, b, WEIGH) for b in (1, 2)]
    np.testing.assert_allclose(found.accuracy[0], [*pairs, vote(drawn, WEIGH)], atol=1e-10)
    assert not found.simulated
    assert np.isnan(found.standard_error[0, 2])


SKEWED = [[(0, -0.9)] * 5 + [(1, -0.3)] * 4 + [(2, -0.5)] * 3 + [(ABSTAINS, -0.5)] * 2]


def test_the_stated_simulation_error_is_the_spread_over_seeds():
    ballots = made(SKEWED)
    truth = over_subsets(SKEWED[0], 5, WEIGH)
    runs = [scored(ballots, (5,), WEIGH, seed, draws=200) for seed in range(300)]
    values = np.array([run.accuracy[0, 0] for run in runs])
    stated = np.sqrt(np.mean([run.simulation_error[0, 0] ** 2 for run in runs]))
    assert 0.85 < values.std() / stated < 1.15
    assert abs(values.mean() - truth) < 4 * stated / math.sqrt(300)


def test_a_simulated_standard_error_is_near_the_exact_jackknife():
    found = scored(made(SKEWED), (5,), WEIGH, draws=1500)
    assert found.simulated
    assert found.standard_error[0, 0] == pytest.approx(jackknife(SKEWED[0], 5, WEIGH), rel=0.15)


def test_errors_of_problems_recorded_alike_are_not_correlated():
    ballots = made(SKEWED * 200)  # the same samples in the same order, 200 times
    found = scored(ballots, (5,), WEIGH, draws=64)
    truth = over_subsets(SKEWED[0], 5, WEIGH)
    mean_error = found.simulation_error.mean() / math.sqrt(200)
    assert abs(found.accuracy.mean() - truth) < 4 * mean_error


@pytest.mark.parametrize("budget", [3, 8, 12])
def test_votes_are_the_same_whether_samples_are_added_up_or_classes_multiplied(
    budget: int, monkeypatch: pytest.MonkeyPatch
):
    rng = np.random.default_rng(budget)
    problems = [
        [
            (int(kind), float(sure))
            for kind, sure in zip(rng.integers(-1, kinds, 24), -rng.random(24), strict=True)
        ]
        for kinds in (1, 2, 3, 4, 4, 4)
    ]
    results = []
    for ratio in (0.0, math.inf):
        monkeypatch.setattr(aggregates, "_SAMPLES_PER_CLASS", ratio)
        results.append(scored(made(problems), [budget], WEIGH, draws=400))
    multiplied, added = results
    assert np.array_equal(multiplied.accuracy, added.accuracy)
    assert np.allclose(multiplied.standard_error, added.standard_error, rtol=0, atol=1e-12, equal_nan=True)
    assert len(np.unique(added.accuracy)) > 3


def test_the_same_seed_gives_the_same_bytes():
    ballots = made(SKEWED * 3)
    one, two, other = (scored(ballots, (2, 5), None, seed, draws=100) for seed in (7, 7, 8))
    for name in ("accuracy", "standard_error", "simulation_error"):
        assert getattr(one, name).tobytes() == getattr(two, name).tobytes()
    assert one.accuracy.tobytes() != other.accuracy.tobytes()


@given(
    st.lists(st.tuples(st.integers(0, 40), st.floats(-200, 0)), min_size=1, max_size=20),
    st.floats(0, 5),
    st.booleans(),
)
def test_units_are_those_of_weigh(signals: list[tuple[int, float]], sharpness: float, fitted: bool):
    samples = [Sample(answer="1", tokens=tokens, logprob=total) for tokens, total in signals]
    tokens, logprob = ([[getattr(s, name) for s in samples]] for name in ("tokens", "logprob"))
    ballots = replace(
        made([[(0, 0.0)] * len(samples)]),
        tokens=np.array(tokens, dtype=np.float64),
        logprob=np.array(logprob, dtype=np.float64),
    )
    weigh = (
        VoteWeights.of(samples) if fitted else VoteWeights(signal="logprob", scale=-0.3, sharpness=sharpness)
    )
    if not any(s.tokens for s in samples):
        with pytest.raises(NotRecorded, match="tokens and log-prob"):
            compute_weight_units(ballots, weigh)
        return
    given_weigh = None if fitted else weigh
    wanted = [2**36 if weigh is None else weigh.units(s) for s in samples]
    assert compute_weight_units(ballots, given_weigh)[0].tolist() == wanted


def test_entropy_weighs_too():
    ballots = made([[(0, -0.5), (1, -0.5)]])
    ballots = replace(ballots, entropy=np.array([[0.9, 0.1]]))
    weigh = VoteWeights(signal="entropy", scale=0.5)
    assert compute_weight_units(ballots, weigh)[0].tolist() == [
        weigh.units(Sample(entropy=e)) for e in (0.9, 0.1)
    ]
    assert scored(ballots, (2,), weigh).accuracy[0, 0] == 0.0  # the second, surer and wrong


def test_what_was_not_recorded_is_named():
    ballots = made([[(0, math.nan), (1, math.nan)]])
    with pytest.raises(NotRecorded, match=r"no sample of these 1 problems has tokens and log-probabilities"):
        scored(ballots, (1,), None)
    with pytest.raises(NotRecorded, match="entropies"):
        scored(ballots, (1,), VoteWeights(signal="entropy", scale=0.4))


def test_two_draws_that_hold_nearly_all_samples_still_have_an_error():
    found = scored(made([[(0, -0.5), (1, -0.2), (2, -0.1)] * 4]), (11,), WEIGH, draws=2)
    assert np.isfinite(found.standard_error).all()


@pytest.mark.slow
def test_weighing_lifts_two_samples_on_the_bundled_words():
    ballots = read_votes("words")
    plain, weighed = (scored(ballots, (2,), weigh).accuracy.mean() for weigh in (PLAIN, None))
    assert plain == pytest.approx(0.645, abs=0.01)
    assert weighed > plain + 0.07
