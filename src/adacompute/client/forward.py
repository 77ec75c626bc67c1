"""Passes one request on to the endpoint unchanged, and the reply to the caller as it arrives. No retries.

A request waits for the rate limiter, unless it costs nothing or its body is still being uploaded. Circuit
breakers aren't used, because failures of chat completions say nothing about other routes, and vice versa.
"""

import re
import time
from collections.abc import AsyncIterable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import orjson
from yarl import URL

from adacompute.client.error_object import (
    build_error_object,
    error_from_status,
    mask_object,
    unwrap_error,
)
from adacompute.client.rate_limit import AttemptTimer
from adacompute.client.response_parser import (
    SPENDING_STOPPED,
    HttpReply,
    build_refusal,
    encode_json,
    read_json,
)
from adacompute.client.retry import CallContext, CallListener
from adacompute.client.streaming import ReplyStream
from adacompute.client.transport import MAX_ERROR_BODY
from adacompute.errors import EndpointError, EndpointTimeout, SendingStopped
from adacompute.records import Call, Paid, Secret

# maximum size in bytes of a JSON reply that is kept as a whole; of a larger one, only the end is kept
_WHOLE_BYTES = 524_288
_TAIL_BYTES = 65_536  # number of bytes kept from the end of a long reply, to find its token usage
_MAX_PLACES = 16  # maximum number of places in a reply where the token usage is looked for
_USAGE = re.compile(rb'(?<!\\)"usage"\s*:\s*(?=\{)')
_IMAGE = b'"b64_json"'  # occurs once per image in a reply
_MAX_TOKENS = 10**10  # a larger number in a reply isn't taken for a token count
_REPLY_HEADERS = frozenset(
    {
        *("content-type", "content-length", "content-disposition", "content-range", "content-language"),
        *("accept-ranges", "etag", "last-modified", "retry-after", "retry-after-ms", "x-should-retry"),
        *("openai-processing-ms", "openai-model", "openai-version", "openai-poll-after-ms"),
    }
)
_MAX_HEADER = 1000  # maximum length in characters of a reply's header that is passed on


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardRequest:
    """A request to pass on to the endpoint unchanged."""

    method: str
    path: str  # path relative to the endpoint's address; begins with a slash, percent-encoded
    query: str = ""  # percent-encoded, without "?"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | AsyncIterable[bytes] | None = field(default=None, repr=False)
    model: str = ""  # the model named in the body; "": none
    samples: int = 0  # number of samples that the request counts as; 0: the request is free
    prompt_tokens: int = 0  # estimated tokens of the prompt, used if the reply doesn't report its usage
    completion_tokens: int = 0
    route: str = ""  # short name of the API route; each route has its own queue
    # returns whether a form has been sent up to its last delimiter, so that the request may be charged
    is_whole: Callable[[], bool] | None = None
    # called after the body was sent; returns how many samples it asked for in addition to `samples`
    count_further: Callable[[], int] | None = None
    counted: tuple[str, ...] = ()  # names of lists in the reply whose items are counted as samples


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardUsage:
    """The token counts of a reply."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


class UsageReader:
    """Finds the token counts and the number of samples in a reply; of a long reply, keeps only the end.

    >>> reader = UsageReader()
    >>> reader.feed(b'{"object": "list", "data": [], "usage": {"prompt_tokens": 3, "total_tokens": 3}}')
    >>> reader.read().prompt_tokens
    3
    """

    def __init__(self, *, stream: bool = False) -> None:
        self._stream = stream
        self._kept = bytearray()  # the whole reply so far, or the end of a long one
        self._limit = _TAIL_BYTES if stream else _WHOLE_BYTES
        self._whole = True
        self._images, self._end = 0, b""

    def feed(self, chunk: bytes) -> None:
        """Takes the next bytes of the reply."""
        recent = self._end + chunk
        self._images += recent.count(_IMAGE)
        self._end = recent[1 - len(_IMAGE) :]
        self._kept += chunk
        if len(self._kept) > self._limit:
            self._whole, self._limit = False, 2 * _TAIL_BYTES
            del self._kept[:-_TAIL_BYTES]

    def read(self) -> ForwardUsage | None:
        """Returns the reply's usage; None if there is none or it is invalid."""
        if self._stream:
            events = [line.removeprefix(b"data:") for line in self._kept.splitlines() if b'"usage"' in line]
            found = [usage for event in events[-_MAX_PLACES:] if (usage := _find_usage(event)) is not None]
            return _read_usage(found[-1]) if found else None
        usage = _find_usage(self._kept)
        return None if usage is None else _read_usage(usage)

    def count(self, lists: Collection[str]) -> int:
        """Counts the items in the longest of the named lists in the reply; 0 for a stream.

        For a long reply, counts images instead, because its lists aren't kept.
        """
        if self._stream or not lists:
            return 0
        if not self._whole:
            return self._images
        value = _load_object(self._kept)
        return max((len(value[name]) for name in lists if isinstance(value.get(name), list)), default=0)


