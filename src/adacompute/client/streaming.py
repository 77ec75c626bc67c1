"""Calls whose reply is a stream of server-sent events; once the stream has begun, a call isn't retried.

This module also parses bytes into events, and assembles a stream's chunks into one completion.
"""

import asyncio
import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Unpack, cast

from yarl import URL

from adacompute.client.error_object import NotHttp, infer_status, unwrap_error
from adacompute.client.large_json import MAX_INLINE, compact_tokens
from adacompute.client.rate_limit import AttemptTimer
from adacompute.client.response_parser import (
    CHARACTERS_A_TOKEN,
    CompletionReply,
    HttpReply,
    Response,
    build_responses,
    encode_json,
    estimate_prompt_tokens,
    mask_key,
    one_line,
    parse_choices,
    parse_count,
    read_completion_tokens,
    read_json,
    run_by_size,
)
from adacompute.client.retry import CallAttempt, CallContext, CallOptions, CallWithRetries
from adacompute.client.server_quirks import ModelQuirks
from adacompute.client.transport import ANY_REPLY, HttpResponse, ReplyLimits, Transport, build_too_large_error
from adacompute.errors import ConnectionLost, EndpointError, EndpointTimeout, ReplyInvalid
from adacompute.records import Call

DONE = b"[DONE]"  # data of the last event of a stream
_MAX_EVENT = 4 * 2**20  # maximum size of one event, in bytes
_MAX_CHOICES = 1024  # maximum number of choices in a stream
_MAX_TOOL_CALLS = 1024  # maximum number of tool calls in one choice
_BOM = b"\xef\xbb\xbf"
# a stream of events begins with one of these
_EVENT_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")
_HEAD_FIELDS = ("id", "created", "model", "system_fingerprint", "service_tier")
# fields that are never split, but may be repeated in every chunk; the last value is kept
_UNSPLIT_FIELDS = ("id", "role", "type")
# number of tokens above which log-probabilities become structs, which need less memory
_COMPACT_TOKENS = 1024
_CHUNK_TOKENS = 512  # maximum number of tokens with log-probabilities in a chunk
_EVENT_OVERHEAD = 512  # usual number of bytes in an event besides its content
_EVENT_TEXT = 16  # typical number of bytes of text in a short event
# name of a field -> pieces of its value, as received; joining them only at the end is faster
_Pieces = dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a stream; its `data` has no line breaks."""

    data: bytes
    value: dict[str, Any] | None  # the parsed data; None for the last event, [DONE]


class EventParser:
    """Parses a stream's bytes, which may be split anywhere, and returns the data of completed events.

    Lines end with \\n, \\r or \\r\\n. Several `data` lines of an event are joined. Comments, event names and
    events without data are skipped.
    """

    def __init__(self, *, largest: int = _MAX_EVENT) -> None:
        self._largest = largest
        self._line: list[bytes] = []  # parts of an incomplete line
        self._data: list[bytes] = []  # data lines of an incomplete event
        self._size = 0  # number of bytes in the incomplete line and event
        # whether the last chunk ended with \r; if the next one begins with \n, both end the same line
        self._after_return = False
        self._begun = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Returns the data of the events that this chunk completes; ValueError if an event is too large."""
        if not chunk:
            return []
        if self._after_return:
            chunk = chunk.removeprefix(b"\n")
        payloads: list[bytes] = []
        for part in chunk.splitlines(keepends=True):
            line = part.rstrip(b"\r\n")
            self._size += len(line)
            if self._size > self._largest:
                raise ValueError(f"an event of more than {self._largest} bytes")
            self._line.append(line)
            if len(line) < len(part):
                self._end_line(payloads)
        self._after_return = chunk.endswith(b"\r")
        return payloads

    def end(self) -> list[bytes]:
        """Returns the data of an event that no blank line has ended, or []; to be called after all bytes."""
        payloads: list[bytes] = []
        self._end_line(payloads)
        self._end_line(payloads)
        return payloads

    def _end_line(self, payloads: list[bytes]) -> None:
        line = self._line[0] if len(self._line) == 1 else b"".join(self._line)
        self._line.clear()
        if not self._begun:
            self._begun, line = True, line.removeprefix(_BOM)
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
            else:
                self._size -= len(line)
            return
        payload = b"\n".join(self._data)
        self._data.clear()
        self._size = 0
        if payload:
            payloads.append(payload)


