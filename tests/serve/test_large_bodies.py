"""Bodies as large as a photo: served, and parsed without holding up everybody else."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from behaviours import Reply
from other_routes import OtherRoutes
from running import Answer, Running
from test_event_loop import hold

from adacompute.config import ServeConfig
from adacompute.serve.routes import chat
from tiers import leave_to_nightly
from upstream import Upstream

MEGA = 2**20
PHOTO = "data:image/jpeg;base64," + "A" * (30 * MEGA)
HELD = 0.1  # seconds of processor time, on a slow machine; on a quiet one it is 0.03
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
PARTS = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": PHOTO}}]
ITEMS = [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": PHOTO}]


@pytest.fixture(scope="module")
def gate() -> Iterator[Running]:
    with Upstream(Reply(texts=["It is a cat."]), keep=1) as up, Running(up.url) as running:
        running.up = up  # type: ignore[attr-defined]
        yield running


def ask(gate: Running, path: str, body: dict[str, Any]) -> tuple[Answer, float]:
    """The answer, and the least that the event loop was held for."""
    raw, answers = json.dumps({"model": "m", "temperature": 0, **body}).encode(), list[Answer]()
    seconds = hold(gate, lambda: answers.append(gate.ask(raw, path=path)), HELD)
    return answers[-1], seconds


@pytest.mark.parametrize(
    ("path", "body"),
    leave_to_nightly(
        [
            (CHAT, {"messages": [{"role": "user", "content": PARTS}]}),
            (RESPONSES, {"input": [{"role": "user", "content": ITEMS}]}),
            (CHAT, {"messages": [{"role": "user", "content": ("two words " * 8 + "\n") * (MEGA // 4)}]}),
        ]
    ),
    ids=["photo", "response", "text"],
)
def test_c12_a_large_body_is_served_and_holds_up_nobody(gate: Running, path: str, body: dict[str, Any]):
    answer, held = ask(gate, path, body)
    assert answer.status == 200, answer.raw
    assert held < HELD
    sent = gate.up.requests[-1].body["messages"][0]["content"]  # type: ignore[attr-defined]
    assert sent == (PARTS if "two words" not in str(sent[:10]) else body["messages"][0]["content"])


def test_c12_a_large_body_that_is_passed_on_holds_up_nobody():
    with OtherRoutes() as up, Running(up.url) as gate:
        tokens, held = ask(gate, "/v1/embeddings", {"input": [[1234] * 300_000], "pad": "x" * (20 * MEGA)})
        assert tokens.status == 200
        assert held < HELD
        many, held = ask(gate, "/v1/completions", {"prompt": "x", "pad": [0] * 300_000})
        assert (many.status, "200,000 values" in many.error["message"]) == (400, True)
        assert held < HELD


def test_c09_what_takes_long_to_read_for_its_size_is_refused(gate: Running):
    for text in ('"\\' * (7 * MEGA), "½" * (5 * MEGA)):
        answer, held = ask(gate, CHAT, {"messages": [{"role": "user", "content": text}]})
        assert (answer.status, "escaped" in answer.error["message"]) == (400, True)
        assert held < HELD


def test_c09_limits_are_settings_and_errors_name_them():
    settings = ServeConfig()
    assert (settings.max_body, settings.max_n) == (32 * MEGA, 128)
    with Upstream() as up, Running(up.url, max_body=1000, max_n=20, max_messages=2) as gate:
        long = gate.ask(messages=[{"role": "user", "content": "x" * 2000}])
        assert (long.status, "max_body" in long.error["message"]) == (413, True)
        many = gate.ask(n=21)
        assert (many.status, many.error["param"]) == (400, "n")
        assert "max_n" in many.error["message"]
        assert len(gate.ask(n=20).json["choices"]) == 20


def test_c13_the_bodies_of_all_requests_together_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(chat, "_MAX_HELD_BYTES", 5 * MEGA)
    slow = Reply(texts=["It is 42."], delay=1.0)
    body = {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": "x" * (2 * MEGA)}]}
    with Upstream(slow) as up, Running(up.url) as gate:
        with ThreadPoolExecutor(4) as pool:
            statuses = [answer.status for answer in pool.map(gate.ask, [body] * 4)]
        assert sorted(statuses)[:2] == [200, 200]
        assert sorted(statuses)[2:] == [503, 503]
        assert gate.ask(body).status == 200
