"""A scripted upstream: a real HTTP server that can answer, stall, lie, drop, rate-limit and return short.

It uses nothing of adacompute, and keeps its own count of what it was asked and what it gave. In a test:

    with Upstream(Honest(n="ignore")) as up:        # or a Behaviour, a list of them, or a function
        client = Client(Endpoint(url=up.url))       # (request number from 1, parsed body) -> Behaviour
        ...
    assert up.count.requests == 3 and up.requests[0].body["n"] == 3

As a process, for tests that kill and for benchmarks; it prints its URL first, GET /count gives its count:

    python tests/client/upstream.py --port 0 --latency 0.05 --n ignore --error-rate 0.1
"""

import argparse
import asyncio
import collections
import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from behaviours import Behaviour, Break, Drop, Garbage, Honest, Reply, Script, Stall, Status, text_of
from upstream_connection import CHAT, Connection, Count, Request

__all__ = [
    "Behaviour",
    "Break",
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
    "dead_endpoint",
    "text_of",
]


@contextlib.contextmanager
def dead_endpoint(*, answers: bool) -> Iterator[str]:
    """The URL of a port at which nobody listens: it refuses connections, or doesn't even answer them."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        if not answers:
            listener.listen(0)
            first.connect(listener.getsockname())
            second.setblocking(False)
            second.connect_ex(listener.getsockname())  # the backlog is full: no answer to the next
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"


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
        path: str = CHAT,
    ) -> None:
        self.script: Script = Honest() if script is None else script
        self.requests: collections.deque[Request] = collections.deque(maxlen=keep)
        self.count = Count()
        self.seed = seed
        self.key = key  # where given, requests without it are refused with 401
        self.per_second = per_second  # where given, more requests than that get 429 and Retry-After
        self.room = room  # where given, more than that at one time get 503
        self.models = models
        self.path = path  # the route that its script answers
        self.port = port
        self._lately: collections.deque[float] = collections.deque()
        self._ready = threading.Event()
        self.lines: set[Connection] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> "Upstream":
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        server = await self._loop.create_server(
            lambda: Connection(self), "127.0.0.1", self.port, backlog=1024
        )
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        async with server:
            await self._over.wait()
            for line in list(self.lines):
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


def main() -> None:
    parser = argparse.ArgumentParser(description="A scripted OpenAI-compatible upstream on loopback.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each reply")
    parser.add_argument("--n", default="honour", help="honour, ignore, refuse:MOST or short:MOST")
    parser.add_argument("--logprobs", default="give", choices=("give", "ignore", "refuse"))
    parser.add_argument("--usage", default="total", choices=("total", "one", "none"))
    parser.add_argument("--tokens", type=int, default=12, help="of each choice")
    parser.add_argument("--pieces", type=int, default=4, help="deltas of each choice of a stream")
    parser.add_argument("--gap", type=float, default=0.0, help="seconds between the events of a stream")
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
        pieces=asked.pieces,
        gap=asked.gap,
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
