"""The body of a request, never more of it in memory than is allowed. Doesn't know what is in it."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from adacompute.errors import RequestInvalid

__all__ = ["ClientGone", "body_of", "check_kind", "check_length"]

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]  # ASGI's

_DIGITS = 15  # of a length; more are more than any limit


class ClientGone(Exception):
    """The client went away before it had said what it wants."""


def check_length(headers: Mapping[str, str], limit: int) -> None:
    """RequestInvalid where the body is announced to be longer than `limit` bytes, with status 413.

    Names in `headers` are in lower case.
    """
    text = headers.get("content-length")
    if text is None:
        return
    if not (text.isascii() and text.isdigit()):
        raise RequestInvalid(f"Content-Length is {text[:60]!r}; give the number of bytes in the body")
    digits = text.lstrip("0")
    if len(digits) > _DIGITS or int(digits or "0") > limit:
        raise _too_long(limit)


def check_kind(headers: Mapping[str, str]) -> None:
    """RequestInvalid, with status 415, where the body isn't said to be plain JSON.

    Pages of other sites can make a browser send anything but this without being asked.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestInvalid(
            f"Content-Type is {kind[:60]!r}; send JSON, and say so: application/json",
            status=415,
            code="unsupported_media_type",
        )
    packed = headers.get("content-encoding", "identity").strip().lower()
    if packed != "identity":
        raise RequestInvalid(
            f"Content-Encoding is {packed[:60]!r}; send the body as it is",
            status=415,
            code="unsupported_media_type",
        )


async def body_of(receive: Receive, headers: Mapping[str, str], *, limit: int) -> bytes:
    """The whole body, of at most `limit` bytes; a longer one is refused before it is in memory.

    RequestInvalid as `check_length`; ClientGone where the client goes away meanwhile.
    """
    check_length(headers, limit)
    parts: list[bytes] = []
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientGone
        part = event.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_long(limit)
        if part:  # empty ones take memory, too, and there can be any number of them
            parts.append(part)
        if not event.get("more_body", False):
            return b"".join(parts)


def _too_long(limit: int) -> RequestInvalid:
    return RequestInvalid(
        f"the body is longer than {limit} bytes; send a shorter one", status=413, code="request_too_large"
    )
