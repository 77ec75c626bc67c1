"""One call: `ask` and `Asker` decide as a gateway does, for functions, coroutines and threads alike."""

import asyncio
import contextlib
import gc
import logging
import math
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from behaviours import Behaviour, Reply, Stall, Status
from running import Running

import adacompute as ac
from adacompute.client import BreakerSettings, Retries
from adacompute.client.local import LocalModel
from adacompute.errors import (
    BudgetInvalid,
    ConfigError,
    EndpointFailed,
    EndpointRefused,
    EndpointResting,
    EndpointTimeout,
    EndpointUnreachable,
    NotOpen,
    PolicyError,
    RequestInvalid,
    ServeError,
)
from shared import read_votes
from tiers import leave_to_nightly
from upstream import Upstream, dead_endpoint

CANARY = "sk-canary-4711-0815"
SURE = "What is 6 times 7?"
STORY = "Write a story about a lighthouse."


class Crowd:
    """Answers a question by its words: `spread N` is one of N numbers, by the question and its turn."""

    def __init__(self, delay: float = 0.0) -> None:
        self.drawn: Counter[str] = Counter()
        self.delay = delay

    def __call__(self, _number: int, body: dict[str, Any]) -> Behaviour:
        question, count = body["messages"][-1]["content"], body.get("n", 1)
        first = self.drawn[question]
        self.drawn[question] += count
        if "stall" in question:
            return Stall()
        if "refuse" in question:
            return Status(code=400, message="this prompt is not liked")
        return Reply(texts=[self.text(question, first + at) for at in range(count)], delay=self.delay)

    def text(self, question: str, turn: int) -> str:
        if "story" in question:
            return "Once upon a time a keeper lived in a lighthouse, and the sea was wide. " * 4
        *_, spread = question.rstrip("?").split()
        number = random.Random(f"{question} {turn}").randrange(int(spread)) if "spread" in question else 42
        return f"Answer: {number}"


def questions(count: int) -> list[str]:
    """From certain to hopeless."""
    return [f"What is number {at} of spread {(1, 1, 2, 3, 6)[at % 5]}?" for at in range(count)]


def test_an_asker_and_a_gateway_decide_alike():
    prompts = [*questions(40), STORY, SURE]
    with Upstream(Crowd()) as up, Running(up.url, budget=3.0) as gate:
        messages = [[{"role": "user", "content": prompt}] for prompt in prompts]
        bodies = [{"model": "scripted", "messages": each, "temperature": 0.7} for each in messages]
        live = [gate.ask(body).json for body in bodies]
    with Upstream(Crowd()) as up, ac.Asker(up.url, budget=3.0) as asker:
        replies = [asker.ask(prompt, temperature=0.7) for prompt in prompts]
    for reply, completion in zip(replies, live, strict=True):
        extra = completion["adacompute"]
        assert reply.text == completion["choices"][0]["message"]["content"]
        assert [reply.answer, reply.votes, reply.samples] == [
            extra[n] for n in ("answer", "votes", "samples")
        ]
        assert (reply.agreement, list(reply.notes)) == (extra["agreement"], extra.get("notes", []))
        assert reply.tokens == completion["usage"]["total_tokens"]
    assert len({reply.samples for reply in replies}) > 3


def test_one_unanimous_prompt_stops_early_and_a_split_one_goes_on():
    with Upstream(Crowd()) as up:
        sure = ac.ask(SURE, endpoint=up.url, budget=8)
        split = ac.ask("What is number 1 of spread 99?", endpoint=up.url, budget=8)
    assert (sure.answer, sure.votes) == ("42", {"42": sure.samples})
    assert 2 <= sure.samples < 8
    assert split.samples == sum(split.votes.values()) == ac.StoppingPolicy().longest


def test_what_cannot_be_voted_on_is_asked_once_with_a_note_why():
    with Upstream(Crowd()) as up, ac.Asker(up.url, budget=4) as asker:
        story = asker.ask(STORY)
        greedy = asker.ask(SURE, temperature=0)
        unread = asker.ask(SURE, extract="none")
    for reply in (story, greedy, unread):
        assert (reply.samples, reply.answer, reply.votes, reply.agreement) == (1, None, {}, None)
        assert [note.startswith("no vote: ") for note in reply.notes] == [True]
    assert story.text is not None
    assert story.text.startswith("Once upon")
    assert asker.average is None  # none of them could be voted on


