"""Policies evaluated at average budgets on recorded samples: held-out, or as the paper did.

Knows nothing of printing. *Held-out*: k folds over problems; a policy is fitted, and its dial calibrated, on
the other folds only. *Paper*: fitted on a random 80% and judged on all problems, those included: in-sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adacompute.errors import PolicyError
from adacompute.evaluate.bracket import brackets
from adacompute.evaluate.entrants import ORACLE, Maker, entrants
from adacompute.evaluate.folds import Split, kfold, shares
from adacompute.evaluate.measure import Setup
from adacompute.evaluate.pooled import Pooled, over_folds, over_seeds
from adacompute.evaluate.prepare import Votes, playing, prepared
from adacompute.evaluate.rows import Evaluation, Protocol
from adacompute.evaluate.told import Shown, told
from adacompute.evaluate.workers import Progress, measured
from adacompute.policies.base import ballots_of
from adacompute.pool import Ballots, Pool

__all__ = ["BUDGETS", "NAMES", "Played", "Who", "evaluate", "played"]

BUDGETS = (1.5, 2.0, 3.0, 4.0, 6.0)
NAMES = (
    "fixed",
    "random",
    "heuristic",
    "asc",
    "esc",
    "doubling",
    "classifier",
    "curve",
    "stopping",
    "oracle",
)

Who = Sequence[str | tuple[str, Maker]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Played:
    """Every policy on all problems, out of fold (or over seeds), before anything is compared."""

    setup: Setup
    everyone: tuple[Pooled, ...]
    parts: int  # folds, or seeds
    dropped: int  # problems without grades
    left_out: tuple[str, ...]  # policies that can't learn without grades

    def of(self, name: str) -> Pooled:
        """The policy of that name."""
        return next(one for one in self.everyone if one.name == name)


def evaluate(
    pool: Pool | Ballots,
    *,
    budgets: Sequence[float] = BUDGETS,
    policies: Who = NAMES,
    protocol: Protocol = "held-out",
    folds: int = 5,
    seeds: int = 3,
    votes: Votes = "auto",
    orders: int = 50,
    rng: np.random.Generator | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> Evaluation:
    """Each policy at each average budget, with intervals over problems, and all at exactly the same cost.

    `policies` are names, or pairs of a name and a maker (`adacompute.evaluate.entrants`). `workers` above 1
    are processes, for policies by name; results don't depend on it, and a script that asks for them does its
    work below `if __name__ == "__main__":`. Without any grade, agreement with the vote of all of a problem's
    samples stands in for accuracy, and the result says so.
    """
    if any(not isinstance(one, str) for one in policies):
        workers = 1  # makers of one's own may not be fit to be sent to another process
    found = played(
        ballots_of(pool),
        budgets=budgets,
        policies=policies,
        protocol=protocol,
        parts=folds if protocol == "held-out" else seeds,
        votes=votes,
        orders=orders,
        seed=int((np.random.default_rng(0) if rng is None else rng).integers(2**31)),
        workers=workers,
        progress=progress,
    )
    oracle = brackets(found.setup) if ORACLE in policies and found.setup.basis == "accuracy" else ()
    return told(
        Shown(found.setup, list(found.everyone), oracle, protocol, found.parts, found.dropped, found.left_out)
    )


def played(
    ballots: Ballots,
    *,
    budgets: Sequence[float] = BUDGETS,
    policies: Who,
    protocol: Protocol = "held-out",
    parts: int = 5,
    votes: Votes = "auto",
    orders: int = 50,
    seed: int = 0,
    workers: int = 1,
    calibrates: bool = True,
    progress: Progress | None = None,
) -> Played:
    """Fits and runs every policy on every split; with `calibrates=False` for hulls only, and no rows.

    With more workers than one, makers of one's own have to be fit to be sent to another process.
    """
    setup, dropped = prepared(ballots, budgets, votes=votes, orders=orders, seed=seed, calibrates=calibrates)
    players, left_out = playing(entrants(policies, setup.ballots), setup.basis)
    splits = _splits(setup, protocol, parts)
    found = measured(setup, splits, players, workers=workers, progress=progress)
    pool_of = over_folds if protocol == "held-out" else over_seeds
    return Played(
        setup=setup,
        everyone=tuple(pool_of(found, one.name, splits) for one in players),
        parts=len(splits),
        dropped=dropped,
        left_out=left_out,
    )


def _splits(setup: Setup, protocol: Protocol, parts: int) -> tuple[Split, ...]:
    prompts, rng = setup.ballots.prompts, np.random.default_rng([setup.seed, 0x5EED])
    if protocol == "held-out":
        return kfold(prompts, parts, rng)
    if parts < 1:
        raise PolicyError(f"{parts} seeds make no split; give 1 or more, e.g. 3")
    return tuple(shares(prompts, rng) for _ in range(parts))
