"""Policies read again by a running gateway: broken ones are refused, good ones take over without a gap."""

import json
import re
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from behaviours import Honest
from crowd import until
from running import Answer, Process
from test_policy_registry import BROKEN, chart

from adacompute.policies import read_policy
from adacompute.policies.chart import write_chart
from adacompute.policies.stopping import StoppingPolicy
from upstream import Upstream

# test_policy_registry.py has all of them
SOME_BROKEN = ("a flipped bit of the arrays", "cut short", "no folder")


def versions(gate: Process) -> list[str]:
    text = gate.get("/metrics").raw.decode()
    return re.findall(r'adacompute_policy_info{policy="mine",version="(\w+)"} 1.0', text)


def reloads(gate: Process, result: str) -> float:
    text = gate.get("/metrics").raw.decode()
    found = re.search(rf'adacompute_reloads_total{{result="{result}"}} (\S+)', text)
    return 0.0 if found is None else float(found[1])


def lines(gate: Process, words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gate.log.splitlines() if words in line]


@pytest.mark.slow
def test_c23_broken_artefacts_are_refused_while_it_serves_and_a_good_one_takes_over(tmp_path: Path):
    mine, good = tmp_path / "mine", tmp_path / "good"
    StoppingPolicy().save(mine)
    write_chart(mine, chart(0.07))
    shutil.copytree(mine, good)
    with Upstream() as up, Process(up.url, folder=tmp_path, policy=str(mine), grace=30.0) as gate:
        (first,) = versions(gate)
        for number, name in enumerate(SOME_BROKEN, 1):
            BROKEN[name](mine)
            gate.signal(signal.SIGHUP)
            until(lambda: reloads(gate, "refused") == number, 30)  # noqa: B023 - asked at once
            until(lambda: len(lines(gate, "keeps serving")) == number)  # noqa: B023
            told = lines(gate, "keeps serving")[-1]
            assert told["level"] == "warning", name
            assert f"{first} keeps serving: {mine}" in told["message"], name
            assert versions(gate) == [first], name
            shutil.rmtree(mine, ignore_errors=True)
            shutil.copytree(good, mine)
        answer = gate.ask()
        assert (answer.status, answer.json["adacompute"]["policy"]) == (200, "mine")
        up.script = Honest(latency=1.0)
        got: list[Answer] = []
        asking = [
            threading.Thread(target=lambda fields=fields: got.append(gate.ask(**fields)))
            for fields in ({}, {"stream": True}, {"stream": True, "temperature": 0})
        ]
        for each in asking:
            each.start()
        until(lambda: up.count.in_flight == 3)
        StoppingPolicy(longest=4).save(mine)
        gate.signal(signal.SIGHUP)
        until(lambda: reloads(gate, "ok") == 1)
        (second,) = versions(gate)
        assert second != first
        until(lambda: lines(gate, f"{second} serves now, in place of {first}"))
        for each in asking:
            each.join(60)
        assert [answer.status for answer in got] == [200] * 3
        assert up.count.aborted == 0
        assert reloads(gate, "refused") == len(SOME_BROKEN)
        for longest in range(5, 15):  # a signal that comes while they are read is not lost
            StoppingPolicy(longest=longest).save(mine)
            gate.signal(signal.SIGHUP)
        last = read_policy(mine)[1][:12]
        until(lambda: versions(gate) == [last])
        assert gate.ready()
    assert not lines(gate, "Traceback")
