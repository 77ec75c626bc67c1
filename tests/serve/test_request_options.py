"""What a request asks of the gateway itself: read in words or refused in words, and never sent upstream."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import OpenAI
from running import Running

from adacompute.config import ServeConfig
from adacompute.errors import RequestInvalid
from adacompute.records import Budget
from adacompute.serve.messages.request_parser import (
    ChatRequest,
    RequestOptions,
    Route,
    build_request,
    choose_route,
)
from upstream import Upstream

SETTINGS = ServeConfig()
BODY = {"model": "scripted", "messages": [{"role": "user", "content": "What is 6 times 7?"}]}
ALL = {
    "budget": 3,
    "policy": "maths",
    "mode": "pass",
    "deadline": 2.5,
    "extract": "json:city",
    "exclude": ["reason", "weather.note"],
    "stream_mode": "first",
}


def parse(options: Any = None, headers: dict[str, str] | None = None) -> ChatRequest:
    body = BODY if options is None else {**BODY, "adacompute": options}
    return build_request(body, settings=SETTINGS, headers=headers or {})


def route(options: Any = None, headers: dict[str, str] | None = None) -> Route:
    return choose_route(
        parse(options, headers),
        headers or {},
        settings=SETTINGS,
        budget=Budget(2.0),
        key="k",
        policies=("stopping", "maths"),
        default="stopping",
    )


def refused(options: Any = None, headers: dict[str, str] | None = None) -> RequestInvalid:
    with pytest.raises(RequestInvalid) as caught:
        route(options, headers)
    assert caught.value.status == 400
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    return caught.value


def test_options_of_the_body_are_taken_out_of_it():
    request = parse(ALL)
    assert request.body == BODY
    assert request.options == RequestOptions(
        **{**ALL, "exclude": ("reason", "weather.note"), "budget": 3}  # type: ignore[arg-type]
    )
    assert request.prompt_tokens == parse().prompt_tokens


def test_options_that_are_absent_or_null_are_the_operators():
    for options in (None, {}, dict.fromkeys(ALL)):
        assert parse(options).options == RequestOptions()


def test_headers_say_the_same_as_the_body():
    headers = {
        "x-adacompute-budget": "3",
        "x-adacompute-policy": "maths",
        "x-adacompute-mode": "pass",
        "x-adacompute-deadline": "2.5",
        "x-adacompute-extract": "json:city",
        "x-adacompute-exclude": "reason, weather.note",
        "x-adacompute-stream-mode": "first",
    }
    assert parse(None, headers).options == parse(ALL).options
    assert route(None, headers) == route(ALL)


def test_a_header_wins_over_the_body_option_by_option():
    options = parse({"extract": "boxed", "exclude": ["a"]}, {"x-adacompute-extract": "number"}).options
    assert (options.extract, options.exclude) == ("number", ("a",))


def test_a_route_follows_the_body_and_headers_win():
    found = route(ALL, {"x-adacompute-budget": "2"})
    assert (found.budget, found.policy, found.mode, found.deadline) == (2.0, "maths", "pass", 2.5)
    assert route({"budget": 99}, {}).notes == ("budget 99 is above the limit: it is 16",)
    with pytest.raises(RequestInvalid, match=r"adacompute\.policy is 'x'; give one of maths, stopping"):
        route({"policy": "x"}, {})
    with pytest.raises(RequestInvalid, match="x-adacompute-policy is 'x'"):
        route({"policy": "maths"}, {"x-adacompute-policy": "x"})


@pytest.mark.parametrize(
    ("options", "param", "words"),
    [
        ("auto", "adacompute", "give an object"),
        ([], "adacompute", "give an object"),
        ({"extracts": "auto"}, "adacompute.extracts", "known are budget, policy"),
        ({"budget": 0.5}, "adacompute.budget", "is 0.5; give the samples on average, from 1 to 16"),
        ({"budget": True}, "adacompute.budget", "from 1 to 16"),
        ({"budget": "3"}, "adacompute.budget", "from 1 to 16"),
        ({"deadline": 0}, "adacompute.deadline", "above 0"),
        ({"mode": "shadow"}, "adacompute.mode", "only pass"),
        ({"policy": ""}, "adacompute.policy", "name of a policy"),
        ({"extract": "box"}, "adacompute.extract", "is 'box'; give auto, boxed"),
        ({"extract": "json:"}, "adacompute.extract", "json:FIELD"),
        ({"extract": "regex:" + "a" * 301}, "adacompute.extract", "at most 300"),
        ({"extract": 3}, "adacompute.extract", "is 3"),
        ({"exclude": "reason"}, "adacompute.exclude", "give a list"),
        ({"exclude": ["a", 3]}, "adacompute.exclude[1]", "is 3"),
        ({"exclude": ["a"] * 33}, "adacompute.exclude", "at most 32"),
        ({"fields": [""]}, "adacompute.fields[0]", "1 to 200"),
        ({"fields": ["a"], "extract": "json:a"}, "fields", "give one of them"),
        ({"stream_mode": "now"}, "adacompute.stream_mode", "is 'now'; give wait or first"),
        ({"stream_mode": ["wait"]}, "adacompute.stream_mode", "give wait or first"),
    ],
)
def test_what_cannot_be_followed_is_refused_with_its_name_its_value_and_a_remedy(
    options: Any, param: str, words: str
):
    error = refused(options)
    assert (error.param, words in str(error)) == (param, True), str(error)


@pytest.mark.parametrize("name", ["extract", "exclude", "fields", "stream-mode"])
def test_an_empty_header_is_refused(name: str):
    assert (refused(None, {f"x-adacompute-{name}": " "}).param or "").startswith(f"x-adacompute-{name}")


def test_an_unknown_header_is_refused_before_anything_is_drawn():
    for name in ("x-adacompute-stream_mode", "x-adacompute-extracts"):
        assert "x-adacompute-stream-mode" in str(refused(None, {name: "wait"}))


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*ALL, "fields", "x"]), values, max_size=4) | values)
def test_c10_any_options_are_read_or_refused(options: Any):
    try:
        request = parse(options)
        route(options)
    except RequestInvalid:
        return
    assert "adacompute" not in request.body


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as up:
        yield up


@pytest.fixture(scope="module")
def client(upstream: Upstream) -> Iterator[OpenAI]:
    with Running(upstream.url) as gate, OpenAI(base_url=gate.url, api_key="any", max_retries=0) as made:
        yield made


def test_c11_the_sdk_sends_options_by_extra_body_and_extra_headers(client: OpenAI, upstream: Upstream):
    messages: Any = BODY["messages"]
    reply = client.chat.completions.create(
        model="scripted", messages=messages, extra_body={"adacompute": {"budget": 1}}
    )
    assert reply.model_extra is not None
    assert reply.model_extra["adacompute"]["samples"] == 1
    assert "adacompute" not in upstream.requests[-1].body
    assert not any(name.startswith("x-adacompute") for name in upstream.requests[-1].headers)
    before = upstream.count.requests
    with pytest.raises(openai.BadRequestError, match=r"adacompute\.extrac is not known"):
        client.chat.completions.create(
            model="scripted", messages=messages, extra_body={"adacompute": {"extrac": "auto"}}
        )
    with pytest.raises(openai.BadRequestError, match="give wait or first"):
        client.chat.completions.create(
            model="scripted", messages=messages, extra_headers={"x-adacompute-stream-mode": "never"}
        )
    assert upstream.count.requests == before
