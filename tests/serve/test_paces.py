"""Pacers by policy and budget."""

import json
import logging

import pytest

from adacompute.serve.pacer import Pacer
from adacompute.serve.paces import Paces


def make(budget: float) -> Pacer:
    return Pacer(budget, start=0.05, low=1e-6, high=1.0)


def test_a_lane_is_a_policy_and_a_budget_to_two_decimals() -> None:
    paces = Paces()
    one = paces.of("a", 2.001, make)
    assert paces.of("a", 1.999, make) is one
    assert one.target == 2.0
    assert paces.of("a", 2.01, make) is not one
    assert paces.of("b", 2.0, make) is not one


def test_the_lane_not_used_for_longest_makes_room_and_is_forgotten() -> None:
    paces = Paces()
    first = paces.of("a", 1.0, make)
    second = paces.of("a", 1.01, make)
    for number in range(62):
        paces.of("b", 1 + number / 100, make)
    assert paces.of("a", 1.0, make) is first
    paces.of("c", 1.0, make)
    assert len(paces.state()) == 64
    assert json.dumps(["a", 1.01]) not in paces.state()
    assert paces.of("a", 1.01, make) is not second
    assert paces.of("a", 1.0, make) is first


def test_lanes_go_on_from_a_state_that_went_through_json() -> None:
    paces = Paces()
    for _ in range(100):
        paces.of("a", 2.0, make).settle(5)
    stored = json.loads(json.dumps(paces.state()))
    again = Paces()
    again.restore(stored)
    assert again.state() == stored  # kept, though nobody has asked for it yet
    assert again.of("a", 2.0, make).average == 5.0
    assert again.of("a", 2.0, make).price == paces.of("a", 2.0, make).price


def test_nonsense_in_a_state_is_logged_and_the_lane_starts_anew(caplog: pytest.LogCaptureFixture) -> None:
    paces = Paces()
    with caplog.at_level(logging.WARNING):
        paces.restore({"x": {}, '["a", 2.0]': {"target": 2.0}, '["b", 2.0]': 3, "[1, 2]": {}, "[[": {}})
        assert paces.of("a", 2.0, make).requests == 0
    assert len(caplog.records) == 5
    assert list(paces.state()) == ['["a", 2.0]']


def test_a_state_never_holds_more_than_64_lanes() -> None:
    paces = Paces()
    paces.restore({json.dumps(["a", number / 100]): make(1.0).state() for number in range(100, 300)})
    for number in range(10):
        paces.of("b", 1 + number, make)
    assert len(paces.state()) == 64
