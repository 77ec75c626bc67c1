"""What a policy says beforehand: curves to buy from at a price, or budgets. Knows nothing of files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.errors import NotFitted, PolicyError
from adacompute.paths.standing import Standing
from adacompute.policies.base import Policy
from adacompute.policies.classifier import ClassifierPolicy
from adacompute.policies.curve import CurvePolicy
from adacompute.policies.foretelling import Foretelling
from adacompute.policies.heuristic import HeuristicPolicy
from adacompute.policies.oneshot import FixedPolicy, RandomPolicy
from adacompute.policies.registry import POLICIES
from adacompute.solve.hull import grained
from adacompute.solve.shards import Shard, Share, Total

__all__ = ["Packed", "Rule"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Packed = tuple[str, Mapping[str, Any], Mapping[str, npt.NDArray[Any]]]  # kind, settings, arrays

_OWN = (FixedPolicy, RandomPolicy, HeuristicPolicy, ClassifierPolicy)  # made or fitted for one budget


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rule:
    """A policy that can decide on the prompt alone."""

    policy: Policy

    @classmethod
    def of(cls, policy: Policy) -> "Rule":
        """Refuses a policy that has to see samples first."""
        if not isinstance(policy, Policy):
            raise PolicyError(f"a {type(policy).__name__} is no policy; give what load_policy(…) gives")
        kind = policy.kind
        if isinstance(policy, Foretelling) and not hasattr(policy, "sight_"):
            raise NotFitted(f"{kind} has learned nothing yet; fit it first")
        if isinstance(policy, Foretelling) and not policy.beforehand:
            raise PolicyError(
                f"{kind} was fitted to see a first sample's entropy, so it can't decide beforehand; fit one "
                f"with `adacompute fit POOL --policy {kind} --features text`, or use `adacompute answer`"
            )
        if not isinstance(policy, (CurvePolicy, *_OWN)):
            raise PolicyError(
                f"{kind} decides as votes come in, not beforehand; use `adacompute answer`, "
                "or `adacompute fit POOL --policy curve --features text`"
            )
        return cls(policy=policy)

    @classmethod
    def restored(cls, packed: Packed) -> "Rule":
        """The rule that `packed` gave, elsewhere."""
        kind, settings, arrays = packed
        return cls(policy=POLICIES[kind].restored(settings, arrays))

    @property
    def packed(self) -> Packed:
        """The policy as plain data: nothing that is sent runs."""
        return self.policy.kind, self.policy.settings(), dict(self.policy.arrays())

    @property
    def priced(self) -> bool:
        """Whether it predicts curves, to be bought from at any price."""
        return isinstance(self.policy, CurvePolicy)

    @property
    def modes(self) -> tuple[int, ...]:
        """The budgets it may give, rising."""
        found: tuple[int, ...] = self.policy.modes  # type: ignore[attr-defined] # all of these have them
        return found

    @property
    def own_budget(self) -> float | None:
        """The average it was made or fitted for; None: any."""
        policy = self.policy
        if isinstance(policy, ClassifierPolicy):
            return policy.budget_
        return None if self.priced else float(policy.budget)  # type: ignore[attr-defined]

    def curves(self, prompts: Sequence[str]) -> Floats:
        """Accuracy predicted at each budget, (prompts, budgets)."""
        assert isinstance(self.policy, CurvePolicy)
        return self.policy.curve(prompts)

    def shard(self, curves: Floats) -> Shard:
        """Prompts with what they may buy, from their curves."""
        return Shard.of(curves, costs=np.array(self.modes, dtype=np.float64))

    def given(self, prompts: Sequence[str], price: float | None) -> tuple[Ints, Total]:
        """The budget of each prompt, (prompts,), at a price, or without one, and what they come to."""
        modes = np.array(self.modes, dtype=np.int64)
        if price is not None:
            least = float(grained(np.array([price], dtype=np.float64))[0])
            taken = self.shard(self.curves(prompts)).take(Share(price=least, room=-np.inf))
            return modes[taken.choice], taken.total
        budgets = self.policy.decide(self.policy.read(prompts), Standing.empty(len(prompts)), None)
        counts = np.bincount(np.searchsorted(modes, budgets), minlength=len(modes))
        return budgets, Total(
            problems=len(budgets),
            counts=tuple(counts.tolist()),
            cost=float(budgets.sum()),
            accuracy=0.0,
        )
