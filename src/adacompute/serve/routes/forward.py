"""Forwards requests under /v1/ without an endpoint of their own to the same path of the upstream.

Nothing is voted on. JSON bodies are read completely, because they determine the cost. Other bodies, such as
uploads, and all replies are passed on as they arrive.

A request's highest possible cost is reserved before it is sent. Its actual cost comes from the reply's
`usage`; if a successful reply has no usage, the reserved amount is counted. Requests that only read, store,
delete or cancel something, or count tokens, are free. The limits on choices and tokens are those of chats.
Only operators may use routes that the gateway doesn't know, or change the upstream's models.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_from_bytes, unquote_to_bytes, urlsplit

import orjson
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from adacompute.client import ForwardReply, ForwardRequest
from adacompute.client.response_parser import encode_json
from adacompute.client.server_quirks import LIMIT_NAMES
from adacompute.config import KeyConfig, ServeConfig
from adacompute.errors import CapReached, EndpointError, Overloaded, RequestInvalid, ServeError, Unauthorized
from adacompute.records import Call
from adacompute.serve.messages.form import FormScanner
from adacompute.serve.messages.reply import CLIENT_GONE_STATUS, ForwardOutcome, build_error
from adacompute.serve.messages.request_parser import (
    COSTLY_FIELDS,
    MEDIA_TOKENS,
    check_field_names,
    check_sample_fields,
)
from adacompute.serve.messages.trace_context import TRACE_PARENT, read_trace_headers
from adacompute.serve.routes.chat import (
    Authenticate,
    ClientDisconnected,
    DisconnectWatch,
    RequestSlot,
    RequestSlots,
    check_content_encoding,
    check_content_length,
    check_content_type,
    get_reply_id,
    make_too_long_error,
    read_headers,
    send_body,
    send_reply,
    send_start,
)
from adacompute.serve.routes.gateway import Gateway
from adacompute.serve.spending.ledger import NO_SPEND, Reservation, Spend

_CHAT_PATH = b"/v1/chat/completions"
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_BODY_METHODS = ("POST", "PUT", "PATCH")
_FREE_METHODS = ("GET", "HEAD", "DELETE")
# first words of paths that metrics distinguish; all others count as "other"
_ROUTES = frozenset(
    {
        *("completions", "embeddings", "moderations", "audio", "images", "videos", "files", "uploads"),
        *("models", "responses", "batches", "fine_tuning", "vector_stores", "messages", "rerank", "score"),
        *("classify", "tokenize", "detokenize", "fim"),
        *("chat", "conversations", "assistants", "threads", "evals", "containers", "realtime"),
    }
)
_FIRST_WORD = re.compile(rb"[A-Za-z0-9_.-]+")  # a valid first word of a path; excludes encoded separators
# routes that only store data; this is free, but requests that use the data later aren't
_FREE_ROUTES = ("files", "uploads", "conversations", "assistants")
_FREE_PATHS = ([b"responses", b"input_tokens"], [b"messages", b"count_tokens"])
_CANCEL_PATH = re.compile(
    r"/(?:responses|(?:messages/)?batches|fine_tuning/jobs|threads/[^/]+/runs|vector_stores/[^/]+/file_batches)"
    r"/[^/]+/cancel"
)
# routes without generated output
_WITHOUT_OUTPUT = ("embeddings", "moderations", "rerank", "score", "classify", "tokenize", "detokenize")
_MEDIA_ROUTES = ("images", "audio", "videos")
# routes that start work whose cost isn't reported to the gateway
_UNMETERED = ("batches", "fine_tuning", "threads", "evals", "realtime", "containers", "vector_stores")
_ADMINISTRATION = ("organization", "dashboard", "usage")  # refused: about the operator's account upstream
# map: route -> names of its fields that limit the tokens per response
_TOKEN_LIMITS = {
    "completions": ("max_tokens",),
    "messages": ("max_tokens",),
    "responses": ("max_output_tokens",),
}
_ANY_TOKEN_LIMITS = (*LIMIT_NAMES, "max_output_tokens")
_STATEFUL = ("previous_response_id", "conversation", "prompt")  # fields that add stored data to a prompt
_SAMPLE_LISTS = ("choices", "data")  # fields of a reply that may contain its samples
_PROMPT_TOKENS = 64  # maximum number of tokens that a chat template adds
_MAX_VALUES = 200_000  # maximum number of values in a JSON body; parsing more would block the event loop
_ESCAPED_LETTER = re.compile(rb"\\u00[4-7]")
_MAX_SMALL = 65_536  # maximum size, in bytes, of JSON that is parsed only to find the model's name
_PASSED_HEADERS = (
    *("accept", "content-type", "range", "if-range", "if-none-match", "if-modified-since"),
    *("idempotency-key", "openai-beta", "anthropic-version", "anthropic-beta"),
)
_SAFE = "-._~!$&'()*+,;=:@"  # characters that aren't encoded in a path
_SAFE_QUERY = _SAFE + "/?%[]"
# reply headers; they stop browsers from running scripts in an upstream's page or a client's uploaded file
_SHIELD_HEADERS = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; sandbox",
    "cache-control": "no-store",
    "x-adacompute-note": "no vote: this route is passed on to the upstream",
}
# maximum size in bytes of a reply to an HTTP/1.0 client, which gets it in one piece
_MAX_AT_ONCE = 64 * 2**20
_RETRY_SECONDS = 1.0


# Takes the status and body of an upstream's error reply. Returns the error to raise instead, or None to pass
# the reply on to the client.
ErrorCheck = Callable[[int, bytes], ServeError | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardTarget:
    """The target of a forwarded request."""

    route: str  # first word of the path, or "other"
    path: str  # path relative to the upstream's address, percent-encoded
    free: bool  # whether requests to this target cost nothing
    private: bool = False  # whether only operators may use the target, if the gateway has keys


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardCost:
    """The highest possible cost of a request."""

    samples: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


@lru_cache(maxsize=64)  # most requests have one of a few paths, and parsing takes 5 µs
def parse_target(method: str, raw_path: bytes) -> ForwardTarget:
    """Finds the target of a path that begins with /v1/.

    Raises HTTPException (404 or 405) for an impossible path or method, RequestInvalid if the route isn't
    forwarded.

    >>> parse_target("POST", b"/v1/audio/transcriptions")
    ForwardTarget(route='audio', path='/audio/transcriptions', free=False, private=False)
    """
    segments = [unquote_to_bytes(part) for part in raw_path.removeprefix(b"/v1/").rstrip(b"/").split(b"/")]
    if raw_path == _CHAT_PATH:
        raise HTTPException(405, headers={"Allow": "POST"})
    if method not in _METHODS:
        raise HTTPException(405, headers={"Allow": ", ".join(_METHODS)})
    if any(map(_is_devious, segments)) or segments[0] == b"v1" or not _FIRST_WORD.fullmatch(segments[0]):
        raise HTTPException(404)
    first = segments[0].decode("latin-1").lower()
    if first in _ADMINISTRATION:
        raise RequestInvalid(
            f"{method} /v1/{first} is not passed on: it is about the operator's own account",
            status=403,
            code="not_forwarded",
        )
    route = first if first in _ROUTES else "other"
    path = "".join("/" + quote_from_bytes(segment, safe=_SAFE) for segment in segments)
    private = route == "other" or (route == "models" and method not in ("GET", "HEAD"))
    free = method in _FREE_METHODS or route in _FREE_ROUTES or segments in _FREE_PATHS
    free = free or _CANCEL_PATH.fullmatch(path) is not None
    return ForwardTarget(route=route, path=path, free=free, private=private)


def _is_devious(segment: bytes) -> bool:
    """Whether a path segment, once decoded, may lead to another path, e.g. by `..` or double encoding."""
    if re.search(rb"[\x00-\x1f\x7f\\]|%[0-9A-Fa-f]{2}", segment):
        return True
    return any(part.partition(b";")[0] in (b".", b"..") for part in segment.split(b"/"))


def bound_cost(
    target: ForwardTarget, body: Mapping[str, Any] | None, size: int, settings: ServeConfig
) -> ForwardCost:
    """Computes a request's highest possible cost; `body` is its JSON or None, `size` its number of bytes.

    Each choice for each prompt counts as a sample. A prompt has at most one token per byte. A body that isn't
    JSON, and generated media, are assumed to have `MEDIA_TOKENS`. Stored data that the upstream adds to a
    prompt is assumed to have as many tokens as the setting `max_tokens`.
    """
    if target.free:
        return ForwardCost()
    if body is None:
        return ForwardCost(samples=1, prompt_tokens=MEDIA_TOKENS, completion_tokens=MEDIA_TOKENS)
    samples = _count_prompts(body) * max(
        [1, *(body[name] for name in ("n", "best_of") if _is_number(body.get(name)))]
    )
    return ForwardCost(
        samples=samples,
        prompt_tokens=size + _PROMPT_TOKENS + (settings.max_tokens if _is_stateful(target, body) else 0),
        completion_tokens=samples * _bound_completion(target, body, settings),
    )


def _count_prompts(body: Mapping[str, Any]) -> int:
    lists = [body[name] for name in ("prompt", "prompt_embeds") if isinstance(body.get(name), list)]
    return max(1, sum(len(items) for items in lists if items and not _is_number(items[0])))


def _is_stateful(target: ForwardTarget, body: Mapping[str, Any]) -> bool:
    """Whether the upstream adds stored data to the prompt."""
    if target.route != "responses":
        return False
    items = body.get("input")
    refers = isinstance(items, list) and any(
        isinstance(item, dict) and item.get("type") == "item_reference" for item in items
    )
    return refers or any(body.get(name) is not None for name in _STATEFUL)


def _bound_completion(target: ForwardTarget, body: Mapping[str, Any], settings: ServeConfig) -> int:
    """Returns the highest possible number of tokens per response."""
    if target.route in _WITHOUT_OUTPUT:
        return 0
    limits = [max(0, body[name]) for name in _get_limits(target) if _is_number(body.get(name))]
    return max(limits, default=MEDIA_TOKENS if target.route in _MEDIA_ROUTES else settings.max_tokens)


def _get_limits(target: ForwardTarget) -> tuple[str, ...]:
    return _TOKEN_LIMITS.get(target.route, _ANY_TOKEN_LIMITS)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class UploadBody:
    """A body passed on as it arrives, up to a size limit; also reports the client's disconnect.

    `on_choices` is called with the value of a form's field `n` before the field is passed on.
    """

    def __init__(self, receive: Receive, limit: int, form: FormScanner | None = None) -> None:
        self._receive = receive
        self._limit = limit
        self._form = form
        self._ended = asyncio.Event()
        self._disconnected = False
        self.is_whole = False  # whether a form was passed on at least up to its last delimiter
        self.on_choices: Callable[[int | str], Awaitable[None]] | None = None
        self.error: ServeError | None = None  # why the gateway ended the upload

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
                try:
                    await self._check(chunk, size, last=not more)
                except ServeError as exc:
                    self.error = exc
                    raise
                if chunk:
                    self.is_whole = self._form is not None and self._form.is_closed
                    yield chunk
        finally:
            self._ended.set()

    async def _check(self, chunk: bytes, size: int, *, last: bool) -> None:
        if size > self._limit:
            raise make_too_long_error(self._limit, "max_upload")
        if self.on_choices is not None and self._form is not None:
            for choices in self._form.feed(chunk, last=last):
                await self.on_choices(choices)

    async def watch(self) -> Message:
        """An ASGI `receive` for `DisconnectWatch`; it first waits until the body has ended."""
        await self._ended.wait()
        return {"type": "http.disconnect"} if self._disconnected else await self._receive()


class ForwardEndpoint:
    """The endpoint for all forwarded requests, as an ASGI app."""

    def __init__(self, gateway: Gateway, authenticate: Authenticate, slots: RequestSlots) -> None:
        self._gateway = gateway
        self._authenticate = authenticate
        self._slots = slots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forwards one request. Raises errors that happen before the reply has begun."""
        await self.forward(scope, receive, send)

    async def forward(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        parsed: Mapping[str, Any] | None = None,
        on_error: ErrorCheck | None = None,
    ) -> None:
        """Like `__call__`. `parsed` is the body's JSON if already read. `on_error`: see `ErrorCheck`."""
        headers = read_headers(scope)
        target = parse_target(scope["method"], scope["raw_path"])
        key = self._authenticate(headers)
        self._check_allowed(scope, headers, target, key)
        with RequestSlot(self._slots) as slot:
            if parsed is None:
                body, parsed, watch = await self._read_body(scope, receive, headers, target, slot)
            else:
                body, watch = encode_json(parsed), receive
            self._check_body(target, parsed, key.name)
            request = self._make_request(scope, headers, target, body, parsed)
            slot.activate()
            exchange = ForwardExchange(self._gateway, target, request, key.name, on_error)
            with DisconnectWatch(watch):
                await exchange.run(scope, send)

    def _check_allowed(
        self, scope: Scope, headers: Mapping[str, str], target: ForwardTarget, key: KeyConfig
    ) -> None:
        settings = self._gateway.settings
        if not self._gateway.ready:
            raise Overloaded("the gateway is closing down; try again in a moment", retry_after=_RETRY_SECONDS)
        if not settings.forward:
            raise RequestInvalid(
                f"{scope['path'][:100]!r} is not served; the operator can have it passed on (forward = true)",
                status=404,
                code="not_found",
            )
        if scope["method"] not in ("GET", "HEAD"):
            _check_origin(scope, headers, settings)
        if target.private and not key.operator:
            raise Unauthorized(
                f"{scope['method']} {scope['path'][:100]!r} is passed on for the operator only: "
                "operator = true in the keys file",
                status=403,
                code="not_the_operator",
            )
        if not target.free and target.route in _UNMETERED:
            self._refuse_under_cap(repr(scope["path"][:100]), key.name)
        self._slots.check()

    def _refuse_under_cap(self, what: str, key: str) -> None:
        caps = self._gateway.resources.ledger.caps
        if caps.for_key(key) is not None or caps.total is not None:
            raise RequestInvalid(
                f"{what} starts work whose cost can't be counted, and there is a cap; "
                "ask the operator for a key without one",
                status=403,
                code="cost_unknown",
            )

    def _check_body(self, target: ForwardTarget, parsed: Mapping[str, Any] | None, key: str) -> None:
        """Raises RequestInvalid if a JSON body requests too much, or has a cost that can't be counted."""
        if parsed is None:
            return
        check_field_names(parsed, parsed.get("extra_body"))
        if parsed.get("background"):
            self._refuse_under_cap("background", key)
        check_sample_fields(parsed, _get_limits(target), self._gateway.settings)

    async def _read_body(
        self,
        scope: Scope,
        receive: Receive,
        headers: Mapping[str, str],
        target: ForwardTarget,
        slot: RequestSlot,
    ) -> tuple[bytes | UploadBody | None, Mapping[str, Any] | None, Receive]:
        """Returns the body to send, its JSON fields that affect the cost, and a `receive` for disconnects."""
        settings = self._gateway.settings
        takes_body = scope["method"] in _BODY_METHODS and not target.path.endswith("/cancel")
        # if the method or path takes no body, none is passed on: its cost wouldn't be counted
        if not takes_body or not _has_body(headers):
            return None, None, receive
        _check_kind(headers, target)
        if _is_json(headers):
            body = await slot.read_body(receive, headers, limit=settings.max_body)
            parsed = _read_json(body, target)
            # if a field occurs twice, sends only the value whose cost is counted: servers may use the other
            return encode_json(parsed) if _may_repeat_field(body, parsed) else body, parsed, receive
        check_content_length(headers, settings.max_upload, "max_upload")
        is_counted_form = not target.free and _read_kind(headers).startswith("multipart/")
        form = FormScanner(headers["content-type"]) if is_counted_form else None
        upload = UploadBody(receive, settings.max_upload, form)
        return upload, None, upload.watch

    def _make_request(
        self,
        scope: Scope,
        headers: Mapping[str, str],
        target: ForwardTarget,
        body: bytes | UploadBody | None,
        parsed: Mapping[str, Any] | None,
    ) -> ForwardRequest:
        passed = {"accept": "*/*"}
        passed |= {name: headers[name] for name in _PASSED_HEADERS if name in headers}
        if TRACE_PARENT in headers:
            passed |= read_trace_headers(headers) or {}
        if body is None:
            passed.pop("content-type", None)
        elif isinstance(body, UploadBody) and "content-length" in headers:
            passed["content-length"] = headers["content-length"]
        size = len(body) if isinstance(body, bytes) else 0
        cost = bound_cost(target, parsed, size, self._gateway.settings)
        return ForwardRequest(
            method=scope["method"],
            path=target.path,
            query=quote(scope["query_string"].decode("latin-1"), safe=_SAFE_QUERY),
            headers=passed,
            body=body,
            model=str((parsed or {}).get("model") or ""),
            samples=cost.samples,
            prompt_tokens=cost.prompt_tokens,
            completion_tokens=cost.completion_tokens,
            route=target.route,
            counted=() if target.free or target.route in _WITHOUT_OUTPUT else _SAMPLE_LISTS,
        )


