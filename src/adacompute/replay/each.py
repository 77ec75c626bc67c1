"""What a policy gave on each problem, by paths or exactly. Knows nothing of intervals or of dials found.

A policy that decides on the prompt alone draws a plain vote of b samples, whose accuracy over all subsets is
known exactly: no orders are needed. With ties to the first seen, each of the tied answers is first equally
often, so the mean over all orders is the shared tie.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from adacompute.paths.paths import Paths, full_vote
from adacompute.paths.standing import Floats, Ints
from adacompute.policies.base import Policy
from adacompute.pool import Ballots
from adacompute.pool.ballots import ABSENT
from adacompute.replay.run import Run, first_wave, run
from adacompute.score.exact import LARGEST, exact_vote
from adacompute.score.grades import grades

__all__ = ["Each", "Exact", "agreeing", "is_exact", "mean_tokens"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Each:
    """Expected per problem, all (problems,)."""

    cost: Floats  # samples
    accuracy: Floats  # 0 to 1; NaN: not known
    agreement: Floats  # with the vote of all samples, 0 to 1
    waves: Floats
    tokens: Floats  # output tokens; NaN: not known
    counts: Ints = field(repr=False)  # (longest + 1,) requests by samples drawn
    most_waves: int

    @classmethod
    def of(cls, paths: Paths, found: Run) -> "Each":
        """The means over each problem's paths."""
        return cls(
            cost=paths.mean(found.drawn),
            accuracy=paths.mean(found.grade),
            agreement=paths.mean(found.agrees),
            waves=paths.mean(found.waves),
            tokens=paths.mean(found.tokens),
            counts=np.bincount(found.drawn, minlength=paths.longest + 1),
            most_waves=int(found.waves.max(initial=0)),
        )

    @classmethod
    def beforehand(
        cls, budgets: Ints, *, accuracy: Floats, agreement: Floats, tokens: Floats, longest: int
    ) -> "Each":
        """So many samples of each problem, at once; `tokens` are those of one."""
        return cls(
            cost=budgets.astype(np.float64),
            accuracy=accuracy,
            agreement=agreement,
            waves=np.ones(len(budgets)),
            tokens=budgets * tokens,
            counts=np.bincount(budgets, minlength=longest + 1),
            most_waves=1,
        )

    @classmethod
    def run(
        cls, policy: Policy, paths: Paths, *, dial: float | None, reading: Floats | None = None
    ) -> "Each":
        """The policy along paths."""
        return cls.of(paths, run(policy, paths, dial=dial, reading=reading))


class Exact:
    """Plain votes of b samples of each problem, scored exactly, each b when it is first asked for."""

    def __init__(self, ballots: Ballots) -> None:
        self._ballots = ballots
        self._grades = grades(ballots)
        self._agrees = agreeing(ballots)
        self._found: dict[int, tuple[Floats, Floats]] = {}  # accuracy and agreement, (problems,) both

    def each(self, policy: Policy, *, dial: float | None, reading: Floats | None = None) -> Each:
        """What a policy gives that decides on the prompt alone, and weighs no votes."""
        reading = policy.read(self._ballots.prompts) if reading is None else reading
        budgets = first_wave(policy, reading, dial)
        self._score(np.unique(budgets).tolist())
        accuracy, agreement = np.zeros(len(budgets)), np.zeros(len(budgets))
        for budget in np.unique(budgets).tolist():
            rows = budgets == budget
            accuracy[rows], agreement[rows] = (values[rows] for values in self._found[budget])
        return Each.beforehand(
            budgets,
            accuracy=accuracy,
            agreement=agreement,
            tokens=mean_tokens(self._ballots),
            longest=policy.longest,
        )

    def _score(self, budgets: Iterable[int]) -> None:
        new = [budget for budget in budgets if budget not in self._found]
        if new:
            right, alike = (
                exact_vote(self._ballots, values, new).accuracy for values in (self._grades, self._agrees)
            )
            self._found |= {budget: (right[:, k], alike[:, k]) for k, budget in enumerate(new)}


def agreeing(ballots: Ballots) -> Floats:
    """Each answer's share of the vote of all of its problem's samples, (problems, samples); NaN: absent."""
    share = full_vote(ballots)  # (problems, classes)
    found = np.zeros(ballots.classes.shape)
    row, column = np.nonzero(ballots.classes >= 0)
    found[row, column] = share[row, ballots.classes[row, column]]
    found[ballots.classes == ABSENT] = np.nan
    return found


def mean_tokens(ballots: Ballots) -> Floats:
    """Output tokens of a sample, (problems,); NaN: not known."""
    there = ballots.classes != ABSENT
    return np.asarray(np.where(there, ballots.tokens, 0.0).sum(axis=1) / np.maximum(1, there.sum(axis=1)))


def is_exact(policy: Policy) -> bool:
    """Whether a policy can be scored without orders."""
    return policy.beforehand and policy.weigh is None and policy.longest <= LARGEST
