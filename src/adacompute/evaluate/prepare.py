"""What all policies of one evaluation share, checked before any is fitted. Knows no policy by its inside."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from adacompute.errors import BudgetOutOfRange, NotRecorded, PolicyError, TooFewSamples
from adacompute.evaluate.entrants import GRADED, Entrant
from adacompute.evaluate.measure import Basis, Setup
from adacompute.pool import Ballots
from adacompute.pool.ballots import ABSENT
from adacompute.replay.asked import replayable
from adacompute.score.grades import graded, grades

__all__ = ["LONGEST", "Votes", "playing", "prepared", "weighable"]

Votes = Literal["auto", "plain", "weighted"]

LONGEST = 16  # samples a request, at most, where all problems have so many


def prepared(
    ballots: Ballots,
    budgets: Sequence[float],
    *,
    votes: Votes,
    orders: int,
    seed: int,
    calibrates: bool = True,
) -> tuple[Setup, int]:
    """What all policies share, and how many problems were left out for want of grades."""
    if orders < 1:
        raise PolicyError(f"{orders} orders of the samples can't be replayed; give 1 or more, e.g. 50")
    known = graded(ballots, grades(ballots))
    basis: Basis = "accuracy" if known.any() else "agreement"
    kept = ballots if basis == "agreement" or known.all() else ballots.only(np.flatnonzero(known))
    longest = min(LONGEST, int(kept.drawn.min(initial=LONGEST)))
    if len(kept) < 2 or longest < 2:
        raise TooFewSamples(
            f"{len(kept)} problems with at least {longest} samples each can't be evaluated; "
            "collect 2 or more of both"
        )
    kept, _ = replayable(kept, longest)  # or it says what is missing
    wanted = _within(kept, budgets, longest)
    weighted = weighable(kept, votes)
    setup = Setup(
        ballots=kept,
        budgets=wanted,
        weighted=weighted,
        orders=orders,
        longest=longest,
        seed=seed,
        basis=basis,
        calibrates=calibrates,
    )
    return setup, len(ballots) - len(kept)


def _within(kept: Ballots, budgets: Sequence[float], longest: int) -> tuple[float, ...]:
    """Average budgets, rising, that the samples allow."""
    found = tuple(sorted({float(budget) for budget in budgets}))
    for budget in found:
        if not 1 <= budget <= longest:
            raise BudgetOutOfRange(
                f"budget {budget:g} is not within 1 to {longest}, the samples of the problem with fewest "
                f"({kept.ids[int(kept.drawn.argmin())]!r}) or the most a policy asks for; give one that is"
            )
    if not found:
        raise BudgetOutOfRange("no budget was given to evaluate at; give one or more, e.g. 2")
    return found


def weighable(ballots: Ballots, votes: Votes) -> bool:
    """Whether votes are weighed by confidence: where asked for, or where every sample has what it takes."""
    there = ballots.classes != ABSENT
    recorded = bool(np.isfinite(ballots.signal("logprob")[there]).all())
    if votes == "weighted" and not recorded:
        raise NotRecorded(
            "not every sample has the tokens and the log-probability that weighted votes need; "
            "record them, or give votes='plain' (--votes plain)"
        )
    return recorded and votes != "plain"


def playing(everyone: tuple[Entrant, ...], basis: Basis) -> tuple[tuple[Entrant, ...], tuple[str, ...]]:
    """Who can take part, and the names of those that can't for want of grades."""
    out = tuple(one.name for one in everyone if basis == "agreement" and one.name in GRADED)
    playing = tuple(one for one in everyone if one.name not in out)
    if not playing:
        raise PolicyError("there is no policy to evaluate; name one or more, e.g. fixed and stopping")
    return playing, out
