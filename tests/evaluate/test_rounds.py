"""Rounds are the waves in which samples are asked for, counted here one path after another."""

from collections import Counter

import numpy as np
import pytest
from menu_modes import make_modes

from adacompute.answers import Tally
from adacompute.evaluate import evaluate
from adacompute.evaluate.comparison import match_cost
from adacompute.evaluate.measure import share_rounds, sweep_with_cache
from adacompute.evaluate.mode_rivals import JointVotes, Settings, follow_cascades, follow_votes
from adacompute.policies.agreement import AdaptiveConsistency, EarlyStopping
from adacompute.policies.base import Policy
from adacompute.policies.baselines import FixedPolicy
from adacompute.policies.paths import ModePaths, build_paths, draw_paths_by_mode
from adacompute.policies.stopping import StoppingPolicy
from adacompute.pool import Ballots, Mode
from adacompute.pool.modes import Menu
from adacompute.replay import replay
from adacompute.replay.matching import PolicyPoints, Rounds
from synthetic import synthetic

LONGEST = 8


@pytest.fixture(scope="module")
def ballots() -> Ballots:
    return synthetic(problems=12, samples=10)


def count_alone(policy: Policy, ballots: Ballots, order: np.ndarray, dial: float | None) -> list[int]:
    """The rounds of every path, by asking the policy as a gateway does."""
    rounds = []
    for problem, path in np.ndindex(order.shape[:2]):
        prompt, tally, drawn, asked = ballots.prompts[problem], Tally(), 0, 0
        while drawn < policy.longest and (more := policy.more(prompt, tally, dial)):
            drawn, asked = drawn + more, asked + 1
            classes = ballots.classes[problem, order[problem, path, :drawn]]
            tally = Tally.of([None if number < 0 else str(number) for number in classes])
        rounds.append(asked)
    return rounds