@pytest.mark.slow
def test_the_average_of_many_prompts_is_the_budget():
    with Upstream(Crowd()) as up, ac.Asker(up.url, budget=3, concurrency=4) as asker:
        replies = asker.ask_many(questions(300))
        assert asker.average == pytest.approx(3.0, abs=0.3)
        assert asker.average == pytest.approx(sum(reply.samples for reply in replies) / 300)
        assert asker.spent.samples == up.count.choices == sum(reply.samples for reply in replies)
        assert asker.spent.tokens == sum(reply.tokens for reply in replies)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("budget", "amount", "settings"),
    leave_to_nightly(
        [
            ("60 tokens", 60, {}),
            ("0.06 USD per 1000", 0.00006, {"input_price": 1.0, "output_price": 1.0}),
            (
                ac.Budget(0.00006, "money", "EUR"),
                0.00006,
                {"input_price": 1.0, "output_price": 1.0, "currency": "EUR"},
            ),
        ]
    ),
    ids=["tokens", "money", "a budget in euros"],
)
def test_a_budget_in_tokens_or_money_is_kept_as_well(budget: Any, amount: float, settings: dict[str, Any]):
    with Upstream(Crowd()) as up, ac.Asker(up.url, budget=budget, concurrency=4, **settings) as asker:
        replies = asker.ask_many(questions(300))
        assert asker.budget.amount == pytest.approx(amount)
        assert asker.average == pytest.approx(amount, rel=0.1)
    costs = [reply.cost if settings else reply.tokens for reply in replies]
    assert asker.average == pytest.approx(sum(costs) / len(costs))


def test_money_buys_one_prompt_as_many_samples_as_it_is_worth():
    with Upstream(Crowd()) as up:
        rich = {"endpoint": up.url, "budget": "2 USD per 1000", "input_price": 1.0, "output_price": 2.0}
        sure, split = ac.ask(SURE, **rich), ac.ask("What is number 1 of spread 99?", **rich)
    assert sure.cost is not None
    assert split.cost is not None
    assert 0 < sure.cost < split.cost
    assert sure.samples < split.samples


def test_replies_come_in_the_order_of_the_prompts_and_no_more_are_under_way_than_allowed():
    prompts = [f"What is {at} plus 0 of spread 1?" for at in range(20)] + ["What is 6 times 7?"]
    with Upstream(Crowd(delay=0.01)) as up, ac.Asker(up.url, budget=2, concurrency=3) as asker:
        replies = asker.ask_many(iter(prompts))
        assert 1 < up.count.peak <= 3
    assert [reply.answer for reply in replies] == ["0"] * 20 + ["42"]


def test_an_endpoint_with_its_own_limits_keeps_them():
    with Upstream(Crowd(delay=0.01)) as up:
        endpoint = ac.Endpoint(url=up.url, limits=ac.RateLimits(concurrency=2))
        with ac.Asker(endpoint, budget=2) as asker:
            assert [reply.answer for reply in asker.ask_many([SURE] * 12)] == ["42"] * 12
        assert up.count.peak == 2
        with pytest.raises(ConfigError, match="concurrency 0"):
            ac.Asker(endpoint, concurrency=0)


def test_coroutines_of_a_running_loop_ask_many_at_once():
    async def main(url: str) -> None:
        async with ac.Asker(url, budget=2) as asker:
            pair = await asyncio.gather(asker.ask_async(SURE), asker.ask_async(STORY))
            crowd = await asyncio.gather(*map(asker.ask_async, questions(60)))
            assert [reply.error for reply in crowd] == [None] * 60
            many = await asker.ask_many_async([SURE, STORY])
            plain = asker.ask(SURE)  # as in a notebook, whose loop runs
        assert [reply.answer for reply in (*pair, *many, plain)] == ["42", None, "42", None, "42"]

    with Upstream(Crowd()) as up:
        asyncio.run(main(up.url))


def test_cancelling_a_coroutine_cancels_its_calls():
    async def main(asker: ac.Asker, up: Upstream) -> None:
        task = asyncio.create_task(asker.ask_async("stall"))
        while not up.count.in_flight:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while up.count.in_flight:  # the endpoint sees that the caller has gone
            await asyncio.sleep(0.01)
        assert up.count.aborted >= 1
        reply = await asker.ask_async(SURE)
        assert reply.answer == "42"

    with Upstream(Crowd()) as up, ac.Asker(up.url) as asker:
        asyncio.run(main(asker, up))  # closing waits for what is under way: nothing is


def test_threads_share_an_asker_and_its_average():
    with Upstream(Crowd()) as up, ac.Asker(up.url, budget=3) as asker, ThreadPoolExecutor(8) as threads:
        replies = list(threads.map(asker.ask, questions(40)))
        assert asker.spent.samples == up.count.choices == sum(reply.samples for reply in replies)
        assert asker.average == pytest.approx(asker.spent.samples / 40)


def test_one_prompt_that_fails_does_not_lose_the_others():
    with Upstream(Crowd()) as up, ac.Asker(up.url) as asker:
        good, bad, last = asker.ask_many([SURE, "refuse this", SURE])
        assert (good.answer, last.answer, good.error) == ("42", "42", None)
        assert (bad.text, bad.answer, bad.samples) == (None, None, 0)
        assert isinstance(bad.error, EndpointRefused)
        assert "this prompt is not liked" in str(bad.error)
        with pytest.raises(EndpointRefused, match="this prompt is not liked"):
            asker.ask("refuse this")
        assert asker.ask(SURE).answer == "42"


