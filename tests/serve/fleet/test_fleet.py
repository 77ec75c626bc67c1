"""Fleets of real gateway processes on a real Redis: caps, accounts and the price, whoever dies."""

import contextlib
import re
import signal
import threading
import time
from typing import Any

import pytest
from behaviours import Honest
from crowd import Visit, until
from fleets import BASE, FLEET, Held, Replica, crowds, samples
from running import Running

from clusters import RedisServer
from upstream import Upstream

KINDS: tuple[dict[str, Any], ...] = ({}, {"stream": True}, {"stream": True, "temperature": 0}, {"n": 2})
COMING = [Visit(body=kind) for kind in KINDS] * 50  # 200


def statuses(answers: list[Any]) -> set[int | None]:
    return {None if answer is None else answer.status for part in answers for answer in part}


def quiet(held: Held) -> tuple[int, int]:
    """Spent and maybe, once nothing is reserved any more."""
    until(lambda: samples(held.account())[2] == 0)
    return samples(held.account())[:2]


def test_c14_c15_fleet_caps_hold_and_the_ledger_equals_the_upstreams_count_whoever_is_killed(
    redis_server: RedisServer,
):
    cap = 1000
    with (
        Upstream(Honest(latency=0.02, n="ignore")) as up,
        Replica(up.url, redis_server, price=0.02, cap=cap) as one,
        Replica(up.url, redis_server, price=0.02, cap=cap) as two,
        Replica(up.url, redis_server, price=0.02, cap=cap) as three,
        Held(redis_server) as held,
    ):
        answers = crowds([one, two, three], COMING[:60])
        assert statuses(answers) == {200}
        spent, maybe = quiet(held)
        assert (spent, maybe) == (up.count.choices, 0)  # nobody died: to the last sample

        storm = threading.Thread(target=crowds, args=([one, two, three], COMING), daemon=True)
        storm.start()
        until(lambda: up.count.choices > spent + 60)
        three.kill()
        storm.join(60)
        until(lambda: "gave no sign of life" in one.log + two.log)
        until(lambda: up.count.in_flight == 0)
        spent, maybe = quiet(held)
        assert spent <= up.count.choices <= spent + maybe
        (written_off,) = re.findall(
            r"no sign of life: \d+ reservations .*?at most (\d+) samples", one.log + two.log
        )
        assert maybe == held.lost() == int(written_off) > 0

        answers = crowds([one, two], [Visit()] * 150)  # to the end of the cap, and beyond
        assert {429} <= statuses(answers) <= {200, 429}
        spent, maybe = quiet(held)
        assert spent + maybe == cap == held.most
        assert spent <= up.count.choices <= spent + maybe


@pytest.mark.nightly
def test_a_fleets_average_is_of_requests_that_can_be_voted_on(redis_server: RedisServer):
    with (
        Upstream(Honest()) as up,
        Replica(up.url, redis_server, budget=6.0) as one,
        Replica(up.url, redis_server, budget=6.0) as two,
    ):
        answers = crowds([one, two], [Visit(), Visit(body={"temperature": 0})] * 20)
        drawn = [
            [answer.json["adacompute"]["samples"] for answer in part if answer.json["adacompute"]["votes"]]
            for part in answers
        ]
        average = sum(map(sum, drawn)) / sum(map(len, drawn))
        assert sum(map(len, drawn)) == 20
        assert average > 2.0
        for gate in (one, two):
            until(lambda gate=gate: abs(gate.metric("average_samples") - average) < 1e-9)


def test_c15_fleet_a_replica_that_stalls_beyond_its_lease_settles_all_the_same(redis_server: RedisServer):
    with (
        Upstream(Honest(latency=0.5)) as up,
        Running(up.url, redis=redis_server.url, fleet=FLEET, price=0.5, cap=1000) as one,
        Replica(up.url, redis_server, price=0.5, cap=1000) as two,
        Held(redis_server) as held,
    ):
        answers: list[Any] = []
        asked = threading.Thread(
            target=lambda: answers.extend(crowds([two], [Visit()] * 20, at_once=5)[0]), daemon=True
        )
        asked.start()
        until(lambda: up.count.in_flight > 0)
        two.signal(signal.SIGSTOP)
        until(lambda: held.lost() > 0)
        assert samples(held.account())[1] == held.lost()  # it may have spent it, and nobody can ask it
        two.signal(signal.SIGCONT)
        asked.join(60)
        served = [answer for answer in answers if answer.status == 200]
        # until its ledger is open again it refuses new requests
        refused = [answer for answer in answers if answer.status != 200]
        assert {answer.error["code"] for answer in refused} <= {"ledger_unavailable"}
        assert 5 <= len(served) == 20 - len(refused)
        assert quiet(held) == (len(served), 0)
        assert up.count.choices == len(served)
        until(lambda: two.get("/readyz").status == 200)
        assert statuses(crowds([one, two], [Visit()] * 4)) == {200}  # it serves on
        assert quiet(held) == (len(served) + 4, 0)


