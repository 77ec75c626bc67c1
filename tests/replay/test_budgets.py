"""Any budget between least and most is met, with plain votes too, on the chord between a jump's sides."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from every_policy import KINDS, made

from adacompute.evaluate.chart_builder import build_chart
from adacompute.evaluate.rivals import COMPARED
from adacompute.policies.base import OwnPrice, place_orders, spread_price
from adacompute.policies.modes.policy import MenuPolicy
from adacompute.policies.stopping import StoppingPolicy
from adacompute.pool import Ballots, join_pools
from adacompute.pool.modes import Menu
from adacompute.replay import calibrate, replay
from shared import read_votes, share
from tiers import choose_some, leave_to_nightly

DIALED = [kind for kind in KINDS if COMPARED[kind].dial is not None and kind != "guarantee"]


@share
def plain() -> Ballots:
    """Words without log-probabilities: 360 problems."""
    words = read_votes("words")
    return replace(words, logprob=np.full(words.logprob.shape, np.nan), signals=None)


@pytest.mark.parametrize(
    "kind", leave_to_nightly(["stopping", *(k for k in DIALED if k != "stopping")], but=2)
)
def test_every_policy_with_a_dial_meets_every_budget(kind: str):
    for budget in (4.5, 6.0):  # one of them costs 4.1 at least
        policy = copy.copy(made(kind))
        price = calibrate(policy, plain(), budget)
        assert replay(policy, plain(), price=price).cost == pytest.approx(budget, rel=0.005)


def test_a_budget_within_a_jump_is_met_on_the_chord_between_its_sides():
    policy = StoppingPolicy().settle(plain())
    price = calibrate(policy, plain(), 2.0)
    low, high = (replay(policy, plain(), price=side) for side in (price * 1.03, price / 1.03))
    assert high.cost - low.cost > 0.8  # at one price for all, no cost between them could be had
    met = replay(policy, plain(), price=price)
    assert met.cost == pytest.approx(2.0, rel=0.005)
    share = (met.cost - low.cost) / (high.cost - low.cost)
    chord = low.accuracy.mean + share * (high.accuracy.mean - low.accuracy.mean)
    assert met.accuracy.mean == pytest.approx(chord, abs=0.005)


def test_another_draw_of_orders_costs_about_as_much():
    policy = StoppingPolicy()
    price = calibrate(policy, plain(), 2.0, orders=50, rng=np.random.default_rng(5))
    assert replay(policy, plain(), price=price).cost == pytest.approx(2.0, rel=0.01)


def test_the_table_of_fit_meets_its_budgets():
    some = plain().only(range(0, 360, 3))
    policy = StoppingPolicy().settle(some)
    chart = build_chart(policy, some, budgets=(1.5, 2.0, 3.0))
    assert chart is not None
    assert [row.cost for row in chart.rows] == pytest.approx([row.budget for row in chart.rows], rel=0.01)


@pytest.mark.slow
def test_a_menu_meets_every_budget():
    with join_pools({"small": "facts", "large": "facts-qwen"}) as pool:
        ballots = pool.ballots()
    policy = MenuPolicy(Menu.of(ballots, costs={"small": 0.1, "large": 1.0}), longest=6)
    policy.fit(ballots.only(range(0, 353, 6)))
    for budget in choose_some((0.3, 0.7, 1.5), 1):
        price = calibrate(policy, ballots, budget)
        assert replay(policy, ballots, price=price).cost == pytest.approx(budget, rel=0.005)


@pytest.mark.parametrize("dial", ["price", "threshold"])
def test_places_spread_a_dial_by_a_hundredth_each_way_and_leave_its_ends(dial: str):
    places = np.linspace(0, 1, 5)
    spread = spread_price(0.3, places, dial=dial)
    assert (np.diff(spread) > 0).all()
    assert spread[2] == 0.3
    odds = spread / (1 - spread) if dial == "threshold" else spread
    assert np.log(odds[-1] / odds[0]) == pytest.approx(0.02)
    ends = (0.0, 1.0) if dial == "threshold" else (0.0,)
    assert [spread_price(end, places, dial=dial).tolist() for end in ends] == [[end] * 5 for end in ends]


def test_orders_of_a_problem_are_spread_evenly_from_its_hash():
    places = place_orders(["a", "b"], 10).reshape(2, 10)
    assert np.allclose(np.diff(np.sort(places, axis=1)), 0.1)
    assert place_orders(["a", "b"]).tolist() == places[:, 0].tolist()


def test_a_price_of_its_own_is_not_spread_again():
    policy = StoppingPolicy()
    assert policy.place_price(OwnPrice(0.03), "a") == 0.03
    assert policy.place_price(0.03, "a") == policy.spread_price(0.03, float(place_orders(["a"])[0])) != 0.03
