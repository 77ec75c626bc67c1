"""Translates the chunks of a chat completion stream to events of a response stream, as they arrive."""

import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from typing import Any

import orjson

from adacompute.errors import EndpointError, ServeError
from adacompute.serve.messages.reply import build_error, dump_json, get_object, list_objects
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
# map: type of a content part -> name of the field with the part's text
_TEXT_NAMES = {"reasoning_text": "text", "output_text": "text", "refusal": "refusal"}


class _OpenItem:
    """An output item while it is streamed."""

    def __init__(self, kind: str) -> None:
        self.kind = kind  # message, reasoning or function_call
        self.index = -1  # the item's index in the output; -1 until it is announced
        self.id = make_id({"message": "msg", "reasoning": "rs"}.get(kind, "fc"))
        self.parts: dict[str, Body] = {}  # map: type -> content part of this type, in a message or reasoning
        self.call: Body = {"id": "", "function": {"name": ""}}  # the tool call, if this item is one
        self.arguments = ""  # the call's arguments
        self.sent = 0  # number of characters of the call's arguments that were sent

    def build(self, status: str) -> Body:
        """Builds the item from what has arrived so far."""
        if self.kind == "function_call":
            return make_call(self.id, self.call, status)
        make_item = make_message if self.kind == "message" else make_reasoning
        return make_item(self.id, list(self.parts.values()), status)


