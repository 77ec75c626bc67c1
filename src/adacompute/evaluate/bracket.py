"""The oracle beside policies: its two ends at each average budget. Knows no policy.

It decides beforehand, with the answers known, among a few budgets; a policy that looks at the votes as they
come in may pass it.
"""

from collections.abc import Sequence

import numpy as np

from adacompute.errors import TooFewSamples
from adacompute.evaluate.bootstrap import Bootstrap
from adacompute.evaluate.measure import Setup
from adacompute.evaluate.oracle import Pair, crossfitted, halved
from adacompute.evaluate.rows import Bracket
from adacompute.evaluate.scoring import Scoring
from adacompute.policies.confidence import confidence
from adacompute.solve import solve

__all__ = ["CHOICES", "brackets"]

CHOICES = (1, 2, 4, 8, 16)  # samples that it may give a problem


def brackets(setup: Setup, *, choices: Sequence[int] = CHOICES) -> tuple[Bracket, ...]:
    """Both ends at each budget, votes counted as the policies' are."""
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
    boot = Bootstrap.of(len(setup.ballots), rng=np.random.default_rng([setup.seed, 0xB007]))
    found = []
    for budget in setup.budgets:
        plan = solve(table, budget=budget)
        low = boot.interval(crossfitted(pairs, budget=budget).each) if pairs else None
        found.append(Bracket(budget=budget, cost=plan.mixed_cost, low=low, high=plan.mixed_accuracy, why=why))
    return tuple(found)
