"""The official OpenAI client against the gateway: what it asks for works, or is refused in words."""

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from behaviours import Break, Reply, Status
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel
from running import Running

from upstream import Upstream

ASKED: Any = [{"role": "user", "content": "What is 6 times 7?"}]
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
KEY = "k" * 24


def script(_number: int, body: dict[str, Any]) -> Any:
    """A call of a tool where there is one, JSON where that is wanted, a failure where the model says so."""
    if body["model"].startswith("fails-"):
        return Status(code=int(body["model"].removeprefix("fails-")), message="no")
    if body["model"] == "breaks":
        return Break(after=3, how="drop")
    if body.get("tools"):
        message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
        return Reply(body={"object": "chat.completion", "choices": [choice], "usage": usage})
    text = '{"answer": 42}' if body.get("response_format") else "The answer is 42."
    return Reply(texts=[text] * body.get("n", 1))


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream(script, models=("scripted", "other/model")) as up:
        yield up


@pytest.fixture(scope="module")
def gate(upstream: Upstream) -> Iterator[Running]:
    with Running(upstream.url, price=0.01, endpoint={"attempts": 1, "model": "scripted"}) as running:
        yield running


@pytest.fixture
def client(gate: Running) -> Iterator[OpenAI]:
    with OpenAI(base_url=gate.url, api_key="any", timeout=60.0) as made:
        yield made


@pytest.fixture
def ask(client: OpenAI) -> Any:
    def create(**fields: Any) -> Any:
        return client.chat.completions.create(**{"model": "scripted", "messages": ASKED, **fields})

    return create


def said(chunks: Any) -> tuple[str, list[Any], list[Any]]:
    """The text of a stream, usages that came, and what only the gateway says."""
    chunks = list(chunks)
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    told = [chunk.model_extra["adacompute"] for chunk in chunks if "adacompute" in (chunk.model_extra or {})]
    return text, [chunk.usage for chunk in chunks if chunk.usage], told


def test_c11_a_plain_completion_says_what_the_answer_rests_on(ask: Any):
    reply = ask(temperature=0.7)
    told = reply.model_extra["adacompute"]
    assert reply.choices[0].message.content == "The answer is 42."
    assert reply.choices[0].finish_reason == "stop"
    assert reply.model == "scripted"
    assert told["answer"] == "42"
    assert told["samples"] > 1
    assert reply.usage.completion_tokens == 12 * told["samples"]
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


def test_c11_headers_are_given_and_taken(client: OpenAI):
    raw = client.chat.completions.with_raw_response.create(
        model="scripted", messages=ASKED, extra_headers={"x-adacompute-budget": "1"}
    )
    assert raw.headers["x-adacompute-samples"] == "1"
    assert raw.headers["x-request-id"] == raw.parse().id
    assert raw.parse().model_extra["adacompute"]["samples"] == 1


@pytest.mark.parametrize("fields", [{}, {"temperature": 0}], ids=["voted", "passed on"])
def test_c11_a_stream_has_a_choice_in_every_chunk_and_usage_only_if_asked_for(
    ask: Any, fields: dict[str, Any]
):
    chunks = list(ask(stream=True, **fields))
    assert all(len(chunk.choices) == 1 for chunk in chunks)  # clients look there without asking
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-1].choices[0].finish_reason == "stop"
    text, usages, (told,) = said(chunks)
    assert (text, usages) == ("The answer is 42.", [])
    assert told["samples"] == (1 if fields else told["votes"]["42"])
    text, (usage,), _ = said(ask(stream=True, stream_options={"include_usage": True}, **fields))
    assert text == "The answer is 42."
    assert usage.completion_tokens >= 12
    assert not any(choice.logprobs for chunk in chunks for choice in chunk.choices)


def test_c11_calls_of_tools_come_back(ask: Any):
    message = ask(tools=[TOOL]).choices[0].message
    assert message.tool_calls[0].function.arguments == '{"city": "Rome"}'
    assert message.content is None
    chunks = list(ask(tools=[TOOL], tool_choice="auto", stream=True))
    (call,) = [call for chunk in chunks for choice in chunk.choices for call in choice.delta.tool_calls or ()]
    assert (call.id, call.function.name) == ("call_1", "weather")


@pytest.mark.parametrize(
    "fields", [{}, {"temperature": 0}, {"stream": True}, {"stream": True, "temperature": 0}]
)
def test_c11_log_probabilities_come_where_they_are_asked_for(ask: Any, fields: dict[str, Any]):
    reply = ask(logprobs=True, top_logprobs=2, **fields)
    choices = [choice for chunk in reply for choice in chunk.choices] if "stream" in fields else reply.choices
    tokens = [token for choice in choices if choice.logprobs for token in choice.logprobs.content]
    assert len(tokens) == 12
    assert all(len(token.top_logprobs) == 2 for token in tokens)


def test_c11_formats_of_the_response_reach_the_upstream(ask: Any, upstream: Upstream):
    schema = {"name": "answer", "schema": {"type": "object", "properties": {"answer": {"type": "integer"}}}}
    for form in ({"type": "json_object"}, {"type": "json_schema", "json_schema": schema}):
        assert ask(response_format=form).choices[0].message.content == '{"answer": 42}'
        assert upstream.requests[-1].body["response_format"] == form
    assert ask(response_format={"type": "text"}).choices


