"""Latency mode: what is late is asked for early, or again; and it is counted, capped, shown and cancelled."""

import heapq
import itertools
import json
import random
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from behaviours import Reply, Stall, Status
from crowd import Visit, crowd, until
from menus import MenuUpstreams, save_policy
from running import Process, Running

import adacompute as ac
from adacompute.answers import Tally
from adacompute.config import ServeConfig, parse_latency
from adacompute.errors import ConfigError
from adacompute.policies import FixedPolicy
from adacompute.policies.agreement import AdaptiveConsistency
from adacompute.policies.base import Policy
from adacompute.policies.stopping import StoppingPolicy
from adacompute.pool import open_pool
from adacompute.serve.latency import LatencyControl, TimeDistribution, predict_draw
from adacompute.serve.ledger import Spend
from adacompute.serve.reply import HedgeUse, RequestOutcome
from upstream import Upstream

SOON = "p95=200ms"  # before anything is measured, a wave is late after half of it
LATE = "p95=60s"  # which is never reached here


def say(answer: str, **more: Any) -> Reply:
    return Reply(choices=1, texts=[f"The answer is \\boxed{{{answer}}}."], **more)


def stall_at(*numbers: int, answer: str = "4") -> Callable[[int, dict[str, Any]], Any]:
    """An upstream that gives one choice a call, and at these calls none, ever."""
    return lambda number, _body: Stall() if number in numbers else say(answer)


def save(policy: Policy, folder: Path) -> str:
    policy.save(folder / "policy")
    return str(folder / "policy")


# the setting


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("p95=4s", (0.95, 4.0)), ("p99=800ms", (0.99, 0.8)), ("p50=2", (0.5, 2.0)), ("p99.9=.5", None)]
    + [(bad, None) for bad in ("p95", "p95=0", "p95=-1", "p200=1", "p100=1", "p0=1", "p95=abc", "p95=4m")]
    + [(bad, None) for bad in ("95=4s", "p95=nan", "p95=inf", "p95=1e9s", "p95=4s,p99=8s", "p95 = 4s")],
)
def test_c10_a_target_is_a_quantile_and_a_time_and_anything_else_is_refused_by_name(text: str, parsed: Any):
    if parsed is not None:
        assert parse_latency(text) == pytest.approx(parsed)
        return
    with pytest.raises(ConfigError) as refused:
        ServeConfig(latency=text)
    assert repr(text) in str(refused.value)
    assert "--latency p95=4s" in str(refused.value)
    assert "\n" not in str(refused.value)


# requests


def test_c10_a_first_sample_that_never_comes_is_asked_for_again(tmp_path: Path):
    policy = save(FixedPolicy(1), tmp_path)
    with Upstream(stall_at(1)) as up, Running(up.url, policy=policy, latency=SOON) as gate:
        answer = gate.ask()
        until(lambda: up.count.in_flight == 0)  # the late one was cancelled
        assert answer.status == 200
        extra = answer.json["adacompute"]
        assert (extra["samples"], extra["answer"], extra["agreement"]) == (1, "4", 1.0)
        assert extra["hedged"] == {"samples": 1, "unused": 1, "cost": 1.0}
        assert "missing" not in extra
        assert up.count.requests == 2
        balance = gate.gateway.resources.ledger.account()
        assert (balance.spent.samples, balance.maybe.samples, balance.reserved.samples) == (1, 1, 0)
        metrics = gate.get("/metrics").raw.decode()
        for line in (
            'adacompute_latency_target_seconds{quantile="0.95"} 0.2',
            "adacompute_latency_hedged_requests_total 1.0",
            "adacompute_latency_hedged_samples_total 1.0",
            "adacompute_latency_unused_samples_total 1.0",
            'adacompute_latency_hedged_cost_total{unit="samples"} 1.0',
        ):
            assert line in metrics
        shown = gate.get("/dashboard/data").json["latency"]
        assert (shown["name"], shown["seconds"], shown["state"]) == ("p95", 0.2, "measuring")
        assert (shown["hedged_requests"], shown["cost"]["samples"]) == (1, 1.0)


def test_c10_without_a_target_nothing_is_hedged(tmp_path: Path):
    policy = save(FixedPolicy(1), tmp_path)
    with Upstream(stall_at(1)) as up, Running(up.url, policy=policy, deadline=1.0) as gate:
        assert gate.ask().status == 504
        assert up.count.requests == 1
        assert "hedged" not in gate.ask().json["adacompute"]
        assert "adacompute_latency" not in gate.get("/metrics").raw.decode()
        assert gate.get("/dashboard/data").json["latency"] is None


