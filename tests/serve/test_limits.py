"""The body of a request: refused before more of it is in memory than is allowed."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacompute.errors import RequestInvalid
from adacompute.serve.routes.chat import (
    check_content_length,
    check_content_type,
    read_body,
)


class Wire:
    """ASGI's receive: gives parts of a body, and counts how many were taken."""

    def __init__(self, parts: Iterable[bytes], *, gone: bool = False) -> None:
        self.events: list[dict[str, Any]] = [
            {"type": "http.request", "body": part, "more_body": True} for part in parts
        ]
        if gone:
            self.events.append({"type": "http.disconnect"})
        elif self.events:
            self.events[-1]["more_body"] = False
        else:
            self.events.append({"type": "http.request"})
        self.taken = 0

    async def __call__(self) -> dict[str, Any]:
        self.taken += 1
        return self.events[self.taken - 1]


def read(wire: Wire, headers: dict[str, str] | None = None, *, limit: int = 10) -> bytes:
    return asyncio.run(read_body(wire, headers or {}, limit=limit))


@given(st.lists(st.binary(max_size=6), max_size=5))
@settings(max_examples=50, deadline=None)
def test_a_body_is_what_came_or_refused_as_too_long(parts: list[bytes]):
    whole, wire = b"".join(parts), Wire(parts)
    if len(whole) <= 10:
        assert read(wire) == whole
        return
    with pytest.raises(RequestInvalid) as caught:
        read(wire)
    assert caught.value.status == 413
    assert len(b"".join(parts[: wire.taken - 1])) <= 10


@pytest.mark.parametrize("length", ["", "-1", "+1", "1.0", "1e3", "ten", "1_0", "²", "٣", "1, 1", " 1"])
def test_a_malformed_length_is_refused(length: str):
    with pytest.raises(RequestInvalid, match="Content-Length") as caught:
        check_content_length({"content-length": length}, 10)
    assert caught.value.status == 400


def test_only_plain_json_is_taken():
    check_content_type({"content-type": "application/json"})
    check_content_type({"content-type": "Application/JSON; charset=utf-8", "content-encoding": "identity"})
    check_content_type({"content-type": 'application/json;odata=verbose; charset="UTF8"; x=1'})
    for headers in (
        {},
        {"content-type": "application/json; charset=utf-7"},
        {"content-type": "application/json; charset = utf-8x"},
        {"content-type": "application/json; charset=utf-8; charset=utf-16"},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ):
        with pytest.raises(RequestInvalid) as caught:
            check_content_type(headers)
        assert caught.value.status == 415