def test_nothing_is_printed_for_what_is_raised(capfd: pytest.CaptureFixture[str]):
    with Upstream(Crowd()) as up, ac.Asker(up.url) as asker, pytest.raises(EndpointRefused):
        asker.ask("refuse this")
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_an_endpoint_that_dies_midway_leaves_the_replies_that_came():
    with ThreadPoolExecutor(1) as thread:
        with Upstream(Crowd(delay=0.05)) as up:
            endpoint = ac.Endpoint(url=up.url, retries=Retries(attempts=2, first=0.01))
            asker = ac.Asker(endpoint, concurrency=2)
            many = thread.submit(asker.ask_many, [SURE] * 12)
            while up.count.choices < 6:
                time.sleep(0.01)
        replies = many.result(120)
        asker.close()
    assert len(replies) == 12
    assert replies[0].answer == "42"
    assert [reply.error is not None for reply in replies] == [reply.text is None for reply in replies]
    assert "not asked, because 2 prompts in a row couldn't reach it" in str(replies[-1].error)


def test_closing_waits_for_what_is_under_way_and_then_refuses():
    with Upstream(Crowd(delay=0.3)) as up, ThreadPoolExecutor(1) as thread:
        asker = ac.Asker(up.url)
        reply = thread.submit(asker.ask, SURE)
        while not up.count.in_flight:
            time.sleep(0.01)
        asker.close()
        assert asker.spent.samples == up.count.choices > 0  # can still be read
        assert reply.result(30).answer == "42"  # its thread may not have woken up yet
        asker.close()  # once more does nothing
        for ask in (asker.ask, lambda prompt: asker.ask_many([prompt])):
            with pytest.raises(NotOpen, match="closed; open another"):
                ask(SURE)


def test_leaving_by_an_exception_cancels_what_is_under_way():
    def leave(up: Upstream, thread: ThreadPoolExecutor) -> None:
        with ac.Asker(up.url) as asker:
            futures.append(thread.submit(asker.ask, "stall"))
            futures.append(thread.submit(lambda: asyncio.run(asker.ask_async("stall too"))))
            while up.count.in_flight < 2:
                time.sleep(0.01)
            raise KeyError("mine")

    futures: list[Any] = []
    with Upstream(Crowd()) as up, ThreadPoolExecutor(2) as thread:
        with pytest.raises(KeyError):
            leave(up, thread)
        for future in futures:
            with pytest.raises(NotOpen, match="this Asker is closed"):
                future.result(30)


def test_an_asker_that_is_let_go_of_ends_its_thread():
    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "adacompute-asker"]

    with Upstream(Crowd()) as up:
        asker = ac.Asker(up.url)
        assert threads() == []
        asker.ask(SURE)
        (thread,) = threads()
        del asker
        gc.collect()
        thread.join(30)
        assert not thread.is_alive()


