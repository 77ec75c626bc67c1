"""/v1/responses: as the official SDK uses it, voted on like chat, over an upstream that has only chats."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from behaviours import Break, Honest, Reply, Status
from openai.types import responses as types
from other_routes import OtherRoutes, status
from other_routes import stream as send_parts
from pydantic import BaseModel, TypeAdapter
from running import Running
from sdk_clients import sdk
from wires import until

from adacompute.errors import RequestInvalid
from adacompute.serve.messages.responses import UntranslatableRequest, translate_request
from adacompute.serve.routes.responses import is_route_missing
from upstream import Upstream

ASK = {"model": "scripted", "input": "What is 6 times 7?", "temperature": 0.7}
TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
CALL = {
    "id": "call_7",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city":"Rome"}'},
}
EVENT: TypeAdapter[Any] = TypeAdapter(types.ResponseStreamEvent)
PATH = "/v1/responses"


def whole(message: dict[str, Any], finish: str = "stop", **usage: Any) -> Reply:
    """A chat completion with that message."""
    return Reply(
        body={
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "real-name",
            "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14, **usage},
        }
    )


def chunks(*deltas: dict[str, Any], finish: str = "stop") -> bytes:
    """A stream of these deltas, as bytes that the scripted upstream writes at once."""
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "real-name"}
    events = [{**head, "choices": [{"index": 0, "delta": one, "finish_reason": None}]} for one in deltas]
    events.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
    events.append({**head, "choices": [], "usage": usage})
    return b"".join(b"data: %s\n\n" % json.dumps(one).encode() for one in events) + b"data: [DONE]\n\n"


def events_of(raw: bytes) -> list[dict[str, Any]]:
    """The events of a stream, each checked by the SDK's own models."""
    found = []
    for block in raw.decode().split("\n\n"):
        if not block or block.startswith(":"):
            continue
        kind, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert kind == f"event: {event['type']}"
        EVENT.validate_json(data.removeprefix("data: "), strict=True)
        found.append(event)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


def kinds_of(events: list[dict[str, Any]]) -> list[str]:
    """Their types without "response.", repeated ones once."""
    kinds = [event["type"].removeprefix("response.") for event in events]
    return [kind for place, kind in enumerate(kinds) if place == 0 or kinds[place - 1] != kind]


@pytest.fixture(scope="module")
def gate() -> Iterator[Running]:
    with Upstream(Reply(texts=["The answer is 42."])) as up, Running(up.url, price=0.0) as running:
        running.up = up  # type: ignore[attr-defined]
        yield running
        assert running.gateway.under_way == 0


def test_a_plain_response_is_voted_on_and_valid_by_the_sdk_s_own_models(gate: Running):
    raw = gate.ask(ASK, path=PATH)
    response = types.Response.model_validate_json(raw.raw, strict=True)
    assert response.output_text == "The answer is 42."
    assert (response.status, response.object) == ("completed", "response")
    assert response.id.startswith("resp_")
    assert raw.headers["x-request-id"] == response.id
    assert raw.headers["x-adacompute-samples"] == str(raw.json["adacompute"]["samples"])
    assert raw.json["adacompute"]["votes"] == {"42": raw.json["adacompute"]["samples"]}
    assert raw.json["adacompute"]["samples"] > 1
    assert response.usage is not None
    assert response.usage.output_tokens == 12 * raw.json["adacompute"]["samples"]
    assert raw.json["store"] is False


def test_it_counts_and_costs_as_a_chat_does(gate: Running):
    chat = gate.ask({"model": "scripted", "messages": [{"role": "user", "content": ASK["input"]}]})
    response = gate.ask({"model": "scripted", "input": ASK["input"]}, path=PATH)
    assert chat.json["adacompute"]["samples"] == response.json["adacompute"]["samples"]
    assert gate.up.requests[-1].path == "/v1/chat/completions"  # type: ignore[attr-defined]
    assert gate.up.requests[-1].body == {  # type: ignore[attr-defined]
        **gate.up.requests[-1].body,  # type: ignore[attr-defined]
        "messages": [{"role": "user", "content": ASK["input"]}],
        "model": "scripted",
    }


