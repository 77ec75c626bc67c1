"""What fails is left alone for a moment, and no more: a model, a kind of request, or the upstream."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from behaviours import Garbage, Reply, Stall, Status
from running import Running

from upstream import Upstream

IMAGE: Any = {
    "model": "scripted",
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ],
        }
    ],
}
FAST = {"attempts": 2}


def has_image(body: dict[str, Any]) -> bool:
    return isinstance(body["messages"][0]["content"], list)


def test_c07_an_image_for_a_model_of_texts_keeps_no_text_from_being_served():
    def script(_number: int, body: dict[str, Any]) -> Any:
        return Status(code=500, message="image input is not supported") if has_image(body) else Reply()

    with Upstream(script) as up, Running(up.url) as gate, ThreadPoolExecutor(12) as pool:
        assert list(pool.map(lambda _: gate.ask(IMAGE).status, range(2))) == [500, 500]
        assert gate.ask(temperature=0).status == 200
        images = [answer.status for answer in pool.map(lambda _: gate.ask(IMAGE), range(24))]
        assert 503 in images  # they themselves are left alone after a while
        assert gate.ask(temperature=0).status == 200


@pytest.mark.parametrize(
    "fault",
    [Status(code=500), Status(code=503), Garbage(raw=b"<html>", code=502)],
    ids=["500", "503", "page"],
)
def test_c07_a_failing_model_takes_no_healthy_one_down(fault: Any):
    def script(_number: int, body: dict[str, Any]) -> Any:
        return fault if body["model"] == "broken" else Reply()

    def ask(model: str) -> int:
        return gate.ask(model=model, temperature=0).status

    with (
        Upstream(script) as up,
        Running(up.url, endpoint=FAST) as gate,
        ThreadPoolExecutor(12) as broken,
        ThreadPoolExecutor(6) as healthy,
    ):
        failed = broken.map(ask, ["broken"] * 12)
        served = list(healthy.map(ask, ["scripted"] * 30))
        assert served == [200] * 30
        assert 200 not in list(failed)
        assert [ask("scripted") for _ in range(3)] == [200] * 3
        assert gate.gateway.resources.client.resting == ("broken",)
        metrics = gate.get("/metrics").raw.decode()
        assert 'adacompute_upstream_resting{what="models"} 1.0' in metrics
        assert 'adacompute_upstream_resting{what="upstream"} 0.0' in metrics
        assert gate.get("/dashboard/data").json["resting"] == ["broken"]
        assert gate.get("/readyz").json == {"status": "ready"}


def test_c07_a_model_that_hangs_takes_no_healthy_one_down():
    def script(_number: int, body: dict[str, Any]) -> Any:
        return Stall() if body["model"] == "hangs" else Reply()

    endpoint = {"attempts": 1, "first_byte_timeout": 0.2, "total_timeout": 0.5}
    with (
        Upstream(script) as up,
        Running(up.url, endpoint=endpoint) as gate,
        ThreadPoolExecutor(6) as pool,
    ):
        failed = list(pool.map(lambda _: gate.ask(model="hangs", temperature=0).status, range(12)))
        assert set(failed) <= {503, 504}
        assert gate.ask(temperature=0).status == 200


def test_a_model_that_is_rate_limited_holds_back_itself_only():
    def script(_number: int, body: dict[str, Any]) -> Any:
        slow = Status(code=429, message="slow down", retry_after=600)
        return slow if body["model"] == "limited" else Reply()

    with Upstream(script) as up, Running(up.url) as gate:
        for is_sent in (True, False):
            reply = gate.ask(model="limited", temperature=0)
            assert (reply.status, reply.error["message"] == "slow down") == (429, is_sent)
            assert 590 <= int(reply.headers["retry-after"]) <= 602
        assert gate.ask(temperature=0).status == 200
    assert up.count.requests == 2


@pytest.mark.slow
def test_c07_an_upstream_that_is_gone_is_left_alone_for_all_models_and_comes_back():
    with Upstream() as gone:
        port = gone.port
    with Running(gone.url, endpoint=FAST) as gate:
        codes = [gate.ask(model=f"model-{number}", temperature=0).error["code"] for number in range(6)]
        assert codes[0] == "upstream_unreachable"
        assert codes[-1] == "upstream_resting"  # though this model was never asked for
        assert gate.get("/readyz").json == {"status": "ready", "upstream": "unreachable"}
        assert 'adacompute_upstream_resting{what="upstream"} 1.0' in gate.get("/metrics").raw.decode()
        assert "" in gate.get("/dashboard/data").json["resting"]
        with Upstream(port=port):
            until = time.monotonic() + 30
            while (reply := gate.ask(temperature=0)).status != 200 and time.monotonic() < until:
                time.sleep(0.2)
            assert reply.status == 200
        assert gate.get("/readyz").json == {"status": "ready"}