def test_no_file_is_left_behind_and_a_state_keeps_what_was_spent_and_the_price(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with Upstream(Crowd()) as up:
        with ac.Asker(up.url, budget=3) as asker:
            start = asker.price
            asker.ask_many(questions(10))
        assert list(tmp_path.iterdir()) == []
        with ac.Asker(up.url, budget=3, state=tmp_path / "state.sqlite") as asker:
            asker.ask_many([SURE] * 10)
            spent, price = asker.spent, asker.price
        with ac.Asker(up.url, budget=3, state=tmp_path / "state.sqlite") as asker:
            assert asker.spent == spent
            assert asker.price == pytest.approx(price, rel=0.05)
            assert start is not None
            assert asker.price < 0.95 * start  # ten easy prompts have left room
            with pytest.raises(ConfigError, match="another gateway keeps its ledger in it"):
                ac.Asker(up.url, state=tmp_path / "state.sqlite").ask(SURE)


def test_a_policy_is_a_folder_or_in_memory(tmp_path: Path):
    policy = ac.StoppingPolicy(longest=4)
    policy.save(tmp_path / "mine")
    hard = "What is number 1 of spread 9?"
    with Upstream(Crowd()) as up:
        for given in (policy, tmp_path / "mine", str(tmp_path / "mine")):
            assert ac.ask(hard, endpoint=up.url, policy=given, budget=4).samples == 4


@pytest.mark.slow
def test_a_policy_that_was_fitted_a_moment_ago_decides():
    policy = ac.StoppingPolicy().fit(read_votes("facts").only(range(60)))
    with Upstream(Crowd()) as up, ac.Asker(up.url, policy=policy, budget=3, concurrency=4) as asker:
        asker.ask_many(questions(200))
        assert asker.average == pytest.approx(3.0, abs=0.4)


def test_a_cost_is_of_the_prices_and_none_without():
    with Upstream(Crowd()) as up:
        plain = ac.ask(SURE, endpoint=up.url)
        paid = ac.ask(SURE, endpoint=up.url, input_price=1.0, output_price=1.0)
        with ac.Asker(up.url, input_price=1.0, output_price=1.0) as asker:
            reply = asker.ask(SURE)
            assert asker.spent.money == pytest.approx(reply.cost)
    assert plain.cost is None
    assert paid.cost == pytest.approx(paid.tokens / 1e6)
    assert plain.tokens == paid.tokens > 0


def test_messages_a_system_text_and_parameters_go_to_the_endpoint():
    with Upstream(Crowd()) as up, ac.Asker(up.url) as asker:
        asker.ask(
            [{"role": "user", "content": "Hello"}, {"role": "user", "content": SURE}],
            system="Be brief.",
            temperature=0.5,
            max_tokens=100_000,
            options={"top_p": 0.9, "seed": 7, "stop": ["\n"]},
        )
        body = up.requests[0].body
    assert [message["role"] for message in body["messages"]] == ["system", "user", "user"]
    assert body["messages"][0]["content"] == "Be brief."
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("scripted", 0.5, 100_000)
    assert (body["stop"], body["top_p"], body["seed"]) == (["\n"], 0.9, 7)
    assert "adacompute" not in body


def test_answers_are_read_as_extract_says():
    def say(_number: int, body: dict[str, Any]) -> Reply:
        return Reply(texts=["It may be 3. FINAL=17 END"] * body.get("n", 1))

    with Upstream(say) as up, ac.Asker(up.url) as asker:
        assert asker.ask(SURE, extract=r"regex:FINAL=(\d+)").answer == "17"


def test_a_text_that_was_cut_off_is_noted():
    def cut(_number: int, body: dict[str, Any]) -> Reply:
        return Reply(texts=["Answer: 42"] * body.get("n", 1), finish="length")

    with Upstream(cut) as up:
        assert "cut off" in ac.ask(SURE, endpoint=up.url).notes[-1]


@pytest.mark.parametrize(
    ("models", "words"),
    [(("a", "b"), "lists 2 models: a, b; name one: model"), ((), "lists 0 models: none; name one: model")],
)
def test_a_model_is_named_where_the_endpoint_has_not_just_one(models: tuple[str, ...], words: str):
    with Upstream(Crowd(), models=models) as up:
        for _ in range(2):  # what it says once it says again
            with pytest.raises(ConfigError, match=words), ac.Asker(up.url):
                raise AssertionError("it was opened")
        assert ac.ask(SURE, endpoint=up.url, model="b").answer == "42"
        assert up.requests[-1].body["model"] == "b"


class Mute(BaseHTTPRequestHandler):
    """Lists no models."""

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self.send_error(404)


def test_an_endpoint_that_does_not_list_its_models_asks_for_a_name():
    server = HTTPServer(("127.0.0.1", 0), Mute)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with pytest.raises(ConfigError, match=r"doesn't list its models .*; name one: model \(--model\)"):
            ac.ask(SURE, endpoint=f"http://127.0.0.1:{server.server_port}/v1")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_model_with_an_at_sign_is_no_budget():
    with Upstream(Crowd()) as up, ac.Asker(up.url, model="mine@2") as asker:
        asker.ask(SURE)
        assert up.requests[-1].body["model"] == "mine@2"


def test_a_key_is_an_argument_a_file_or_in_the_environment_and_shown_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "key"
    file.write_text(CANARY)
    monkeypatch.delenv("ADACOMPUTE_KEY", raising=False)
    with Upstream(Crowd(), key=CANARY) as up:
        for given in ({"key": CANARY}, {"key_file": file}, {"key_env": "MINE"}):
            monkeypatch.setenv("MINE", CANARY)
            with ac.Asker(up.url, model="scripted", **given) as asker:  # type: ignore[arg-type]
                assert asker.ask(SURE).answer == "42"
                assert CANARY not in repr(asker) + repr(vars(asker)) + repr(vars(asker._engine))
    with Upstream(Crowd(), key="another") as up:
        with pytest.raises(EndpointRefused, match="401") as refused:
            ac.ask(SURE, endpoint=up.url, key=CANARY)
        with ac.Asker(up.url, model="scripted", key=CANARY) as asker:
            (reply,) = asker.ask_many([SURE])
        assert "401" in str(reply.error)
        assert CANARY not in str(refused.value) + repr(reply) + repr(refused.value.__cause__)


def test_a_prompt_ends_at_its_deadline():
    with Upstream(Crowd()) as up, pytest.raises(EndpointTimeout, match="give more time"):
        ac.ask("stall", endpoint=up.url, deadline=0.3)


@pytest.mark.slow
def test_a_program_that_closes_nothing_ends_all_the_same(tmp_path: Path):
    code = f"""
import adacompute as ac
asker = ac.Asker({{url!r}}, state={str(tmp_path / "state.sqlite")!r})
print(asker.ask({SURE!r}).answer)
"""
    with Upstream(Crowd()) as up:
        words = [sys.executable, "-W", "default", "-c", code.format(url=up.url)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "42\n", "")


def test_an_endpoint_that_is_not_there_says_so():
    with pytest.raises(EndpointUnreachable, match="is it running"):
        ac.ask(SURE, endpoint="http://127.0.0.1:9/v1")
    with pytest.raises(RequestInvalid, match="did you mean budget"):
        ac.ask(SURE, endpoint="http://127.0.0.1:9/v1", buget=2)
    patient = Retries(attempts=1000, first=0.01, longest=0.02, deadline=20.0)
    breaker = BreakerSettings(failures=1000, first_contact=0.2)
    with dead_endpoint(answers=True) as url:
        endpoint = ac.Endpoint(url=url, retries=patient, breaker=breaker)
        with ac.Asker(endpoint, model="m", deadline=20) as asker:
            replies = asker.ask_many([SURE] * 100)
    assert {type(reply.error) for reply in replies} == {EndpointUnreachable, EndpointResting}
    assert all("Connection refused" in str(reply.error) for reply in replies)


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"endpoint": ""}, ConfigError, "adacompute local"),
        ({"endpoint": None}, ConfigError, "endpoint None is not an address"),
        ({"endpoint": "127.0.0.1:8081"}, ConfigError, "give it with http://"),
        ({"budget": 0}, BudgetInvalid, "give a number above 0"),
        ({"budget": 0.5}, ConfigError, "which is 16 by default"),
        ({"budget": 100}, ConfigError, "budget 100 is above 16 samples, the most that the policy draws"),
        ({"budget": "much"}, BudgetInvalid, "can't be read"),
        ({"budget": "2 USD per 1000"}, BudgetInvalid, "needs prices"),
        ({"budget": "2 EUR per 1000", "input_price": 1.0}, BudgetInvalid, "not in USD"),
        ({"currency": "3"}, ConfigError, "give its name, e.g. USD or EUR"),
        ({"policy": "nowhere"}, PolicyError, "nowhere"),
        ({"policy": 3}, ConfigError, "policy is a int; give a folder"),
        ({"policy": ac.CurvePolicy()}, PolicyError, "can't decide"),
        ({"key": "a b"}, ConfigError, "blanks or line breaks"),
        ({"key": "k", "key_file": "f"}, ConfigError, "give one of them"),
        ({"key_env": "NO_SUCH_VARIABLE"}, ConfigError, "NO_SUCH_VARIABLE holds no key"),
        ({"key_file": "nowhere"}, ConfigError, "can't be read"),
        ({"input_price": -1}, ConfigError, "input_price is -1.0; give a number from 0 up"),
        ({"output_price": "dear"}, ConfigError, "give a number"),
        ({"concurrency": 0}, ConfigError, "concurrency 0 can't be used"),
        ({"deadline": 0}, ConfigError, "deadline is 0.0; give a number from 0.001 to 86,400"),
        ({"deadline": "soon"}, ConfigError, "deadline is 'soon'; give a number"),
        ({"state": ""}, ConfigError, "state is ''; give a file"),
        ({"state": 3}, ConfigError, "state is a int; give the path"),
        ({"model": 3}, ConfigError, "model is 3; give a text"),
        ({"currency": 3}, ConfigError, "currency is 3; give a text"),
        ({"key_env": 3}, ConfigError, "key_env is 3; give a text"),
        ({"key_file": 3}, ConfigError, "key_file is a int; give the path"),
        ({"verifier": 3}, ConfigError, "verifier 3 can't be used; give its address"),
        ({"verifier": "127.0.0.1:9000/score"}, ConfigError, "give it with http://"),
        ({"buget": 2}, RequestInvalid, "did you mean budget?"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_with_the_remedy(
    settings: dict[str, Any], error: type[Exception], words: str
):
    def open_asker() -> None:
        with ac.Asker(**{"endpoint": "http://127.0.0.1:9/v1", "model": "m", **settings}):
            raise AssertionError("it was opened")

    with pytest.raises(error) as refused:
        open_asker()
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_endpoint_with_its_own_key_takes_no_second():
    endpoint = ac.Endpoint(url="http://127.0.0.1:9/v1", key=CANARY)
    with pytest.raises(ConfigError, match="give the key to it alone"):
        ac.Asker(endpoint, model="m", key="another")


@pytest.fixture(scope="module")
def asker() -> Any:
    with Upstream(Crowd()) as up, ac.Asker(up.url) as shared:
        shared.upstream = up  # type: ignore[attr-defined]
        yield shared


@pytest.mark.parametrize(
    ("prompt", "options", "words"),
    [
        ("  ", {}, "the prompt is empty"),
        (None, {}, "the prompt is a NoneType; give a text"),
        (b"bytes", {}, "the prompt is a bytes"),
        ({"role": "user"}, {}, "the prompt is a dict"),
        (["a", "b"], {}, "prompts are for ask_many"),
        ([], {}, "give a list of at least one"),
        ([{"role": "user"}], {}, "messages[0].content is missing; give a text"),
        ([3], {}, "messages[0] is 3; give an object"),
        ("\ud800", {}, "isn't JSON"),
        (SURE, {"system": 3}, "system is a int"),
        (SURE, {"temperature": 3}, "temperature is 3; give a number from 0 to 2"),
        (SURE, {"temperature": math.nan}, "temperature has the number nan"),
        (SURE, {"options": {"x": {"deep": [1.0, math.inf]}}}, "x has the number inf"),
        (SURE, {"options": {"logprobs": False}}, "logprobs can't be False"),
        (SURE, {"max_tokens": 0}, "max_tokens is 0; give 1 to 100,000,000"),
        (SURE, {"max_tokens": 10**9}, "max_tokens is 1000000000; give 1 to 100,000,000"),
        (SURE, {"options": {"max_completion_tokens": 10**9}}, "max_completion_tokens is 1000000000"),
        (SURE, {"extract": "magic"}, "extract is 'magic'"),
        (SURE, {"n": 3}, "the policy decides"),
        (SURE, {"stream": True}, "a reply comes whole"),
        (SURE, {"model": "b"}, "give model to the Asker"),
        (SURE, {"budget": 8}, "budget is a setting of the Asker"),
        (SURE, {"options": {"budget": 8}}, "budget is a setting of the Asker"),
        (SURE, {"options": {"extract": "boxed"}}, "give it as an argument of its own"),
        (SURE, {"options": [1]}, "give a dict"),
        (SURE, {"options": {"seed": object()}}, "give plain data"),
        (SURE, {"options": {"seed": 2**64}}, "seed has 18446744073709551616, which isn't JSON"),
        (SURE, {"options": {"metadata": {3: "x"}}}, "metadata has {3: 'x'}, which isn't JSON"),
        (SURE, {"system": "\ud800"}, "system has '\\ud800', which isn't JSON"),
        (SURE, {"temprature": 1}, "did you mean temperature?"),
        (SURE, {"seed": 1}, "options={'seed': …}"),
    ],
)
def test_a_prompt_or_an_option_that_cannot_be_used_is_refused_before_anything_is_sent(
    asker: Any, prompt: Any, options: dict[str, Any], words: str
):
    before = asker.upstream.count.choices
    for call in (
        lambda: asker.ask(prompt, **options),
        lambda: asker.ask_many([SURE, prompt], **options),
        lambda: asyncio.run(asker.ask_async(prompt, **options)),
    ):
        with pytest.raises(RequestInvalid) as refused:
            call()
        assert words in str(refused.value)
    assert asker.upstream.count.choices == before


@pytest.mark.parametrize("prompts", ["one text", {"a": "b"}, 3])
def test_many_prompts_are_a_list(asker: Any, prompts: Any):
    with pytest.raises(RequestInvalid, match="give a list of prompts, or call ask"):
        asker.ask_many(prompts)
    assert asker.ask_many([]) == []


def test_a_real_model_answers_in_one_call(local_model: LocalModel):
    sampling = {"max_tokens": 12, "temperature": 0.8, "options": {"seed": 1}}
    reply = ac.ask("What is 2 + 2? Only the number.", endpoint=local_model.url, budget=3, **sampling)
    assert reply.text
    assert 1 <= reply.samples <= 16
    assert sum(reply.votes.values()) <= reply.samples
    assert reply.tokens > 0
    assert "SmolLM2" in reply.model


@pytest.mark.slow
@pytest.mark.parametrize("way", leave_to_nightly(["coroutines", "threads"]))
def test_prompts_that_come_all_at_once_keep_the_budget_too(way: str):
    async def gather(asker: ac.Asker) -> None:
        await asyncio.gather(*map(asker.ask_async, questions(300)))

    with Upstream(Crowd(delay=0.005)) as up, ac.Asker(up.url, budget=3, concurrency=4) as asker:
        if way == "coroutines":
            asyncio.run(gather(asker))
        else:
            with ThreadPoolExecutor(60) as threads:
                list(threads.map(asker.ask, questions(300)))
        assert up.count.peak <= 4
        assert asker.average == pytest.approx(3.0, abs=0.3)


def test_a_deadline_begins_when_a_prompt_has_its_turn():
    async def main(url: str) -> list[ac.Reply]:
        async with ac.Asker(url, budget=1, concurrency=2, deadline=2) as asker:
            return await asyncio.gather(*(asker.ask_async(SURE) for _ in range(24)))

    with Upstream(Crowd(delay=0.25)) as up:  # three seconds in all
        assert [reply.answer for reply in asyncio.run(main(up.url))] == ["42"] * 24


@pytest.mark.slow
def test_an_outage_of_seconds_loses_no_prompt():
    begun: list[float] = []

    def restart(_number: int, body: dict[str, Any]) -> Behaviour:
        begun.append(time.monotonic())
        if 0.3 < time.monotonic() - begun[0] < 4:
            return Status(code=503, message="restarting")
        return Reply(texts=["Answer: 42"] * body.get("n", 1), delay=0.05)

    with Upstream(restart) as up, ac.Asker(up.url, budget=1) as asker:
        replies = asker.ask_many([SURE] * 100)
    assert [reply.error for reply in replies] == [None] * 100


def test_an_endpoint_keeps_its_own_retries():
    def fail(number: int, body: dict[str, Any]) -> Behaviour:
        return Status(code=503) if number <= 5 else Reply(texts=["Answer: 42"] * body.get("n", 1))

    with Upstream(fail) as up:
        retries = Retries(attempts=6, first=0.01, longest=0.01)
        with ac.Asker(ac.Endpoint(url=up.url, retries=retries), budget=1) as asker:
            assert asker.ask(SURE).answer == "42"
    with Upstream(fail) as up:
        with ac.Asker(ac.Endpoint(url=up.url, retries=replace(retries, attempts=2)), budget=1) as asker:
            assert isinstance(asker.ask_many([SURE])[0].error, EndpointFailed)
        assert up.count.requests == 2


def test_a_failed_reply_holds_neither_its_request_nor_the_engine():
    with Upstream(Crowd()) as up:
        with ac.Asker(up.url) as asker:
            (reply,) = asker.ask_many(["refuse this"])
            engine = weakref.ref(asker._engine)
        del asker
        gc.collect()
    error: BaseException | None = reply.error
    assert isinstance(error, EndpointRefused)
    while error is not None:
        assert error.__traceback__ is None
        error = error.__cause__ or error.__context__
    assert engine() is None


def test_opening_ends_at_the_deadline_and_names_the_way_out():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        with pytest.raises(
            EndpointTimeout, match=r"didn't list its models within 0.5 seconds; name one: model"
        ):
            ac.ask(SURE, endpoint=url, deadline=0.5)


def test_an_endpoint_in_the_same_event_loop_can_be_asked():
    async def list_models(_request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "here"}]})

    async def main() -> str:
        app = web.Application()
        app.router.add_get("/v1/models", list_models)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            async with ac.Asker(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", deadline=30) as asker:
                return asker.model
        finally:
            await runner.cleanup()

    assert asyncio.run(main()) == "here"


FORKS = """
import os, sys
import adacompute as ac
with ac.Asker({url!r}) as asker, ac.Asker({url!r}, state={state!r}) as keeper:
    asker.ask({prompt!r})
    keeper.ask({prompt!r})
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.read(read, 1)  # the child has asked
    assert asker.ask_many([{prompt!r}] * 3)[2].answer == "42"
    print("child" if not child else "parent", asker.spent.samples > 0, flush=True)
    if child:
        assert keeper.ask({prompt!r}).answer == "42"
    else:
        try:
            keeper.ask({prompt!r})
        except ac.AdacomputeError as exc:
            print(exc, flush=True)
if not child:
    os.write(write, b"x")
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
def test_a_forked_process_opens_its_own_and_leaves_its_parents_as_it_was(tmp_path: Path):
    state = str(tmp_path / "state.sqlite")
    with Upstream(Crowd()) as up:
        words = [sys.executable, "-c", FORKS.format(url=up.url, prompt=SURE, state=state)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    said = done.stdout.splitlines()
    assert said[0] == "child True"
    assert state in said[1]  # it is the parent's
    assert said[2:] == ["parent True"]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["", "import atexit; atexit.register(asker.close)"])
def test_a_state_is_written_though_the_program_closes_nothing_itself(tmp_path: Path, ending: str):
    code = f"""
import adacompute as ac
asker = ac.Asker({{url!r}}, budget=4, state={str(tmp_path / "state.sqlite")!r})
asker.ask_many([{SURE!r}] * 20)
print(asker.spent.samples, asker.price)
{ending}
"""
    with Upstream(Crowd()) as up:
        words = [sys.executable, "-W", "default", "-c", code.format(url=up.url)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        samples, price = done.stdout.split()
        with ac.Asker(up.url, budget=4, state=tmp_path / "state.sqlite") as asker:
            assert asker.spent.samples == int(samples) == up.count.choices
            assert asker.price == pytest.approx(float(price), rel=0.1)
        with ac.Asker(up.url, budget=4) as fresh:
            assert fresh.price is not None
            assert float(price) < 0.93 * fresh.price


class Buggy(ac.StoppingPolicy):
    """Fails for one question, as a policy of the user's own may."""

    broken = False

    def more(self, *args: Any, **kwargs: Any) -> Any:
        if self.broken:
            raise ValueError("my own bug")
        return super().more(*args, **kwargs)


def test_a_defect_is_the_error_of_its_prompt_alone():
    policy = Buggy()
    with Upstream(Crowd()) as up, ac.Asker(up.url, policy=policy, budget=4) as asker:
        Buggy.broken = True
        try:
            replies = asker.ask_many([SURE, "What is number 1 of spread 9?"])
            with pytest.raises(ServeError, match="ValueError: my own bug") as failed:
                asker.ask(SURE)
        finally:
            Buggy.broken = False
        for reply in replies:
            assert isinstance(reply.error, ServeError)
            assert "ValueError: my own bug" in str(reply.error)
        assert "in more" in "".join(failed.value.__notes__)  # where it happened
        assert asker.ask(SURE).answer == "42"


def test_replies_come_one_by_one_and_leaving_the_loop_cancels_the_rest():
    def count() -> Any:
        at = 0
        while True:
            read.append(at)
            yield f"What is {at} plus 0 of spread 1?" if at < 3 else "stall"
            at += 1

    read: list[int] = []
    with Upstream(Crowd()) as up:
        with ac.Asker(up.url, budget=2, concurrency=2) as asker:
            replies = []
            for reply in asker.ask_iter(count()):
                replies.append(reply)
                if len(replies) == 3:
                    break
            assert [reply.answer for reply in replies] == ["0"] * 3
            assert len(read) <= 8  # of any number
            assert [reply.answer for reply in asker.ask_iter([SURE, SURE], max_tokens=9)] == ["42", "42"]
            with pytest.raises(RequestInvalid, match="give a list of prompts"):
                asker.ask_iter("one text")
        assert up.count.in_flight == 0


def test_a_reply_that_is_ready_is_yielded_before_more_prompts_are_read():
    def type_slowly() -> Iterator[str]:
        while not replies and len(read) < 500:
            read.append(SURE)
            yield SURE
            time.sleep(0.01)

    read, replies = list[str](), list[ac.Reply]()
    with Upstream(Crowd()) as up, ac.Asker(up.url, budget=2, concurrency=1000) as asker:
        for reply in asker.ask_iter(type_slowly()):
            replies.append(reply)
    assert [reply.answer for reply in replies] == ["42"] * len(read)
    assert len(read) < 500


def test_a_gateway_still_logs_what_an_asker_raises(caplog: pytest.LogCaptureFixture):
    assert not logging.getLogger("adacompute").handlers  # else Python's own handler of last resort is mute
    with caplog.at_level("WARNING", "adacompute"), Upstream(Crowd()) as up:
        with ac.Asker(up.url) as asker, pytest.raises(EndpointRefused):
            asker.ask("refuse this")
        assert caplog.text == ""
        with Running(up.url) as gate:
            body = {"model": "scripted", "messages": [{"role": "user", "content": "refuse this"}]}
            assert gate.ask(body).status == 400
        assert "the upstream answered 400" in caplog.text


def test_closing_at_once_ends_it_whether_or_not_it_was_opened():
    with Upstream(Crowd()) as up:
        never = ac.Asker(up.url)
        never.close()
        with pytest.raises(NotOpen):
            never.ask(SURE)
        for _ in range(20):
            asker = ac.Asker(up.url)
            future = asker._engine.submit(asker._engine.open)
            asker.close(wait=False)  # perhaps before the thread's loop runs, perhaps after it has opened
            with contextlib.suppress(NotOpen):
                future.result(30)
            with pytest.raises(NotOpen):
                asker.ask(SURE)


def test_ctrl_c_while_it_opens_ends_it():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        silent.settimeout(120)
        # where tests run in the background of a shell, SIGINT is ignored unless it is set
        listen = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)"
        code = f"{listen}\nimport adacompute as ac\nwith ac.Asker({url!r}): pass"
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            connection, _ = silent.accept()  # it has asked, and waits for an answer
            with connection:
                process.send_signal(signal.SIGINT)
                _, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert err.rstrip().endswith(b"KeyboardInterrupt")


