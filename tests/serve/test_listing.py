"""The upstream's models: asked for once for all, known once it is up, and never taken for a budget."""

import asyncio
import time
from collections.abc import Callable

import pytest
from running import QUESTION, Running

from adacompute.errors import EndpointError
from adacompute.serve import chat
from adacompute.serve.chat import ModelList
from upstream import Upstream

UNNAMED = {name: value for name, value in QUESTION.items() if name != "model"}


class Asked:
    """An upstream's list, and how often it was asked for."""

    def __init__(self) -> None:
        self.count = 0
        self.fails = False
        self.go = asyncio.Event()

    async def __call__(self) -> list[str]:
        self.count += 1
        await self.go.wait()
        if self.fails:
            raise EndpointError("it is down")
        return ["m"]


def until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it doesn't come true"
        time.sleep(0.05)


def test_all_who_want_to_know_at_the_same_time_ask_once():
    async def ask() -> None:
        asked = Asked()
        models = ModelList(asked)
        waiting = [asyncio.create_task(models.get_names()) for _ in range(60)]
        await asyncio.sleep(0)
        waiting[0].cancel()  # who asked first goes away
        await asyncio.sleep(0)
        asked.go.set()
        assert await asyncio.gather(*waiting[1:]) == [["m"]] * 59
        assert await models.get_names(refresh=True) == ["m"]
        assert (asked.count, models.known) == (1, {"m"})

    asyncio.run(ask())


def test_an_error_is_kept_for_a_while_and_what_is_known_stays(monkeypatch: pytest.MonkeyPatch):
    async def ask() -> None:
        asked = Asked()
        asked.go.set()
        asked.fails = True
        models = ModelList(asked)
        for _ in range(10):
            with pytest.raises(EndpointError):
                await models.get_names()
        assert asked.count == 1
        asked.fails = False
        assert await models.get_names(refresh=True) == ["m"]
        monkeypatch.setattr(chat, "_LIST_SECONDS", 0.0)
        models = ModelList(asked)
        await models.get_names()
        asked.fails = True
        with pytest.raises(EndpointError):
            await models.get_names()
        assert models.known == {"m"}

    asyncio.run(ask())


def test_the_default_model_is_learned_once_the_upstream_is_up():
    with Upstream() as gone:
        port = gone.port
    with Running(f"http://127.0.0.1:{port}/v1", budget=1.0) as gate:
        assert gate.ask(UNNAMED).status == 400
        with Upstream(port=port) as up:
            until(lambda: gate.ask(UNNAMED).status == 200)
            assert up.requests[-1].body["model"] == "scripted"


def test_a_model_that_the_upstream_lists_is_not_read_as_a_budget():
    with Upstream(models=("qwen@2", "other")) as up, Running(up.url, budget=1.0) as gate:
        assert gate.get("/v1/models").status == 200
        for asked, model in (("qwen@2", "qwen@2"), ("other@2", "other"), ("qwen@2@3", "qwen@2")):
            assert gate.ask(model=asked, temperature=0).status == 200
            assert up.requests[-1].body["model"] == model
