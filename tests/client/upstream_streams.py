"""A reply of the scripted upstream as a stream of events: what it sends, and how far it has come."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson
from behaviours import Reply, completion

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass
class Streamed:
    """The events of one reply that are still to be sent, as bytes each."""

    left: list[bytes]
    choices: int
    usage: tuple[int, int]  # the true tokens of prompt and choices
    gap: float
    cut: int
    sent: int = 0

    def write(self, write: Callable[[bytes], None]) -> None:
        """Sends the next event, in writes of `cut` bytes where that is asked for."""
        event, self.sent = self.left.pop(0), self.sent + 1
        size = self.cut or len(event)
        for start in range(0, len(event), size):
            write(chunked(event[start : start + size]))


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def streamed(how: Reply, number: int, body: dict[str, Any], seed: int) -> Streamed:
    """The stream that a reply is: as many deltas of each choice as it says, ends, usage, [DONE]."""
    raw, choices, usage = completion(how, number, body, seed)
    events = [how.event(orjson.dumps(chunk)) for chunk in chunks(orjson.loads(raw), how, body)]
    if how.done:
        events.append(how.event(b"[DONE]"))
    return Streamed(events, choices, usage, how.gap, how.cut)


def chunks(value: dict[str, Any], how: Reply, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    head = {name: value[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    for choice in value["choices"]:
        delta = {"role": "assistant", "content": ""}
        yield {**head, "choices": [{"index": choice["index"], "delta": delta, "finish_reason": None}]}
    for piece in range(how.pieces):
        for choice in value["choices"]:
            yield {**head, "choices": [part_of(choice, piece, how.pieces)]}
    for choice in value["choices"]:
        reason = choice["finish_reason"]
        if reason:
            yield {**head, "choices": [{"index": choice["index"], "delta": {}, "finish_reason": reason}]}
    options = body.get("stream_options") or {}
    if options.get("include_usage") and how.stream_usage and "usage" in value:
        yield {**head, "choices": [], "usage": value["usage"]}


def part_of(choice: dict[str, Any], piece: int, pieces: int) -> dict[str, Any]:
    """One of so many pieces of a choice, its log-probabilities cut likewise."""
    text = choice["message"]["content"] or ""
    part = {"index": choice["index"], "delta": {"content": share(text, piece, pieces)}, "finish_reason": None}
    if "logprobs" in choice:
        part["logprobs"] = {"content": share(choice["logprobs"]["content"], piece, pieces)}
    return part


def share(whole: Any, piece: int, pieces: int) -> Any:
    return whole[len(whole) * piece // pieces : len(whole) * (piece + 1) // pieces]
