"""What was paid for is counted in full, given to the client, and never passes a cap by our own doing."""

import asyncio
import gc
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from behaviours import Honest, Reply, Stall
from crowd import ledger_of, settled
from running import Running
from traffic import told
from wires import connect, end, post, until

from adacompute.config import EndpointConfig
from adacompute.errors import CapReached, ConfigError, LedgerUnavailable
from adacompute.policies.baselines import FixedPolicy
from adacompute.serve.messages.stream import keep_alive
from adacompute.serve.spending.ledger import Caps, Spend
from adacompute.serve.spending.local_ledger import Ledger
from adacompute.serve.watching.logs import ObserverGuard
from upstream import Upstream

ONE = {"x-adacompute-policy": "single"}
NOBODY_AGREES: Callable[[int, dict[str, Any]], Reply] = lambda number, body: Reply(  # noqa: E731
    texts=[f"The answer is {number}{i}." for i in range(body.get("n") or 1)]
)


def only_the_first_is_good(_number: int, body: dict[str, Any]) -> Reply:
    message = {"role": "assistant", "content": "The answer is 4."}
    choices = [{"index": i, "message": None if i else message} for i in range(body.get("n", 1))]
    return Reply(body={"id": "x", "object": "chat.completion", "model": "m", "choices": choices})


def test_c14_choices_that_are_no_good_are_not_asked_for_again_beyond_a_cap():
    with Upstream(only_the_first_is_good) as up, Running(up.url, cap=8) as gate:
        answer = gate.ask(n=8)
        account = settled(gate)
        assert answer.status == 200
        assert answer.json["adacompute"]["missing"] == 7
        assert up.count.requests == 1
        assert account.spent.samples == 8


def test_c14_choices_beyond_those_asked_for_take_the_room_of_those_to_come():
    with Upstream(lambda *_: Reply(choices=4)) as up, Running(up.url, cap=12, concurrency=1) as gate:
        quirks = gate.gateway.resources.client.quirks.ensure("scripted")
        quirks.record_refusal(2, "n must be 1")  # one at a time
        answer = gate.ask(n=8)
        account = settled(gate)
        assert answer.status == 200
        assert answer.json["adacompute"]["missing"] >= 1
        assert account.spent.samples == 4 * up.count.requests < 8 * 4


def test_c14_a_reservation_grows_where_there_is_room_for_what_is_asked_for_again():
    with Upstream(only_the_first_is_good) as up, Running(up.url, cap=1000) as gate:
        assert gate.ask(n=3).json["adacompute"]["samples"] == 3
        assert settled(gate).spent.samples == sum(one.body.get("n", 1) for one in up.requests) > 3


@pytest.mark.parametrize("caps", [{"cap": 1.0}, {"key_cap": 1.0}])
def test_c19_a_cap_in_money_needs_a_price(caps: dict[str, float]):
    with (
        pytest.raises(ConfigError, match="need prices"),
        Running("http://127.0.0.1:9/v1", unit="money", **caps),
    ):
        pass


def test_a_price_that_would_give_money_back_is_refused():
    for price in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="input_price"):
            EndpointConfig(input_price=price)
    prices = {"input_price": 1.0}
    with (
        pytest.raises(ConfigError, match="cached_price 2 is above input_price 1"),
        Running("http://127.0.0.1:9/v1", cached_price=2.0, endpoint=prices),
    ):
        pass


async def test_a_cap_tells_how_many_samples_it_has_room_for():
    ledger = await Ledger.open(None, Caps(unit="tokens", total=1000, by_key={"a": 350}))
    with pytest.raises(CapReached) as told:
        await ledger.reserve("a", Spend(samples=8, tokens=800))
    assert told.value.left == 3
    with pytest.raises(CapReached) as told:
        await ledger.reserve("b", Spend(samples=20, tokens=2000))
    assert told.value.left == 10
    await ledger.reserve("b", Spend(samples=10, tokens=1000))
    with pytest.raises(CapReached) as told:
        await ledger.reserve("a", Spend(samples=2, tokens=200))
    assert told.value.left == 0