def test_c10_of_a_wave_only_what_is_late_is_asked_for_again(tmp_path: Path):
    policy = save(FixedPolicy(8), tmp_path)
    with Upstream(stall_at(3, 5)) as up, Running(up.url, policy=policy, budget=8, latency=SOON) as gate:
        extra = gate.ask().json["adacompute"]
    assert (extra["samples"], extra["votes"]) == (8, {"4": 8})
    hedged = extra["hedged"]["samples"]
    assert 2 <= hedged < 8  # two, unless the machine stalls
    assert extra["hedged"] == {"samples": hedged, "unused": hedged, "cost": float(hedged)}


def test_c10_a_hedge_that_fails_does_no_harm(tmp_path: Path):
    def script(number: int, _body: dict[str, Any]) -> Any:
        return say("4", delay=1.5) if number == 1 else Status(code=500)

    policy = save(FixedPolicy(1), tmp_path)
    with (
        Upstream(script) as up,
        Running(up.url, policy=policy, latency=SOON, endpoint={"attempts": 1}) as gate,
    ):
        extra = gate.ask().json["adacompute"]
    assert up.count.requests == 2
    assert (extra["answer"], extra["hedged"]["samples"]) == ("4", 1)
    assert "missing" not in extra
    assert "notes" not in extra


def test_c10_a_sample_that_fails_is_replaced_by_its_hedge(tmp_path: Path):
    def script(number: int, _body: dict[str, Any]) -> Any:
        return Status(code=500, delay=1.0) if number == 1 else say("4", delay=1.5)

    policy = save(FixedPolicy(1), tmp_path)
    with (
        Upstream(script) as up,
        Running(up.url, policy=policy, latency=SOON, endpoint={"attempts": 1}) as gate,
    ):
        answer = gate.ask()
    assert (answer.status, up.count.requests) == (200, 2)
    assert answer.json["adacompute"]["answer"] == "4"


def test_c10_where_nothing_ever_comes_each_decision_is_hedged_once_and_the_deadline_holds(tmp_path: Path):
    policy = save(FixedPolicy(4), tmp_path)
    settings: dict[str, Any] = {"policy": policy, "budget": 4, "latency": SOON, "deadline": 1.5}
    with Upstream(lambda *_: Stall()) as up, Running(up.url, **settings) as gate:
        assert gate.ask().status == 504
        until(lambda: up.count.in_flight == 0)
        assert gate.gateway.resources.ledger.account().reserved.samples == 0
    assert [request.body.get("n", 1) for request in up.requests] == [4, 4]


def test_c10_a_cap_without_room_is_not_passed_by_a_hedge(tmp_path: Path):
    policy = save(FixedPolicy(1), tmp_path)
    settings: dict[str, Any] = {"policy": policy, "latency": SOON, "cap": 1}
    with Upstream(lambda *_: say("4", delay=0.5)) as up, Running(up.url, **settings) as gate:
        answer = gate.ask()
        assert answer.status == 200
        assert "hedged" not in answer.json["adacompute"]
        assert gate.ask().status == 429
    assert up.count.requests == 1


def test_c10_a_client_that_goes_away_ends_its_hedges(tmp_path: Path):
    policy = save(FixedPolicy(2), tmp_path)
    settings: dict[str, Any] = {"policy": policy, "budget": 2, "latency": SOON}
    with Upstream(lambda *_: Stall()) as up, Running(up.url, **settings) as gate:
        assert crowd(gate, [Visit(leaves=2.0)] * 3) == [None] * 3
        until(lambda: up.count.in_flight == 0)
        until(lambda: gate.gateway.resources.ledger.account().reserved.samples == 0)
        assert gate.gateway.latency is not None
        assert gate.gateway.latency.under_way == 0
        assert 0 < gate.gateway.latency.hedged_samples <= 6  # as many as a busy machine came to


