"""A batch on recorded samples without an endpoint: the same rounds, votes from paths.

`python tests/sampling/offline.py facts 60` prints the table of studies/findings.md.
"""

import sys
from dataclasses import replace

import numpy as np

from adacompute.policies.base import Policy
from adacompute.policies.paths import Paths, build_paths
from adacompute.policies.stopping import StoppingPolicy
from adacompute.policies.votes import VoteState
from adacompute.pool import Ballots
from adacompute.replay import calibrate, replay
from adacompute.replay.per_problem import decide_first_wave
from adacompute.replay.replay import compute_interval, draw_resamples
from adacompute.sampling.answer import fit_to_batch, remove_wave_limit
from adacompute.sampling.waves import WavePlanner, highest_dial
from shared import read_votes


class PathVotes:
    """A stand-in for `BatchVotes`, of one recorded path a request."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self.drawn = np.zeros(len(paths), dtype=np.int64)

    @property
    def drawn_by_mode(self) -> np.ndarray:
        return self.drawn[:, None]

    def __len__(self) -> int:
        return len(self.drawn)

    def count_left(self, rows: np.ndarray) -> np.ndarray:
        return self.paths.longest - self.drawn[rows]

    @property
    def spent(self) -> int:
        return int(self.drawn.sum())

    def state(self, rows: np.ndarray) -> VoteState:
        return self.paths.state_after(rows, self.drawn[rows])


def batch_on(
    policy: Policy, ballots: Ballots, order: np.ndarray, *, budget: float, width: int
) -> tuple[WavePlanner, Paths, np.ndarray]:
    """A batch on each problem's samples in one order, (problems, longest): its rounds, paths and counts."""
    rows = np.arange(len(ballots))
    names = ("tokens", "logprob", "entropy", "classes", "correct")
    first = replace(
        ballots, **{name: getattr(ballots, name)[rows, order[:, 0]][:, None] for name in names}
    )  # of this order
    fitted = fit_to_batch(remove_wave_limit(policy), first)
    paths = build_paths(ballots, order[:, None, :], weigh=fitted.weigh)
    votes = PathVotes(paths)
    reading = fitted.read(ballots.prompts)
    limit = int(budget * len(ballots))
    opening = decide_first_wave(fitted, reading, None if fitted.dial is None else highest_dial(fitted)).counts
    room = {"opening": opening, "find_room": lambda: limit - votes.spent}
    rounds = WavePlanner(fitted, votes, reading, **room)  # type: ignore[arg-type]
    chosen = rounds.plan_first()
    while chosen is not None:
        votes.drawn[chosen[0]] += chosen[1]
        assert rounds.record_wave() == []
        chosen = rounds.plan_next(width)
    return rounds, paths, votes.drawn


def orders_of(ballots: Ballots, longest: int, rng: np.random.Generator) -> np.ndarray:
    """One random order of each problem's samples, (problems, longest)."""
    return np.array([rng.permutation(int(n))[:longest] for n in ballots.drawn])


def table(name: str, orders: int, *, width: int = 32) -> None:
    """What a batch spends and how often it is right, beside a calibrated price on the same recording."""
    ballots = read_votes(name)
    weights = draw_resamples(len(ballots), np.random.default_rng(0))
    for budget in (2, 3, 4):
        policy = StoppingPolicy()
        price = calibrate(policy, ballots, budget=budget)
        other = replay(policy, ballots, price=price, orders=100)
        rng = np.random.default_rng(1)
        right, found = np.zeros(len(ballots)), []
        for _ in range(orders):
            rounds, paths, drawn = batch_on(
                StoppingPolicy(), ballots, orders_of(ballots, 16, rng), budget=budget, width=width
            )
            right += paths.grade[drawn - 1, np.arange(len(drawn))] / orders
            found.append((drawn.mean(), rounds.price, rounds.unfinished, rounds.number))
        cost, mean, unsettled, number = np.mean(found, axis=0)
        spread = np.std([each[1] for each in found])
        low, high = compute_interval(right - other.each_accuracy, weights)
        print(
            f"| {name} | {budget} | {price:.4f} | {other.cost:.3f} | {other.accuracy.mean:.3f} "
            f"| {mean:.4f} ± {spread:.4f} | {cost:.3f} | {right.mean():.3f} "
            f"| {100 * (right - other.each_accuracy).mean():+.1f} ({100 * low:+.1f} to {100 * high:+.1f}) "
            f"| {unsettled:.0f} | {number:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    table(sys.argv[1], int(sys.argv[2]))