def test_c19_a_wave_is_cut_to_what_a_cap_has_room_for_at_once(tmp_path: Path):
    FixedPolicy(8).save(tmp_path / "eight")
    with Upstream() as up, Running(up.url, policy=str(tmp_path / "eight"), cap=5) as gate:
        assert gate.ask().json["adacompute"]["samples"] == 5
        assert sorted(one.body.get("n", 1) for one in up.requests)[-1] >= 4  # and not one after the other


def test_c19_a_cap_whose_rest_is_reserved_by_others_says_to_come_again_soon(tmp_path: Path):
    FixedPolicy(8).save(tmp_path / "eight")
    with Upstream() as up, Running(up.url, policy=str(tmp_path / "eight"), cap=5) as gate:
        held = gate.call(gate.gateway.resources.ledger.reserve("other", Spend(samples=5)))
        answer = gate.ask()
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        assert "may take 1;" in answer.error["message"]
        gate.loop.call_soon_threadsafe(gate.gateway.resources.ledger.settle, held, Spend())
        assert gate.ask().json["adacompute"]["samples"] == 5


def test_a_ledger_that_closes_between_two_waves_leaves_what_came():
    with Upstream(NOBODY_AGREES) as up, Running(up.url, price=0.5, explore=1.0, budget=16.0) as gate:
        ledger, reserve = gate.gateway.resources.ledger, gate.gateway.resources.ledger.reserve

        async def once(key: str, most: Spend) -> Any:
            if up.count.requests:
                raise LedgerUnavailable("closed; try again")
            return await reserve(key, most)

        ledger.reserve = once
        answer = gate.ask()
        assert answer.status == 200
        assert "stopped by the ledger: closed; try again" in answer.json["adacompute"]["notes"]
        assert gate.ask().error["code"] == "ledger_unavailable"  # nothing came
        settled(gate)


def test_what_fails_before_anything_is_sent_reserves_nothing():
    with Upstream() as up, Running(up.url) as gate:
        means = gate.gateway.resources
        call, means.client.call = means.client.call, None
        assert gate.ask().status == 500
        means.client.call = call
        assert settled(gate).spent.samples == 0


@pytest.mark.parametrize("stream", [False, True])
def test_explored_is_only_what_was_drawn_to_the_end(stream: bool):
    with (
        Upstream(NOBODY_AGREES) as up,
        Running(up.url, explore=1.0, budget=16.0, cap=20, vote="always") as gate,
    ):
        longest = gate.gateway.policy_registry.get("stopping").policy.longest
        whole, part = gate.ask(), gate.ask(stream=stream)
        assert whole.json["adacompute"]["samples"] == longest == 16
        assert b"not drawn to the end" not in whole.raw
        assert b"not drawn to the end, to learn from: 4 of 16 samples came" in part.raw
        until(lambda: b"adacompute_explored_total 1.0" in gate.get("/metrics").raw)


