"""An endpoint that answers after a fixed time, cheaply enough not to be what is measured.

`python -m benchmarks.upstream --latency 0.05` prints its address, and serves until its stdin closes. It
honours `n` up to --most, gives log-probabilities where they are asked for, streams where it is told to, gives
an embedding where there are no messages, and keeps a count (GET /count). --faults spoils that share of the
replies of the model `faulty`, each in another way.
"""

import argparse
import asyncio
import collections
import itertools
import os
import random
import sys
import zlib
from collections.abc import Iterator
from typing import Any

import orjson

TEXT = (
    "We add the two amounts, take off what was given away, and so the total is 42. The answer is \\boxed{42}."
)
_STEPS = (
    "First we find how many apples there are in all: 12 times 7 is 84. ",
    "Then we take off the 15 that were given away, which leaves 69 of them. ",
    "Each box holds three quarters of a crate, so we multiply by 0.75 and round. ",
    "Adding the two parts together gives the amount that the question asks for. ",
)
VARIANTS = 64  # different texts, so that nothing is read once and remembered
FAULTY = "faulty"  # the model whose replies may be spoilt
FAULTS = ("500", "429", "reset", "garbage", "short", "slow")
PIECES = 20  # of a stream


def text_of(size: int, variant: int) -> str:
    """About so many characters, with an answer at the end: three in four of them agree."""
    if size <= len(TEXT):
        return TEXT
    steps = itertools.cycle(_STEPS[variant % 4 :] + _STEPS[: variant % 4])
    answer = 42 if variant % 4 else 40 + variant % 5
    end = f"So for case {variant} the answer is \\boxed{{{answer}}}."
    text = ""
    while len(text) + len(end) < size:
        text += next(steps)
    return text[: size - len(end) - 2] + ". " + end


