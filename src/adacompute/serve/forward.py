"""Everything under /v1/ that the gateway doesn't answer itself goes to the same path at the upstream.

Nothing of it is voted on. Bodies of JSON are read whole, because they say what a request may cost; others,
such as uploads, are passed on while they come. Replies are passed on as they come.

What a request may cost is reserved before it is sent. What it did cost is what its reply says in `usage`; a
success that says nothing costs what was reserved. Reading, deleting and storing files is free.
"""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, quote_from_bytes, unquote_to_bytes, urlsplit

import orjson
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from adacompute.client import ForwardReply, ForwardRequest
from adacompute.client.response_parser import encode_json
from adacompute.config import ServeConfig
from adacompute.errors import CapReached, EndpointError, Overloaded, RequestInvalid, ServeError, Unauthorized
from adacompute.records import Call
from adacompute.serve.chat import (
    Authenticate,
    DisconnectWatch,
    Gateway,
    RequestSlots,
    get_reply_id,
    read_headers,
    send_body,
    send_reply,
    send_start,
)
from adacompute.serve.ledger import NO_SPEND, Reservation, Spend
from adacompute.serve.reply import CLIENT_GONE_STATUS, build_error
from adacompute.serve.request_parser import (
    MEDIA_TOKENS,
    ClientDisconnected,
    check_content_length,
    make_too_long_error,
    read_body,
)
from adacompute.serve.trace_context import read_trace_headers

__all__ = ["ForwardCost", "ForwardEndpoint", "ForwardTarget", "bound_cost", "parse_target"]

_log = logging.getLogger("adacompute.serve")
_CHAT_PATH = b"/v1/chat/completions"
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_FREE_METHODS = ("GET", "HEAD", "DELETE")
# the first words of paths, by which requests are counted; all others count as "other"
_ROUTES = frozenset(
    {
        *("completions", "embeddings", "moderations", "audio", "images", "videos", "files", "uploads"),
        *("models", "responses", "batches", "fine_tuning", "vector_stores", "messages", "rerank", "score"),
        *("chat", "conversations", "assistants", "threads", "evals", "containers", "realtime"),
    }
)
_FREE_ROUTES = ("files", "uploads")  # storing costs nothing; what is done with a file later does
_WITHOUT_OUTPUT = ("embeddings", "moderations", "rerank", "score")  # routes that generate nothing
_MEDIA_ROUTES = ("images", "audio", "videos")
# routes that start work whose cost nobody tells the gateway
_UNMETERED = ("batches", "fine_tuning", "threads", "evals", "realtime", "containers", "vector_stores")
_ADMINISTRATION = ("organization", "dashboard", "usage")  # of the operator's own account
_TOKEN_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_PROMPT_TOKENS = 64  # that a model's template may add
_MAX_VALUES = 200_000  # of a JSON body: more would hold up the event loop while they are parsed
_PASSED_HEADERS = (
    *("accept", "content-type", "range", "if-range", "if-none-match", "if-modified-since"),
    *("idempotency-key", "openai-beta", "anthropic-version", "anthropic-beta"),
)
_SAFE = "-._~!$&'()*+,;=:@"  # characters of a path that aren't encoded
_SAFE_QUERY = _SAFE + "/?%[]"
# a page of the upstream's, or a client's file, must not run as if it were the gateway's own
_SHIELD_HEADERS = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; sandbox",
    "cache-control": "no-store",
    "x-adacompute-note": "no vote: this route is passed on to the upstream",
}
_MAX_AT_ONCE = 64 * 2**20  # bytes of a reply for a client of HTTP/1.0, which gets it as a whole
_RETRY_SECONDS = 1.0


