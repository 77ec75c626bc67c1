"""The routes: every reply has an id, whoever is lost is told where to go, and every refusal is counted."""

import base64
import json
import re
from pathlib import Path

import pytest
from running import QUESTION, Process, Running

from upstream import Upstream

KEY = "canary-client-key-0123456789"


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory):
    folder: Path = tmp_path_factory.mktemp("app")
    keys = folder / "keys.toml"
    keys.write_text(f'[me]\nkey = "{KEY}"\noperator = true\n[you]\nkey = "{KEY}-too"\n')
    with Upstream() as up, Running(up.url, folder=folder, keys_file=str(keys)) as found:
        yield found


def mine(key: str = KEY) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def refused(gate: Running) -> dict[str, float]:
    text = gate.get("/metrics", mine()).raw.decode()
    return {
        code: float(n)
        for code, n in re.findall(r'^adacompute_refused_total\{code="(\w+)"\} (\S+)$', text, re.M)
    }


def test_every_reply_has_an_id_and_a_completion_its_own(gate):
    whole = gate.ask(headers=mine())
    assert whole.headers["x-request-id"] == whole.json["id"]
    streamed = gate.ask(headers=mine(), stream=True)
    chunk = json.loads(streamed.raw.split(b"data: ")[1])
    assert streamed.headers["x-request-id"] == chunk["id"]
    passed = gate.ask(headers=mine() | {"x-adacompute-mode": "pass"}, stream=True)
    assert passed.headers["x-request-id"].startswith("chatcmpl-")
    others = [gate.get(path, mine()) for path in ("/v1/models", "/healthz", "/metrics", "/nothing")]
    others += [gate.ask(), gate.ask(b"{", mine())]
    ids = [each.headers["x-request-id"] for each in others]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"req-[0-9a-f]{32}", each) for each in ids)


def test_an_error_of_a_request_under_way_has_the_id_that_its_log_line_has(tmp_path):
    with Upstream() as up, Running(up.url, folder=tmp_path, cap=1.0) as gate:
        gate.ask(temperature=0)
        over = gate.ask(temperature=0)
    assert over.status == 429
    ids = [
        one["id"] for one in gate.gateway.observability.dashboard_data()["recent"]
    ]  # of both, now that it has stopped
    assert over.headers["x-request-id"][-8:] in ids


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/chat/completions", "did you mean /v1/chat/completions?"),
        ("/v1/v1/models", "did you mean /v1/models?"),
        ("/metric", "did you mean /metrics?"),
        (
            "/nowhere",
            "/v1/chat/completions, /v1/responses, /v1/models, /healthz, /readyz, /metrics, /dashboard",
        ),
    ],
)
def test_whoever_is_lost_is_told_the_way(gate, path, words):
    answer = gate.get(path)
    assert (answer.status, answer.error["type"]) == (404, "invalid_request_error")
    assert words in answer.error["message"]


@pytest.mark.parametrize(
    ("messages", "words"),
    [("hi", "is a text; give a list"), ({}, "is an object; give a list"), ([], "is an empty list; give")],
)
def test_messages_that_are_none_are_named_for_what_they_are(gate, messages, words):
    answer = gate.ask(headers=mine(), messages=messages)
    assert (answer.status, answer.error["param"]) == (400, "messages")
    assert f"messages {words}" in answer.error["message"]


def test_a_method_that_there_isnt_is_told_which_there_is(gate):
    answer = gate.get("/v1/chat/completions")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert answer.error["type"] == "invalid_request_error"
    assert answer.error["message"].endswith("is not served; it takes POST")


def test_what_the_policy_would_have_done_is_in_the_metrics(tmp_path):
    with Upstream() as up, Running(up.url, folder=tmp_path, mode="shadow") as gate:
        would = gate.ask().json["adacompute"]["would"]
    text = gate.gateway.observability.render_metrics().decode()  # now that it has stopped
    assert f'adacompute_would_samples_sum{{policy="stopping"}} {float(1 + would)}' in text
    assert 'adacompute_would_samples_count{policy="stopping"} 1.0' in text


def test_all_that_it_says_on_stderr_is_json(tmp_path):
    with Upstream() as up, Process(up.url, folder=tmp_path, log="debug") as gate:
        gate.ask()
        gate.ask(b"{")
        gate.terminate()
        assert gate.wait() == 0
        said = [json.loads(line) for line in gate.log.splitlines()]
    messages = [line["message"] for line in said]
    assert {"request", "upstream", "refused", "stopped"} <= set(messages)
    assert messages[-1] == "stopped"


def test_c27_every_refusal_is_counted_once_whatever_its_route(gate):
    before = refused(gate)
    basic = base64.b64encode(b"x:wrong").decode()
    asked = [
        gate.get("/v1/models"),
        gate.get("/dashboard", {"authorization": f"Basic {basic}"}),
        gate.ask(QUESTION),
        gate.get("/metrics", mine(f"{KEY}-too")),
        gate.get("/nothing"),
        gate.get("/v1/models/nothing", mine()),
        gate.get("/v1/chat/completions"),
        gate.ask(b"{", mine()),
    ]
    codes = [each.error["code"] for each in asked]
    after = refused(gate)
    assert {code: after[code] - before.get(code, 0) for code in after} == {
        **dict.fromkeys(before, 0),
        **{code: codes.count(code) for code in codes},
    }
    assert codes.count("invalid_api_key") == 3
