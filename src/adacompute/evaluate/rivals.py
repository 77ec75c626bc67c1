"""Policies that exist only for comparison: they can't be saved or served.

`random` and `heuristic` are the paper's baselines. `shuffled` gives the oracle's numbers of samples to random
problems. `doubling` and `pets` are published rules. `COMPARED` maps the name of every policy, also of those
that can be served, to its class.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NoReturn, Self

import numpy as np

from adacompute.answers import VoteWeights
from adacompute.errors import NotFitted, PolicyError, needs_extra
from adacompute.policies import POLICIES
from adacompute.policies.agreement import AgreementPolicy, add_answer, count_answers, place_ties
from adacompute.policies.base import (
    DEFAULT_LONGEST,
    Arrays,
    Policy,
    check_dials,
    check_number,
    get_ballots,
    hash_to_unit,
    score_votes,
)
from adacompute.policies.baselines import BUDGETS, FixedPolicy, OneShotPolicy, draw_budgets, mix_adjacent
from adacompute.policies.votes import Floats, Ints, VoteState
from adacompute.pool import Ballots, Pool
from adacompute.solve import solve

_TIE_SEED = 0  # seed of the hash that breaks ties between prompts of equal length
_WARMUP = 4  # number of samples that PETS draws first
_CURVE_VOTES = 40  # PETS fits each problem's curve to the results of votes of at most this number of samples
_CURVE_FROM = 3  # PETS fits each problem's curve to the results of votes of at least this number of samples
# PETS ignores all but a problem's 10 most frequent answers, as in the original code
_CURVE_ANSWERS = 10


class Rival(Policy):
    """Base class of policies that exist only for comparison."""

    only_compared: ClassVar[bool] = True

    def settings(self) -> NoReturn:
        raise PolicyError(f"{self.kind} is only for comparison, so it can't be saved, calibrated or served")

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:  # noqa: ARG003
        raise PolicyError(f"{cls.kind} is only for comparison, so it can't be loaded")


class RandomPolicy(Rival, FixedPolicy):
    """Gives each prompt one of two numbers of samples at random, so that the average is `budget`.

    The two are the neighbours of `budget` in `budgets`: one below and one above.

    In the paper, this is "random" (Table 1: at B = 2 it costs 2.00 and is as accurate as "fixed").

    >>> prompts = [f"What is {i} + {i}?" for i in range(1000)]
    >>> np.unique(RandomPolicy(3).read(prompts)).tolist()
    [2.0, 4.0]
    """

    kind = "random"

    def __init__(self, budget: float, **options: Any) -> None:  # noqa: ANN401 - those of `fixed`
        super().__init__(budget, mix=True, **options)


class HeuristicPolicy(Rival, OneShotPolicy):
    """The paper's heuristic: the longest prompts get the most samples, all others the fewest.

    The average number of samples over the pool is as close to `budget` as possible. A hash decides between
    prompts of equal length. In the paper, with 200 problems and B = 1.5, 2 and 3, the costs are 1.52, 2.05
    and 3.02: 16 samples for the 7, 14 and 27 longest prompts, and one for each of the others.

    >>> from adacompute.pool import bundled
    >>> with bundled("words") as pool:
    ...     policy = HeuristicPolicy(2.0).fit(pool)
    ...     budgets = policy.read(pool.ballots().prompts)
    >>> budgets.mean().round(2), np.unique(budgets).tolist()
    (np.float64(1.99), [1.0, 16.0])
    """

    kind = "heuristic"

    cut_: float  # prompts of at least this length, in characters, get the most samples

    def __init__(
        self,
        budget: float,
        *,
        budgets: Sequence[int] = BUDGETS,
        longest: int = DEFAULT_LONGEST,
        weigh: VoteWeights | None = None,
    ) -> None:
        super().__init__(budgets=budgets, longest=longest, weigh=weigh)
        self.budget = check_number("budget", budget, low=0)
        self._share = float(
            mix_adjacent(tuple(dict.fromkeys((self.choices[0], self.choices[-1]))), self.budget)[-1]
        )

    def fit(self, pool: Pool | Ballots) -> Self:
        lengths = np.sort(_measure_lengths(get_ballots(pool).prompts))
        if not len(lengths):
            raise PolicyError("there is no problem to learn lengths from; give a pool with samples")
        edges = np.concatenate([[-math.inf], (lengths[1:] + lengths[:-1]) / 2, [math.inf]])
        self.cut_ = float(edges[len(lengths) - round(self._share * len(lengths))])
        return self

    def read(self, prompts: Sequence[str]) -> Floats:
        if not hasattr(self, "cut_"):
            raise NotFitted("heuristic has seen no prompt lengths yet; call fit(pool) first")
        is_long = _measure_lengths(prompts) >= self.cut_
        return np.where(is_long, float(self.choices[-1]), float(self.choices[0]))[:, None]


def _measure_lengths(prompts: Sequence[str]) -> Floats:
    """Returns the lengths of prompts in characters, plus a hash below 1 that breaks ties."""
    lengths = np.array([len(prompt) for prompt in prompts], dtype=np.float64)
    return lengths + hash_to_unit(prompts, seed=_TIE_SEED)


class ShuffledPolicy(RandomPolicy):
    """Gives out the same numbers of samples as the one-shot oracle, but to random problems, as a control.

    `fit` learns from a pool with grades how often the oracle chooses each number.
    """

    kind = "shuffled"

    # one value per number of samples: the share of problems to which the oracle gives this number
    shares_: Floats

    def fit(self, pool: Pool | Ballots) -> Self:
        plan = solve(score_votes(get_ballots(pool), self.choices, None), budget=self.budget)
        self.shares_ = np.bincount(plan.choice, minlength=len(self.choices)) / len(plan.choice)
        return self

    def read(self, prompts: Sequence[str]) -> Floats:
        if not hasattr(self, "shares_"):
            raise NotFitted("shuffled has learned nothing yet; call fit(pool) first")
        return draw_budgets(prompts, self.choices, self.shares_, seed=self.seed)


class DoublingPolicy(Rival, AgreementPolicy):
    """AdaptiveSelfConsistency from its_hub: draws 2 samples, then doubles their number until enough agree.

    It stops if the most common answer's share is at least 1 minus the threshold. (its_hub's `threshold` of
    0.75 is a threshold of 0.25 here.)

    >>> from adacompute.answers import Tally
    >>> rule = DoublingPolicy()
    >>> [rule.more("", Tally.of(votes), 0.25) for votes in ([], ["4", "5"], ["4", "5", "4", "4"])]
    [2, 2, 0]
    """

    kind = "doubling"

    def __init__(self, *, longest: int = DEFAULT_LONGEST, weigh: VoteWeights | None = None) -> None:
        super().__init__(longest=longest, weigh=weigh)
        self.max_waves = max(1, math.ceil(math.log2(self.longest)))

    def count_draws(self, reading: Floats, state: VoteState, dial: float | Floats | None) -> Ints:  # noqa: ARG002
        min_share = 1.0 - self.check_doubt(dial)
        answered = state.total > 0
        share = np.divide(state.lead, state.total, out=np.zeros(len(state)), where=answered)
        stops = answered & (share >= min_share)
        return np.where(stops, 0, self.limit_draw(state, np.maximum(state.drawn, 2)))


class PetsPolicy(Rival, AgreementPolicy):
    """PETS online (Liu et al., 2026): draws 4 samples, then a number that depends on how they agree.

    The first answers have one of five patterns (4 equal; 3 and 1; 2 and 2; 2, 1 and 1; all different). For
    each pattern, `fit` estimates how often a vote of k samples gives the model's most frequent answer; it
    needs no labels. The estimate is Phi(a sqrt(k) + b), with the standard normal distribution function Phi. a
    and b are averages over problems, weighted by how often a problem's samples have the pattern. A further
    sample is drawn if it raises this estimate by more than the price. PETS itself plans for an average budget
    with a greedy algorithm, which adds the same samples in the same order. First samples without an answer
    are drawn again.

    >>> from adacompute.answers import Tally
    >>> from adacompute.pool import bundled
    >>> with bundled("words") as pool:
    ...     rule = PetsPolicy().fit(pool)
    >>> rule.more("", Tally(), 0.02), rule.more("", Tally.of(["4"] * 4), 0.02)
    (4, 0)
    """

    kind = "pets"
    dial = "price"
    # for each pattern of the first four answers: by how much each further sample raises the probability that
    # the vote gives the model's most frequent answer, lowered to the number before it if that is smaller;
    # shape (patterns, further samples)
    gains_: Floats

    def fit(self, pool: Pool | Ballots) -> Self:
        """Learns how answers are distributed; needs at least four answers of each problem, but no labels."""
        counts = count_answers(get_ballots(pool), min_answers=_WARMUP)
        slope, offset = _fit_agreement_curves(counts)
        weights = _compute_pattern_shares(counts)  # shape (problems, patterns)
        total = np.maximum(weights.sum(axis=0), 1e-12)
        after = np.sqrt(np.arange(_WARMUP, max(self.longest, _WARMUP) + 1))
        level = (weights.T @ slope / total)[:, None] * after + (weights.T @ offset / total)[:, None]
        self.gains_ = np.minimum.accumulate(np.maximum(_subtract_tails(level), 0.0), axis=1)
        return self

    def count_draws(self, reading: Floats, state: VoteState, dial: float | Floats | None) -> Ints:  # noqa: ARG002
        if not hasattr(self, "gains_"):
            raise NotFitted(f"{self.kind} has learned nothing yet; call fit(pool) first")
        price = np.array(check_dials("price", dial), ndmin=1)[:, None]
        # total number of samples to draw, including the first four
        planned = _WARMUP + (self.gains_[self._find_pattern(state)] > price).sum(axis=1)
        missing = _WARMUP - state.answered
        left = np.where(missing == 0, planned - state.drawn, missing)
        return self.limit_draw(state, np.maximum(left, 0))

    def _find_pattern(self, state: VoteState) -> Ints:
        """Returns the index of each request's pattern; right only for requests with exactly four answers."""
        kinds = np.clip(state.kinds, 1, _WARMUP)
        pairs = (kinds == 2) & (state.first == 2)
        return np.asarray(np.where(kinds > 2, kinds, kinds - 1) + pairs)


