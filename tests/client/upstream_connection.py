"""One connection to the scripted upstream: requests in, replies out as its script says; and its counts."""

import asyncio
import collections
import contextlib
import json
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Any

import orjson
from behaviours import Behaviour, Break, Drop, Garbage, Reply, Stall, Status, completion
from upstream_streams import STREAM, Streamed, chunked, streamed

CHAT = "/v1/chat/completions"


@dataclass(frozen=True)
class Request:
    """One request as it came."""

    number: int
    at: float  # time.monotonic()
    method: str
    path: str
    headers: dict[str, str]  # lower-case names
    body: dict[str, Any]
    raw: bytes


@dataclass
class Count:
    """What it was asked and what it gave, by its own count; of the chat route only, but for `connections`."""

    requests: int = 0
    completions: int = 0  # replies with 200 that were sent whole
    choices: int = 0  # in them
    prompt_tokens: int = 0
    completion_tokens: int = 0
    statuses: collections.Counter[int] = field(default_factory=collections.Counter)
    aborted: int = 0  # requests whose client was gone before the reply was sent
    in_flight: int = 0
    peak: int = 0  # the most in flight at one time
    connections: int = 0


class Connection(asyncio.Protocol):
    """One connection: requests in, one after the other; replies as the script says."""

    def __init__(self, up: Any) -> None:
        self.up = up
        self.buffer = bytearray()
        self.busy = False
        self.chat = False
        self.wait: asyncio.TimerHandle | None = None
        self.streamed: Streamed | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.up.count.connections += 1
        self.up.lines.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.up.lines.discard(self)
        if self.wait is not None:
            self.wait.cancel()
        if self.busy:
            self.up.count.aborted += 1
            self.over()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self.step()

    def step(self) -> None:
        """Takes the next request where one has come whole."""
        end = self.buffer.find(b"\r\n\r\n")
        if self.busy or end < 0:
            return
        first, *lines = bytes(self.buffer[:end]).decode("latin-1").split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        size = int(headers.get("content-length", 0))
        if len(self.buffer) < end + 4 + size:
            return
        raw = bytes(self.buffer[end + 4 : end + 4 + size])
        del self.buffer[: end + 4 + size]
        method, path, _ = first.split(" ")
        self.take(method, path, headers, raw)

    def take(self, method: str, path: str, headers: dict[str, str], raw: bytes) -> None:
        up, count = self.up, self.up.count
        self.busy, self.chat = True, path == up.path
        if not self.chat:
            self.other(method, path)
            return
        count.requests += 1
        count.in_flight += 1
        count.peak = max(count.peak, count.in_flight)
        body = json.loads(raw)
        if up.requests.maxlen:
            up.requests.append(Request(count.requests, time.monotonic(), method, path, headers, body, raw))
        self.act(up.behaviour(count.requests, body, headers), count.requests, body)

    def other(self, method: str, path: str) -> None:
        if path == "/count":
            count = self.up.count
            told = vars(count) | {"statuses": {str(code): n for code, n in count.statuses.items()}}
            self.send(200, orjson.dumps(told))
        elif path.endswith("/models") and method == "GET":
            self.send(200, orjson.dumps({"object": "list", "data": [{"id": m} for m in self.up.models]}))
        else:
            told = {"message": "no such route", "type": "scripted", "param": None, "code": "not_found"}
            self.send(404, orjson.dumps({"error": told}))

    def act(self, how: Behaviour, number: int, body: dict[str, Any]) -> None:
        if isinstance(how, Reply | Status | Break):
            if how.delay:
                self.wait = asyncio.get_running_loop().call_later(how.delay, self.give, how, number, body)
            else:
                self.give(how, number, body)
        elif isinstance(how, Garbage):
            self.garbage(how)
        elif isinstance(how, Drop):
            whole = (
                head(200, "application/json", 10_000, {}) + completion(Reply(), number, body, self.up.seed)[0]
            )
            self.transport.write(whole[: how.after])
            self.end(reset=how.reset)
        else:
            self.stall(how, number, body)

    def give(self, how: Reply | Status | Break, number: int, body: dict[str, Any]) -> None:
        self.wait = None
        if isinstance(how, Break):
            self.stream(streamed(how.reply, number, body, self.up.seed), how)
            return
        if isinstance(how, Status):
            told = {
                "error": {"message": how.message, "type": "scripted", "param": how.param, "code": how.code}
            }
            wait = {} if how.retry_after is None else {"Retry-After": str(how.retry_after)}
            self.send(how.code, orjson.dumps(told), headers=how.headers | wait)
            return
        if body.get("stream") and how.streams and how.body is None:
            self.stream(streamed(how, number, body, self.up.seed))
            return
        data, choices, usage = completion(how, number, body, self.up.seed)
        self.count_reply(choices, usage)
        if how.chunked:
            lines = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            self.done(200, lines + b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data))
        else:
            self.send(200, data, kind=how.content_type, headers=how.headers)

    def count_reply(self, choices: int, usage: tuple[int, int]) -> None:
        count = self.up.count
        count.completions += 1
        count.choices += choices
        count.prompt_tokens += usage[0]
        count.completion_tokens += usage[1]

    def stream(self, told: Streamed, fault: Break | None = None) -> None:
        self.streamed = told
        self.transport.write(STREAM)
        self.next(fault)

    def next(self, fault: Break | None) -> None:
        """Writes the next event, or all where there is no time between them; then what breaks it off."""
        self.wait = None
        told = self.streamed
        assert told is not None
        while told.left and (fault is None or fault.after > told.sent):
            told.write(self.transport.write)
            if told.gap and told.left:
                self.wait = asyncio.get_running_loop().call_later(told.gap, self.next, fault)
                return
        if fault is not None and fault.how in ("stall", "drop", "reset"):
            if fault.how != "stall":
                self.end(reset=fault.how == "reset")
            return
        if fault is not None:
            self.transport.write(chunked(fault.last()))
        else:
            self.count_reply(told.choices, told.usage)
        self.done(200, b"0\r\n\r\n")

    def garbage(self, how: Garbage) -> None:
        if how.whole is not None:
            self.done(how.code, how.whole)
            self.end()
        else:
            self.send(how.code, how.raw, kind=how.content_type, headers=how.headers)

    def stall(self, how: Stall, number: int, body: dict[str, Any]) -> None:
        data = completion(Reply(), number, body, self.up.seed)[0]
        if how.before == "body":
            self.transport.write(head(200, "application/json", len(data), {}) + data[: len(data) // 2])
        elif how.before == "dribble":
            self.transport.write(b"HTTP/1.1 200 OK\r\n")
            self.dribble()

    def dribble(self) -> None:
        self.transport.write(b"X-Wait: 1\r\n")
        self.wait = asyncio.get_running_loop().call_later(0.02, self.dribble)

    def send(self, code: int, data: bytes, *, kind: str = "application/json", headers: Any = None) -> None:
        self.done(code, head(code, kind, len(data), headers or {}) + data)

    def done(self, code: int, whole: bytes) -> None:
        if self.chat:
            self.up.count.statuses[code] += 1
        self.transport.write(whole)
        self.over()
        self.step()

    def over(self) -> None:
        if self.chat:
            self.up.count.in_flight -= 1
        self.busy = self.chat = False
        self.streamed = None

    def end(self, *, reset: bool = False) -> None:
        if self.busy:
            self.over()
        if reset:
            sock = self.transport.get_extra_info("socket")
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()
        else:
            self.transport.close()


def head(code: int, kind: str, size: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {code} Scripted", f"Content-Type: {kind}", f"Content-Length: {size}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
