"""What the policies that foretell from features have in common: their settings. Knows nothing of learning."""

from collections.abc import Sequence

from adacompute.answers import Weigh
from adacompute.errors import PolicyError
from adacompute.policies.base import Policy
from adacompute.policies.oneshot import SEEDS
from adacompute.policies.settings import ascending, weigh_given, whole
from adacompute.policies.sight import Sight

__all__ = ["Foretelling"]


class Foretelling(Policy):
    """Looks at a prompt, and perhaps at the first sample, to choose among budgets. Not a policy by itself."""

    def __init__(
        self, *, budgets: Sequence[int], features: str, seed: int, longest: int, weigh: Weigh | None
    ) -> None:
        self.budgets = ascending("budgets", budgets)
        self.features = features
        self.seed = whole("seed", seed, low=0, high=SEEDS)
        self.longest = whole("longest", longest)
        self.weigh = weigh_given(weigh)
        Sight.of(features)
        if self.budgets[0] > self.longest:
            raise PolicyError(f"budgets {self.budgets} lie beyond longest {self.longest}; give smaller ones")

    @property
    def modes(self) -> tuple[int, ...]:
        """The budgets that are within `longest`."""
        return tuple(budget for budget in self.budgets if budget <= self.longest)
