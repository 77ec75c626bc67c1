"""Bytes to a request: nothing is dropped in silence, nothing but RequestInvalid is raised."""

import json
import math
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adacompute.config import ServeConfig
from adacompute.errors import RequestInvalid
from adacompute.policies.features import PROMPT_LIMIT
from adacompute.serve.messages.request_parser import MEDIA_TOKENS, ChatRequest, build_request
from adacompute.serve.routes.chat import parse_body

SETTINGS = ServeConfig()
USER = {"role": "user", "content": "What is 6 times 7?"}
BODY = {"model": "scripted", "messages": [USER]}
TAKEN = {"n", "stream", "stream_options"}


def parse(raw: bytes, *, settings: ServeConfig = SETTINGS, own: str = "") -> ChatRequest:
    return build_request(parse_body(raw, settings), settings=settings, default_model=own)


def ask(*, settings: ServeConfig = SETTINGS, own: str = "", **fields: Any) -> ChatRequest:
    return parse(orjson.dumps({**BODY, **fields}), settings=settings, own=own)


def refused(raw: bytes, **limits: Any) -> RequestInvalid:
    with pytest.raises(RequestInvalid) as caught:
        parse(raw, settings=ServeConfig(**limits), own="own")
    error = caught.value
    assert "\n" not in str(error)
    assert len(str(error)) < 500
    assert error.status == 400
    return error


def test_a_plain_request_goes_upstream_as_it_came():
    found = ask(temperature=0.7)
    assert found.body == {**BODY, "temperature": 0.7}
    assert found.prompt == "What is 6 times 7?"
    assert (found.n, found.stream, found.logprobs, found.json, found.no_vote_reason) == (
        1,
        False,
        False,
        False,
        "",
    )


def test_fields_that_nobody_here_has_heard_of_are_passed_on():
    vendors = {
        "top_k": 40,
        "min_p": 0.05,
        "stop": ["\n"],
        "user": "u",
        "store": True,
        "metadata": {"a": "b"},
        "logit_bias": {"5": -100},
        "frequency_penalty": 0.1,
        "reasoning_effort": "low",
        "seed": 7,
        "guided": {"deep": [[1, {"x": None}]]},
        "presence_penalty": None,
    }
    assert ask(**vendors).body == {**BODY, **vendors}


@pytest.mark.parametrize(
    ("name", "model", "budget"),
    [
        ("qwen", "qwen", None),
        ("qwen@2.5", "qwen", 2.5),
        ("qwen@1", "qwen", 1.0),
        ("qwen@1000", "qwen", 1000.0),
        ("org/qwen@v2@4", "org/qwen@v2", 4.0),
        ("@3", "own", 3.0),
        ("default@3", "own", 3.0),
        ("adacompute", "own", None),
        ("", "own", None),
        (None, "own", None),
        ("model@20240229", "model@20240229", None),
        ("model@2024", "model@2024", None),
        ("model@1e2", "model@1e2", None),
        ("model@2.", "model@2.", None),
        ("model@ 2", "model@ 2", None),
        ("model@٣", "model@٣", None),
        ("model@-2", "model@-2", None),
        ("model@nan", "model@nan", None),
    ],
)
def test_a_budget_is_taken_out_of_a_models_name_and_nothing_else(name: str | None, model: str, budget: float):
    found = ask(model=name, own="own")
    assert (found.body["model"], found.budget) == (model, budget)


def test_without_a_model_of_the_operators_the_client_has_to_name_one():
    for name in ("", None, "@2"):
        with pytest.raises(RequestInvalid, match="model is missing") as caught:
            ask(model=name)
        assert caught.value.param == "model"
    assert ask(model="default").body["model"] == "default"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"temperature": 0}, "temperature is 0: every sample would be the same"),
        ({"temperature": 0.0}, "temperature is 0: every sample would be the same"),
        ({"n": 3}, "n is 3: the client samples by itself"),
        ({"n": 3, "temperature": 0}, "n is 3: the client samples by itself"),
        ({"tools": [{"type": "function"}]}, ""),
        (
            {"tools": [{"type": "function"}], "temperature": 0},
            "temperature is 0: every sample would be the same",
        ),
        ({"tools": [], "temperature": None, "n": None}, ""),
        ({"n": 1, "temperature": 1e-9}, ""),
    ],
)
def test_what_leaves_no_room_for_a_vote_is_said(fields: dict[str, Any], why: str):
    found = ask(**fields)
    assert found.no_vote_reason == why
    assert found.body == {**BODY, **{name: value for name, value in fields.items() if name not in TAKEN}}


