"""A closed loop of clients on kept connections: each sends its next request when the last is answered.

A server that ends the connection with each reply gets a new one for each request.

`python -m benchmarks.load URL --concurrency 32 --seconds 3` prints what it saw, as JSON; the request's body
comes on stdin. Knows nothing of the server; raw enough to take less of a core than any server asked.
"""

import argparse
import asyncio
import collections
import json
import sys
import time
from typing import Any
from urllib.parse import urlsplit

import httptools

WARM = 0.2  # of the seconds, before anything is counted


class Lane(asyncio.Protocol):
    """One connection: a request, its reply, the next request."""

    def __init__(self, load: "Load") -> None:
        self.load = load
        self.sent = 0.0
        self.is_replaced = False  # by a lane on a new connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.send()

    def send(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.sent = time.perf_counter()
        self.transport.write(self.load.request)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_complete(self) -> None:
        now = time.perf_counter()
        status = self.parser.get_status_code()
        if not self.load.done(status, self.sent, now):
            self.transport.close()
        elif self.parser.should_keep_alive():
            asyncio.get_running_loop().call_soon(self.send)
        else:
            self.is_replaced = True
            self.transport.close()
            self.load.open_lane()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - as asyncio calls it
        if not self.is_replaced:
            self.load.gone()


class Load:
    """What all lanes saw."""

    def __init__(self, url: str, body: bytes, headers: dict[str, str], *, seconds: float) -> None:
        where = urlsplit(url)
        self.host, self.port = where.hostname or "127.0.0.1", where.port or 80
        lines = [f"POST {where.path} HTTP/1.1", f"host: {where.netloc}", "content-type: application/json"]
        lines += [f"content-length: {len(body)}", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
        self.request = "\r\n".join(lines).encode() + body
        self.seconds = seconds
        self.times: list[float] = []
        self.statuses: collections.Counter[int] = collections.Counter()
        self.whole = 0  # replies, those of the first moments as well
        self.lost = 0
        self.left = 0
        self.over = False

    def done(self, status: int, sent: float, now: float) -> bool:
        """Takes note of a reply; whether there is to be another request."""
        self.whole += 1
        if not self.over and now >= self.begin:
            self.times.append(now - sent)
            self.statuses[status] += 1
        return not self.over

    def gone(self) -> None:
        """A connection has ended: the last one ends it all."""
        self.left -= 1
        self.lost += not self.over
        if not self.left:
            self.ended.set()

    async def run(self, concurrency: int) -> dict[str, Any]:
        """Asks for as long as it should."""
        loop = self.loop = asyncio.get_running_loop()
        self.opening: set[asyncio.Task[object]] = set()
        self.ended = asyncio.Event()
        self.begin = time.perf_counter() + WARM * self.seconds
        self.left = concurrency
        for _ in range(concurrency):
            await loop.create_connection(lambda: Lane(self), self.host, self.port)
        loop.call_later(self.seconds, self.stop)
        await asyncio.wait([asyncio.create_task(self.ended.wait())], timeout=self.seconds + 30)
        spent = self.end - self.begin
        self.times.sort()
        return {
            "requests": len(self.times),
            "whole": self.whole,
            "rate": len(self.times) / spent,
            "p05": self._quantile(0.05),
            "p50": self._quantile(0.5),
            "p99": self._quantile(0.99),
            "statuses": {str(code): many for code, many in self.statuses.items()},
            "lost": self.lost,
        }

    def open_lane(self) -> None:
        """A lane on a new connection, in the place of one that the server ended."""
        opening = self.loop.create_connection(lambda: Lane(self), self.host, self.port)
        task: asyncio.Task[object] = self.loop.create_task(opening)
        self.opening.add(task)
        task.add_done_callback(self.opened)

    def opened(self, task: "asyncio.Task[object]") -> None:
        """A new connection is there, or couldn't be had."""
        self.opening.discard(task)
        if task.exception() is not None:
            self.gone()

    def stop(self) -> None:
        """Counts no more: what is under way is waited for."""
        self.over, self.end = True, time.perf_counter()

    def _quantile(self, share: float) -> float:
        return self.times[int(share * (len(self.times) - 1))] if self.times else float("nan")


if __name__ == "__main__":
    import uvloop

    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--header", action="append", default=[], help="NAME=VALUE")
    given = parser.parse_args()
    wanted = dict(header.split("=", 1) for header in given.header)
    load = Load(given.url, sys.stdin.buffer.read(), wanted, seconds=given.seconds)
    print(json.dumps(uvloop.run(load.run(given.concurrency))))
