"""Published rules that stop when answers agree: Adaptive-Consistency, ESC and Bayesian stopping.

Only Bayesian stopping needs training: it learns from a pool, without labels, how a model's answers are
distributed. The cost of each rule depends on its threshold, the doubt that it tolerates: the more doubt, the
earlier it stops. A sample without an answer counts as drawn but doesn't vote. ESC treats it as a
disagreement.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np

from adacompute.answers import Tally, VoteWeights
from adacompute.errors import NotFitted, PolicyError, TooFewSamples
from adacompute.policies.base import (
    DEFAULT_LONGEST,
    Arrays,
    Criterion,
    Dial,
    Policy,
    check_dials,
    check_flag,
    check_integer,
    check_source,
    get_ballots,
    read_array,
)
from adacompute.policies.votes import Floats, Ints, VoteState
from adacompute.policies.weights import check_weights
from adacompute.pool import Ballots, Pool

_PRIOR_PROBLEMS = 250  # maximum number of problems in the prior of Bayesian stopping, as in its paper
# maximum number of samples per request in Bayesian stopping; with more, its table takes long to compute
_TABLE_LONGEST = 32


class AgreementPolicy(Policy):
    """Base class of rules that stop when answers agree.

    The threshold is the tolerated doubt: the probability that the leader isn't the most common answer.
    """

    dial: Dial | None = "threshold"
    setting_names: ClassVar[tuple[str, ...]] = ("longest", "weigh")

    def __init__(self, *, longest: int = DEFAULT_LONGEST, weigh: VoteWeights | None = None) -> None:
        self.longest = check_integer("longest", longest)
        self.weigh = check_weights(weigh)

    def fit(self, pool: Pool | Ballots) -> Self:
        check_source(pool)
        return self

    def check_doubt(self, dial: float | Floats | None) -> float | Floats:
        """Checks the tolerated doubt: one number or an array, from 0 (hardly ever stops early) to 1."""
        return check_dials("threshold", dial, high=1.0)

    def compute_doubt(self, reading: Floats, state: VoteState) -> Floats | None:  # noqa: ARG002
        """Returns each request's probability that the leader isn't the most common answer.

        Returns None if the rule doesn't compute it.
        """
        return None

    def find_criterion(self, tally: Tally, dial: float | None = None, *, reading: Floats) -> Criterion | None:
        doubt = self.compute_doubt(reading, VoteState.from_tallies([tally]))
        return None if doubt is None else Criterion("doubt", float(doubt[0]), float(self.check_doubt(dial)))

    def limit_draw(self, state: VoteState, size: Ints | int) -> Ints:
        """Returns how many samples to draw next: `size`, or fewer if a request has fewer left to draw."""
        return np.asarray(np.clip(self.longest - state.drawn, 0, size), dtype=np.int64)


class AdaptiveConsistency(AgreementPolicy):
    """Adaptive-Consistency, Beta rule (Aggarwal et al., 2023): draws until the leader is unlikely to change.

    If the top two answers have a and b votes, the doubt is the probability that a Beta(a + 1, b + 1) variable
    is below one half. The rule stops when the doubt is at most the threshold: 1 minus the original package's
    `conf_thresh` (by default 0.95, so a threshold of 0.05). If votes are weighted, a and b are sums of
    weights. `wave` is the number of samples drawn between two decisions, 1 in the published rule.

    >>> from adacompute.answers import Tally
    >>> rule = AdaptiveConsistency()
    >>> rule.more("", Tally.of(["4"] * 3), 0.05), rule.more("", Tally.of(["4"] * 4), 0.05)
    (1, 0)
    """

    kind = "asc"
    setting_names = ("wave", "longest", "weigh")

    def __init__(
        self, *, wave: int = 1, longest: int = DEFAULT_LONGEST, weigh: VoteWeights | None = None
    ) -> None:
        super().__init__(longest=longest, weigh=weigh)
        self.wave = check_integer("wave", wave)
        self.max_waves = -(-self.longest // self.wave)

    def count_draws(self, reading: Floats, state: VoteState, dial: float | Floats | None) -> Ints:
        limit = self.check_doubt(dial)
        stops = (state.drawn > 0) & (self.compute_doubt(reading, state) <= limit)
        return np.where(stops, 0, self.limit_draw(state, self.wave))

    def find_stopping_rule(self, dial: float | Floats | None) -> tuple[int, float | Floats] | None:
        """Returns how many samples to draw first, and the largest doubt at which drawing stops.

        After the first samples, one at a time is drawn while the result of `compute_doubt` is larger. Returns
        None if several are drawn at a time, or if a subclass overrides `count_draws`.
        """
        if self.wave > 1 or type(self).count_draws is not AdaptiveConsistency.count_draws:
            return None
        return 1, self.check_doubt(dial)

    def compute_doubt(self, reading: Floats, state: VoteState) -> Floats:  # noqa: ARG002
        """Returns the probability that the model gives the second answer more often than the leader."""
        if self.weigh is not None:
            return _compute_beta_below_half(state.lead + 1.0, state.runner + 1.0)
        table = _build_doubt_table(self.longest)
        votes = state.first + state.second
        in_table = votes <= self.longest  # with more votes, no sample is drawn, so the doubt doesn't matter
        return np.asarray(table[np.where(in_table, votes, 0) + 1, np.where(in_table, state.second, 0)])


class EarlyStopping(AgreementPolicy):
    """Early-stopping self-consistency (ESC; Li et al., 2024): draws in windows until one is unanimous.

    The published rule is given a window size. Here the window size is 1 / threshold: 1, 2 and 5 samples for
    thresholds of 1, 0.5 and 0.2, and all samples for 0. Drawing stops after the first window whose samples
    all give the same answer; a sample without an answer disagrees with all others. Averaged over all random
    orders of a problem's samples, cost never rises with the threshold; in a single random order it can.

    >>> from adacompute.answers import Tally
    >>> rule = EarlyStopping()
    >>> rule.more("", Tally(), 0.2), rule.more("", Tally.of(["4", "5", "5", "5"]), 0.5)
    (5, 0)
    """

    kind = "esc"

    def window(self, dial: float | Floats | None) -> Ints:
        """Returns the number of samples per window, for one threshold or an array of them."""
        doubt = np.asarray(self.check_doubt(dial))
        windows = np.round(1.0 / np.maximum(doubt, 1.0 / self.longest)).astype(np.int64)
        return np.asarray(np.where(doubt * self.longest <= 1.0, self.longest, windows))

    def count_draws(self, reading: Floats, state: VoteState, dial: float | Floats | None) -> Ints:  # noqa: ARG002
        window = self.window(dial)
        position = state.drawn % window  # number of samples drawn since the last full window
        stops = (state.drawn > 0) & (position == 0) & (state.run >= window)
        return np.where(stops, 0, self.limit_draw(state, window - position))


def _compute_beta_below_half(a: Floats, b: Floats) -> Floats:
    """Computes the probability that a Beta(a, b) variable is below one half, for a >= b.

    Uses the continued fraction of the incomplete beta function, which needs about sqrt(a) terms.
    """
    fraction = np.ones_like(a)
    for m in range(20 + math.isqrt(int(a.max(initial=0.0))), 0, -1):
        n = a + 2 * m
        fraction = 1 + m * (b - m) / 2 / ((n - 1) * n) / fraction
        fraction = 1 - (a + m - 1) * (a + b + m - 1) / 2 / ((n - 2) * (n - 1)) / fraction
    log_density = _log_gamma(a + b) - _log_gamma(a + 1) - _log_gamma(b) - (a + b) * math.log(2)
    return np.asarray(np.exp(log_density) / fraction)


_log_gamma = np.vectorize(math.lgamma, otypes=[float])


@lru_cache(maxsize=8)
def _build_doubt_table(longest: int) -> Floats:
    """Builds a table whose row n, column b has the probability of at most b heads in n fair coin tosses.

    This is the doubt of Adaptive-Consistency if the top two answers have n - 1 votes, b of them for the
    second. Entries are sums of powers of one half, so they are exact up to 52 votes.
    """
    table = np.zeros((longest + 2, longest + 1))
    table[0] = 1.0
    for n in range(1, longest + 2):
        table[n] = table[n - 1] / 2
        table[n, 1:] += table[n - 1, :-1] / 2
    table.setflags(write=False)
    return table


class BayesPolicy(AgreementPolicy):
    """Optimal Bayesian stopping (Huang, Ma, Zhou, 2026): draws while the leader is in doubt.

    The prior comes from a pool: each problem's answer frequencies, in descending order, are one possible
    distribution for the next problem. The rule uses only the numbers of votes for the leader, for the second
    answer and for all others; the paper shows that these are enough ("L = 3"). The doubt is the posterior
    probability that the leader isn't the model's most frequent answer. The threshold is 1 minus the paper's.
    Weights decide which answer leads, but the posterior counts unweighted votes. A leader with fewer votes
    than the second answer has a doubt of 1.

    >>> from adacompute.answers import Tally
    >>> from adacompute.pool import bundled
    >>> with bundled("words") as pool:
    ...     rule = BayesPolicy().fit(pool)
    >>> [rule.more("", Tally.of(votes), 0.05) for votes in ([], ["4", "5"], ["4", "4", "4"])]
    [1, 1, 0]
    """

    kind = "bayes"
    learned_names = ("learned",)
    # probability that the leader isn't the model's most frequent answer, by votes for the leader, for the
    # second answer and for all others; 1 for impossible counts
    table_: Floats

    def __init__(self, *, longest: int = DEFAULT_LONGEST, weigh: VoteWeights | None = None) -> None:
        super().__init__(longest=check_integer("longest", longest, high=_TABLE_LONGEST), weigh=weigh)

    def fit(self, pool: Pool | Ballots) -> Self:
        """Learns from recorded samples how a model's answers are distributed; needs no labels."""
        counts = count_answers(get_ballots(pool), min_answers=1)
        if len(counts) > _PRIOR_PROBLEMS:
            counts = counts[np.linspace(0, len(counts) - 1, _PRIOR_PROBLEMS).round().astype(np.int64)]
        self.table_ = _build_doubts(counts / counts.sum(axis=1, keepdims=True), self.longest)
        return self

    def count_draws(self, reading: Floats, state: VoteState, dial: float | Floats | None) -> Ints:
        self._get_table()
        limit = self.check_doubt(dial)
        stops = (state.drawn > 0) & (self.compute_doubt(reading, state) <= limit)
        return np.where(stops, 0, self.limit_draw(state, 1))

    def find_stopping_rule(self, dial: float | Floats | None) -> tuple[int, float | Floats] | None:
        """Returns how many samples to draw first, and the largest doubt at which drawing stops.

        After the first samples, one at a time is drawn while the result of `compute_doubt` is larger. Returns
        None if a subclass overrides `count_draws`.
        """
        self._get_table()
        if type(self).count_draws is not BayesPolicy.count_draws:
            return None
        return 1, self.check_doubt(dial)

    def compute_doubt(self, reading: Floats, state: VoteState) -> Floats:  # noqa: ARG002
        """Returns the posterior probability that the leader isn't the model's most frequent answer."""
        doubts = self._get_table()
        rest = state.answered - state.first - state.second
        in_table = (state.answered <= self.longest) & (state.first >= state.second)
        cell = [np.where(in_table, votes, 0) for votes in (state.first, state.second, rest)]
        return np.asarray(doubts[cell[0], cell[1], cell[2]])  # 1 for vote counts outside the table

    def dump_learned(self) -> dict[str, Any]:
        return {"learned": hasattr(self, "table_")}

    def arrays(self) -> Arrays:
        return {"doubts": self.table_} if hasattr(self, "table_") else {}

    def load_learned(self, learned: Mapping[str, Any], arrays: Arrays) -> None:
        if not check_flag("learned", learned["learned"]):
            return
        shape = (self.longest + 1, self.longest // 2 + 1, self.longest + 1)
        self.table_ = read_array(arrays, "doubts", np.float64, shape)
        if self.table_.min() < 0 or self.table_.max() > 1:
            raise PolicyError("array 'doubts' holds a number that is not from 0 to 1")
        if self.table_[0, 0, 0] != 1:
            raise PolicyError("array 'doubts' is sure of an answer before there is any")

    def _get_table(self) -> Floats:
        if not hasattr(self, "table_"):
            raise NotFitted(f"{self.kind} has learned nothing yet; call fit(pool) first")
        return self.table_


def count_answers(ballots: Ballots, *, min_answers: int) -> Floats:
    """Counts how often each answer of a problem was given, most frequent first; shape (problems, answers).

    Leaves out problems with fewer than `min_answers` samples with an answer.
    """
    if not len(ballots):
        raise PolicyError("the pool has no samples to learn from; collect some first")
    kinds = max(int(ballots.classes.max(initial=0)) + 1, 1)
    counts = np.zeros((len(ballots), kinds))
    problem, sample = np.nonzero(ballots.classes >= 0)
    np.add.at(counts, (problem, ballots.classes[problem, sample]), 1.0)
    counts = -np.sort(-counts, axis=1)
    counts = np.asarray(counts[counts.sum(axis=1) >= min_answers])
    if not len(counts):
        raise TooFewSamples(f"no problem has {min_answers} samples with an answer; collect more samples")
    return counts


def add_answer(votes: Floats, share: Floats, most: int, tie: Floats) -> Floats:
    """Adds one more answer, which has from 0 to `most` votes, to the likelihoods of vote counts.

    `votes` has the likelihoods without this answer; its last axes are problems, values of `tie`, and votes.
    `share` is the answer's probability in each problem. The factorial of the total number of votes is left
    out, because it is the same in all likelihoods.

    An answer with exactly `most` votes ties with the leader or the second answer, and could have taken its
    rank. So its likelihood is multiplied by each value of `tie`, from 0 to 1. With m such answers, the
    integral over `tie` is 1 / (1 + m): the probability that none of them took that rank.
    """
    added = votes.copy()
    factor = np.ones(len(share))
    for count in range(1, min(most, votes.shape[-1] - 1) + 1):
        factor = factor * share / count
        weight = factor[:, None] * (tie if count == most else 1.0)  # shape (problems, values of `tie`)
        added[..., count:] += votes[..., :-count] * weight[..., None]
    return added


def place_ties(most_ties: int) -> tuple[Floats, Floats]:
    """Returns points and weights for a numerical integral over `tie` (see `add_answer`) from 0 to 1.

    The integral is exact for polynomials up to degree `most_ties` + 1.
    """
    points, weights = np.polynomial.legendre.leggauss((most_ties + 3) // 2)
    return (points + 1) / 2, weights / 2


def _build_doubts(shares: Floats, longest: int) -> Floats:
    """Builds the table of doubts, indexed by votes for the leader, for the second answer and for all others.

    The doubt is the probability that the leader isn't the model's most frequent answer. Each row of `shares`
    is one possible distribution of answers, in descending order; all rows are equally likely.
    """
    # sorted by number of answers, descending, because `_sum_likelihoods` stops each column at its first 0
    shares = shares[np.argsort(-(shares > 0).sum(axis=1), kind="stable")]
    table = np.ones((longest + 1, longest // 2 + 1, longest + 1))
    for first in range(1, longest + 1):
        powers = shares**first
        table[first, 0, 0] = 1.0 - powers[:, 0].sum() / powers.sum()
    for second in range(1, longest // 2 + 1):
        tie, weights = place_ties((longest - 2 * second) // second)
        leader, everyone = _sum_likelihoods(shares, second, longest, tie)
        for row, first in enumerate(range(second, longest - second + 1)):
            # with equal votes, leader and second are two random ones of the answers with that many votes
            by_tie = weights * 2 * (1 - tie) if first == second else weights
            most = longest - first - second + 1
            likely, possible = by_tie @ leader[row, :, :most], by_tie @ everyone[row, :, :most]
            known = possible > 0
            doubt = np.divide(possible - likely, possible, out=np.ones(most), where=known)
            table[first, second, :most] = np.clip(doubt, 0.0, 1.0)
    return table


def _sum_likelihoods(shares: Floats, second: int, longest: int, tie: Floats) -> tuple[Floats, Floats]:
    """Sums the likelihoods of vote counts over all distributions, for `second` votes of the second answer.

    Returns two arrays of shape (leader's votes, values of `tie`, votes for all other answers). The first is
    for cases in which the leader is the model's most frequent answer, the second for all cases.
    """
    firsts = np.arange(second, longest - second + 1)
    shape = (len(shares), len(tie), longest - 2 * second + 1)
    # likelihoods of the votes for the answers processed so far, if these include neither the leader nor the
    # second answer (`nobody`), only the second (`runner`), only the leader (`leader`), or both (`both`)
    nobody, runner = np.zeros(shape), np.zeros(shape)
    nobody[..., 0] = 1.0
    leader, both = np.zeros((len(firsts), *shape)), np.zeros((len(firsts), *shape))
    # like `nobody` and `runner`, but without votes for the model's most frequent answer
    others, others_runner = nobody.copy(), runner.copy()
    for answer in range(shares.shape[1]):
        share = shares[:, answer]
        share = share[: np.count_nonzero(share)]
        if not len(share):
            break
        rows = slice(0, len(share))
        as_second = (share**second)[:, None, None]
        as_leader = (share ** firsts[:, None])[..., None, None]  # shape (leader's votes, problems, 1, 1)
        both[:, rows] = (
            add_answer(both[:, rows], share, second, tie)
            + as_leader * runner[rows]
            + as_second * leader[:, rows]
        )
        leader[:, rows] = add_answer(leader[:, rows], share, second, tie) + as_leader * nobody[rows]
        runner[rows] = add_answer(runner[rows], share, second, tie) + as_second * nobody[rows]
        nobody[rows] = add_answer(nobody[rows], share, second, tie)
        if answer:
            others_runner[rows] = (
                add_answer(others_runner[rows], share, second, tie) + as_second * others[rows]
            )
            others[rows] = add_answer(others[rows], share, second, tie)
    leaders = shares[:, 0] ** firsts[:, None]  # shape (leader's votes, problems)
    return np.tensordot(leaders, others_runner, axes=1), both.sum(axis=1)
