"""POST /v1/chat/completions: a request checked and read, its reply or its events sent; how many at a time."""

import asyncio
import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from functools import lru_cache
from types import TracebackType
from typing import Any, Self

import numpy as np
import orjson
from starlette.types import Message, Receive, Scope, Send

from adacompute.client.large_json import encode_in_parts, run_in_thread
from adacompute.client.settings import is_loopback
from adacompute.config import KeyConfig, ServeConfig
from adacompute.errors import EndpointError, Overloaded, RequestInvalid, ServeError, Unauthorized
from adacompute.serve.messages.reply import (
    RequestOutcome,
    build_completion,
    build_error,
    build_headers,
    build_note_header,
    dump_json,
)
from adacompute.serve.messages.request_parser import ChatRequest, Route, build_request, choose_route
from adacompute.serve.routes.gateway import ActiveRequest, Gateway
from adacompute.serve.spending.ledger import Unit

_ID_KEY = "adacompute.id"  # key in the ASGI scope for the id of the completion
_JSON_HEADERS = {"content-type": "application/json"}
_STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # else a proxy such as nginx would hold it back
}
_STREAM_MODE = "x-adacompute-stream-mode"  # told before the vote has ended; the verdict is in the last chunk
_SEND_BYTES = 2**18  # so much of a reply's body is sent at once
_MAX_INLINE_BODY = 1_048_576  # bytes of a body that is parsed in the event loop
_MAX_HELD_BYTES = 2**30  # the bodies of all requests at the same time
_RECEIVING_FACTOR = 2  # bodies may be received for so many times max_requests
_RETRY_SECONDS = 1.0  # Retry-After of a gateway that is full
_LISTEN_SECONDS = 0.02  # after which the disconnect of a request's client is listened for

Authenticate = Callable[[Mapping[str, str]], str]  # headers -> the name of the client's key

_MAX_LENGTH_DIGITS = 15  # in Content-Length; a longer number exceeds every limit
_MAX_DEPTH = 200  # levels, whatever the settings say: deeper JSON can't be serialised again
_MAX_ESCAPES = 2_000_000  # backslashes of a body: each takes as long as a hundred plain characters
_MAX_VALUES = 50_000  # values of a body: parsing millions of tiny ones would block all other requests
_BRACKET_STEPS = bytes({0x5B: 1, 0x7B: 1, 0x5D: 255, 0x7D: 255}.get(byte, 0) for byte in range(256))
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_LONG_INTEGER = re.compile(rb"(?<![0-9.eE+])-?[0-9]{19,}+(?![.eE])")  # may be beyond 64 bits
_ZEROED_DIGITS = bytes(0x30 if byte in b"0123456789" else byte for byte in range(256))
_LONG_DIGITS = b"0" * 19  # what is left of a long integer then


class ClientDisconnected(Exception):
    """The client disconnected before its request was read or answered."""


_ANONYMOUS = "anonymous"  # the name of the key if the gateway has none
_KEY_REMEDY = "give it as Authorization: Bearer KEY"


class Keys:
    """All known keys. The time of a look-up doesn't reveal how much of a key was right."""

    def __init__(self, keys: Iterable[KeyConfig]) -> None:
        self._keys = [(_hash_secret(key.key.reveal()), key) for key in keys]

    def authenticate(self, headers: Mapping[str, str]) -> str:
        """The name of the client's key; Unauthorized if it has none, or if the Host isn't allowed."""
        return _ANONYMOUS if (key := self._find(headers)) is None else key.name

    def check_operator(self, headers: Mapping[str, str]) -> str:
        """The name of the operator's key; Unauthorized for another one. Without keys: nobody's."""
        key = self._find(headers)
        if key is not None and not key.operator:
            raise Unauthorized(
                f"key {key.name!r} may not see this; the operator's may: operator = true in the keys file",
                status=403,
                code="not_the_operator",
            )
        return _ANONYMOUS if key is None else key.name

    def _find(self, headers: Mapping[str, str]) -> KeyConfig | None:
        if self._keys:
            return self.identify(headers.get("authorization"))
        check_host(headers.get("host", ""))
        return None

    def identify(self, authorization: str | None) -> KeyConfig:
        """The key in an Authorization header; Unauthorized if it is missing or unknown.

        The header is `Bearer KEY`, or `Basic` with any user and the key as password.
        """
        if not authorization:
            raise Unauthorized(f"the request has no key; {_KEY_REMEDY}")
        presented = _hash_secret(_read_secret(authorization))
        match = None
        for digest, key in self._keys:  # all of them: where it stops would reveal which key it was
            if hmac.compare_digest(digest, presented):
                match = key
        if match is None:
            raise Unauthorized(f"the key in the request is not known; {_KEY_REMEDY}")
        return match


