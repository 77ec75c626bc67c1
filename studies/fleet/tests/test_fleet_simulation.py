"""The simulated fleet: requests are real paths, batches equal single events, the page is what came of it."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import adacompute as ac
from adacompute.policies.paths import draw_paths
from adacompute.replay.per_problem import run_policy
from kept import assert_same_drawing
from studies.fleet import figure, ledger, questions, single, tables, traffic
from studies.fleet import fleet as fleets

ROOT = Path(__file__).resolve().parents[3]
NUMBERS = ROOT / "studies" / "fleet" / "fleet.json"


@pytest.mark.slow
def test_a_request_takes_what_the_policy_draws_on_its_path():
    ballots = ac.bundled("words").ballots()
    policy = ac.StoppingPolicy().settle(ballots)
    along = draw_paths(ballots, rng=np.random.default_rng(7), orders=12, longest=16, weigh=policy.weigh)
    recorded = traffic.recorded("words")
    for row in map(traffic.row_of, (0.001, 0.027, 0.09)):
        found = run_policy(policy, along, dial=traffic.price_of(row))
        assert (recorded.drawn[row] == found.drawn).all()
        assert (recorded.waves[row] == found.waves).all()
        assert recorded.accuracy[row] == pytest.approx(np.nanmean(found.grade))


def test_cost_never_rises_with_the_price():
    for name in ("words", "facts"):
        assert (np.diff(traffic.recorded(name).cost) <= 1e-9).all()


@pytest.mark.parametrize("each", [True, False])
def test_batches_give_what_single_events_give(each: bool):
    fleet = questions.fleet_of(200.0, 60.0, each=each, gateways=10, poll=0.0, seed=3)
    batches, events = fleets.simulate(fleet), single.simulate_singly(fleet)
    for until, noise in ((20, 0.05), (60, 0.03)):  # over seeds, the ratio deviates by 2% after 20 s
        assert batches.average(until) == pytest.approx(events.average(until), rel=noise)
    assert batches.flying[30:].mean() == pytest.approx(events.flying[30:].mean(), rel=0.1)
    # the price's way: where it is on average, and how far it swings
    logs = [np.log(one.price[20:]) for one in (batches, events)]
    assert logs[0].mean() == pytest.approx(logs[1].mean(), abs=0.2)
    assert logs[0].std() == pytest.approx(logs[1].std(), abs=0.2)


def test_the_same_seed_is_the_same_fleet():
    fleet = questions.fleet_of(100.0, 10.0, seed=5)
    one, other = (fleets.simulate(fleet) for _ in range(2))
    assert (one.cost == other.cost).all()
    assert (one.price == other.price).all()


def test_every_request_ends_fails_dies_or_is_under_way():
    fleet = questions.fleet_of(
        300.0, 30.0, capacity=lambda now: 500.0, lose=(15.0, 0.4), cores=2.0, gateways=10, seed=6
    )
    found = fleets.simulate(fleet)
    assert found.lost > 0
    assert found.refused.sum() > 0
    assert found.began.sum() == found.ended.sum() + found.failed.sum() + found.lost + found.flying[-1]


def test_redis_adds_what_the_theory_of_closed_queues_says():
    call, each = 3e-4, 3e-5
    for replicas, reservations in ((100, 15_000.0), (100, 25_000.0)):
        found = ledger.answered(
            replicas=replicas, reservations=reservations, call=call, each=each, seconds=10.0, seed=0
        )
        cycle = replicas * call / (1 - reservations * each)
        assert found.added == pytest.approx(1.5 * cycle, rel=0.1)


def test_fixed_ticks_fall_behind_where_replicas_are_many():
    shared = {"reservations": 6000.0, "flush": 0.01, "call": 3e-4, "each": 3e-5, "seconds": 5.0, "seed": 0}
    assert ledger.queue(replicas=10, **shared).load < 1 < ledger.queue(replicas=1000, **shared).load


def test_leases_never_pass_the_cap_and_shrink_towards_it():
    costs = np.array([1, 2, 3, 6])
    shared = {"replicas": 50, "cap": 30_000.0, "rate": 1000.0, "costs": costs, "skew": 0.5}
    large, guided = ledger.lease(ledger.fixed(300), **shared), ledger.lease(ledger.guided(), **shared)
    assert max(large.spent, guided.spent) <= 1
    assert guided.stranded < large.stranded / 2
    assert guided.held <= 0.011  # half of an even share: a hundredth


def test_the_page_and_its_picture_are_drawn_from_the_numbers_kept():
    numbers = json.loads(NUMBERS.read_text("utf-8"))
    page = (ROOT / "studies" / "fleet" / "README.md").read_text("utf-8")
    assert {part["name"] for part in tables.PART.finditer(page)} == set(tables.TABLES)
    assert tables.renewed(page, numbers) == page, "run `python -m studies.fleet --draw`"
    kept = (ROOT / "studies" / "fleet" / "fleet.svg").read_text("utf-8")
    assert_same_drawing(figure.figure(numbers), kept, "run `python -m studies.fleet --draw`")


def test_the_page_says_what_the_numbers_say():
    numbers = json.loads(NUMBERS.read_text("utf-8"))
    assert all(abs(row["off_60"]) < 0.02 for row in numbers["held"] if row["rate"] >= 1e3)
    assert all(row["lost_points"] < 1 for row in numbers["held"])
    short, long = (
        max(row["lost_points"] for row in numbers["memory"] if (row["remembered"] == 4096) == little)
        for little in (True, False)
    )
    assert short > 5 > 10 * long
    before, fallen, built = (
        numbers["saturation"][way]["phases"][phase]["price"]
        for way, phase in (("gives up", "before"), ("told of all", "during"), ("gives up", "during"))
    )
    assert fallen < before / 10 < built  # told of what failures cut short, it asks for more of too little
    worst = {
        told: max(row["worst"] for row in numbers["drift"] if row["told"] == told)
        for told in ("each", "groups")
    }
    assert worst["each"] < 0.25 < 0.45 < worst["groups"] < 0.55
    late = {row["told"]: row["lost_points"] for row in numbers["stale"] if row["delay"] == 1.0}
    assert max(late.values()) < 0.2
    page = " ".join((ROOT / "studies" / "fleet" / "README.md").read_text("utf-8").split())
    row = traffic.row_of(traffic.price_for({"words": 1.0}, 3.0))
    told = re.search(r"At the old price the hard ones take (\d\.\d) samples", page)
    assert told is not None
    assert float(told[1]) == pytest.approx(traffic.recorded("facts").cost[row], abs=0.0501)
    assert f"is worth {numbers['independent']['points']:.1f} points here (one seed)" in page
    assert f"That is {1e9 / 86_400:,.0f} a second" in page
    tenth = next(row["maybe"] for row in numbers["loss"]["gateways"] if row["share"] == 0.1)
    assert 0.05 < tenth < 0.15  # a tenth of a second's spending
