"""POST /v1/chat/completions: reads a request, sends its reply or events, and limits concurrency."""

import asyncio
import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np
import orjson
from starlette.types import Message, Receive, Scope, Send

from adacompute.client.large_json import run_in_thread
from adacompute.client.settings import is_loopback
from adacompute.config import KeyConfig, ServeConfig
from adacompute.errors import EndpointError, Overloaded, RequestInvalid, ServeError, Unauthorized
from adacompute.records import Secret
from adacompute.serve.messages.reply import (
    RequestOutcome,
    build_completion,
    build_error,
    build_headers,
    build_note_header,
    dump_json,
)
from adacompute.serve.messages.request_parser import ChatRequest, Route, build_request
from adacompute.serve.routes.gateway import ActiveRequest, Gateway
from adacompute.serve.spending.ledger import Unit

_ID_KEY = "adacompute.id"  # ASGI scope key for the completion's id
_JSON_HEADERS = {"content-type": "application/json"}
_STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # keeps proxies such as nginx from buffering
}
_STREAM_MODE = "x-adacompute-stream-mode"  # reply header; it is "first" if a stream begins before the vote
_SEND_BYTES = 2**18  # number of bytes of a reply's body that are sent at a time
_MAX_INLINE_BODY = 1_048_576  # size in bytes; a body above this is parsed in a thread
_MAX_HELD_BYTES = 2**30  # maximum size of the bodies of all requests in flight together, in bytes
# maximum number of bodies being received at the same time, as a multiple of the setting `max_requests`
_RECEIVING_FACTOR = 2
_RETRY_SECONDS = 1.0  # value of Retry-After in replies that refuse a request because the gateway is full
_LISTEN_SECONDS = 0.02  # seconds before a request starts listening for its client's disconnect

Authenticate = Callable[[Mapping[str, str]], KeyConfig]  # finds the client's key in a request's headers

_CONTENT_LENGTH = re.compile("0*([0-9]+)")
_MAX_LENGTH_DIGITS = 15  # maximum number of digits in Content-Length; longer numbers exceed every limit
_MAX_DEPTH = 200  # maximum nesting depth: deeper JSON couldn't be serialised again
# maximum number of backslashes in a body: parsing one takes as long as a hundred plain characters
_MAX_ESCAPES = 2_000_000
# maximum number of values in a body: parsing millions of tiny ones would block other requests
_MAX_VALUES = 50_000
_BRACKET_STEPS = bytes({0x5B: 1, 0x7B: 1, 0x5D: 255, 0x7D: 255}.get(byte, 0) for byte in range(256))
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_LONG_INTEGER = re.compile(rb"(?<![0-9.eE+])-?[0-9]{19,}+(?![.eE])")  # an integer that may exceed 64 bits
_ZEROED_DIGITS = bytes(0x30 if byte in b"0123456789" else byte for byte in range(256))
_LONG_DIGITS = b"0" * 19  # any long integer contains this, if all its digits are first replaced by 0


class ClientDisconnected(Exception):
    """The client disconnected before its request was read or answered."""


# every client's key if the gateway has no keys
_ANONYMOUS = KeyConfig(name="anonymous", key=Secret(""), operator=True)
_KEY_REMEDY = "give it as Authorization: Bearer KEY"


class Keys:
    """All clients' keys. The time of a lookup doesn't reveal how much of a guessed key is right."""

    def __init__(self, keys: Iterable[KeyConfig]) -> None:
        self._keys = [(_hash_secret(key.key.reveal()), key) for key in keys]

    def authenticate(self, headers: Mapping[str, str]) -> KeyConfig:
        """Returns the client's key; raises Unauthorized if the key or the Host is refused."""
        if self._keys:
            return self.identify(headers.get("authorization"))
        check_host(headers.get("host", ""))
        return _ANONYMOUS

    def check_operator(self, headers: Mapping[str, str]) -> str:
        """Returns the name of the client's key; raises Unauthorized if the key isn't an operator's.

        If the gateway has no keys, everyone is an operator with the name "anonymous".
        """
        key = self.authenticate(headers)
        if not key.operator:
            raise Unauthorized(
                f"key {key.name!r} may not see this; the operator's may: operator = true in the keys file",
                status=403,
                code="not_the_operator",
            )
        return key.name

    def identify(self, authorization: str | None) -> KeyConfig:
        """Finds the key in an Authorization header; raises Unauthorized if it is missing or unknown.

        The header is `Bearer KEY`, or `Basic` with any user and the key as the password.
        """
        if not authorization:
            raise Unauthorized(f"the request has no key; {_KEY_REMEDY}")
        presented = _hash_secret(_read_secret(authorization))
        match = None
        # checks all keys: stopping early would reveal by its timing which key matched
        for digest, key in self._keys:
            if hmac.compare_digest(digest, presented):
                match = key
        if match is None:
            raise Unauthorized(f"the key in the request is not known; {_KEY_REMEDY}")
        return match


