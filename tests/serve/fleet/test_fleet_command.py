"""`adacompute serve --redis`: its settings and secrets, and what is asked of Redis amid a call."""

import json
from pathlib import Path
from typing import Any

import pytest
import redis
from behaviours import Drop, Garbage, Reply
from crowd import ledger_of, until
from fleets import samples
from running import Process, Running

from adacompute.config import ServeConfig
from adacompute.errors import ConfigError
from clusters import RedisServer
from upstream import Upstream

CANARY = "canary-7f3a9d51c0"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (f"redis://:{CANARY}@localhost:6379/0", "redis_key_file"),
        (f"redis://me:{CANARY}@localhost:6379/0", "redis_key_file"),
        (f"redis://:{CANARY}/x@localhost:6379/0", "give redis://HOST:PORT/DB"),
        (f"redis://localhost:6379/0?password={CANARY}", "give redis://HOST:PORT/DB"),
        ("http://localhost:6379", "give redis://HOST:PORT/DB"),
        ("redis://localhost:nine", "give redis://HOST:PORT/DB"),
        ("redis://localhost/zero", "give redis://HOST:PORT/DB"),
        ("localhost", "give redis://HOST:PORT/DB"),
    ],
)
def test_an_address_that_cant_be_used_is_refused_and_no_password_shown(url: str, words: str):
    with pytest.raises(ConfigError, match=words) as refused:
        ServeConfig(redis=url)
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize("name", ["", "a b", "x}y", "a" * 65])
def test_a_fleet_has_a_plain_name(name: str):
    with pytest.raises(ConfigError, match="fleet"):
        ServeConfig(fleet=name)


def test_c21_fleet_the_password_of_redis_is_nowhere_to_be_seen(redis_server: RedisServer, adacompute: Any):
    with redis.Redis(port=redis_server.port) as client:
        client.config_set("requirepass", CANARY)
    key = {"ADACOMPUTE_REDIS_KEY": CANARY}
    seen: list[str] = []
    with Upstream(Reply(texts=["The answer is 42."])) as up:
        shown = adacompute("serve", "--redis", redis_server.url, "--upstream", up.url, "--show-config", **key)
        seen += [shown.stdout, shown.stderr]
        with Process(up.url, "--redis", redis_server.url, "--log", "debug", environ=key) as gate:
            seen += [gate.ask().raw.decode(), gate.get("/metrics").raw.decode()]
            seen.append(gate.get("/dashboard/data").raw.decode())
            wrong = adacompute(
                *("serve", "--redis", redis_server.url, "--upstream", up.url, "--port", "0"),
                code=1,
                ADACOMPUTE_REDIS_KEY="canary-a-wrong-one",
            )
            assert len(wrong.stderr.strip().splitlines()) == 1
            assert "redis_key_file" in wrong.stderr
            seen += [wrong.stderr.replace("a-wrong-one", ""), wrong.stdout]
            redis_server.kill()
            until(lambda: gate.get("/readyz").status == 503)
            seen.append(gate.ask().raw.decode())
            until(lambda: "the ledger is closed" in gate.log)
            gate.kill()
        seen.append(gate.log)
    assert [text for text in seen if "canary" in text] == []


def test_check_joins_leaves_and_leaves_nothing_behind(
    redis_server: RedisServer, adacompute: Any, tmp_path: Path
):
    with Upstream() as up:
        words = ("serve", "--redis", redis_server.url, "--fleet", "mine", "--upstream", up.url, "--check")
        said = json.loads(adacompute(*words, "--port", "0", "--json").stdout)
    assert said["state"] == f"{redis_server.url}, fleet mine"
    with redis.Redis(port=redis_server.port) as client:
        assert client.keys() == []
    assert [file.name for file in tmp_path.iterdir() if file.name != "redis"] == []
    redis_server.kill()
    with Upstream() as up:
        words = ("serve", "--redis", redis_server.url, "--upstream", up.url, "--check", "--port", "0")
        refused = adacompute(*words, code=1)
    assert "can't be reached" in refused.stderr.splitlines()[-1]


def test_without_the_extra_one_line_says_what_to_install(installed: Any, tmp_path: Path):
    without = tmp_path / "without"
    without.mkdir()
    (without / "redis.py").write_text("raise ImportError('no redis here')")
    with Upstream() as up:
        words = ("serve", "--redis", "redis://127.0.0.1:1/0", "--upstream", up.url, "--port", "0")
        refused = installed(*words, code=1, PYTHONPATH=str(without))
    assert len(refused.stderr.strip().splitlines()) == 1
    assert "adacompute[redis]" in refused.stderr


def test_c02_c03_fleet_what_may_be_paid_is_tried_again_only_where_redis_has_room(redis_server: RedisServer):
    script = [Drop(reset=True), Garbage(), Reply(texts=["The answer is 42."])]
    told = {"redis": redis_server.url, "price": 0.5, "endpoint": {"attempts": 3}}
    with Upstream(script) as up, Running(up.url, fleet="a", cap=3, **told) as gate:
        assert gate.ask().status == 200
        assert up.count.requests == 3
        until(lambda: samples(ledger_of(gate)) == (1, 2, 0))
    for stream in (False, True):
        with Upstream(script) as up, Running(up.url, fleet=f"b{stream}", cap=1, **told) as gate:
            assert gate.ask(stream=stream, temperature=0).status == 502
            assert up.count.requests == 1  # the last unit of the cap may be paid already
            assert gate.ask().status == 429
            assert up.count.requests == 1


def test_c02_fleet_a_draw_of_many_waits_as_one_for_more(redis_server: RedisServer):
    def script(number: int, body: dict[str, Any]) -> Any:
        return Drop(reset=True) if number in (2, 3) else Reply(choices=1)

    with (
        Upstream(script) as up,
        Running(up.url, redis=redis_server.url, fleet="c", cap=10, price=0.02) as gate,
    ):
        assert gate.ask(n=6).status == 200  # 6 of them, and two more tried again
        assert up.count.requests == 8
        until(lambda: samples(ledger_of(gate)) == (6, 2, 0))
