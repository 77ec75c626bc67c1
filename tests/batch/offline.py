"""A batch on recorded samples without an endpoint: the same rounds, votes from paths. For tests and tables."""

import numpy as np

from adacompute.batch.dials import most_of
from adacompute.batch.rounds import Rounds
from adacompute.batch.settle import first_samples, settled, unhurried
from adacompute.paths import Paths, Standing
from adacompute.paths.paths import paths_of_orders
from adacompute.policies.base import Policy
from adacompute.pool import Ballots
from adacompute.replay.run import first_wave


class PathVotes:
    """As `adacompute.batch.votes.Votes`, of one path a request."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self.drawn = np.zeros(len(paths), dtype=np.int64)

    def __len__(self) -> int:
        return len(self.drawn)

    @property
    def spent(self) -> int:
        return int(self.drawn.sum())

    def standing(self, rows: np.ndarray) -> Standing:
        return self.paths.standing(rows, self.drawn[rows])


def batch_on(
    policy: Policy, ballots: Ballots, order: np.ndarray, *, budget: float, width: int
) -> tuple[Rounds, Paths, np.ndarray]:
    """Runs a batch on each problem's samples in one order, (problems, longest): its rounds, paths and counts."""
    ready = unhurried(policy)
    rows = np.arange(len(ballots))
    opened = ballots.only(rows)
    first = first_samples(opened, set(ballots.ids))
    for name in ("tokens", "logprob", "entropy", "classes", "correct"):  # the first sample of this order
        object.__setattr__(first, name, getattr(ballots, name)[rows, order[:, 0]][:, None])
    fitted = settled(ready, first)
    paths = paths_of_orders(ballots, order[:, None, :], weigh=fitted.weigh)
    votes = PathVotes(paths)
    reading = fitted.read(ballots.prompts)
    rounds = Rounds(fitted, votes, reading, limit=int(budget * len(ballots)))  # type: ignore[arg-type]
    opening = first_wave(fitted, reading, None if fitted.dial is None else most_of(fitted))
    chosen = rounds.first(opening)
    while chosen is not None:
        votes.drawn[chosen[0]] += chosen[1]
        assert rounds.drawn(chosen[0]) == []
        chosen = rounds.next(width)
    return rounds, paths, votes.drawn


def orders_of(ballots: Ballots, longest: int, rng: np.random.Generator) -> np.ndarray:
    """One random order of each problem's samples, (problems, longest)."""
    return np.array([rng.permutation(int(n))[:longest] for n in ballots.drawn])
