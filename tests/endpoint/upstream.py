"""A scripted upstream: a real HTTP server that can answer, stall, lie, drop, rate-limit and return short.

It uses nothing of adacompute, and keeps its own count of what it was asked and what it gave. In a test:

    with Upstream(Honest(n="ignore")) as up:        # or a Behaviour, a list of them, or a function
        client = Client(Endpoint(url=up.url))       # (request number from 1, parsed body) -> Behaviour
        ...
    assert up.count.requests == 3 and up.requests[0].body["n"] == 3

As a process, for tests that kill and for benchmarks; it prints its URL first, GET /count gives its count:

    python tests/endpoint/upstream.py --port 0 --latency 0.05 --n ignore --error-rate 0.1
"""

import argparse
import asyncio
import collections
import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from behaviours import Behaviour, Drop, Garbage, Honest, Reply, Script, Stall, Status, completion, text_of

__all__ = [
    "Behaviour",
    "Count",
    "Drop",
    "Garbage",
    "Honest",
    "Reply",
    "Request",
    "Script",
    "Stall",
    "Status",
    "Upstream",
    "text_of",
]

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


class Upstream:
    """Serves a script on loopback, from a thread of its own: a context manager. Remembers `keep` requests."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        port: int = 0,
        keep: int = 100_000,
        seed: int = 0,
        key: str | None = None,
        per_second: float = 0.0,
        room: int = 0,
        models: Sequence[str] = ("scripted",),
    ) -> None:
        self.script: Script = Honest() if script is None else script
        self.requests: collections.deque[Request] = collections.deque(maxlen=keep)
        self.count = Count()
        self.seed = seed
        self.key = key  # where given, requests without it are refused with 401
        self.per_second = per_second  # where given, more requests than that get 429 and Retry-After
        self.room = room  # where given, more than that at one time get 503
        self.models = models
        self.port = port
        self._lately: collections.deque[float] = collections.deque()
        self._ready = threading.Event()
        self._lines: set[_Line] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> "Upstream":
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        server = await self._loop.create_server(lambda: _Line(self), "127.0.0.1", self.port, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        async with server:
            await self._over.wait()
            for line in list(self._lines):
                line.end(reset=True)
            await asyncio.sleep(0)

    def behaviour(self, number: int, body: dict[str, Any], headers: dict[str, str]) -> Behaviour:
        if self.key is not None and headers.get("authorization") != f"Bearer {self.key}":
            return Status(code=401, message="wrong key")
        if self.room and self.count.in_flight > self.room:
            return Status(code=503, message="no room")
        if self.per_second and (wait := self._too_fast()):
            return Status(code=429, message="too many requests", retry_after=wait)
        if callable(self.script):
            return self.script(number, body)
        if isinstance(self.script, Sequence):
            return self.script[min(number, len(self.script)) - 1]
        return self.script

    def _too_fast(self) -> float:
        now = time.monotonic()
        while self._lately and self._lately[0] < now - 1.0:
            self._lately.popleft()
        if len(self._lately) >= self.per_second:
            return round(self._lately[0] + 1.0 - now, 3) + 0.001
        self._lately.append(now)
        return 0.0


class _Line(asyncio.Protocol):
    """One connection: requests in, one after the other; replies as the script says."""

    def __init__(self, up: Upstream) -> None:
        self.up = up
        self.buffer = bytearray()
        self.busy = False
        self.chat = False
        self.wait: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.up.count.connections += 1
        self.up._lines.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.up._lines.discard(self)
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
        self.busy, self.chat = True, path == CHAT
        if not self.chat:
            self.other(path)
            return
        count.requests += 1
        count.in_flight += 1
        count.peak = max(count.peak, count.in_flight)
        body = json.loads(raw)
        if up.requests.maxlen:
            up.requests.append(Request(count.requests, time.monotonic(), method, path, headers, body, raw))
        self.act(up.behaviour(count.requests, body, headers), count.requests, body)

    def other(self, path: str) -> None:
        if path == "/count":
            count = self.up.count
            told = vars(count) | {"statuses": {str(code): n for code, n in count.statuses.items()}}
            self.send(200, orjson.dumps(told))
        elif path.endswith("/models"):
            self.send(200, orjson.dumps({"object": "list", "data": [{"id": m} for m in self.up.models]}))
        else:
            self.send(404, b'{"error": {"message": "no such route"}}')

    def act(self, how: Behaviour, number: int, body: dict[str, Any]) -> None:
        if isinstance(how, Reply | Status) and how.delay:
            self.wait = asyncio.get_running_loop().call_later(how.delay, self.give, how, number, body)
        elif isinstance(how, Reply | Status):
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

    def give(self, how: Reply | Status, number: int, body: dict[str, Any]) -> None:
        self.wait = None
        if isinstance(how, Status):
            told = {
                "error": {"message": how.message, "type": "scripted", "param": how.param, "code": how.code}
            }
            wait = {} if how.retry_after is None else {"Retry-After": str(how.retry_after)}
            self.send(how.code, orjson.dumps(told), headers=how.headers | wait)
            return
        data, choices, usage = completion(how, number, body, self.up.seed)
        count = self.up.count
        count.completions += 1
        count.choices += choices
        count.prompt_tokens += usage[0]
        count.completion_tokens += usage[1]
        if how.chunked:
            lines = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            self.done(200, lines + b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data))
        else:
            self.send(200, data, kind=how.content_type, headers=how.headers)

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


def main() -> None:
    parser = argparse.ArgumentParser(description="A scripted OpenAI-compatible upstream on loopback.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each reply")
    parser.add_argument("--n", default="honour", help="honour, ignore, refuse:MOST or short:MOST")
    parser.add_argument("--logprobs", default="give", choices=("give", "ignore", "refuse"))
    parser.add_argument("--usage", default="total", choices=("total", "one", "none"))
    parser.add_argument("--tokens", type=int, default=12, help="of each choice")
    parser.add_argument("--error-rate", type=float, default=0.0)
    parser.add_argument("--error-status", type=int, default=500)
    parser.add_argument("--rate-limit", type=float, default=0.0, help="requests a second; 429 above it")
    parser.add_argument("--room", type=int, default=0, help="requests at one time; 503 above it")
    parser.add_argument("--key", help="requests without it get 401")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default="scripted")
    asked = parser.parse_args()
    ways, _, most = asked.n.partition(":")
    script = Honest(
        n=ways,
        most=int(most or 1),
        logprobs=asked.logprobs,
        usage=None if asked.usage == "none" else asked.usage,
        tokens=asked.tokens,
        latency=asked.latency,
        error_rate=asked.error_rate,
        error_status=asked.error_status,
        seed=asked.seed,
    )
    with Upstream(
        script,
        port=asked.port,
        keep=0,
        seed=asked.seed,
        key=asked.key,
        per_second=asked.rate_limit,
        room=asked.room,
        models=(asked.model,),
    ) as up:
        print(up.url, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
