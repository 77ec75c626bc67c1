"""The rivals of a policy over several modes are what they are said to be: checked against plain loops."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from menu_modes import make_modes
from numpy.testing import assert_allclose

from adacompute.evaluate.mode_rivals import (
    JointVotes,
    SettingMix,
    Settings,
    follow_cascades,
    follow_joint_votes,
    follow_votes,
    join_settings,
    mix_modes,
    mix_points,
    mix_settings,
    shuffle_runs,
)
from adacompute.policies.paths import ModePaths, draw_paths_by_mode
from adacompute.pool import Ballots, Mode
from adacompute.pool.modes import Menu
from adacompute.replay import PolicyRun

COSTS = {"small": 0.1, "large": 1.0}
ORDERS = 3


def make_menu(ballots: Ballots) -> Menu:
    return Menu(modes=tuple(Mode(name=name, cost=0.1 * 10**at) for at, name in enumerate(ballots.names)))


def draw(ballots: Ballots, longest: int = 4) -> ModePaths:
    return draw_paths_by_mode(
        ballots.select(make_menu(ballots).modes),
        weigh=None,
        longest=[longest] * len(ballots.modes),
        orders=ORDERS,
        rng=np.random.default_rng(0),
    )


def make_votes(paths: ModePaths) -> JointVotes:
    return JointVotes(paths)


@pytest.fixture(scope="module")
def paths() -> ModePaths:
    return draw(make_modes(problems=12, samples=5))


def list_classes(paths: ModePaths, path: int, drawn: list[int]) -> list[list[int]]:
    return [paths.modes[k].classes[:count, path].tolist() for k, count in enumerate(drawn)]


def vote(paths: ModePaths, path: int, drawn: list[int]) -> float:
    """The worth of the joint vote's leader; ties to the class that comes first on the path."""
    counts = Counter(number for mode in list_classes(paths, path, drawn) for number in mode if number >= 0)
    if not counts:
        return 0.0
    leader = min(counts, key=lambda number: (-counts[number], number))
    return float(paths.grade[path, leader])


def commonest(classes: list[int]) -> int:
    return max(Counter(number for number in classes if number >= 0).values(), default=0)


def draw_sequentially(paths: ModePaths, path: int, mode: int, most: int, agree: int) -> tuple[int, bool]:
    for count in range(1, most + 1):
        if commonest(paths.modes[mode].classes[:count, path].tolist()) >= agree:
            return count, True
    return most, False


def find_setting(settings: Settings, cost: np.ndarray, accuracy: np.ndarray) -> bool:
    """Whether one of the settings gives exactly this on every problem."""
    same_cost = np.isclose(settings.cost, cost).all(axis=1)
    return bool((same_cost & np.isclose(settings.accuracy, accuracy).all(axis=1)).any())


