"""The average cost of requests through the whole gateway, for traffic whose difficulty shifts."""

import math
import random
from pathlib import Path
from typing import Any

import pytest
from behaviours import Reply
from crowd import Visit, crowd
from running import Running
from wires import until

from upstream import Upstream

SHARES = (0.2, 0.8, 0.5, 0.3)  # of hard questions, one after the other
EACH = 150  # requests of each share


def script(number: int, body: dict[str, Any]) -> Reply:
    """Easy questions always have the same answer, hard ones any of five."""
    rng = random.Random(number)
    hard = "hard" in body["messages"][0]["content"]
    answers = [rng.randrange(5) if hard else 7 for _ in range(body.get("n") or 1)]
    return Reply(texts=[f"The answer is {answer}." for answer in answers], logprobs=False)


def asked(share: float, rng: random.Random) -> Visit:
    kind = "hard" if rng.random() < share else "easy"
    content = f"What is {rng.randrange(1000)} times {rng.randrange(1000)}? It is {kind}."
    return Visit(body={"messages": [{"role": "user", "content": content}]})


@pytest.mark.parametrize("settings", [{"budget": 3.0}, {"price": 0.02}])
def test_each_request_has_a_price_of_its_own_and_the_pacer_learns_at_the_one_before(
    settings: dict[str, float],
):
    places = iter([0.0, 0.25, 0.999])
    settled: list[float | None] = []
    with Upstream(script) as up, Running(up.url, **settings) as gate:
        gateway = gate.gateway
        gateway.rng.random = lambda: next(places)
        policy, pacer = gateway.policy_registry.get("stopping").policy, gateway.find_pacer()
        if pacer is not None:
            learn = pacer.settle
            pacer.settle = lambda cost, price, **kw: (settled.append(price), learn(cost, price, **kw))
        before, own = [], []
        for place in (0.0, 0.25, 0.999):
            before.append(0.02 if pacer is None else pacer.price)
            own.append(policy.spread_price(before[-1], place))
            assert gate.ask().json["adacompute"]["price"] == own[-1] != before[-1]
            gate.get("/metrics")  # by then it has learned
    assert settled == ([] if pacer is None else before)


@pytest.mark.slow
def test_c18_the_average_meets_the_budget_while_traffic_shifts():
    budget, rng = 3.0, random.Random(18)
    with Upstream(script) as up, Running(up.url, budget=budget) as gate:
        prices, samples = [], []
        for share in SHARES:
            for answer in crowd(gate, [asked(share, rng) for _ in range(EACH)], at_once=12):
                assert answer.status == 200, answer.raw
                prices.append(answer.json["adacompute"]["price"])
                samples.append(answer.json["adacompute"]["samples"])
        text = gate.get("/metrics").raw.decode()
        low, high = gate.gateway.policy_registry.get("stopping").find_start(budget)[1:]
    average = sum(samples) / len(samples)
    print(f"average {average:.3f} of {budget}, price {min(prices):.4g} to {max(prices):.4g}")
    assert sum(samples) == up.count.choices
    assert abs(average - budget) / budget < 0.05
    assert all(math.isfinite(price) and low <= price <= high for price in prices)
    assert len(set(prices)) > 10  # it moved
    assert f"adacompute_overall_average_samples {average}" in text
    assert 'adacompute_target_samples{budget="3",policy="stopping"} 3.0' in text


def test_c18_clients_that_name_many_budgets_do_not_make_the_operators_forgotten():
    with Upstream(script) as up, Running(up.url, budget=2.0, max_budget=100.0) as gate:
        assert gate.ask().status == 200
        others = [Visit(headers={"x-adacompute-budget": f"{3 + i / 4}"}) for i in range(100)]
        assert {answer.status for answer in crowd(gate, others, at_once=8)} == {200}
        lanes = gate.gateway.pacers.state()
        assert gate.ask().status == 200
        assert len(lanes) == 65
        assert lanes['["stopping", 2.0, "samples", ""]']["requests"] == 1
        assert gate.gateway.pacers.state()['["stopping", 2.0, "samples", ""]']["requests"] == 2


UNVOTABLE = ({"temperature": 0}, {"messages": [{"role": "user", "content": "Write a poem about the sea."}]})


def mixed(share: float, count: int, rng: random.Random) -> list[Visit]:
    """So many visits, that share of which can't be voted on: by their form, or by what they ask for."""
    return [
        Visit(body=rng.choice(UNVOTABLE)) if rng.random() < share else asked(0.5, rng) for _ in range(count)
    ]