def _hash_secret(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _read_secret(authorization: str) -> str:
    """The key in a header's value."""
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
    """Without keys only names of this machine are served: a web page may point its own name here."""
    if host and not _is_loopback(f"//{host}"):  # HTTP/1.0 may have none; browsers always send one
        raise Unauthorized(
            f"Host {host[:100]!r} is not this machine; other names are served only with keys (keys_file)",
            status=403,
            code="host_not_allowed",
        )


# clients send the same host each time, and parsing takes 20 µs
_is_loopback = lru_cache(maxsize=256)(is_loopback)


def check_content_length(headers: Mapping[str, str], limit: int, setting: str = "max_body") -> None:
    """RequestInvalid with status 413 if Content-Length exceeds `limit` bytes, which `setting` allows.

    Names in `headers` are in lower case.
    """
    text = headers.get("content-length")
    if text is None:
        return
    if not (text.isascii() and text.isdigit()):
        raise RequestInvalid(f"Content-Length is {text[:60]!r}; give the number of bytes in the body")
    digits = text.lstrip("0")
    if len(digits) > _MAX_LENGTH_DIGITS or int(digits or "0") > limit:
        raise make_too_long_error(limit, setting)


def check_content_type(headers: Mapping[str, str]) -> None:
    """RequestInvalid with status 415 if the body isn't declared as plain JSON.

    Pages of other sites can make a browser send any content type but this without a preflight request.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestInvalid(
            f"Content-Type is {kind[:60]!r}; send JSON, and say so: application/json",
            status=415,
            code="unsupported_media_type",
        )
    check_content_encoding(headers)


def check_content_encoding(headers: Mapping[str, str]) -> None:
    """RequestInvalid with status 415 if the body is compressed."""
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise RequestInvalid(
            f"Content-Encoding is {encoding[:60]!r}; send the body uncompressed",
            status=415,
            code="unsupported_media_type",
        )


async def read_body(
    receive: Receive,
    headers: Mapping[str, str],
    *,
    limit: int,
    on_part: Callable[[int], None] | None = None,
) -> bytes:
    """The whole body, of at most `limit` bytes; a longer one is refused before it is in memory.

    `on_part` is called with the bytes of each part, and may raise.

    RequestInvalid as in `check_content_length`; ClientDisconnected if the client disconnects meanwhile.
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
        if chunk:  # empty ones take memory too, and there can be any number of them
            if on_part is not None:
                on_part(len(chunk))
            parts.append(chunk)
        if not event.get("more_body", False):
            return b"".join(parts)


def make_too_long_error(limit: int, setting: str = "max_body") -> RequestInvalid:
    """The error for a body of more bytes than a setting allows."""
    return RequestInvalid(
        f"the body is longer than {limit} bytes; send a shorter one, or ask the operator for a larger "
        f"{setting}",
        status=413,
        code="request_too_large",
    )


def parse_body(raw: bytes, settings: ServeConfig) -> dict[str, Any]:
    """The JSON object in a body; RequestInvalid if it is none, too large or too deep."""
    max_depth = min(settings.max_depth, _MAX_DEPTH)
    outside = b"" if _is_simple(raw, max_depth) else _remove_strings(raw)
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
        if not -(2**63) <= int(number[0]) < 2**64:  # it was parsed as the nearest float
            raise RequestInvalid(
                "the body has a number that 64 bits can't hold; send a smaller one, or a text"
            )
    if not isinstance(body, dict):
        raise RequestInvalid("the body is JSON, but no object; send one with model and messages")
    return body


def _is_simple(raw: bytes, max_depth: int) -> bool:
    """Whether JSON is certain to be neither large nor deep, and to have no long integer: as most is."""
    if len(raw) > _MAX_VALUES or raw.count(b"[") + raw.count(b"{") > max_depth:
        return False
    return _LONG_DIGITS not in raw.translate(_ZEROED_DIGITS)


def _remove_strings(raw: bytes) -> bytes:
    """What is outside of all strings of some JSON, without blanks.

    >>> _remove_strings(b'{"a[[": [[1], "]"]}')
    b'{:[[1],]}'
    """
    if raw.count(b"\\") > _MAX_ESCAPES:
        raise RequestInvalid(f"the body has more than {_MAX_ESCAPES:,} escaped characters; send fewer")
    if b'\\"' in raw:  # else every quote begins or ends a string; removing many escapes takes long
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    if raw.count(b'"') > 4 * _MAX_VALUES:  # counted first: splitting at millions of quotes takes long
        raise _make_too_many_error()
    return b"".join(raw.split(b'"')[::2]).translate(None, b" \t\r\n")


def _make_too_many_error() -> RequestInvalid:
    return RequestInvalid(f"the body has more than {_MAX_VALUES:,} values; send fewer")


def _measure_depth(outside: bytes) -> int:
    """Levels of nesting, found without a parser: a recursive one could crash on what it is to refuse.

    >>> _measure_depth(b"{:[[1],]}")
    3
    """
    steps = np.frombuffer(outside.translate(_BRACKET_STEPS, _NOT_BRACKETS), np.int8)
    return int(np.cumsum(steps, dtype=np.int32).max(initial=0))


class RequestSlots:
    """Counts the requests of all endpoints, and turns away those that are too many at the same time."""

    def __init__(self, max_requests: int) -> None:
        self._max_requests = max_requests
        self.receiving = 0  # requests whose bodies are being received
        self.bytes = 0  # the bodies of all requests, until their replies are sent
        self.active = 0  # requests in progress, until their replies are sent

    def check(self) -> None:
        """Overloaded if the gateway is full; requests whose bodies are still being received don't count."""
        if self.active >= self._max_requests:
            raise _make_overloaded(f"{self.active} requests are under way")

    def check_receiving(self) -> None:
        """Overloaded if too many bodies are being received."""
        if self.receiving >= _RECEIVING_FACTOR * self._max_requests:
            raise _make_overloaded(f"{self.receiving} requests are still being sent")


class RequestSlot:
    """What one request counts for among all: its body, and then itself, until its context ends.

    One object with three counts, because three contexts of generators took 10 µs of every request.
    """

    def __init__(self, slots: RequestSlots) -> None:
        self._slots = slots
        self._receiving = self._bytes = self._active = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.end_body()
        self._slots.bytes -= self._bytes
        self._slots.active -= self._active

    def begin_body(self) -> None:
        """Its body is being received from now on."""
        self._slots.check_receiving()
        self._slots.receiving += 1
        self._receiving = 1

    def add_bytes(self, size: int) -> None:
        """Counts so many bytes of its body; Overloaded if those of all requests together are too many."""
        slots = self._slots
        if slots.bytes + size > _MAX_HELD_BYTES:
            raise _make_overloaded(f"requests of {slots.bytes:,} bytes are under way")
        self._bytes += size
        slots.bytes += size

    def end_body(self) -> None:
        """Its body has been received."""
        self._slots.receiving -= self._receiving
        self._receiving = 0

    def activate(self) -> None:
        """It is in progress from now on; checked once more: others may have sent their bodies faster."""
        self._slots.check()
        self._slots.active += 1
        self._active = 1


def _make_overloaded(reason: str) -> Overloaded:
    return Overloaded(f"{reason}, which is the limit; try again in a moment", retry_after=_RETRY_SECONDS)


class DisconnectWatch:
    """Cancels what runs in its context if the client disconnects, and raises ClientDisconnected.

    Enter it once the whole body has been read: from then on the only message is the disconnect. It listens
    for that after a moment: a request that is answered sooner needs no task for it.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._disconnected = False
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._listener: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._timer = task.get_loop().call_later(_LISTEN_SECONDS, self._begin_to_listen)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # drop both references: a cancelled listener holds its frame, which holds this object, and that cycle
        # would keep the whole request in memory until the next garbage collection
        task, timer, listener = self._task, self._timer, self._listener
        self._task = self._timer = self._listener = None
        assert task is not None
        assert timer is not None
        timer.cancel()
        if listener is not None:
            listener.cancel()
        if self._disconnected and task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise ClientDisconnected from error

    def _begin_to_listen(self) -> None:
        self._listener = asyncio.ensure_future(self._listen())

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._disconnected = True
        if self._task is not None:
            self._task.cancel()


class ChatShape:
    """How requests and replies of an endpoint look; this is the shape of chat completions."""

    prefix = "chatcmpl-"  # ids begin with it
    # makes a chat's body out of a request's; None: it is one
    translate: Callable[[dict[str, Any]], dict[str, Any]] | None = None

    def build_reply(self, outcome: RequestOutcome, request: ChatRequest, *, unit: Unit) -> dict[str, Any]:
        """A whole reply."""
        return build_completion(outcome, request, unit=unit)

    def shape_events(
        self,
        active: ActiveRequest,  # noqa: ARG002 - other shapes need it
        events: AsyncGenerator[bytes, None],
    ) -> AsyncGenerator[bytes, None]:
        """The events of a stream, made of those of a chat completion."""
        return events


class ChatEndpoint:
    """An endpoint that completes chats, as an ASGI app; `shape` is how its requests and replies look."""

    def __init__(
        self,
        gateway: Gateway,
        authenticate: Authenticate,
        slots: RequestSlots,
        shape: ChatShape | None = None,
    ) -> None:
        self._gateway = gateway
        self._authenticate = authenticate
        self._slots = slots
        self._shape = ChatShape() if shape is None else shape

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request. Errors before the reply has begun are raised."""
        with RequestSlot(self._slots) as slot:
            try:
                request, route = await self._read_request(scope, receive, slot)
                slot.activate()
            except ServeError as exc:
                self._gateway.observability.on_refusal(exc.status, exc.code)
                raise
            await self._serve(request, route, scope, receive, send)

    async def _serve(
        self, request: ChatRequest, route: Route, scope: Scope, receive: Receive, send: Send
    ) -> None:
        with DisconnectWatch(receive):
            active = self._gateway.begin(request, route, prefix=self._shape.prefix)
            scope[_ID_KEY] = active.id
            if not request.stream:
                outcome = await self._gateway.complete(active)
                headers = {**_JSON_HEADERS, **build_headers(outcome)}
                if outcome.is_large:
                    await _send_parts(
                        send, headers, await run_in_thread(self._encode_reply, outcome, request)
                    )
                    return
                reply = self._shape.build_reply(outcome, request, unit=self._gateway.settings.unit)
                await send_reply(send, 200, headers, dump_json(reply))
                return
            send_events = _send_events_at_once if scope["http_version"] == "1.0" else _send_events
            events = self._shape.shape_events(active, self._gateway.stream(active))
            await send_events(send, events, lambda: _build_stream_headers(active))

    def _encode_reply(self, outcome: RequestOutcome, request: ChatRequest) -> list[bytes]:
        """A large reply as JSON, in parts."""
        reply = self._shape.build_reply(outcome, request, unit=self._gateway.settings.unit)
        return list(encode_in_parts(reply, dump_json))

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
        slot.begin_body()
        raw = await read_body(receive, headers, limit=settings.max_body, on_part=slot.add_bytes)
        slot.end_body()
        await gateway.resources.client.share.take_turn()
        if len(raw) <= _MAX_INLINE_BODY:
            request = self._parse(raw, headers)
        else:  # in a thread, so that it holds up nobody
            request = await asyncio.to_thread(self._parse, raw, headers)
        registry = gateway.policy_registry
        route = choose_route(
            request,
            headers,
            settings=settings,
            budget=gateway.budget,
            key=key,
            policies=registry.names,
            default=registry.default,
            modes=gateway.resources.modes,
        )
        return request, route

    def _parse(self, raw: bytes, headers: Mapping[str, str]) -> ChatRequest:
        """The request in a body."""
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
    """The headers of a stream, with what is known when it begins."""
    mode = {_STREAM_MODE: "first"} if active.delivery == "first" else {}
    return _STREAM_HEADERS | mode | build_note_header(active.sampling.list_notes())


def read_headers(scope: Scope) -> dict[str, str]:
    """A request's headers, whose names ASGI has in lower case; repeated ones are joined by a comma."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def get_reply_id(scope: Scope) -> str:
    """The id of the reply to a request: that of its completion, or a new one."""
    if _ID_KEY not in scope:
        scope[_ID_KEY] = f"req-{os.urandom(16).hex()}"
    return str(scope[_ID_KEY])


def has_begun(scope: Scope) -> bool:
    """Whether an endpoint has begun to serve a request: then it has reported what came of it."""
    return _ID_KEY in scope


async def send_reply(send: Send, status: int, headers: Mapping[str, str], body: bytes) -> None:
    """Sends a whole reply."""
    await send_start(send, {**headers, "content-length": str(len(body))}, status=status)
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _send_parts(send: Send, headers: Mapping[str, str], parts: list[bytes]) -> None:
    """Sends a whole reply of many parts, none of which is kept after it was sent."""
    await send_start(send, {**headers, "content-length": str(sum(map(len, parts)))})
    parts.reverse()
    while parts:
        await send_body(send, parts.pop(), last=not parts)


MakeHeaders = Callable[[], Mapping[str, str]]  # called when the first event is there


async def _send_events(send: Send, events: AsyncGenerator[bytes, None], make_headers: MakeHeaders) -> None:
    """Sends a reply of events. An error before the first is raised; after it, it is an event itself."""
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
    """The same for a client of HTTP/1.0, which can't read a reply of unknown length."""
    parts: list[bytes] = []

    async def collect(message: Message) -> None:
        parts.append(message.get("body", b""))

    await _send_events(collect, events, make_headers)
    await send_reply(send, 200, make_headers(), b"".join(parts))


async def send_start(send: Send, headers: Mapping[str, str], *, status: int = 200) -> None:
    """Sends the head of a reply."""
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})


async def send_body(send: Send, body: bytes, *, last: bool = False) -> None:
    """Sends a part of a reply's body; a large one in pieces, because each is copied at once."""
    sent = 0
    while len(body) - sent > _SEND_BYTES:
        part = body[sent : sent + _SEND_BYTES]
        await send({"type": "http.response.body", "body": part, "more_body": True})
        sent += len(part)
    await send({"type": "http.response.body", "body": body[sent:], "more_body": not last})
