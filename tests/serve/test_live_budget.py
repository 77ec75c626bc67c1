"""The budget changes while it serves, by SIGHUP or an operator's key: at all workers, in all of a fleet."""

import random
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crowd import Visit, crowd, until
from running import Process, Running
from test_average import asked, script

from clusters import RedisServer
from tiers import leave_to_nightly
from upstream import Upstream

PATH = "/admin/budget"
BOSS = {"authorization": "Bearer key-of-the-boss-0123456789"}
ALICE = {"authorization": "Bearer key-of-alice-0123456789"}
PRICES = {"input_price": 1.0, "output_price": 4.0}


@pytest.fixture
def keys(tmp_path: Path) -> str:
    file = tmp_path / "keys.toml"
    file.write_text(
        '[boss]\nkey = "key-of-the-boss-0123456789"\noperator = true\n'
        '[alice]\nkey = "key-of-alice-0123456789"\n'
    )
    return str(file)


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream(script) as up:
        yield up


def read_budget(gate: Any) -> tuple[str, str]:
    """The budget in force, and where it comes from."""
    told = gate.get(PATH, BOSS).json
    return told["budget"].removesuffix(" per request"), told["source"]


def read_board(gate: Any) -> dict[str, Any]:
    return gate.get("/dashboard/data", BOSS).json


def test_c22_only_an_operators_key_changes_the_budget_and_only_to_one_that_can_be_kept(
    keys: str, upstream: Upstream
):
    with Running(upstream.url) as gate:
        assert gate.patch(PATH, {"budget": 3}).status == 403
        assert read_budget(gate) == ("2 samples", "settings")
    with Running(upstream.url, keys_file=keys) as gate:
        for headers, status in (({}, 401), (ALICE, 403), ({"authorization": "Bearer guessed"}, 401)):
            assert gate.patch(PATH, {"budget": 3}, headers).status == status
            assert gate.get(PATH, headers).status == status
        form = {**BOSS, "content-type": "text/plain"}
        assert gate.patch(PATH, {"budget": 3}, form).status == 415  # as a page of another site could send it
        unusable = [0, -1, 0.5, 17, "x", "", True, [], {}, "2 USD per 1000", "3 EUR", "1e999", "9" * 5000]
        bodies = [*({"budget": budget} for budget in unusable), {}, [], None, 3, {"budget": 3, "cap": 0}]
        for body in bodies:
            answer = gate.patch(PATH, body, BOSS)
            assert answer.status in (400, 413), body
            assert answer.error["message"]
        assert read_budget(gate) == ("2 samples", "settings")
        assert gate.ask(headers=ALICE).status == 200


@pytest.mark.slow
def test_the_average_meets_the_new_budget_soon_and_all_that_is_shown_is_of_it(keys: str, upstream: Upstream):
    rng = random.Random(36)

    def spend(gate: Running, count: int) -> float:
        visits = [Visit(body=asked(0.6, rng).body, headers=BOSS) for _ in range(count)]
        answers = crowd(gate, visits, at_once=4)
        assert {answer.status for answer in answers} == {200}
        return sum(answer.json["adacompute"]["samples"] for answer in answers) / count

    with Running(upstream.url, keys_file=keys, endpoint=PRICES, cap=100_000) as gate:
        spend(gate, 100)
        assert gate.patch(PATH, {"budget": "4 samples"}, BOSS).json["budget"] == "4 samples per request"
        assert spend(gate, 200) == pytest.approx(4, rel=0.15)
        board, text = read_board(gate), gate.get("/metrics", BOSS).raw.decode()
        assert (board["budget"], board["budget_unit"]) == (4.0, "samples")
        assert {(dial["budget"], dial["requests"]) for dial in board["dials"]} == {(2.0, 100), (4.0, 200)}
        assert re.search(r'adacompute_target_samples{budget="4",policy="stopping"} 4.0', text)
        assert board["ever"]["voted"]["target"] == pytest.approx((100 * 2 + 200 * 4) / 300)
        spent = board["spend"][0]["spent"]
        # in another unit: averages start again, what was spent and its cap go on
        assert gate.patch(PATH, {"budget": "0.2 USD per 1000"}, BOSS).status == 200
        assert gate.ask(headers=BOSS).status == 200
        board, text = read_board(gate), gate.get("/metrics", BOSS).raw.decode()
        assert (board["budget"], board["budget_unit"]) == (0.0002, "money")
        assert (board["ever"]["requests"], board["total"]["counted"]) == (1, 1)
        assert board["spend"][0]["spent"] > spent
        assert "adacompute_overall_average_samples NaN" in text
        assert gate.patch(PATH, {"budget": None}, BOSS).json["source"] == "settings"
        assert read_budget(gate) == ("2 samples", "settings")
        assert 'adacompute_overall_average_cost{unit="money"} NaN' in gate.get("/metrics", BOSS).raw.decode()


