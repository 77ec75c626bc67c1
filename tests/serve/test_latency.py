"""Latency mode: what is late is asked for early, or again; and it is counted, capped, shown and cancelled."""

import itertools
import json
import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from behaviours import Reply, Stall, Status
from crowd import Visit, crowd, until
from menus import MenuUpstreams, save_policy
from running import Process, Running

from adacompute.answers import Tally
from adacompute.config import ServeConfig, parse_latency
from adacompute.errors import ConfigError
from adacompute.policies import FixedPolicy
from adacompute.policies.agreement import AdaptiveConsistency
from adacompute.policies.base import Policy
from adacompute.policies.stopping import StoppingPolicy
from adacompute.pool import open_pool
from adacompute.serve.latency import LatencyControl, TimeDistribution, predict_draw
from adacompute.serve.reply import RequestOutcome
from upstream import Upstream

SOON = "p95=200ms"  # before anything is measured, a wave is late after half of it
LATE = "p95=60s"


def say(*answers: str, delay: float = 0.0) -> Reply:
    return Reply(texts=[f"The answer is \\boxed{{{answer}}}." for answer in answers], delay=delay)


def save(policy: Policy, folder: Path) -> str:
    policy.save(folder / "policy")
    return str(folder / "policy")


def stall_first(number: int, _body: dict[str, Any]) -> Any:
    return Stall() if number == 1 else say("4")


def test_c10_a_first_sample_that_never_comes_is_asked_for_again(tmp_path: Path):
    policy = save(FixedPolicy(1), tmp_path)
    with Upstream(stall_first) as up, Running(up.url, policy=policy, latency=SOON) as gate:
        answer = gate.ask()
        until(lambda: up.count.in_flight == 0)
        assert answer.status == 200
        extra = answer.json["adacompute"]
        assert (extra["samples"], extra["answer"]) == (1, "4")
        assert extra["hedged"] == {"samples": 1, "unused": 1, "cost": 1.0}
        assert up.count.requests == 2
        balance = gate.gateway.resources.ledger.account()
        assert (balance.spent.samples, balance.maybe.samples, balance.reserved.samples) == (1, 1, 0)


def test_c10_without_a_target_nothing_is_hedged(tmp_path: Path):
    policy = save(FixedPolicy(1), tmp_path)
    with Upstream(stall_first) as up, Running(up.url, policy=policy, deadline=1.0) as gate:
        assert gate.ask().status == 504
        assert up.count.requests == 1
        assert gate.gateway.latency is None
        assert "adacompute_latency" not in gate.get("/metrics").raw.decode()
        assert "hedged" not in gate.ask().json["adacompute"]


def test_c10_of_a_wave_only_what_is_late_is_asked_for_again(tmp_path: Path):
    def script(number: int, _body: dict[str, Any]) -> Any:
        return Stall() if number == 3 else Reply(choices=1, texts=["The answer is \\boxed{4}."])

    policy = save(FixedPolicy(8), tmp_path)
    with Upstream(script) as up, Running(up.url, policy=policy, budget=8, latency=SOON) as gate:
        extra = gate.ask().json["adacompute"]
    assert (extra["samples"], extra["votes"]) == (8, {"4": 8})
    assert extra["hedged"] == {"samples": 1, "unused": 1, "cost": 1.0}
