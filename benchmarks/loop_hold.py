"""How long large replies hold the gateway's event loop: everybody else waits for so long.

The gateway is a process of its own, as `adacompute serve` runs it. Beside what it serves, its loop has a
ticker, which wakes up every millisecond and notes the longest time between two ticks, in seconds of the clock
and of the process's processor time. The loop stands also while another thread of the gateway holds Python's
lock: such threads' time is part of the second. It leaves out what others on the machine take, so it is the
one that is shown; of several requests the least, which each of them takes. A tick may wait for two rounds of
the loop: the one that is running, and what was ready before it in the next.

The upstream is another process that sends bodies which were made before. `python -m benchmarks hold` shows
the table; `python -m benchmarks.loop_hold gateway URL` and `… upstream` are the two processes.
"""

import asyncio
import contextlib
import functools
import http.client
import json
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from adacompute.config import Config, EndpointConfig, ServeConfig
from adacompute.serve.http import server
from adacompute.serve.routes.gateway import Gateway
from benchmarks.processes import first_line, here

SIZES = (1.0, 8.0)  # MB of a body
ROUNDS = 3
MB = 1_000_000
ENDING = "The answer is \\boxed{42}."
USAGE = {"prompt_tokens": 9, "completion_tokens": 100, "total_tokens": 109}
QUESTION = "What is 6 times 7?"


class Case(NamedTuple):
    """A kind of reply, and a way of asking for it."""

    reply: str  # of REPLIES
    way: str  # of WAYS


class Way(NamedTuple):
    """A request: its path, the fields of its body besides model and messages, and its headers."""

    path: str = "/v1/chat/completions"
    fields: dict[str, Any] = {}  # noqa: RUF012 - never changed
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed


SINGLE = {"x-adacompute-policy": "single"}
ALL = {"logprobs": True, "top_logprobs": 5}
WAYS: dict[str, Way] = {
    "one sample": Way(fields={"temperature": 0.7}, headers=SINGLE),
    "one sample, log-probabilities": Way(fields={"temperature": 0.7, **ALL}, headers=SINGLE),
    "stopping": Way(fields={"temperature": 0.7}),
    "stopping, log-probabilities for the client": Way(fields={"temperature": 0.7, **ALL}),
    "passed through": Way(path="/v1/completions"),
    "streamed": Way(fields={"temperature": 0.7, "stream": True}, headers=SINGLE),
    "streamed, log-probabilities": Way(fields={"temperature": 0.7, "stream": True, **ALL}, headers=SINGLE),
    "streamed, voted": Way(fields={"temperature": 0.7, "stream": True}),
}
CASES = [
    *(
        Case("one text", way)
        for way in ("one sample", "stopping", "passed through", "streamed", "streamed, voted")
    ),
    *(Case("many choices", way) for way in ("one sample", "stopping", "passed through")),
    *(
        Case("log-probabilities", way)
        for way in (
            "one sample, log-probabilities",
            "stopping",
            "stopping, log-probabilities for the client",
            "passed through",
            "streamed, log-probabilities",
            "streamed, voted",
        )
    ),
]


def make_token(number: int) -> dict[str, Any]:
    """A token with five alternatives, some 400 bytes."""
    alternatives = [{"token": f" w{i}", "logprob": -0.1 - i, "bytes": [32, 119, 48 + i]} for i in range(5)]
    return {
        "token": f" w{number % 997}",
        "logprob": -number / 1e6,
        "bytes": [32, 119],
        "top_logprobs": alternatives,
    }


