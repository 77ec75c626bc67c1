"""The upstream's models: asked for once for all, known once it is up, and never taken for a budget."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from other_routes import OtherRoutes, status
from running import QUESTION, Running
from wires import until

from adacompute.client import ModelList, client
from adacompute.errors import EndpointError
from upstream import Upstream

UNNAMED = {name: value for name, value in QUESTION.items() if name != "model"}


class Asked:
    """An upstream's list, and how often it was asked for."""

    def __init__(self) -> None:
        self.count = 0
        self.fails = False
        self.go = asyncio.Event()

    async def __call__(self) -> list[dict[str, Any]]:
        self.count += 1
        await self.go.wait()
        if self.fails:
            raise EndpointError("it is down")
        return [{"id": "m"}]


async def test_all_who_want_to_know_at_the_same_time_ask_once():
    asked = Asked()
    models = ModelList(asked)
    waiting = [asyncio.create_task(models.get_models()) for _ in range(60)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # who asked first goes away
    await asyncio.sleep(0)
    asked.go.set()
    assert await asyncio.gather(*waiting[1:]) == [{"m": {"id": "m"}}] * 59
    assert await models.get_models(refresh=True) == {"m": {"id": "m"}}
    assert (asked.count, set(models.known)) == (1, {"m"})


async def test_an_error_is_kept_for_a_while_and_what_is_known_stays(monkeypatch: pytest.MonkeyPatch):
    asked = Asked()
    asked.go.set()
    asked.fails = True
    models = ModelList(asked)
    for _ in range(10):
        with pytest.raises(EndpointError):
            await models.get_models()
    assert asked.count == 1
    asked.fails = False
    assert await models.get_models(refresh=True) == {"m": {"id": "m"}}
    monkeypatch.setattr(client, "_LIST_SECONDS", 0.0)
    models = ModelList(asked)
    await models.get_models()
    asked.fails = True
    with pytest.raises(EndpointError):
        await models.get_models()
    assert set(models.known) == {"m"}


def test_the_default_model_is_learned_once_the_upstream_is_up():
    with Upstream() as gone:
        port = gone.port
    with Running(f"http://127.0.0.1:{port}/v1", budget=1.0) as gate:
        assert gate.ask(UNNAMED).status == 400
        with Upstream(port=port) as up:
            until(lambda: gate.ask(UNNAMED).status == 200)
            assert up.requests[-1].body["model"] == "scripted"


def test_a_request_that_leaves_the_choice_among_several_models_open_is_told_them_and_the_option():
    models = ("small", "medium", "large")
    with Upstream(models=models) as up, Running(up.url, budget=1.0) as gate:
        for body, status in (({**QUESTION, "model": "default"}, 404), (UNNAMED, 400)):
            answer = gate.ask(body)
            assert (answer.status, answer.error["code"], answer.error["param"]) == (
                status,
                "model_not_found",
                "model",
            )
            assert all(word in answer.error["message"] for word in (*models, "--model"))
        assert up.count.requests == 0
    with Upstream(models=("default", "other")) as up, Running(up.url, budget=1.0) as gate:
        assert gate.ask(model="default").status == 200
    with Upstream(models=()) as up, Running(up.url, budget=1.0) as gate:  # it may take any name
        assert gate.ask(model="default").status == 200


def test_a_model_that_the_upstream_lists_is_not_read_as_a_budget():
    with Upstream(models=("qwen@2", "other")) as up, Running(up.url, budget=1.0) as gate:
        assert gate.get("/v1/models").status == 200
        for asked, model in (("qwen@2", "qwen@2"), ("other@2", "other"), ("qwen@2@3", "qwen@2")):
            assert gate.ask(model=asked, temperature=0).status == 200
            assert up.requests[-1].body["model"] == model


def test_all_that_the_upstream_says_of_a_model_is_passed_on_masked_and_bounded(tmp_path: Path):
    key = "canary-upstream-key-0123456789"
    (tmp_path / "key").write_text(key)
    model = {
        "id": "org/m",
        "object": "model",
        "created": 1_700_000_000,
        "owned_by": "vllm",
        "root": "/models/m",
        "max_model_len": 8192,
        "meta": {"n_params": 7e9, "where": "http://127.0.0.1:9/x", "key": f"it is {key}"},
        "permission": [{"id": "p", "allow_sampling": True}],
        "long": "x" * 1_000_000,
    }
    listing = status(200, {"object": "list", "data": [model, {"id": "bare", "created": "now"}]})
    with (
        OtherRoutes(models=listing) as up,
        Running(up.url, folder=tmp_path, endpoint={"key_file": str(tmp_path / "key")}) as gate,
    ):
        raw = gate.get("/v1/models")
        first, second = raw.json["data"]
        assert gate.get("/v1/models/org/m").json == gate.get("/v1/models/org%2Fm").json == first
    for name in ("id", "object", "created", "owned_by", "root", "max_model_len", "permission"):
        assert first[name] == model[name]
    assert first["meta"]["n_params"] == 7e9
    assert key not in raw.raw.decode()
    assert "127.0.0.1" not in raw.raw.decode()
    assert len(raw.raw) < 20_000
    assert second == {"id": "bare", "object": "model", "created": 0, "owned_by": "upstream"}
