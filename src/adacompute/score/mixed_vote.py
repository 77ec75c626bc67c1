"""Accuracy of votes that combine samples of two modes.

The accuracy of a vote of i samples of one mode and j of another is the mean over all pairs of subsets,
computed without listing them. If each sample is drawn independently, with one probability per mode, the votes
for different answers are independent. The probability that an answer has a certain number of votes, that no
other has more, and that i and j samples are drawn in all is then a coefficient of a product of polynomials in
two variables, with one factor per answer. Ties are shared by an integral over a third variable, as in
`plain_vote`. All terms are positive, so adding them loses no precision.

Standard errors are the delete-one jackknife's over the samples of both modes. The accuracy without a sample
follows from the accuracy of the subsets that contain the sample. For that accuracy, each coefficient in the
factor of the sample's answer is multiplied by the answer's number of drawn samples.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import comb

import numpy as np
import numpy.typing as npt

from adacompute.errors import ScoreError
from adacompute.pool.ballots import ABSENT, ABSTAINS, Ballots
from adacompute.score.grades import DECIMALS, AccuracyEstimates, Floats, Ints, grade_samples, measure_classes
from adacompute.score.plain_vote import compute_gauss_nodes

MAX_EXACT_MIX = 16  # maximum number of samples of each mode in a mixed vote


def score_mixed_vote(
    first: Ballots,
    second: Ballots,
    counts: Sequence[tuple[int, int]],
    *,
    errors: bool = True,
) -> AccuracyEstimates:
    """Computes the exact accuracy of unweighted votes over samples of two modes; shape (problems, counts).

    Each of `counts` is a pair of numbers: samples of the first and of the second mode, at most 16 each. Ties
    are shared equally. With `errors=False`, standard errors are NaN; this takes a third of the time.
    """
    largest = max(max(count) for count in counts)
    if largest > MAX_EXACT_MIX:
        raise ScoreError(
            f"budget {largest} is above {MAX_EXACT_MIX}, the most samples of each mode in a mixed vote; give "
            "smaller budgets, or mixed=False"
        )
    accuracy, error = _Pair.of(first, second).score_exactly(counts, errors=errors)
    return AccuracyEstimates(
        accuracy=np.clip(accuracy, 0.0, 1.0).round(DECIMALS), standard_error=error.round(DECIMALS)
    )


@dataclass(frozen=True, slots=True, order=True)
class _Kind:
    """Different answers to a problem that have equal value and, in each mode, equally many samples."""

    votes: bool  # False for samples without an answer, which can't win
    first: int  # how many samples of the first mode give each of these answers (the same number for all)
    second: int  # how many samples of the second mode give each of these answers
    worth: float  # value of each of these answers, 0 to 1: the mean grade of its samples
    classes: int = 1  # how many different answers are of this kind


@dataclass(frozen=True, slots=True)
class _Votes:
    """Everything that a problem's accuracy depends on; problems with equal `_Votes` are scored once."""

    drawn: tuple[int, int]  # number of the problem's samples from each mode
    kinds: tuple[_Kind, ...]  # all kinds of answers; samples without an answer count as one kind


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pair:
    """Two modes' samples of the same problems; equal answers have the same index in both."""

    classes: tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]  # shapes (problems, samples)
    sizes: tuple[Floats, Floats]  # number of each mode's samples with each answer; shape (problems, answers)
    worth: Floats  # mean grade of both modes' samples with each answer; shape (problems, answers)

    @classmethod
    def of(cls, first: Ballots, second: Ballots) -> "_Pair":
        classes = np.hstack([first.classes, second.classes])
        grades = np.hstack([grade_samples(first), grade_samples(second)])
        worth = measure_classes(classes, grades)[1]
        sizes = [np.zeros(worth.shape), np.zeros(worth.shape)]
        for target, votes in zip(sizes, (first, second), strict=True):
            counts = measure_classes(votes.classes, np.zeros(votes.classes.shape))[0]
            target[:, : counts.shape[1]] = counts
        return cls(classes=(first.classes, second.classes), sizes=(sizes[0], sizes[1]), worth=worth)

    def __len__(self) -> int:
        return len(self.worth)

    def score_exactly(self, counts: Sequence[tuple[int, ...]], *, errors: bool) -> tuple[Floats, Floats]:
        """Computes accuracy and jackknife error of each mix of samples; both have shape (problems, mixes)."""
        accuracy, error = np.empty((2, len(self), len(counts)))
        scored: dict[_Votes, tuple[Floats, Floats]] = {}
        first, second = np.array(counts).T
        product = _VoteProduct(int(first.max()), int(second.max()), errors)
        for row in range(len(self)):
            votes = self._count_votes(row)
            if votes not in scored:
                values, spread = product.score(votes)
                scored[votes] = values[first, second], spread[first, second]
            accuracy[row], error[row] = scored[votes]
        return accuracy, error

    def _count_votes(self, row: int) -> _Votes:
        drawn = [int(np.count_nonzero(classes[row] != ABSENT)) for classes in self.classes]
        silent = [int(np.count_nonzero(classes[row] == ABSTAINS)) for classes in self.classes]
        a, b = (sizes[row].astype(int).tolist() for sizes in self.sizes)
        kinds = Counter(
            _Kind(votes=True, first=i, second=j, worth=worth)
            for i, j, worth in zip(a, b, self.worth[row].tolist(), strict=True)
            if i or j
        )
        if any(silent):
            kinds[_Kind(votes=False, first=silent[0], second=silent[1], worth=0.0)] = 1
        grouped = (replace(kind, classes=count) for kind, count in sorted(kinds.items()))
        return _Votes((drawn[0], drawn[1]), tuple(grouped))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Layers:
    """The pairs (v, y), called layers, for which the probability that an answer wins is computed.

    v is a number of votes that the winner can have. Ties are shared by an integral over y from 0 to 1,
    computed as a weighted sum over some values of y.
    """

    levels: Ints  # v: the numbers of votes that the winner can have, ascending
    # multiplier of the probability that another answer has i and j votes from the two modes if the winner has
    # v: 1 if i + j < v, y if i + j = v, 0 if i + j > v; shape (pairs (v, y), first + 1, second + 1)
    factors: Floats
    # weight of each pair (v, y) in the sum over y that shares ties between answers with v votes each; row k
    # is for v = levels[k], and is 0 for pairs with another v; shape (levels, pairs)
    weights: Floats


