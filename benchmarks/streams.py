"""When the first chunk of a stream comes: through the gateway beside directly, each in turn.

The upstream takes a fifth of a second until its first chunk, and a hundredth for each of the next twenty.
"""

import http.client
import json
import statistics
import time
from typing import Any
from urllib.parse import urlsplit

from benchmarks.processes import upstream
from benchmarks.serving import BODY, PROMPT, gateway, place

LATENCY = 0.2  # seconds until the first chunk
ROUNDS = 15
TEXT = "Write a short story about a farmer with 12 cows and 7 goats, and her neighbour."
CHAT = "My neighbour has more goats than I have by now"
# what is asked for, its prompt, the stream mode
KINDS = (
    ("a text: passed on at once", TEXT, "wait"),
    ("chat: held back for its first words", CHAT, "wait"),
    ("a value, `stream_mode` first", PROMPT, "first"),
)


def read_stream(connection: http.client.HTTPConnection, prompt: str, mode: str | None) -> dict[str, float]:
    """Seconds until the first text and the end of one stream, and how many chunks had text."""
    body = BODY | {"messages": [{"role": "user", "content": prompt}], "stream": True}
    headers = {"content-type": "application/json"}
    if mode is not None:
        headers["x-adacompute-stream-mode"] = mode
    began = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", json.dumps(body).encode(), headers)
    reply = connection.getresponse()
    times = []
    while line := reply.readline():
        if b'"content":"' in line.replace(b": ", b":") and b'"content":""' not in line.replace(b": ", b":"):
            times.append(time.perf_counter() - began)
    return {"first": times[0], "end": time.perf_counter() - began, "chunks": len(times)}


def run(*, rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """Of each kind, the medians over rounds, direct and through the gateway; the ratio is within a round."""
    rows = []
    with upstream(latency=LATENCY) as url, place() as folder, gateway(url, folder, budget=2.0) as ours:
        lines = [
            http.client.HTTPConnection(urlsplit(address).netloc, timeout=60) for address in (url, ours.url)
        ]
        for kind, prompt, mode in KINDS:
            pairs = [
                (read_stream(lines[0], prompt, None), read_stream(lines[1], prompt, mode))
                for _ in range(rounds + 1)
            ][1:]  # the first opens what later ones use
            direct, through = (
                {name: statistics.median(pair[i][name] for pair in pairs) for name in pairs[0][i]}
                for i in (0, 1)
            )
            ratio = statistics.median(pair[1]["first"] / pair[0]["first"] for pair in pairs)
            rows.append({"kind": kind, "direct": direct, "through": through, "ratio": ratio})
    return rows
