"""One-shot baselines: budgets decided from the prompt alone, by rule, by hash, or by knowing the answers.

`fixed`, `random` and `heuristic` are the paper's; `shuffled` hands out another policy's budgets at
random; `oracle` has seen the answers. Random choices hash the seed and the prompt, so the same request
gets the same budget live, in a batch and in replay.
"""

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from adacompute.answers import Tally, VoteWeights
from adacompute.errors import BudgetOutOfRange, NotFitted, PolicyError
from adacompute.policies.base import (
    DEFAULT_LONGEST,
    Arrays,
    Floats,
    Ints,
    Policy,
    VoteState,
    check_ascending,
    check_choice,
    check_dial,
    check_flag,
    check_integer,
    check_number,
    check_source,
    check_weights,
    dump_weights,
    get_ballots,
    load_settings,
    score_votes,
    wrap_restore_errors,
)
from adacompute.pool import Ballots, Pool
from adacompute.score import score
from adacompute.solve import solve
from adacompute.solve.hull import compute_slopes, round_slopes

__all__ = [
    "BUDGETS",
    "MAX_SEED",
    "FixedPolicy",
    "HeuristicPolicy",
    "OneShotPolicy",
    "OraclePolicy",
    "RandomPolicy",
    "ShuffledPolicy",
    "compute_shares",
    "hash_to_unit",
]

BudgetSource = Policy | npt.ArrayLike  # a one-shot policy, or the budgets that requests got
Spread = Literal["adjacent", "ends", "all"]

BUDGETS = (1, 2, 4, 8, 16)  # the paper's
MAX_SEED = 2**63 - 1
_BISECTIONS = 200  # of an interval of tilts: beyond the precision of a float
_MAX_TILT = 800.0  # at which all shares but that of the nearest budget are 0
_TIE_SEED = 0  # of the hash that orders prompts of one length


def hash_to_unit(prompts: Sequence[str], *, seed: int) -> Floats:
    """A number from 0 to below 1 for each prompt, (prompts,): a hash of the seed and the prompt.

    >>> first, second = hash_to_unit(["What is 2 + 2?", "What is 2 + 3?"], seed=0).tolist()
    >>> first == hash_to_unit(["What is 2 + 2?"], seed=0).item(), first == second
    (True, False)
    """
    return np.array(
        [(hash_prompt(prompt, seed=seed) >> 11) * 2.0**-53 for prompt in prompts], dtype=np.float64
    )


def hash_prompt(prompt: str, *, seed: int = 0) -> int:
    """A 64-bit hash of the seed and the prompt."""
    text = prompt.encode("utf-8", "surrogatepass")  # a cut conversation may end in half a surrogate pair
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, salt=seed.to_bytes(8, "big")).digest(), "big")


def compute_shares(budgets: Sequence[int], average: float, spread: Spread) -> Floats:
    """The share of requests that gets each budget, (budgets,), so that the mean is `average`.

    An average above the largest budget gives the largest one to all. `spread` says which budgets are
    used: the two "adjacent" to the average, the cheapest and the most expensive ("ends"), or "all", as
    evenly as the average allows (the distribution of maximum entropy).

    >>> compute_shares((1, 2, 4), 3.0, "adjacent").tolist(), compute_shares((1, 2, 4), 3.25, "ends").tolist()
    ([0.0, 0.5, 0.5], [0.25, 0.0, 0.75])
    """
    modes = np.asarray(budgets, dtype=np.float64)
    if average < modes[0]:
        raise BudgetOutOfRange(
            f"budget {average:g} is below the cheapest mode ({budgets[0]}); give from {budgets[0]} up"
        )
    result = np.zeros(len(modes))
    if average >= modes[-1]:
        result[-1] = 1.0
        return result
    if spread == "all" and average > modes[0]:
        return _max_entropy_shares(modes, average)
    upper = int(np.searchsorted(modes, average, side="right")) if spread == "adjacent" else len(modes) - 1
    lower = upper - 1 if spread == "adjacent" else 0
    result[upper] = (average - modes[lower]) / (modes[upper] - modes[lower])
    result[lower] = 1.0 - result[upper]
    return result