def _compute_vote_curves(shares: Floats, longest: int) -> Floats:
    """Computes the probability that a vote gives the answer in the first column of `shares`.

    Votes have 1 to `longest` samples; shape (problems, longest). Ties are broken at random.
    """
    accuracy = np.zeros((len(shares), longest + 1))
    for leader in range(1, longest + 1):
        rest = longest - leader
        tie, weights = place_ties(min(shares.shape[1] - 1, rest // leader))
        votes = np.zeros((len(shares), len(tie), rest + 1))
        votes[..., 0] = 1.0
        for answer in range(1, shares.shape[1]):
            votes = add_answer(votes, shares[:, answer], leader, tie)
        ways = shares[:, :1] ** leader / math.factorial(leader)
        accuracy[:, leader:] += ways * np.einsum("pyr,y->pr", votes, weights)
    factorials = np.array([float(math.factorial(size)) for size in range(longest + 1)])
    return np.asarray((accuracy * factorials)[:, 1:])


def _fit_agreement_curves(counts: Floats) -> tuple[Floats, Floats]:
    """Fits Phi(a sqrt(k) + b) to how often a vote of k samples gives a problem's most frequent answer.

    Returns a and b for each problem. Phi is the standard normal distribution function.
    """
    with needs_extra("fit"):
        from scipy.special import ndtri  # type: ignore[import-untyped]

    counts = counts[:, :_CURVE_ANSWERS]
    distinct, owner = np.unique(counts / counts.sum(axis=1, keepdims=True), axis=0, return_inverse=True)
    accuracy = _compute_vote_curves(distinct, _CURVE_VOTES)[:, _CURVE_FROM - 1 :]
    level = ndtri(np.clip(accuracy, 1e-12, 1 - 1e-12))
    root = np.sqrt(np.arange(_CURVE_FROM, _CURVE_VOTES + 1))
    slope = (level @ (root - root.mean())) / ((root - root.mean()) ** 2).sum()
    offset = level.mean(axis=1) - slope * root.mean()
    return slope[owner.reshape(-1)], offset[owner.reshape(-1)]


def _compute_pattern_shares(counts: Floats) -> Floats:
    """Computes the probability of each pattern of four answers to a problem; shape (problems, patterns).

    The four are drawn without replacement. Patterns are ordered from all equal to all different.
    """
    total = counts.sum(axis=1)
    pairs = counts * (counts - 1) / 2
    left = total[:, None] - counts
    squares = (counts**2).sum(axis=1, keepdims=True) - counts**2
    shown = [
        pairs * (counts - 2) * (counts - 3) / 12,
        pairs * (counts - 2) / 3 * left,
        pairs * (pairs.sum(axis=1, keepdims=True) - pairs) / 2,
        pairs * (left**2 - squares) / 2,
    ]
    ways = total * (total - 1) * (total - 2) * (total - 3) / 24
    shares = np.stack([one.sum(axis=1) for one in shown], axis=1) / ways[:, None]
    different = 1.0 - shares.sum(axis=1)
    different[different < 1e-12] = 0.0  # shares this small are rounding errors
    return np.column_stack([shares, different])


def _subtract_tails(level: Floats) -> Floats:
    """Returns how much the standard normal distribution function rises from each column to the next.

    The result is accurate even if the function is close to 1.
    """
    from scipy.special import log_ndtr

    tail = log_ndtr(-level)
    return np.asarray(np.exp(tail[:, :-1]) * -np.expm1(tail[:, 1:] - tail[:, :-1]))


_RIVALS = (RandomPolicy, HeuristicPolicy, ShuffledPolicy, DoublingPolicy, PetsPolicy)
# names of the policies that tables list first, in this order
_FIRST = ("fixed", "random", "heuristic", "shuffled", "asc", "esc", "doubling", "bayes", "pets")
_EVERY: dict[str, type[Policy]] = {**POLICIES, **{rival.kind: rival for rival in _RIVALS}}
COMPARED = {kind: _EVERY[kind] for kind in dict.fromkeys((*_FIRST, *POLICIES))}