def test_c10_a_late_sample_that_comes_before_the_end_votes(tmp_path: Path):
    """The first is late and asked for again; the policy wants more, and the late one is among them."""

    def script(number: int, _body: dict[str, Any]) -> Any:
        if number == 1:
            return say("5", delay=0.5)
        return say("4", delay=0.3 if number > 2 else 0.0)

    policy = save(AdaptiveConsistency(longest=6), tmp_path)
    with Upstream(script) as up, Running(up.url, policy=policy, price=0.0, latency=SOON) as gate:
        extra = gate.ask().json["adacompute"]
    assert extra["votes"]["5"] == 1
    assert sum(extra["votes"].values()) == 6
    assert 1 <= extra["hedged"]["samples"] <= 6
    assert up.count.requests <= 12


@pytest.mark.slow
def test_c10_what_the_policy_always_wants_is_drawn_before_a_late_first_sample_came(tmp_path: Path):
    """After some requests of two waves the second is drawn while the first is late, and both are used."""

    def script(_number: int, body: dict[str, Any]) -> Any:
        slow = "slow" in body["messages"][-1]["content"]
        return say("4", delay=2.5 if slow else 0.0)

    policy = save(AdaptiveConsistency(longest=2), tmp_path)
    with Upstream(script) as up, Running(up.url, policy=policy, price=0.0, latency="p50=2s") as gate:
        for _ in range(15):
            assert gate.ask().json["adacompute"]["samples"] == 2
        before = up.count.requests
        assert before == 30
        extra = gate.ask(messages=[{"role": "user", "content": "What is 2 + 2, slow?"}]).json["adacompute"]
    assert extra["samples"] == 2
    assert extra["hedged"] == {"samples": 1, "unused": 0, "cost": 1.0}
    assert up.count.requests == before + 2  # the second wave was drawn already when the first had come


@pytest.mark.parametrize("way", ["n", "shadow", "pass", "explore", "single"])
def test_c10_what_the_policy_does_not_decide_is_not_hedged(way: str):
    settings: dict[str, Any] = {"deadline": 1.0, "latency": SOON}
    settings |= {"shadow": {"mode": "shadow"}, "pass": {"mode": "pass"}}.get(way, {})
    if way == "explore":
        settings |= {"explore": 0.05, "budget": 16}
    body: dict[str, Any] = {"n": {"n": 2}, "single": {"temperature": 0}}.get(way, {})
    with Upstream(lambda *_: Stall()) as up, Running(up.url, **settings) as gate:
        gate.gateway.explore = 1.0 if way == "explore" else 0.0
        assert gate.ask(**body).status == 504
    assert up.count.requests == 1


def test_c10_where_nothing_is_late_replies_are_the_same_as_without_a_target(tmp_path: Path):
    def ask_all(latency: str) -> list[Any]:
        rng, said = random.Random(5), {}
        for k in range(40):
            said[f"Question {k}: 2 + 2?"] = [rng.choice("4445") for _ in range(16)]
        given: Counter[str] = Counter()

        def script(_number: int, body: dict[str, Any]) -> Any:
            question, count = body["messages"][-1]["content"], body.get("n", 1)
            texts = [f"\\boxed{{{said[question][given[question] + k]}}}" for k in range(count)]
            given[question] += count
            return Reply(texts=texts)

        with Upstream(script) as up, Running(up.url, price=0.02, latency=latency) as gate:
            replies = [gate.ask(messages=[{"role": "user", "content": text}]).json for text in said]
        assert sum(given.values()) == up.count.choices
        names = ("samples", "votes", "answer", "agreement", "price", "cost")
        return [{name: reply["adacompute"][name] for name in names} for reply in replies]

    plain = ask_all("")
    assert len({reply["samples"] for reply in plain}) > 2
    assert ask_all(LATE) == plain


@pytest.mark.slow
def test_c10_the_average_stays_on_budget_with_a_share_of_slow_samples():
    def script(number: int, _body: dict[str, Any]) -> Any:
        rng = random.Random(number)
        return say(rng.choice("44445"), delay=0.3 if rng.random() < 0.1 else 0.0)

    with Upstream(script) as up, Running(up.url, budget=3, latency="p95=100ms") as gate:
        answers = crowd(gate, [Visit()] * 400, at_once=8)
        extras = [answer.json["adacompute"] for answer in answers if answer is not None]
        pacer = gate.gateway.find_pacer()
        assert pacer is not None
        hedged = sum(extra.get("hedged", {"samples": 0})["samples"] for extra in extras)
        assert len(extras) == 400
        assert hedged > 20
        # the pacer's average is what the upstream was asked for, also what was cancelled
        assert pacer.average == pytest.approx(up.count.requests / 400, rel=0.05)
        assert pacer.average == pytest.approx(3.0, rel=0.15)