@dataclass(slots=True)
class _VoteProduct:
    """Scores votes of i samples of one mode and j of another, for all i <= `first` and j <= `second`."""

    first: int
    second: int
    errors: bool = True  # whether to compute standard errors; otherwise they are NaN
    # entry (i, j) is i + j, for i samples of one mode and j of the other; shape (first + 1, second + 1)
    totals: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.totals = np.add.outer(np.arange(self.first + 1), np.arange(self.second + 1))

    def score(self, votes: _Votes) -> tuple[Floats, Floats]:
        """Computes one problem's accuracy and standard error for each mix; shapes (first + 1, second + 1).

        Both are NaN for a mix of more samples than a mode has. The error is also NaN if a mix takes all
        samples of a mode.
        """
        chances = tuple(
            min(most, n - 0.5) / n for most, n in zip((self.first, self.second), votes.drawn, strict=True)
        )
        # Row 0 is the accuracy. Then each kind of answers has a row for each mode: the expected number of the
        # mode's drawn samples that give one such answer, counted only if the vote is right.
        sums = np.zeros((1 + 2 * len(votes.kinds), *self.totals.shape))
        for place, kind in enumerate(votes.kinds):
            if kind.worth > 0:
                sums += kind.worth * self._sum_wins(votes.kinds, place, chances)
        whole = np.multiply.outer(
            *(
                _list_chances(n, most, chance)
                for n, most, chance in zip(votes.drawn, (self.first, self.second), chances, strict=True)
            )
        )
        means = np.divide(sums, whole, out=np.full(sums.shape, np.nan), where=whole > 0)
        error = _compute_jackknife(means, votes) if self.errors else np.full(whole.shape, np.nan)
        return means[0], error

    def _sum_wins(self, kinds: "Sequence[_Kind]", winner: int, chances: Sequence[float]) -> Floats:
        """Computes the probability that an answer of the kind with index `winner` wins, with ties shared.

        The result has shape (1 + 2 * len(kinds), first + 1, second + 1). In row 0, entry (i, j) is the
        probability of such a win with exactly i and j samples drawn from the two modes. Then each kind has a
        row for each mode: the expected number of drawn samples of the mode that give one answer of this kind,
        counted only in such wins.
        """
        own = kinds[winner]
        others = [replace(kind, classes=kind.classes - (place == winner)) for place, kind in enumerate(kinds)]
        layers = self._make_layers(own, others)
        # `state` has shape (1 + 2 * len(order), layers, first + 1, second + 1)
        state, order = self._multiply_others(others, layers, chances)
        # `leads` has shape (1 + 2 * len(order), levels, first + 1, second + 1)
        leads = np.einsum("vl,mlij->mvij", layers.weights, state)
        result = np.zeros((1 + 2 * len(kinds), *self.totals.shape))
        rows = [0, *(1 + 2 * place + mode for place in order for mode in (0, 1))]
        own_votes = np.zeros((2, *self.totals.shape))
        # probability that the winner has i votes from the first and j votes from the second mode
        mine = self._list_votes(own, chances)
        for i, j in zip(*np.nonzero(mine), strict=True):
            if not i and not j:
                continue
            level = int(np.searchsorted(layers.levels, self.totals[i, j]))
            part = mine[i, j] * leads[:, level, : self.first + 1 - i, : self.second + 1 - j]
            a, b = part.shape[1:]
            result[rows, i : i + a, j : j + b] += own.classes * part
            own_votes[0, i : i + a, j : j + b] += i * part[0]
            own_votes[1, i : i + a, j : j + b] += j * part[0]
        # each answer of this kind is the winner in one of `own.classes` cases, and its rival in all others
        place = 1 + 2 * winner
        result[place : place + 2] *= (own.classes - 1) / own.classes
        result[place : place + 2] += own_votes
        return result

    def _make_layers(self, own: "_Kind", others: "Sequence[_Kind]") -> _Layers:
        reached = self._reach(own)
        levels = np.unique(reached[reached > 0])
        reaches = [(kind.classes, self._reach(kind)) for kind in others if kind.votes and kind.classes]
        nodes, weights, places = [], [], []
        for place, level in enumerate(levels.tolist()):
            ties = sum(classes for classes, totals in reaches if (totals == level).any())
            # maximum number of other answers that can have this number of votes too
            most = (self.first + self.second) // level - 1
            y, weight = compute_gauss_nodes(min(ties, max(most, 0)) // 2 + 1)
            nodes += y.tolist()
            weights += weight.tolist()
            places += [place] * len(y)
        level_of, y = levels[places][:, None, None], np.array(nodes)[:, None, None]
        spread = np.zeros((len(levels), len(places)))
        spread[places, np.arange(len(places))] = weights
        factors = np.where(self.totals < level_of, 1.0, np.where(self.totals == level_of, y, 0.0))
        return _Layers(levels=levels, factors=factors, weights=spread)

    def _reach(self, kind: "_Kind") -> Ints:
        """Returns the totals of votes that an answer of this kind can get: i + j in row i and column j."""
        return self.totals[: kind.first + 1, : kind.second + 1]

    def _list_votes(self, kind: "_Kind", chances: Sequence[float]) -> Floats:
        """Returns the chance of i (row) and j (column) votes from the two modes, for an answer of `kind`."""
        return np.multiply.outer(
            _list_chances(kind.first, min(kind.first, self.first), chances[0]),
            _list_chances(kind.second, min(kind.second, self.second), chances[1]),
        )

    def _multiply_others(
        self, others: "Sequence[_Kind]", layers: _Layers, chances: Sequence[float]
    ) -> tuple[Floats, list[int]]:
        """Multiplies the polynomials (factors) of all other answers; also returns the order of their kinds.

        Row 0 of the result is the product. If errors are wanted, each kind then has two rows, in the returned
        order: the product with one answer's factor multiplied by its votes from the first, or from the second
        mode. Each row has shape (layers, first + 1, second + 1). Kinds with large factors come first, because
        every kind adds rows that all later factors must multiply.
        """
        state = np.ones((1, len(layers.factors), 1, 1))
        factors = {}
        for place, kind in enumerate(others):
            if kind.classes:
                votes = self._list_votes(kind, chances)
                a, b = votes.shape
                factors[place] = votes * (layers.factors[:, :a, :b] if kind.votes else 1.0)
        for place, factor in factors.items():
            for _ in range(others[place].classes - self.errors):
                state = self._multiply(state, factor)
        order = sorted(factors, key=lambda place: -factors[place].size) if self.errors else []
        for place in order:
            factor = factors[place]
            a, b = factor.shape[-2:]
            counted = [
                self._multiply(state[:1], factor * votes)
                for votes in (np.arange(a)[:, None], np.arange(b)[None, :])
            ]
            state = np.concatenate([self._multiply(state, factor), *counted])
        full = np.zeros((*state.shape[:2], *self.totals.shape))
        full[:, :, : state.shape[2], : state.shape[3]] = state
        return full, order

    def _multiply(self, state: Floats, factor: Floats) -> Floats:
        """Multiplies polynomials in two variables, given as coefficients, up to powers `first` and `second`.

        `state` has several polynomials per layer of `_Layers`; `factor` has one per layer, or one for all.
        """
        factor = np.broadcast_to(factor, (state.shape[1], *factor.shape[-2:]))
        rows = min(state.shape[2] + factor.shape[1] - 1, self.first + 1)
        columns = min(state.shape[3] + factor.shape[2] - 1, self.second + 1)
        result = np.zeros((*state.shape[:2], rows, columns))
        for i in range(factor.shape[1]):
            for j in range(factor.shape[2]):
                coefficient = factor[:, i, j]
                if coefficient.any():
                    part = state[:, :, : rows - i, : columns - j]
                    target = result[:, :, i : i + part.shape[2], j : j + part.shape[3]]
                    target += coefficient[:, None, None] * part
        return result


def _compute_jackknife(means: Floats, votes: _Votes) -> Floats:
    """Computes the delete-one jackknife error over both modes' samples; shape (first + 1, second + 1).

    `means` is `sums` in `_VoteProduct.score`, divided by the probability that i and j samples are drawn.
    """
    accuracy = means[0]
    variance = np.zeros(accuracy.shape)
    for mode, total in enumerate(votes.drawn):
        # for each budget of this mode: probability that a given sample is drawn
        taken = np.arange(accuracy.shape[mode]) / total
        taken = taken[:, None] if mode == 0 else taken[None, :]
        left_out = np.where(taken < 1, 1 - taken, np.nan)
        counts = np.array([(kind.first, kind.second)[mode] for kind in votes.kinds])
        known = np.flatnonzero(counts)
        # probability that a given sample is drawn and the vote is right
        inside = means[1 + mode + 2 * known] / counts[known, None, None]
        without = (accuracy - inside) / left_out  # for each kind: accuracy after losing one of its samples
        samples = np.array([kind.classes for kind in votes.kinds])[known] * counts[known]
        centre = np.tensordot(samples, without, axes=1) / total
        variance += (total - 1) / total * np.tensordot(samples, (without - centre) ** 2, axes=1)
    return np.sqrt(variance)


@lru_cache(maxsize=4096)
def _list_chances(n: int, upto: int, chance: float) -> Floats:
    """Returns the probabilities that 0 to `upto` of n samples are drawn, if each is drawn with `chance`."""
    values = [comb(n, k) * chance**k * (1 - chance) ** (n - k) if k <= n else 0.0 for k in range(upto + 1)]
    return np.array(values)
