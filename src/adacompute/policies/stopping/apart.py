"""Keeping what is judged apart from what was learned: by the prompts. Knows nothing of prices or votes."""

import numpy as np

from adacompute.errors import PolicyError
from adacompute.policies.stopping.prints import prints
from adacompute.policies.stopping.prior import BUNDLED, Prior, bundled_prior
from adacompute.pool import Ballots

__all__ = ["apart", "known", "refused", "rest"]

_FEW = 0.05  # of a pool's prompts: so many may be known to a prior in the package, where none knows fewer


def known(prior: Prior, ballots: Ballots) -> int:
    """How many of these prompts a prior was learned on."""
    return int(np.isin(prints(ballots.prompts), prior.prints).sum())


def apart(prior: Prior, ballots: Ballots) -> Prior:
    """The prior; where it is one in the package that knows these prompts, the one there that knows fewest."""
    if not known(prior, ballots):
        return prior
    bundled = [bundled_prior(name) for name in BUNDLED]
    if any(np.array_equal(prior.table, one.table) for one in bundled):
        found = min(bundled, key=lambda one: known(one, ballots))
        if known(found, ballots) <= _FEW * len(ballots):
            return found
    raise refused(prior, ballots)


def refused(prior: Prior, ballots: Ballots) -> PolicyError:
    """What is said where a prior knows too much."""
    return PolicyError(
        f"the prior was learned on {known(prior, ballots)} of these {len(ballots)} prompts; "
        "give one that was not (pooled(..., without=...)), so that the result is no recollection"
    )


def rest(recording: Ballots, without: Ballots | None) -> Ballots:
    """The problems of a recording that another one doesn't have."""
    if without is None:
        return recording
    shared = np.isin(prints(recording.prompts), prints(without.prompts))
    return recording.only(np.flatnonzero(~shared)) if shared.any() else recording