@pytest.mark.slow
def test_c10_over_a_menu_a_mode_that_is_late_is_asked_again_and_recorded_without_what_was_cancelled(
    tmp_path: Path,
):
    policy, pool = save_policy(tmp_path), tmp_path / "pool.sqlite"
    with MenuUpstreams() as menu:
        calls = itertools.count(1)
        plain = menu.upstreams["small"].script
        assert callable(plain)
        menu.upstreams["small"].script = lambda number, body: (
            Stall() if next(calls) == 1 else plain(number, body)
        )
        settings: dict[str, Any] = {
            "menu": str(menu.write(tmp_path)),
            "policy": str(policy),
            "record": str(pool),
        }
        with Running("", latency="p95=400ms", budget="0.05 USD per 1000", **settings) as gate:
            answer = gate.ask(model="adacompute")
    assert answer.status == 200
    extra = answer.json["adacompute"]
    assert extra["hedged"]["samples"] >= 1
    drawn = sum(use["samples"] for use in extra["modes"].values())
    with open_pool(pool) as recorded:
        samples = [sample for each in recorded for sample in each.samples]
    assert len(samples) == drawn
    assert any(sample.extra.get("gateway", {}).get("hedged") for sample in samples)


def test_c10_a_stream_that_waits_for_the_vote_is_hedged(tmp_path: Path):
    policy = save(FixedPolicy(3), tmp_path)
    with Upstream(stall_at(2)) as up, Running(up.url, policy=policy, budget=3, latency=SOON) as gate:
        answer = gate.ask(stream=True)
    assert answer.status == 200
    assert re.search(rb'"hedged":\{"samples":[1-9]', answer.raw)
    assert answer.raw.rstrip().endswith(b"data: [DONE]")


@pytest.mark.slow
def test_c10_the_command_takes_a_target_and_says_it(tmp_path: Path, adacompute: Any):
    policy = save(FixedPolicy(1), tmp_path)
    with Upstream(stall_at(1)) as up:
        words = ("--latency", SOON, "--policy", policy)
        with Process(up.url, *words, folder=tmp_path) as gate:
            assert gate.ask().json["adacompute"]["hedged"]["samples"] == 1
        checked = adacompute("serve", "--check", "--upstream", up.url, "--port", "0", "--latency", "p95=4s")
    assert re.search(r"latency +p95=4s of voted requests", checked.stdout)
    refused = adacompute("serve", "--upstream", "http://127.0.0.1:9/v1", "--latency", "p95=4m", code=None)
    assert refused.returncode != 0
    assert "latency 'p95=4m' can't be used" in refused.stderr
    assert "p95=4s" in refused.stderr


# what is measured


def test_quantiles_are_those_of_the_times_up_to_the_width_of_a_bucket():
    rng = np.random.default_rng(3)
    seconds = rng.lognormal(0.0, 1.0, 900)
    times = TimeDistribution()
    for each in seconds:
        times.add(float(each))
    for share in (0.05, 0.5, 0.9, 0.95, 0.99):
        assert times.find_quantile(share) == pytest.approx(np.quantile(seconds, share), rel=0.1)
    for at in (0.3, 1.0, 4.0):
        assert times.find_share_above(at) == pytest.approx((seconds > at).mean(), abs=0.05)


def test_samples_that_were_cancelled_count_as_longer_than_they_had():
    """Each time above a limit of its own is seen only up to it, and the quantiles are still right."""
    rng = np.random.default_rng(4)
    seconds, limits = rng.lognormal(0.0, 1.0, 999), rng.lognormal(1.0, 1.0, 999)
    times, naive = TimeDistribution(), TimeDistribution()
    for each, limit in zip(seconds.tolist(), limits.tolist(), strict=True):
        times.add(min(each, limit), has_ended=each <= limit)
        if each <= limit:
            naive.add(each)
    for share in (0.5, 0.8, 0.9):
        truth = np.quantile(seconds, share)
        assert times.find_quantile(share) == pytest.approx(truth, rel=0.2)
        assert naive.find_quantile(share) < times.find_quantile(share)


def test_old_times_are_forgotten():
    times = TimeDistribution()
    for seconds in (10.0, 1.0):
        for _ in range(8_000):
            times.add(seconds)
    assert times.find_quantile(0.95) == pytest.approx(1.0, rel=0.1)