def looks_like_events(head: bytes, *, declared: bool) -> bool | None:
    """Whether these bytes begin a stream of events; None if more bytes are needed.

    `declared` says whether the content type is that of a stream. It is only a hint: some servers declare a
    wrong type, or send a plain completion although a stream was requested.
    """
    text = head.removeprefix(_BOM).lstrip()
    if not text or (_BOM.startswith(head) and head):
        return None
    if text[:1] in (b"{", b"["):
        return False
    if declared or text.startswith(_EVENT_FIELDS):
        return True
    return None if any(field.startswith(text) for field in _EVENT_FIELDS) else False


def find_error_status(value: Mapping[str, Any]) -> int | None:
    """Returns the HTTP status of an event with an error, 500 if unknown; None if the event isn't an error."""
    error = value.get("error")
    if not error and value.get("object") != "error":
        return None
    return infer_status(value)


class CompletionBuilder:
    """Assembles a completion from the chunks of a stream."""

    def __init__(self) -> None:
        self.usage: dict[str, Any] | None = None
        self._head: dict[str, Any] = {}
        self._choices: dict[int, _ChoiceBuilder] = {}

    @property
    def finished(self) -> bool:
        """Whether every choice that began has ended."""
        return bool(self._choices) and all(builder.reason is not None for builder in self._choices.values())

    def add(self, chunk: Mapping[str, Any]) -> None:
        """Adds the next chunk of the stream."""
        for name in _HEAD_FIELDS:
            if name not in self._head and chunk.get(name) is not None:
                self._head[name] = chunk[name]
        usage, choices = chunk.get("usage"), chunk.get("choices")
        if isinstance(usage, dict):
            self.usage = usage
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                self._builder_at(choice.get("index")).add(choice)

    def build_body(self) -> dict[str, Any]:
        """Returns the completion, as if it had arrived in one piece."""
        choices = [self._choices[index].build_choice(index) for index in sorted(self._choices)]
        body = {**self._head, "object": "chat.completion", "choices": choices}
        return body if self.usage is None else {**body, "usage": self.usage}

    def _builder_at(self, index: object) -> "_ChoiceBuilder":
        place = index if isinstance(index, int) else 0
        if not 0 <= place < _MAX_CHOICES:
            raise ReplyInvalid(f"its stream has choice number {place}; try again", status=200, paid=True)
        return self._choices.setdefault(place, _ChoiceBuilder())


class _ChoiceBuilder:
    """Assembles one choice of a completion."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._message: _Pieces = {}
        self._calls: dict[int, _Pieces] = {}  # index of a tool call -> its fields
        self._logprobs: dict[str, _Tokens] = {}

    def add(self, choice: Mapping[str, Any]) -> None:
        reason, logprobs = choice.get("finish_reason"), choice.get("logprobs")
        delta = choice.get("delta", choice.get("message"))  # some servers send a message instead of a delta
        if isinstance(reason, str):
            self.reason = reason
        for name, tokens in logprobs.items() if isinstance(logprobs, dict) else ():
            if isinstance(tokens, list):
                self._logprobs.setdefault(name, _Tokens()).add(tokens)
        if isinstance(delta, dict):
            calls = delta.get("tool_calls")
            _append_pieces(
                self._message, {name: value for name, value in delta.items() if name != "tool_calls"}
            )
            for call in calls if isinstance(calls, list) else ():
                self._add_tool_call(call)

    def build_choice(self, index: int) -> dict[str, Any]:
        message = {"role": "assistant", "content": None, **_join_pieces(self._message)}
        if self._calls:
            message["tool_calls"] = [_join_pieces(self._calls[place]) for place in sorted(self._calls)]
        choice = {"index": index, "message": message, "finish_reason": self.reason}
        if not self._logprobs:
            return choice
        return {**choice, "logprobs": {name: tokens.get_all() for name, tokens in self._logprobs.items()}}

    def _add_tool_call(self, call: object) -> None:
        index = call.get("index", 0) if isinstance(call, dict) else None
        if isinstance(call, dict) and isinstance(index, int) and 0 <= index < _MAX_TOOL_CALLS:
            part = {name: value for name, value in call.items() if name != "index"}
            _append_pieces(self._calls.setdefault(index, {}), part)


class _Tokens:
    """Collects the log-probabilities of a choice's tokens, as structs if there are many."""

    def __init__(self) -> None:
        self._compact: list[Any] = []
        self._recent: list[Any] = []

    def add(self, tokens: list[Any]) -> None:
        self._recent += tokens
        if len(self._recent) >= _COMPACT_TOKENS:
            self._compact += compact_tokens(self._recent)
            self._recent = []

    def get_all(self) -> list[Any]:
        return [*self._compact, *self._recent]