@pytest.mark.parametrize(
    ("fields", "use"),
    [
        ({}, ""),
        ({"tools": []}, ""),
        ({"tool_choice": "auto"}, ""),
        ({"tools": [{"type": "function"}]}, "may"),
        ({"tools": [{"type": "function"}], "tool_choice": "auto"}, "may"),
        ({"tools": [{"type": "function"}], "tool_choice": "none"}, ""),
        ({"tools": [{"type": "function"}], "tool_choice": "required"}, "must"),
        ({"tools": [{"type": "function"}], "tool_choice": {"type": "function"}}, "must"),
        ({"functions": [{"name": "f"}]}, "may"),
        ({"functions": [{"name": "f"}], "function_call": {"name": "f"}}, "must"),
        ({"functions": [{"name": "f"}], "function_call": "none"}, ""),
    ],
)
def test_whether_tools_may_or_must_be_called_is_noted(fields: dict[str, Any], use: str):
    assert ask(**fields).tools == use


def test_the_largest_of_several_limits_counts_and_the_operators_where_there_is_none():
    assert (ask().max_tokens, ask().has_token_limit) == (SETTINGS.max_tokens, False)
    found = ask(max_tokens=100, max_completion_tokens=50)
    assert (found.max_tokens, found.has_token_limit) == (100, True)
    assert (found.body["max_tokens"], found.body["max_completion_tokens"]) == (100, 50)
    assert ask(max_tokens=7, max_completion_tokens=None).max_tokens == 7


@pytest.mark.parametrize("field", ["n_predict", "num_predict", "max_new_tokens", "max_output_tokens"])
def test_c14_a_limit_that_only_some_servers_know_is_refused_and_the_right_one_named(field: str):
    error = refused(orjson.dumps({**BODY, "max_tokens": 9, field: 1}))
    assert (error.status, error.param) == (400, field)
    assert "give max_tokens" in str(error)
    assert ask(**{field: None}).has_token_limit is False


def test_a_stream_says_whether_it_wants_usage():
    found = ask(stream=True, stream_options={"include_usage": True, "include_obfuscation": False})
    assert (found.stream, found.include_usage) == (True, True)
    assert not TAKEN & found.body.keys()
    assert not ask(stream=True, stream_options=None).include_usage


