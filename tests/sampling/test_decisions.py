"""Live and in replay a policy decides alike: a batch stops where the policy stops at the price it came to."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from batches import Recording, ask, facts
from offline import batch_on, orders_of

from adacompute.answers import Tally
from adacompute.policies.agreement import AdaptiveConsistency
from adacompute.policies.base import place_orders
from adacompute.policies.paths import build_paths
from adacompute.policies.stopping import StoppingPolicy
from adacompute.pool import Ballots, open_pool
from adacompute.records import SIGNAL_NAMES
from adacompute.replay import run_policy
from adacompute.sampling.answer import fit_to_batch, select_first_samples
from adacompute.sampling.waves import read_together
from shared import read_votes
from tiers import leave_to_nightly
from upstream import Upstream


@pytest.fixture(scope="module")
def recorded() -> Ballots:
    return read_votes("facts")


def add_signals(recorded: Ballots) -> Ballots:
    """With what the upstream's replies tell: all tokens of a sample have the same log-probability."""
    signals = np.full((*recorded.classes.shape, len(SIGNAL_NAMES)), np.nan)
    for name in ("tail", "window"):
        signals[:, :, SIGNAL_NAMES.index(name)] = np.round(recorded.signal("logprob"), 6)
    return replace(recorded, signals=signals)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "budget"), leave_to_nightly([(StoppingPolicy(), 2.0), (AdaptiveConsistency(), 3.0)])
)
def test_a_batch_decides_as_the_policy_does_in_replay_at_the_price_it_came_to(
    policy, budget, recorded: Ballots, tmp_path: Path
):
    """The whole stack against an upstream that gives the recorded samples in their order."""
    samples = facts()
    with Upstream(Recording(samples)) as up:
        done = ask(samples, tmp_path / "p.sqlite", policy=policy, budget=budget, up=up, concurrency=16)
        assert up.count.requests == done.account.calls
    assert done.stopped is None
    assert done.price is not None
    assert done.spent == done.limit == int(budget * len(samples))
    with open_pool(tmp_path / "p.sqlite") as pool:
        ballots = pool.ballots()
        ready = fit_to_batch(policy, select_first_samples(ballots, set(ballots.ids)))
        assert ready.weigh == done.weigh
        going = 0
        for one in pool:
            question = one.problem.question
            tallies = [
                Tally.of(read_together(one.samples[:drawn], question, pool.task), weigh=ready.weigh)
                for drawn in range(len(one.samples) + 1)
            ]
            # the price never rose: what was asked for at a higher one is asked for at the last one
            *earlier, last = [ready.more(question, tally, done.price) for tally in tallies]
            assert all(more > 0 for more in earlier)
            going += last > 0
        assert going == done.unsettled
    # and so does replay, on the recording itself, all but a few of whose answers are read alike
    order = np.broadcast_to(np.arange(policy.longest), (len(recorded), 1, policy.longest))
    paths = build_paths(add_signals(recorded), order, weigh=ready.weigh)
    own = ready.spread_dial(done.price, place_orders(recorded.prompts))
    replayed = run_policy(ready, paths, dial=own).drawn
    assert recorded.ids == tuple(one.id for one in done.each)
    spent = np.array([one.samples for one in done.each])
    assert ballots.ids == recorded.ids
    width = ballots.classes.shape[1]
    unread = ballots.classes != recorded.classes[:, :width]
    alike = ~(unread & (np.arange(width) < spent[:, None])).any(axis=1)
    assert alike.mean() > 0.95
    assert (spent <= replayed)[alike].all()
    assert (spent < replayed).sum() == pytest.approx(done.unsettled, abs=0.02 * len(samples))
    if done.weigh is not None:  # requests with equal critical prices are alike, and some of them go on
        assert done.unsettled < 0.5 * len(samples)


@pytest.mark.parametrize("budget", [1.0, 1.7, 2.5, 6.0])
def test_the_budget_is_spent_to_the_last_sample_and_hardly_a_request_is_left_open(budget, recorded: Ballots):
    rng = np.random.default_rng(5)
    some = recorded.only(rng.permutation(len(recorded))[:150])
    rounds, _, drawn = batch_on(StoppingPolicy(), some, orders_of(some, 16, rng), budget=budget, width=1)
    assert drawn.sum() == int(budget * len(some))
    assert drawn.min() >= 1
    if budget > 1:
        assert rounds.unfinished <= 12  # requests whose votes are alike go on together, or some of them do


@pytest.mark.slow
def test_one_price_for_all_is_the_price_that_calibration_finds(recorded: Ballots):
    from adacompute.replay import calibrate

    policy = StoppingPolicy()
    price = calibrate(policy, recorded, budget=3.0)
    rng = np.random.default_rng(0)
    found = [
        batch_on(StoppingPolicy(), recorded, orders_of(recorded, 16, rng), budget=3.0, width=8)[0].price
        for _ in range(3)
    ]
    assert price == pytest.approx(np.mean(found), rel=0.15)
