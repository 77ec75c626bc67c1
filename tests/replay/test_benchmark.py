"""The benchmark of replaying still runs, on little; its speed is nobody's test."""

import numpy as np
import pytest

from harness import import_script


@pytest.mark.nightly
def test_the_loop_that_replay_is_compared_with_costs_the_same():
    module = import_script("replay", "benchmarks")
    ballots = module.recorded(40)
    policy, dial = module.POLICIES["doubling"]
    plain = module.loop(policy, ballots, dial, np.random.default_rng(0), 400)
    assert plain == pytest.approx(module.replay(policy, ballots, price=dial, orders=40).cost, rel=0.1)
    rows = module.speed(problems=20, orders=4, part=20)
    assert all(row["ratio"] > 0 for row in rows)