def _hash_secret(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _read_secret(authorization: str) -> str:
    """Reads the key from the value of an Authorization header."""
    scheme, _, rest = authorization.strip().partition(" ")
    rest = rest.strip()
    if scheme.lower() == "bearer":
        return rest
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(rest, validate=True).decode("utf-8").partition(":")[2]
        except (binascii.Error, ValueError):
            raise Unauthorized(f"the request's Basic authorization can't be read; {_KEY_REMEDY}") from None
    raise Unauthorized(f"the request's authorization is neither Bearer nor Basic; {_KEY_REMEDY}")


def check_host(host: str) -> None:
    """Raises Unauthorized unless the Host header names this machine, as a defence against DNS rebinding."""
    if host and not is_loopback(f"//{host}"):  # HTTP/1.0 requests may have no Host; browsers always send it
        raise Unauthorized(
            f"Host {host[:100]!r} is not this machine; other names are served only with keys (keys_file)",
            status=403,
            code="host_not_allowed",
        )


def check_content_length(headers: Mapping[str, str], limit: int, setting: str = "max_body") -> None:
    """Raises RequestInvalid (status 413) if Content-Length exceeds `limit` bytes, set by `setting`.

    Names in `headers` are lower case.
    """
    text = headers.get("content-length")
    if text is None:
        return
    digits = _CONTENT_LENGTH.fullmatch(text)
    if digits is None:
        raise RequestInvalid(f"Content-Length is {text[:60]!r}; give the number of bytes in the body")
    if len(digits[1]) > _MAX_LENGTH_DIGITS or int(digits[1]) > limit:
        raise make_too_long_error(limit, setting)


def check_content_type(headers: Mapping[str, str]) -> None:
    """Raises RequestInvalid (status 415) unless the body is declared as plain JSON in UTF-8.

    Other sites' pages can make a browser send forms and plain text without a preflight request, but not JSON.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestInvalid(
            f"Content-Type is {kind[:60]!r}; send JSON, and say so: application/json",
            status=415,
            code="unsupported_media_type",
        )
    check_content_encoding(headers)


# an upstream may read such a body differently; in UTF-7, for example, "+AG4-" is the field n
_FOREIGN_CHARSET = re.compile(r'charset\s*=\s*(?!"?utf-?8"?\s*(?:[;,]|$))', re.IGNORECASE)


def check_content_encoding(headers: Mapping[str, str]) -> None:
    """Raises RequestInvalid (status 415) if the body is compressed, or its text isn't UTF-8."""
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        problem = f"Content-Encoding is {encoding[:60]!r}; send the body uncompressed"
    elif _FOREIGN_CHARSET.search(kind := headers.get("content-type", "")):
        problem = f"Content-Type is {kind[:60]!r}; send the body in UTF-8"
    else:
        return
    raise RequestInvalid(problem, status=415, code="unsupported_media_type")


async def read_body(
    receive: Receive,
    headers: Mapping[str, str],
    *,
    limit: int,
    on_part: Callable[[int], None] | None = None,
) -> bytes:
    """Reads the whole body. Raises RequestInvalid as soon as it exceeds `limit` bytes.

    `on_part` is called with the size of each part, and may raise an error to refuse the request. Raises
    ClientDisconnected if the client disconnects.
    """
    check_content_length(headers, limit)
    parts: list[bytes] = []
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientDisconnected
        chunk = event.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise make_too_long_error(limit)
        if chunk:  # drops empty parts: they take memory, too, and a client might send them endlessly
            if on_part is not None:
                on_part(len(chunk))
            parts.append(chunk)
        if not event.get("more_body", False):
            return b"".join(parts)


def make_too_long_error(limit: int, setting: str = "max_body") -> RequestInvalid:
    """Makes the error for a body larger than a setting allows."""
    return RequestInvalid(
        f"the body is longer than {limit} bytes; send a shorter one, or ask the operator for a larger "
        f"{setting}",
        status=413,
        code="request_too_large",
    )


def parse_body(raw: bytes, settings: ServeConfig) -> dict[str, Any]:
    """Parses a body as a JSON object; raises RequestInvalid if it isn't one, or is too large or too deep."""
    max_depth = min(settings.max_depth, _MAX_DEPTH)
    outside = b"" if _is_simple(raw, max_depth) else _remove_strings(raw)
    if outside:
        openings = outside.count(b"[") + outside.count(b"{")
        if outside.count(b",") + openings > _MAX_VALUES:
            raise _make_too_many_error()
        if openings > max_depth and _measure_depth(outside) > max_depth:
            raise RequestInvalid(f"the body is nested more than {max_depth} levels deep; send it flatter")
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as exc:
        raise RequestInvalid(f"the body is not JSON ({exc.msg} at {exc.pos}); send a JSON object") from None
    for number in _LONG_INTEGER.finditer(outside):
        if not -(2**63) <= int(number[0]) < 2**64:  # the parser has rounded this number to a float
            raise RequestInvalid(
                "the body has a number that 64 bits can't hold; send a smaller one, or a text"
            )
    if not isinstance(body, dict):
        raise RequestInvalid("the body is JSON, but no object; send one with model and messages")
    return body


def _is_simple(raw: bytes, max_depth: int) -> bool:
    """A quick check that most bodies pass: whether JSON has few values, little nesting, no long integers."""
    if len(raw) > _MAX_VALUES or raw.count(b"[") + raw.count(b"{") > max_depth:
        return False
    return _LONG_DIGITS not in raw.translate(_ZEROED_DIGITS)


def _remove_strings(raw: bytes) -> bytes:
    """Removes strings and spaces from JSON.

    >>> _remove_strings(b'{"a[[": [[1], "]"]}')
    b'{:[[1],]}'
    """
    if raw.count(b"\\") > _MAX_ESCAPES:
        raise RequestInvalid(f"the body has more than {_MAX_ESCAPES:,} escaped characters; send fewer")
    if b'\\"' in raw:  # only if needed: removing many escapes is slow
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    if raw.count(b'"') > 4 * _MAX_VALUES:  # checked first: splitting at millions of quotes is slow
        raise _make_too_many_error()
    return b"".join(raw.split(b'"')[::2]).translate(None, b" \t\r\n")


def _make_too_many_error() -> RequestInvalid:
    return RequestInvalid(f"the body has more than {_MAX_VALUES:,} values; send fewer")


def _measure_depth(outside: bytes) -> int:
    """Counts nesting levels without a parser: a recursive parser could crash on very deep JSON.

    >>> _measure_depth(b"{:[[1],]}")
    3
    """
    steps = np.frombuffer(outside.translate(_BRACKET_STEPS, _NOT_BRACKETS), np.int8)
    return int(np.cumsum(steps, dtype=np.int32).max(initial=0))


class RequestSlots:
    """Counts the requests of all endpoints, and refuses those above the concurrency limit."""

    def __init__(self, max_requests: int) -> None:
        self.max_requests = max_requests
        self.receiving = 0  # number of requests whose bodies are being received
        self.bytes = 0  # total size of the bodies of requests whose replies aren't sent yet
        self.active = 0  # number of requests that are being served, until their replies are sent

    def check(self) -> None:
        """Raises Overloaded if the gateway is full; requests whose bodies are being received don't count."""
        if self.active >= self.max_requests:
            raise _make_overloaded(f"{self.active} requests are under way")


class RequestSlot:
    """Counts one request in `RequestSlots`: while its body is received, and then until the request ends."""

    def __init__(self, slots: RequestSlots) -> None:
        self._slots = slots
        self._bytes = self._active = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._slots.bytes -= self._bytes
        self._slots.active -= self._active

    async def read_body(self, receive: Receive, headers: Mapping[str, str], *, limit: int) -> bytes:
        """Like the function `read_body`; raises Overloaded if too many bodies are being received."""
        slots = self._slots
        if slots.receiving >= _RECEIVING_FACTOR * slots.max_requests:
            raise _make_overloaded(f"{slots.receiving} requests are still being sent")
        slots.receiving += 1
        try:
            return await read_body(receive, headers, limit=limit, on_part=self._add_bytes)
        finally:
            slots.receiving -= 1

    def _add_bytes(self, size: int) -> None:
        """Counts bytes of the request's body; raises Overloaded if all requests together have too many."""
        slots = self._slots
        if slots.bytes + size > _MAX_HELD_BYTES:
            raise _make_overloaded(f"requests of {slots.bytes:,} bytes are under way")
        self._bytes += size
        slots.bytes += size

    def activate(self) -> None:
        """Counts the request as in flight; raises Overloaded if the gateway has become full meanwhile."""
        self._slots.check()
        self._slots.active += 1
        self._active = 1


def _make_overloaded(reason: str) -> Overloaded:
    return Overloaded(f"{reason}, which is the limit; try again in a moment", retry_after=_RETRY_SECONDS)


class DisconnectWatch:
    """Cancels the code inside its `with` block if the client disconnects, and raises ClientDisconnected.

    Enter the block after reading the whole body: then the disconnect is the only ASGI message that can
    follow. It is awaited by a task, which starts after a moment, because quick requests need none.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._disconnected = False
        self._task: asyncio.Task[Any] | None = None
        self._listener: asyncio.TimerHandle | asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._listener = task.get_loop().call_later(_LISTEN_SECONDS, self._begin_to_listen)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Breaks a reference cycle, because a cancelled listener refers to this object. The cycle would keep
        # the whole request in memory until the next garbage collection.
        task, listener = self._task, self._listener
        self._task = self._listener = None
        assert task is not None
        assert listener is not None
        listener.cancel()
        if self._disconnected and task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise ClientDisconnected from error

    def _begin_to_listen(self) -> None:
        self._listener = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._disconnected = True
        if self._task is not None:
            self._task.cancel()


class ChatShape:
    """The format of an endpoint's requests and replies. This class has the format of chat completions."""

    prefix = "chatcmpl-"  # prefix of replies' ids
    # converts a request's body to that of a chat completion; None: it needn't be converted
    translate: Callable[[dict[str, Any]], dict[str, Any]] | None = None

    def build_reply(self, outcome: RequestOutcome, request: ChatRequest, *, unit: Unit) -> dict[str, Any]:
        """Builds a complete reply."""
        return build_completion(outcome, request, unit=unit)

    def shape_events(
        self,
        active: ActiveRequest,  # noqa: ARG002 - other shapes need it
        events: AsyncGenerator[bytes, None],
    ) -> AsyncGenerator[bytes, None]:
        """Converts a chat completion's stream events to this format; for chats, returns them unchanged."""
        return events


class ChatEndpoint:
    """A chat endpoint as an ASGI app; `shape` is the format of its requests and replies."""

    def __init__(
        self, gateway: Gateway, authenticate: Authenticate, slots: RequestSlots, shape: ChatShape
    ) -> None:
        self._gateway = gateway
        self._authenticate = authenticate
        self._slots = slots
        self._shape = shape

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request. Raises errors that happen before the reply has begun."""
        with RequestSlot(self._slots) as slot:
            try:
                request, route = await self._read_request(scope, receive, slot)
                slot.activate()
            except ServeError as exc:
                self._gateway.observability.on_refusal(exc.status, exc.code)
                raise
            with DisconnectWatch(receive):
                active = self._gateway.begin(request, route, prefix=self._shape.prefix)
                scope[_ID_KEY] = active.id
                if not request.stream:
                    outcome = await self._gateway.complete(active)
                    encode = partial(self._encode_reply, outcome, request)
                    reply = await run_in_thread(encode) if outcome.is_large else encode()
                    await send_reply(send, 200, {**_JSON_HEADERS, **build_headers(outcome)}, reply)
                    return
                send_events = _send_events_at_once if scope["http_version"] == "1.0" else _send_events
                events = self._shape.shape_events(active, self._gateway.stream(active))
                await send_events(send, events, lambda: _build_stream_headers(active))

    def _encode_reply(self, outcome: RequestOutcome, request: ChatRequest) -> bytes:
        return dump_json(self._shape.build_reply(outcome, request, unit=self._gateway.settings.unit))

    async def _read_request(
        self, scope: Scope, receive: Receive, slot: RequestSlot
    ) -> tuple[ChatRequest, Route]:
        gateway, settings = self._gateway, self._gateway.settings
        headers = read_headers(scope)
        key = self._authenticate(headers)
        if not gateway.ready:
            raise Overloaded("the gateway is closing down; try again in a moment", retry_after=_RETRY_SECONDS)
        self._slots.check()
        check_content_type(headers)
        raw = await slot.read_body(receive, headers, limit=settings.max_body)
        await gateway.resources.client.share.take_turn()
        if len(raw) <= _MAX_INLINE_BODY:
            request = self._parse(raw, headers)
        else:  # in a thread, so that other requests aren't delayed
            request = await asyncio.to_thread(self._parse, raw, headers)
        return request, gateway.choose_route(request, headers, settings=settings, key=key.name)

    def _parse(self, raw: bytes, headers: Mapping[str, str]) -> ChatRequest:
        """Parses a body into a request."""
        gateway = self._gateway
        return build_request(
            parse_body(raw, gateway.settings),
            settings=gateway.settings,
            headers=headers,
            default_model=gateway.model,
            known_models=gateway.model_list.known,
            translate=self._shape.translate,
        )


def _build_stream_headers(active: ActiveRequest) -> dict[str, str]:
    """Builds the headers of a stream from what is known at its beginning."""
    mode = {_STREAM_MODE: "first"} if active.delivery == "first" else {}
    return _STREAM_HEADERS | mode | build_note_header(active.sampling.list_notes())


def read_headers(scope: Scope) -> dict[str, str]:
    """Reads a request's headers, with lower-case names as in ASGI; repeated headers are joined by a comma."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def get_reply_id(scope: Scope) -> str:
    """Returns the id of a request's reply: the completion's id, or a new one."""
    if _ID_KEY not in scope:
        scope[_ID_KEY] = f"req-{os.urandom(16).hex()}"
    return str(scope[_ID_KEY])


def has_begun(scope: Scope) -> bool:
    """Whether an endpoint has begun to serve a request; if so, the endpoint reports its outcome itself."""
    return _ID_KEY in scope


async def send_reply(send: Send, status: int, headers: Mapping[str, str], body: bytes) -> None:
    """Sends a complete reply."""
    await send_start(send, {**headers, "content-length": str(len(body))}, status=status)
    await send({"type": "http.response.body", "body": body, "more_body": False})


MakeHeaders = Callable[[], Mapping[str, str]]  # builds a stream's headers when its first event is ready


async def _send_events(send: Send, events: AsyncGenerator[bytes, None], make_headers: MakeHeaders) -> None:
    """Sends a stream of events. An error before the first event is raised; later errors become events."""
    async with aclosing(events):
        first = await anext(events)
        await send_start(send, make_headers())
        await send_body(send, first)
        try:
            async for event in events:
                await send_body(send, event)
        except (ServeError, EndpointError) as exc:
            await send_body(send, b"data: " + build_error(exc)[2] + b"\n\n")
    await send_body(send, b"", last=True)


async def _send_events_at_once(
    send: Send, events: AsyncGenerator[bytes, None], make_headers: MakeHeaders
) -> None:
    """Like `_send_events`, for HTTP/1.0 clients, which can't read replies of unknown length."""
    parts: list[bytes] = []

    async def collect(message: Message) -> None:
        parts.append(message.get("body", b""))

    await _send_events(collect, events, make_headers)
    await send_reply(send, 200, make_headers(), b"".join(parts))


async def send_start(send: Send, headers: Mapping[str, str], *, status: int = 200) -> None:
    """Sends a reply's status and headers."""
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})


async def send_body(send: Send, body: bytes, *, last: bool = False) -> None:
    """Sends a part of a reply's body. Splits a large part, because the server copies what it is given."""
    sent = 0
    while len(body) - sent > _SEND_BYTES:
        part = body[sent : sent + _SEND_BYTES]
        await send({"type": "http.response.body", "body": part, "more_body": True})
        sent += len(part)
    await send({"type": "http.response.body", "body": body[sent:], "more_body": not last})
