"""The weighted vote: each sample counts by how sure the model was. Knows nothing of how weights are chosen.

One vote of b: the weights of equal answers are summed, the heaviest answer wins, exact ties share equally,
abstentions are ignored, and where all abstain the vote is wrong. The accuracy is the mean over subsets of b
of a problem's n samples. With one or two samples the surest one decides, which is exact by ranks; where
there are no more subsets than `draws`, all are listed; else `draws` of them are drawn: random orders of the
samples, cut into disjoint windows of b, which vary less than subsets drawn one by one.

Problems share the orders, but each shuffles its own samples first, so their errors are uncorrelated.
`simulation_error` is the spread of the means of whole orders, and at least what that many draws can resolve.
`standard_error` is the delete-one jackknife over the same subsets (those without a sample are the subsets of
the others), less the variance that drawing adds to it, and never above the bound of U-statistics,
Var(U) <= b/n Var(one vote); the variance of the simulation is added. It is NaN where b = n.

Weights are whole units, so sums are exact, and so are ties, up to 131,072 votes of average weight a problem.
"""

import copy
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adacompute.answers.weigh import LIMIT, UNIT, Signal, Weigh
from adacompute.errors import NotRecorded, ScoreError
from adacompute.pool.ballots import ABSENT, Ballots
from adacompute.score.grades import DECIMALS, Scored, class_values
from adacompute.score.ranks import ranked