def make_text(size: int) -> str:
    """A text of so many bytes, with an answer at its end."""
    line = 'So we think on, and "é" is what it is, with 12 of them.\n'
    return line * (size // len(json.dumps(line))) + ENDING


def make_choice(index: int, text: str, tokens: list[Any] | None = None) -> dict[str, Any]:
    """A choice of a completion."""
    message = {"role": "assistant", "content": text}
    choice: dict[str, Any] = {"index": index, "message": message, "finish_reason": "stop"}
    return choice if tokens is None else {**choice, "logprobs": {"content": tokens, "refusal": None}}


def make_body(reply: str, size: int) -> bytes:
    """A completion of about so many bytes."""
    if reply == "one text":
        choices = [make_choice(0, make_text(size))]
    elif reply == "many choices":
        length = len(orjson.dumps(make_choice(10_000, ENDING))) + 1
        choices = [make_choice(index, ENDING) for index in range(size // length)]
    else:
        length = len(orjson.dumps(make_token(1))) + 1
        choices = [make_choice(0, make_text(size // 400), [make_token(i) for i in range(size // length)])]
    return orjson.dumps(
        {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}
        | {
            "choices": choices,
            "usage": USAGE,
        }
    )


def make_stream(reply: str, size: int) -> bytes:
    """The same as a stream, with a token an event."""
    events: list[bytes] = []
    total = 0
    while total < size:
        choice: dict[str, Any] = {"index": 0, "delta": {"content": " word"}, "finish_reason": None}
        if reply == "log-probabilities":
            choice["logprobs"] = {"content": [make_token(len(events))]}
        events.append(b"data: " + orjson.dumps({"id": "x", "choices": [choice]}) + b"\n\n")
        total += len(events[-1])
    last = {"index": 0, "delta": {"content": ENDING}, "finish_reason": "stop"}
    return b"".join(
        [*events, b"data: " + orjson.dumps({"id": "x", "choices": [last]}), b"\n\ndata: [DONE]\n\n"]
    )


# The upstream: the model that a request names says what it gets


@functools.cache
def make_response(model: str, is_stream: bool) -> bytes:
    """An HTTP response; the model's name is the kind of the reply, a bar and its bytes."""
    reply, _, size = model.partition("|")
    body = make_stream(reply, int(size)) if is_stream else make_body(reply, int(size))
    kind = "text/event-stream" if is_stream else "application/json"
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def serve_upstream() -> None:
    """Serves what the names of models say, until its standard input is closed."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = [line.partition(b":") for line in head.lower().split(b"\r\n")[1:]]
                sizes = [int(value) for name, _, value in lines if name == b"content-length"]
                body = await reader.readexactly(sizes[0]) if sizes else b""
                if head.startswith(b"GET"):
                    listed = b'{"object":"list","data":[]}'
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(listed), listed))
                else:
                    request = json.loads(body)
                    writer.write(make_response(request["model"], bool(request.get("stream"))))
                await writer.drain()
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


# The gateway, with a ticker in its loop


class Ticker:
    """The longest time between two ticks of a loop, by the clock and by the process's processor time."""

    def __init__(self) -> None:
        self.longest = [0.0, 0.0]

    async def tick(self) -> None:
        """Ticks until it is cancelled."""
        last = (time.perf_counter(), time.process_time())
        while True:
            await asyncio.sleep(0.001)
            now = (time.perf_counter(), time.process_time())
            self.longest = [
                max(most, new - old) for most, new, old in zip(self.longest, now, last, strict=True)
            ]
            last = now

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """For each line that comes, writes what was the longest since the last."""
        while await reader.readline():
            longest, self.longest = self.longest, [0.0, 0.0]
            writer.write(json.dumps(longest).encode() + b"\n")
        writer.close()


def serve_gateway(url: str) -> None:
    """The gateway of this upstream, until SIGTERM; prints its port and the ticker's."""
    ticker, ports, tasks = Ticker(), list[int](), list[asyncio.Task[None]]()

    def start(_gateway: Gateway) -> None:
        tasks.append(asyncio.get_running_loop().create_task(begin()))

    async def begin() -> None:
        listening = await asyncio.start_server(ticker.answer, "127.0.0.1", 0)
        ports.append(listening.sockets[0].getsockname()[1])
        await ticker.tick()

    def say(address: str) -> None:
        asyncio.get_running_loop().call_later(0.5, lambda: print(address, ports[0], flush=True))

    with tempfile.TemporaryDirectory() as name:
        config = Config(
            endpoint=EndpointConfig(url=url),
            serve=ServeConfig(port=0, state=str(Path(name) / "state.sqlite"), log="error", budget="2"),
        )
        server.serve(config, on_listening=say, on_open=start)


def run_part(*words: str) -> contextlib.AbstractContextManager[str]:
    """A process of this module, and the line that it prints first."""
    return first_line(here("-m", "benchmarks.loop_hold", *words))


def ask(address: str, way: Way, model: str) -> int:
    """Sends a request, reads all of the reply, and gives its status."""
    content = (
        {"prompt": QUESTION}
        if way.path == "/v1/completions"
        else {"messages": [{"role": "user", "content": QUESTION}]}
    )
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=120)
    headers = {"content-type": "application/json", **way.headers}
    connection.request("POST", way.path, json.dumps({"model": model, **content, **way.fields}), headers)
    reply = connection.getresponse()
    reply.read()
    connection.close()
    return reply.status


def run(*, sizes: tuple[float, ...] = SIZES, rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """Of each case and size: the least of the longest holds, by processor time and by the clock."""
    rows = []
    with (
        run_part("upstream") as port,
        run_part("gateway", f"http://127.0.0.1:{port}/v1") as line,
        contextlib.ExitStack() as stack,
    ):
        address, ticker_port = line.split()
        ticker = stack.enter_context(socket.create_connection(("127.0.0.1", int(ticker_port)), timeout=60))
        lines = stack.enter_context(ticker.makefile("rw"))

        def read_longest() -> list[float]:
            lines.write("\n")
            lines.flush()
            longest: list[float] = json.loads(lines.readline())
            return longest

        for case in CASES:
            for size in sizes:
                holds = []
                for _ in range(rounds + 1):  # the first has bodies made and code loaded
                    read_longest()
                    status = ask(address, WAYS[case.way], f"{case.reply}|{int(size * MB)}")
                    time.sleep(0.02)
                    holds.append(read_longest())
                clock, processor = (min(times) for times in zip(*holds[1:], strict=True))
                row = {"reply": case.reply, "way": case.way, "megabytes": size, "status": status}
                rows.append(row | {"processor": processor, "clock": clock})
    return rows


def table() -> list[dict[str, str]]:
    """A row for each kind of reply and way of asking, a column for each size."""
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for row in run():
        line = lines.setdefault((row["reply"], row["way"]), {"reply": row["reply"], "asked for": row["way"]})
        refused = "" if row["status"] == 200 else f", answered {row['status']}"
        times = f"{1000 * row['processor']:.1f} ms ({1000 * row['clock']:.1f}{refused})"
        line[f"{row['megabytes']:g} MB"] = times
    return list(lines.values())


if __name__ == "__main__":
    if sys.argv[1] == "upstream":
        asyncio.run(serve_upstream())
    else:
        serve_gateway(sys.argv[2])
