"""An endpoint that answers after a fixed time, cheaply enough not to be what is measured.

`python -m benchmarks.upstream --latency 0.05` prints its address, and serves until its stdin closes. It
honours `n` up to --most, and gives log-probabilities where they are asked for.
"""

import argparse
import asyncio
import json
import os
import sys

TEXT = (
    "We add the two amounts, take off what was given away, and so the total is 42. The answer is \\boxed{42}."
)
TOKENS = 28


def choice(index: int, *, logprobs: bool) -> dict[str, object]:
    """One choice of a reply."""
    content = [{"token": "word", "logprob": -0.25, "bytes": [119, 111], "top_logprobs": []}] * TOKENS
    return {
        "index": index,
        "message": {"role": "assistant", "content": TEXT},
        "finish_reason": "stop",
        **({"logprobs": {"content": content}} if logprobs else {}),
    }


def reply(n: int, *, logprobs: bool) -> bytes:
    """A whole HTTP reply with n choices."""
    body = json.dumps(
        {
            "id": "x",
            "object": "chat.completion",
            "model": "m",
            "choices": [choice(i, logprobs=logprobs) for i in range(n)],
            "usage": {"prompt_tokens": 60, "completion_tokens": TOKENS * n, "total_tokens": 60 + TOKENS * n},
        }
    ).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Served(asyncio.Protocol):
    """One connection; requests one after another."""

    latency = 0.05
    most = 1
    replies: dict[tuple[int, bool], bytes] = {}  # noqa: RUF012 - of the process: made once each

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, gap, body = self.data.partition(b"\r\n\r\n")
        if not gap:
            return
        lower = head.lower()
        start = lower.find(b"content-length:")
        length = int(lower[start + 15 :].split(b"\r\n", 1)[0]) if start >= 0 else 0
        if len(body) < length:
            return
        self.data = body[length:]
        asked = json.loads(body[:length]) if length else {}
        kind = min(asked.get("n", 1), self.most), bool(asked.get("logprobs"))
        if kind not in self.replies:
            self.replies[kind] = reply(kind[0], logprobs=kind[1])
        asyncio.get_running_loop().call_later(self.latency, self.send, self.replies[kind])

    def send(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)  # type: ignore[attr-defined]


async def serve(latency: float, most: int) -> None:
    """Serves until stdin closes."""
    Served.latency, Served.most = latency, most
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Served, "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    os._exit(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--most", type=int, default=1)
    given = parser.parse_args()
    asyncio.run(serve(given.latency, given.most))
