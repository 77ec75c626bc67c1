"""Judging each state once gives what judging it at every price gives, to the last bit."""

import numpy as np
import pytest

from adacompute import Ballots
from adacompute.errors import PolicyError
from adacompute.evaluate.measure import sweep_with_cache
from adacompute.evaluate.rivals import COMPARED
from adacompute.policies.agreement import AdaptiveConsistency
from adacompute.policies.paths import draw_paths
from adacompute.policies.stopping import StoppingPolicy
from adacompute.policies.weights import fit_confidence_weights
from adacompute.replay import sweep
from shared import read_votes
from tiers import leave_to_nightly

DIALS = [0.0, 0.001, 0.01, 0.03, 0.06, 0.1, 0.3, 2.0]


@pytest.fixture(scope="module")
def words() -> Ballots:
    return read_votes("words").only(range(0, 441, 7))


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    leave_to_nightly(
        [
            {},
            {"max_waves": 3},
            {"weigh": None},
            {"max_waves": 1},
            {"ladder": (1, 2, 4, 8, 16)},
            {"longest": 6},
        ],
        but=2,
    ),
    ids=str,
)
@pytest.mark.parametrize("fitted", [False, True])
def test_stopping_is_swept_as_if_asked_at_every_price(words: Ballots, given: dict, fitted: bool):
    policy = StoppingPolicy(**given).copy_without(words)
    policy = policy.fit(words) if fitted else policy.copy_for(words)
    drawn = draw_paths(
        words, rng=np.random.default_rng(0), orders=6, longest=policy.longest, weigh=policy.weigh
    )
    once, each = sweep_with_cache(policy, drawn, DIALS), sweep(policy, drawn, DIALS)
    assert once.dials == each.dials
    for name in ("cost", "accuracy", "waves", "tokens"):
        assert np.array_equal(getattr(once, name), getattr(each, name)), name
    assert len(np.unique(each.cost.mean(axis=1))) > 3


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["asc", "bayes"])
def test_a_rule_that_says_how_unsure_it_is_is_swept_as_if_asked_at_every_dial(
    words: Ballots, kind: str, weighted: bool
):
    policy = COMPARED[kind](weigh=fit_confidence_weights(words) if weighted else None).fit(words)
    drawn = draw_paths(words, rng=np.random.default_rng(0), orders=4, weigh=policy.weigh)
    dials = [0.0, 0.05, 0.2, 0.5, 1.0]
    once, each = sweep_with_cache(policy, drawn, dials), sweep(policy, drawn, dials)
    for name in ("cost", "accuracy", "waves", "tokens"):
        assert np.array_equal(getattr(once, name), getattr(each, name)), name


def test_a_rule_that_draws_several_at_a_time_is_asked_at_every_dial(words: Ballots):
    policy = AdaptiveConsistency(wave=3)
    drawn = draw_paths(words, rng=np.random.default_rng(0), orders=4)
    once, each = sweep_with_cache(policy, drawn, [0.0, 0.05, 0.5]), sweep(policy, drawn, [0.0, 0.05, 0.5])
    assert np.array_equal(once.cost, each.cost)
    assert np.array_equal(once.waves, each.waves)


def test_a_subclass_that_decides_otherwise_is_asked_itself(words: Ballots):
    class Hasty(AdaptiveConsistency):
        def count_draws(self, reading, state, dial):
            return np.where(state.drawn < 2, 1, 0)

    drawn = draw_paths(words, rng=np.random.default_rng(0), orders=4)
    once = sweep_with_cache(Hasty(), drawn, [0.0, 0.05])
    assert (once.cost == 2).all()


def test_paths_that_are_too_short_are_refused(words: Ballots):
    drawn = draw_paths(words, rng=np.random.default_rng(0), orders=4, longest=8)
    with pytest.raises(PolicyError, match="make longer ones"):
        sweep_with_cache(AdaptiveConsistency(longest=16), drawn, [0.0, 0.05])


def test_a_policy_that_judges_no_states_is_asked_at_every_dial(words: Ballots):
    policy = COMPARED["esc"]()
    drawn = draw_paths(words, rng=np.random.default_rng(0), orders=4)
    once, each = sweep_with_cache(policy, drawn, [0.1, 0.5, 1.0]), sweep(policy, drawn, [0.1, 0.5, 1.0])
    assert np.array_equal(once.cost, each.cost)
