"""Pacers by policy and budget."""

import gc
import json
import logging

import pytest
from traffic import told

from adacompute.serve.pricing.pacer import Bounds, Pacer, Pacers
from adacompute.serve.watching.traffic_history import DialTable

PRICE: Bounds = ("price", 1e-6, 1.0)


def make(budget: float) -> Pacer:
    return Pacer(budget, start=0.05, low=1e-6, high=1.0)


def of(paces: Pacers, policy: str, budget: float) -> Pacer:
    return paces.get(policy, budget, make, bounds=PRICE)


def paid(paces: Pacers, policy: str, budget: float, cost: float = 2.0) -> Pacer:
    """A request of the lane that came to its end."""
    pacer = of(paces, policy, budget)
    paces.settle(policy, budget, pacer, cost, None)
    return pacer


def test_a_lane_is_a_policy_and_a_budget_to_two_decimals() -> None:
    paces = Pacers()
    one = of(paces, "a", 2.001)
    assert of(paces, "a", 1.999) is one
    assert one.target == 2.0
    assert of(paces, "a", 2.01) is not one
    assert of(paces, "b", 2.0) is not one


def test_the_lane_not_used_for_longest_makes_room_and_is_forgotten() -> None:
    paces = Pacers()
    first = paid(paces, "a", 1.0)
    paid(paces, "a", 1.01)
    for number in range(62):
        paid(paces, "b", 1 + number / 100)
    assert paid(paces, "a", 1.0) is first
    paid(paces, "c", 1.0)
    assert len(paces.state()) == 64
    assert json.dumps(["a", 1.01, "samples", ""]) not in paces.state()
    assert of(paces, "a", 1.01).requests == 0
    assert of(paces, "a", 1.0) is first


def test_requests_that_are_not_paid_for_crowd_nobody_out() -> None:
    paces = Pacers()
    team = paid(paces, "a", 4.0)
    for number in range(500):
        of(paces, "a", 5 + number / 100)
    assert list(paces.state()) == ['["a", 4.0, "samples", ""]']
    assert of(paces, "a", 4.0) is team


def test_requests_at_the_same_time_share_a_lane_before_it_is_paid_for() -> None:
    paces = Pacers()
    one, other = of(paces, "a", 3.0), of(paces, "a", 3.0)
    assert one is other
    paces.settle("a", 3.0, one, 5.0, None)
    del one, other
    gc.collect()
    assert of(paces, "a", 3.0).requests == 1


def test_the_operators_lanes_are_never_crowded_out() -> None:
    own = [("a", 2.0), ("b", 2.0)]
    paces = Pacers(own)
    kept = [paid(paces, *lane) for lane in own]
    for number in range(200):
        paid(paces, "a", 3 + number / 100)
    assert [of(paces, *lane) for lane in own] == kept
    assert len(paces.state()) == 66
    again = Pacers(own)
    again.restore(json.loads(json.dumps(paces.state())))
    assert [of(again, *lane).requests for lane in own] == [1, 1]


def test_a_lane_in_money_is_not_continued_in_another_currency() -> None:
    def get(paces: Pacers) -> Pacer:
        make = lambda target: Pacer(target, start=1e-4, low=5e-9, high=5e-3)  # noqa: E731
        pacer = paces.get("a", 0.002, make, bounds=("price", 5e-9, 5e-3), unit="money")
        assert isinstance(pacer, Pacer)
        return pacer

    paces = Pacers(currency="USD")
    paces.settle("a", 0.002, get(paces), 0.003, None, unit="money")
    state = json.loads(json.dumps(paces.state()))
    assert list(state) == ['["a", 0.002, "money", "USD"]']
    for currency, requests in (("USD", 1), ("EUR", 0)):
        again = Pacers(currency=currency)
        again.restore(state)
        assert get(again).requests == requests, currency


def test_averages_in_money_are_not_continued_in_another_currency() -> None:
    dials = DialTable("money", "USD")
    outcome = told(1.0, policy="a", budget=0.002, unit="money", cost=0.003)
    dials.add_request(outcome)
    state = json.loads(json.dumps(dials.state()))
    for currency, requests in (("USD", 1), ("EUR", 0)):
        again = DialTable("money", currency)
        again.restore(state)
        assert sum(dial.requests for dial in again) == requests, currency


def test_a_policy_with_another_dial_or_other_bounds_gets_a_new_pacer() -> None:
    paces = Pacers()
    old = paid(paces, "a", 2.0)
    asc = paces.get(
        "a",
        2.0,
        lambda target: Pacer(target, dial="threshold", start=0.5, low=0.0, high=1.0),
        bounds=("threshold", 0.0, 1.0),
    )
    assert (asc.dial, asc.requests, asc.price) == ("threshold", 0, pytest.approx(0.5, abs=0.02))
    paces.settle("a", 2.0, old, 9.0, None)  # a request that began before
    paces.settle("a", 2.0, asc, 1.0, None)
    (state,) = paces.state().values()
    assert (state["dial"], state["spent"]) == ("threshold", 1.0)
    tokens = paces.get(
        "a", 2.0, lambda target: Pacer(target, start=1e-4, low=5e-9, high=5e-3), bounds=("price", 5e-9, 5e-3)
    )
    assert tokens.bounds == ("price", 5e-9, 5e-3)


def test_a_stored_pace_of_another_dial_is_not_taken_up(caplog: pytest.LogCaptureFixture) -> None:
    paces = Pacers()
    paid(paces, "a", 2.0)
    stored = paces.state()
    for field, value in (("dial", "threshold"), ("low", 0.0), ("high", 0.5), ("dial", None)):
        again = Pacers()
        again.restore({lane: {**state, field: value} for lane, state in stored.items()})
        with caplog.at_level(logging.WARNING):
            assert of(again, "a", 2.0).requests == 0
        assert field in caplog.messages[-1]


def test_lanes_go_on_from_a_state_that_went_through_json() -> None:
    paces = Pacers()
    for _ in range(100):
        paid(paces, "a", 2.0, 5.0)
    stored = json.loads(json.dumps(paces.state()))
    again = Pacers()
    again.restore(stored)
    assert again.state() == stored  # kept, though nobody has asked for it yet
    assert of(again, "a", 2.0).average == 5.0
    assert of(again, "a", 2.0).price == of(paces, "a", 2.0).price
    gc.collect()
    assert again.state() == stored  # nor paid


def test_nonsense_in_a_state_is_logged_and_the_lane_starts_again(caplog: pytest.LogCaptureFixture) -> None:
    paces = Pacers()
    with caplog.at_level(logging.WARNING):
        paces.restore(
            {
                "x": {},
                '["a", 2.0, "samples", ""]': {"target": 2.0},
                '["b", 2.0, "samples", ""]': 3,
                "[1, 2]": {},
                "[[": {},
            }
        )
        assert paid(paces, "a", 2.0).requests == 1
    assert len(caplog.records) == 5
    assert list(paces.state()) == ['["a", 2.0, "samples", ""]']


def test_a_state_never_holds_more_than_64_lanes() -> None:
    paces = Pacers()
    paces.restore(
        {json.dumps(["a", number / 100, "samples", ""]): make(1.0).state() for number in range(100, 300)}
    )
    for number in range(10):
        paid(paces, "b", 1 + number)
    assert len(paces.state()) == 64