def _max_entropy_shares(modes: Floats, average: float) -> Floats:
    """Shares proportional to exp(tilt * budget), with the tilt that meets the average."""

    def shares_at(tilt: float) -> Floats:
        powers = tilt * modes
        weights = np.exp(powers - powers.max())
        return np.asarray(weights / weights.sum())

    low, high = -_MAX_TILT, _MAX_TILT
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if shares_at(middle) @ modes < average else (low, middle)
    return shares_at((low + high) / 2)


class OneShotPolicy(Policy):
    """A policy that reads its budget off the prompt, (prompts, 1). A base class."""

    one_shot = True
    max_waves = 1
    setting_names: ClassVar[tuple[str, ...]]  # keys of its settings in an artefact

    def __init__(self, *, budgets: Sequence[int], longest: int, weigh: VoteWeights | None) -> None:
        self.longest = check_integer("longest", longest)
        self.weigh = check_weights(weigh)
        self.budgets = check_ascending("budgets", budgets)
        if self.budgets[0] > self.longest:
            raise BudgetOutOfRange(
                f"budgets {self.budgets} all lie beyond longest {self.longest}; give smaller ones"
            )

    @property
    def modes(self) -> tuple[int, ...]:
        """The budgets that are within `longest`."""
        return tuple(budget for budget in self.budgets if budget <= self.longest)

    @abstractmethod
    def read(self, prompts: Sequence[str]) -> Floats:
        """The budget of each prompt, (prompts, 1)."""

    def more(
        self, prompt: str, tally: Tally, dial: float | None = None, *, reading: Floats | None = None
    ) -> int:
        """As `decide`, without arrays: for one request they would take ten times as long."""
        if type(self).decide is not OneShotPolicy.decide:
            return super().more(prompt, tally, dial, reading=reading)
        budget = (self.read([prompt]) if reading is None else reading)[0, 0]
        return max(int(budget) - tally.drawn, 0)

    def decide(self, reading: Floats, state: VoteState, dial: float | None) -> Ints:  # noqa: ARG002
        return np.asarray(np.maximum(reading[:, 0].astype(np.int64) - state.drawn, 0))

    def fit(self, pool: Pool | Ballots) -> Self:
        check_source(pool)
        return self

    def settings(self) -> dict[str, Any]:
        return {
            "budgets": list(self.budgets),
            "longest": self.longest,
            "weigh": dump_weights(self.weigh),
        }

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:  # noqa: ARG003
        with wrap_restore_errors(cls.kind):
            return cls(**load_settings(settings, cls.setting_names))


def draw_budgets(prompts: Sequence[str], modes: Sequence[int], shares: Floats, *, seed: int) -> Floats:
    """The budget of each prompt, (prompts, 1): mode k with the share `shares[k]`, by the prompt's hash."""
    index = np.searchsorted(np.cumsum(shares)[:-1], hash_to_unit(prompts, seed=seed), side="right")
    return np.asarray(modes, dtype=np.float64)[index][:, None]