def follow(paths: ModePaths, ends: Iterator[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    drawn = list(ends)
    cost = np.array([0.1 * a + 1.0 * b for a, b in drawn])
    worth = np.array([vote(paths, path, each) for path, each in enumerate(drawn)])
    return cost.reshape(-1, ORDERS).mean(axis=1), worth.reshape(-1, ORDERS).mean(axis=1)


def test_uniform_votes_are_votes_of_the_first_samples(paths: ModePaths):
    settings = follow_votes(make_votes(paths), 1)
    assert len(settings) == 4
    for count in range(1, 5):
        cost, accuracy = follow(paths, ([0, count] for _ in range(len(paths))))
        assert_allclose(settings.cost[count - 1], cost)
        assert_allclose(settings.accuracy[count - 1], accuracy)
        assert_allclose(settings.draws[count - 1, 1], count)


def test_joint_votes_give_everyone_samples_of_both_modes(paths: ModePaths):
    settings = follow_joint_votes(make_votes(paths))
    assert find_setting(settings, *follow(paths, ([2, 1] for _ in range(len(paths)))))
    assert len(settings) == 16


@pytest.mark.parametrize(("count", "least", "draws"), [(1, 1, 2), (3, 2, 1), (4, 4, 3)])
def test_a_threshold_cascade_asks_the_dear_mode_where_the_share_is_too_small(
    paths: ModePaths, count: int, least: int, draws: int
):
    def decide() -> Iterator[list[int]]:
        for path in range(len(paths)):
            agree = commonest(paths.modes[0].classes[:count, path].tolist())
            yield [count, 0 if agree / count >= least / count else draws]

    assert find_setting(follow_cascades(make_votes(paths), sequential=False), *follow(paths, decide()))


@pytest.mark.parametrize(
    ("most", "agree", "dear", "dear_agree"), [(3, 2, 2, 2), (4, 3, 4, 2), (2, 2, 1, 1), (4, 4, 3, 2)]
)
def test_a_sequential_cascade_draws_until_samples_agree(
    paths: ModePaths, most: int, agree: int, dear: int, dear_agree: int
):
    def decide() -> Iterator[list[int]]:
        for path in range(len(paths)):
            count, stops = draw_sequentially(paths, path, 0, most, agree)
            yield [count, 0 if stops else draw_sequentially(paths, path, 1, dear, dear_agree)[0]]

    assert find_setting(follow_cascades(make_votes(paths), sequential=True), *follow(paths, decide()))


def test_a_chain_of_three_modes_passes_on_where_no_mode_agreed():
    paths = draw(make_modes(problems=10, samples=5, modes=3))
    votes = make_votes(paths)
    settings = follow_cascades(votes, sequential=True)

    drawn = []
    for path in range(len(paths)):
        ends, going = [0, 0, 0], True
        for mode in range(3):
            if going:
                ends[mode], stops = draw_sequentially(paths, path, mode, 3, 2)
                going = not stops
        drawn.append(ends)
    cost = (np.array(drawn) @ [0.1, 1.0, 10.0]).reshape(-1, ORDERS).mean(axis=1)
    worth = np.array([vote(paths, path, ends) for path, ends in enumerate(drawn)])
    assert find_setting(settings, cost, worth.reshape(-1, ORDERS).mean(axis=1))


def test_a_mix_lies_between_its_neighbours_on_the_hull():
    cost, worth = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.2, 0.3, 0.6, 0.6])
    assert mix_points(cost, worth, 2.0) == SettingMix(low=0, high=2, share=0.5)
    assert mix_points(cost, worth, 0.5) == SettingMix(low=0, high=0, share=0.0)
    assert mix_points(cost, worth, 9.0) == SettingMix(low=2, high=2, share=0.0)


def test_settings_are_chosen_on_the_training_problems_alone():
    # the second setting is best on the first problem, the third on the second
    values = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    cost = np.array([[1.0, 1.0], [2.0, 2.0], [2.0, 2.0]])
    settings = Settings(
        cost=cost, accuracy=values, worth=values, draws=np.zeros((3, 1, 2)), rounds=np.zeros((3, 2))
    )
    mix = mix_settings(settings, np.array([0]), 2.0)
    assert mix.apply(settings.accuracy).tolist() == [1.0, 0.0]


def test_a_random_router_spends_the_budget_without_looking(paths: ModePaths):
    votes = make_votes(paths)
    settings = join_settings([follow_votes(votes, mode) for mode in (0, 1)])
    everyone = np.arange(len(paths) // ORDERS)
    mix = mix_modes(settings, everyone, 0.55)
    assert mix.high == mix.low + 4  # as many samples of either mode
    assert mix.apply(settings.cost).mean() == pytest.approx(0.55)


def test_the_shuffled_control_hands_draws_to_other_prompts(paths: ModePaths):
    problems = len(paths) // ORDERS
    drawn = np.stack([paths.problems % 4 + 1, np.zeros_like(paths.problems)], axis=1)
    nothing = np.zeros(len(paths))
    run = PolicyRun(
        drawn=drawn.sum(axis=1),
        waves=drawn.sum(axis=1),
        grade=nothing,
        agrees=nothing,
        tokens=nothing,
        cost=nothing,
        by_mode=drawn,
    )
    settings = shuffle_runs(make_votes(paths), [run], np.random.default_rng(1))
    assert settings.cost.mean() == pytest.approx(0.1 * drawn[:, 0].mean())
    assert settings.draws[0, 0].tolist() != [row % 4 + 1 for row in range(problems)]
    assert sorted(settings.draws[0, 0].tolist()) == sorted(row % 4 + 1 for row in range(problems))
