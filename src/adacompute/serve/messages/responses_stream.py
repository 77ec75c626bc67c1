"""Translates the chunks of a chat completion stream to events of a response stream, as they arrive."""

import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import orjson

from adacompute.errors import EndpointError, ServeError
from adacompute.serve.messages.reply import build_error, dump_json
from adacompute.serve.messages.responses import (
    finish_response,
    make_call,
    make_id,
    make_message,
    make_reasoning,
    make_text,
    read_thought,
    translate_logprobs,
)

Body = dict[str, Any]

_DATA = b"data: "
_DONE = b"[DONE]"


class _OpenItem:
    """An output item while it is streamed."""

    def __init__(self, kind: str) -> None:
        self.kind = kind  # message, reasoning or function_call
        self.index = -1  # the item's index in the output; -1: not announced yet
        self.id = make_id({"message": "msg", "reasoning": "rs"}.get(kind, "fc"))
        self.text = ""
        self.refusal = ""
        self.logprobs: list[Body] = []
        self.call: Body = {"id": "", "function": {"name": ""}}  # the tool call in progress
        self.sent = 0  # characters of the call's arguments that were sent
        self.has_text = False  # whether a text part has begun
        self.has_refusal = False

    @property
    def parts(self) -> list[Body]:
        """The content parts of a message."""
        parts = [make_text(self.text, self.logprobs)] if self.has_text else []
        return parts + ([{"type": "refusal", "refusal": self.refusal}] if self.has_refusal else [])

    def build(self, status: str) -> Body:
        """Builds the item from what has arrived so far."""
        if self.kind == "message":
            return make_message(self.id, self.parts, status)
        if self.kind == "reasoning":
            return make_reasoning(self.id, self.text, status)
        return make_call(self.id, self.call, status)