class ForwardExchange:
    """Handles a forwarded request: reserves its cost, sends it, relays the reply, settles the actual cost."""

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
        self._choices = 1  # number of choices that a form requests
        self._further: list[Reservation] = []  # reservations for additional choices
        # at the last `_settle`: (number of calls, number of `_further`), and the two amounts that it returned
        self._settled: tuple[tuple[int, int], Spend, Spend] | None = None
        self._refusal: CapReached | None = None  # set if a spending cap prevented the request
        self._at, self._started = time.time(), time.monotonic()
        self._status = 500

    async def run(self, scope: Scope, send: Send) -> None:
        """Serves the request. Raises errors that happen before the reply has begun."""
        gateway, request = self._gateway, self._request
        upload = request.body if isinstance(request.body, UploadBody) else None
        resources, reservation = gateway.resources, None
        if request.samples:
            reservation = await resources.ledger.reserve(self._key, self._bound)
            if upload is not None:
                upload.on_choices = self._reserve_choices
                request = replace(
                    request, count_further=lambda: self._choices - 1, is_whole=lambda: upload.is_whole
                )
        gateway.under_way += 1
        try:
            async with resources.client.forward(
                request,
                deadline=gateway.settings.deadline,
                on_call=self._calls.append,
                may_send=lambda: self._check_cap(reservation),
            ) as reply:
                self._status = reply.status
                if reply.status >= 300 and reply.status != 304:
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

    async def _reserve_choices(self, choices: int | str) -> None:
        """Reserves the additional choices in a form's `n` before the upstream receives it."""
        check_sample_fields({"n": choices}, (), self._gateway.settings)
        more = int(choices) - self._choices
        if more > 0:
            ledger = self._gateway.resources.ledger
            self._further.append(await ledger.reserve(self._key, self._bound_choices(more)))
            self._choices += more

    def _bound_choices(self, count: int) -> Spend:
        """Computes the highest possible cost of `count` additional choices."""
        return self._bound_cost(count, 0, count * self._request.completion_tokens)

    def _bound_cost(self, samples: int, prompt: int, completion: int) -> Spend:
        """Computes the highest possible cost of `samples` samples with these total numbers of tokens."""
        most = self._gateway.resources.rates.compute_max(1, prompt, completion)
        return Spend(samples=samples, tokens=most.tokens, nanos=most.nanos)

    def _check_cap(self, reservation: Reservation | None) -> bool:
        """Whether spending caps still allow the request: other requests may have spent money meanwhile."""
        if reservation is not None:
            self._refusal = self._gateway.resources.ledger.check_send(reservation)
        return self._refusal is None

    async def _relay_error(self, send: Send, reply: ForwardReply, reservation: Reservation | None) -> None:
        raw, body = await reply.read_error()
        if self._on_error is not None and (error := self._on_error(reply.status, raw)) is not None:
            raise error
        self._settle(reservation)
        await send_reply(send, reply.status, {**reply.headers, **_SHIELD_HEADERS}, body)

    @property
    def _bound(self) -> Spend:
        request = self._request
        return self._bound_cost(request.samples, request.prompt_tokens, request.completion_tokens)

    def _settle(self, reservation: Reservation | None) -> tuple[Spend, Spend]:
        """Returns the request's cost, and the maximum that calls of unknown cost may add to it.

        Records both in the ledger if there were calls or reservations since it last did so.
        """
        if reservation is None:
            return NO_SPEND, NO_SPEND
        counts = len(self._calls), len(self._further)
        if self._settled is None or self._settled[0] != counts:
            resources = self._gateway.resources
            spent = resources.rates.compute_spent(self._calls)
            is_uncertain = any(call.paid == "maybe" for call in self._calls)
            maybe = self._bound + self._bound_choices(self._choices - 1) if is_uncertain else NO_SPEND
            resources.ledger.settle(reservation, spent, maybe)
            for further in self._further:
                resources.ledger.settle(further, NO_SPEND, NO_SPEND)
            self._settled = counts, spent, maybe
        return self._settled[1:]

    def _finish(self, reservation: Reservation | None, reply_id: str) -> None:
        spent, maybe = self._settle(reservation)
        outcome = ForwardOutcome(
            id=reply_id,
            at=self._at,
            seconds=time.monotonic() - self._started,
            key=self._key,
            method=self._request.method,
            route=self._target.route,
            status=self._status,
            calls=self._calls,
            spent=spent,
            maybe=maybe,
        )
        self._gateway.reporter.on_forward_end(outcome, self._span)


