"""Who takes part, and with which settings. Knows nothing of folds, and no policy by its inside.

A maker is called as `maker(train, budget=…, weigh=…, longest=…)` and gives a policy fitted on `train`. Where
the policy has a dial, one fit serves every budget; where it has none, it is made anew for each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from adacompute.answers import Weigh
from adacompute.errors import PolicyError
from adacompute.policies.base import Policy
from adacompute.policies.registry import POLICIES
from adacompute.pool import Ballots

__all__ = ["GRADED", "LEARNED", "ORACLE", "OURS", "PEERS", "PLAIN", "Entrant", "Maker", "dials", "entrants"]

Floats = npt.NDArray[np.float64]

ORACLE, OURS = "oracle", "stopping"
LEARNED = ("classifier", "curve", "stopping")  # whose gain over all alike is the verdict
PEERS = "peers"  # the joint hull of all but ours and the oracle
PLAIN = "fixed"  # all problems alike
GRADED = ("classifier", "curve", "shuffled")  # who can't learn without grades
_BUDGETED = ("fixed", "random", "heuristic", "shuffled")  # whose constructor takes the budget
_PRICES = 64
_DOUBTS = 16


class Maker(Protocol):
    """Makes a policy and fits it."""

    def __call__(self, train: Ballots, *, budget: float, weigh: Weigh | None, longest: int) -> Policy: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrant:
    """One name in the table, and who makes it."""

    name: str
    maker: Maker


@dataclass(frozen=True, slots=True)
class _Kind:
    """Makes a policy of a kind in the registry; a class, so that it can be sent to another process."""

    kind: str
    judged: Ballots | None = None  # all that is learned from or judged

    def __call__(self, train: Ballots, *, budget: float, weigh: Weigh | None, longest: int) -> Policy:
        given: dict[str, Any] = {"weigh": weigh, "longest": longest}
        if self.kind in _BUDGETED:
            given["budget"] = budget
        if self.kind == OURS and weigh is not None:
            given["weigh"] = "auto"  # the same, and fitted with what else it learns
        if self.kind == PLAIN:
            given["budgets"] = range(
                1, longest + 1
            )  # every whole number of samples is a way to treat all alike
        policy: Any = POLICIES[self.kind](**given)
        if self.kind == OURS:  # what is judged must not be in the prior that comes with the package
            policy = policy.without(train if self.judged is None else self.judged)
        fitted: Policy = policy.fit(train, budget=budget) if self.kind == "classifier" else policy.fit(train)
        return fitted


def entrants(
    policies: Sequence[str | tuple[str, Maker]], judged: Ballots | None = None
) -> tuple[Entrant, ...]:
    """Entrants by name, or with makers of one's own; the oracle is not among them: it is no policy.

    `judged` are all samples that anyone will be judged on: no prior may have seen their prompts.
    """
    found: dict[str, Entrant] = {}
    for one in policies:
        name, made = (one, None) if isinstance(one, str) else one
        if name in found:
            raise PolicyError(f"policy {name!r} is named twice; name each once")
        if name == PEERS:
            raise PolicyError(f"{PEERS!r} is the joint hull of policies, not one; leave it out")
        if made is None and name != ORACLE and name not in POLICIES:
            known = ", ".join(sorted(POLICIES))
            raise PolicyError(f"there is no policy {name!r}; the policies are {known}")
        if name != ORACLE:
            found[name] = Entrant(name=name, maker=made or _Kind(name, judged if name == OURS else None))
    return tuple(found.values())


def dials(policy: Policy) -> Floats:
    """The settings of a policy's dial that are tried, rising, the same whatever it has learned."""
    if policy.dial == "price":
        return np.concatenate([[0.0], np.geomspace(2e-4, 0.6, _PRICES - 2), [1.1]])
    windows = 1.0 / np.arange(policy.longest, 0, -1)
    if policy.kind == "esc":  # its dial is one over a whole number
        return windows
    return np.unique(np.concatenate([[0.0, 0.999], np.geomspace(1e-4, 0.7, _DOUBTS), windows]))
