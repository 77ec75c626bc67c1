"""Memory of the gateway: after 50,000 requests, and its growth over minutes of mixed traffic after that.

The requests come as fast as they are answered, in all ways of answering. The mixed traffic comes at a steady
rate: faults upstream, clients that go away, nonsense. `python -m benchmarks.soak URL SECONDS` is that
traffic, and prints what it got.
"""

import asyncio
import collections
import json
import random
import statistics
import subprocess
import sys
import time
from typing import Any
from urllib.parse import urlsplit

import httptools

from benchmarks.processes import OTHERS, ROOT, count_family, here, memory, pinned, shared_memory, upstream
from benchmarks.serving import BODY, Way, by, gateway, loaded, passing, place
from benchmarks.upstream import FAULTY

MINUTES = 2.0
FILL = 50_000  # requests before the minutes are counted
TURN = 5.0  # seconds of each way of answering, in turn, until all of them are done
WARM = 0.4  # of the time: caches, histories and pools of connections fill
LANES = 32
RATE = 40.0  # requests a second of the mixed traffic
FAULTS = 0.1
KINDS = {  # and how often
    "plain": 50,
    "eight": 8,
    "stream": 10,
    "stream, one sample": 8,
    "gone": 8,
    "gone in mid-stream": 4,
    "no JSON": 3,
    "refused": 3,
    "unknown route": 2,
    "deadline": 2,
    "metrics": 2,
}


class Lane:
    """One client after another: each asks something else, and some don't stay for the answer."""

    def __init__(self, url: str, seed: int, seen: collections.Counter[str]) -> None:
        self.where = urlsplit(url)
        self.drawn = random.Random(seed)
        self.seen = seen
        self.line: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def run(self, until: float) -> None:
        """Asks at a steady rate until the time is over; not faster where answers were late."""
        kinds, often = list(KINDS), list(KINDS.values())
        gap = LANES / RATE
        due = time.monotonic() + self.drawn.uniform(0, gap)
        while (due := max(due + gap, time.monotonic())) < until:
            await asyncio.sleep(due - time.monotonic())
            kind = self.drawn.choices(kinds, often)[0]
            try:
                self.seen[f"{await self.one(kind)}"] += 1
            except (OSError, asyncio.IncompleteReadError, httptools.HttpParserError) as exc:
                self.seen[f"broken off: {type(exc).__name__}"] += 1
                self.hang_up()
        self.hang_up()

    async def one(self, kind: str) -> int | str:
        """One request; the status of its reply, or that it wasn't waited for."""
        if self.line is None:
            self.line = await asyncio.open_connection(self.where.hostname, self.where.port)
        reader, writer = self.line
        writer.write(self.request(kind))
        if kind.startswith("gone"):
            await asyncio.sleep(self.drawn.uniform(0.0, 0.03))
            self.hang_up()
            return "went away"
        reply = Reply()
        parser = httptools.HttpResponseParser(reply)
        while not reply.whole:
            data = await reader.read(65_536)
            if not data:
                raise ConnectionError("closed before the end")
            parser.feed_data(data)
        if not parser.should_keep_alive():
            self.hang_up()
        return int(parser.get_status_code())

    def hang_up(self) -> None:
        """Ends the connection, however far it is."""
        if self.line is not None:
            self.line[1].transport.abort()
            self.line = None

    def request(self, kind: str) -> bytes:
        """The bytes of a request."""
        if kind == "metrics":
            return f"GET /metrics HTTP/1.1\r\nhost: {self.where.netloc}\r\n\r\n".encode()
        headers, path = {}, "/v1/chat/completions" if kind != "unknown route" else "/v1/nothing"
        question = f"{BODY['messages'][0]['content']} This is case {self.drawn.randrange(10**9)}."  # type: ignore[index]
        messages = [{"role": "user", "content": question}]
        body: dict[str, Any] = BODY | {"model": FAULTY, "messages": messages}
        if "stream" in kind:
            body |= {"stream": True}
        if kind in ("eight", "stream, one sample"):
            headers["x-adacompute-policy"] = "eight" if kind == "eight" else "single"
        if kind == "refused":
            body |= self.drawn.choice([{"temperature": "hot"}, {"messages": []}, {"n": 10_000}, {"stop": {}}])
        if kind == "deadline":
            headers["x-adacompute-deadline"] = "0.005"
        data = json.dumps(body).encode() if kind != "no JSON" else b'{"model": "faulty", '
        lines = [f"POST {path} HTTP/1.1", f"host: {self.where.netloc}", "content-type: application/json"]
        lines += [f"content-length: {len(data)}", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
        return "\r\n".join(lines).encode() + data


class Reply:
    """Whether a reply has come to its end."""

    whole = False

    def on_message_complete(self) -> None:
        self.whole = True


async def traffic(url: str, seconds: float) -> dict[str, int]:
    """What the clients got, by status."""
    seen: collections.Counter[str] = collections.Counter()
    until = time.monotonic() + seconds
    await asyncio.gather(*(Lane(url, seed, seen).run(until) for seed in range(LANES)))
    return dict(seen)


def fill(ours: Way, requests: int) -> int:
    """Asks at least so many times, in each way of answering in turn; how often in all."""
    ways = [passing(ours), by(ours, "", "single"), by(ours, "", "plain"), by(ours, "", "weighed")]
    ways += [by(ours, "", "eight", 8)]
    done = 0
    while done < requests:
        for way in ways:
            done += loaded(way, LANES, TURN)["whole"]
    return done


def run(minutes: float | None = None, *, requests: int = FILL) -> dict[str, Any]:
    """Memory after so many requests, and its growth over the minutes after them, once they are warm."""
    minutes = MINUTES if minutes is None else minutes
    with (
        upstream(latency=0.01, faults=FAULTS) as url,
        place() as folder,
        gateway(url, folder, budget=2.0) as ours,
    ):
        assert ours.pid is not None
        filled = fill(ours, requests)
        resident, processes = shared_memory(ours.pid), count_family(ours.pid)
        held, got = watch(ours, 60 * minutes)
    warm = [(at, size) for at, size in held if at > WARM * 60 * minutes]
    return {
        "minutes": minutes,
        "filled": filled,
        "processes": processes,
        "resident": resident,
        "requests": sum(got.values()),
        "got": got,
        "first": warm[0][1],
        "last": warm[-1][1],
        "most": max(size for _, size in warm),
        "slope": 60 * slope(warm),  # bytes a minute
        "held": held,
    }


def watch(ours: Way, seconds: float) -> tuple[list[tuple[float, int]], dict[str, int]]:
    """Memory by the seconds since the begin over the mixed traffic, and what its clients got."""
    assert ours.pid is not None
    words = here("-m", "benchmarks.soak", ours.url, str(seconds))
    begun, held = time.monotonic(), list[tuple[float, int]]()
    with subprocess.Popen(pinned(OTHERS, words), cwd=ROOT, stdout=subprocess.PIPE) as clients:
        while clients.poll() is None:
            held.append((time.monotonic() - begun, memory(ours.pid)))
            time.sleep(0.5)
        assert clients.stdout is not None
        return held, json.loads(clients.stdout.read())


def slope(held: list[tuple[float, int]]) -> float:
    """Bytes a second: the median over pairs half of the time apart, which a spike can't move."""
    half = len(held) // 2
    pairs = zip(held[:half], held[-half:], strict=True)
    return statistics.median((after - before) / (later - at) for (at, before), (later, after) in pairs)


if __name__ == "__main__":
    import uvloop

    print(json.dumps(uvloop.run(traffic(sys.argv[1], float(sys.argv[2])))))
