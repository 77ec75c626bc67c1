"""Streams samples to the client: at once, after the vote, or as soon as no vote is possible.

In the third case, the first sample is held back while it is short enough to be an answer to vote on. If it
gets longer, there is no vote, and the sample is streamed.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, Literal

from adacompute.client import Event
from adacompute.client.large_json import MAX_INLINE, run_in_thread
from adacompute.client.response_parser import encode_json
from adacompute.serve.messages.reply import filter_logprobs, format_event, get_object, list_objects
from adacompute.serve.messages.request_parser import ChatRequest

# What a stream sends. "pass": the only sample, as it arrives. "first": the first sample as it arrives, and
# the result of the vote at the end. "hold": the first sample, once it is clear that there will be no vote,
# otherwise the vote's winner. "wait": the vote's winner.
Delivery = Literal["pass", "hold", "first", "wait"]

KEEPALIVE_COMMENT = b": sampling\n\n"
KEEPALIVE_SECONDS = 10.0  # seconds without an event after which a stream sends a comment
_THINKING, _THINKING_END = "<think>", "</think>"
# names that different servers use for a message's reasoning
_REASONING_FIELDS = ("reasoning", "reasoning_content")
_CALL_FIELDS = ("tool_calls", "function_call")
_HEAD_FIELDS = ("id", "object", "created", "model")


class StreamGate:
    """Decides how long the beginning of a streamed sample is held back, because there may be a vote.

    The gate opens when `may_be_answer` returns False for the text so far. It also opens for the model's
    reasoning, unless `holds_thinking`, and for tool calls, unless `holds_calls`.

    >>> gate = StreamGate(lambda text: len(text) < 10, holds_thinking=True)
    >>> [gate.add({"choices": [{"delta": {"content": text}}]}) for text in ("Paris", " is a city")]
    [False, True]
    """

    def __init__(
        self, may_be_answer: Callable[[str], bool], *, holds_thinking: bool, holds_calls: bool = False
    ) -> None:
        self._may_be_answer = may_be_answer
        self._holds_thinking = holds_thinking
        self._holds_calls = holds_calls
        self._text = ""  # the sample's text so far, without reasoning
        self._thinks: bool | None = None  # whether the text is still reasoning; None: not known yet

    def add(self, chunk: Mapping[str, Any]) -> bool:
        """Adds a chunk; returns whether the gate is open, i.e. nothing needs to be held back any more."""
        choices = list_objects(chunk, "choices")
        delta = get_object(choices[0], "delta") if choices else {}
        if delta.get("refusal") or (not self._holds_calls and any(delta.get(name) for name in _CALL_FIELDS)):
            return True
        if any(delta.get(name) for name in _REASONING_FIELDS) and not self._holds_thinking:
            return True
        content = delta.get("content")
        return isinstance(content, str) and bool(content) and self._add_text(content)

    def _add_text(self, piece: str) -> bool:
        self._text += piece
        if self._thinks is None:
            begin = self._text.lstrip()[: len(_THINKING)]
            self._thinks = None if _THINKING.startswith(begin) and begin != _THINKING else begin == _THINKING
        if self._thinks is None:
            return False
        if self._thinks:
            if not self._holds_thinking:
                return True
            before, end, after = self._text.partition(_THINKING_END)
            # while reasoning goes on, keeps only the last characters, which may be part of the end marker
            self._text = after if end else before[-len(_THINKING_END) :]
            if not end:
                return False
            self._thinks = False
        return not self._may_be_answer(self._text)


class StreamRelay:
    """Relays one upstream stream event by event, without the parts that only the gateway requested.

    Removes usage and log-probabilities that the client didn't request; adds requested usage that is missing.
    The chunk that ends a choice is held back until it is clear whether it is the last one. The last one gets
    the gateway's `adacompute` object: many clients fail on a further chunk without a choice.
    """

    def __init__(self, request: ChatRequest) -> None:
        self._request = request
        self._head: dict[str, Any] = {}
        self._usage_sent = not request.include_usage  # whether usage was sent already, or isn't requested
        self.is_open = False  # set by `hold` once no vote is possible, so that the sample can be streamed
        self._held: list[bytes] = []
        # chunks not sent yet: the one that ended the latest choice, and those after it
        self._pending: list[dict[str, Any]] = []

    async def hold(self, stream: AsyncIterator[Event], gate: StreamGate) -> None:
        """Reads and keeps events of a stream until the gate opens or the stream ends."""
        self._stream = stream
        async for event in stream:
            self._held += await self._pass_on(event)
            if event.value is not None and gate.add(event.value):
                self.is_open = True
                return

    async def rest(self) -> AsyncGenerator[bytes, None]:
        """Yields the events kept by `hold`, then further events, except the last chunks: see `finish`."""
        for data in self.release():
            yield data
        async for event in self._stream:
            for data in await self._pass_on(event):
                yield data

    def release(self) -> list[bytes]:
        """Returns the events kept by `hold`."""
        held, self._held = self._held, []
        return held

    async def events(self, stream: AsyncIterator[Event]) -> AsyncGenerator[bytes, None]:
        """Yields the events for the client, except the last chunks: see `finish`."""
        async for event in stream:
            for data in await self._pass_on(event):
                yield data

    def finish(self, extra: Mapping[str, Any], usage: Mapping[str, Any], *, several: bool = False) -> bytes:
        """Builds the last chunks with the gateway's `adacompute` object, and the end of the stream.

        `usage` covers all samples. If there were `several`, it replaces the upstream's usage.
        """
        last, *rest = self._pending or [{**self._head, "choices": []}]
        if not self._usage_sent:
            rest.append({**self._head, "choices": [], "usage": usage})
        chunks = [{**last, "adacompute": extra}, *rest]
        if several:
            chunks = [
                {**chunk, "usage": usage} if isinstance(chunk.get("usage"), dict) else chunk
                for chunk in chunks
            ]
        return b"".join(format_event(encode_json(chunk)) for chunk in chunks) + format_event(b"[DONE]")

    async def _pass_on(self, event: Event) -> list[bytes]:
        large = len(event.data) > MAX_INLINE
        return await run_in_thread(self._relay, event) if large else self._relay(event)

    def _relay(self, event: Event) -> list[bytes]:
        """Takes an event from the upstream; returns the events to send to the client now."""
        value = event.value
        if value is None:
            return []
        self._head = self._head or {key: value[key] for key in _HEAD_FIELDS if key in value}
        self._usage_sent = self._usage_sent or isinstance(value.get("usage"), dict)
        visible = self._filter_event(value)
        if visible is None:
            return []
        passed: list[bytes] = []
        if self._pending and visible.get("choices"):  # then the chunk that was held back wasn't the last
            passed = [format_event(encode_json(chunk)) for chunk in self._pending]
            self._pending = []
        if self._pending or any(choice.get("finish_reason") for choice in list_objects(visible, "choices")):
            self._pending.append(visible)
            return passed
        if visible is value:
            return [*passed, format_event(event.data)]
        return [*passed, format_event(encode_json(visible))]

    def _filter_event(self, value: dict[str, Any]) -> dict[str, Any] | None:
        """Removes from an event what the client didn't request; returns None if nothing is left."""
        choices = value.get("choices")
        if not self._request.include_usage and "usage" in value:
            if not choices:
                return None
            value = {key: item for key, item in value.items() if key != "usage"}
        if isinstance(choices, list):
            visible = [self._filter_choice(choice) for choice in choices]
            value = value if visible == choices else {**value, "choices": visible}
        return value

    def _filter_choice(self, choice: object) -> object:
        """Removes from a choice the log-probabilities that the client didn't request."""
        logprobs = choice.get("logprobs") if isinstance(choice, dict) else None
        if logprobs is None or not isinstance(choice, dict):
            return choice
        if not self._request.logprobs:
            return {key: item for key, item in choice.items() if key != "logprobs"}
        if not isinstance(logprobs, dict):
            return choice
        return {**choice, "logprobs": filter_logprobs(logprobs, self._request)}


async def keep_alive(
    work: Coroutine[Any, Any, object], events: asyncio.Queue[bytes | None] | None = None
) -> AsyncGenerator[bytes, None]:
    """Runs `work`; yields the events that it queues, and a comment after ten seconds without events.

    Raises exceptions from `work`. Closing the generator early cancels `work`.
    """
    queue: asyncio.Queue[bytes | None] = asyncio.Queue() if events is None else events
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while True:
            try:
                async with asyncio.timeout(KEEPALIVE_SECONDS):
                    event = await queue.get()
            except TimeoutError:
                event = KEEPALIVE_COMMENT
            if event is None:
                break
            yield event
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # nobody else retrieves the error if the client disconnected
    task.result()