class FixedPolicy(OneShotPolicy):
    """The same budget for every request: the largest of `budgets` that is not above `budget`.

    That spends less than `budget` where it lies between two (the paper's staircase). With `mix`,
    requests get one of those two at random, so that they average `budget`.

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
        budget_shares = compute_shares(self.modes, self.budget, "adjacent")  # (modes,)
        if not self.mix:
            budget_shares = np.eye(len(budget_shares))[np.flatnonzero(budget_shares)[0]]
        self._shares = budget_shares

    def read(self, prompts: Sequence[str]) -> Floats:
        if not self.mix:  # nothing to draw
            return np.full((len(prompts), 1), float(self.modes[int(self._shares.argmax())]))
        return draw_budgets(prompts, self.modes, self._shares, seed=self.seed)

    def settings(self) -> dict[str, Any]:
        return {"budget": self.budget, "mix": self.mix, "seed": self.seed, **super().settings()}


class RandomPolicy(OneShotPolicy):
    """Random budgets that average `budget`, whatever the prompt says.

    By default between the two of `budgets` next to `budget`, as in the paper (its Table 1: at B = 2
    "random" costs 2.00 and is as accurate as "fixed"); with `spread="all"` among all of them, as evenly
    as the average allows; with "ends" between the cheapest and the most expensive.

    >>> prompts = [f"What is {i} + {i}?" for i in range(1000)]
    >>> [np.unique(RandomPolicy(3, spread=spread).read(prompts)).tolist() for spread in ("adjacent", "all")]
    [[2.0, 4.0], [1.0, 2.0, 4.0, 8.0, 16.0]]
    """

    kind = "random"
    setting_names = ("budget", "spread", "seed", "budgets", "longest", "weigh")

    def __init__(
        self,
        budget: float,
        *,
        spread: Spread = "adjacent",
        seed: int = 0,
        budgets: Sequence[int] = BUDGETS,
        longest: int = DEFAULT_LONGEST,
        weigh: VoteWeights | None = None,
    ) -> None:
        super().__init__(budgets=budgets, longest=longest, weigh=weigh)
        self.budget = check_number("budget", budget, low=0)
        check_choice("spread", spread, get_args(Spread))
        self.spread = spread
        self.seed = check_integer("seed", seed, low=0, high=MAX_SEED)
        self._shares = compute_shares(self.modes, self.budget, spread)  # (modes,)

    def read(self, prompts: Sequence[str]) -> Floats:
        return draw_budgets(prompts, self.modes, self._shares, seed=self.seed)

    def settings(self) -> dict[str, Any]:
        return {"budget": self.budget, "spread": self.spread, "seed": self.seed, **super().settings()}


class HeuristicPolicy(OneShotPolicy):
    """The paper's heuristic: budgets by the prompt's length in characters, averaging `budget` over the pool.

    The cuts lie between problems, so the average is met to the nearest whole problem; prompts of the
    same length are ordered by their hash. `spread` says which budgets are used: the cheapest and the
    most expensive ("ends"), the two next to `budget` ("adjacent"), or "all". The paper's costs of 1.52,
    2.05 and 3.02 at B = 1.5, 2 and 3 with 200 problems are those of 16 samples for the longest 7, 14
    and 27 prompts and one for the others: that is the default here.

    >>> from adacompute.pool import bundled
    >>> with bundled("words") as pool:
    ...     policy = HeuristicPolicy(2.0).fit(pool)
    ...     budgets = policy.read(pool.ballots().prompts)
    >>> budgets.mean().round(2), policy.budgets_
    (np.float64(1.99), (1, 16))
    """

    kind = "heuristic"
    setting_names = ("budget", "spread", "budgets", "longest", "weigh")

    budgets_: tuple[int, ...]  # those that any problem got, ascending
    cuts_: tuple[float, ...]  # lengths from which the next of them is given

    def __init__(
        self,
        budget: float,
        *,
        spread: Spread = "ends",
        budgets: Sequence[int] = BUDGETS,
        longest: int = DEFAULT_LONGEST,
        weigh: VoteWeights | None = None,
    ) -> None:
        super().__init__(budgets=budgets, longest=longest, weigh=weigh)
        self.budget = check_number("budget", budget, low=0)
        check_choice("spread", spread, get_args(Spread))
        self.spread = spread
        self._shares = compute_shares(self.modes, self.budget, spread)  # (modes,)

    def fit(self, pool: Pool | Ballots) -> Self:
        lengths = np.sort(_measure_lengths(get_ballots(pool).prompts))
        if not len(lengths):
            raise PolicyError("there is no problem to learn lengths from; give a pool with samples")
        from_mode = np.round(np.cumsum(self._shares[::-1])[::-1] * len(lengths)).astype(np.int64)
        counts = from_mode - np.append(from_mode[1:], 0)  # (modes,) problems that get each
        used = np.flatnonzero(counts)
        edges = len(lengths) - from_mode[used[1:]]  # the first problem of each used mode but the first
        self.budgets_ = tuple(self.modes[k] for k in used)
        self.cuts_ = tuple(((lengths[edges - 1] + lengths[edges]) / 2).tolist())
        return self

    def read(self, prompts: Sequence[str]) -> Floats:
        if not hasattr(self, "cuts_"):
            raise NotFitted("heuristic has seen no prompt lengths yet; call fit(pool) first")
        index = np.searchsorted(self.cuts_, _measure_lengths(prompts), side="right")
        return np.asarray(self.budgets_, dtype=np.float64)[index][:, None]

    def settings(self) -> dict[str, Any]:
        learned = None
        if hasattr(self, "cuts_"):
            learned = {"budgets": list(self.budgets_), "cuts": list(self.cuts_)}
        return {"budget": self.budget, "spread": self.spread, **super().settings(), "learned": learned}

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:  # noqa: ARG003
        with wrap_restore_errors(cls.kind):
            arguments = load_settings(settings, (*cls.setting_names, "learned"))
            learned = arguments.pop("learned")
            policy = cls(**arguments)
            if learned is not None:
                policy._load_learned(learned)
        return policy

    def _load_learned(self, learned: object) -> None:
        if not isinstance(learned, Mapping) or set(learned) != {"budgets", "cuts"}:
            raise PolicyError("learned lacks budgets or cuts")
        budgets = check_ascending("learned budgets", learned["budgets"], high=self.longest)
        stored_cuts = learned["cuts"]
        if not isinstance(stored_cuts, list) or len(stored_cuts) != len(budgets) - 1:
            raise PolicyError(f"learned cuts {stored_cuts!r} don't separate {len(budgets)} budgets")
        cuts = tuple(check_number("learned cut", cut, low=0) for cut in stored_cuts)
        if any(a > b for a, b in pairwise(cuts)):
            raise PolicyError(f"learned cuts {stored_cuts!r} don't rise")
        self.budgets_, self.cuts_ = budgets, cuts


def _measure_lengths(prompts: Sequence[str]) -> Floats:
    """Lengths in characters, each plus a hash below 1 that breaks ties, (prompts,)."""
    return np.array([len(prompt) for prompt in prompts], dtype=np.float64) + hash_to_unit(
        prompts, seed=_TIE_SEED
    )


class ShuffledPolicy(OneShotPolicy):
    """Draws at random from the histogram of another policy's budgets: what its choice is worth.

    `fit(pool, like=…)` takes a one-shot policy (and its `dial`, where it has one), or the budgets that
    any policy spent; without it, the histogram is that of the one-shot oracle at `budget` on the pool,
    which needs grades. `of` gives the histogram directly, as {budget: share or count}.

    >>> policy = ShuffledPolicy(of={1: 3, 5: 1})
    >>> policy.read([f"What is {i} + {i}?" for i in range(2000)]).mean().round(1)
    np.float64(2.0)
    """

    kind = "shuffled"
    setting_names = ("budget", "seed", "budgets", "longest", "weigh")

    histogram_: dict[int, float]  # budget, ascending -> how often, as a count or a share
    explicit_: bool = False  # True: the histogram came from `of` or `like`, not from the oracle at `budget`

    def __init__(
        self,
        budget: float | None = None,
        *,
        of: Mapping[int, float] | None = None,
        seed: int = 0,
        budgets: Sequence[int] = BUDGETS,
        longest: int = DEFAULT_LONGEST,
        weigh: VoteWeights | None = None,
    ) -> None:
        super().__init__(budgets=budgets, longest=longest, weigh=weigh)
        self.budget = None if budget is None else check_number("budget", budget, low=self.budgets[0])
        self.seed = check_integer("seed", seed, low=0, high=MAX_SEED)
        if of is not None:
            self._set_histogram(of)
            self.explicit_ = True

    def fit(
        self, pool: Pool | Ballots, *, like: BudgetSource | None = None, dial: float | None = None
    ) -> Self:
        ballots = get_ballots(pool)
        if isinstance(like, Policy):
            spent: npt.ArrayLike = _one_shot_budgets(like, ballots, dial)
        elif like is not None:
            spent = like
        else:
            spent = self._oracle_budgets(ballots)
        values = np.asarray(spent)
        if values.ndim != 1 or not len(values) or values.dtype.kind not in "iu":
            raise PolicyError("what was spent has to be a list of whole numbers, the budget of each request")
        budgets, counts = np.unique(values, return_counts=True)
        self._set_histogram(dict(zip(budgets.tolist(), counts.tolist(), strict=True)))
        self.explicit_ = like is not None
        return self

    def read(self, prompts: Sequence[str]) -> Floats:
        if not hasattr(self, "histogram_"):
            raise NotFitted(
                "shuffled has no histogram yet; call fit(pool, like=policy), or give of={1: 3, 5: 1}"
            )
        weights = np.array(list(self.histogram_.values()))
        return draw_budgets(prompts, tuple(self.histogram_), weights / weights.sum(), seed=self.seed)

    def _oracle_budgets(self, ballots: Ballots) -> npt.ArrayLike:
        if self.budget is None:
            raise PolicyError("shuffled has nothing to shuffle; give fit(pool, like=policy), or a budget")
        plan = solve(score_votes(ballots, self.modes, None), budget=self.budget)
        return np.asarray(self.modes)[plan.choice]

    def _set_histogram(self, histogram: object) -> None:
        if not isinstance(histogram, Mapping) or not histogram:
            raise PolicyError(
                f"histogram {histogram!r} can't be used; give shares by budget, e.g. {{1: 3, 5: 1}}"
            )
        pairs = sorted(
            (
                check_integer("budget in the histogram", budget, high=self.longest),
                check_number("share", part, low=0),
            )
            for budget, part in histogram.items()
        )
        if not 0 < sum(part for _, part in pairs) < np.inf:
            raise PolicyError(f"histogram {histogram!r} has no shares that can be drawn; give positive ones")
        self.histogram_ = dict(pairs)

    def settings(self) -> dict[str, Any]:
        learned = None
        if hasattr(self, "histogram_"):
            learned = [[budget, part] for budget, part in self.histogram_.items()]
        extra = {"budget": self.budget, "seed": self.seed, "learned": learned, "given": self.explicit_}
        return {**super().settings(), **extra}

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:  # noqa: ARG003
        with wrap_restore_errors(cls.kind):
            arguments = load_settings(settings, (*cls.setting_names, "learned", "given"))
            learned, explicit = arguments.pop("learned"), check_flag("given", arguments.pop("given"))
            policy = cls(**arguments, of=None if learned is None else _parse_histogram(learned))
            policy.explicit_ = explicit
            return policy


def _parse_histogram(learned: object) -> dict[Any, Any]:
    if not isinstance(learned, list) or not all(
        isinstance(pair, list) and len(pair) == 2 for pair in learned
    ):
        raise PolicyError("learned is not a list of budgets and shares")
    if any(not isinstance(budget, int) for budget, _ in learned):
        raise PolicyError("learned has a budget that is not a whole number")
    histogram = dict(learned)
    if len(histogram) != len(learned):
        raise PolicyError("learned names a budget twice")
    return histogram


def _one_shot_budgets(policy: Policy, ballots: Ballots, dial: float | None) -> npt.ArrayLike:
    if not policy.one_shot:
        raise PolicyError(
            f"{policy.kind} decides as the votes come in; replay it, and give what it spent: like=run.drawn"
        )
    return policy.decide(policy.read(ballots.prompts), VoteState.empty(len(ballots)), dial)


class OraclePolicy(OneShotPolicy):
    """Each problem's best budget at a price, by its own accuracy: it has seen the answers.

    The price is accuracy per sample. It keeps the slopes of each problem's concave hull under a hash of
    its prompt: a budget is bought while they lie above the price. Problems of the same prompt share
    their mean curve; a prompt never seen gets the mean of all. Judged on the samples it was fitted on,
    it is the upper bound of what deciding once can reach; fitted on one half of each problem's samples
    and judged on the other (`adacompute.score.halves`), the lower bound.

    >>> from adacompute.answers import Tally
    >>> from adacompute.pool import bundled
    >>> with bundled("words") as pool:
    ...     policy, prompts = OraclePolicy().fit(pool), pool.ballots().prompts
    >>> policy.more_batch(prompts[:6], [Tally()] * 6, 0.01)
    [8, 8, 8, 8, 8, 4]
    """

    kind = "oracle"
    dial = "price"
    setting_names = ("budgets", "longest", "weigh")

    keys_: npt.NDArray[np.uint64]  # (prompts,) hashes, ascending
    slopes_: Floats  # (prompts, modes - 1) of the hull over each step to the next mode, never rising
    mean_: Floats  # (modes - 1,) of the mean curve

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
        options: dict[str, Any] = {} if self.weigh is None else {"aggregate": "weighted", "by": self.weigh}
        accuracy = score(ballots, self.modes, **options).accuracy  # (problems, modes)
        hashes = np.array([hash_prompt(prompt) for prompt in ballots.prompts], dtype=np.uint64)
        self.keys_, prompt_row = np.unique(hashes, return_inverse=True)
        curves = np.zeros((len(self.keys_), len(self.modes)))
        np.add.at(curves, prompt_row, accuracy)
        curves /= np.bincount(prompt_row)[:, None]
        costs = np.array(self.modes, dtype=np.float64)
        self.slopes_ = np.ascontiguousarray(compute_slopes(curves, costs).T)
        self.mean_ = compute_slopes(accuracy.mean(axis=0, keepdims=True), costs)[:, 0].copy()
        return self

    def read(self, prompts: Sequence[str]) -> Floats:
        """The slopes of each prompt's curve, (prompts, modes - 1)."""
        if not hasattr(self, "keys_"):
            raise NotFitted("oracle has seen no answers yet; call fit(pool) with graded samples first")
        hashes = np.array([hash_prompt(prompt) for prompt in prompts], dtype=np.uint64)
        row = np.minimum(np.searchsorted(self.keys_, hashes), len(self.keys_) - 1)
        known = self.keys_[row] == hashes
        return np.where(known[:, None], self.slopes_[row], self.mean_)

    def decide(self, reading: Floats, state: VoteState, dial: float | None) -> Ints:
        price = round_slopes(np.array([check_dial("price", dial)]))
        budget = np.array(self.modes)[(reading > price).sum(axis=1)]
        return np.asarray(np.maximum(budget - state.drawn, 0))

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "learned": hasattr(self, "keys_")}

    def arrays(self) -> Arrays:
        if not hasattr(self, "keys_"):
            return {}
        return {"keys": self.keys_, "slopes": self.slopes_, "mean": self.mean_}

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        with wrap_restore_errors(cls.kind):
            arguments = load_settings(settings, (*cls.setting_names, "learned"))
            learned = arguments.pop("learned")
            policy = cls(**arguments)
            if not isinstance(learned, bool) or set(arrays) != (
                {"keys", "slopes", "mean"} if learned else set()
            ):
                raise PolicyError(f"arrays {sorted(arrays)} don't go with learned {learned!r}")
            if learned:
                policy._load_arrays(arrays)
        return policy

    def _load_arrays(self, arrays: Arrays) -> None:
        keys, hull_slopes, mean = arrays["keys"], arrays["slopes"], arrays["mean"]
        steps = len(self.modes) - 1
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