@pytest.mark.parametrize("mode", ["adaptive", "shadow"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_weak_vote_is_refused_where_the_policy_decides_and_nowhere_else(mode: str, stream: bool):
    settings = {"vote": "always", "min_agreement": 0.6, "answers": {"extract": "boxed"}, "budget": 1.0}
    with Upstream(Reply(texts=["I do not know."])) as up:
        with Running(up.url, mode=mode, weak="refuse", **settings) as gate:
            answer = gate.ask(stream=stream)
            assert answer.status == (422 if mode == "adaptive" else 200)
        with Running(up.url, mode=mode, weak="mark", **settings) as gate:
            answer = gate.ask(stream=stream)
            assert answer.status == 200
            assert (b'"weak":true' in answer.raw) is (mode == "adaptive")


def test_the_average_is_of_what_was_spent_whether_it_was_used_or_not():
    one = told(1.0, samples=2, spent=Spend(samples=5), maybe=Spend(samples=1))
    assert (one.cost_samples, one.counts_in_average) == (6, True)
    assert told(1.0, status=499, samples=0, spent=Spend(), maybe=Spend(samples=1)).counts_in_average
    assert not told(1.0, status=502, samples=0, spent=Spend()).counts_in_average


def test_a_client_that_leaves_counts_towards_the_average():
    with Upstream(Stall()) as up, Running(up.url) as gate:
        with connect(gate) as line:
            line.sendall(post())
            until(lambda: up.count.in_flight == 1)
            end(line, "fin")
        assert settled(gate).maybe.samples == 1
        until(lambda: gate.gateway.observability.dashboard_data()["ever"]["requests"] == 1)
        assert gate.gateway.pacers.state()['["stopping", 2.0, "samples", ""]']["spent"] == 1.0
        assert gate.gateway.observability.dashboard_data()["ever"]["average"] == 1.0


def chunks_of(raw: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in raw.decode().splitlines() if line.startswith("data: {")]


@pytest.mark.parametrize("options", ["refuse", "ignore", "give"])
def test_a_stream_has_the_usage_that_was_asked_for_whether_the_upstream_gives_it_or_not(options: str):
    with Upstream(Honest(stream_options=options)) as up, Running(up.url, budget=1.0) as gate:
        answer = gate.ask(stream=True, stream_options={"include_usage": True})
        (usage,) = [one["usage"] for one in chunks_of(answer.raw) if one.get("usage")]
        assert usage["completion_tokens"] > 0
        assert b'"usage":{' not in gate.ask(stream=True).raw


def test_a_stream_says_how_many_of_its_choices_did_not_come():
    with Upstream(Honest(n="ignore")) as up, Running(up.url) as gate:
        (extra,) = [
            one["adacompute"] for one in chunks_of(gate.ask(stream=True, n=4).raw) if "adacompute" in one
        ]
        assert (extra["samples"], extra["missing"]) == (1, 3)
        assert extra["notes"][0] == "3 of 4 samples failed"


@pytest.mark.parametrize("stream", [False, True])
def test_one_who_looks_on_and_fails_costs_nobody_a_reply(stream: bool):
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken")

    with Upstream() as up, Running(up.url, budget=1.0) as gate:
        seen, told = gate.gateway.observability, []
        seen.on_call = seen.on_request_end = seen.on_price = fail
        gate.gateway.reporter.recorder = SimpleNamespace(record=lambda *given: told.append(given))
        assert [gate.ask(stream=stream).status for _ in range(2)] == [200, 200]
        until(lambda: len(told) == 2)
        assert ledger_of(gate).spent.samples == up.count.choices == 2


def test_what_one_who_looks_on_raises_is_logged_once(caplog: pytest.LogCaptureFixture):
    def fail() -> None:
        raise RuntimeError("broken")

    telling = ObserverGuard()
    for _ in range(3):
        telling(fail)
    assert len([one for one in caplog.records if "fail failed" in one.message]) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_price_is_told_only_where_something_was_decided_at_it(stream: bool):
    with Upstream() as up, Running(up.url) as gate:
        for headers, fields in ((ONE, {}), ({}, {"temperature": 0})):
            answer = gate.ask(headers=headers, stream=stream, **fields)
            assert b'"price":null' in answer.raw
            assert "x-adacompute-price" not in answer.headers
        assert gate.ask().json["adacompute"]["price"] is not None


def test_a_request_that_is_only_passed_on_makes_no_pacer():
    with Upstream() as up, Running(up.url) as gate:
        made: list[str] = []
        get = gate.gateway.pacers.get
        gate.gateway.pacers.get = lambda policy, budget, make, **options: get(
            policy, budget, lambda target: (made.append(policy), make(target))[1], **options
        )
        assert [gate.ask(headers={"x-adacompute-mode": "pass"}).status for _ in range(3)] == [200] * 3
        assert made == []
        assert [gate.ask().status for _ in range(3)] == [200] * 3
        assert made == ["stopping"]


async def test_what_is_remembered_already_is_not_written_again(tmp_path: Path):
    ledger = await Ledger.open(tmp_path / "l.sqlite", Caps())
    put, written = ledger._writer.put, []
    ledger._writer.put = lambda changes: (written.append(changes), put(changes))
    for value in (1, 1, 2, 2, 1):
        ledger.remember("prices", {"a": value})
    await ledger.close()
    assert len(written) == 3


def test_what_the_upstream_says_of_itself_is_passed_on():
    message = {"role": "assistant", "content": "The answer is 42."}
    body = {"choices": [{"index": 0, "message": message}], "system_fingerprint": "fp_1", "service_tier": 7}
    with Upstream(Reply(body=body)) as up, Running(up.url) as gate:
        answer = gate.ask(headers=ONE).json
        assert answer["system_fingerprint"] == "fp_1"
        assert "service_tier" not in answer  # a text, or nothing


class Entropic(FixedPolicy):
    """A policy that asks for alternatives of each token."""

    reads_entropy = True


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("budget", [1.0, 2.0])
def test_only_alternatives_that_a_client_asked_for_are_shown(tmp_path: Path, stream: bool, budget: float):
    def script(_number: int, body: dict[str, Any]) -> Reply:
        token = {
            "token": "42",
            "logprob": -0.1,
            "bytes": None,
            "top_logprobs": [{"token": "4", "logprob": -3}],
        }
        message = {"role": "assistant", "content": "The answer is 42."}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": {"content": [token]}}
        assert body["top_logprobs"] in (2, 5)
        return Reply(body={"id": "x", "choices": [choice]}, streams=False)

    FixedPolicy(1).save(tmp_path / "one")
    with (
        Upstream(script) as up,
        Running(up.url, policy=str(tmp_path / "one"), budget=budget, vote="always") as gate,
    ):
        gate.gateway.policy_registry.get("one").policy = Entropic(1)
        none, bare, two = (
            gate.ask(stream=stream, **fields)
            for fields in ({}, {"logprobs": True}, {"logprobs": True, "top_logprobs": 2})
        )
        assert b'"token":"42"' not in none.raw
        assert b'"token":"42"' in bare.raw.replace(b": ", b":")
        assert b'"token":"4"' not in bare.raw.replace(b": ", b":")
        assert b'"token":"4"' in two.raw.replace(b": ", b":")


async def test_a_client_that_leaves_as_its_request_fails_leaves_no_error_behind():
    async def fail() -> None:
        raise LedgerUnavailable("closed; try again")

    lost: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context))
    events = keep_alive(fail())
    first = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    del first, events
    gc.collect()
    assert lost == []


@pytest.mark.parametrize("turns", range(5))
async def test_c08_a_client_that_leaves_as_an_event_comes_cancels_the_work(turns: int):
    async def read() -> None:
        async for _ in events:
            pass

    queue: asyncio.Queue[bytes | None] = asyncio.Queue()
    work = asyncio.ensure_future(asyncio.sleep(3600))
    events = keep_alive(asyncio.wait_for(work, None), queue)
    reading = asyncio.ensure_future(read())
    await asyncio.sleep(0.01)
    queue.put_nowait(b"event")
    for _ in range(turns):
        await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait([reading], timeout=5)
    assert reading.cancelled()
    await events.aclose()
    assert work.cancelled()


def test_exploring_more_than_the_budget_allows_is_refused_at_the_start():
    with (
        pytest.raises(ConfigError, match=r"explore 0\.3 .* at most 0\.0667"),
        Running("http://127.0.0.1:9/v1", explore=0.3),
    ):
        pass