@pytest.mark.parametrize(
    ("form", "json_wanted"),
    [
        (None, False),
        ({"type": "text"}, False),
        ({"type": "json_object"}, True),
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}, True),
        ({"type": "grammar", "grammar": "root ::= x"}, False),
    ],
)
def test_a_response_format_is_passed_on_and_noted(form: object, json_wanted: bool):
    found = ask(response_format=form)
    assert found.json is json_wanted
    assert found.body["response_format"] == form


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": "m@0.5"}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [USER, {"role": "robot", "content": ""}]}, "messages[1].role"),
        ({"messages": [{"content": ""}]}, "messages[0].role"),
        ({"messages": [{"role": ["user"], "content": ""}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": {"text": "x"}}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"model": 3}, "model"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"n": 2.0}, "n"),
        ({"n": True}, "n"),
        ({"n": "2"}, "n"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": False}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 32_769}, "max_tokens"),
        ({"max_completion_tokens": 1.5}, "max_completion_tokens"),
        ({"stream": "yes"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": []}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"continuous_usage_stats": True}}, "stream_options"),
        ({"logprobs": 5}, "logprobs"),
        ({"top_logprobs": 5}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"seed": 1.5}, "seed"),
        ({"seed": "x"}, "seed"),
        ({"tools": "x"}, "tools"),
        ({"functions": {}}, "functions"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": 1}}, "response_format.type"),
        ({"response_format": {"json_schema": {}}}, "response_format"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"modalities": "text"}, "modalities"),
        ({"audio": {"voice": "alloy"}}, "audio"),
        ({"prompt": "x"}, "prompt"),
        ({"suffix": "x"}, "suffix"),
        ({"echo": False}, "echo"),
        ({"best_of": 2}, "best_of"),
        ({"n_cmpl": 2}, "n_cmpl"),
        ({"num_return_sequences": 2}, "num_return_sequences"),
        ({"extra_body": {"n": 2}}, "extra_body.n"),
        ({"extra_body": {"top_k": 5, "Max_Tokens": 9}}, "extra_body.Max_Tokens"),
        ({"extra_body": {"extra_body": {}}}, "extra_body.extra_body"),
    ],
)
def test_what_cannot_be_is_refused_with_the_name_of_the_field(fields: dict[str, Any], param: str):
    assert refused(orjson.dumps({**BODY, **fields})).param == param


def test_a_silent_message_of_an_assistant_is_fine():
    messages = [USER, {"role": "assistant", "tool_calls": [{"id": "1"}]}, {"role": "tool", "content": "4"}]
    found = ask(messages=[*messages, {"role": "assistant", "content": None}])
    assert found.prompt == USER["content"]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b'"x"',
        b"{",
        b'{"a":1}}',
        b'{"messages":[{"role":"user","content":"\xff"}],"model":"m"}',
        b'{"messages":[{"role":"user","content":"\\ud800"}],"model":"m"}',
        b'{"temperature":NaN}',
        b'{"temperature":1e999}',
        b'\xef\xbb\xbf{"model":"m"}',
        "{}".encode("utf-16"),
        b"\\" * 1000,
        b'"' * 1001,
    ],
)
def test_what_is_no_json_object_is_refused(raw: bytes):
    refused(raw)


def test_a_number_that_would_go_upstream_changed_is_refused():
    for number in (b"18446744073709551616", b"-9223372036854775809", b"1" * 300):
        refused(b'{"model":"m","messages":[{"role":"user","content":""}],"seed":' + number + b"}")
        raw = b'{"model":"m","messages":[{"role":"user","content":""}],"x":[{"y":' + number + b"}]}"
        assert "64 bits" in str(refused(raw))
    assert ask(x=2**64 - 1, y=-(2**63), z="9" * 40, w=1e300).body["w"] == 1e300


def test_of_a_name_that_comes_twice_the_last_counts():
    raw = b'{"model":"a","messages":[{"role":"user","content":"x"}],"model":"b@2"}'
    found = parse(raw)
    assert (found.body["model"], found.budget) == ("b", 2.0)


def nested(levels: int, opened: bytes = b"[", closed: bytes = b"]") -> bytes:
    return opened * levels + closed * levels


@pytest.mark.parametrize(("opened", "closed"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"\\"]}":', b"}]")])
def test_c09_nesting_is_capped_without_recursing(opened: bytes, closed: bytes):
    a_turn = opened.count(b"[") + opened.count(b"{")
    head = b'{"model":"m","messages":[{"role":"user","content":"[[[[{{{{"}],"x":'
    fits = (32 - 1) // a_turn
    assert parse(head + nested(fits, opened, closed).replace(b":}", b":0}") + b"}")
    assert "32 levels" in str(
        refused(head + nested(fits + 1, opened, closed).replace(b":}", b":0}") + b"}", max_depth=32)
    )
    refused(opened * 500_000)
    assert "200 levels" in str(refused(head + nested(250) + b"}", max_depth=512))


def test_brackets_in_texts_are_no_nesting():
    for text in ("[" * 5000, '\\"' + "[" * 5000, "\\", '\\\\"[{' * 500, '"' * 500 + "{" * 500):
        assert ask(messages=[{"role": "user", "content": text}]).prompt == text


def test_c09_messages_choices_and_tokens_are_capped():
    messages = [USER] * 5
    assert len(ask(messages=messages, settings=ServeConfig(max_messages=5)).body["messages"]) == 5
    assert "at most 4" in str(refused(orjson.dumps({**BODY, "messages": messages}), max_messages=4))
    assert "1 to 2" in str(refused(orjson.dumps({**BODY, "n": 3}), max_n=2))
    assert "1 to 9" in str(refused(orjson.dumps({**BODY, "max_tokens": 10}), max_tokens=9))


def test_policies_read_the_last_user_messages_text_up_to_their_limit():
    parts = [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": "data:x"}},
        {"type": "text", "text": "b"},
    ]
    messages = [USER, {"role": "user", "content": parts}, {"role": "assistant", "content": "c"}]
    assert ask(messages=messages).prompt == "a\nb"
    assert ask(messages=[{"role": "system", "content": "c"}]).prompt == ""
    assert ask(messages=[{"role": "user", "content": "x" * 100_000}]).prompt == "x" * PROMPT_LIMIT


