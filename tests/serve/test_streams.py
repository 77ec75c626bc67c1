"""Streams: what isn't voted on comes as it is made, and what is voted on comes as the client chose."""

import http.client
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from behaviours import Behaviour, Break, Reply, Status
from crowd import settled
from openai import OpenAI
from running import QUESTION, Running
from wires import connect, post, until

from adacompute.answers import Task
from adacompute.config import ServeConfig
from adacompute.policies.baselines import FixedPolicy
from adacompute.serve.messages import stream
from adacompute.serve.messages.request_parser import ChatRequest
from adacompute.serve.messages.stream import StreamGate
from adacompute.serve.voting.request_votes import VoteEligibility, may_be_short_answer
from upstream import Upstream

CHEAP = 1e-6  # a price at which it goes on while there is any doubt
STORY = "Once upon a time there was a lighthouse on a rock, and a keeper who counted ships. " * 6
TEXT = "Write a short story about a lighthouse."
UNCLEAR = "Today my cat sat by the window all day"
FACT = "Who was the first keeper of a lighthouse?"
VALUE = "What is 6 times 7?"
FIRST = {"x-adacompute-stream-mode": "first"}
CASES = json.loads((Path(__file__).parent.parent / "cases" / "freeform.json").read_text("utf-8"))
AUTO = VoteEligibility(ServeConfig(), Task())