def _load_object(raw: bytes | bytearray) -> dict[str, Any]:
    """Parses a JSON object; returns {} for anything else."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _find_usage(raw: bytes | bytearray) -> Mapping[str, Any] | None:
    """Finds "usage" at the top level or in "response", even if the reply's beginning is missing; or None."""
    if value := _load_object(raw):
        return _get_usage(value)
    for match in list(_USAGE.finditer(raw))[: -_MAX_PLACES - 1 : -1]:
        for start in (b"{", b'{"response":{'):
            if value := _load_object(start + raw[match.start() :]):
                return _get_usage(value)
    return None


def _get_usage(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    places = (value, value.get("response"))
    found = [place["usage"] for place in places if isinstance(place, dict) and place.get("usage")]
    return next((usage for usage in found if isinstance(usage, dict)), None)


def _read_usage(value: Mapping[str, Any]) -> ForwardUsage | None:
    prompt = _first_of(value, "prompt_tokens", "input_tokens")
    completion = _first_of(value, "completion_tokens", "output_tokens")
    total = value.get("total_tokens")
    if prompt is None and completion is None:
        prompt, completion = total, 0
    elif completion is None:
        completion = total - prompt if _is_count(total) and _is_count(prompt) and total >= prompt else 0
    if not (_is_count(prompt) and _is_count(completion)) or prompt + completion == 0:
        return None  # zero tokens can't be right
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
    """Masks secrets in bytes that arrive in pieces, without changing the number of bytes."""

    def __init__(self, secret: Secret | None) -> None:
        self._texts = [text.encode() for text in (secret.masked if secret is not None else ())]
        self._held = b""  # last bytes received, held back because a secret may begin in them

    def mask(self, chunk: bytes, *, last: bool = False) -> bytes:
        """Returns the masked bytes that can be passed on now; with `last`, all that remain."""
        if not self._texts:
            return chunk
        data = self._held + chunk
        for text in self._texts:
            data = data.replace(text, b"*" * len(text))
        keep = 0 if last else self._count_held(data)
        self._held = data[len(data) - keep :]
        return data[: len(data) - keep]

    def _count_held(self, data: bytes) -> int:
        """Returns how many bytes at the end may be the beginning of a secret."""
        longest = max(map(len, self._texts)) - 1
        sizes = range(min(longest, len(data)), 0, -1)
        return next((size for size in sizes if any(text.startswith(data[-size:]) for text in self._texts)), 0)


class RawReply(ReplyStream):
    """A reply with any status and size, passed on as it arrives."""

    has_limit = False

    @property
    def status(self) -> int:
        """The reply's HTTP status."""
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        """The reply's headers."""
        return self._response.headers

    async def read_start(self) -> bytes:
        """Reads the reply; if it is long, reads only its beginning, and closes the connection."""
        parts, size = [], 0
        while size <= MAX_ERROR_BODY and (chunk := await self.read()):
            parts.append(chunk)
            size += len(chunk)
        if size > MAX_ERROR_BODY:
            self.close()
        return b"".join(parts)[:MAX_ERROR_BODY]


class ForwardReply:
    """The reply to a forwarded request, which must be read to the end or closed."""

    def __init__(self, call: "ForwardCall", raw: RawReply) -> None:
        self.status = raw.status
        endpoint = call.context.endpoint
        self.headers = _select_headers(raw.headers, endpoint.secret, endpoint.url)
        if raw.status in (204, 304):  # such replies have no body, whatever their headers say
            self.headers.pop("content-length", None)
        self._call = call
        self._raw = raw
        self._mask = KeyMask(endpoint.secret)
        kind = self.headers.get("content-type", "").lower()
        stream = "event-stream" in kind
        readable = call.is_counted and (stream or "json" in kind)
        self._usage = UsageReader(stream=stream) if readable else None
        self._ended = False

    async def read(self) -> bytes:
        """Returns the bytes that arrived since the last read, with the key masked; b"" at the end."""
        while not self._ended:
            chunk = await self._raw.read()
            self._ended = not chunk
            if self._usage is not None:
                self._usage.feed(chunk)
            if masked := self._mask.mask(chunk, last=self._ended):
                return masked
        if not self._call.is_reported:
            self._call.report_reply(self.status, self._usage)
        return b""

    async def read_error(self) -> tuple[bytes, bytes]:
        """Returns up to 64 KiB of an error's body unchanged, and the error masked in OpenAI's format.

        Raises EndpointError for a redirect, or an error about the endpoint's key or account (401, 402, 403).
        """
        raw = await self._raw.read_start()
        self._ended = True
        self._call.report_reply(self.status, None)
        key, url = self._call.context.endpoint.secret, self._call.url
        try:
            value = unwrap_error(read_json(raw, key)[0])
        except ValueError:
            # remove NUL characters, so that a key in UTF-16 is found and masked
            value = raw.decode("utf-8", "replace").replace("\0", "")
        if self.status < 400 or self.status in (401, 402, 403):
            raise build_refusal(url, HttpReply(self.status, value), key)[0]
        self.headers.pop("content-length", None)
        self.headers["content-type"] = "application/json"
        return raw, encode_json(_shape_error(value, self.status, key, str(url)))

    def close(self) -> None:
        """Ends the reply; keeps the connection if the reply was read to the end."""
        self._raw.close()


_NUMBER_HEADERS = ("content-length", "content-range")  # headers that can't contain a key


def _select_headers(headers: Mapping[str, str], key: Secret | None, url: str) -> dict[str, str]:
    """Selects the reply's headers to pass on, and masks them; drops cookies and what reveals the upstream."""
    return {
        name: value if name in _NUMBER_HEADERS else _mask_header(value, key, url)
        for name, value in headers.items()
        if name in _REPLY_HEADERS and len(value) <= _MAX_HEADER and value.isascii() and value.isprintable()
    }


@lru_cache(maxsize=256)  # most replies have the same headers
def _mask_header(text: str, key: Secret | None, url: str) -> str:
    return str(mask_object({"text": text}, key=key, url=url)["text"])


def _shape_error(value: object, status: int, key: Secret | None, url: str) -> dict[str, Any]:
    """Converts an error to OpenAI's format. If it already has that format, its extra keys are kept."""
    error = build_error_object(value, status, key=key, url=url)
    said = value if isinstance(value, dict) else {}
    if error is None:
        spoken = {"message": f"the upstream answered {status}"}
        error = build_error_object(spoken, status, key=None, url="")
    elif not error.native:
        said = {}
    fields = {} if error is None else dict(error.fields)
    if isinstance(inner := said.get("error"), dict):
        own = {*fields, *inner} - ({"type", "param", "code"} - set(inner))
        fields = {name: item for name, item in fields.items() if name in own}
    rest = {name: item for name, item in said.items() if name != "error"}
    return mask_object(rest, key=key, url=url) | {"error": fields}


class ForwardCall:
    """Sends a forwarded request once: waits for its turn, and records how it ended."""

    def __init__(
        self, context: CallContext, request: ForwardRequest, until: float, on_call: CallListener | None
    ) -> None:
        self.context = context
        query = f"?{request.query}" if request.query else ""
        self.url = URL(f"{context.endpoint.url}{request.path}{query}", encoded=True)
        self._request = request
        self._until = until
        self._on_call = on_call
        self._weight = float(request.prompt_tokens + request.completion_tokens)
        self._limiter = context.limiters.pick("/" + request.route)  # each route has its own limiter
        self.is_counted = request.samples > 0
        self.is_reported = False  # whether the end of the call has been recorded
        self._has_turn = False

    async def open(self, may_send: Callable[[], bool] | None = None) -> ForwardReply:
        """Sends the request if allowed; returns the reply with any status, or raises EndpointError."""
        context, request = self.context, self._request
        if request.samples and not isinstance(request.body, AsyncIterable):
            # free requests and uploads don't wait for a turn; a slow upload would block other calls
            await self._take_turn()
        self._began_at, self._sent_at = context.loop.time(), time.time()
        self.timer = AttemptTimer(context.endpoint, self._until)
        try:
            if may_send is not None and not may_send():
                raise SendingStopped(f"{self.url}: {SPENDING_STOPPED}")
            response = await context.transport.open_reply(
                request.method, self.url, self.timer, headers=request.headers, body=request.body
            )
        except EndpointError as error:
            self.report_failure(error)
            raise
        except BaseException:
            self.report_cancelled()
            raise
        return ForwardReply(self, RawReply(context.transport, self.url, self.timer, response))

    def report_reply(self, status: int, reader: UsageReader | None) -> None:
        """Records a complete reply; `reader` has its usage, if known."""
        request = self._request
        if status >= 300:
            self.report_failure(error_from_status(status, f"{self.url}: answered {status}"))
            return
        if self._has_turn:
            self._limiter.report_success()
        usage = None if reader is None else reader.read()
        counted = 0 if reader is None else reader.count(request.counted)
        got = max(request.samples, counted)
        if not counted and request.count_further is not None:  # the reply has no list of items to count
            got += request.count_further()
        count = usage or ForwardUsage(
            prompt_tokens=request.prompt_tokens,
            completion_tokens=request.completion_tokens * got // max(1, request.samples),
        )
        self._record("ok", "yes", status, got=got, usage=count, estimated=usage is None)

    def report_failure(self, error: EndpointError) -> None:
        """Records a failed call, and whether it may be charged."""
        if self._has_turn and error.status in (429, 503):
            self._limiter.report_overload(self._began_at)
        is_paid = error.paid or (error.status is None and self._may_be_paid)
        self._record(error.kind, "maybe" if is_paid else "no", error.status)

    def report_cancelled(self) -> None:
        """Records that the caller gave up; has no effect if the end of the call was already recorded."""
        self._record("cancelled", "maybe" if self._may_be_paid else "no", None)

    @property
    def _may_be_paid(self) -> bool:
        """Whether the endpoint may charge: it has the whole request, or has begun to reply before that."""
        is_whole = self._request.is_whole is not None and self._request.is_whole()
        return self.timer.sent is not None or self.timer.headers or is_whole

    async def _take_turn(self) -> None:
        context = self.context
        if not (context.gate.is_open and self._limiter.try_enter(self._weight)):
            async with context.gate.interruptible():
                try:
                    await self._limiter.enter(self._weight, until=self._until)
                except TimeoutError:
                    raise EndpointTimeout(
                        f"{self.url}: waited its turn until its deadline; give more time, or ask less"
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
        if self.is_reported:
            return
        self.is_reported = True
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
        for listener in (context.on_call, self._on_call):
            if listener is not None:
                listener(call)