def choice(index: int, text: str, *, logprobs: bool) -> dict[str, object]:
    """One choice of a reply."""
    sure = -0.15 - zlib.crc32(text.encode()) % 997 / 4985  # no two texts alike: -0.25 on average
    step = -(-len(text) // tokens_of(text))
    pieces = [text[at : at + step] for at in range(0, len(text), step)] if logprobs else []
    content = [
        {"token": piece, "logprob": sure, "bytes": list(piece.encode()), "top_logprobs": []}
        for piece in pieces
    ]
    return {
        "index": index,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
        **({"logprobs": {"content": content}} if logprobs else {}),
    }


def tokens_of(text: str) -> int:
    """About as many as a model would make of it."""
    return max(1, len(text) * 28 // len(TEXT))


def reply(n: int, *, logprobs: bool, size: int = 0, variant: int = 0) -> bytes:
    """A whole HTTP reply with n choices."""
    texts = [text_of(size, variant + i) for i in range(n)]
    used = sum(map(tokens_of, texts))
    body = orjson.dumps(
        {
            "id": "x",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": "m",
            "choices": [choice(i, text, logprobs=logprobs) for i, text in enumerate(texts)],
            "usage": {"prompt_tokens": 60, "completion_tokens": used, "total_tokens": 60 + used},
        }
    )
    return _head(200, "application/json", len(body)) + body


def embedding() -> bytes:
    """A whole HTTP reply with one vector."""
    item = {"object": "embedding", "index": 0, "embedding": [round(0.001 * i, 3) for i in range(256)]}
    used = {"prompt_tokens": 60, "total_tokens": 60}
    body = orjson.dumps({"object": "list", "data": [item], "model": "m", "usage": used})
    return _head(200, "application/json", len(body)) + body


def events(size: int, variant: int) -> Iterator[bytes]:
    """A streamed reply, by pieces, in HTTP's chunks."""
    text = text_of(size, variant)
    yield b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    step = -(-len(text) // PIECES)
    told: dict[str, Any] = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    for start in range(0, len(text), step):
        delta = {"role": "assistant", "content": text[start : start + step]}
        yield _event(told | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield _event(told | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    used = {"prompt_tokens": 60, "completion_tokens": tokens_of(text), "total_tokens": 60 + tokens_of(text)}
    yield _event(told | {"choices": [], "usage": used})
    yield b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


def _event(value: dict[str, Any]) -> bytes:
    data = b"data: " + orjson.dumps(value) + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


def _head(code: int, kind: str, size: int, *more: str) -> bytes:
    lines = [f"HTTP/1.1 {code} OK", f"content-type: {kind}", f"content-length: {size}", *more, "", ""]
    return "\r\n".join(lines).encode()


class Served(asyncio.Protocol):
    """One connection; requests one after another."""

    latency = 0.05
    most = 1
    size = 0  # characters of a response; 0: one short sentence
    faults = 0.0
    drawn = random.Random(0)
    count: collections.Counter[str] = collections.Counter()  # noqa: RUF012 - of the process
    replies: dict[tuple[int, bool, int], bytes] = {}  # noqa: RUF012 - of the process: made once each
    vector = embedding()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.data = b""
        self.timer: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - as asyncio calls it
        if self.timer is not None:
            self.timer.cancel()
            self.count["aborted"] += 1

    def data_received(self, data: bytes) -> None:
        self.data = self.data + data if self.data else data
        end = self.data.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self.data[:end].lower()
        start = head.find(b"content-length:")
        length = int(head[start + 15 :].split(b"\r\n", 1)[0]) if start >= 0 else 0
        if len(self.data) < end + 4 + length:
            return
        body, self.data = self.data[end + 4 : end + 4 + length], self.data[end + 4 + length :]
        if head.startswith(b"get "):
            self.other(head)
        else:
            self.asked(orjson.loads(body))

    def other(self, head: bytes) -> None:
        known = self.count if b"/count " in head else {"object": "list", "data": [{"id": "m"}]}
        told = orjson.dumps(known)
        self.transport.write(_head(200, "application/json", len(told)) + told)

    def asked(self, body: dict[str, Any]) -> None:
        self.count["requests"] += 1
        variant = self.count["requests"] % VARIANTS if self.size else 0
        if self.faults and body.get("model") == FAULTY and self.drawn.random() < self.faults:
            fault = self.drawn.choice(FAULTS)
            self.count[fault] += 1
            if fault != "slow":
                self.spoil(fault)
                return
            self.after(0.3, self.send, reply(1, logprobs=False, size=self.size))
        elif "messages" not in body:
            self.after(self.latency, self.send, self.vector)
        elif body.get("stream"):
            self.count["streams"] += 1
            self.after(self.latency, self.piece, events(self.size, variant))
        else:
            kind = min(body.get("n") or 1, self.most), bool(body.get("logprobs")), variant
            if kind not in self.replies:
                self.replies[kind] = reply(kind[0], logprobs=kind[1], size=self.size, variant=variant)
            self.count["choices"] += kind[0]
            self.after(self.latency, self.send, self.replies[kind])

    def after(self, seconds: float, do: Any, what: Any) -> None:  # noqa: ANN401 - a callback and its argument
        if seconds:
            self.timer = asyncio.get_running_loop().call_later(seconds, do, what)
        else:
            do(what)

    def send(self, answer: bytes) -> None:
        self.timer = None
        if not self.transport.is_closing():
            self.transport.write(answer)

    def piece(self, left: Iterator[bytes]) -> None:
        self.timer = None
        data = next(left, None)
        if data is not None and not self.transport.is_closing():
            self.transport.write(data)
            self.after(self.latency / PIECES, self.piece, left)

    def spoil(self, fault: str) -> None:
        if fault in ("500", "429"):
            told = b'{"error": {"message": "spoilt", "type": "server_error", "code": null}}'
            wait = ("retry-after: 0.05",) if fault == "429" else ()
            self.transport.write(_head(int(fault), "application/json", len(told), *wait) + told)
        elif fault == "reset":
            self.transport.abort()
        elif fault == "garbage":
            self.transport.write(_head(200, "application/json", 12) + b'{"choices": ')
        else:
            self.transport.write(reply(1, logprobs=False, size=self.size)[:-40])
            self.transport.close()


async def serve() -> None:
    """Serves until stdin closes."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Served, "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    os._exit(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--most", type=int, default=1)
    parser.add_argument("--size", type=int, default=0, help="characters of a response")
    parser.add_argument("--faults", type=float, default=0.0, help="share of replies that are spoilt")
    given = parser.parse_args()
    Served.latency, Served.most, Served.size, Served.faults = (
        given.latency,
        given.most,
        given.size,
        given.faults,
    )
    import uvloop

    uvloop.run(serve())