@pytest.mark.parametrize(
    ("policy", "dial"),
    [
        (FixedPolicy(3, longest=LONGEST), None),
        (AdaptiveConsistency(longest=LONGEST), 0.2),
        (EarlyStopping(longest=LONGEST), 1 / 3),
        (StoppingPolicy(longest=LONGEST, weigh=None), 0.02),
        (StoppingPolicy(longest=LONGEST, weigh=None, max_waves=2), 0.02),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_with_one_mode_they_are_those_of_asking_path_by_path(
    ballots: Ballots, policy: Policy, dial: float | None
):
    order = np.random.default_rng(0).permuted(np.tile(np.arange(10), (12, 4, 1)), axis=2)[..., :LONGEST]
    paths, alone = build_paths(ballots, order, weigh=None), count_alone(policy, ballots, order, dial)
    found = Rounds.of(share_rounds(sweep_with_cache(policy, paths, [dial]))[0])
    assert found.mean == pytest.approx(np.mean(alone))
    assert found.p95 == sorted(alone)[int(np.ceil(0.95 * len(alone))) - 1]
    assert policy.max_waves is None or found.p95 <= policy.max_waves
    if policy.kind == "fixed":
        assert set(alone) == {1}


def test_replay_tells_their_mean_and_what_most_requests_do_not_exceed(ballots: Ballots):
    result = replay(AdaptiveConsistency(longest=LONGEST), ballots, price=0.2, orders=10)
    told = result.to_dict()
    assert told["rounds"] == result.waves
    assert 1 < told["rounds"] <= told["rounds_p95"] <= result.most_waves
    assert replay(FixedPolicy(4, longest=LONGEST), ballots).rounds_p95 == 1


def draw(ballots: Ballots) -> ModePaths:
    modes = tuple(Mode(name=name, cost=0.1 * 10**at) for at, name in enumerate(ballots.names))
    return draw_paths_by_mode(
        ballots.select(modes), weigh=None, longest=[4, 4], orders=3, rng=np.random.default_rng(0)
    )


def find_rounds(settings: Settings, ends: np.ndarray, paths: ModePaths) -> np.ndarray:
    """The rounds of the settings that draw so many samples of each mode, (settings, rounds + 1)."""
    wanted = np.stack([paths.mean_per_problem(column) for column in ends.T])
    same = np.isclose(settings.draws, wanted).all(axis=(1, 2))
    assert same.any()
    return settings.rounds[same]


def draw_in_waves(classes: list[int], most: int, agree: int) -> tuple[int, int, bool]:
    """Samples, rounds, and whether so many agree: each round asks for as many as are missing at least."""
    drawn = rounds = lead = 0
    while drawn < most and lead < agree:
        drawn, rounds = min(most, drawn + max(1, agree - lead)), rounds + 1
        lead = max(Counter(number for number in classes[:drawn] if number >= 0).values(), default=0)
    return drawn, rounds, lead >= agree


def test_with_two_modes_they_are_those_of_asking_path_by_path():
    paths = draw(make_modes(problems=12, samples=5))
    votes = JointVotes(paths)
    assert (follow_votes(votes, 1).rounds[:, 1] == 1).all()
    classes = [mode.classes for mode in paths.modes]
    for most, agree, last, last_agree in ((3, 2, 4, 2), (4, 3, 3, 2), (2, 2, 2, 1)):
        ends, rounds = np.zeros((len(paths), 2), dtype=np.int64), []
        for path in range(len(paths)):
            ends[path, 0], own, stops = draw_in_waves(classes[0][:, path].tolist(), most, agree)
            if not stops:
                ends[path, 1], more, _ = draw_in_waves(classes[1][:, path].tolist(), last, last_agree)
                own += more
            rounds.append(own)
        found = find_rounds(follow_cascades(votes, sequential=True), ends, paths)
        expected = np.bincount(rounds, minlength=found.shape[1]) / len(paths)
        assert np.isclose(found, expected).all(axis=1).any()
    ends = np.zeros((len(paths), 2), dtype=np.int64)
    leads = [
        max(Counter(number for number in row if number >= 0).values(), default=0) for row in classes[0][:3].T
    ]
    ends[:, 0], ends[:, 1] = 3, np.where(np.array(leads) >= 2, 0, 4)
    found = find_rounds(follow_cascades(votes, sequential=False), ends, paths)
    expected = [0.0, float((ends[:, 1] == 0).mean()), float((ends[:, 1] > 0).mean())]
    assert np.isclose(found[:, :3], expected).all(axis=1).any()


def test_a_mix_of_two_settings_has_the_rounds_of_both():
    points = PolicyPoints(
        cost=np.array([[1.0], [3.0]]),
        accuracy=np.array([[0.5], [0.9]]),
        rounds=np.array([[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.2, 0.8]]),
    )
    mix = match_cost(points, 2.0)
    assert mix is not None
    assert mix.rounds == Rounds(mean=1.9, p95=3)


def test_every_policy_of_an_evaluation_has_them_and_fewer_rounds_are_rows_of_their_own(ballots: Ballots):
    found = evaluate(ballots, budgets=(2.0, 4.0), folds=2, orders=4, votes="plain")
    for match in found.matched:
        assert match.rounds is not None
        assert 1 <= match.rounds <= 16
        if match.policy in ("fixed", "random", "heuristic"):
            assert (match.rounds, match.rounds_p95) == (1, 1)
    for name, limit in (("stopping-2", 2), ("stopping-3", 3)):
        limited = found.match(name, 4.0)
        assert limited is not None
        assert limited.rounds_p95 is not None
        assert limited.rounds_p95 <= limit
    assert {"rounds", "rounds_p95"} <= found.to_dict()["matched"][0].keys()


def test_modes_beside_each_other_have_them_too():
    ballots = make_modes(problems=24)
    menu = Menu(modes=(Mode(name="small", cost=0.1), Mode(name="large", cost=1.0)))
    found = evaluate(ballots, modes=menu, budgets=(0.5,), folds=2, orders=3, policies=())
    rounds = {match.policy: (match.rounds, match.rounds_p95) for match in found.matched}
    for name in ("best fixed mix", "joint fixed vote", "prompt router", "random router"):
        assert rounds[name] == (1, 1)
    assert all(mean is not None and p95 is not None and mean <= p95 * 1.05 for mean, p95 in rounds.values())
    threshold = rounds["threshold cascade"]
    assert threshold[0] is not None
    assert 1 <= threshold[0] <= 2
    assert found.verdict.rows[0].rounds == rounds["menu"][0]