async def _relay(scope: Scope, send: Send, reply: ForwardReply, on_end: Callable[[], object]) -> None:
    """Relays a successful reply as it arrives; calls `on_end` before sending its last part."""
    headers = {**reply.headers, **_SHIELD_HEADERS}
    if "event-stream" in headers.get("content-type", ""):
        headers["x-accel-buffering"] = "no"  # keeps proxies such as nginx from buffering
    if scope["http_version"] == "1.0" and "content-length" not in headers:
        whole = await _read_whole(reply)
        on_end()
        await send_reply(send, reply.status, headers, whole)
        return
    await send_start(send, headers, status=reply.status)
    left = int(headers.get("content-length", "-1"))
    while chunk := await reply.read():
        left -= len(chunk)
        # records the cost before sending the last chunk, so it is counted when the client has its reply
        if left == 0 and not await reply.read():
            on_end()
            await send_body(send, chunk, last=True)
            return
        await send_body(send, chunk)
    on_end()
    await send_body(send, b"", last=True)


async def _read_whole(reply: ForwardReply) -> bytes:
    """Reads the complete reply for an HTTP/1.0 client, which can't read a reply of unknown length."""
    parts, size = [], 0
    while chunk := await reply.read():
        parts.append(chunk)
        size += len(chunk)
        if size > _MAX_AT_ONCE:
            raise ServeError("the reply is too long for HTTP/1.0; ask by HTTP/1.1", status=505)
    return b"".join(parts)