def asked(prompt: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": prompt}]
    return {**QUESTION, "messages": messages, "stream": True, **fields}


def read(base: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> tuple[Any, ...]:
    """Status, headers, and the chunks of a stream, each with the seconds after which it came."""
    where, began = urlsplit(base), time.monotonic()
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
    try:
        connection.request(
            "POST",
            "/v1/chat/completions",
            json.dumps(body).encode(),
            {"content-type": "application/json", **(headers or {})},
        )
        reply = connection.getresponse()
        lines = []
        while line := reply.readline():
            if line.startswith(b"data: ") and b"[DONE]" not in line:
                lines.append((time.monotonic() - began, json.loads(line[6:])))
        return reply.status, {name.lower(): value for name, value in reply.getheaders()}, lines
    finally:
        connection.close()


def text_of(lines: Any) -> str:
    return "".join(
        choice["delta"].get("content") or "" for _, chunk in lines for choice in chunk.get("choices", ())
    )


def verdict(lines: Any) -> dict[str, Any]:
    (told,) = [chunk["adacompute"] for _, chunk in lines if "adacompute" in chunk]
    return told


def bare(chunk: Mapping[str, Any]) -> dict[str, Any]:
    """A chunk without what differs from one call to the next, and what only the gateway says."""
    return {name: value for name, value in chunk.items() if name not in ("id", "created", "adacompute")}


class Phrases:
    """Gives these texts one after the other, whatever is asked."""

    def __init__(self, *texts: str, **how: Any) -> None:
        self.texts, self.how, self.given = texts, how, 0

    def __call__(self, _number: int, body: dict[str, Any]) -> Reply:
        count = body.get("n", 1)
        texts = [self.texts[(self.given + i) % len(self.texts)] for i in range(count)]
        self.given += count
        return Reply(texts=texts, **self.how)


@pytest.mark.parametrize("prompt", [TEXT, UNCLEAR, FACT], ids=["text", "unclear", "fact"])
@pytest.mark.parametrize("mode", ["wait", "first"])
def test_what_is_not_voted_on_streams_chunk_for_chunk(prompt: str, mode: str):
    with (
        Upstream(Reply(texts=[STORY], pieces=40, gap=0.02)) as up,
        Running(up.url, budget=4.0, stream_mode=mode) as gate,
    ):
        *_, direct = read(up.url, asked(prompt))
        status, _, lines = read(gate.base, asked(prompt))
        plain = gate.ask(asked(prompt, stream=False)).json["adacompute"]
    assert status == 200
    assert [bare(chunk) for _, chunk in lines] == [bare(chunk) for _, chunk in direct]
    assert text_of(lines) == STORY
    first = next(at for at, chunk in lines if chunk["choices"][0]["delta"].get("content"))
    assert first < lines[-1][0] / 2  # long before its end
    assert len({round(at, 3) for at, _ in lines}) > 15  # not in one burst
    told = verdict(lines)
    assert (told["samples"], told["votes"]) == (1, {})
    assert any(note.startswith("no vote: ") for note in told["notes"])
    assert plain["votes"] == {}


def test_a_short_first_sample_that_was_held_back_is_the_first_of_the_vote():
    script = Phrases("Paris", "Lyon", "Paris", "Paris")
    prompt = "Which city is the capital of France?"
    with Upstream(script) as up, Running(up.url, price=CHEAP) as gate:
        _, _, lines = read(gate.base, asked(prompt, stream_options={"include_usage": True}))
        streamed = up.requests[0].body
        drawn, tokens = up.count.choices, 12 * up.count.choices
        script.given = 0
        plain = gate.ask(asked(prompt, stream=False)).json["adacompute"]
        balance = gate.gateway.resources.ledger.account()
        assert balance.spent.samples == up.count.choices
    told = verdict(lines)
    assert streamed["stream"] is True
    assert text_of(lines) == "Paris"
    assert told["samples"] == drawn > 1
    assert (told["samples"], told["votes"]) == (plain["samples"], plain["votes"])
    (usage,) = [chunk["usage"] for _, chunk in lines if chunk.get("usage")]
    assert usage["completion_tokens"] == tokens
    assert len({chunk["id"] for _, chunk in lines}) == 1


def test_what_was_held_back_and_is_not_voted_on_comes_chunk_for_chunk():
    with Upstream(Reply(texts=["Hello to you, dear cat"], pieces=3)) as up, Running(up.url) as gate:
        *_, direct = read(up.url, asked(UNCLEAR))
        *_, lines = read(gate.base, asked(UNCLEAR))
    assert [bare(chunk) for _, chunk in lines] == [bare(chunk) for _, chunk in direct]
    assert verdict(lines)["samples"] == 1


def test_a_value_is_held_back_to_its_end_because_its_answer_stands_there():
    long = f"{STORY}\nSo the answer is 42."
    with Upstream(Phrases(long, pieces=8)) as up, Running(up.url, price=CHEAP) as gate:
        *_, lines = read(gate.base, asked(VALUE))
        told = verdict(lines)
        assert told["votes"] == {"42": told["samples"]}
        assert told["samples"] == up.count.choices > 1


def test_an_instruction_that_wants_a_marked_answer_holds_back_what_the_prompt_alone_would_not():
    messages = [
        {"role": "system", "content": "Put what you find into \\boxed{}."},
        {"role": "user", "content": "Explain the sum of three and four"},
    ]
    with Upstream(Phrases(f"{STORY}\\boxed{{7}}")) as up, Running(up.url, price=CHEAP) as gate:
        *_, lines = read(gate.base, asked(TEXT, messages=messages))
        assert verdict(lines)["votes"] == {"7": up.count.choices}


WAYS: dict[str, tuple[dict[str, Any], dict[str, str], dict[str, Any]]] = {
    # of the request: fields, headers; of the gateway: settings
    "setting": ({}, {}, {"stream_mode": "first"}),
    "header": ({}, FIRST, {}),
    "body": ({"adacompute": {"stream_mode": "first"}}, {}, {}),
    "the request's own": ({"adacompute": {"stream_mode": "wait"}}, {}, {"stream_mode": "first"}),
}


@pytest.mark.parametrize("way", WAYS)
def test_who_asks_for_it_gets_the_first_sample_at_once_and_then_whether_the_vote_agreed(way: str):
    fields, headers, settings = WAYS[way]
    script = Phrases("I say the answer is 7.", "The answer is 42.", "The answer is 42.", pieces=8, gap=0.02)
    with Upstream(script) as up, Running(up.url, price=CHEAP, **settings) as gate:
        _, got, lines = read(
            gate.base, asked(VALUE, stream_options={"include_usage": True}, **fields), headers
        )
        told, drawn = verdict(lines), up.count.choices
    (usage,) = [chunk["usage"] for _, chunk in lines if chunk.get("usage")]
    assert usage["completion_tokens"] == 12 * drawn
    assert told["answer"] == "42"
    assert told["samples"] == drawn > 2
    if way == "the request's own":
        assert "agreed" not in told
        assert text_of(lines) == "The answer is 42."
        assert "x-adacompute-stream-mode" not in got
        return
    assert told["agreed"] is False
    assert text_of(lines) == "I say the answer is 7."
    assert got["x-adacompute-stream-mode"] == "first"
    assert lines[0][0] < lines[-1][0] / 2


def test_the_official_client_reads_the_mode_in_a_header_and_the_verdict_in_the_last_chunk_with_choices():
    script = Phrases("I say the answer is 7.", "The answer is 42.", "The answer is 42.")
    with (
        Upstream(script) as up,
        Running(up.url, price=CHEAP) as gate,
        OpenAI(base_url=gate.url, api_key="any", timeout=60.0) as client,
        client.chat.completions.with_streaming_response.create(
            model="scripted",
            messages=[{"role": "user", "content": VALUE}],
            stream=True,
            stream_options={"include_usage": True},
            extra_headers=FIRST,
        ) as reply,
    ):
        chunks = list(reply.parse())
        assert reply.headers["x-adacompute-stream-mode"] == "first"
    told = [chunk.model_extra["adacompute"] for chunk in chunks if "adacompute" in (chunk.model_extra or {})]
    *_, last, usage = chunks
    assert told == [last.model_extra["adacompute"]]
    assert (told[0]["agreed"], told[0]["answer"]) == (False, "42")
    assert last.choices[0].finish_reason == "stop"
    assert usage.choices == []


def test_the_rest_of_the_first_wave_is_drawn_while_the_first_sample_streams(tmp_path: Path):
    FixedPolicy(4).save(tmp_path / "four")
    settings = {"policy": str(tmp_path / "four"), "stream_mode": "first", "budget": 4.0}
    script = Phrases("The answer is 7.", "The answer is 42.", pieces=10, gap=0.03, delay=0.1)
    with Upstream(script) as up, Running(up.url, **settings) as gate:
        *_, lines = read(gate.base, asked(VALUE))
        assert up.count.peak == 2  # one stream, and one call for the others
        assert [request.body.get("n", 1) for request in up.requests] == [1, 3]
        assert verdict(lines)["votes"] == {"42": 2, "7": 2}
        script.texts, script.how["tokens"] = (STORY,), 130  # nothing to vote on: what is under way ends
        *_, lines = read(gate.base, asked(VALUE, stream_options={"include_usage": True}))
        told = verdict(lines)
        assert told["votes"] == {}
        assert text_of(lines) == STORY
        (usage,) = [chunk["usage"] for _, chunk in lines if chunk.get("usage")]
        assert usage["completion_tokens"] == 130 * told["samples"]
        until(lambda: up.count.in_flight == 0)
        account = gate.gateway.resources.ledger.account()
        assert account.reserved.samples == 0
        assert account.spent.samples <= up.count.choices <= account.spent.samples + account.maybe.samples


def test_a_first_sample_that_states_nothing_ends_its_stream_without_a_vote():
    with Upstream(Phrases(STORY)) as up, Running(up.url, price=CHEAP, stream_mode="first") as gate:
        *_, lines = read(gate.base, asked(FACT))
        assert "agreed" not in verdict(lines)
        assert up.count.choices == 1
        *_, lines = read(gate.base, asked(VALUE))
        assert "agreed" not in verdict(lines)
        account = settled(gate)  # others of its wave may have been under way
        assert account.spent.samples <= up.count.choices <= account.spent.samples + account.maybe.samples


def test_where_weak_votes_are_refused_a_stream_waits_for_its_vote():
    script = Phrases(*(f"The answer is {number}." for number in range(16)))
    settings = {"price": CHEAP, "min_agreement": 0.5, "weak": "refuse", "stream_mode": "first"}
    with Upstream(script) as up, Running(up.url, **settings) as gate:
        status, got, _ = read(gate.base, asked(VALUE))
        assert status == 422
        assert "x-adacompute-stream-mode" not in got
        assert read(gate.base, asked("Which is the largest city in France?"))[0] == 422
        script.texts = (STORY,)
        assert text_of(read(gate.base, asked(TEXT))[2]) == STORY
        script.texts = ("The answer is 42.",)
        told = verdict(read(gate.base, asked(VALUE))[2])
        assert any("waits for the vote" in note for note in told["notes"])


def test_a_cap_ends_the_vote_and_not_the_stream():
    script = Phrases("The answer is 42.", "The answer is 7.")
    with Upstream(script) as up, Running(up.url, price=CHEAP, cap=2, stream_mode="first") as gate:
        *_, lines = read(gate.base, asked(VALUE))
        told = verdict(lines)
        assert text_of(lines) == "The answer is 42."
        assert (told["samples"], up.count.choices) == (2, 2)
        assert any("cap" in note for note in told["notes"])
        assert read(gate.base, asked(TEXT))[0] == 429


@pytest.mark.parametrize("prompt", [TEXT, FACT], ids=["at once", "held back"])
def test_an_error_after_the_first_chunk_is_an_event_and_before_it_a_status(prompt: str):
    reply = Reply(texts=[STORY], pieces=20)
    with Upstream() as up, Running(up.url, endpoint={"attempts": 1}) as gate:
        up.script = Break(after=18, how="drop", reply=reply)
        status, _, lines = read(gate.base, asked(prompt))
        assert status == 200
        assert STORY.startswith(text_of([line for line in lines if "choices" in line[1]]))
        assert "error" in lines[-1][1]
        up.script = Status(code=500)
        assert read(gate.base, asked(prompt))[0] == 500
        if prompt == FACT:  # nothing had been sent yet
            up.script = Break(after=2, how="drop", reply=reply)
            assert read(gate.base, asked(prompt))[0] == 502
        account = gate.gateway.resources.ledger.account()
        assert account.reserved.samples == 0


def test_a_vote_whose_later_calls_fail_is_on_what_came():
    def script(number: int, _body: dict[str, Any]) -> Behaviour:
        return Reply(texts=["The answer is 42."]) if number == 1 else Status(code=400)

    with Upstream(script) as up, Running(up.url, price=CHEAP, stream_mode="first") as gate:
        *_, lines = read(gate.base, asked(VALUE))
    told = verdict(lines)
    assert told["agreed"] is True
    assert told["missing"] >= 1
    assert text_of(lines) == "The answer is 42."


@pytest.mark.parametrize("headers", [{}, FIRST], ids=["wait", "first"])
@pytest.mark.parametrize("prompt", [TEXT, FACT, VALUE])
def test_a_client_of_http_1_0_gets_every_kind_of_stream_whole(prompt: str, headers: dict[str, str]):
    with Upstream(Phrases("Paris")) as up, Running(up.url) as gate, connect(gate) as line:
        line.sendall(post(asked(prompt), headers).replace(b"HTTP/1.1", b"HTTP/1.0"))
        got = b""
        while more := line.recv(65_536):
            got += more
        head, _, body = got.partition(b"\r\n\r\n")
        assert b"transfer-encoding" not in head
        assert body.startswith(b"data: {")
        assert body.endswith(b"data: [DONE]\n\n")
        assert body.count(b'"adacompute"') == 1


@pytest.mark.parametrize("prompt", [TEXT, FACT, VALUE])
@pytest.mark.parametrize("mode", ["wait", "first"])
def test_log_probabilities_that_only_the_policy_wants_are_in_no_stream(prompt: str, mode: str):
    with Upstream(Phrases("Paris")) as up, Running(up.url, price=CHEAP, stream_mode=mode) as gate:
        for fields in ({}, {"logprobs": True}):
            *_, lines = read(gate.base, asked(prompt, **fields))
            tokens = [
                token
                for _, chunk in lines
                for choice in chunk["choices"]
                for token in (choice.get("logprobs") or {}).get("content") or ()
            ]
            assert len(tokens) == (12 if fields else 0)
            assert not any(token["top_logprobs"] for token in tokens)


def test_choices_that_a_client_draws_itself_and_tools_stream_at_once_in_either_mode():
    with Upstream(Reply(pieces=10, gap=0.01)) as up, Running(up.url, stream_mode="first") as gate:
        *_, lines = read(gate.base, asked(VALUE, n=2))
        assert {choice["index"] for _, chunk in lines for choice in chunk["choices"]} == {0, 1}
        assert "agreed" not in verdict(lines)
        assert up.count.choices == 2


def test_comments_keep_a_silent_stream_alive_and_an_error_after_them_is_an_event(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(stream, "KEEPALIVE_SECONDS", 0.1)

    def script(_number: int, body: dict[str, Any]) -> Behaviour:
        if body.get("stream"):
            return Reply(texts=["Paris"], delay=0.5, pieces=2)
        return Reply(texts=["Paris"] * body.get("n", 1), delay=0.5)

    with Upstream(script) as up, Running(up.url, price=CHEAP, endpoint={"attempts": 1}) as gate:
        for prompt, headers in ((VALUE, {}), (FACT, {}), (VALUE, FIRST)):
            raw = gate.ask(asked(prompt), headers).raw
            assert raw.count(b": sampling\n\n") >= 2
            assert raw.endswith(b"data: [DONE]\n\n")
            assert raw.startswith(b": sampling" if not headers else b"data: {")
        assert b": sampling" not in gate.ask(asked(TEXT)).raw  # it is as it would be directly
        up.script = Status(code=500, delay=0.5)
        failed = gate.ask(asked(FACT))
    assert failed.status == 200
    assert failed.raw.count(b'data: {"error"') == 1


def chunk(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


@pytest.mark.parametrize(
    ("wish", "deltas", "opens_at"),
    [
        ("fact", [{"role": "assistant", "content": ""}, {"content": "Paris"}], None),
        ("fact", [{"content": "Sure"}, {"content": "!"}], 1),
        ("fact", [{"content": "Hi"}, {"content": "malaya"}, {"content": "."}], None),
        ("fact", [{"content": "```"}, {"content": "python\n"}], 0),
        ("fact", [{"content": "Paris.\n"}, {"content": "\nIt is"}], 1),
        ("fact", [{"content": "Answer: Paris\n"}, {"content": "It is on the Seine."}], None),
        ("fact", [{"content": "word "}] * 25, 20),
        ("", [{"content": "word "}] * 25, 4),
        ("fact", [{"tool_calls": [{"index": 0}]}], 0),
        ("fact", [{"refusal": "No"}], 0),
        (
            "fact",
            [{"content": "<thi"}, {"content": "nk>"}, {"content": "w " * 99}, {"content": "</thi"}],
            None,
        ),
        ("fact", [{"content": "<think>hm</thi"}, {"content": "nk>\n\nParis"}, {"content": " word" * 30}], 2),
        ("", [{"content": "<think>"}], 0),
        ("fact", [{"reasoning_content": "hm"}, {"content": "Paris"}], None),
        ("", [{"reasoning_content": "hm"}], 0),
    ],
)
def test_a_stream_is_held_back_while_it_may_be_an_answer(wish: Any, deltas: list[Any], opens_at: int | None):
    gate = StreamGate(lambda text: may_be_short_answer(text, wish), holds_thinking=bool(wish))
    opened = [gate.add(chunk(**delta)) for delta in deltas]
    assert (opened.index(True) if True in opened else None) == opens_at


def held_back(case: Mapping[str, Any]) -> int:
    """How many characters of a recorded reply are held back; all of them: it waits for a vote."""
    request = ChatRequest(
        body={"messages": [{"role": "user", "content": case["prompt"]}]}, prompt=case["prompt"]
    )
    plan, text = AUTO.plan_stream(request), case["text"]
    if plan != "beginning":
        return 0 if plan == "nothing" else len(text)
    gate = AUTO.make_gate(request)
    for start in range(0, len(text), 4):  # as a model's tokens
        if gate.add(chunk(content=text[start : start + 4])):
            return start
    return len(text)


def test_of_recorded_replies_no_vote_is_lost_to_a_stream_and_texts_are_hardly_held_back():
    votable = [case for case in CASES if case["votable"]]
    texts = [case for case in CASES if not case["votable"] and len(case["text"]) > 100]
    assert [case["prompt"] for case in votable if held_back(case) < len(case["text"])] == []
    waits = [case["prompt"] for case in texts if held_back(case) > 160]
    at_once = [case for case in texts if held_back(case) == 0]
    assert len(waits) <= 0.05 * len(texts), waits
    assert len(at_once) > 0.6 * len(texts)


@pytest.mark.parametrize("odd", [{}, {"choices": None}, {"choices": []}, {"choices": [1]}, {"choices": [{}]}])
def test_a_chunk_without_a_text_opens_nothing(odd: dict[str, Any]):
    assert not StreamGate(lambda _: False, holds_thinking=True).add(odd)