# of an upstream's error, its status and body: what to raise instead; None: it is passed on
ErrorCheck = Callable[[int, bytes], ServeError | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardTarget:
    """Where a request goes."""

    route: str  # the first word of its path, or "other"
    path: str  # below the upstream's address, percent-encoded
    free: bool  # costs nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardCost:
    """The most that a request may cost."""

    samples: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


def parse_target(method: str, raw_path: bytes) -> ForwardTarget:
    """The target of a path that begins with /v1/.

    HTTPException, as of a router, if there can't be such a route; RequestInvalid if it isn't passed on.

    >>> parse_target("POST", b"/v1/audio/transcriptions")
    ForwardTarget(route='audio', path='/audio/transcriptions', free=False)
    """
    segments = [unquote_to_bytes(part) for part in raw_path.removeprefix(b"/v1/").rstrip(b"/").split(b"/")]
    if raw_path == _CHAT_PATH:
        raise HTTPException(405, headers={"Allow": "POST"})
    if method not in _METHODS:
        raise HTTPException(405, headers={"Allow": ", ".join(_METHODS)})
    if any(map(_is_devious, segments)) or segments[0] in (b"", b"v1"):
        raise HTTPException(404)
    first = segments[0].decode("latin-1").lower()
    if first in _ADMINISTRATION:
        raise RequestInvalid(
            f"{method} /v1/{first} is not passed on: it is about the operator's own account",
            status=403,
            code="not_forwarded",
        )
    route = first if first in _ROUTES else "other"
    free = method in _FREE_METHODS or route in _FREE_ROUTES or segments[-1] == b"cancel"
    path = "".join("/" + quote_from_bytes(segment, safe=_SAFE) for segment in segments)
    return ForwardTarget(route=route, path=path, free=free)


def _is_devious(segment: bytes) -> bool:
    """Whether a decoded part of a path may lead elsewhere: up, by another separator, or decoded twice."""
    if re.search(rb"[\x00-\x1f\x7f\\]|%[0-9A-Fa-f]{2}", segment):
        return True
    return any(part.partition(b";")[0] in (b".", b"..") for part in segment.split(b"/"))


def bound_cost(target: ForwardTarget, body: object, size: int, settings: ServeConfig) -> ForwardCost:
    """The most that a request can cost, by its JSON (None: it has none) of `size` bytes.

    It counts as a sample for each choice of each prompt. Its prompt has at most a token a byte. A body
    that isn't JSON, an image and a recording count as so many tokens as a medium does in a chat.
    """
    if target.free:
        return ForwardCost()
    if not isinstance(body, Mapping):
        return ForwardCost(samples=1, prompt_tokens=MEDIA_TOKENS, completion_tokens=MEDIA_TOKENS)
    prompt = body.get("prompt")
    prompts = len(prompt) if isinstance(prompt, list) and prompt and not _is_number(prompt[0]) else 1
    samples = prompts * max([1, *(body[name] for name in ("n", "best_of") if _is_number(body.get(name)))])
    return ForwardCost(
        samples=samples,
        prompt_tokens=size + _PROMPT_TOKENS,
        completion_tokens=samples * _bound_completion(target, body, settings),
    )


def _bound_completion(target: ForwardTarget, body: Mapping[str, Any], settings: ServeConfig) -> int:
    """Tokens of one response."""
    if target.route in _WITHOUT_OUTPUT:
        return 0
    limits = [max(0, body[name]) for name in _TOKEN_LIMITS if _is_number(body.get(name))]
    return max(limits, default=MEDIA_TOKENS if target.route in _MEDIA_ROUTES else settings.max_tokens)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class UploadBody:
    """A body that is passed on while it comes, up to a size; also says when the client disconnects."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._ended = asyncio.Event()
        self._disconnected = False
        self.error: RequestInvalid | None = None  # why the upload was broken off

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, more = 0, True
        try:
            while more:
                event = await self._receive()
                if event["type"] == "http.disconnect":
                    self._disconnected = True
                    raise ClientDisconnected
                chunk, more = event.get("body", b""), event.get("more_body", False)
                size += len(chunk)
                if size > self._limit:
                    self.error = make_too_long_error(self._limit, "max_upload")
                    raise self.error
                if chunk:
                    yield chunk
        finally:
            self._ended.set()

    async def watch(self) -> Message:
        """As ASGI's `receive`, for whoever waits for the disconnect: silent until the body has ended."""
        await self._ended.wait()
        return {"type": "http.disconnect"} if self._disconnected else await self._receive()


class ForwardEndpoint:
    """The endpoint as an ASGI app."""

    def __init__(self, gateway: Gateway, authenticate: Authenticate, slots: RequestSlots) -> None:
        self._gateway = gateway
        self._authenticate = authenticate
        self._slots = slots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes one request on. Errors before the reply has begun are raised."""
        headers = read_headers(scope)
        target = parse_target(scope["method"], scope["raw_path"])
        key = self._authenticate(headers)
        self._check_allowed(scope, headers, target, key)
        with ExitStack() as stack:
            count_bytes = stack.enter_context(self._slots.count_bytes())
            request, upload, watch = await self._read_request(scope, receive, headers, target, count_bytes)
            stack.enter_context(self._slots.hold())
            exchange = ForwardExchange(self._gateway, target, request, key)
            async with DisconnectWatch(watch):
                await exchange.run(scope, send, upload)

    async def forward_body(
        self, scope: Scope, receive: Receive, send: Send, body: Mapping[str, Any], on_error: ErrorCheck
    ) -> None:
        """Passes on a request whose body has been read; `on_error` may replace an error of the upstream."""
        headers = read_headers(scope)
        target = parse_target(scope["method"], scope["raw_path"])
        key = self._authenticate(headers)
        self._check_allowed(scope, headers, target, key)
        raw = encode_json(body)
        request = self._make_request(scope, headers, target, raw, body, size=len(raw))
        with self._slots.hold():
            exchange = ForwardExchange(self._gateway, target, request, key, on_error)
            async with DisconnectWatch(receive):
                await exchange.run(scope, send)

    def _check_allowed(
        self, scope: Scope, headers: Mapping[str, str], target: ForwardTarget, key: str
    ) -> None:
        gateway = self._gateway
        settings, caps = gateway.settings, gateway.resources.ledger.caps
        if not gateway.ready:
            raise Overloaded("the gateway is closing down; try again in a moment", retry_after=_RETRY_SECONDS)
        if not settings.forward:
            raise RequestInvalid(
                f"{scope['path'][:100]!r} is not served; the operator can have it passed on (forward = true)",
                status=404,
                code="not_found",
            )
        if scope["method"] not in ("GET", "HEAD"):
            _check_origin(scope, headers, settings)
        has_cap = caps.for_key(key) is not None or caps.total is not None
        if has_cap and not target.free and target.route in _UNMETERED:
            raise RequestInvalid(
                f"{scope['path'][:100]!r} starts work whose cost can't be counted, and there is a cap; "
                "ask the operator for a key without one",
                status=403,
                code="cost_unknown",
            )
        self._slots.check()

    async def _read_request(
        self,
        scope: Scope,
        receive: Receive,
        headers: Mapping[str, str],
        target: ForwardTarget,
        count_bytes: Callable[[int], None],
    ) -> tuple[ForwardRequest, UploadBody | None, Receive]:
        """What to send; also the upload, if it is one, and from where to hear of a disconnect."""
        settings = self._gateway.settings
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        upload: UploadBody | None = None
        body: bytes | UploadBody | None = None
        watch, parsed = receive, None
        if scope["method"] in ("GET", "HEAD") or not _has_body(headers):
            pass
        elif kind == "application/json" or kind.endswith("+json"):
            _check_encoding(headers)
            check_content_length(headers, settings.max_body)
            with self._slots.receive():
                body = await read_body(receive, headers, limit=settings.max_body, on_part=count_bytes)
            parsed = {} if target.free or target.route in _WITHOUT_OUTPUT else _parse_json(body)
        else:
            _check_encoding(headers)
            check_content_length(headers, settings.max_upload, "max_upload")
            body = upload = UploadBody(receive, settings.max_upload)
            watch = upload.watch
        size = len(body) if isinstance(body, bytes) else 0
        return self._make_request(scope, headers, target, body, parsed, size=size), upload, watch

    def _make_request(
        self,
        scope: Scope,
        headers: Mapping[str, str],
        target: ForwardTarget,
        body: bytes | UploadBody | None,
        parsed: object,
        *,
        size: int,
    ) -> ForwardRequest:
        passed = {name: headers[name] for name in _PASSED_HEADERS if name in headers}
        if body is None:
            passed.pop("content-type", None)
        elif isinstance(body, UploadBody) and "content-length" in headers:
            passed["content-length"] = headers["content-length"]
        cost = bound_cost(target, parsed, size, self._gateway.settings)
        return ForwardRequest(
            method=scope["method"],
            path=target.path,
            query=quote(scope["query_string"].decode("latin-1"), safe=_SAFE_QUERY),
            headers={"accept": "*/*"} | passed | (read_trace_headers(headers) or {}),
            body=body,
            model=str(parsed.get("model", "")) if isinstance(parsed, Mapping) else "",
            samples=cost.samples,
            prompt_tokens=cost.prompt_tokens,
            completion_tokens=cost.completion_tokens,
        )


class ForwardExchange:
    """One request that is passed on: reserved, sent, its reply relayed, settled and counted."""

    def __init__(
        self,
        gateway: Gateway,
        target: ForwardTarget,
        request: ForwardRequest,
        key: str,
        on_error: ErrorCheck | None = None,
    ) -> None:
        self._gateway = gateway
        self._on_error = on_error
        self._target = target
        telemetry = gateway.telemetry
        self._span = (
            None if telemetry is None else gateway.guard(telemetry.begin_forward, request, target.route)
        )
        self._request = request if self._span is None else self._span.request
        self._key = key
        self._calls: list[Call] = []
        self._refusal: CapReached | None = None  # why it wasn't sent
        self._started = time.monotonic()
        self._status = 500

    async def run(self, scope: Scope, send: Send, upload: UploadBody | None = None) -> None:
        """Serves it. Errors before the reply has begun are raised."""
        gateway, request = self._gateway, self._request
        resources, reservation = gateway.resources, None
        if request.samples:
            reservation = await resources.ledger.reserve(self._key, self._bound)
        gateway.under_way += 1
        try:
            async with AsyncExitStack() as stack:
                forward = resources.client.forward(
                    request,
                    deadline=gateway.settings.deadline,
                    on_call=self._calls.append,
                    may_send=lambda: self._check_cap(reservation),
                )
                reply = await stack.enter_async_context(forward)
                self._status = reply.status
                if reply.status >= 300:
                    await self._relay_error(send, reply, reservation)
                else:
                    await _relay(scope, send, reply, on_end=lambda: self._settle(reservation))
        except ServeError as exc:
            self._status = exc.status
            raise
        except asyncio.CancelledError:
            self._status = CLIENT_GONE_STATUS if gateway.ready else Overloaded.status
            raise
        except EndpointError as exc:
            if self._refusal is not None:
                self._status = self._refusal.status
                raise self._refusal from None
            self._status = build_error(exc)[0]
            if upload is not None and upload.error is not None:
                self._status = upload.error.status
                raise upload.error from None
            raise
        finally:
            gateway.under_way -= 1
            self._finish(reservation, get_reply_id(scope))

    def _check_cap(self, reservation: Reservation | None) -> bool:
        """Whether the caps allow it now that its turn has come: others may have got too much meanwhile."""
        if reservation is not None:
            self._refusal = self._gateway.resources.ledger.check_send(reservation)
        return self._refusal is None

    async def _relay_error(self, send: Send, reply: ForwardReply, reservation: Reservation | None) -> None:
        body = await reply.read_error()
        if self._on_error is not None and (error := self._on_error(reply.status, body)) is not None:
            raise error
        self._settle(reservation)
        await send_reply(send, reply.status, {**reply.headers, **_SHIELD_HEADERS}, body)

    @property
    def _bound(self) -> Spend:
        request = self._request
        most = self._gateway.resources.rates.compute_max(
            samples=1, prompt_tokens=request.prompt_tokens, max_tokens=request.completion_tokens
        )
        return Spend(samples=request.samples, tokens=most.tokens, nanos=most.nanos)

    def _settle(self, reservation: Reservation | None) -> tuple[Spend, Spend]:
        """Settles what it cost, and may have cost; a second time changes nothing."""
        if reservation is None:
            return NO_SPEND, NO_SPEND
        resources = self._gateway.resources
        spent = resources.rates.compute_spent(self._calls)
        maybe = self._bound if any(call.paid == "maybe" for call in self._calls) else NO_SPEND
        resources.ledger.settle(reservation, spent, maybe)
        return spent, maybe

    def _finish(self, reservation: Reservation | None, reply_id: str) -> None:
        spent, maybe = self._settle(reservation)
        observability, route = self._gateway.observability, self._target.route
        self._gateway.guard(observability.on_forward, route, self._status, spent, maybe)
        if self._span is not None:
            self._gateway.guard(self._span.end, self._status, self._calls, time.monotonic() - self._started)
        fields = {"id": reply_id, "key_name": self._key, "route": route, "method": self._request.method}
        spending = {"spent_samples": spent.samples, "spent_tokens": spent.tokens}
        seconds = round(time.monotonic() - self._started, 4)
        _log.info("forwarded", extra={**fields, "status": self._status, "seconds": seconds, **spending})


async def _relay(scope: Scope, send: Send, reply: ForwardReply, on_end: Callable[[], object]) -> None:
    """Sends a success on as it comes; `on_end` is called before its end is sent."""
    headers = {**reply.headers, **_SHIELD_HEADERS}
    if "event-stream" in headers.get("content-type", ""):
        headers["x-accel-buffering"] = "no"  # else a proxy such as nginx would hold it back
    if scope["http_version"] == "1.0" and "content-length" not in headers:
        whole = await _read_whole(reply)
        on_end()
        await send_reply(send, reply.status, headers, whole)
        return
    await send_start(send, headers, status=reply.status)
    left = int(headers.get("content-length", "-1"))
    while chunk := await reply.read():
        left -= len(chunk)
        if left == 0 and not await reply.read():  # with its last byte, the client has all of it
            on_end()
        await send_body(send, chunk)
    on_end()
    await send_body(send, b"", last=True)


async def _read_whole(reply: ForwardReply) -> bytes:
    """All of a reply, for a client of HTTP/1.0, which can't read one of unknown length."""
    parts, size = [], 0
    while chunk := await reply.read():
        parts.append(chunk)
        size += len(chunk)
        if size > _MAX_AT_ONCE:
            raise ServeError("the reply is too long for HTTP/1.0; ask by HTTP/1.1", status=505)
    return b"".join(parts)


def _has_body(headers: Mapping[str, str]) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0").strip("0") != ""


def _check_encoding(headers: Mapping[str, str]) -> None:
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise RequestInvalid(
            f"Content-Encoding is {encoding[:60]!r}; send the body uncompressed",
            status=415,
            code="unsupported_media_type",
        )


def _parse_json(raw: bytes) -> object:
    if raw.count(b",") > _MAX_VALUES:
        raise RequestInvalid(f"the body has more than {_MAX_VALUES:,} values; send fewer at once")
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as exc:
        raise RequestInvalid(f"the body is not JSON ({exc.msg} at {exc.pos}); send JSON") from None


def _check_origin(scope: Scope, headers: Mapping[str, str], settings: ServeConfig) -> None:
    """A page of another site can send what isn't JSON without asking first; such requests are refused."""
    origin = headers.get("origin", "")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if not origin or kind == "application/json" or {origin, "*"} & set(settings.cors):
        return
    own = urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
    if not own or urlsplit(origin).scheme != scope.get("scheme"):
        raise Unauthorized(
            f"a page of {origin[:100]!r} may not send this; the operator can allow it: --cors {origin[:100]}",
            status=403,
            code="origin_not_allowed",
        )
