"""A server with the responses that a model gave when `facts` was recorded, for tests of the docs.

It behaves as `adacompute local` does. Each question's responses come one after the other.
"""

import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import adacompute as ac
from shared import read_recorded

__all__ = ["ADDRESS", "MODEL", "serve_recording"]

ADDRESS = "http://127.0.0.1:8081/v1"  # what the docs call it
MODEL = "SmolLM2-135M-Instruct-Q4_1"


class Recorded(BaseHTTPRequestHandler):
    """Answers with the recorded responses to a question, one after the other."""

    protocol_version = "HTTP/1.1"
    responses: dict[str, list[ac.Sample]]
    given: defaultdict[str, int]
    lock: threading.Lock

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self.reply({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "us"}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        n = asked.get("n") or 1
        if n > 8:  # as the local model
            self.reply({"error": {"message": "n is above the slots", "type": "invalid"}}, 400)
            return
        question = asked["messages"][-1]["content"]
        with self.lock:
            first = self.given[question]
            self.given[question] += n
        known = self.responses[question]
        drawn = [known[(first + at) % len(known)] for at in range(n)]
        usage = {"prompt_tokens": 40, "completion_tokens": drawn[0].tokens}  # of one choice, as llama.cpp
        choices = [choice(at, sample) for at, sample in enumerate(drawn)]
        self.reply(
            {"id": "c", "object": "chat.completion", "created": 1, "model": MODEL}
            | {"choices": choices, "usage": usage | {"total_tokens": 40 + drawn[0].tokens}}
        )

    def reply(self, value: dict[str, Any], status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def choice(at: int, sample: ac.Sample) -> dict[str, Any]:
    each = {"token": "t", "logprob": sample.logprob / sample.tokens, "bytes": None, "top_logprobs": []}
    return {
        "index": at,
        "message": {"role": "assistant", "content": sample.text},
        "finish_reason": "stop" if sample.finished else "length",
        "logprobs": {"content": [each] * sample.tokens},
    }


@contextmanager
def serve_recording() -> Iterator[str]:
    """The address of such a server."""
    responses = {one.problem.question: list(one.samples) for one in read_recorded("facts")}
    state = {"responses": responses, "given": defaultdict(int), "lock": threading.Lock()}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Here", (Recorded,), state))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