def _append_pieces(pieces: _Pieces, part: Mapping[str, Any]) -> None:
    for name, value in part.items():
        if name in _UNSPLIT_FIELDS and isinstance(value, str):
            pieces[name] = [value]
        elif value is not None:
            pieces.setdefault(name, []).append(value)


def _join_pieces(pieces: _Pieces) -> dict[str, Any]:
    return {name: _join_values(values) for name, values in pieces.items()}


def _join_values(values: list[Any]) -> object:
    """Joins the pieces of a text or an object; of other values, returns the last."""
    if all(isinstance(value, str) for value in values):
        return "".join(values)
    if all(isinstance(value, dict) for value in values):
        inner: _Pieces = {}
        for value in values:
            _append_pieces(inner, value)
        return _join_pieces(inner)
    return values[-1]


def split_tokens(text: str, logprobs: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields log-probabilities in chunks of 512 tokens, each with an equal share of the text.

    A chunk's text may not match its tokens, which does no harm: clients join all texts.
    """
    lists = {name: tokens for name, tokens in logprobs.items() if isinstance(tokens, list)}
    count = math.ceil(max([1, *map(len, lists.values())]) / _CHUNK_TOKENS)
    length = math.ceil(len(text) / count)
    for place in range(count):
        part = slice(place * _CHUNK_TOKENS, (place + 1) * _CHUNK_TOKENS)
        pieces = {name: tokens[part] for name, tokens in lists.items()}
        yield text[place * length : (place + 1) * length], {**logprobs, **pieces}


def split_into_chunks(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Splits a completion into the chunks of a stream.

    For each choice, chunks with its content are followed by one with its finish reason. The usage comes last.
    """
    head = {name: body[name] for name in _HEAD_FIELDS if name in body} | {"object": "chat.completion.chunk"}
    choices = [choice for choice in body["choices"] if isinstance(choice, dict)]
    for place, choice in enumerate(choices):
        message = choice.get("message")
        if not isinstance(message, dict):
            continue
        delta = {"role": "assistant", **message}
        if isinstance(calls := message.get("tool_calls"), list):
            delta["tool_calls"] = [
                {"index": i, **call} for i, call in enumerate(calls) if isinstance(call, dict)
            ]
        text, logprobs = delta.get("content"), choice.get("logprobs")
        content = {"index": place, "delta": delta, "finish_reason": None}
        if isinstance(text, str) and isinstance(logprobs, dict):
            for piece, tokens in split_tokens(text, logprobs):
                yield {
                    **head,
                    "choices": [{**content, "delta": {**delta, "content": piece}, "logprobs": tokens}],
                }
                delta = {}
        else:
            extra = {} if logprobs is None else {"logprobs": logprobs}
            yield {**head, "choices": [content | extra]}
        reason = choice.get("finish_reason") or "stop"
        yield {**head, "choices": [{"index": place, "delta": {}, "finish_reason": reason}]}
    if isinstance(body.get("usage"), dict):
        yield {**head, "choices": [], "usage": body["usage"]}


_STREAM_END_SECONDS = 0.1  # if a stream takes longer to end after its last event, the connection is closed


class ReplyStream:
    """Reads a reply as it arrives, until `close` or `release` is called."""

    has_limit = True

    def __init__(
        self,
        transport: Transport,
        url: URL,
        timer: AttemptTimer,
        response: HttpResponse,
        limits: ReplyLimits = ANY_REPLY,
    ) -> None:
        self._transport, self._url, self._timer, self._response = transport, url, timer, response
        self.limits = limits
        self.size = 0  # number of bytes read so far

    @property
    def declares_events(self) -> bool:
        """Whether the content type is that of a stream of events."""
        return "event-stream" in self._response.headers.get("content-type", "").lower()

    async def read(self) -> bytes:
        """Waits for bytes, and returns all that have arrived since the last read; b"" at the end.

        A cancelled read can be repeated without loss.
        """
        try:
            with self._timer:
                chunk = await self._response.read_some()
            self.size += len(chunk)
            if self.size > self.limits.size and self.has_limit:
                raise build_too_large_error(self._response, self.limits.size)
            return chunk
        except Exception as exc:  # noqa: BLE001 - as in `exchange`
            error = self._transport.strip_error(exc, self._url, self._timer)
        raise error

    def parse_reply(self, raw: bytes | bytearray) -> HttpReply:
        """Parses all bytes of the reply; ReplyInvalid if they aren't JSON."""
        return self._transport.parse_reply(self._response, raw, self.limits)

    def close(self) -> None:
        """Closes the connection at once unless the reply has ended."""
        self._response.close()

    async def release(self) -> None:
        """Keeps the connection for later requests if the reply ends within 0.1 s; otherwise closes it."""
        try:
            async with asyncio.timeout(_STREAM_END_SECONDS):
                while await self._response.read_some():
                    pass
        except (OSError, NotHttp):  # includes TimeoutError; all events have arrived anyway
            pass
        finally:
            self._response.close()


class StreamingCall(CallWithRetries["Stream"]):
    """A call whose reply is a stream; `run` returns when the first event arrives."""

    def __init__(
        self,
        context: CallContext,
        body: Mapping[str, Any],
        deadline: float,
        **options: Unpack[CallOptions],
    ) -> None:
        given = body.get("stream_options")
        stream_options = {**(given if isinstance(given, Mapping) else {}), "include_usage": True}
        n = parse_count(body.get("n")) or 1
        body = {**body, "stream": True, "stream_options": stream_options}
        options["optional"] = options.get("optional", frozenset()) | {"stream_options"}
        super().__init__(context, body, n, deadline, **options)

    async def _attempt_once(self, tries: int) -> "Stream":
        context = self.context
        attempt = CallAttempt(self, tries, self._until)
        opened: HttpResponse | HttpReply | None = None
        try:
            limits = self.find_limits()
            opened = await context.transport.open_stream(
                context.url, attempt.timer, self._data, attempt.headers, limits
            )
            if isinstance(opened, HttpReply):
                self.interpret(attempt, opened)
                raise AssertionError("a status other than 200 is an error")
            reply_stream = ReplyStream(context.transport, context.url, attempt.timer, opened, limits)
            stream = Stream(self, attempt, reply_stream)
            await stream.begin()
        except Exception as exc:  # noqa: BLE001 - whatever a server sends may break one call only
            error = self.clean_error(exc)
        except BaseException:
            _close_stream(opened)
            attempt.report_cancelled()
            raise
        else:
            return stream
        _close_stream(opened)
        attempt.report_failure(error)
        raise error.with_traceback(None)

    def clean_error(self, exc: Exception) -> EndpointError:
        """Converts an error to an EndpointError without its causes, which may contain the key."""
        error = exc
        if not isinstance(error, EndpointError):
            why = one_line(f"{type(exc).__name__}: {exc}", self.context.endpoint.secret)
            error = ReplyInvalid(
                f"{self.context.url}: streamed what can't be read ({why}); try again", status=200, paid=True
            )
        error.__cause__ = error.__context__ = None
        return error


def _close_stream(opened: HttpResponse | HttpReply | None) -> None:
    if opened is not None and not isinstance(opened, HttpReply):
        opened.close()


class Stream:
    """Iterates over the events of a reply as they arrive; the last one is always [DONE].

    Raises EndpointError if the reply breaks off. A cancelled read can be repeated without loss.
    """

    def __init__(
        self, streaming_call: StreamingCall, attempt: CallAttempt, reply_stream: ReplyStream
    ) -> None:
        self.call: Call | None = None  # record of this attempt, once it has ended
        self._streaming_call = streaming_call
        self._attempt = attempt
        self._reply_stream = reply_stream
        self._key = streaming_call.context.endpoint.secret
        self._url = streaming_call.context.url
        self._events = EventParser()
        self._builder = CompletionBuilder()
        self._ready: deque[Event] = deque()
        self._payloads: deque[bytes] = deque()
        self._events_count = 0
        self._content = 0  # estimated bytes of content: all bytes, less the usual overhead of events
        self._ended = False  # whether no more bytes will arrive
        self._reply: CompletionReply | None = None  # the whole reply, if the stream succeeded

    def __aiter__(self) -> "Stream":
        return self

    async def __anext__(self) -> Event:
        if self._ready:
            return self._ready.popleft()
        if self.call is not None:
            raise StopAsyncIteration
        try:
            return await self._next()
        except Exception as exc:  # noqa: BLE001 - as above
            error = self._streaming_call.clean_error(exc)
        self._record_failure(error)
        raise error.with_traceback(None)

    @property
    def calls(self) -> tuple[Call, ...]:
        """All attempts that have ended, including this one once the stream has ended."""
        return tuple(self._streaming_call.calls)

    @property
    def responses(self) -> tuple[Response, ...]:
        """All choices as received so far; until the stream ends, they are rebuilt each time."""
        return self._partial_result()[0] if self._reply is None else self._reply.responses

    @property
    def body(self) -> Mapping[str, Any]:
        """The whole completion, as if in one piece; empty until the stream has succeeded."""
        return {} if self._reply is None else self._reply.body

    async def begin(self) -> None:
        """Waits for the first event, or for a whole plain completion, which is split into events."""
        head, reply_stream = b"", self._reply_stream
        while (events := looks_like_events(head, declared=reply_stream.declares_events)) is None:
            chunk = await reply_stream.read()
            if not chunk:
                break
            head = (head + chunk).lstrip()
        if not (events or (reply_stream.declares_events and not head)):
            await self._read_plain_completion(head)
            return
        self._feed(head)
        self._ready.append(await self._next())
        self._attempt.mark_answering()
        self._attempt.timer.mark_answering()

    async def close(self) -> None:
        """Closes the stream; if it hasn't ended, records the attempt as cancelled."""
        if self._reply is not None:
            await self._reply_stream.release()
        elif self.call is None:
            self._reply_stream.close()
            self._attempt.report_cancelled(self._partial_result()[1])
            self.call = self._streaming_call.calls[-1]

    async def _read_plain_completion(self, head: bytes) -> None:
        self._attempt.timer.mark_answering()
        raw = bytearray(head)
        while chunk := await self._reply_stream.read():
            raw += chunk
        reply, events = await run_by_size(len(raw), self._split_completion, raw)
        self._ready.extend(events)
        self._ready.append(Event(DONE, None))
        self._record_success(reply)

    def _split_completion(self, raw: bytearray) -> tuple[CompletionReply, list[Event]]:
        reply = self._streaming_call.interpret(self._attempt, self._reply_stream.parse_reply(raw))
        chunks = split_into_chunks(reply.body)
        return reply, [Event(encode_json(chunk), chunk) for chunk in chunks]

    async def _next(self) -> Event:
        while not self._payloads:
            if self._ended and self._builder.finished:  # the stream ended without [DONE], which is allowed
                return await self._finish()
            if self._ended:
                raise ConnectionLost(
                    f"{self._url}: its stream ended before the response did; try again", paid=True
                )
            try:
                chunk = await self._reply_stream.read()
            except (ConnectionLost, EndpointTimeout):
                if not self._builder.finished:
                    raise
                chunk = b""  # all choices are complete, only [DONE] is missing
            self._feed(chunk)
            if not chunk:
                self._ended = True
                self._payloads.extend(filter(_is_whole_event, self._events.end()))
        # before each event, let other tasks run: a chunk may contain a thousand events
        await self._streaming_call.context.transport.share.take_turn()
        payload, limits = self._payloads[0], self._reply_stream.limits
        if payload.strip() == DONE:
            return await self._finish()
        return self._take_event(await run_by_size(len(payload), self._read_event, payload, limits.marks))

    def _feed(self, chunk: bytes) -> None:
        try:
            self._payloads.extend(self._events.feed(chunk))
        except ValueError as exc:
            raise self._build_invalid_error(str(exc)) from None

    def _read_event(self, payload: bytes, max_marks: int) -> Event:
        try:
            value, unchanged = read_json(payload, self._key, max_marks=max_marks)
        except ValueError as exc:
            why = one_line(str(exc), self._key)
            raise self._build_invalid_error(
                f"an event of {len(payload)} bytes that is not JSON ({why})"
            ) from None
        if isinstance(value, list):
            value, unchanged = unwrap_error(value), False
        if not isinstance(value, dict):
            raise self._build_invalid_error("an event that is JSON, but no object")
        if unchanged and b"\n" not in payload:
            return Event(payload, value)
        payload = encode_json(value)
        # parsed again, because encoding has turned NaN into null
        return Event(payload, cast("dict[str, Any]", read_json(payload, None)[0]))

    def _take_event(self, event: Event) -> Event:
        """Adds the next event to the completion; raises if it is an error, or the stream is too long."""
        value, limit = event.value or {}, self._reply_stream.limits.content
        self._payloads.popleft()
        self._events_count += 1
        self._content += max(0, len(event.data) - _EVENT_OVERHEAD)
        if self._content > limit:
            raise self._build_invalid_error(f"more than {limit // 2**20} MiB of text")
        status = find_error_status(value)
        if status is not None:
            self._streaming_call.interpret(self._attempt, HttpReply(status, value))
        self._builder.add(value)
        return event

    async def _finish(self) -> Event:
        self._record_success(await run_by_size(self._reply_stream.size, self._interpret))
        self._payloads.clear()
        return Event(DONE, None)

    def _interpret(self) -> CompletionReply:
        body = mask_key(self._builder.build_body(), self._key)  # the key may have been split between events
        http_reply = HttpReply(200, body, size=self._reply_stream.size)
        return self._streaming_call.interpret(self._attempt, http_reply)

    def _record_success(self, reply: CompletionReply) -> None:
        (self.call,) = reply.calls
        self._reply = reply
        self._attempt.report_success(self.call, reply.body)

    def _record_failure(self, error: EndpointError) -> None:
        self._reply_stream.close()
        error.paid = True  # the endpoint has begun to answer, so it may charge for this
        self._attempt.report_failure(error, self._partial_result()[1])
        self._streaming_call.attach_calls(error)
        self.call = self._streaming_call.calls[-1]

    def _partial_result(self) -> tuple[tuple[Response, ...], tuple[int, int]]:
        """Returns the responses so far, and the numbers of prompt and response tokens."""
        request = self._streaming_call.describe_request(self._attempt)
        usage = self._builder.usage or {}
        prompt = parse_count(usage.get("prompt_tokens"))
        prompt = estimate_prompt_tokens(request.body) if prompt is None else prompt
        # too long to be parsed in the event loop
        if self._content + _EVENT_TEXT * self._events_count > MAX_INLINE:
            return (), (prompt, max(self._events_count, round(self._content / CHARACTERS_A_TOKEN)))
        try:
            choices, _ = parse_choices(mask_key(self._builder.build_body(), self._key))
        except (ReplyInvalid, RecursionError):
            return (), (prompt, 0)
        responses, token_count = build_responses(
            choices, read_completion_tokens(usage), requested=request.n, cap=request.cap, quirks=ModelQuirks()
        )
        return responses, (prompt, token_count.total)

    def _build_invalid_error(self, what: str) -> ReplyInvalid:
        return ReplyInvalid(f"{self._url}: sent {what}; try again", status=200, paid=True)


def _is_whole_event(payload: bytes) -> bool:
    """Whether an event that the server didn't terminate is complete, or was cut off."""
    if payload.strip() == DONE:
        return True
    try:
        read_json(payload, None)
    except ValueError:
        return False
    return True