def test_an_error_of_closing_does_not_hide_the_callers_own():
    def leave(up: Upstream) -> None:
        with ac.Asker(up.url) as asker:
            asker._engine._closing_error = OSError("disk full")
            raise KeyError("mine")

    with Upstream(Crowd()) as up:
        with pytest.raises(KeyError) as error:
            leave(up)
        assert error.value.__notes__ == ["closing the Asker failed as well: disk full"]


@pytest.mark.parametrize("name", ["", "  ", "a\x1b[31mb"])
def test_a_listed_model_without_a_proper_name_is_not_taken(name: str):
    with (
        Upstream(Crowd(), models=(name,)) as up,
        pytest.raises(ConfigError, match="name one yourself: model"),
    ):
        ac.ask(SURE, endpoint=up.url)


def test_a_tiny_budget_is_taken_exactly():
    asker = ac.Asker("http://127.0.0.1:9/v1", model="m", budget="1e-12 USD per 1000", input_price=1.0)
    assert asker.budget.amount == pytest.approx(1e-15, rel=1e-9)


def test_a_key_is_in_no_traceback_and_no_log(caplog: pytest.LogCaptureFixture):
    with caplog.at_level("DEBUG"), Upstream(Crowd(), key="another") as up:
        with pytest.raises(EndpointRefused) as refused:
            ask_with_key(up.url)
        frames = traceback.TracebackException.from_exception(refused.value, capture_locals=True)
    assert "key = Secret('***')" in "".join(frames.format())
    assert CANARY not in "".join(frames.format()) + caplog.text


def ask_with_key(url: str) -> None:
    ac.ask(SURE, endpoint=url, key=CANARY)


def test_a_reply_as_plain_data_has_all_of_it():
    with Upstream(Crowd()) as up:
        reply = ac.ask(SURE, endpoint=up.url)
    assert set(reply.to_dict()) == {each.name for each in fields(reply)}
    assert reply.to_dict()["message"]["content"] == reply.text
