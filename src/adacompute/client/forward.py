"""One request that is passed on to the endpoint as it came, and its reply as it comes. Never retried.

It waits for a turn at the rate limiter where its body is complete, and neither asks nor informs the circuit
breaker: another route that fails says nothing about chat completions.
"""

import json
import re
import time
from collections.abc import AsyncIterable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from yarl import URL

from adacompute.client.response_parser import (
    SPENDING_STOPPED,
    HttpReply,
    build_refusal,
    encode_json,
    error_from_status,
    read_json,
)
from adacompute.client.retry import CallContext, CallListener
from adacompute.errors import EndpointError, EndpointTimeout, SendingStopped
from adacompute.records import Call, Paid, Secret

__all__ = ["ForwardReply", "ForwardRequest", "ForwardUsage", "UsageReader"]

if TYPE_CHECKING:
    from adacompute.client.transport import RawReply

_TAIL_BYTES = 65_536  # of a reply, kept to find the usage in
_USAGE = re.compile(rb'(?<!\\)"usage"\s*:\s*(?=\{)')
_MAX_TOKENS = 2**53  # a larger number is no count
_REPLY_HEADERS = frozenset(
    {
        *("content-type", "content-length", "content-disposition", "content-range", "content-language"),
        *("accept-ranges", "etag", "last-modified", "retry-after", "retry-after-ms", "x-should-retry"),
        *("openai-processing-ms", "openai-model", "openai-version", "openai-poll-after-ms"),
    }
)
_MAX_HEADER = 1000  # characters of a reply's header


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardRequest:
    """What is passed on."""

    method: str
    path: str  # below the endpoint's address, with a slash first, percent-encoded
    query: str = ""  # percent-encoded, without the question mark
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | AsyncIterable[bytes] | None = field(default=None, repr=False)
    model: str = ""  # that its body names; "": none
    samples: int = 0  # that it is counted as; 0: it is free, and not in the totals
    prompt_tokens: int = 0  # counted where the reply doesn't say
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardUsage:
    """Tokens of a reply, as it says itself."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


class UsageReader:
    """Finds the usage in a reply of any size, of which it keeps only the end.

    >>> reader = UsageReader()
    >>> reader.feed(b'{"object": "list", "data": [], "usage": {"prompt_tokens": 3, "total_tokens": 3}}')
    >>> reader.read().prompt_tokens
    3
    """

    def __init__(self) -> None:
        self._tail = b""

    def feed(self, chunk: bytes) -> None:
        """Takes the next bytes."""
        self._tail = (self._tail + chunk)[-_TAIL_BYTES:]

    def read(self) -> ForwardUsage | None:
        """The last usage in the reply; None where it has none that can be used."""
        for match in reversed(list(_USAGE.finditer(self._tail))):
            try:
                text = self._tail[match.end() :].decode("utf-8", "replace")
                value, _ = json.JSONDecoder().raw_decode(text)
            except (ValueError, RecursionError):
                continue
            return _read_usage(value)
        return None


def _read_usage(value: Mapping[str, Any]) -> ForwardUsage | None:
    prompt = _first_of(value, "prompt_tokens", "input_tokens")
    completion = _first_of(value, "completion_tokens", "output_tokens")
    total = value.get("total_tokens")
    if prompt is None and completion is None:
        prompt, completion = total, 0
    elif completion is None:
        completion = total - prompt if _is_count(total) and _is_count(prompt) and total >= prompt else 0
    if not (_is_count(prompt) and _is_count(completion)):
        return None
    details = _first_of(value, "prompt_tokens_details", "input_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return ForwardUsage(
        prompt_tokens=prompt,
        cached_tokens=min(cached, prompt) if _is_count(cached) else 0,
        completion_tokens=completion,
    )


def _first_of(value: Mapping[str, Any], *names: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    return next((value[name] for name in names if value.get(name) is not None), None)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_TOKENS


class KeyMask:
    """Masks a key in bytes that come in pieces, by as many asterisks, so that lengths stay the same."""

    def __init__(self, key: Secret | None) -> None:
        self._key = key.reveal().encode() if key is not None and key.is_maskable else b""
        self._held = b""  # the end of what came, which may be the beginning of the key

    def mask(self, chunk: bytes, *, last: bool = False) -> bytes:
        """The next bytes that can be passed on; with `last`, all that are left."""
        key = self._key
        if not key:
            return chunk
        data = (self._held + chunk).replace(key, b"*" * len(key))
        keep = 0 if last else self._count_held(data)
        self._held = data[len(data) - keep :]
        return data[: len(data) - keep]

    def _count_held(self, data: bytes) -> int:
        """How many of the last bytes are the beginning of the key."""
        for size in range(min(len(self._key) - 1, len(data)), 0, -1):
            if data.endswith(self._key[:size]):
                return size
        return 0


class ForwardReply:
    """The reply to a request that was passed on; read it to the end, or close it."""

    def __init__(self, call: "ForwardCall", raw: "RawReply") -> None:
        self.status = raw.status
        self.headers = _select_headers(raw.headers)
        self._call = call
        self._raw = raw
        self._mask = KeyMask(call.context.endpoint.key)
        kind = self.headers.get("content-type", "").lower()
        self._usage = UsageReader() if "json" in kind or "event-stream" in kind else None
        self._ended = False

    async def read(self) -> bytes:
        """What has arrived since, at least one byte, with the key masked; b"" at the end."""
        while not self._ended:
            chunk = await self._raw.read()
            self._ended = not chunk
            if self._usage is not None:
                self._usage.feed(chunk)
            if masked := self._mask.mask(chunk, last=self._ended):
                return masked
        self._call.report_reply(self.status, None if self._usage is None else self._usage.read())
        return b""

    async def read_error(self) -> bytes:
        """The whole of an error, with the key and the endpoint's address masked.

        An error about the endpoint's own key, and a redirect, which isn't followed, are raised.
        """
        raw = await self._raw.read_start()
        self._ended = True
        self._call.report_reply(self.status, None)
        key, url = self._call.context.endpoint.key, self._call.url
        try:
            value, unchanged = read_json(raw, key)
            body = raw if unchanged else encode_json(value)
        except ValueError:
            value = raw.decode("utf-8", "replace").replace("\0", "")  # UTF-16 would hide the key
            body = (value if key is None else key.mask_message(value)).encode()
        if self.status < 400 or self.status in (401, 402, 403):
            raise build_refusal(url, HttpReply(self.status, value), key)[0]
        self.headers.pop("content-length", None)
        return _hide_address(body, url)

    async def close(self) -> None:
        """Ends it: the connection is kept for the next request if the reply was read to its end."""
        if self._ended:
            await self._raw.release()
        else:
            self._raw.close()


def _select_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Those headers of a reply that are passed on: none that tell of the upstream, or set something."""
    return {
        name.lower(): value
        for name, value in headers.items()
        if name.lower() in _REPLY_HEADERS
        and len(value) <= _MAX_HEADER
        and value.isascii()
        and value.isprintable()
    }


