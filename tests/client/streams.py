"""What tests of streams share: reading one to its end, and an upstream that sends given events."""

import json

import pytest
from client_runs import BODY, run_client

from adacompute.client import Retries
from adacompute.errors import EndpointError
from upstream import Garbage

ONCE = Retries(attempts=1, first=0.01, deadline=20.0)


def chunk(delta=None, *, finish=None, index=0, **fields) -> dict:
    return {"choices": [{"index": index, "delta": delta or {}, "finish_reason": finish}], **fields}


def events(*values, done=True) -> Garbage:
    """An upstream that sends these events and no others."""
    data = [value if isinstance(value, str) else json.dumps(value) for value in values]
    raw = "".join(f"data: {one}\n\n" for one in [*data, *(["[DONE]"] if done else [])])
    return Garbage(raw=raw.encode(), content_type="text/event-stream")


async def read(client) -> None:
    async with client.stream(BODY) as stream:
        async for _ in stream:
            pass


def run_stream(script, body=None, *, deadline=None, optional=frozenset(), **settings):
    """Reads a stream to its end; what it gave, with the error where it broke off."""
    seen, told = [], []

    async def run(client, up):
        async with client.stream(
            {**BODY, **(body or {})}, deadline=deadline, on_call=told.append, optional=optional
        ) as stream:
            found.append(stream)
            try:
                async for event in stream:
                    assert b"\n" not in event.data
                    assert event.value is None or event.value == json.loads(event.data)
                    seen.append(event)
            except EndpointError as error:
                errors.append(error)
            assert stream.call is not None
            with pytest.raises(StopAsyncIteration):
                await anext(stream)

    found, errors = [], []
    done = run_client(script, run, **settings)
    (stream,) = found
    assert told == done.heard == list(stream.calls)
    assert stream.call == done.heard[-1]
    return done, stream, seen, errors[0] if errors else None


def texts(seen) -> dict[int, str]:
    said: dict[int, str] = {}
    for event in seen[:-1]:
        for choice in event.value["choices"]:
            said[choice["index"]] = said.get(choice["index"], "") + choice["delta"].get("content", "")
    return said