def test_the_sdk_s_create_and_its_raw_headers(gate: Running):
    raw = sdk(gate).responses.with_raw_response.create(
        model="scripted@2.5",
        input=[{"role": "user", "content": [{"type": "input_text", "text": "What is 6 times 7?"}]}],
        instructions="Be brief.",
        max_output_tokens=100,
        metadata={"a": "b"},
        user="me",
        truncation="auto",
        reasoning={"effort": "low", "summary": "auto"},
        include=["reasoning.encrypted_content"],
        store=True,
        extra_headers={"x-adacompute-budget": "3"},
        extra_body={"adacompute": {"extract": "auto"}},
    )
    response = raw.parse()
    assert int(raw.headers["x-adacompute-samples"]) >= 1
    assert response.metadata == {"a": "b"}
    assert (response.instructions, response.max_output_tokens, response.user) == ("Be brief.", 100, "me")
    assert response.truncation == "disabled"
    body = gate.up.requests[-1].body  # type: ignore[attr-defined]
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (body["max_tokens"], body["reasoning_effort"], body["user"]) == (100, "low", "me")
    own = {"adacompute", "input", "instructions", "store", "metadata", "include", "truncation", "reasoning"}
    assert not own & set(body)


def test_a_stream_has_every_event_in_its_order_voted_or_passed(gate: Running):
    expected = [
        *("created", "in_progress", "output_item.added", "content_part.added", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    for headers in ({}, {"x-adacompute-mode": "pass"}):
        raw = gate.ask({**ASK, "stream": True}, headers, path=PATH)
        assert raw.headers["content-type"].startswith("text/event-stream")
        events = events_of(raw.raw)
        assert kinds_of(events) == expected
        texts = [one["delta"] for one in events if one["type"] == "response.output_text.delta"]
        last = events[-1]["response"]
        assert "".join(texts) == last["output"][0]["content"][0]["text"] == "The answer is 42."
        assert last["adacompute"]["samples"] >= 1
        assert last["usage"]["total_tokens"] > 0
        assert raw.headers["x-request-id"] == last["id"] == events[0]["response"]["id"]
        ids = {one["item_id"] for one in events if "item_id" in one}
        assert ids == {last["output"][0]["id"]}


def test_a_passed_stream_comes_while_the_upstream_writes():
    story = " ".join(["word"] * 100)
    with (
        Upstream(Reply(texts=[story], pieces=20, gap=0.1)) as up,
        Running(up.url, mode="pass") as gate,
    ):
        seen = 0
        for event in sdk(gate).responses.create(model="scripted", input="Write a story.", stream=True):
            if event.type == "response.output_text.delta":
                seen += 1
                if seen == 2:
                    assert up.count.completions == 0  # it is still writing
        assert seen >= 20


class Sum(BaseModel):
    a: int
    b: int


def test_structured_output_is_parsed_by_the_sdk(gate: Running):
    with Upstream(whole({"content": '{"a": 1, "b": 2}'})) as up, Running(up.url) as gate:
        parsed = sdk(gate).responses.parse(model="m", input="Give a sum.", text_format=Sum)
        assert parsed.output_parsed == Sum(a=1, b=2)
        form = up.requests[0].body["response_format"]
        assert form["type"] == "json_schema"
        assert form["json_schema"]["strict"] is True
        assert set(form["json_schema"]["schema"]["properties"]) == {"a", "b"}
        plain = gate.ask({**ASK, "text": {"format": {"type": "json_object"}, "verbosity": "low"}}, path=PATH)
        assert plain.json["text"] == {"format": {"type": "json_object"}, "verbosity": "low"}
        assert up.requests[-1].body["response_format"] == {"type": "json_object"}


def test_tools_make_the_round_trip():
    first = whole({"content": None, "tool_calls": [CALL]}, "tool_calls")

    def script(_number: int, body: dict[str, Any]) -> Any:
        return whole({"content": "Sunny."}) if body["messages"][-1]["role"] == "tool" else first

    with Upstream(script) as up, Running(up.url) as gate:
        client = sdk(gate)
        items: list[Any] = [{"role": "user", "content": "Weather in Rome?"}]
        response = client.responses.create(model="m", input=items, tools=[TOOL], tool_choice="required")
        (call,) = response.output
        assert isinstance(call, types.ResponseFunctionToolCall)
        assert (call.name, call.call_id, call.arguments) == ("get_weather", "call_7", '{"city":"Rome"}')
        items += [item.model_dump() for item in response.output]
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": "sun"})
        assert client.responses.create(model="m", input=items, tools=[TOOL]).output_text == "Sunny."
        sent, again = up.requests[0].body, up.requests[-1].body
    assert sent["tools"][0]["function"]["name"] == "get_weather"
    assert sent["tools"][0]["function"]["strict"] is True
    assert sent["tool_choice"] == "required"
    assert again["messages"][1:] == [
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_7", "content": "sun"},
    ]


def test_calls_of_tools_and_json_are_voted_on_in_this_shape_too():
    def call(city: str) -> Reply:
        function = {"name": "get_weather", "arguments": json.dumps({"city": city})}
        return whole({"content": None, "tool_calls": [{**CALL, "function": function}]}, "tool_calls")

    def script(number: int, body: dict[str, Any]) -> Any:
        if "tools" in body:
            return call("Oslo" if number == 1 else "Rome")
        return whole({"content": '{"a": 9, "b": 9}' if number == 1 else '{"b": 2, "a": 1}'})

    for fields, shown in (
        ({"tools": [TOOL]}, '{"city": "Rome"}'),
        ({"text": {"format": {"type": "json_object"}}}, '{"b": 2, "a": 1}'),
    ):
        with Upstream(script) as up, Running(up.url, price=0.0) as gate:
            raw = gate.ask({**ASK, **fields}, path=PATH)
            response = types.Response.model_validate_json(raw.raw, strict=True)
        assert raw.json["adacompute"]["samples"] > 2, raw.json["adacompute"]
        item = response.output[0]
        assert getattr(item, "arguments", response.output_text) == shown
        assert up.count.choices <= raw.json["adacompute"]["samples"]


def test_a_first_sample_that_is_streamed_at_once_ends_with_the_verdict():
    with Upstream(Reply(texts=["The answer is 42."])) as up, Running(up.url, price=0.0) as gate:
        raw = gate.ask({**ASK, "stream": True, "adacompute": {"stream_mode": "first"}}, path=PATH)
        assert raw.headers["x-adacompute-stream-mode"] == "first"
        last = events_of(raw.raw)[-1]["response"]
        assert last["adacompute"]["agreed"] is True
        assert last["adacompute"]["samples"] > 1
        assert last["usage"]["output_tokens"] == 12 * last["adacompute"]["samples"]


def test_calls_of_tools_are_streamed_with_their_arguments():
    def delta(index: int, **fields: Any) -> dict[str, Any]:
        return {"tool_calls": [{"index": index, **fields}]}

    raw = chunks(
        {"role": "assistant", "reasoning_content": "Let me "},
        {"reasoning_content": "see."},
        {"content": "One moment. "},
        delta(0, id="call_1", type="function", function={"name": "f", "arguments": ""}),
        delta(0, function={"arguments": '{"a"'}),
        delta(1, id="call_2", type="function", function={"name": "g", "arguments": "{}"}),
        delta(0, function={"arguments": ": 1}"}),
        finish="tool_calls",
    )
    with Upstream(Break(after=0, how=raw)) as up, Running(up.url, mode="pass") as gate:
        events = events_of(gate.ask({**ASK, "tools": [TOOL], "stream": True}, path=PATH).raw)
    response = types.Response.model_validate(events[-1]["response"])
    assert [item.type for item in response.output] == ["reasoning", "message", *["function_call"] * 2]
    first, second = response.output[2:]
    assert (first.name, first.call_id, first.arguments) == ("f", "call_1", '{"a": 1}')  # type: ignore[union-attr]
    assert (second.name, second.call_id, second.arguments) == ("g", "call_2", "{}")  # type: ignore[union-attr]
    assert response.output[0].content[0].text == "Let me see."  # type: ignore[union-attr, index]
    done = [one for one in events if one["type"] == "response.function_call_arguments.done"]
    assert [one["arguments"] for one in done] == ['{"a": 1}', "{}"]
    added = [one for one in events if one["type"] == "response.output_item.added"]
    assert [one["output_index"] for one in added] == [0, 1, 2, 3]
    assert events[-1]["response"]["model"] == "real-name"


def test_a_streamed_call_keeps_its_late_name_its_id_and_what_comes_after_a_text():
    def delta(**fields: Any) -> dict[str, Any]:
        return {"tool_calls": [{"index": 0, **fields}]}

    raw = chunks(
        delta(id=7, type="function", function={"arguments": '{"a"'}),
        delta(function={"name": "f", "arguments": ": "}),
        {"content": "One moment."},
        delta(function={"arguments": "1}"}),
        {"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]},
        finish="tool_calls",
    )
    with Upstream(Break(after=0, how=raw)) as up, Running(up.url, mode="pass") as gate:
        events = events_of(gate.ask({**ASK, "tools": [TOOL], "stream": True}, path=PATH).raw)
        stream = sdk(gate).responses.stream(model="m", input="x", tools=[TOOL])  # type: ignore[list-item]
        with stream as seen:
            assert list(seen)[-1].type == "response.completed"
    call, message, nameless = types.Response.model_validate(events[-1]["response"]).output
    assert isinstance(call, types.ResponseFunctionToolCall)
    assert isinstance(nameless, types.ResponseFunctionToolCall)
    assert (call.name, call.arguments, message.type) == ("f", '{"a": 1}', "message")
    assert (nameless.name, nameless.arguments) == ("", "{}")
    told = [one["item"] for one in events if one.get("item", {}).get("type") == "function_call"]
    assert {one["call_id"] for one in told} == {call.call_id, nameless.call_id}
    assert [one["name"] for one in told if one["call_id"] == call.call_id] == ["f", "f"]
    added = [one["output_index"] for one in events if one["type"] == "response.output_item.added"]
    assert added == [0, 1, 2]


def test_what_was_cut_off_is_incomplete_and_says_why():
    for finish, reason in (("length", "max_output_tokens"), ("content_filter", "content_filter")):
        script = [
            whole({"content": "Once upon"}, finish),
            Break(after=0, how=chunks({"content": "On"}, finish=finish)),
        ]
        with Upstream(script) as up, Running(up.url, mode="pass") as gate:
            response = types.Response.model_validate(gate.ask(ASK, path=PATH).json)
            events = events_of(gate.ask({**ASK, "stream": True}, path=PATH).raw)
        for one in (response, types.Response.model_validate(events[-1]["response"])):
            assert one.status == "incomplete"
            assert one.incomplete_details is not None
            assert one.incomplete_details.reason == reason
            assert one.output[0].status == "incomplete"  # type: ignore[union-attr]
        assert events[-1]["type"] == "response.incomplete"


def test_refusals_thoughts_and_an_empty_answer_have_their_items():
    script = [
        whole({"content": None, "refusal": "No."}),
        whole(
            {"content": "Yes.", "reasoning_content": "Hm."}, completion_tokens_details={"reasoning_tokens": 3}
        ),
        whole({"content": ""}),
    ]
    with Upstream(lambda number, _body: script[number - 1]) as up, Running(up.url, mode="pass") as gate:
        refused, thought, empty = (
            types.Response.model_validate_json(gate.ask(ASK, path=PATH).raw, strict=True) for _ in range(3)
        )
    assert refused.output[0].content[0].refusal == "No."  # type: ignore[union-attr, index]
    assert [item.type for item in thought.output] == ["reasoning", "message"]
    assert empty.output_text == ""
    assert [item.type for item in empty.output] == ["message"]
    raw = chunks({"refusal": "I can"}, {"refusal": "'t."})
    with Upstream(Break(after=0, how=raw)) as up, Running(up.url, mode="pass") as gate:
        events = events_of(gate.ask({**ASK, "stream": True}, path=PATH).raw)
    assert events[-1]["response"]["output"][0]["content"] == [{"type": "refusal", "refusal": "I can't."}]
    assert "refusal.delta" in kinds_of(events)


def test_log_probabilities_come_where_they_are_asked_for(gate: Running):
    asked = {**ASK, "include": ["message.output_text.logprobs"], "top_logprobs": 2}
    response = types.Response.model_validate_json(gate.ask(asked, path=PATH).raw, strict=True)
    logprobs = response.output[0].content[0].logprobs  # type: ignore[union-attr, index]
    assert len(logprobs) == 12  # type: ignore[arg-type]
    assert len(logprobs[0].top_logprobs) == 2  # type: ignore[index]
    events = events_of(gate.ask({**asked, "stream": True}, {"x-adacompute-mode": "pass"}, path=PATH).raw)
    assert sum(len(one.get("logprobs", ())) for one in events if one["type"].endswith("delta")) == 12
    assert gate.ask(ASK, path=PATH).json["output"][0]["content"][0]["logprobs"] == []


def test_errors_are_those_of_the_sdk_and_name_the_field_of_a_response(gate: Running):
    client = sdk(gate)
    with pytest.raises(openai.BadRequestError, match="max_output_tokens is 0"):
        client.responses.create(model="m", input="x", max_output_tokens=0)
    with pytest.raises(openai.BadRequestError, match=r"max_output_tokens is 1.* larger max_tokens$"):
        client.responses.create(model="m", input="x", max_output_tokens=10**9)
    with pytest.raises(openai.BadRequestError, match="input is missing"):
        client.responses.create(model="m")
    with pytest.raises(openai.BadRequestError, match="give input"):
        client.responses.create(model="m", input="x", extra_body={"messages": []})
    for body in ({"input": 7}, {"input": []}, {"input": [7]}, {"input": [{"role": "king", "content": "x"}]}):
        answer = gate.ask({"model": "m", **body}, path=PATH)
        assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")
        assert answer.error["param"].startswith("input")
    error = Status(code=429, message="slow down", param="x")
    with Upstream(error) as up, Running(up.url, endpoint={"attempts": 1}) as bad:
        with pytest.raises(openai.RateLimitError, match="slow down"):
            sdk(bad).responses.create(model="m", input="x")
        with pytest.raises(openai.RateLimitError, match="slow down"):
            sdk(bad).responses.create(model="m", input="x", stream=True)


def test_a_limit_goes_under_the_name_that_the_model_takes_and_no_other_is_blamed():
    def script(_number: int, body: dict[str, Any]) -> Any:
        if "max_tokens" in body:
            return Status(code=400, message="Unsupported parameter: 'max_tokens'", param="max_tokens")
        if body["max_completion_tokens"] > 100:
            return Status(
                code=400, message="max_completion_tokens is too large", param="max_completion_tokens"
            )
        return whole({"content": "Yes."})

    with Upstream(script) as up, Running(up.url, mode="pass") as gate:
        answer = gate.ask({**ASK, "model": "odd", "max_output_tokens": 50}, path=PATH)
        assert (answer.status, answer.json["max_output_tokens"]) == (200, 50)
        assert up.requests[-1].body["max_completion_tokens"] == 50
        refused = gate.ask({**ASK, "model": "odd", "max_output_tokens": 500}, path=PATH)
        assert (refused.status, refused.error["param"]) == (400, "max_output_tokens")
        assert refused.error["message"] == "max_output_tokens is too large"


def test_an_error_in_a_stream_is_an_event_and_fails_the_response():
    with Upstream(Break(after=3, how="error", message="it broke")) as up:  # noqa: SIM117
        with Running(up.url, mode="pass") as gate:
            raw = gate.ask({**ASK, "stream": True}, path=PATH)
    assert raw.status == 200
    events = events_of(raw.raw)
    assert [one["type"] for one in events[-2:]] == ["error", "response.failed"]
    assert "it broke" in events[-2]["message"]
    assert events[-1]["response"]["status"] == "failed"


def test_a_cap_and_every_refusal_count_once():
    with Upstream(Honest()) as up, Running(up.url, cap=1) as gate:
        assert gate.ask(ASK, path=PATH).status == 200
        assert gate.ask(ASK, path=PATH).status == 429
        assert gate.ask({"model": "m"}, path=PATH).status == 400
        refused = gate.get("/dashboard/data").json["refused"]
    assert refused == {"invalid_request": 1}


# what a chat can't express

UNTRANSLATABLE = [
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"background": True}, "background"),
    ({"prompt": {"id": "pmpt_1"}}, "prompt"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": [TOOL, {"type": "mcp", "server_label": "x"}]}, "tools[1].type"),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
        "input[0].content[0].type",
    ),
]


@pytest.mark.parametrize(("fields", "name"), UNTRANSLATABLE)
def test_what_a_chat_cant_express_is_passed_on_or_refused_by_its_name(fields: dict[str, Any], name: str):
    native = {"id": "resp_native", "object": "response", "usage": {"input_tokens": 3, "output_tokens": 4}}
    with OtherRoutes(responses=status(200, native)) as up, Running(up.url, unit="tokens") as gate:
        answer = gate.ask({**ASK, **fields, "adacompute": {"extract": "auto"}}, path=PATH)
        assert (answer.status, answer.json) == (200, native)
        (asked,) = up.of(PATH)
        assert json.loads(asked.body) == {**ASK, **fields}
        assert gate.gateway.resources.ledger.account().spent.tokens == 7
    with Upstream() as chats, Running(chats.url) as gate:
        for _ in range(2):
            answer = gate.ask({**ASK, **fields}, path=PATH)
            assert (answer.status, answer.error["code"]) == (400, "unsupported_parameter")
            assert answer.error["param"] == name
            assert "no /v1/responses" in answer.error["message"]
        assert chats.count.requests == 0
        assert gate.ask(ASK, path=PATH).status == 200


def test_a_missing_model_or_response_is_not_taken_for_a_missing_route():
    missing = {
        "error": {"message": "Previous response with id 'resp_1' not found.", "code": "x", "param": "y"}
    }
    with OtherRoutes(responses=status(404, missing)) as up, Running(up.url) as gate:
        for _ in range(2):
            answer = gate.ask({**ASK, "previous_response_id": "resp_1"}, path=PATH)
            assert (answer.status, answer.json) == (404, missing)
        assert len(up.of(PATH)) == 2


def test_a_flat_error_about_a_model_does_not_switch_the_route_off():
    flat = {"object": "error", "message": "The model `zz` does not exist.", "code": 404}

    def answer(request: Any, received: Any) -> Any:
        known = json.loads(received.body)["model"] == "m"
        return status(200 if known else 404, NATIVE if known else flat)(request, received)

    with OtherRoutes(responses=answer) as up, Running(up.url) as gate:
        for model, code in (("zz", 404), ("m", 200)):
            assert gate.ask({"model": model, "input": "x", "background": True}, path=PATH).status == code


NATIVE = {"id": "resp_native", "object": "response", "usage": {"input_tokens": 3, "output_tokens": 4}}
CHAT_ROUTE = "/v1/chat/completions"
ONLY = "This model is only supported in v1/responses and not in v1/chat/completions."
REFUSAL = {"message": ONLY, "type": "invalid_request_error", "param": "model", "code": None}


def test_what_is_to_be_stored_is_passed_on_with_a_note_and_all_else_is_voted_on():
    chat = status(200, whole({"content": "The answer is 42."}).body)
    routes = {"responses": status(200, NATIVE), "chat/completions": chat}
    with OtherRoutes(**routes) as up, Running(up.url) as gate:
        raw = sdk(gate).responses.with_raw_response.create(model="m@3", input="x", store=True)
        assert raw.parse().id == "resp_native"
        assert raw.headers["x-adacompute-note"] == "no vote: store needs the upstream's own /v1/responses"
        assert raw.headers.get_list("x-adacompute-note") == [raw.headers["x-adacompute-note"]]
        assert json.loads(up.of(PATH)[0].body) == {"model": "m", "input": "x", "store": True}
        assert not up.of(CHAT_ROUTE)
        for fields in ({}, {"store": False}, {"store": None}):
            answer = gate.ask({**ASK, **fields}, path=PATH)
            assert (answer.json["store"], answer.json["adacompute"]["votes"].keys()) == (False, {"42"})
        assert len(up.of(PATH)) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_to_be_stored_is_voted_on_where_the_upstream_has_no_such_route(stream: bool):
    with Upstream(Reply(texts=["The answer is 42."])) as up, Running(up.url) as gate:
        for _ in range(2):
            answer = gate.ask({**ASK, "store": True, "stream": stream}, path=PATH)
            final = events_of(answer.raw)[-1]["response"] if stream else answer.json
            assert (answer.status, final["store"]) == (200, False)
            assert final["adacompute"]["votes"].keys() == {"42"}
        assert gate.get("/dashboard/data").json["refused"] == {}
    routes = {"responses": status(200, NATIVE), "chat/completions": status(200, whole({"content": "4"}).body)}
    with OtherRoutes(**routes) as other, Running(other.url, forward=False) as gate:
        assert gate.ask({**ASK, "store": True}, path=PATH).json["store"] is False


@pytest.mark.parametrize("code", [400, 404])
@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_has_only_this_route_is_asked_there_and_remembered(code: int, stream: bool):
    def chat(request: Any, received: Any) -> Any:
        if json.loads(received.body)["model"] == "pro":
            return status(code, {"error": REFUSAL})(request, received)
        return status(200, whole({"content": "The answer is 42."}).body)(request, received)

    routes = {"responses": status(200, NATIVE), "chat/completions": chat}
    with OtherRoutes(**routes) as up, Running(up.url, mode="pass", unit="tokens", cap=1e6) as gate:
        for _ in range(3):
            answer = gate.ask({**ASK, "model": "pro", "stream": stream}, path=PATH)
            assert (answer.status, answer.json) == (200, NATIVE)
            assert answer.headers["x-adacompute-note"].startswith("no vote: model needs")
        assert len(up.of(CHAT_ROUTE)) == 1
        assert sdk(gate).responses.create(model="m", input="x").output_text == "The answer is 42."
        assert gate.gateway.resources.ledger.account().spent.tokens == 3 * 7 + 14
        assert gate.gateway.under_way == 0


def leave_stream(gate: Running, **fields: Any) -> None:
    """Asks for a stream, and leaves it when its first event has come."""
    stream = sdk(gate).responses.create(model="pro", input="Write a story.", stream=True, **fields)
    for event in stream:
        if event.type in ("response.output_text.delta", "response.queued"):
            break
    stream.close()
    until(lambda: not gate.gateway.under_way)


def test_c08_a_client_that_leaves_ends_the_upstream_s_stream_on_the_second_route_too():
    slow = Reply(texts=["word " * 200], pieces=100, gap=0.1)
    with Upstream(slow) as up, Running(up.url, mode="pass") as gate:
        leave_stream(gate, store=True)  # passed on in vain, then a chat
        until(lambda: up.count.aborted == 1)
    event = b'event: response.queued\ndata: {"type": "response.queued"}\n\n'
    refuse = status(404, {"error": REFUSAL})
    routes = {"responses": send_parts(*[event] * 300, gap=0.1), "chat/completions": refuse}
    with OtherRoutes(**routes) as other, Running(other.url) as gate:
        leave_stream(gate)  # a chat in vain, then passed on
        until(lambda: other.of(PATH)[0].aborted)


def test_the_refusal_stays_where_there_is_no_such_route():
    refuse = status(404, {"error": REFUSAL})
    for settings in ({}, {"forward": False}):
        with OtherRoutes(**{"chat/completions": refuse}) as up, Running(up.url, **settings) as gate:
            for _ in range(2):
                with pytest.raises(openai.NotFoundError, match="only supported in v1/responses"):
                    sdk(gate).responses.create(model="pro", input="x")
            assert len(up.of(PATH)) == (0 if settings else 1)


@pytest.mark.parametrize(
    ("code", "body", "expected"),
    [
        (404, b'{"detail":"Not Found"}', True),
        (404, b"404 page not found", True),
        (405, b'{"detail":"Method Not Allowed"}', True),
        (404, b'{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}', True),
        (404, b'{"error":{"message":"Invalid URL (POST /v1/responses)","param":null,"code":null}}', True),
        (404, b'{"error":{"message":"The model `x` does not exist","code":"model_not_found"}}', False),
        (404, b'{"error":{"message":"model not found"}}', False),
        (400, b'{"detail":"Not Found"}', False),
        (404, b'{"object":"error","message":"The model `zz` does not exist.","code":404}', False),
        (404, b'{"message":"x","code":"model_not_found"}', False),
        (404, b'{"error":"model \'zz\' not found"}', False),
        (404, b'{"detail":"Model zz not found"}', False),
        (404, b'{"object":"error","message":"Not Found","code":404}', True),
        (404, b'{"status":404,"error":"Not Found","path":"/v1/responses"}', True),
        (404, b'{"error":{"message":"Unknown request URL: POST /v1/responses","code":"unknown_url"}}', True),
        (404, b'"Not Found"', True),
    ],
)
def test_a_missing_route_is_told_from_what_it_says(code: int, body: bytes, expected: bool):
    assert is_route_missing(code, body) is expected


def test_stored_responses_are_the_upstream_s():
    stored = status(200, {"id": "resp_1", "object": "response"})
    routes = {
        "responses/resp_1": stored,
        "responses/resp_1/input_items": stored,
        "responses/resp_1/cancel": stored,
    }
    with OtherRoutes(**routes) as up, Running(up.url, cap=1) as gate:
        assert gate.get(f"{PATH}/resp_1").json["id"] == "resp_1"
        assert gate.get(f"{PATH}/resp_1/input_items?limit=2").status == 200
        assert gate.ask({}, path=f"{PATH}/resp_1/cancel").status == 200
        assert gate._send("DELETE", f"{PATH}/resp_1", None, {}).status == 200
        assert [one.method for one in up.requests if "resp_1" in one.path] == ["GET", "GET", "POST", "DELETE"]
        assert gate.gateway.resources.ledger.account().total.samples == 0


# the translation by itself


def translate(items: Any, **more: Any) -> dict[str, Any]:
    return translate_request({"model": "m", "input": items, **more})


def test_items_of_all_kinds_become_messages():
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"}
    file = {"type": "input_file", "file_data": "data:application/pdf;base64,AA", "filename": "a.pdf"}
    call = {
        "type": "function_call",
        "call_id": "c1",
        "name": "f",
        "arguments": "{}",
        "id": "fc_1",
        "status": "completed",
    }
    items = [
        {"role": "developer", "content": "Be kind."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "See"}, image, file]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        {
            "type": "message",
            "role": "assistant",
            "id": "msg_1",
            "status": "completed",
            "content": [{"type": "output_text", "text": "One moment.", "annotations": [], "logprobs": []}],
        },
        call,
        {**call, "call_id": "c2"},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "2"}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    ]
    messages = translate(items)["messages"]
    assert [message["role"] for message in messages] == [
        "developer",
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
    assert messages[1]["content"] == [
        {"type": "text", "text": "See"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA", "filename": "a.pdf"}},
    ]
    assert messages[2]["content"] == "One moment."
    assert [one["id"] for one in messages[2]["tool_calls"]] == ["c1", "c2"]
    assert [message["content"] for message in messages[3:5]] == ["1", "2"]
    assert messages[5] == {"role": "assistant", "content": None, "refusal": "No."}


def test_tool_choices_become_those_of_a_chat():
    named = translate("x", tools=[TOOL], tool_choice={"type": "function", "name": "get_weather"})
    assert named["tool_choice"] == {"type": "function", "function": {"name": "get_weather"}}
    other = {"type": "function", "name": "other"}
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "other"}]}
    chat = translate("x", tools=[TOOL, other], tool_choice=allowed)
    assert ([tool["function"]["name"] for tool in chat["tools"]], chat["tool_choice"]) == (
        ["other"],
        "required",
    )
    assert "tool_choice" not in translate("x", tool_choice="auto", parallel_tool_calls=True)
    with pytest.raises(UntranslatableRequest):
        translate("x", tools=[TOOL], tool_choice={"type": "mcp"})
    wrong_names: tuple[Any, ...] = (["x"], {}, None, 7)
    for name in wrong_names:
        wrong = {**allowed, "tools": [{"type": "function", "name": name}]}
        with pytest.raises(RequestInvalid, match=r"tool_choice\.tools\[0\]\.name"):
            translate("x", tools=[TOOL], tool_choice=wrong)
    with pytest.raises(RequestInvalid, match="tool_choice"):
        translate("x", tools=[TOOL], tool_choice="maybe")


def test_unknown_fields_go_upstream_as_they_came():
    assert translate("x", seed=7, top_k=3, service_tier="flex")["top_k"] == 3
    assert "metadata" not in translate("x", metadata={"a": "b"})