class ResponseStream:
    """Translates one stream. `base` is the response object before it has any output."""

    def __init__(self, base: Body) -> None:
        self._base = base
        self._number = 0  # sequence number of the next event
        # map: index of a tool call, or kind of another item -> unfinished item
        self._open: dict[int | str, _OpenItem] = {}
        self._done: dict[int, Body] = {}  # map: output index -> finished item
        self._count = 0  # number of items announced so far
        self._completion: Body = {}  # fields of the completion, read from its chunks
        self._reason: str | None = None  # the chat's finish_reason

    async def translate(self, chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """Yields the response's events. Errors before the first one are raised; later ones become events."""
        async with aclosing(chunks):
            try:
                async for data in chunks:
                    if not self._number:
                        yield self._format("response.created", response=self._base)
                        yield self._format("response.in_progress", response=self._base)
                    for block in data.split(b"\n\n"):
                        for event in self._translate_block(block):
                            yield event
            except (ServeError, EndpointError) as exc:
                if not self._number:
                    raise
                for event in self._fail(exc):
                    yield event

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
        for choice in list_objects(chunk, "choices"):
            yield from self._translate_choice(choice)

    def _translate_choice(self, choice: Mapping[str, Any]) -> Iterator[bytes]:
        delta = get_object(choice, "delta")
        if thought := read_thought(delta):
            yield from self._extend_part("reasoning", "reasoning_text", thought)
        if isinstance(text := delta.get("content"), str):
            logprobs = translate_logprobs(choice)
            # a token with log-probabilities may have no text
            if text or (logprobs and "message" in self._open):
                yield from self._extend_part("message", "output_text", text, logprobs=logprobs)
        if isinstance(refusal := delta.get("refusal"), str) and refusal:
            yield from self._extend_part("message", "refusal", refusal)
        for call in list_objects(delta, "tool_calls"):
            yield from self._add_call(call)
        self._reason = choice.get("finish_reason") or self._reason

    def _announce_item(self, item: _OpenItem) -> Iterator[bytes]:
        """Announces a new item; closes earlier ones except tool calls, which any chunk may continue."""
        for other in [key for key in self._open if isinstance(key, str)]:
            yield from self._close_item(other, "completed")
        item.index, self._count = self._count, self._count + 1
        yield self._format(
            "response.output_item.added", output_index=item.index, item=item.build("in_progress")
        )

    def _extend_part(self, key: str, kind: str, text: str, **more: list[Body]) -> Iterator[bytes]:
        """Adds text to a content part of this type; `more` has items to add to other fields of the part."""
        yield from self._begin_part(key, kind)
        item = self._open[key]
        for name, addition in {_TEXT_NAMES[kind]: text, **more}.items():
            item.parts[kind][name] += addition
        yield self._format_part(f"response.{kind}.delta", item, kind, delta=text, **more)

    def _begin_part(self, key: str, kind: str) -> Iterator[bytes]:
        """Begins an item and its content part, unless they have already begun."""
        if key not in self._open:
            item = _OpenItem(key)
            yield from self._announce_item(item)
            self._open[key] = item
        item = self._open[key]
        if kind not in item.parts:
            part = make_text("") if kind == "output_text" else {"type": kind, _TEXT_NAMES[kind]: ""}
            item.parts[kind] = part
            yield self._format_part("response.content_part.added", item, kind, part=part)

    def _add_call(self, call: Mapping[str, Any]) -> Iterator[bytes]:
        index = call.get("index")
        index = index if isinstance(index, int) else 0
        function = get_object(call, "function")
        if index not in self._open:
            self._open[index] = _OpenItem("function_call")
        item = self._open[index]
        if not item.call["id"] and isinstance(given := call.get("id"), str):
            item.call["id"] = given
        head = item.call["function"]
        if not head["name"] and isinstance(name := function.get("name"), str):
            head["name"] = name
        if isinstance(arguments := function.get("arguments"), str):
            item.arguments += arguments
        if head["name"]:  # arguments received before the name must wait, because clients need the name first
            yield from self._send_call(item)

    def _send_call(self, item: _OpenItem) -> Iterator[bytes]:
        """Announces a tool call, unless that was done before, and sends the unsent part of its arguments."""
        if item.index < 0:
            item.call["id"] = item.call["id"] or make_id("call")
            yield from self._announce_item(item)
        if delta := item.arguments[item.sent :]:
            item.sent = len(item.arguments)
            item.call["function"]["arguments"] = item.arguments
            yield self._format_item("response.function_call_arguments.delta", item, delta=delta)

    def _close_item(self, key: int | str, status: str) -> Iterator[bytes]:
        item = self._open.pop(key)
        if item.kind == "function_call":
            # sends arguments that waited for the call's name, even if no name has arrived
            yield from self._send_call(item)
            fields = {"name": item.call["function"]["name"], "arguments": item.arguments}
            yield self._format_item("response.function_call_arguments.done", item, **fields)
        for kind, part in item.parts.items():
            texts = {name: value for name, value in part.items() if name in (_TEXT_NAMES[kind], "logprobs")}
            yield self._format_part(f"response.{kind}.done", item, kind, **texts)
            yield self._format_part("response.content_part.done", item, kind, part=part)
        self._done[item.index] = item.build(status)
        yield self._format("response.output_item.done", output_index=item.index, item=self._done[item.index])

    def _finish(self) -> Iterator[bytes]:
        """Finishes open items, and sends the complete response."""
        if not self._open and not any(item["type"] != "reasoning" for item in self._done.values()):
            yield from self._begin_part("message", "output_text")  # an empty answer is still a message
        status = "incomplete" if self._reason in ("length", "content_filter") else "completed"
        for key in sorted(self._open, key=lambda key: isinstance(key, int)):  # tool calls come last
            yield from self._close_item(key, status)
        output = [self._done[index] for index in sorted(self._done)]
        response = finish_response(self._base, self._completion, output, self._reason, time.time())
        yield self._format(f"response.{response['status']}", response=response)

    def _fail(self, error: ServeError | EndpointError) -> Iterator[bytes]:
        status, _, body = build_error(error)
        fields = orjson.loads(body)["error"]
        details = {name: None if fields[name] is None else str(fields[name]) for name in ("code", "param")}
        yield self._format("error", message=str(fields.get("message")), **details)
        code = "rate_limit_exceeded" if status == 429 else "server_error"
        failure = {"code": code, "message": str(fields.get("message"))}
        yield self._format("response.failed", response=self._base | {"status": "failed", "error": failure})

    def _format_part(self, kind: str, item: _OpenItem, part_kind: str, **fields: object) -> bytes:
        return self._format_item(kind, item, content_index=list(item.parts).index(part_kind), **fields)

    def _format_item(self, kind: str, item: _OpenItem, **fields: object) -> bytes:
        return self._format(kind, item_id=item.id, output_index=item.index, **fields)

    def _format(self, kind: str, **fields: object) -> bytes:
        number, self._number = self._number, self._number + 1
        data = dump_json({"type": kind, "sequence_number": number, **fields})
        return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"