def list_waves(tally: list[str], wave: int) -> Iterator[tuple[list[str], float]]:
    """Each sequence of answers that a wave may bring, with its chance by the urn, one sample at a time."""
    if not wave:
        yield [], 1.0
        return
    ranked = [answer for answer, _ in Counter(tally).most_common(2)]
    kinds = [*ranked, None]
    weights = [tally.count(answer) for answer in ranked]
    weights.append(len(tally) - sum(weights) + 1)
    for kind, weight in zip(kinds, weights, strict=True):
        answer = f"9{len(tally)}" if kind is None else kind
        for rest, chance in list_rest(tally, [kind], wave - 1, weights, kinds):
            yield [answer, *rest], chance * weight / sum(weights)


def list_rest(
    tally: list[str], drawn: list[str | None], wave: int, weights: list[int], kinds: list[str | None]
) -> Iterator[tuple[list[str], float]]:
    if not wave:
        yield [], 1.0
        return
    now = [weight + drawn.count(kind) for weight, kind in zip(weights, kinds, strict=True)]
    for kind, weight in zip(kinds, now, strict=True):
        answer = f"9{len(tally) + len(drawn)}" if kind is None else kind
        for rest, chance in list_rest(tally, [*drawn, kind], wave - 1, weights, kinds):
            yield [answer, *rest], chance * weight / sum(now)


@pytest.mark.parametrize(
    "policy", [AdaptiveConsistency(longest=16), StoppingPolicy(weigh=None)], ids=["agreement", "stopping"]
)
@pytest.mark.parametrize("wave", [1, 2, 3])
def test_a_next_wave_is_predicted_as_the_policy_itself_decides_on_every_sequence(policy: Policy, wave: int):
    votes = (["4"], ["4", "5"], ["4", "4", "5"], ["4", "5", "6"], ["4"] * 4, ["4", "4", "4", "5", "5"])
    seen = Counter[bool]()
    for answers, dial in itertools.product(votes, (0.001, 0.01, 0.05, 0.6, 0.95, 0.999)):
        if policy.dial == "price" and dial > 0.1:
            continue
        chances: Counter[int] = Counter()
        for rest, chance in list_waves(answers, wave):
            chances[policy.more("2 + 2?", Tally.of([*answers, *rest]), dial)] += chance  # type: ignore[assignment]
        going_on = {count: chance for count, chance in chances.items() if count}
        likely = sum(going_on.values())
        reading = policy.read(["2 + 2?"])
        predicted = predict_draw(policy, reading, Tally.of(answers), dial, wave)
        if abs(likely - 0.75) > 0.01:
            assert bool(predicted) == (likely > 0.75), (answers, dial, likely)
            seen[bool(predicted)] += 1
        if predicted:
            assert going_on[predicted] == pytest.approx(max(going_on.values()), abs=0.05)
    assert seen[True]
    assert seen[False]


# the rule, in a simulation of its own: requests that overlap, and a late sample that is asked for again


