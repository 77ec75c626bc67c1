"""Whatever bytes a server sends, a call ends in a reply or in one of our errors (c05)."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from client_runs import BODY, CountedClient, endpoint
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adacompute.client import Response, Retries, Timeouts
from adacompute.errors import EndpointError
from upstream import Behaviour, Garbage, Upstream

ONCE = Retries(attempts=1, deadline=5.0)
QUICK = Timeouts(first_byte=0.3, total=0.4)
HEAD = b"HTTP/1.1 200 OK\r\n"
LINES = st.sampled_from(
    [
        b"Content-Length: 5",
        b"Content-Length: 0",
        b"Content-Length: -1",
        b"Content-Length: 99999999999999999999",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: gzip",
        b"Content-Encoding: gzip",
        b"Content-Encoding: deflate",
        b"Content-Type: \xff\xfe",
        b"Set-Cookie: a=b; \x00",
        b"Location: \x01",
        b": empty",
        b"no colon",
        b"X: " + b"y" * 10_000,
    ]
)
wire = st.binary(max_size=200) | st.builds(
    lambda lines, rest: HEAD + b"\r\n".join(lines) + b"\r\n\r\n" + rest,
    st.lists(LINES, max_size=4),
    st.binary(max_size=60) | st.just(b"5\r\nhello\r\n0\r\n\r\n") | st.just(b"zz\r\nhello\r\n"),
)
WORDS = [
    "choices",
    "message",
    "content",
    "logprobs",
    "top_logprobs",
    "logprob",
    "usage",
    "finish_reason",
    "refusal",
    "completion_tokens",
    "prompt_tokens",
    "error",
    "detail",
    "reasoning_content",
    "tool_calls",
    "param",
    "msg",
]
names = st.sampled_from(WORDS)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
json_ = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4)
)
choice = st.fixed_dictionaries(
    {}, optional={"message": json_, "finish_reason": json_, "logprobs": json_, "error": json_}
) | st.fixed_dictionaries(
    {
        "message": st.fixed_dictionaries(
            {}, optional={"content": json_, "refusal": json_, "tool_calls": json_}
        )
    },
    optional={
        "finish_reason": json_,
        "logprobs": st.fixed_dictionaries({"content": st.lists(json_, max_size=3)}),
    },
)
completion = st.fixed_dictionaries(
    {"choices": st.lists(choice, max_size=3)},
    optional={"usage": json_ | st.dictionaries(names, leaves, max_size=4)},
)


def ends_well(behaviours: list[Behaviour]) -> list[Response]:
    """Asks once for each behaviour; only replies and our errors may come of it."""
    replies: list[Response] = []
    said: list[str] = []

    async def run() -> None:
        async with CountedClient(endpoint(up.url, retries=ONCE, timeouts=QUICK)) as client:
            for _ in behaviours:
                try:
                    reply = await client.call({**BODY, "logprobs": True}, n=2)
                    replies.extend(reply.responses)
                except EndpointError as error:
                    said.append(str(error))
            assert client.totals.calls >= len(behaviours)
            assert "cancelled" not in client.totals.kinds

    with Upstream(behaviours) as up:
        asyncio.run(run())
    assert all(len(text) < 600 and "\n" not in text for text in said)
    return replies


some = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])


@some
@given(st.lists(wire, min_size=5, max_size=5))
def test_c05_any_bytes_on_the_wire_end_in_a_reply_or_our_error(raws):
    ends_well([Garbage(whole=raw) for raw in raws])


@some
@given(st.lists(st.tuples(json_ | completion, st.sampled_from([200, 200, 200, 400, 422, 500])), min_size=8))
def test_c05_any_json_ends_in_a_reply_or_our_error(bodies):
    behaviours = [Garbage(raw=json.dumps(body).encode(), code=code) for body, code in bodies]
    for response in ends_well(behaviours):
        assert isinstance(response.text, str)
        assert response.tokens is not None
        assert response.tokens >= 0
        assert response.logprob is None or isinstance(response.logprob, float)
        assert response.to_sample().text is not None


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["choices"][0]["logprobs"]["content"][0].update(logprob=float("-inf")),
        lambda body: body["choices"][0]["message"].update(content="half \ud83d of a pair"),
        lambda body: body["usage"].update(completion_tokens=10**30),
        lambda body: body.update(created=float("nan")),
    ],
)
def test_json_that_only_python_writes_is_read_all_the_same(change: Callable[[dict[str, Any]], None]):
    body: dict[str, Any] = {
        "choices": [
            {"message": {"content": "42"}, "logprobs": {"content": [{"logprob": -1.0}, {"logprob": -0.5}]}}
        ],
        "usage": {"completion_tokens": 2, "prompt_tokens": 3},
    }
    change(body)
    (response,) = ends_well([Garbage(raw=json.dumps(body).encode())])
    assert response.logprob in (-0.5, -1.5)
    assert response.to_sample().text