def _has_body(headers: Mapping[str, str]) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0").strip("0") != ""


def _read_kind(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _is_json(headers: Mapping[str, str]) -> bool:
    kind = _read_kind(headers)
    return kind == "application/json" or kind.endswith("+json")


def _check_kind(headers: Mapping[str, str], target: ForwardTarget) -> None:
    """Raises RequestInvalid (status 415) if a body that determines the cost isn't plain JSON.

    Media routes also accept forms. Routes whose cost isn't counted accept any uncompressed body.
    """
    form = target.route in _MEDIA_ROUTES and _read_kind(headers) == "multipart/form-data"
    if form or target.free or target.route in _UNMETERED:
        check_content_encoding(headers)
    else:
        check_content_type(headers)


def _read_json(raw: bytes, target: ForwardTarget) -> Mapping[str, Any]:
    """Parses the body. If it doesn't affect the cost, the result has at most the field `model`."""
    if not target.free and target.route not in _WITHOUT_OUTPUT:
        return _parse_json(raw)
    if target.free or len(raw) > _MAX_SMALL:
        return {}
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}  # leaves it to the upstream to report the error
    return {"model": body.get("model")} if isinstance(body, dict) else {}


def _parse_json(raw: bytes) -> Mapping[str, Any]:
    if raw.count(b",") > _MAX_VALUES:
        raise RequestInvalid(f"the body has more than {_MAX_VALUES:,} values; send fewer at once")
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as exc:
        raise RequestInvalid(f"the body is not JSON ({exc.msg} at {exc.pos}); send JSON") from None
    if not isinstance(body, dict):
        raise RequestInvalid("the body is JSON, but no object; send one")
    return body


def _may_repeat_field(raw: bytes, parsed: Mapping[str, Any]) -> bool:
    """Whether a field that determines the cost may occur twice, e.g. once written with escaped letters."""
    names = [name.encode() for name in COSTLY_FIELDS.intersection(parsed)]
    return any(raw.count(b'"%b"' % name) > 1 for name in names) or bool(names and _ESCAPED_LETTER.search(raw))


def _check_origin(scope: Scope, headers: Mapping[str, str], settings: ServeConfig) -> None:
    """Refuses non-JSON bodies from other sites' pages, which can send them without a preflight request."""
    origin = headers.get("origin", "")
    if not origin or _read_kind(headers) == "application/json" or {origin, "*"} & set(settings.cors):
        return
    own = urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
    if not own or urlsplit(origin).scheme != scope.get("scheme"):
        raise Unauthorized(
            f"a page of {origin[:100]!r} may not send this; the operator can allow it: --cors {origin[:100]}",
            status=403,
            code="origin_not_allowed",
        )
