"""The benchmark of replaying still runs, on little; its speed is nobody's test."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

FILE = Path(__file__).parent.parent.parent / "benchmarks" / "replay.py"


@pytest.mark.nightly
def test_the_loop_that_replay_is_compared_with_costs_the_same():
    spec = importlib.util.spec_from_file_location("replay_benchmark", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    ballots = module.recorded(40)
    policy, dial = module.POLICIES["doubling"]
    plain = module.loop(policy, ballots, dial, np.random.default_rng(0), 400)
    assert plain == pytest.approx(module.replay(policy, ballots, price=dial, orders=40).cost, rel=0.1)
    rows = module.speed(problems=20, orders=4, part=20)
    assert all(row["ratio"] > 0 for row in rows)
