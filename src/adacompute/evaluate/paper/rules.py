"""The paper's rules that don't learn from accuracies, as columns of a table. Knows nothing of classifiers.

The rules are the policies of the same names, so that they mean here what they mean everywhere.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.paper.case import Case
from adacompute.policies.heuristic import HeuristicPolicy
from adacompute.policies.oneshot import FixedPolicy, OneShot, RandomPolicy

__all__ = ["RULES", "Rule", "ruled"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

Rule = Literal["fixed", "random", "heuristic"]
RULES: tuple[Rule, ...] = ("fixed", "random", "heuristic")


def ruled(case: Case, rule: Rule, budget: float, *, seen: Bools) -> Ints:
    """Each problem's column of the case's table, (seeds, problems).

    The heuristic takes its cuts from the prompts in `seen`, (seeds, problems); lots differ by seed.
    """
    prompts, modes = case.ballots.prompts, np.asarray(case.budgets)
    rows = [_policy(case, rule, budget, own, at).read(prompts)[:, 0] for at, own in enumerate(seen)]
    return np.asarray(np.searchsorted(modes, np.stack(rows)), dtype=np.int64)


def _policy(case: Case, rule: Rule, budget: float, seen: Bools, seed: int) -> OneShot:
    longest = case.budgets[-1]
    if rule == "fixed":
        return FixedPolicy(budget, budgets=case.budgets, longest=longest)
    if rule == "random":
        return RandomPolicy(budget, seed=seed, budgets=case.budgets, longest=longest)
    policy = HeuristicPolicy(budget, budgets=case.budgets, longest=longest)
    return policy.fit(case.ballots.only(np.flatnonzero(seen)))
