"""The ledger of a running gateway: closed where it can't be written, and all there again after kill -9."""

import asyncio
import contextlib
import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from behaviours import Honest, Reply
from crowd import Visit, crowd, settled, until
from running import Answer, Process, Running
from test_storm import taken_of

from upstream import Upstream

STATE = "adacompute-gateway.sqlite"


def refused(gate: Running, up: Upstream, **body: Any) -> Answer:
    """A refusal, for which nothing was sent; what has room in a log of writes is served before."""
    while True:
        asked = up.count.requests
        if (answer := gate.ask(**body)).status == 503:
            assert up.count.requests == asked
            return answer


def closed(gate: Running, up: Upstream) -> None:
    """New requests are refused, readiness is off, and nothing is sent."""
    asked = up.count.requests
    until(lambda: gate.ask().status == 503)
    for body in ({}, {"stream": True}, {"stream": True, "temperature": 0}, {"n": 2}):
        refused = gate.ask(**body)
        assert (refused.status, refused.error["code"]) == (503, "ledger_unavailable"), refused.raw
        assert str(gate.folder) not in refused.error["message"], "where files lie is the operator's business"
    assert gate.get("/readyz").status == 503
    assert gate.get("/healthz").status == 200
    assert up.count.requests - asked <= 1  # one may have been let in before it was noticed
    assert settled(gate).spent.samples == up.count.choices


def test_c16_a_state_file_that_is_removed_closes_it_until_it_can_be_written_again(tmp_path: Path):
    with Upstream(Reply(texts=["The answer is 42."])) as up, Running(up.url, folder=tmp_path, cap=50) as gate:
        assert gate.ask().status == 200
        state = tmp_path / "state.sqlite"
        for each in tmp_path.glob("state.sqlite*"):
            each.unlink()
        state.mkdir()  # so that there can be no new one
        time.sleep(0.05)  # whether the file is there is looked at every 10 ms
        closed(gate, up)
        state.rmdir()
        until(gate.ready)
        assert gate.ask().status == 200
        spent = settled(gate).spent.samples
    assert spent == up.count.choices
    assert stored(state) == spent  # what was spent before the file was lost is in the new one


def test_c16_a_full_disk_closes_it_until_there_is_room(small_disk: Any):
    folder = small_disk("512k")
    with Upstream(Reply(texts=["The answer is 42."])) as up, Running(up.url, folder=folder, cap=50) as gate:
        assert gate.ask().status == 200
        filler = folder / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        for body in ({}, {"stream": True}, {"n": 2}):
            assert refused(gate, up, **body).error["code"] == "ledger_unavailable"
        until(lambda: gate.get("/readyz").status == 503)
        filler.unlink()
        until(gate.ready)
        assert gate.ask().status == 200
        spent = settled(gate).spent.samples
    assert stored(folder / "state.sqlite") == spent == up.count.choices


def test_c16_requests_under_way_when_it_closes_are_finished_and_counted(tmp_path: Path):
    with Upstream(Honest(latency=1.0)) as up, Running(up.url, folder=tmp_path, cap=50, price=1.0) as gate:
        gate.call(_begun(gate, up, tmp_path))
        until(gate.ready)
        assert settled(gate).spent.samples == up.count.choices == 1


async def _begun(gate: Running, up: Upstream, folder: Path) -> None:
    """One request, whose ledger is lost while it is under way."""
    asking = asyncio.ensure_future(asyncio.to_thread(gate.ask))
    while not up.count.in_flight:
        await asyncio.sleep(0.01)
    for each in folder.glob("state.sqlite*"):
        each.unlink()
    (folder / "state.sqlite").mkdir()
    refused = await asyncio.to_thread(gate.ask)
    answer = await asking
    (folder / "state.sqlite").rmdir()
    assert (refused.status, answer.status) == (503, 200)


def stored(state: Path) -> int:
    """Samples spent, as the file has it."""
    with sqlite3.connect(f"file:{state}?mode=ro", uri=True) as file:
        (samples,) = file.execute("SELECT coalesce(sum(samples), 0) FROM hours").fetchone()
    file.close()
    return int(samples)


def prices(state: Path) -> dict[str, Any]:
    file = sqlite3.connect(f"file:{state}?mode=ro", uri=True)
    found = file.execute("SELECT value FROM notes WHERE name = 'prices'").fetchone()
    file.close()
    return {} if found is None else json.loads(found[0])


@pytest.mark.slow
def test_c17_spend_and_price_are_there_again_after_kill_9_and_one_state_has_one_gateway(
    tmp_path: Path, adacompute: Any
):
    with Upstream() as up:  # its answers differ: hard questions
        with Process(up.url, folder=tmp_path, budget=4, cap=10_000) as gate:
            first = gate.ask().json["adacompute"]["price"]
            assert {answer.status for answer in crowd(gate, [Visit()] * 60, at_once=8)} == {200}
            requests, last = 61, first
            while abs(last - first) <= 0.2 * first and requests < 400:  # it goes up and down
                requests, last = requests + 1, gate.ask().json["adacompute"]["price"]
            before = taken_of(gate)
            assert abs(last - first) > 0.2 * first, (first, last)
            until(lambda: _noted(tmp_path / STATE) >= requests)
            second = adacompute("serve", "--upstream", up.url, "--port", "0", code=1)
            assert "another gateway keeps its ledger" in second.stderr
            assert len(second.stderr.strip().splitlines()) == 1
            assert gate.ask().status == 200
            gate.kill()
        with Process(up.url, folder=tmp_path, budget=4, cap=10_000) as gate:
            after = taken_of(gate)
            assert after["spent"] + after["maybe"] == up.count.choices > before["spent"]
            assert b"adacompute_price{" in gate.get("/metrics").raw  # without any request
            price = gate.ask().json["adacompute"]["price"]
            assert price == pytest.approx(last, rel=0.2)
            assert abs(price - last) < abs(price - first), (first, last, price)
            gate.terminate()
            assert gate.wait() == 0


def _noted(state: Path) -> int:
    """The requests that the prices in the file come of."""
    return max((int(one["requests"]) for one in prices(state).values()), default=0)
