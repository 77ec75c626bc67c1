"""A smoke test of an installed adacompute: `python smoke.py EXTRA`, with the Python of its environment.

It uses the standard library and the installed command only. `core` is what works without extras; an extra is
asked for what it gives. Endpoints are on loopback, and nothing else is contacted. What was tried is printed.
"""

import contextlib
import json
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

__all__ = ["TESTS", "main"]

COMMAND = str(Path(sys.executable).parent / "adacompute")
LIMIT = 300.0  # seconds for a command


def run(*words: str, code: int = 0) -> str:
    """What the installed command prints."""
    done = subprocess.run([COMMAND, *words], capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode != code:
        raise RuntimeError(f"adacompute {' '.join(words)}: exit {done.returncode}: {done.stderr[-1000:]}")
    return done.stdout


def write_pool(path: Path, *, problems: int, samples: int) -> None:
    """A pool of easy and hard questions, with known answers."""
    draw = random.Random(0).random
    with path.open("w") as file:
        for number in range(problems):
            sure = 0.4 + 0.6 * draw()
            answers = [{"answer": "1" if draw() < sure else str(2 + int(3 * draw()))} for _ in range(samples)]
            row = {"id": f"p{number}", "question": f"Question {number}?", "gold": "1", "samples": answers}
            file.write(json.dumps(row) + "\n")


class Model(BaseHTTPRequestHandler):
    """An endpoint that always answers 42; also a collector of telemetry, which it counts by path."""

    telemetry: ClassVar[set[str]] = set()

    def _reply(self, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        self._reply({"object": "list", "data": [{"id": "scripted", "object": "model"}]})

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"]))
        if self.path != "/v1/chat/completions":  # what is told to an OpenTelemetry collector
            self.telemetry.add(self.path)
            self._reply({})
            return
        body = json.loads(data)
        message = {"role": "assistant", "content": "The answer is 42."}
        count = int(body.get("n") or 1)
        choices = [{"index": i, "message": message, "finish_reason": "stop"} for i in range(count)]
        usage = {"prompt_tokens": 10, "completion_tokens": 6 * count, "total_tokens": 10 + 6 * count}
        self._reply(
            {"id": "1", "object": "chat.completion", "model": "scripted", "choices": choices, "usage": usage}
        )

    def log_message(self, *words: object) -> None:
        pass


@contextlib.contextmanager
def serve_model() -> Iterator[str]:
    """The scripted endpoint on loopback; its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        thread.join(30)


@contextlib.contextmanager
def start(*words: str) -> Iterator[dict[str, Any]]:
    """A command of ours that serves, ended by SIGTERM; what it prints when it is ready."""
    process = subprocess.Popen(
        [COMMAND, *words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"adacompute {words[0]} ended: {process.communicate()[1][-1000:]}")
        yield json.loads(line)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def ask(url: str, question: str) -> dict[str, Any]:
    """One chat completion."""
    body = {"model": "default", "messages": [{"role": "user", "content": question}], "max_tokens": 24}
    request = urllib.request.Request(
        f"{url}/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as reply:
        return dict(json.load(reply))


def try_core(folder: Path) -> str:
    import adacompute as ac

    missing = [name for name in ac.__all__ if not hasattr(ac, name)]
    assert not missing, missing
    assert run("--version").strip().endswith(ac.__version__)
    write_pool(folder / "pool.jsonl", problems=30, samples=8)
    solved = json.loads(
        run("solve", str(folder / "pool.jsonl"), "--budget", "1.5", "--budgets", "1,2,4", "--json")
    )
    assert solved["problems"] == 30
    run("score", str(folder / "pool.jsonl"), "--budgets", "1,2,4")
    run("import", str(folder / "pool.jsonl"), "--pool", str(folder / "pool.sqlite"))
    run("export", str(folder / "pool.sqlite"), str(folder / "again.jsonl.gz"))
    run("pool", "words")
    state = str(folder / "state.sqlite")
    with serve_model() as model:
        assert "42" in run("ask", "What is 6 times 7?", "--endpoint", model)
        run("serve", "--check", "--upstream", model, "--port", "0", "--state", str(folder / "checked.sqlite"))
        with start("serve", "--upstream", model, "--port", "0", "--state", state) as gateway:
            reply = ask(gateway["url"], "What is 6 times 7?")
    assert "42" in reply["choices"][0]["message"]["content"]
    assert reply["adacompute"]
    return "imports, solve, score, import, export, ask, serve and one request"


def try_fit(folder: Path) -> str:
    import adacompute as ac

    write_pool(folder / "pool.jsonl", problems=60, samples=16)
    run("fit", str(folder / "pool.jsonl"), "-o", str(folder / "policy"))
    assert ac.load_policy(folder / "policy").more("2 + 2?", ac.Tally(), 0.01) >= 1
    run("report", str(folder / "pool.jsonl"), "-o", str(folder / "report"), "--quick")
    assert (folder / "report").is_dir()
    return "fit, load_policy, report"


def try_parquet(folder: Path) -> str:
    run("export", "facts", str(folder / "facts.parquet"))
    here, there = (
        json.loads(run("score", name, "--json")) for name in ("facts", str(folder / "facts.parquet"))
    )
    assert here["rows"] == there["rows"]
    return "export to Parquet, score from it"


def try_local(_: Path) -> str:
    with start("local", "--port", "0") as model:
        reply = ask(model["url"], "What is the capital of France?")
    assert reply["choices"][0]["message"]["content"].strip()
    return "local, and one request to the real model"


def try_redis(folder: Path) -> str:
    program = shutil.which("redis-server")
    if program is None:
        import redis  # noqa: F401

        return "import; no redis-server here"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    words = [program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as server, serve_model() as model:
        try:
            for _ in range(100):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(port)), 1):
                    break
            address = f"redis://127.0.0.1:{port}/0"
            with start(
                "serve", "--upstream", model, "--port", "0", "--redis", address, "--cap", "100"
            ) as gateway:
                assert ask(gateway["url"], "What is 6 times 7?")["adacompute"]
        finally:
            server.terminate()
    return "serve with its ledger in a real Redis"


def try_otel(folder: Path) -> str:
    with serve_model() as model:
        state = str(folder / "state.sqlite")
        words = ("--upstream", model, "--port", "0", "--state", state, "--otel", model.removesuffix("/v1"))
        with start("serve", *words) as gateway:
            assert ask(gateway["url"], "What is 6 times 7?")["adacompute"]
    assert "/v1/traces" in Model.telemetry
    return "serve with --otel, and the spans of one request"


def try_ray(folder: Path) -> str:
    write_pool(folder / "pool.jsonl", problems=30, samples=8)
    run("import", str(folder / "pool.jsonl"), "--pool", str(folder / "pool.sqlite"))
    run("export", str(folder / "pool.sqlite"), str(folder / "shards"), "--shards", "2")
    words = ("--budgets", "1,2,4", "--json")
    here = json.loads(run("score", str(folder / "shards"), *words))
    there = json.loads(run("score", str(folder / "shards"), "--engine", "ray", "--workers", "2", *words))
    assert [row["accuracy"] for row in here["rows"]] == [row["accuracy"] for row in there["rows"]]
    return "score --engine ray, as without"


def try_gym(_: Path) -> str:
    import adacompute as ac

    assert len(ac.read_problems("gym:chain_sum+gcd", limit=4, seed=7)) == 4
    return "problems of gym:chain_sum+gcd"


def try_hf(folder: Path) -> str:
    import adacompute as ac

    rows = folder / "copy"
    rows.mkdir()
    (rows / "test.jsonl").write_text('{"question": "What is 6 times 7?", "answer": "42"}\n')
    assert len(ac.read_problems(f"hf:{rows}")) == 1
    return "problems of a local dataset"


TESTS: dict[str, Callable[[Path], str]] = {
    "core": try_core,
    "fit": try_fit,
    "gym": try_gym,
    "hf": try_hf,
    "local": try_local,
    "otel": try_otel,
    "parquet": try_parquet,
    "ray": try_ray,
    "redis": try_redis,
}


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="smoke-") as folder:
        try:
            print(TESTS[sys.argv[1]](Path(folder)))
        except Exception as exc:  # noqa: BLE001 - whatever it is, the smoke test has failed
            print(f"{sys.argv[1]}: {type(exc).__name__}: {exc}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