@dataclass
class Simulated:
    """What came of a simulation: seconds of each request in the order of their ends, and samples."""

    control: LatencyControl
    seconds: list[float] = field(default_factory=list)
    asked: int = 0
    hedged: int = 0

    def share_above(self, target: float) -> float:
        """Of the second half of the requests."""
        late = self.seconds[len(self.seconds) // 2 :]
        return sum(each > target for each in late) / len(late)


def make_outcome(seconds: float, hedged: int) -> RequestOutcome:
    return RequestOutcome(
        id="x",
        at=0.0,
        seconds=seconds,
        key="",
        model="m",
        policy="p",
        mode="adaptive",
        budget=2.0,
        price=None,
        samples=1,
        spent=Spend(samples=1 + hedged),
        hedged=HedgeUse(samples=hedged, unused=hedged, spent=Spend(samples=hedged)),
    )


def heavy(rng: random.Random) -> float:
    """Half a second; one in ten takes ten times as long."""
    return rng.lognormvariate(-0.7, 0.25) * (10 if rng.random() < 0.1 else 1)


def simulate(
    target: float, *, waves: tuple[int, ...] = (1,), rate: float = 20.0, requests: int = 4_000
) -> Simulated:
    """Requests at random times, each of some waves of one sample, drawn one after the other."""
    rng, run = random.Random(0), Simulated(LatencyControl(0.95, target))
    control, now = run.control, 0.0
    events: list[tuple[float, int, list[tuple[float, bool]] | None]] = []
    for number in range(requests):
        now += rng.expovariate(rate)
        heapq.heappush(events, (now, number, None))
    came: dict[int, float] = {}
    left: dict[int, int] = {}
    hedged: Counter[int] = Counter()
    while events:
        now, number, ended = heapq.heappop(events)
        if ended is not None:
            for seconds, has_ended in ended:
                control.add_sample("", seconds, has_ended=has_ended)
            left[number] -= 1
            if not left[number]:
                control.under_way -= 1
                run.seconds.append(now - came[number])
                control.add_request(make_outcome(now - came[number], hedged[number]))
                continue
        else:
            came[number], left[number] = now, rng.choice(waves)
            control.under_way += 1
        first, late = heavy(rng), control.find_delays("")[1]
        run.asked += 1
        if first <= late:
            heapq.heappush(events, (now + first, number, [(first, True)]))
            continue
        run.asked, run.hedged = run.asked + 1, run.hedged + 1
        hedged[number] += 1
        second = late + heavy(rng)
        end = min(first, second)
        heapq.heappush(events, (now + end, number, [(end, first == end), (end - late, second == end)]))
    return run


@pytest.mark.slow
@pytest.mark.parametrize("waves", [(1,), (1, 1, 2, 3)], ids=["one", "several"])
def test_a_target_is_met_and_costs_less_the_longer_it_is(waves: tuple[int, ...]):
    runs = {target: simulate(target, waves=waves) for target in (2.5, 5.0, 30.0)}
    assert runs[30.0].hedged < 0.02 * runs[30.0].asked  # it is met anyway
    assert runs[30.0].share_above(2.5) > 0.09
    for target in (2.5, 5.0):
        assert 0.02 < runs[target].share_above(target) < 0.06
        assert runs[target].control.standing == "met"
    assert runs[30.0].hedged < runs[5.0].hedged < runs[2.5].hedged < 0.35 * runs[2.5].asked


def test_a_target_is_met_with_hundreds_of_requests_under_way():
    run = simulate(2.5, rate=150.0, requests=12_000)
    assert 0.02 < run.share_above(2.5) < 0.075


def test_a_target_that_no_sample_can_meet_is_said_once_and_hedged_little(caplog: pytest.LogCaptureFixture):
    run = simulate(0.4)
    shown = run.control.describe_status()
    assert shown["state"] == "out of reach"
    assert re.fullmatch(r"one sample takes [\d.]+ s at p95", shown["why"])
    assert run.hedged < 0.22 * run.asked
    lines = [record.getMessage() for record in caplog.records if "latency" in record.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith("latency: the target p95=0.4s can't be met: one sample takes")


def test_a_target_below_all_waves_together_is_said_too():
    run = simulate(1.2, waves=(3,))
    shown = run.control.describe_status()
    assert shown["state"] == "out of reach"
    assert "drawn as early as may be" in shown["why"]
    assert run.hedged < run.asked / 2 + 1  # once for each wave, at most


# over a restart


def test_a_target_goes_on_as_before_from_its_state():
    control = simulate(2.5).control
    for number in range(40):
        control.add_decision(("p", "", number % 3), 2)
    state = json.loads(json.dumps(control.state()))
    again = LatencyControl(0.95, 2.5)
    again.restore(state)
    assert again.state() == control.state()
    assert again.find_delays("") == control.find_delays("")
    assert (again.measured, again.standing) == (control.measured, "met")
    assert again.predict_next(("p", "", 0)) == control.predict_next(("p", "", 0)) == 2
    other = LatencyControl(0.95, 5.0)
    other.restore(state)
    assert other.state()["samples"] == state["samples"]
    assert (other.share, other.standing) == (0.005, "measuring")  # those were of another target


def test_a_target_that_was_out_of_reach_is_said_again_after_a_restart(caplog: pytest.LogCaptureFixture):
    state = simulate(0.4).control.state()
    caplog.clear()
    again = LatencyControl(0.95, 0.4)
    again.restore(state)
    assert again.standing == "out of reach"
    assert len(caplog.records) == 1


NO_TIMES: dict[str, Any] = {"count": 0, "ended": {}, "cut_off": {}}


@pytest.mark.parametrize(
    "change",
    [
        {"samples": [1]},
        {"samples": {"": None}},
        {"samples": {"": {**NO_TIMES, "count": -1}}},
        {"samples": {"": {**NO_TIMES, "count": "many"}}},
        {"samples": {"": {**NO_TIMES, "ended": {"164": 1.0}}}},
        {"samples": {"": {**NO_TIMES, "ended": {"1": -1.0}}}},
        {"samples": {"": {**NO_TIMES, "cut_off": {"1": 1e300}}}},
        {"requests": {}},
        {"share": 2.0},
        {"share": None},
        {"decisions": None},
        {"decisions": [["p", "", 1]]},
        {"decisions": [["p", "", 1, {"x": 1.0}]]},
    ],
)
def test_a_state_that_cant_be_is_refused_whole(change: dict[str, Any]):
    control = LatencyControl(0.95, 2.5)
    control.add_sample("", 1.0)
    before = control.state()
    with pytest.raises(ConfigError, match="a stored time has"):
        control.restore({**simulate(2.5, requests=50).control.state(), **change})
    assert control.state() == before


def serve_twice(folder: Path, between: Callable[[Path], None], **settings: Any) -> list[dict[str, Any]]:
    """What a gateway has measured at its end, and what the next one with its file starts with."""
    policy = save(FixedPolicy(1), folder)
    states = []
    with Upstream(say("4")) as up:
        with Running(up.url, folder=folder, policy=policy, latency=LATE) as gate:
            for _ in range(5):
                assert gate.ask().status == 200
            states.append(gate.gateway.latency.state())
        between(folder / "state.sqlite")
        with Running(up.url, folder=folder, policy=policy, **{"latency": LATE, **settings}) as gate:
            states.append(gate.gateway.latency.state())
            assert gate.get("/dashboard/data").json["latency"]["requests"] == states[1]["requests"]["count"]
            assert gate.ask().status == 200
    return states


def test_c10_what_was_measured_is_there_again_after_a_restart(tmp_path: Path):
    first, second = serve_twice(tmp_path, lambda _: None)
    assert first["requests"]["count"] == first["samples"][""]["count"] == 5
    assert len(first["decisions"]) == 1
    assert second == first


def test_c10_with_another_target_only_the_times_of_samples_go_on(tmp_path: Path):
    first, second = serve_twice(tmp_path, lambda _: None, latency="p90=30s")
    assert second["samples"] == first["samples"]
    assert second["requests"]["count"] == 0


def test_c10_times_of_another_model_are_not_gone_on_with(tmp_path: Path):
    _, second = serve_twice(tmp_path, lambda _: None, endpoint={"model": "scripted"})
    assert second["samples"] == {}


@pytest.mark.parametrize(
    ("note", "words"),
    [
        ('{"models": {"": ""}, "samples": 3}', "latency: what was measured before the restart can't be used"),
        ("[1", "the stored note latency can't be read ('[1'); it is left out"),
    ],
)
def test_c10_what_was_measured_and_cant_be_read_is_left_out_with_one_line(
    note: str, words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    def spoil(state: Path) -> None:
        with sqlite3.connect(state) as file:
            assert file.execute("UPDATE notes SET value = ? WHERE name = 'latency'", [note]).rowcount == 1
        file.close()

    _, second = serve_twice(tmp_path, spoil)
    assert (second["samples"], second["requests"]["count"], second["decisions"]) == ({}, 0, [])
    lines = [record.getMessage() for record in caplog.records if "latency" in record.getMessage()]
    assert len(lines) == 1
    assert words in lines[0]


# an Asker


def test_c10_an_asker_with_a_target_hedges_and_goes_on_with_what_it_measured(tmp_path: Path):
    settings = {"latency": SOON, "state": tmp_path / "state.sqlite", "deadline": 30.0}
    with Upstream(stall_at(1)) as up:
        with ac.Asker(up.url, **settings) as asker:
            reply = asker.ask("What is 2 + 2?", temperature=0.7)
            until(lambda: up.count.in_flight == 0)
            assert (reply.answer, reply.agreement) == ("4", 1.0)
            assert reply.hedged >= 1
            asker.ask("What is 2 + 2?", temperature=0.7)
        with ac.Asker(up.url, **settings) as asker:
            asker.ask("What is 2 + 2?", temperature=0.7)
            assert asker._engine.gateway.latency.state()["requests"]["count"] == 3
