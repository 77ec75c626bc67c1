"""What a command says where a user is likely to go wrong first: each names the fault and the way out."""

import http.server
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from behaviours import Reply, Status

from adacompute.policies import StoppingPolicy
from adacompute.pool import open_pool
from upstream import Upstream

KEY = "sk-canary-0123456789abcdef"
QUESTIONS = [{"id": f"q{i}", "question": f"What is {i} plus {i}?", "answer": f"{2 * i}"} for i in range(3)]
Run = Callable[..., Any]


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
    return path


@pytest.fixture
def web_server() -> Iterator[str]:
    """An ordinary web server, which is no endpoint of a model."""

    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = b"{}" if "json" in self.path else b"<html><title>Not here</title>"
            self.send_response(404 if "404" in self.path else 200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def always(name: str) -> Callable[[int, dict[str, Any]], Reply]:
    """An endpoint that answers to any name of a model as this one."""

    def reply(number: int, body: dict[str, Any]) -> Reply:
        choice = {
            "message": {"role": "assistant", "content": f"The answer is {number}."},
            "finish_reason": "stop",
        }
        choices = [{"index": i, **choice} for i in range(body.get("n") or 1)]
        usage = {
            "prompt_tokens": 9,
            "completion_tokens": 5 * len(choices),
            "total_tokens": 9 + 5 * len(choices),
        }
        return Reply(
            body={
                "id": "c",
                "object": "chat.completion",
                "created": 1,
                "model": name,
                "choices": choices,
                "usage": usage,
            }
        )

    return reply


def test_without_a_key_the_error_says_where_to_put_it(adacompute: Run, questions: Path):
    with Upstream(key=KEY) as up:
        for words in (
            ("collect", questions.name, "--pool", "p.sqlite", "--endpoint", up.url),
            ("answer", questions.name, "--endpoint", up.url, "--output", "a.jsonl", "--pool", "a.sqlite"),
        ):
            said = adacompute(*words, code=1).stderr
            assert (
                "no key was given: set the environment variable ADACOMPUTE_KEY, or give --key-file FILE"
                in said
            )


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_refused_is_named_by_its_place_and_never_shown(
    adacompute: Run, questions: Path, tmp_path: Path, status: int
):
    (tmp_path / "key.txt").write_text(KEY)
    with Upstream(Status(code=status, message=f"bad key {KEY}")) as up:
        words = ("collect", questions.name, "--pool", "p.sqlite", "--endpoint", up.url)
        by_file = adacompute(*words, "--key-file", "key.txt", code=1).stderr
        by_name = adacompute(*words, code=1, ADACOMPUTE_KEY=KEY).stderr
    assert "the key in key file 'key.txt' was refused: check it" in by_file
    assert "the key in environment variable ADACOMPUTE_KEY was refused: check it" in by_name
    assert KEY not in by_file + by_name
    assert by_file.count("was refused") == 1  # once for all problems


@pytest.mark.parametrize(
    "words",
    [
        ("fit", "{}", "--output", "policy"),
        ("report", "{}", "--output", "page"),
        ("evaluate", "{}"),
        ("score", "{}"),
        ("solve", "{}", "--budget", "2"),
        ("replay", "{}", "--policy", "stopping", "--budget", "2"),
        ("pool", "{}"),
        ("import", "{}", "--pool", "new.sqlite"),
    ],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_questions_where_samples_are_needed_are_to_be_collected_first(
    adacompute: Run, questions: Path, tmp_path: Path, words: tuple[str, ...], suffix: str
):
    if words[0] == "replay":
        StoppingPolicy().save(tmp_path / "stopping")
    file = questions.with_suffix(f".{suffix}")
    if suffix == "csv":
        file.write_text("\n".join(["id,question,answer", *(",".join(q.values()) for q in QUESTIONS)]) + "\n")
    elif suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(QUESTIONS), file)
    said = adacompute(*(word.format(file.name) for word in words), code=1).stderr
    assert said == (
        f"adacompute: {file.name}: these are questions without samples; collect samples first: "
        f"adacompute collect {file.name} --endpoint URL --pool POOL.sqlite\n"
    )
    assert not (tmp_path / "new.sqlite").exists()


@pytest.mark.parametrize("command", ["collect", "answer"])
@pytest.mark.parametrize("says", ["its own name", "the name that was sent"])
def test_an_endpoint_that_answers_to_any_name_is_stored_under_the_name_that_it_says(
    adacompute: Run, questions: Path, tmp_path: Path, command: str, says: str
):
    options = {
        "collect": ("--samples", "2"),
        "answer": ("--budget", "2", "--output", "a.jsonl", "--overwrite"),
    }[command]
    with Upstream(always("scripted") if says == "its own name" else None) as up:
        words = (command, questions.name, "--pool", "p.sqlite", "--endpoint", up.url)
        first = adacompute(*words, "--model", "nosuch", *options)
        assert first.stderr.count("doesn't list it, but scripted") == 1
        assert "samples are stored under scripted" in first.stderr
        assert "model       scripted" in first.stdout
        sent = [request.body["model"] for request in up.requests]
        assert set(sent) == {"nosuch"}, "it is asked by the name that was given"
        again = adacompute(*words, "--model", "nosuch", *options)  # goes on in the same pool
        assert "2 of 2" in again.stdout or "6 of 6" in again.stdout or "3 of 3" in again.stdout
        adacompute(*words, *options)  # so does the model's own name
    with open_pool(tmp_path / "p.sqlite") as pool:
        assert [name for name, _ in pool.models] == ["scripted"]


def test_a_pool_that_has_a_name_of_its_own_keeps_it(adacompute: Run, questions: Path, tmp_path: Path):
    """As pools of earlier releases do, which stored the name that was given."""
    words = ("collect", questions.name, "--pool", "p.sqlite", "--model", "alias")
    with Upstream(models=("alias",)) as up:
        adacompute(*words, "--samples", "1", "--endpoint", up.url)
    with Upstream(always("scripted")) as up:
        said = adacompute(*words, "--samples", "2", "--endpoint", up.url)
    assert said.stderr.count("alias") == 0
    with open_pool(tmp_path / "p.sqlite") as pool:
        assert [name for name, _ in pool.models] == ["alias"]


def test_a_name_that_an_endpoint_refuses_is_answered_with_those_that_it_has(adacompute: Run, questions: Path):
    with Upstream(Status(code=404, message="no such model"), models=("one", "two")) as up:
        words = ("collect", questions.name, "--pool", "p.sqlite", "--endpoint", up.url)
        said = adacompute(*words, "--model", "three", code=1).stderr
    assert "no such model" in said
    assert "it lists one, two" in said


def test_a_listed_name_costs_no_call_of_its_own(adacompute: Run, questions: Path):
    with Upstream() as up:
        words = ("collect", questions.name, "--pool", "p.sqlite", "--endpoint", up.url, "--samples", "1")
        said = adacompute(*words, "--model", "scripted")
        assert up.count.requests == 3
    assert "doesn't list" not in said.stderr


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--policy", "nowhere"), ("--state", "no/such/folder/state.sqlite")])
def test_a_check_names_the_upstreams_fault_before_any_other(
    adacompute: Run, web_server: str, options: tuple[str, ...]
):
    for url, fault in (
        ("http://127.0.0.1:1/v1", "can't be reached"),
        (f"{web_server}/404", "answered 404: a web page, no OpenAI-compatible reply (Not here)"),
        (f"{web_server}/v1", "is this an OpenAI-compatible endpoint?"),
        (f"{web_server}/json", "doesn't list models as OpenAI-compatible endpoints do"),
    ):
        said = adacompute("serve", "--check", "--upstream", url, *options, code=1)
        assert fault in said.stderr
        assert (said.stderr.count("\n"), said.stdout) == (1, "")


def test_a_file_that_another_tool_wrote_is_imported_by_its_format(adacompute: Run, tmp_path: Path):
    (tmp_path / "log.json").write_text('{"version": 2}')
    (tmp_path / "odd.jsonl").write_text('{"run": 1}\n')
    for name in ("log.json", "odd.jsonl"):
        said = adacompute("import", name, "--pool", "p.sqlite", code=1).stderr
        assert "--format lm-eval or inspect" in said
    (tmp_path / "samples.jsonl").write_text('{"doc_id": 0, "doc": {}, "target": "x", "resps": [["x"]]}\n')
    said = adacompute("import", "samples.jsonl", "--pool", "p.sqlite", code=1).stderr
    assert "is a log of lm-eval; import it with --format lm-eval" in said


def test_money_is_written_with_its_currency(adacompute: Run, questions: Path):
    prices = ("--input-price", "1000", "--output-price", "2000", "--max-tokens", "20")
    with Upstream() as up:
        words = (
            "collect",
            questions.name,
            "--pool",
            "p.sqlite",
            "--endpoint",
            up.url,
            "--samples",
            "2",
            *prices,
        )
        assert re.search(
            r"cost +at most [\d.]+ EUR\n", adacompute(*words, "--currency", "EUR", "--dry-run").stdout
        )
        done = adacompute(*words)
        assert re.search(r"cost +[\d.]+ USD\n", done.stdout)
        assert re.search(r"cost [\d.]+ USD", done.stderr), "as it goes on, too"
        stopped = adacompute(
            *words, "--samples", "9", "--max-cost", "0.2", "--currency", "EUR", code=None
        ).stderr
        assert "more than is left of 0.2 EUR" in stopped