__all__ = [
    "Chances",
    "fitted",
    "foresee",
    "scaled",
    "signals",
    "units",
    "unweighable",
    "weighted_vote",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_ORDERS = 32  # at the least: their spread tells the simulation's error
_CELLS = 1 << 20  # (sample, subset) pairs held at a time


def weighted_vote(
    ballots: Ballots,
    grades: Floats,
    budgets: Sequence[int],
    *,
    weigh: Weigh | None,
    rng: np.random.Generator,
    draws: int,
    foreseen: "Chances | None" = None,
) -> Scored:
    """Accuracy of a vote of b weighed by `weigh`; None fits the scale to these samples, without labels.

    `foreseen` are the chances of these problems among more of them, in place of those that `rng` gives.
    """
    _check_draws(draws)
    weights = units(ballots, weigh, some=foreseen is not None)
    values = _values(ballots.classes, grades)
    answered = ballots.classes >= 0
    small = [b for b in budgets if b <= 2]
    scored = ranked(weights.astype(np.float64), values, ballots.classes, ~answered, small)
    shape = (len(ballots), len(budgets))
    accuracy, error, noise = np.zeros(shape), np.full(shape, np.nan), np.zeros(shape)
    for k, budget in enumerate(budgets):
        if budget in small:
            accuracy[:, k] = scored.accuracy[:, small.index(budget)]
            error[:, k] = scored.standard_error[:, small.index(budget)]
    there, drawn = ballots.classes != ABSENT, ballots.drawn
    for n in np.unique(drawn).tolist():
        rows = np.flatnonzero(drawn == n)
        shuffled = [
            _Problem.of(
                ballots.classes[i],
                weights[i],
                values[i],
                order=rng.permutation(np.flatnonzero(there[i]))
                if foreseen is None
                else foreseen.orders[i, :n].astype(np.int64),
            )
            for i in rows
        ]
        for k, budget in enumerate(budgets):
            if budget in small:
                continue
            drawing = rng if foreseen is None else copy.deepcopy(foreseen.before[n, budget])
            found = [tally.result() for tally in _tallied(shuffled, n, budget, draws, drawing)]
            accuracy[rows, k], error[rows, k], noise[rows, k] = np.array(found).T
    return Scored(
        accuracy=np.clip(accuracy, 0.0, 1.0).round(DECIMALS),
        standard_error=error,
        simulated=bool((noise > 0).any()),
        simulation_error=noise,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chances:
    """What `weighted_vote` draws, known beforehand: it depends on numbers of samples alone."""

    orders: npt.NDArray[np.int32]  # (problems, samples) each problem's own shuffle of its samples
    before: Mapping[tuple[int, int], np.random.Generator]  # of subsets, by (samples, budget)


def foresee(drawn: Ints, budgets: Sequence[int], *, rng: np.random.Generator, draws: int) -> Chances:
    """The chances of problems with so many samples each, (problems,), as `weighted_vote` takes them."""
    _check_draws(draws)
    orders = np.zeros((len(drawn), int(drawn.max(initial=0))), dtype=np.int32)
    before: dict[tuple[int, int], np.random.Generator] = {}
    for n in np.unique(drawn).tolist():
        for i in np.flatnonzero(drawn == n):
            orders[i, :n] = rng.permutation(n)
        for budget in budgets:
            if budget > 2:
                before[n, budget] = copy.deepcopy(rng)
                every, windows = _way(n, budget, draws)
                for _ in () if every else _drawn(n, budget, windows, draws, rng):
                    pass
    return Chances(orders=orders, before=before)


def fitted(ballots: Ballots, signal: Signal) -> Weigh:
    """Weighs by a signal on the scale of these samples' mean, which needs no labels."""
    values, known = signals(ballots, signal)
    if not known.any():
        raise unweighable(len(ballots), signal)
    return scaled(math.fsum(values[known].tolist()) / int(known.sum()), signal)


def scaled(scale: float, signal: Signal) -> Weigh:
    """Weighs by a signal on this scale."""
    if scale == 0:  # all are certain: none is surer than another
        return Weigh(signal=signal, scale=-1.0 if signal == "logprob" else 1.0, sharpness=0.0)
    return Weigh(signal=signal, scale=scale)


def units(ballots: Ballots, weigh: Weigh | None, *, some: bool = False) -> Ints:
    """`Weigh.units` of every sample, (problems, samples), to the unit; None fits the scale to the samples.

    `some`: these are some of the problems, and it is enough if others have the signal.
    """
    weigh = fitted(ballots, "logprob") if weigh is None else weigh
    values, known = signals(ballots, weigh.signal)
    if not known.any() and not some:
        raise unweighable(len(ballots), weigh.signal)
    found = np.full(values.shape, UNIT, dtype=np.int64)
    exponents = np.clip(weigh.sharpness * (1.0 - values[known] / weigh.scale), -LIMIT, LIMIT)
    # math.exp, not numpy's: the two differ in the last place, and a live tally must weigh the same
    found[known] = [round(math.exp(exponent) * UNIT) for exponent in exponents.tolist()]
    return found


def signals(ballots: Ballots, signal: Signal) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Each sample's signal, and whether it is known, (problems, samples) both."""
    values = ballots.signal(signal)
    return values, np.isfinite(values) & (ballots.classes != ABSENT)


def unweighable(problems: int, signal: Signal) -> NotRecorded:
    """What is said where no sample of so many problems has the signal."""
    what = "tokens and log-probabilities" if signal == "logprob" else "entropies"
    return NotRecorded(
        f"no sample of these {problems} problems has {what} to weigh its vote by; "
        "record them, or give aggregate='vote' (--aggregate vote)"
    )


def _values(classes: npt.NDArray[np.int32], grades: Floats) -> Floats:
    """The worth of each sample's answer: the mean grade of its class, (problems, samples); 0 where none."""
    found = np.zeros(classes.shape)
    at, column = np.nonzero(classes >= 0)
    found[at, column] = class_values(classes, grades)[1][at, classes[at, column]]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    """One problem's votes, its samples shuffled."""

    weights: Floats  # (classes, samples) whole units, each sample in the row of its class
    values: Floats  # (2, classes) worth of each class, and ones
    constant: float | None  # the worth of every vote, where they can't differ

    @classmethod
    def of(cls, classes: npt.NDArray[np.int32], weights: Ints, values: Floats, *, order: Ints) -> "_Problem":
        kinds = int(classes.max(initial=-1)) + 1
        table, worth = np.zeros((max(kinds, 1), len(order))), np.zeros((2, max(kinds, 1)))
        classes, weights, values = classes[order], weights[order], values[order]
        there = classes >= 0
        table[classes[there], np.flatnonzero(there)] = weights[there]
        worth[0, classes[there]], worth[1] = values[there], 1.0
        same = bool(there.all()) and float(np.ptp(values)) == 0.0
        constant = float(values[0]) if same else 0.0 if not there.any() else None
        return cls(weights=table, values=worth, constant=constant)

    def votes(self, chosen: Floats) -> Floats:
        """The worth of the vote of each subset, (subsets,); `chosen` is (samples, subsets) of 0 and 1."""
        sums = self.weights @ chosen  # (classes, subsets) whole numbers, exact
        best = sums.max(axis=0)
        credit, ties = self.values @ (sums == best).astype(np.float64)
        return np.where(best > 0, credit / ties, 0.0)


class _Running:
    """Sums over the subsets of one problem seen so far."""

    def __init__(self, problem: _Problem, n: int, budget: int, *, every: bool) -> None:
        self.problem, self.n, self.budget, self.every = problem, n, budget, every
        self.count = self.orders = 0
        self.total = self.squares = self.spread = 0.0
        self.inside = np.zeros(n)  # votes' worth of the subsets that hold a sample, (samples,)
        self.held = np.zeros(n)  # how many those are

    def add(self, chosen: Floats, windows: int) -> None:
        """Counts subsets, (samples, subsets), that are `windows` to an order."""
        votes = self.problem.votes(chosen)
        self.count += len(votes)
        self.total += float(votes.sum())
        self.squares += float(votes @ votes)
        means = votes.reshape(-1, windows).mean(axis=1)
        self.orders += len(means)
        self.spread += float(means @ means)
        self.inside += chosen @ votes
        self.held += chosen.sum(axis=1)

    def result(self) -> tuple[float, float, float]:
        """Accuracy, standard error and simulation error."""
        if self.problem.constant is not None:
            return self.problem.constant, 0.0 if self.n > self.budget else math.nan, 0.0
        mean = self.total / self.count
        vote = max(0.0, self.squares / self.count - mean**2)  # variance of one vote
        noise = 0.0 if self.every else self._noise(mean)
        if self.n == self.budget:
            return mean, math.nan, noise
        without = self.count - self.held  # subsets, (samples,)
        left = np.where(without > 0, (self.total - self.inside) / np.maximum(without, 1), mean)
        jackknife = (self.n - 1) * float(left.var())
        if not self.every:
            jackknife -= (self.n - 1) * self.budget / (self.n - self.budget) * vote / self.count
            jackknife = min(max(jackknife, 0.0), self.budget / self.n * vote)
        return mean, math.sqrt(jackknife + noise**2), noise

    def _noise(self, mean: float) -> float:
        between = max(0.0, self.spread / self.orders - mean**2) / max(1, self.orders - 1)
        least = 1.0 / (self.count + 2)  # as if one more draw had come out otherwise
        return max(math.sqrt(between), least)


def _tallied(
    problems: list[_Problem], n: int, budget: int, draws: int, rng: np.random.Generator
) -> list[_Running]:
    every, windows = _way(n, budget, draws)
    running = [_Running(problem, n, budget, every=every) for problem in problems]
    for chosen in _listed(n, budget) if every else _drawn(n, budget, windows, draws, rng):
        for one in running:
            if one.problem.constant is None:
                one.add(chosen, windows)
    return running


def _way(n: int, budget: int, draws: int) -> tuple[bool, int]:
    """Whether all subsets are listed, and else how many windows an order is cut into."""
    every = math.comb(n, budget) <= draws
    return every, 1 if every else min(n // budget, max(1, draws // _ORDERS))


def _check_draws(draws: int) -> None:
    if draws < 2:
        raise ScoreError(f"{draws} draws can't tell their own error; give 2 or more, e.g. 2000")


def _listed(n: int, budget: int) -> Iterator[Floats]:
    """Every subset, some at a time, (samples, subsets) of 0 and 1."""
    subsets = itertools.combinations(range(n), budget)
    while block := list(itertools.islice(subsets, max(1, _CELLS // n))):
        yield _marked(np.array(block), n)


def _drawn(n: int, budget: int, windows: int, draws: int, rng: np.random.Generator) -> Iterator[Floats]:
    """At least `draws` subsets, whole random orders cut into windows, (samples, subsets) of 0 and 1."""
    orders = -(-draws // windows)
    step = max(1, _CELLS // (n * windows))
    for start in range(0, orders, step):
        size = min(step, orders - start)
        order = rng.permuted(np.broadcast_to(np.arange(n), (size, n)), axis=1)
        yield _marked(order[:, : windows * budget].reshape(size * windows, budget), n)


def _marked(subsets: Ints, n: int) -> Floats:
    chosen = np.zeros((n, len(subsets)))
    chosen[subsets.T, np.arange(len(subsets))] = 1.0
    return chosen
