"""What can be replayed, and at which dial. Knows nothing of what replaying gives."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from adacompute.errors import NotRecorded, PolicyError, TooFewSamples
from adacompute.policies.base import Policy
from adacompute.policies.settings import checked_dial, one_of, shown, whole
from adacompute.pool import Ballots
from adacompute.score.grades import Bools, Ints, votable

__all__ = [
    "adapted",
    "affordable",
    "checked_draws",
    "checked_policy",
    "dial_of",
    "replayable",
    "replayable_rows",
    "settled",
]

SEED = 0  # where no generator is given: twice the same question has one answer
_ORDERS = 1_000_000  # of a problem: more is a slip
_CELLS = 1 << 28  # draws of all paths together, each some 60 bytes: 16 GB


def adapted(policy: Policy, ballots: Ballots) -> Policy:
    """The policy with its scale of confidence set to these samples', without labels, where it has one."""
    adapt: Any = getattr(policy, "adapted", None)
    found: Policy = policy if adapt is None else adapt(ballots)
    return found


def settled(policy: Policy, ballots: Ballots) -> Policy:
    """The policy itself, settled on these samples for good where it can be: what is calibrated runs live."""
    settle: Any = getattr(policy, "settle", None)
    found: Policy = adapted(policy, ballots) if settle is None else settle(ballots)
    return found


def checked_policy(policy: object) -> Policy:
    """A policy; PolicyError for anything else."""
    if not isinstance(policy, Policy):
        raise PolicyError(f"{shown(policy)} is no policy; give one, e.g. StoppingPolicy()")
    return policy


def dial_of(policy: Policy, price: float | None, dial: float | None) -> float | None:
    """The dial's value, from either name; PolicyError where it is missing, of no use, or can't be."""
    if price is not None and dial is not None:
        raise PolicyError(f"price {shown(price)} and dial {shown(dial)} are two names of one thing; give one")
    value = dial if price is None else price
    if policy.dial is None:
        if value is not None:
            raise PolicyError(
                f"{policy.kind} has no dial, and {shown(value)} was given; it is made or fitted for a budget"
            )
        return None
    if value is None:
        raise PolicyError(
            f"{policy.kind} needs its {policy.dial}; give dial=, e.g. calibrate(policy, pool, budget=2)"
        )
    return checked_dial(policy.dial, value, high=1.0 if policy.dial == "threshold" else math.inf)


def checked_draws(orders: object, rng: np.random.Generator | None) -> np.random.Generator:
    """The generator to draw orders with; PolicyError where their number can't be."""
    whole("orders", orders, high=_ORDERS)
    if rng is not None and not isinstance(rng, np.random.Generator):
        raise PolicyError(f"rng {shown(rng)} can't be used; give np.random.default_rng(seed)")
    return np.random.default_rng(SEED) if rng is None else rng


def affordable(ballots: Ballots, orders: int, longest: int) -> int:
    """So many orders; PolicyError where their paths are more than memory has room for."""
    most = max(1, _CELLS // max(1, len(ballots) * max(longest, ballots.classes.shape[1])))
    if orders > most:
        raise PolicyError(
            f"orders {orders} of {len(ballots)} problems are more than there is room for; give at most {most}"
        )
    return orders


def replayable(
    ballots: Ballots, longest: int, *, too_few: Literal["error", "drop"] = "error"
) -> tuple[Ballots, tuple[str, ...]]:
    """The problems that have answers and enough of them, and the ids of those that were left out."""
    good = replayable_rows(ballots.ids, ballots.drawn, votable(ballots), longest, too_few=too_few)
    if good.all():
        return ballots, ()
    return ballots.only(np.flatnonzero(good)), tuple(ballots.ids[i] for i in np.flatnonzero(~good))


def replayable_rows(
    ids: Sequence[str],
    drawn: Ints,
    votes: Bools,
    longest: int,
    *,
    too_few: Literal["error", "drop"] = "error",
) -> Bools:
    """Which problems have answers (`votes`) and enough of them, (problems,); raises where some haven't."""
    one_of("too_few", too_few, ("error", "drop"))
    if not len(ids):
        raise TooFewSamples("no problem has a sample; collect or import some first")
    enough = drawn >= longest
    good: Bools = votes & enough
    if good.all() or (too_few == "drop" and good.any()):
        return good
    remedy = ", or leave them out with too_few='drop'" if good.any() else ""
    if not enough.all():
        worst = int(drawn.argmin())
        raise TooFewSamples(
            f"{int((~enough).sum())} of {len(ids)} problems have fewer than the {longest} samples that "
            f"the policy may draw, e.g. {ids[worst]!r} with {int(drawn[worst])}; collect "
            f"more, give the policy a lower `longest`{remedy}"
        )
    raise NotRecorded(
        f"{int((~votes).sum())} of {len(ids)} problems have grades but no recorded answers to vote on, "
        f"e.g. {ids[int(votes.argmin())]!r}; record answers{remedy}"
    )
