"""Published rivals are what they are said to be: checked against their definitions, counted out."""

import math
from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from menu_modes import make_modes
from numpy.testing import assert_allclose

import adacompute as ac
from adacompute.evaluate.measure import EvaluationSetup, prepare_modes
from adacompute.evaluate.protocols import run_policies
from adacompute.evaluate.published import (
    follow_confidence_cascades,
    follow_conformal_cascades,
    trace_posteriors,
)
from adacompute.policies.paths import ModePaths, draw_paths_by_mode
from adacompute.pool import Ballots
from adacompute.pool.modes import Menu
from synthetic import make_ballots, synthetic

PROBLEMS, SAMPLES, ORDERS = 24, 5, 2


def list_posteriors(answers: list[int], confidences: list[float]) -> dict[int, float]:
    """Algorithm 1 of CGES by its products; -9 is the answer that was not seen."""
    given = [(answer, c) for answer, c in zip(answers, confidences, strict=True) if answer >= 0]
    candidates = [*dict.fromkeys(answer for answer, _ in given), -9]
    others = max(1, len(candidates) - 1)
    likelihood = {
        candidate: math.prod(c if answer == candidate else (1 - c) / others for answer, c in given)
        for candidate in candidates
    }
    return {candidate: value / sum(likelihood.values()) for candidate, value in likelihood.items()}


def test_posteriors_are_the_products_of_their_definition():
    rng = np.random.default_rng(0)
    classes = rng.integers(-1, 4, (60, 7))
    confidence = rng.uniform(0.05, 0.95, classes.shape)
    odds, leaders = trace_posteriors(classes.astype(np.int32), confidence)
    for path, draws in product(range(60), range(1, 8)):
        own = list_posteriors(classes[path, :draws].tolist(), confidence[path, :draws].tolist())
        del own[-9]
        if not own:
            assert (leaders[path, draws - 1], odds[path, draws - 1]) == (-1, -np.inf)
            continue
        leader = int(leaders[path, draws - 1])
        assert own[leader] == pytest.approx(max(own.values()))
        assert 1 / (1 + math.exp(-odds[path, draws - 1])) == pytest.approx(own[leader])


def add_confidence(ballots: Ballots, seed: int = 1) -> Ballots:
    logprob = -ballots.tokens * np.random.default_rng(seed).exponential(0.2, ballots.tokens.shape)
    return replace(ballots, logprob=logprob)


def test_cges_stops_at_the_threshold_and_costs_less_the_lower_it_is():
    ballots = add_confidence(synthetic(12, 6))
    runs = run_policies(ballots, budgets=(2.0,), policies=("fixed", "cges"), orders=1, parts=2)
    points = runs.get("cges").points
    cost = points.cost.mean(axis=1)
    assert cost[0] == 6.0
    assert cost[-1] == 1.0
    assert (np.diff(cost) <= 0).all()
    assert runs.get("cges").cost.shape == runs.get("fixed").cost.shape


def test_cges_needs_log_probabilities():
    ballots = synthetic(12, 6, signals=False)
    runs = run_policies(ballots, budgets=(2.0,), policies=("fixed", "cges"), orders=1, parts=2)
    assert [result.name for result in runs.everyone] == ["fixed"]


def test_a_sure_sample_decides_and_one_without_an_answer_does_not():
    classes = np.array([[-1, 0, 1, 1]])
    ballots = make_ballots(classes)
    odds, leaders = trace_posteriors(ballots.classes, np.array([[0.9, 0.99, 0.6, 0.6]]))
    assert leaders.tolist() == [[-1, 0, 0, 0]]
    assert odds[0, 0] == -np.inf
    assert odds[0, 1] == pytest.approx(math.log(99))


@pytest.fixture(scope="module")
def recorded() -> Ballots:
    return make_modes(PROBLEMS, samples=SAMPLES)


@pytest.fixture(scope="module")
def paths(recorded: Ballots) -> ModePaths:
    menu = Menu.of(recorded, costs={"small": 0.1, "large": 1.0})
    return draw_paths_by_mode(
        recorded.select(menu.modes),
        weigh=None,
        longest=[SAMPLES, SAMPLES],
        orders=ORDERS,
        rng=np.random.default_rng(0),
    )


