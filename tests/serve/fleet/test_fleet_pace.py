"""One price for a fleet: the average is met with prices that are old, and nonsense moves nothing."""

import json
import math

import pytest
from pacing import HIGH, LOW, recorded, staircase
from stale import Fleet, simulated

from adacompute.serve.pricing.fleet import (
    FleetPacer,
    FleetPacers,
    Pacemaker,
    name_lane,
    parse_lane,
)

LANE = ("stopping", 2.0, "price", LOW, HIGH)
KINDS = ("stationary", "easy then hard", "bursts", "spends")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_c18_fleet_the_average_is_within_2_percent_though_prices_are_a_tenth_of_a_second_old(kind: str):
    costs = recorded("words")
    for rate, requests in ((20.0, 2000), (100.0, 4000)):
        fleet = Fleet(2.0, replicas=4, start=2 * costs.price(2.0))
        average, prices = simulated(fleet, costs, kind, requests=requests, rate=rate, takeovers=3)
        assert abs(average / 2.0 - 1) <= 0.02, rate
        assert all(LOW <= price <= HIGH for price in prices)


@pytest.mark.slow
def test_c18_fleet_at_1000_requests_a_second_it_takes_some_seconds():
    costs = recorded("words")
    fleet = Fleet(2.0, replicas=4, start=2 * costs.price(2.0))
    average, prices = simulated(fleet, costs, requests=15_000, rate=1000.0)
    assert (
        abs(average / 2.0 - 1) <= 0.04
    )  # 15 seconds; a credit of some 700 in flight is given back with care
    late = prices[10_000:]  # the first seconds swing: nobody has said yet how old prices are
    assert max(late) / min(late) < 3


@pytest.mark.parametrize("cost", [3, 8])
def test_c18_fleet_a_budget_between_two_steps_of_cost_is_met_by_mixing_them(cost: int):
    costs = staircase([(0.4, 0.2, cost), (0.4, 0.01, cost)])
    for budget in (1.5, 2.0):
        fleet = Fleet(budget, replicas=4, start=0.05)
        average, _ = simulated(fleet, costs, requests=4000, rate=50.0)
        assert abs(average / budget - 1) <= 0.02, budget


def test_prices_are_published_as_they_are_to_the_last_bit():
    maker, told = Pacemaker(), []
    follower = FleetPacer(LANE, 0.05, lambda *cost: told.append(cost))
    follower.settle(3, follower.price)
    ((lane, start, cost),) = told
    (paced,) = maker.pace_lanes([[lane, start, False, False, [cost] * 40]])
    follower.update(paced["price"], paced["average"], paced["requests"])
    assert (follower.average, follower.requests) == (3.0, 40)
    (again,) = maker.pace_lanes(
        [[lane, start, paced["requests"], paced["state"], [f"3.0 {follower.price!r}"]]]
    )
    state = json.loads(again["state"])
    other = Pacemaker()
    (taken,) = other.pace_lanes(
        [[lane, start, again["requests"], again["state"], [f"3.0 {follower.price!r}"]]]
    )
    assert json.loads(taken["state"])["requests"] == state["requests"] + 1  # it goes on from there
    assert parse_lane(lane) == (LANE, "samples")


def test_gateways_whose_average_is_of_other_requests_have_a_lane_of_their_own():
    names = set()
    for average in ("voted", "all"):
        followed = FleetPacers(lambda *_: None, every=0.0, average=average)
        pacer = followed.get("stopping", 2.0, dial="price", start=0.05, low=LOW, high=HIGH)
        names.add(pacer.name)
        assert parse_lane(pacer.name) == (LANE, "samples")
        (paced,) = Pacemaker().pace_lanes([[pacer.name, "0.1", False, False, ["3.0 0.1"]]])
        assert paced["average"] == "3.0"
    assert len(names) == 2


def test_budgets_in_other_units_have_lanes_of_their_own_and_are_paced_in_them():
    names = set()
    for average in ("voted", "all"):
        for unit in ("samples", "tokens", "money"):
            followed = FleetPacers(lambda *_: None, every=0.0, average=average)
            pacer = followed.get("stopping", 2.0, dial="price", start=0.05, low=LOW, high=HIGH, unit=unit)
            names.add(pacer.name)
            assert parse_lane(pacer.name) == (LANE, unit)
            costs = ["900000000.0 0.1", "1000000001.0 0.1"]  # the second can't be
            (paced,) = Pacemaker().pace_lanes([[pacer.name, "0.1", False, False, costs]])
            assert float(paced["average"]) == 9e8
    assert len(names) == 6
    with pytest.raises(ValueError, match="is not a lane"):
        parse_lane(json.dumps([*LANE, "all", "apples"]))


@pytest.mark.parametrize("price", ["nan", "inf", "-1", "2.0", "", "many", None])
def test_a_price_that_cant_be_is_not_followed(price: object):
    follower = FleetPacer(LANE, 0.05, lambda *_: None)
    follower.update(price, "2.0", "7")
    assert (follower.price, follower.requests) == (0.05, 0)
    follower.update("0.5", "nan", "7")
    assert follower.price == 0.05


def test_costs_that_are_none_are_not_told():
    told: list[object] = []
    follower = FleetPacer(LANE, 0.05, lambda *cost: told.append(cost))
    for cost in (math.nan, math.inf, -1.0):
        follower.settle(cost, 0.1)
    assert told == []


@pytest.mark.parametrize(
    "lane",
    [
        "no JSON",
        '["p", 2.0, "price", 1.0]',
        '["p", NaN, "price", 0.1, 1.0]',
        '["p", 2.0, "x", 0, 1]',
        '["p", 2.0, "price", 0.1, 1.0, "some"]',
    ],
)
def test_lanes_that_others_wrote_into_redis_are_left_alone_and_that_is_said_once(
    lane: str, caplog: pytest.LogCaptureFixture
):
    maker = Pacemaker()
    for _ in range(2):
        assert maker.pace_lanes([[lane, "0.1", False, False, ["1.0 0.1"]]]) == []
    assert caplog.text.count("can't be paced") == 1


@pytest.mark.parametrize("cost", ["many 0.1", "1.0", "", "nan 0.1", "1e308 0.1", "-1.0 0.1"])
def test_costs_that_others_wrote_into_redis_stop_no_lane(cost: str):
    (paced,) = Pacemaker().pace_lanes([[name_lane(LANE), "0.1", False, False, [cost, "3.0 0.1", cost]]])
    assert (paced["took"], paced["requests"], paced["average"]) == (3, "1", "3.0")
    assert LOW <= float(paced["price"]) <= HIGH


def test_no_client_stops_a_lane_that_is_held_by_naming_many_others():
    followed = FleetPacers(lambda *_: None, every=0.0)

    def lane(budget: float) -> FleetPacer:
        return followed.get("stopping", budget, dial="price", start=0.05, low=LOW, high=HIGH)

    own = lane(2.0)
    for i in range(500):
        lane(3 + i / 100)
    asked = followed.build_query()["lanes"]
    assert len(asked) <= 65  # those that nobody holds any more are forgotten, but for the last
    followed.handle_answer({"lanes": [["0.5", "2.1", "7"] for _ in asked]})
    assert (own.price, own.requests) == (0.5, 7)
    assert lane(2.0) is own