@given(st.lists(st.text(), min_size=1, max_size=4))
@settings(max_examples=50, deadline=None)
def test_the_bound_on_a_prompts_tokens_holds_for_every_tokenizer_of_bytes(texts: list[str]):
    found = ask(messages=[{"role": "user", "content": text} for text in texts])
    assert found.prompt_tokens == sum(len(text.encode()) for text in texts) + 16 * len(texts) + 64


def test_tools_and_calls_count_as_json_and_media_as_so_many_tokens():
    plain = ask().prompt_tokens
    tools = [{"type": "function", "function": {"name": "f", "description": "ü" * 100}}]
    assert ask(tools=tools).prompt_tokens >= plain + len(orjson.dumps(tools))
    called = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"a": "b" * 50}}]}
    assert ask(messages=[USER, called]).prompt_tokens >= plain + len(orjson.dumps(called["tool_calls"]))
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    found = ask(messages=[{"role": "user", "content": [image, image]}])
    assert found.prompt_tokens == 2 * MEDIA_TOKENS + 16 + 64
    odd = {"type": "odd", "odd": "A" * 100_000}
    assert ask(messages=[{"role": "user", "content": [odd]}]).prompt_tokens > 100_000


def test_c12_a_hostile_body_of_megabytes_is_read_in_a_blink():
    # not timed: these would take minutes, or the stack, if anything here were quadratic or recursed
    for text in ("\\" * 500_000, "[" * 1_000_000, "x@" * 500_000, "1" * 1_000_000):
        raw = orjson.dumps({"model": "m", "user": text, "messages": [{"role": "user", "content": text}]})
        assert parse(raw).body["user"] == text
        with pytest.raises(RequestInvalid, match=r"model is a name of \d+ characters"):
            parse(
                orjson.dumps({"model": text, "messages": [{"role": "user", "content": ""}]}),
            )
    for many in (b"[],", b"0,", b'"",', b'{"a":0},'):
        raw = b'{"model":"m","messages":[{"role":"user","content":"x"}],"x":[' + many * 60_000 + b"0]}"
        assert "50,000 values" in str(refused(raw))
    assert ask(messages=[{"role": "user", "content": "[,{" * 60_000}])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KNOWN = (
    "n stream stream_options temperature top_p max_tokens max_completion_tokens logprobs top_logprobs tools "
    "functions tool_choice response_format modalities audio seed best_of prompt stop user include_usage"
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "system", "assistant", "tool", "x"]) | JSON},
    optional={
        "content": st.text(max_size=9) | JSON | st.lists(st.fixed_dictionaries({"type": JSON, "text": JSON})),
        "name": JSON,
    },
)
REQUEST = st.fixed_dictionaries(
    {"model": st.text(max_size=8) | JSON, "messages": st.lists(MESSAGE, max_size=3) | JSON},
    optional={name: st.integers(0, 3) | st.booleans() | JSON for name in KNOWN.split()},
)


@given(REQUEST | JSON)
@settings(max_examples=300, deadline=None)
@example({"model": "m", "messages": [USER], "n": math.nan})
def test_c10_random_json_is_asked_or_refused_and_what_is_asked_is_what_came(body: Any):
    raw = json.dumps(body).encode()
    try:
        found = parse(raw, own="own")
    except RequestInvalid:
        refused(raw)
        return
    came = orjson.loads(raw)
    sent = {name: value for name, value in came.items() if name not in TAKEN}
    sent.pop("model", None)
    assert {name: value for name, value in found.body.items() if name != "model"} == sent
    orjson.dumps(found.body)


PLAUSIBLE = st.fixed_dictionaries(
    {
        "model": st.text(min_size=1, max_size=8),
        "messages": st.lists(
            st.fixed_dictionaries({"role": st.sampled_from(["user", "system"]), "content": st.text()}),
            min_size=1,
            max_size=3,
        ),
    },
    optional={
        "n": st.integers(1, 16),
        "temperature": st.floats(0, 2) | st.none(),
        "stream": st.booleans(),
        "max_tokens": st.integers(1, 32_768),
        "extra": JSON.filter(lambda value: "\ud800" not in repr(value)),
    },
)


@given(PLAUSIBLE)
@settings(max_examples=100, deadline=None)
def test_what_is_asked_rightly_is_never_refused(body: Any):
    try:
        raw = orjson.dumps(body)
    except TypeError:  # half surrogates and numbers beyond 64 bits
        return
    found = parse(raw, own="own")
    assert found.n == body.get("n", 1)
    assert found.stream == body.get("stream", False)


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_c10_random_bytes_are_refused(raw: bytes):
    refused(raw)
