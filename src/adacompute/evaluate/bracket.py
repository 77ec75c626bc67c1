"""The oracle beside policies: its two ends at each average budget. Knows no policy.

It decides beforehand, with the answers known, among a few budgets; a policy that looks at the votes as they
come in may pass it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt

from adacompute.errors import TooFewSamples
from adacompute.evaluate.bootstrap import Bootstrap
from adacompute.evaluate.measure import Setup
from adacompute.evaluate.oracle import Pair, crossfitted, expected, halved
from adacompute.evaluate.rows import Bracket
from adacompute.evaluate.scoring import Scoring
from adacompute.policies.confidence import confidence
from adacompute.records import AccuracyTable
from adacompute.solve import solve

__all__ = ["CHOICES", "Oracle", "brackets"]

Floats = npt.NDArray[np.float64]

CHOICES = (1, 2, 4, 8, 16)  # samples that it may give a problem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Oracle:
    """What the oracle chooses by, and is judged by: all samples for one end, halves for the other."""

    choices: tuple[int, ...]  # samples that it may give a problem
    table: AccuracyTable = field(repr=False)
    pairs: Sequence[Pair] = field(repr=False)  # none where there are too few samples
    why: str  # there are none

    @classmethod
    def of(cls, setup: Setup, *, choices: Sequence[int] = CHOICES) -> Self:
        """Votes counted as the policies' are."""
        weigh = confidence(setup.ballots) if setup.weighted else None
        how = Scoring() if weigh is None else Scoring(aggregate="weighted", by=weigh)
        allowed = [choice for choice in choices if choice <= setup.longest]
        table = how.table(setup.ballots, allowed)
        pairs: Sequence[Pair] = ()
        why = ""
        try:
            pairs = halved(setup.ballots, table, how=how, rng=np.random.default_rng([setup.seed, 0x0AC1]))
        except TooFewSamples as exc:
            why = str(exc)
        return cls(choices=tuple(allowed), table=table, pairs=pairs, why=why)

    def in_sample(self, budget: float) -> tuple[float, Floats]:
        """Its cost, and the accuracy of each problem, (problems,)."""
        plan = solve(self.table, budget=budget)
        return float(plan.mixed_cost), expected(self.table.accuracy, plan)

    def crossfitted(self, budget: float) -> Floats | None:
        """The accuracy of each problem, (problems,); None where there are too few samples."""
        return crossfitted(self.pairs, budget=budget).each if self.pairs else None


def brackets(
    setup: Setup, *, choices: Sequence[int] = CHOICES, oracle: Oracle | None = None
) -> tuple[Bracket, ...]:
    """Both ends at each budget, votes counted as the policies' are."""
    oracle = Oracle.of(setup, choices=choices) if oracle is None else oracle
    boot = Bootstrap.of(len(setup.ballots), rng=np.random.default_rng([setup.seed, 0xB007]))
    found = []
    for budget in setup.budgets:
        plan = solve(oracle.table, budget=budget)
        each = oracle.crossfitted(budget)
        found.append(
            Bracket(
                budget=budget,
                cost=plan.mixed_cost,
                low=None if each is None else boot.interval(each),
                high=plan.mixed_accuracy,
                why=oracle.why,
            )
        )
    return tuple(found)