def _hide_address(body: bytes, url: URL) -> bytes:
    """An error without the endpoint's address."""
    for name in (f"{url.host}:{url.port}", url.host or ""):
        body = body.replace(name.encode(), b"upstream") if len(name) > 3 else body
    return body


class ForwardCall:
    """One request on its way: its turn, its one attempt, and the record of it."""

    def __init__(
        self, context: CallContext, request: ForwardRequest, until: float, on_call: CallListener | None
    ) -> None:
        self.context = context
        self.url = URL(
            f"{context.endpoint.url}{request.path}{request.query and '?' + request.query}", encoded=True
        )
        self._request = request
        self._until = until
        self._on_call = on_call
        self._began_at, self._sent_at = context.loop.time(), time.time()
        self._weight = float(request.prompt_tokens + request.completion_tokens)
        self._limiter = context.limiters.pick("/" + request.path.split("/")[1])  # each route has its own
        self._has_turn = self._reported = False

    async def open(self, may_send: Callable[[], bool] | None = None) -> ForwardReply:
        """Sends it, if it may be sent; the reply, whatever its status. EndpointError where there is none."""
        context, request = self.context, self._request
        if request.samples and not isinstance(request.body, AsyncIterable):
            await self._take_turn()  # a client that is slow to send a body holds up nobody
        self._began_at, self._sent_at = context.loop.time(), time.time()
        self.timer = context.transport.make_timer(self._until)
        try:
            if may_send is not None and not may_send():
                raise SendingStopped(f"{self.url}: {SPENDING_STOPPED}")
            raw = await context.transport.open_reply(
                request.method, self.url, self.timer, headers=request.headers, body=request.body
            )
        except EndpointError as error:
            self.report_failure(error)
            raise
        except BaseException:
            self.report_cancelled()
            raise
        return ForwardReply(self, raw)

    def report_reply(self, status: int, usage: ForwardUsage | None) -> None:
        """A reply came whole, with that usage, if it says so."""
        request = self._request
        if status >= 300:
            self.report_failure(error_from_status(status, f"{self.url}: answered {status}"))
            return
        if self._has_turn:
            self._limiter.report_success()
        count = usage or ForwardUsage(
            prompt_tokens=request.prompt_tokens, completion_tokens=request.completion_tokens
        )
        self._record("ok", "yes", status, got=request.samples, usage=count, estimated=usage is None)

    def report_failure(self, error: EndpointError) -> None:
        """It failed."""
        if self._has_turn and error.status in (429, 503):
            self._limiter.report_overload(self._began_at)
        self._record(error.kind, "maybe" if error.paid else "no", error.status)

    def report_cancelled(self) -> None:
        """The caller left it before its end; what has ended is not reported again."""
        self._record("cancelled", "no" if self.timer.sent is None else "maybe", None)

    async def _take_turn(self) -> None:
        context = self.context
        if not (context.gate.is_open and self._limiter.try_enter(self._weight)):
            async with context.gate.interruptible():
                try:
                    await self._limiter.enter(self._weight, until=self._until)
                except TimeoutError:
                    raise EndpointTimeout(
                        f"{self.url}: no turn came before the deadline; give more time, or ask less"
                    ) from None
        self._has_turn = True

    def _record(
        self,
        kind: str,
        paid: Paid,
        status: int | None,
        *,
        got: int = 0,
        usage: ForwardUsage | None = None,
        estimated: bool = False,
    ) -> None:
        if self._reported:
            return
        self._reported = True
        context, samples = self.context, self._request.samples
        if self._has_turn:
            used = None if usage is None else float(usage.prompt_tokens + usage.completion_tokens)
            self._limiter.leave(self._weight, used=0.0 if paid == "no" else used)
        if not samples:
            return
        call = Call(
            at=self._sent_at,
            seconds=context.loop.time() - self._began_at,
            asked=samples,
            got=got,
            kind=kind,
            status=status,
            paid=paid,
            prompt_tokens=None if usage is None else usage.prompt_tokens,
            cached_tokens=None if usage is None else usage.cached_tokens,
            completion_tokens=None if usage is None else usage.completion_tokens,
            estimated=estimated,
        )
        context.totals.add(call)
        for listener in (context.on_call, self._on_call):
            if listener is not None:
                listener(call)