def test_c11_helpers_of_the_sdk_parse_and_stream(client: OpenAI):
    class Found(BaseModel):
        answer: int

    parsed = client.chat.completions.parse(model="scripted", messages=ASKED, response_format=Found)
    assert parsed.choices[0].message.parsed == Found(answer=42)
    with client.chat.completions.stream(model="scripted", messages=ASKED, response_format=Found) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.parsed == Found(answer=42)
    with client.chat.completions.stream(model="scripted", messages=ASKED) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
    assert "".join(deltas) == "The answer is 42."


@pytest.mark.parametrize("stream", [False, True])
def test_c11_n_choices_are_n_choices(ask: Any, stream: bool):
    reply = ask(n=3, stream=stream)
    choices = [choice for chunk in reply for choice in chunk.choices] if stream else reply.choices
    assert {choice.index for choice in choices} == {0, 1, 2}


def test_c11_models_are_listed(client: OpenAI):
    assert [model.id for model in client.models.list()] == ["scripted", "other/model"]
    assert client.models.retrieve("other/model").id == "other/model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody")


@pytest.mark.parametrize(
    ("fields", "kind", "tries"),
    [
        ({"n": 999}, openai.BadRequestError, 0),
        ({"temperature": 3}, openai.BadRequestError, 0),
        ({"modalities": ["audio"]}, openai.BadRequestError, 0),
        ({"extra_headers": {"x-adacompute-policy": "none"}}, openai.BadRequestError, 0),
        ({"model": "fails-400"}, openai.BadRequestError, 1),
        ({"model": "fails-404"}, openai.NotFoundError, 1),
        ({"model": "fails-422"}, openai.UnprocessableEntityError, 1),
        ({"model": "fails-401"}, openai.InternalServerError, 1),  # the gateway's key, not the client's
        ({"model": "fails-500"}, openai.InternalServerError, 3),  # the SDK's own two retries
        ({"model": "fails-429"}, openai.RateLimitError, 1),
    ],
)
def test_c11_errors_are_of_the_sdks_classes_and_tried_again_only_where_that_helps(
    upstream: Upstream, fields: dict[str, Any], kind: type[openai.APIStatusError], tries: int
):
    before = upstream.count.requests
    with (
        Running(upstream.url, endpoint={"attempts": 1}) as gate,
        OpenAI(base_url=gate.url, api_key="any", max_retries=0 if tries == 1 else 2) as client,
        pytest.raises(kind) as caught,
    ):
        client.chat.completions.create(**{"model": "scripted", "messages": ASKED, **fields})
    assert upstream.count.requests - before == tries
    assert set(caught.value.body) == {"message", "type", "param", "code"}


def test_c11_a_stream_that_breaks_off_is_an_error_of_the_sdk(ask: Any):
    with pytest.raises(openai.APIError, match="upstream"):
        list(ask(model="breaks", stream=True, temperature=0))


def test_c11_a_cap_is_a_rate_limit_error_and_not_tried_again(upstream: Upstream):
    with (
        Running(upstream.url, cap=2, price=0.5) as gate,
        OpenAI(base_url=gate.url, api_key="any", max_retries=5) as client,
    ):
        before = upstream.count.requests
        for _ in range(2):
            client.chat.completions.create(model="scripted", messages=ASKED)
        with pytest.raises(openai.RateLimitError) as caught:
            client.chat.completions.create(model="scripted", messages=ASKED)
        turned_away = gate.get("/metrics").raw.decode()
    assert caught.value.code == "insufficient_quota"
    assert upstream.count.requests - before == 2
    counts = [line for line in turned_away.splitlines() if line.startswith("adacompute_requests_total{")]
    assert [line[-4:] for line in counts if 'status="429"' in line] == [" 1.0"]  # the SDK asked once


def test_c11_a_wrong_key_is_an_authentication_error(upstream: Upstream, tmp_path: Any):
    keys = tmp_path / "keys.toml"
    keys.write_text(f'[alice]\nkey = "{KEY}"\n')
    with Running(upstream.url, keys_file=str(keys)) as gate:
        with OpenAI(base_url=gate.url, api_key="x" * 24) as client, pytest.raises(openai.AuthenticationError):
            client.chat.completions.create(model="scripted", messages=ASKED)
        with OpenAI(base_url=gate.url, api_key=KEY) as client:
            assert client.chat.completions.create(model="scripted", messages=ASKED).choices
            with pytest.raises(openai.PermissionDeniedError):
                client.get("/../metrics", cast_to=str)


async def test_c11_the_asynchronous_client_works_alike(gate: Running):
    async with AsyncOpenAI(base_url=gate.url, api_key="any") as client:
        create = client.chat.completions.create
        replies = await asyncio.gather(*[create(model="scripted", messages=ASKED) for _ in range(5)])
        assert {reply.choices[0].message.content for reply in replies} == {"The answer is 42."}
        for fields in ({}, {"temperature": 0}):
            stream = await create(model="scripted", messages=ASKED, stream=True, **fields)  # type: ignore[call-overload]
            assert said([chunk async for chunk in stream])[0] == "The answer is 42."
        stream = await create(model="scripted", messages=ASKED, stream=True)
        await stream.close()  # leaves in the middle
        assert [model.id async for model in client.models.list()] == ["scripted", "other/model"]

    assert gate.ask().status == 200