def test_c16_c25_fleet_redis_gone_closes_it_and_back_nothing_is_lost_nor_when_one_leaves(
    redis_server: RedisServer,
):
    with (
        Upstream(Honest(latency=0.02)) as up,
        Replica(up.url, redis_server, price=0.02, cap=100_000) as one,
        Replica(up.url, redis_server, price=0.02, cap=100_000) as two,
        Held(redis_server) as held,
    ):
        answers: list[Any] = []
        storm = threading.Thread(target=lambda: answers.extend(crowds([one, two], COMING)), daemon=True)
        storm.start()
        until(lambda: up.count.choices > 60)
        redis_server.kill()
        for gate in (one, two):
            until(lambda gate=gate: gate.get("/readyz").status == 503)
            asked = up.count.requests
            refused = gate.ask()
            assert (refused.status, refused.error["code"]) == (503, "ledger_unavailable")
            assert refused.headers["retry-after"] == "1"
            assert str(redis_server.port) not in refused.error["message"]
            assert gate.get("/healthz").status == 200
        storm.join(60)
        until(lambda: up.count.in_flight == 0)
        asked = up.count.requests
        assert {one.ask(**kind).status for kind in KINDS} == {503}
        assert up.count.requests == asked  # closed: nothing is sent
        time.sleep(1.6)  # beyond the leases
        redis_server.start()
        for gate in (one, two):
            until(gate.ready)
            assert gate.ask().status == 200
        assert statuses(answers) <= {200, 503}
        assert quiet(held) == (up.count.choices, 0)

        before = up.count.choices
        storm = threading.Thread(target=crowds, args=([one, two], [Visit()] * 80), daemon=True)
        storm.start()
        until(lambda: up.count.choices > before + 20)
        two.terminate()
        assert two.wait() == 0
        assert held.redis.zcard(f"{BASE}:replicas") == 1  # it waits for no lease to run out
        storm.join(60)
        until(lambda: up.count.in_flight == 0)
        assert quiet(held) == (up.count.choices, 0)


def test_c16_fleet_a_redis_that_comes_back_empty_keeps_it_closed_and_the_log_says_why(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
):
    with Upstream() as up, Running(up.url, redis=redis_server.url, fleet="f", cap=50) as one:
        with Running(up.url, redis=redis_server.url, fleet="f", cap=50) as two:
            assert (one.ask().status, two.ask().status) == (200, 200)
            redis_server.kill()
            redis_server.forget()
            until(lambda: not one.ready() and not two.ready())
            redis_server.start()
            troubles = [lambda gate=gate: gate.gateway.resources.ledger.client.trouble for gate in (one, two)]
            for trouble in troubles:
                until(lambda trouble=trouble: "restart all gateways of the fleet" in trouble())
            asked = up.count.requests
            assert (one.ask().status, two.ask().status) == (503, 503)
            assert "can't be reached" in caplog.text
            assert "restart all gateways of the fleet" in caplog.text  # another reason
        with Running(up.url, redis=redis_server.url, fleet="f", cap=50) as two:  # restarted: it begins again
            assert two.ask().status == 200
            assert one.ask().status == 503
            until(lambda: "another ledger" in one.gateway.resources.ledger.client.trouble)
            assert up.count.requests > asked


@pytest.mark.nightly
def test_c17_c18_fleet_all_serve_at_one_price_that_meets_the_budget_whoever_sets_it(
    redis_server: RedisServer,
):
    budget = 2.0
    with Upstream(Honest(latency=0.005)) as up, Held(redis_server) as held, contextlib.ExitStack() as stack:
        gates = [stack.enter_context(Replica(up.url, redis_server, budget=budget)) for _ in range(3)]
        crowds(gates, [Visit()] * 300, at_once=6)
        maker = next(gate for gate in gates if gate.metric("fleet_pacemaker"))
        assert {gate.metric("fleet_replicas") for gate in gates} == {3}
        before = agreed(held)
        maker.kill()
        gates.remove(maker)
        until(lambda: sum(gate.metric("fleet_pacemaker") for gate in gates) == 1)
        crowds(gates, [Visit()] * 600, at_once=9)
        until(lambda: not held.redis.exists(f"{BASE}:due"))
        after = agreed(held)
        assert before["requests"] > 250
        assert 850 <= after["requests"] <= 900  # what the dead one was told last, and told nobody, is missing
        assert after["average"] == pytest.approx(budget, rel=0.05)
        assert up.count.choices / 900 == pytest.approx(budget, rel=0.05)
        until(lambda: served_alike(gates, held))
        later = stack.enter_context(Running(up.url, redis=redis_server.url, fleet=FLEET, budget=budget))
        assert later.ask().json["adacompute"]["price"] == pytest.approx(agreed(held)["price"], rel=0.1)


def test_the_fleets_price_is_shown_though_a_request_before_it_is_reported_after_it(
    redis_server: RedisServer,
):
    with Upstream() as up, Running(up.url, redis=redis_server.url, fleet="f", budget=2.0) as gate:
        gateway = gate.gateway
        pacer = gateway.find_pacer()

        async def report_both() -> None:
            gateway.reporter.on_price(pacer.policy, pacer.target, 0.25, 2.0)
            gateway.make_fleet_pacer.__self__.on_price(pacer.policy, pacer.target, 0.125, 2.0, "samples")
            gateway.reporter.report()

        gate.call(report_both())
        lines = gate.get("/metrics").raw.decode().splitlines()
        assert [line.split()[-1] for line in lines if line.startswith("adacompute_price{")] == ["0.125"]


def served_alike(gates: list[Replica], held: Held) -> bool:
    """Once all know the price, does each serve at it, shifted by at most 1%? It moves with every request."""
    until(lambda: {gate.metric("price") for gate in gates} == {agreed(held)["price"]})
    price = agreed(held)["price"]
    served = [one.json["adacompute"]["price"] for (one,) in crowds(gates, [Visit()] * len(gates))]
    return served == [pytest.approx(price, rel=0.011)] * len(gates)


def agreed(held: Held) -> dict[str, float]:
    """What the fleet has come to, of its one lane."""
    (lane,) = held.redis.scan_iter(f"{BASE}:lane:*")
    found = held.redis.hgetall(lane)
    return {name: float(found[name]) for name in ("price", "average", "requests")}