def cascade(paths: ModePaths, path: int, counts: tuple[int, int], least: int) -> tuple[float, float, float]:
    """Cost, worth and agreement of one cascade on one path."""
    cost = 0.0
    for place, mode in enumerate(paths.modes):
        cost += counts[place] * (0.1, 1.0)[place]
        votes = Counter(number for number in mode.classes[: counts[place], path].tolist() if number >= 0)
        leader = min(votes, key=lambda number: (-votes[number], number)) if votes else -1
        if place or (votes and votes[leader] >= least):
            known = leader >= 0
            return cost, paths.grade[path, leader] * known, paths.agrees[path, leader] * known
    raise AssertionError


def test_c3po_has_the_least_regret_within_each_cap_that_keeps_its_quantile(paths: ModePaths):
    train = np.arange(PROBLEMS)
    settings = follow_conformal_cascades(paths, train)
    every = {}
    for counts in product((3, 5), (1, 3, 5)):
        for least in range(1, counts[0] + 2):
            rows = [cascade(paths, path, counts, least) for path in range(len(paths))]
            cost, worth, agrees = np.array(rows).reshape(PROBLEMS, ORDERS, 3).transpose(2, 0, 1)
            quantile = np.sort(cost[1::2, 0])[math.ceil((12 + 1) * 0.9) - 1]
            every[counts, least] = (quantile, 1 - agrees[::2].mean(), cost.mean(axis=1), worth.mean(axis=1))
    best = [
        (cost, worth)
        for quantile, regret, cost, worth in every.values()
        if not any(q <= quantile and r < regret - 1e-12 for q, r, _, _ in every.values())
    ]
    for cost, accuracy in zip(settings.cost, settings.accuracy, strict=True):
        assert any(np.allclose(cost, c) and np.allclose(accuracy, a) for c, a in best)
    caps = {quantile for quantile, _, _, _ in every.values()}
    assert len(settings) <= len(caps)
    assert settings.worth[:, ::2].mean(axis=1).tolist() == sorted(settings.worth[:, ::2].mean(axis=1))


def make_setup(recorded: Ballots) -> EvaluationSetup:
    menu = Menu.of(recorded, costs={"small": 0.1, "large": 1.0})
    return prepare_modes(recorded, menu, (0.5,), votes="auto", orders=2, seed=0)[0]


def test_the_confidence_cascade_is_the_mean_over_every_sample_of_every_mode(recorded: Ballots):
    setup = make_setup(add_confidence(recorded))
    settings = follow_confidence_cascades(setup, np.arange(PROBLEMS))
    small, large = setup.ballots.parts
    worth = ac.score(setup.ballots["large"], (1,)).accuracy[:, 0]
    assert_allclose(settings.cost[0], 0.1)  # any confidence is enough
    assert_allclose(settings.accuracy[-1], worth)  # none is
    means = small.signal("logprob")
    levels = np.quantile(means, np.linspace(0, 1, 40))
    for place, problem in product((5, 20, 38), range(0, PROBLEMS, 5)):
        rows = [
            (0.1, small.correct[problem, i])
            if means[problem, i] >= levels[place - 1]
            else (1.1, large.correct[problem, j])
            for i, j in product(range(SAMPLES), repeat=2)
        ]
        cost, accuracy = np.mean(rows, axis=0)
        assert settings.cost[place, problem] == pytest.approx(cost)
        assert settings.accuracy[place, problem] == pytest.approx(accuracy)


def test_they_take_part_where_modes_have_log_probabilities(recorded: Ballots):
    costs = {"small": 0.1, "large": 1.0}
    names = {}
    for ballots in (recorded, add_confidence(recorded)):
        evaluation = ac.evaluate(
            ballots, modes=Menu.of(ballots, costs=costs), orders=2, folds=2, policies=(), budgets=(0.5,)
        )
        names[bool(np.isfinite(ballots.logprob).any())] = {match.policy for match in evaluation.matched}
    assert "C3PO" in names[False] & names[True]
    assert names[True] - names[False] == {"confidence cascade"}


@pytest.mark.parametrize("samples", [1, 2])
def test_c3po_takes_what_samples_there_are_and_needs_two(samples: int):
    few = make_modes(PROBLEMS, samples=samples)
    menu = Menu.of(few, costs={"small": 0.1, "large": 1.0})
    evaluation = ac.evaluate(few, modes=menu, orders=2, folds=2, policies=(), budgets=(1.0,))
    assert ("C3PO" in {match.policy for match in evaluation.matched}) == (samples > 1)