@pytest.mark.nightly
@pytest.mark.parametrize(("over", "share"), [("voted", 0.9), ("all", 0.5)])
def test_c18_what_cant_be_voted_on_pushes_the_price_only_where_the_average_is_over_all(
    over: str, share: float
):
    budget, rng = 3.0, random.Random(19)
    with Upstream(script) as up, Running(up.url, budget=budget, average=over) as gate:
        come = mixed(share, 3000, rng)
        parts = [come[start : start + EACH] for start in range(0, len(come), EACH)]
        answers = [answer for part in parts for answer in crowd(gate, part, at_once=12)]
        told = [answer.json["adacompute"] for answer in answers]
        board = gate.get("/dashboard/data").json  # with what the reporter still held
        text = gate.get("/metrics").raw.decode()
        spent = up.count.choices
    unvotable = [visit.body in UNVOTABLE for visit in come]
    voted = [one["samples"] for one, without in zip(told, unvotable, strict=True) if not without]
    alone = [one["samples"] for one, without in zip(told, unvotable, strict=True) if without]
    averages = {"voted": sum(voted) / len(voted), "all": spent / len(come)}
    print(f"{over}: {averages}, most {max(voted)}, all 16: {voted.count(16) / len(voted):.0%}")
    assert set(alone) == {1}
    assert abs(averages[over] - budget) / budget < 0.05
    ever = board["ever"]
    assert (ever["voted"]["requests"], ever["requests"]) == (len(voted), len(come))
    assert (ever["voted"]["average"], ever["average"]) == (averages["voted"], averages["all"])
    assert ever["voted"]["target"] == ever["target"] == budget
    assert board["average_over"] == over
    (dial,) = board["dials"]
    assert dial["averages"] == averages
    assert dial["average"] == pytest.approx(averages[over])
    assert f"adacompute_voted_average_samples {averages['voted']}" in text
    assert f"adacompute_overall_average_samples {averages['all']}" in text
    if over == "voted":
        assert voted.count(16) < 0.05 * len(voted)
    else:
        assert averages["voted"] > 1.3 * budget  # they draw what the others leave


@pytest.mark.parametrize(
    ("settings", "counted"),
    [
        ({"budget": "3 samples"}, 1),
        ({"budget": "3 samples", "average": "all"}, 2),
        ({"budget": "900 tokens", "max_budget": "9000 tokens"}, 2),
        ({"budget": "900 tokens", "max_budget": "9000 tokens", "average": "voted"}, 1),
    ],
)
def test_a_budget_in_samples_is_of_what_can_be_voted_on_and_one_in_tokens_of_everything(
    settings: dict[str, Any], counted: int
):
    with Upstream(script) as up, Running(up.url, **settings) as gate:
        pacer = gate.gateway.find_pacer()
        assert gate.ask().status == gate.ask(temperature=0).status == 200
        until(lambda: gate.gateway.observability.summarise()["ever"]["requests"] == 2)
        assert pacer.requests == counted
        assert gate.get("/dashboard/data").json["average_over"] == ("all" if counted == 2 else "voted")


def read_settled(gate: Running) -> dict[str, Any]:
    """The only dial, once the average that its price steers by holds all that the page counts."""

    def read() -> dict[str, Any]:
        (dial,) = gate.gateway.observability.dashboard_data()["dials"]
        return dial

    until(lambda: (dial := read())["average"] == pytest.approx(dial["averages"]["voted"]))
    return read()


def test_both_averages_are_there_again_after_a_restart_and_another_choice_keeps_the_price(tmp_path: Path):
    with Upstream(script) as up:
        with Running(up.url, folder=tmp_path, budget=2.0) as gate:
            assert {answer.status for answer in crowd(gate, mixed(0.5, 60, random.Random(3)), at_once=4)} == {
                200
            }
            until(lambda: read_settled(gate)["requests"] == 60)
            before = read_settled(gate)
            price = gate.gateway.pacers.state()['["stopping", 2.0, "samples", ""]']["centre"]
        with Running(up.url, folder=tmp_path, budget=2.0) as gate:
            (after,) = gate.gateway.observability.dashboard_data()["dials"]
            assert (after["averages"], after["average"]) == (before["averages"], before["average"])
            assert 0 < after["decided"] < after["requests"] == 60
            assert gate.get("/dashboard/data").json["ever"]["requests"] == 0  # since the start
        with Running(up.url, folder=tmp_path, budget=2.0, average="all") as gate:
            assert gate.ask(temperature=0).status == 200
            lane = gate.gateway.pacers.state()['["stopping", 2.0, "samples", ""]']
            assert (lane["requests"], lane["spent"], lane["average"]) == (1.0, 1.0, "all")
            assert lane["centre"] == pytest.approx(price, abs=0.5)


def test_a_first_sample_without_an_answer_is_no_vote_and_three_without_one_are():
    def decided() -> int:
        data = gate.gateway.observability.dashboard_data()
        return data["ever"]["voted"]["requests"]

    prose = "So the long story of the keeper and the ships on the grey sea went on, " * 4
    with Upstream(Reply(texts=[prose])) as up:
        with Running(up.url, price=1e-6) as gate:
            assert "notes" in gate.ask().json["adacompute"]
            until(lambda: gate.gateway.observability.dashboard_data()["ever"]["requests"] == 1)
            assert decided() == 0
        up.script = Reply(texts=[prose], finish="length")  # it may have had an answer
        with Running(up.url, price=1e-6, answers={"extract": "number"}) as gate:
            told = gate.ask().json["adacompute"]
            assert any("none of the first" in note for note in told["notes"]), told
            until(lambda: decided() == 1)
