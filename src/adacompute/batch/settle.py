"""A policy made ready for one batch of one model. Knows nothing of endpoints or budgets."""

import copy
import math
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace

import numpy as np

from adacompute.answers import Weigh
from adacompute.errors import NotRecorded, PolicyError
from adacompute.policies.base import Policy
from adacompute.policies.stopping import StoppingPolicy
from adacompute.pool import Ballots
from adacompute.replay.asked import adapted
from adacompute.score.weighted import fitted

__all__ = ["first_samples", "settled", "unhurried"]

_FEW = 20  # samples that tell their mean worse than the policy knows it already


def unhurried(policy: Policy) -> Policy:
    """A copy without a limit on waves: in a batch the dial falls meanwhile, and no request is waited for."""
    found = copy.copy(policy)
    if isinstance(found, StoppingPolicy):
        found.max_waves = None
    return found


def first_samples(ballots: Ballots, ids: Collection[str]) -> Ballots:
    """The first sample of each of these requests that has one: later runs find the same."""
    some = ballots.only([row for row, id_ in enumerate(ballots.ids) if id_ in ids])
    arrays = ("classes", "correct", "tokens", "logprob", "entropy")
    return replace(some, **{name: getattr(some, name)[:, :1] for name in arrays})


def settled(policy: Policy, first: Ballots) -> Policy:
    """A copy whose weights fit these samples; where it can be, with a prior that hasn't seen the prompts.

    `weigh` is None, so votes are plain, where nothing tells how sure the model was.
    """
    found = copy.copy(policy)
    with suppress(PolicyError):  # no other prior: what is asked for here is answers, not a measurement
        found = copy.copy(adapted(policy, first))
    found.weigh = _rescaled(policy.weigh, first)
    return found


def _rescaled(weigh: Weigh | None, first: Ballots) -> Weigh | None:
    if weigh is None:
        return None
    try:
        found = fitted(first, weigh.signal)
    except NotRecorded:
        return None
    known = int(np.isfinite(first.signal(weigh.signal)).sum())
    if found.sharpness == 0 or not math.isfinite(found.scale):  # all are certain alike
        return None
    return weigh if known < _FEW else replace(weigh, scale=found.scale)
