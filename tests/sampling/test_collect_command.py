"""`adacompute collect` as a user meets it: what it says, what it refuses, and what it never says."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from collecting import process, stored

from adacompute.pool import export_file, open_pool
from upstream import Garbage, Honest, Reply, Status, Upstream

CANARY = "sk-canary-0123456789abcdef"


@pytest.fixture
def questions(tmp_path: Path) -> str:
    (tmp_path / "problems.jsonl").write_text(
        "".join(
            json.dumps({"id": f"p{i}", "question": f"What is {i}?", "gold": "2"}) + "\n" for i in range(5)
        )
    )
    return "problems.jsonl"


def test_it_collects_and_says_what_it_took_and_how_to_go_on(adacompute: Callable, questions: str, tmp_path):
    with Upstream(Honest(usage="one")) as up:
        prices = ("--input-price", "1", "--output-price", "2")
        done = adacompute(
            "collect", questions, "--pool", "p.sqlite", "--endpoint", up.url, "--samples", "4", *prices
        )
    assert "p.sqlite: 20 of 20 planned samples, 20 new" in done.stdout
    assert "model       scripted" in done.stdout
    assert f"{up.count.completion_tokens:,} of responses" in done.stdout
    assert "adacompute pool p.sqlite" in done.stdout
    shown = adacompute("pool", "p.sqlite").stdout
    assert "calls          5, " in shown
    assert "20 samples" in shown
    with open_pool(tmp_path / "p.sqlite") as pool:
        assert pool.task.extract == "auto", "nobody chose a template: answers are read wherever they stand"


def test_json_is_one_object_with_the_account(adacompute: Callable, questions: str):
    with Upstream() as up:
        done = adacompute(
            "collect", questions, "--pool", "p.sqlite", "--endpoint", up.url, "--samples", "3", "--json"
        )
    found = json.loads(done.stdout)
    assert (found["planned"], found["stored"], found["complete"]) == (15, 15, True)
    assert (found["calls"], found["stopped"], found["failures"]) == (5, None, {})
    assert found["completion_tokens"] == up.count.completion_tokens


def test_a_dry_run_sends_nothing_and_says_calls_tokens_and_cost(
    adacompute: Callable, questions: str, tmp_path
):
    with Upstream() as up:
        words = ("collect", questions, "--pool", "p.sqlite", "--endpoint", up.url, "--model", "scripted")
        words += ("--samples", "4", "--max-tokens", "10", "--output-price", "1000000")
        first = adacompute(*words, "--dry-run")
        assert not (tmp_path / "p.sqlite").exists()
        assert up.count.requests == 0
        assert "to draw: 20 samples of 5 problems; nothing was sent" in first.stdout
        assert "5 where the endpoint gives all" in first.stdout
        assert "at most 200" in first.stdout
        adacompute(*words)
        again = json.loads(adacompute(*words, "--dry-run", "--json").stdout)
        assert (again["samples"], again["stored"], again["cost_most"]) == (0, 20, 0.0)
        more = json.loads(adacompute(*words, "--samples", "8", "--dry-run", "--json").stdout)
    assert (more["samples"], more["completion_tokens"], more["calls_least"]) == (20, 240, 5)


def test_a_dry_run_shows_what_would_be_asked_and_needs_no_endpoint(adacompute: Callable, questions: str):
    words = ("collect", questions, "--pool", "p.sqlite", "--endpoint", "http://127.0.0.1:9/v1", "--dry-run")
    shown = adacompute(*words).stdout
    assert "template    boxed; answers are read by 'auto'" in shown
    assert "gold        5 of 5 problems, e.g. '2'" in shown
    assert "user        What is 0?" in shown
    found = json.loads(adacompute(*words, "--json").stdout)
    assert (found["gold_known"], found["template"], found["cost_most"]) == (5, "boxed", None)
    assert found["first_prompt"][-1] == {"role": "user", "content": "What is 0?"}


def test_choices_that_a_template_doesnt_show_are_noticed_before_anything_is_paid(
    adacompute: Callable, tmp_path
):
    row = {"question": "Which?", "choices": ["a", "b"], "answer": 1}
    (tmp_path / "m.jsonl").write_text(json.dumps(row) + "\n")
    words = ("collect", "m.jsonl", "--pool", "p.sqlite", "--endpoint", "http://127.0.0.1:9/v1", "--dry-run")
    assert "B) b" in adacompute(*words, "--preset", "mmlu").stdout
    hidden = adacompute(*words, "--preset", "mmlu", "--template", "plain", code=1)
    assert "these problems have choices, and template 'plain' doesn't show them" in hidden.stderr
    assert "--preset" in adacompute(*words, code=1).stderr


def test_where_no_answer_is_found_it_says_so_and_the_texts_can_be_read_again(
    adacompute: Callable, questions: str
):
    with Upstream(Reply(texts=["It is Peru, I think.", "Well: Peru."])) as up:
        words = ("collect", questions, "--pool", "p.sqlite", "--endpoint", up.url, "--samples", "2")
        done = adacompute(*words, "--template", "boxed")
    assert "answers     found in 0.0% of samples" in done.stdout
    assert "--reread --extract HOW" in done.stdout
    again = ("import", "p.sqlite", "--pool", "q.sqlite", "--reread", "--extract", "regex:(Peru)")
    adacompute(*again)
    assert "answer found   100.0% of samples" in adacompute("pool", "q.sqlite").stdout
    refused = adacompute("pool", "p.sqlite", "--extract", "auto", code=1).stderr
    assert "was made with extract 'boxed', not 'auto'" in refused
    assert "--reread" in refused


def test_failed_problems_are_listed_and_the_exit_says_so(adacompute: Callable, questions: str):
    def script(_, body):
        bad = "What is 3?" in body["messages"][-1]["content"]
        return Status(code=400, message="the context is too long") if bad else Reply()

    with Upstream(script) as up:
        done = adacompute("collect", questions, "--pool", "p.sqlite", "--endpoint", up.url, code=1)
    assert "1 problem lacks samples:" in done.stderr
    assert "p3: refused:" in done.stderr
    assert "the context is too long" in done.stderr
    assert "48 samples not drawn: they failed; the same command asks for them again" in done.stderr


def test_max_cost_stops_it_and_says_so(adacompute: Callable, questions: str):
    with Upstream(Honest(n="ignore")) as up:
        words = ("--max-tokens", "12", "--output-price", "1000", "--max-cost", "0.5")
        done = adacompute("collect", questions, "--pool", "p.sqlite", "--endpoint", up.url, *words, code=1)
    assert up.count.completion_tokens * 1000 / 1e6 <= 0.5
    assert "--max-cost was reached" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--endpoint", "ftp://x/v1"], 1, "'ftp://x/v1' is not an address of an endpoint"),
        (["--endpoint", "http://127.0.0.1:9"], 1, "has no path; most end in /v1: give http://127.0.0.1:9/v1"),
        ([], 1, "no endpoint is named; give --endpoint URL"),
        (["--endpoint", "http://127.0.0.1:9/v1"], 1, "--model NAME saves that"),
        (["--endpoint", "http://127.0.0.1:9/v1", "--model", "m", "--samples", "0"], 2, "--samples"),
        (["--endpoint", "http://x/v1", "--model", "m", "--parameter", "top_k"], 2, "is not NAME=JSON"),
        (["--endpoint", "http://x/v1", "--model", "m", "--parameter", "n=3"], 1, "'n' is set by adacompute"),
        (["--endpoint", "http://x/v1", "--model", "m", "--template", "boxd"], 1, "boxed"),
        (["--endpoint", "http://x/v1", "--model", "m", "--max-cost", "1"], 1, "max cost needs prices"),
        (["--endpoint", "http://x/v1", "--model", "m", "--columns", "question"], 2, "FIELD=COLUMN"),
        (["--endpoint", "http://x/v1", "--key-file", "none.txt"], 1, "key file 'none.txt' can't be read"),
    ],
)
def test_what_cant_be_used_is_named_in_one_line(adacompute: Callable, questions: str, words, code, message):
    done = adacompute("collect", questions, "--pool", "p.sqlite", *words, code=code)
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    if code == 1:
        assert len(done.stderr.strip().splitlines()) == 1


def test_a_changed_setting_is_refused_with_what_changed_and_a_remedy(adacompute: Callable, questions: str):
    with Upstream() as up:
        words = ("collect", questions, "--pool", "p.sqlite", "--endpoint", up.url, "--samples", "2")
        adacompute(*words)
        done = adacompute(*words, "--temperature", "0.9", code=1)
        assert "temperature was 0.7, is 0.9" in done.stderr
        assert "--another" in done.stderr
        adacompute(*words, "--temperature", "0.9", "--another")
        dry = adacompute(*words, "--temperature", "0.5", "--dry-run", code=1)
    assert "temperature was 0.7, is 0.5" in dry.stderr


def test_several_models_must_be_named(adacompute: Callable, questions: str):
    with Upstream(models=("a", "b")) as up:
        done = adacompute("collect", questions, "--pool", "p.sqlite", "--endpoint", up.url, code=1)
    assert "lists 2 models: a, b; name one with --model" in done.stderr


def echo(number: int, body):
    """A server that quotes the key wherever it can: in errors, headers and texts."""
    if number in (1, 4):
        return Status(code=500, message=f"bad key {CANARY} in request", headers={"X-Key": CANARY})
    if number in (2, 5):
        return Garbage(raw=f'{{"key": "{CANARY}"'.encode())
    return Reply(texts=[f"Your key is {CANARY}. The answer is 2."], choices=1)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["environment", "file", "refused"])
def test_c21_no_output_pool_or_error_ever_holds_the_key(
    adacompute: Callable, questions: str, tmp_path, way: str
):
    script = Status(code=401, message=f"Incorrect API key provided: {CANARY}") if way == "refused" else echo
    with Upstream(script, key=None) as up:
        words = ["collect", questions, "--pool", "p.sqlite", "--endpoint", up.url, "--samples", "2"]
        words += ["--model", "m", "--concurrency", "2"]
        environ = {"ADACOMPUTE_KEY": CANARY}
        if way == "file":
            (tmp_path / "key.txt").write_text(CANARY + "\n")
            words, environ = [*words, "--key-file", "key.txt"], {}
        done = adacompute(*words, code=None, PYTHONASYNCIODEBUG="1", PYTHONWARNINGS="default", **environ)
        assert all(request.headers["authorization"] == f"Bearer {CANARY}" for request in up.requests)
    assert done.returncode == (1 if way == "refused" else 0), done.stderr
    if way != "refused":
        with open_pool(tmp_path / "p.sqlite") as pool:
            assert all("Your key is ***." in text for text in stored(pool).values())
            export_file(pool, tmp_path / "out.jsonl")
    shown = adacompute("pool", "p.sqlite", "--verify", code=None)
    everything = done.stdout + done.stderr + shown.stdout + shown.stderr
    for file in tmp_path.iterdir():
        if file.is_file() and file.name != "key.txt":
            everything += file.read_bytes().decode("latin-1")
    assert CANARY not in everything


def test_a_key_on_the_command_line_is_refused_without_being_repeated(adacompute: Callable, questions: str):
    for words in (["--key", CANARY], [f"--key={CANARY}"], [f"--api-key={CANARY}"]):
        done = adacompute("collect", questions, "--pool", "p.sqlite", *words, code=2)
        assert CANARY not in done.stdout + done.stderr
    done = adacompute(
        "collect", questions, "--pool", "p.sqlite", "--endpoint", f"http://u:{CANARY}@127.0.0.1:9/v1", code=1
    )
    assert "give keys by the environment or a file" in done.stderr
    assert CANARY not in done.stderr


def test_rates_are_kept_by_the_servers_own_clock(adacompute: Callable, questions: str):
    with Upstream(Honest(n="ignore")) as up:
        words = ("--samples", "3", "--requests-per-minute", "600", "--concurrency", "8")
        adacompute("collect", questions, "--pool", "p.sqlite", "--endpoint", up.url, *words)
    times = [request.at for request in up.requests]
    assert len(times) == 15
    assert (times[-1] - times[0]) >= (15 - 10 - 1) / 10, "10 a second, with a second's worth at once"


def test_a_rate_limited_server_gets_all_of_them_in_the_end(adacompute: Callable, questions: str):
    with process("--n", "ignore", "--rate-limit", "25", "--latency", "0.02") as url:
        words = ("--samples", "10", "--concurrency", "16", "--json")
        done = adacompute("collect", questions, "--pool", "p.sqlite", "--endpoint", url, *words)
    assert json.loads(done.stdout)["complete"]
