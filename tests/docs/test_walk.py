"""The quickstart is walked: each of its commands is run, in order, and prints what the page shows.

In the place of the model stand the responses that it gave when `facts` was recorded, behind a real server
that behaves as `adacompute local` does. The report has tests of its own, and takes longer than all else here.
"""

import importlib.util
import json
import socket
import threading
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import adacompute as ac

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "quickstart.md"
MODEL = "SmolLM2-135M-Instruct-Q4_1"

spec = importlib.util.spec_from_file_location("walk_script", ROOT / "scripts" / "walk.py")
assert spec is not None
assert spec.loader is not None
walk = importlib.util.module_from_spec(spec)
spec.loader.exec_module(walk)


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


@pytest.fixture
def endpoint() -> Iterator[str]:
    responses = {one.problem.question: list(one.samples) for one in ac.bundled("facts")}
    state = {"responses": responses, "given": defaultdict(int), "lock": threading.Lock()}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Here", (Recorded,), state))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


@pytest.mark.slow
def test_every_step_of_the_quickstart_prints_what_the_page_shows(tmp_path: Path, endpoint: str, warm):
    port = free_port()
    swaps = {
        "http://127.0.0.1:8081/v1": endpoint,
        "http://127.0.0.1:8080/v1": f"http://127.0.0.1:{port}/v1",
        "adacompute serve ": f"adacompute serve --port {port} ",
    }

    def run(words: list[str], folder: Path, environ: dict[str, str]):
        forked = words[0] == "adacompute"
        return (
            warm().run(*words[1:], folder=folder, environ=environ)
            if forked
            else walk.run_to_end(words, folder, environ)
        )

    taken = []
    steps = walk.walk_steps(
        PAGE.read_text("utf-8"),
        tmp_path,
        run=run,
        skip=lambda command: command.startswith(("adacompute local", "adacompute report")),
        swaps=swaps,
    )
    for went in steps:
        taken.append(went.command.split()[1])
        if went.kind == "live":
            assert len(went.printed.splitlines()) == len(went.shown.splitlines()), went.printed
        else:
            assert walk.skeleton(went.printed) == walk.skeleton(went.shown), went.command
    assert taken == ["collect", "collect", "pool", "fit", "serve", "ask.py"]


def test_numbers_may_differ_from_walk_to_walk_and_words_may_not():
    assert walk.skeleton("1   37.2%  26.7–47.7%\n") == walk.skeleton("16  9%  1.0–2.0%\n")
    assert walk.skeleton("learned from 40 problems") != walk.skeleton("learned without 40 problems")