@pytest.mark.slow
@pytest.mark.parametrize("workers", leave_to_nightly([1, 2]))
def test_sighup_rereads_the_settings_and_says_what_takes_a_restart(
    workers: int, keys: str, tmp_path: Path, upstream: Upstream, redis_server: RedisServer
):
    file = tmp_path / "adacompute.toml"
    file.write_text("[serve]\nbudget = 2\n")
    shared = {"workers": workers, "redis": redis_server.url} if workers > 1 else {}
    with Process(upstream.url, folder=tmp_path, keys_file=keys, **shared) as gate:

        def everywhere(budget: str, source: str = "settings") -> bool:
            return {read_budget(gate) for _ in range(8 * workers)} == {(budget, source)}

        assert everywhere("2 samples")
        file.write_text("[serve]\nbudget = '5 samples'\ncap = 10\n[endpoint]\nmodel = 'm'\n")
        gate.signal(signal.SIGHUP)
        until(lambda: everywhere("5 samples"))
        until(lambda: "takes a restart" in gate.log)
        (line,) = [line for line in gate.log.splitlines() if "takes a restart" in line]
        assert all(setting in line for setting in ("cap in [serve]", "model in [endpoint]"))
        assert read_board(gate)["budget"] == 5.0
        file.write_text("[serve]\nbudget = 99\n")
        gate.signal(signal.SIGHUP)
        until(lambda: "settings not reloaded" in gate.log)
        assert everywhere("5 samples")
        # an operator's holds, whatever the file says by now
        assert gate.patch(PATH, {"budget": 3}, BOSS).status == 200
        until(lambda: everywhere("3 samples", f"PATCH {PATH}"))
        file.write_text("[serve]\nbudget = 6\n")
        gate.signal(signal.SIGHUP)
        until(lambda: "budget 6 samples per request now" in gate.log)
        assert everywhere("3 samples", f"PATCH {PATH}")
        assert gate.patch(PATH, {"budget": None}, BOSS).status == 200
        until(lambda: everywhere("6 samples"))
        assert "Traceback" not in gate.log
    with Process(upstream.url, "--budget", "4", folder=tmp_path, keys_file=keys) as gate:
        gate.signal(signal.SIGHUP)
        until(lambda: "nothing has changed" in gate.log)
        assert read_budget(gate) == ("4 samples", "settings")


@pytest.mark.nightly
def test_an_operators_budget_is_that_of_the_whole_fleet_until_it_starts_again(
    keys: str, redis_server: RedisServer, upstream: Upstream
):
    def replica(**settings: Any) -> Process:
        return Process(upstream.url, redis=redis_server.url, fleet="tested", keys_file=keys, **settings)

    with replica(workers=2) as first, replica(max_budget=4) as second:
        assert first.patch(PATH, {"budget": 3}, BOSS).status == 200
        until(lambda: read_budget(second)[0] == "3 samples")
        assert second.ask(headers=ALICE).status == 200
        assert second.get("/dashboard/data", BOSS).json["budget"] == 3.0
        with replica() as late:
            assert read_budget(late) == ("3 samples", f"PATCH {PATH}")
            assert late.patch(PATH, {"budget": 6}, BOSS).status == 200
        until(lambda: read_budget(first)[0] == "6 samples")
        until(lambda: "the fleet's budget is not used here" in second.log)  # above its max_budget
        assert read_budget(second)[0] == "3 samples"
        assert second.patch(PATH, {"budget": None}, BOSS).status == 200
        until(lambda: read_budget(first) == read_budget(second) == ("2 samples", "settings"))
        assert first.patch(PATH, {"budget": 3}, BOSS).status == 200
    with replica() as again:
        assert read_budget(again) == ("2 samples", "settings")
