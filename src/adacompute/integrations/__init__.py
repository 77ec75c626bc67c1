"""Thin adapters, one file each, for LiteLLM, inspect_ai, DSPy and lm-evaluation-harness.

Each file imports the package that it adapts, so import only the one you need:
`from adacompute.integrations.litellm import register`.
"""

import threading
from pathlib import Path

from adacompute.errors import BudgetOutOfRange, PolicyError
from adacompute.policies import StoppingPolicy, load_policy
from adacompute.policies.base import Policy
from adacompute.serve.pricing.pacer import Pacer
from adacompute.serve.pricing.policy_registry import find_bounds, find_modes, guess_start

__all__ = ["PacedPolicy"]


class PacedPolicy:
    """A policy whose dial (its price or threshold) adapts, so that prompts get `budget` samples on average.

    `policy` is a policy for one mode, a folder from `adacompute fit`, or None for the built-in policy. Call
    `settle` after each prompt. Threads can share a `PacedPolicy`.

    >>> from adacompute.answers import Tally
    >>> paced = PacedPolicy(None, budget=3)
    >>> paced.policy.more("What is 6 * 7?", Tally(weigh=paced.policy.weigh), paced.dial) >= 1
    True
    """

    def __init__(
        self, policy: Policy | str | Path | None, *, budget: float, longest: int | None = None
    ) -> None:
        if policy is None:
            policy = StoppingPolicy()
        elif not isinstance(policy, Policy):
            policy = load_policy(policy)
        if find_modes(policy) is not None:
            raise PolicyError(
                "a policy over several models can't decide for one; give one that was fitted on one"
            )
        most = policy.longest if longest is None else min(policy.longest, longest)
        if not 1 <= budget <= most:
            raise BudgetOutOfRange(f"budget {budget:g} can't be met; give 1 to {most} samples on average")
        self.policy = policy
        self._lock = threading.Lock()
        bounds = find_bounds(policy)
        self._pacer: Pacer | None = None
        if bounds is not None:
            dial, low, high = bounds
            start = guess_start(policy, budget)
            self._pacer = Pacer(budget, dial=dial, start=start, low=low, high=high, unit="samples")

    @property
    def dial(self) -> float | None:
        """The policy's price or threshold for the next prompt; None if the policy has neither."""
        with self._lock:
            return None if self._pacer is None else self._pacer.price

    @property
    def average(self) -> float | None:
        """Mean number of samples per prompt so far; None before the first prompt."""
        with self._lock:
            return self._pacer.average if self._pacer is not None and self._pacer.requests else None

    def settle(self, samples: int, dial: float | None) -> None:
        """Records how many samples a prompt used, and adjusts the price or threshold."""
        with self._lock:
            if self._pacer is not None:
                self._pacer.settle(samples, price=dial)
