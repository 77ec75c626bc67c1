"""What can be replayed, and at which dial. Knows nothing of what replaying gives."""

from typing import Any, Literal

import numpy as np

from adacompute.errors import NotRecorded, PolicyError, TooFewSamples
from adacompute.policies.base import Policy
from adacompute.pool import Ballots
from adacompute.score.grades import votable

__all__ = ["adapted", "checked_dial", "checked_draws", "is_number", "replayable"]

SEED = 0  # where no generator is given: twice the same question has one answer


def adapted(policy: Policy, ballots: Ballots) -> Policy:
    """The policy with its scale of confidence set to these samples', without labels, where it has one."""
    adapt: Any = getattr(policy, "adapted", None)
    found: Policy = policy if adapt is None else adapt(ballots)
    return found


def checked_dial(policy: Policy, price: float | None, dial: float | None) -> float | None:
    """The dial's value, from either name; PolicyError where it is missing, of no use, or can't be."""
    if price is not None and dial is not None:
        raise PolicyError(f"price {price!r} and dial {dial!r} are two names of one thing; give one of them")
    value = dial if price is None else price
    if policy.dial is None:
        if value is not None:
            raise PolicyError(
                f"{policy.kind} has no dial, and {value!r} was given; it is made or fitted for its budget"
            )
        return None
    if value is None:
        raise PolicyError(
            f"{policy.kind} needs its {policy.dial}; give dial=, e.g. calibrate(policy, pool, budget=2)"
        )
    if not is_number(value) or not value >= 0 or (policy.dial == "threshold" and value > 1):
        wanted = "from 0 to 1" if policy.dial == "threshold" else "from 0 up"
        raise PolicyError(f"{policy.dial} {value!r} can't be used by {policy.kind}; give a number {wanted}")
    return float(value)


def checked_draws(orders: object, rng: np.random.Generator | None) -> np.random.Generator:
    """The generator to draw orders with; PolicyError where their number can't be."""
    if not isinstance(orders, int | np.integer) or isinstance(orders, bool) or orders < 1:
        raise PolicyError(f"orders {orders!r} can't be used; give a whole number from 1, e.g. 100")
    if rng is not None and not isinstance(rng, np.random.Generator):
        raise PolicyError(f"rng {rng!r} can't be used; give np.random.default_rng(seed)")
    return np.random.default_rng(SEED) if rng is None else rng


def replayable(
    ballots: Ballots, longest: int, *, too_few: Literal["error", "drop"] = "error"
) -> tuple[Ballots, tuple[str, ...]]:
    """The problems that have answers and enough of them, and the ids of those that were left out."""
    if too_few not in ("error", "drop"):
        raise PolicyError(f"too_few {too_few!r} is not known; give 'error' or 'drop'")
    if not len(ballots):
        raise TooFewSamples("no problem has a sample; collect or import some first")
    votes, enough = votable(ballots), ballots.drawn >= longest
    good = votes & enough
    if good.all():
        return ballots, ()
    if too_few == "drop" and good.any():
        return ballots.only(np.flatnonzero(good)), tuple(ballots.ids[i] for i in np.flatnonzero(~good))
    remedy = ", or leave them out with too_few='drop'" if good.any() else ""
    if not enough.all():
        worst = int(ballots.drawn.argmin())
        raise TooFewSamples(
            f"{int((~enough).sum())} of {len(ballots)} problems have fewer than the {longest} samples that "
            f"the policy may draw, e.g. {ballots.ids[worst]!r} with {int(ballots.drawn[worst])}; collect "
            f"more, give the policy a lower `longest`{remedy}"
        )
    raise NotRecorded(
        f"{int((~votes).sum())} of {len(ballots)} problems have grades but no recorded answers to vote on, "
        f"e.g. {ballots.ids[int(votes.argmin())]!r}; record answers{remedy}"
    )


def is_number(value: object) -> bool:
    """Whether it is a number, NaN and infinity among them, and not True or False."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