class ResponseStream:
    """Translates one stream. `base` is the response at its beginning; `now` returns seconds since 1970."""

    def __init__(self, base: Body, *, now: Callable[[], float] = time.time) -> None:
        self._base = base
        self._now = now
        self._number = 0  # number of the next event
        self._open: dict[int | str, _OpenItem] = {}  # unfinished items, by a call's index or by kind
        self._done: dict[int, Body] = {}  # finished items by output index
        self._count = 0  # number of items announced so far
        self._completion: Body = {}  # fields of the completion, read from its chunks
        self._reason: str | None = None  # the chat's finish_reason
        self._began = False

    async def translate(self, chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """Yields the response's events. Errors before the first are raised; later errors become events."""
        async with aclosing(chunks):
            try:
                async for data in chunks:
                    for event in self._begin():
                        yield event
                    for block in data.split(b"\n\n"):
                        for event in self._translate_block(block):
                            yield event
            except (ServeError, EndpointError) as exc:
                if not self._began:
                    raise
                for event in self._fail(exc):
                    yield event

    def _begin(self) -> Iterator[bytes]:
        if not self._began:
            self._began = True
            yield self._format("response.created", response=self._base)
            yield self._format("response.in_progress", response=self._base)

    def _translate_block(self, block: bytes) -> Iterator[bytes]:
        if not block.startswith(_DATA):
            if block.startswith(b":"):  # a keep-alive comment
                yield block + b"\n\n"
            return
        data = block[len(_DATA) :]
        if data == _DONE:
            yield from self._finish()
            return
        chunk = orjson.loads(data)
        for name in ("model", "usage", "adacompute", "service_tier"):
            if chunk.get(name) is not None:
                self._completion[name] = chunk[name]
        for choice in chunk.get("choices") or ():
            if isinstance(choice, Mapping):
                yield from self._translate_choice(choice)

    def _translate_choice(self, choice: Mapping[str, Any]) -> Iterator[bytes]:
        delta = choice.get("delta")
        delta = delta if isinstance(delta, Mapping) else {}
        if thought := read_thought(delta):
            yield from self._add_thought(thought)
        if isinstance(text := delta.get("content"), str):
            logprobs = translate_logprobs(choice.get("logprobs"))
            if text or (logprobs and "message" in self._open):  # a token may have no text
                yield from self._add_text(text, logprobs)
        if isinstance(refusal := delta.get("refusal"), str) and refusal:
            yield from self._add_refusal(refusal)
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, Mapping):
                yield from self._add_call(call)
        self._reason = choice.get("finish_reason") or self._reason

    def _open_item(self, key: str) -> Iterator[bytes]:
        """Begins an item of this kind, unless one is open."""
        if key not in self._open:
            item = _OpenItem(key)
            yield from self._announce_item(item)
            self._open[key] = item

    def _announce_item(self, item: _OpenItem) -> Iterator[bytes]:
        """Announces a new item, and closes earlier ones, except tool calls: any chunk may continue a call."""
        for other in [key for key in self._open if isinstance(key, str)]:
            yield from self._close_item(other, "completed")
        item.index, self._count = self._count, self._count + 1
        yield self._format(
            "response.output_item.added", output_index=item.index, item=item.build("in_progress")
        )

    def _add_thought(self, text: str) -> Iterator[bytes]:
        yield from self._open_item("reasoning")
        item = self._open["reasoning"]
        if not item.text:
            part = {"type": "reasoning_text", "text": ""}
            yield self._format_part("response.content_part.added", item, part=part)
        item.text += text
        yield self._format_part("response.reasoning_text.delta", item, delta=text)

    def _add_text(self, text: str, logprobs: Sequence[Body]) -> Iterator[bytes]:
        yield from self._begin_text()
        item = self._open["message"]
        item.text += text
        item.logprobs += logprobs
        yield self._format_part("response.output_text.delta", item, delta=text, logprobs=logprobs)

    def _begin_text(self) -> Iterator[bytes]:
        yield from self._open_item("message")
        item = self._open["message"]
        if not item.has_text:
            item.has_text = True
            yield self._format_part("response.content_part.added", item, part=make_text(""))

    def _add_refusal(self, text: str) -> Iterator[bytes]:
        yield from self._open_item("message")
        item = self._open["message"]
        place = int(item.has_text)
        if not item.has_refusal:
            item.has_refusal = True
            part = {"type": "refusal", "refusal": ""}
            yield self._format_part("response.content_part.added", item, place, part=part)
        item.refusal += text
        yield self._format_part("response.refusal.delta", item, place, delta=text)

    def _add_call(self, call: Mapping[str, Any]) -> Iterator[bytes]:
        index = call.get("index")
        index = index if isinstance(index, int) else 0
        function = call.get("function")
        function = function if isinstance(function, Mapping) else {}
        if index not in self._open:
            self._open[index] = _OpenItem("function_call")
        item = self._open[index]
        if not item.call["id"] and isinstance(given := call.get("id"), str):
            item.call["id"] = given
        head = item.call["function"]
        if not head["name"] and isinstance(name := function.get("name"), str):
            head["name"] = name
        if isinstance(arguments := function.get("arguments"), str):
            item.text += arguments
        if head["name"]:  # arguments before the name wait: clients read the name when the call is announced
            yield from self._send_call(item)

    def _send_call(self, item: _OpenItem) -> Iterator[bytes]:
        """Sends the unsent part of a call."""
        if item.index < 0:
            item.call["id"] = item.call["id"] or make_id("call")
            yield from self._announce_item(item)
        if delta := item.text[item.sent :]:
            item.sent = len(item.text)
            item.call["function"]["arguments"] = item.text
            yield self._format(
                "response.function_call_arguments.delta",
                item_id=item.id,
                output_index=item.index,
                delta=delta,
            )

    def _close_item(self, key: int | str, status: str) -> Iterator[bytes]:
        item = self._open.pop(key)
        if item.kind == "function_call":
            yield from self._send_call(item)  # sends the rest, even if the call has no name
            yield self._format(
                "response.function_call_arguments.done",
                item_id=item.id,
                output_index=item.index,
                name=item.call["function"]["name"],
                arguments=item.text,
            )
        elif item.kind == "reasoning":
            yield self._format_part("response.reasoning_text.done", item, text=item.text)
            part = {"type": "reasoning_text", "text": item.text}
            yield self._format_part("response.content_part.done", item, part=part)
        else:
            yield from self._close_parts(item)
        self._done[item.index] = item.build(status)
        yield self._format("response.output_item.done", output_index=item.index, item=self._done[item.index])

    def _close_parts(self, item: _OpenItem) -> Iterator[bytes]:
        for place, part in enumerate(item.parts):
            if part["type"] == "refusal":
                yield self._format_part("response.refusal.done", item, place, refusal=item.refusal)
            else:
                yield self._format_part(
                    "response.output_text.done", item, place, text=item.text, logprobs=item.logprobs
                )
            yield self._format_part("response.content_part.done", item, place, part=part)

    def _finish(self) -> Iterator[bytes]:
        """Finishes open items, and sends the complete response."""
        if not self._open and not any(item["type"] != "reasoning" for item in self._done.values()):
            yield from self._begin_text()  # an empty answer is still a message
        status = "incomplete" if self._reason in ("length", "content_filter") else "completed"
        for key in sorted(self._open, key=lambda key: isinstance(key, int)):  # calls come last
            yield from self._close_item(key, status)
        output = [self._done[index] for index in sorted(self._done)]
        response = finish_response(self._base, self._completion, output, self._reason, self._now())
        yield self._format(f"response.{response['status']}", response=response)

    def _fail(self, error: ServeError | EndpointError) -> Iterator[bytes]:
        status, _, body = build_error(error)
        fields = orjson.loads(body)["error"]
        details = {name: None if fields[name] is None else str(fields[name]) for name in ("code", "param")}
        yield self._format("error", message=str(fields.get("message")), **details)
        code = "rate_limit_exceeded" if status == 429 else "server_error"
        failure = {"code": code, "message": str(fields.get("message"))}
        yield self._format("response.failed", response=self._base | {"status": "failed", "error": failure})

    def _format_part(self, kind: str, item: _OpenItem, place: int = 0, **fields: object) -> bytes:
        return self._format(kind, item_id=item.id, output_index=item.index, content_index=place, **fields)

    def _format(self, kind: str, **fields: object) -> bytes:
        number, self._number = self._number, self._number + 1
        data = dump_json({"type": kind, "sequence_number": number, **fields})
        return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"
