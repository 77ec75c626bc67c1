"""Baselines that choose the number of samples before sampling: a fixed number, or the best in hindsight.

A budget is a number of samples. Random choices are made by hashing the seed and the prompt, so a request gets
the same budget live, in a batch and in replay.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from adacompute.answers import VoteWeights
from adacompute.errors import BudgetOutOfRange, NotFitted, PolicyError
from adacompute.policies.base import (
    DEFAULT_LONGEST,
    Arrays,
    Policy,
    check_ascending,
    check_dials,
    check_flag,
    check_integer,
    check_number,
    check_source,
    get_ballots,
    hash_prompt,
    hash_to_unit,
    score_votes,
)
from adacompute.policies.votes import Floats, Ints, VoteState
from adacompute.policies.weights import check_weights
from adacompute.pool import Ballots, Pool
from adacompute.solve.hull import compute_slopes, round_slopes

BUDGETS = (1, 2, 4, 8, 16)  # numbers of samples among which the paper's policies choose
MAX_SEED = 2**63 - 1


def mix_adjacent(budgets: Sequence[int], average: float) -> Floats:
    """Returns the share of requests that get each budget, so that the mean budget is `average`.

    Only the largest budget up to `average` and the next larger one get a share. If `average` is above all
    budgets, all requests get the largest. Raises BudgetOutOfRange if `average` is below all budgets.

    >>> mix_adjacent((1, 2, 4), 3.0).tolist()
    [0.0, 0.5, 0.5]
    """
    costs = np.asarray(budgets, dtype=np.float64)
    if average < costs[0]:
        raise BudgetOutOfRange(
            f"budget {average:g} is below the smallest of budgets, {budgets[0]}; give {budgets[0]} or more"
        )
    result = np.zeros(len(costs))
    if average >= costs[-1]:
        result[-1] = 1.0
        return result
    upper = int(np.searchsorted(costs, average, side="right"))
    result[upper] = (average - costs[upper - 1]) / (costs[upper] - costs[upper - 1])
    result[upper - 1] = 1.0 - result[upper]
    return result


class BudgetPolicy(Policy):
    """Base class of policies that choose among given numbers of samples (budgets)."""

    def __init__(self, *, budgets: Sequence[int], longest: int, weigh: VoteWeights | None) -> None:
        self.longest = check_integer("longest", longest)
        self.weigh = check_weights(weigh)
        self.budgets = check_ascending("budgets", budgets)
        if self.budgets[0] > self.longest:
            raise BudgetOutOfRange(
                f"budgets {self.budgets} all lie beyond longest {self.longest}; give smaller ones"
            )

    @property
    def choices(self) -> tuple[int, ...]:
        """The budgets (numbers of samples) that are at most `longest`."""
        return tuple(budget for budget in self.budgets if budget <= self.longest)


class OneShotPolicy(BudgetPolicy):
    """Base class of policies that choose a number of samples from the prompt alone."""

    one_shot = True
    max_waves = 1

    @abstractmethod
    def read(self, prompts: Sequence[str]) -> Floats:
        """Returns the number of samples that each prompt gets; shape (prompts, 1)."""

    def count_draws(self, reading: Floats, state: VoteState, dial: float | Floats | None) -> Ints:  # noqa: ARG002
        return np.asarray(np.maximum(reading[:, 0].astype(np.int64) - state.drawn, 0))

    def fit(self, pool: Pool | Ballots) -> Self:
        check_source(pool)
        return self


def draw_budgets(prompts: Sequence[str], choices: Sequence[int], shares: Floats, *, seed: int) -> Floats:
    """Chooses each prompt's number of samples by its hash: `choices[k]` with probability `shares[k]`.

    The result has shape (prompts, 1).
    """
    index = np.searchsorted(np.cumsum(shares)[:-1], hash_to_unit(prompts, seed=seed), side="right")
    return np.asarray(choices, dtype=np.float64)[index][:, None]


class FixedPolicy(OneShotPolicy):
    """Gives every request the same number of samples: the largest of `budgets` that is at most `budget`.

    With `mix`, a hash of the prompt chooses between this number and the next larger one of `budgets`, so that
    the average is `budget`.

    >>> prompts = [f"What is {i} + {i}?" for i in range(1000)]
    >>> FixedPolicy(3).read(prompts).mean(), FixedPolicy(3, mix=True).read(prompts).mean().round(1)
    (np.float64(2.0), np.float64(3.0))
    """

    kind = "fixed"
    setting_names = ("budget", "mix", "seed", "budgets", "longest", "weigh")

    def __init__(
        self,
        budget: float,
        *,
        mix: bool = False,
        seed: int = 0,
        budgets: Sequence[int] = BUDGETS,
        longest: int = DEFAULT_LONGEST,
        weigh: VoteWeights | None = None,
    ) -> None:
        super().__init__(budgets=budgets, longest=longest, weigh=weigh)
        self.budget = check_number("budget", budget, low=0)
        self.mix = check_flag("mix", mix)
        self.seed = check_integer("seed", seed, low=0, high=MAX_SEED)
        # for each number of samples in `choices`, the share of requests that get it
        budget_shares = mix_adjacent(self.choices, self.budget)
        if not self.mix:
            budget_shares = np.eye(len(budget_shares))[np.flatnonzero(budget_shares)[0]]
        self._shares = budget_shares

    def read(self, prompts: Sequence[str]) -> Floats:
        if not self.mix:  # all requests get the same number of samples
            return np.full((len(prompts), 1), float(self.choices[int(self._shares.argmax())]))
        return draw_budgets(prompts, self.choices, self._shares, seed=self.seed)


class OraclePolicy(OneShotPolicy):
    """The best number of samples for each problem at a price, known in hindsight from recorded answers.

    The price is in accuracy per sample. A prompt gets more samples while the concave hull of its accuracy by
    number of samples is steeper than the price. Problems with the same prompt share the mean of their curves;
    an unknown prompt gets the mean of all curves. Evaluated on its training samples, the policy's accuracy is
    an upper bound for policies that decide once, from the prompt. Fitted on one half of each problem's
    samples and evaluated on the other (`adacompute.score.halves`), it is a lower bound for the best of them.

    >>> from adacompute.answers import Tally
    >>> from adacompute.pool import bundled
    >>> with bundled("words") as pool:
    ...     policy, prompts = OraclePolicy().fit(pool), pool.ballots().prompts
    >>> [policy.more(prompt, Tally(), 0.01) for prompt in prompts[:6]]
    [8, 8, 8, 8, 8, 4]
    """

    kind = "oracle"
    dial = "price"
    setting_names = ("budgets", "longest", "weigh")
    learned_names = ("learned",)

    keys_: npt.NDArray[np.uint64]  # hashes of the fitted prompts, ascending
    # for each prompt, the slope of its accuracy's concave hull from each budget to the next, descending
    slopes_: Floats
    mean_: Floats  # slopes of the mean accuracy over all prompts, which are used for unknown prompts

    def __init__(
        self,
        *,
        budgets: Sequence[int] = BUDGETS,
        longest: int = DEFAULT_LONGEST,
        weigh: VoteWeights | None = None,
    ) -> None:
        super().__init__(budgets=budgets, longest=longest, weigh=weigh)

    def fit(self, pool: Pool | Ballots) -> Self:
        ballots = get_ballots(pool)
        accuracy = score_votes(ballots, self.choices, self.weigh).accuracy  # shape (problems, budgets)
        hashes = np.array([hash_prompt(prompt) for prompt in ballots.prompts], dtype=np.uint64)
        self.keys_, prompt_row = np.unique(hashes, return_inverse=True)
        curves = np.zeros((len(self.keys_), len(self.choices)))
        np.add.at(curves, prompt_row, accuracy)
        curves /= np.bincount(prompt_row)[:, None]
        costs = np.array(self.choices, dtype=np.float64)
        self.slopes_ = np.ascontiguousarray(compute_slopes(curves, costs).T)
        self.mean_ = compute_slopes(accuracy.mean(axis=0, keepdims=True), costs)[:, 0].copy()
        return self

    def read(self, prompts: Sequence[str]) -> Floats:
        """Returns the slopes of each prompt's accuracy between budgets; shape (prompts, budgets - 1)."""
        if not hasattr(self, "keys_"):
            raise NotFitted("oracle has seen no answers yet; call fit(pool) with graded samples first")
        hashes = np.array([hash_prompt(prompt) for prompt in prompts], dtype=np.uint64)
        row = np.minimum(np.searchsorted(self.keys_, hashes), len(self.keys_) - 1)
        known = self.keys_[row] == hashes
        return np.where(known[:, None], self.slopes_[row], self.mean_)

    def count_draws(self, reading: Floats, state: VoteState, dial: float | Floats | None) -> Ints:
        price = round_slopes(np.array(check_dials("price", dial), dtype=np.float64, ndmin=1))
        budget = np.array(self.choices)[(reading > price[:, None]).sum(axis=1)]
        return np.asarray(np.maximum(budget - state.drawn, 0))

    def dump_learned(self) -> dict[str, Any]:
        return {"learned": hasattr(self, "keys_")}

    def arrays(self) -> Arrays:
        if not hasattr(self, "keys_"):
            return {}
        return {"keys": self.keys_, "slopes": self.slopes_, "mean": self.mean_}

    def load_learned(self, learned: Mapping[str, Any], arrays: Arrays) -> None:
        names = {"keys", "slopes", "mean"} if check_flag("learned", learned["learned"]) else set[str]()
        if set(arrays) != names:
            raise PolicyError(f"arrays {sorted(arrays)} don't go with learned {learned['learned']!r}")
        if not names:
            return
        keys, hull_slopes, mean = arrays["keys"], arrays["slopes"], arrays["mean"]
        steps = len(self.choices) - 1
        if keys.dtype != np.uint64 or keys.ndim != 1 or not len(keys) or (keys[1:] <= keys[:-1]).any():
            raise PolicyError("array 'keys' doesn't hold ascending hashes")
        for name, array, shape in (("slopes", hull_slopes, (len(keys), steps)), ("mean", mean, (steps,))):
            if array.dtype != np.float64 or array.shape != shape:
                raise PolicyError(
                    f"array {name!r} is {array.dtype} of shape {array.shape}, not float64 of {shape}"
                )
            if not ((array >= 0) & (array <= 1)).all() or (np.diff(array, axis=-1) > 0).any():
                raise PolicyError(
                    f"array {name!r} holds no slopes of a concave curve, from 0 to 1 and never rising"
                )
        self.keys_, self.slopes_, self.mean_ = keys, hull_slopes, mean
