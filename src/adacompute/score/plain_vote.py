"""Accuracy of the unweighted vote of b samples: exact over all subsets, or over disjoint windows.

Tied answers share the win equally. Samples that abstain are drawn but don't vote; if all samples abstain, the
vote is wrong. Samples with equal answers are called a class. The value of a class is the mean grade of its
samples, which allows for several right answers and partial credit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from math import ceil, log

import numpy as np
import numpy.typing as npt
from numpy.polynomial.legendre import leggauss

from adacompute.errors import ScoreError
from adacompute.pool.ballots import ABSENT, ABSTAINS, Ballots
from adacompute.score.grades import (
    DECIMALS,
    AccuracyEstimates,
    BlockMap,
    Bools,
    ClassNumbers,
    Floats,
    Ints,
    mask_graded,
    measure_classes,
)

_Longs = npt.NDArray[np.longdouble]

# maximum number of samples in a vote that is scored exactly; more would take seconds per problem
MAX_EXACT_BUDGET = 256
_SLAB_PROBLEMS = 1024  # number of problems scored at a time
# maximum number of complex numbers in an array, which then takes 8 MB; there are a few such arrays
_COMPLEX_CELLS = 1 << 19
# maximum number of counts in memory; a count is how often one answer occurs in one window of samples
_COUNT_CELLS = 1 << 22
_NEGLIGIBLE = log(1e-18)  # logarithm of a relative error that is small enough to ignore


def score_exact_vote(
    ballots: Ballots, grades: Floats, budgets: Sequence[int], *, map_blocks: BlockMap = map
) -> AccuracyEstimates:
    """Computes the vote's mean accuracy over all subsets of b samples, for each budget b.

    Accuracies and their standard errors have shape (problems, budgets). They are NaN if a problem has fewer
    samples than the budget, or an ungraded sample; standard errors also if the budget takes all samples.
    Standard errors are the delete-one jackknife's over a problem's samples. They don't include the noise in
    the grades of equal answers.
    """
    if max(budgets, default=0) > MAX_EXACT_BUDGET:
        raise ScoreError(
            f"budget {max(budgets)} is above {MAX_EXACT_BUDGET}, the largest that is scored exactly; "
            "give smaller budgets (--budgets), or in Python estimator='windows'"
        )
    accuracy, error = np.full((2, len(ballots), len(budgets)), np.nan)
    groups = list(_group_by_sample_count(ballots.drawn, mask_graded(ballots, grades)))
    slabs = ((total, ballots.classes[rows], grades[rows]) for total, rows in groups)
    scores = map_blocks(partial(_score_slab, budgets=budgets), slabs)
    for (_, rows), slab_scores in zip(groups, scores, strict=True):
        accuracy[rows], error[rows] = slab_scores
    return AccuracyEstimates(accuracy=accuracy.round(DECIMALS), standard_error=error.round(DECIMALS))


def _group_by_sample_count(drawn: Ints, graded: Bools) -> Iterator[tuple[int, Ints]]:
    """Groups problems marked in `graded` by their number of samples; yields this number and their indexes.

    Because of rounding, the last digit of a problem's result may depend on the other problems in its group.
    """
    for total in np.unique(drawn[graded]).tolist():
        same_count = np.flatnonzero(graded & (drawn == total))
        for start in range(0, len(same_count), _SLAB_PROBLEMS):
            yield total, same_count[start : start + _SLAB_PROBLEMS]


def _score_slab(slab: tuple[int, ClassNumbers, Floats], *, budgets: Sequence[int]) -> tuple[Floats, Floats]:
    """Computes accuracy and standard error of problems with equally many samples; shapes (problems, budgets).

    `slab` has their number of samples, and their answers and grades; both of shape (problems, samples).
    """
    total, classes, grades = slab
    accuracy, error = np.full((2, len(classes), len(budgets)), np.nan)
    groups = _group_classes(classes, grades)
    abstentions = (classes == ABSTAINS).sum(axis=1)
    for column, budget in enumerate(budgets):
        if budget <= total:
            accuracy[:, column], error[:, column] = _score_budget(
                groups, abstentions, total=total, budget=budget
            )
    return accuracy, error


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ClassGroups:
    """Groups of different answers to the same problem that have equally many samples and equal value."""

    problem: Ints  # index of each group's problem, ascending
    size: Ints  # number of samples that give each answer of the group (the same for all)
    value: Floats  # value of each answer of the group, 0 to 1
    classes: Ints  # number of different answers in the group


def _group_classes(classes: ClassNumbers, grades: Floats) -> _ClassGroups:
    sizes, values = measure_classes(classes, grades)
    problem, column = np.nonzero(sizes)
    size, value = sizes[problem, column].astype(np.int64), values[problem, column]
    order = np.lexsort((value, size, problem))
    problem, size, value = problem[order], size[order], value[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (np.diff(problem) != 0) | (np.diff(size) != 0) | (np.diff(value) != 0)
    first = np.flatnonzero(new)
    return _ClassGroups(
        problem=problem[first],
        size=size[first],
        value=value[first],
        classes=np.diff(np.append(first, len(order))),
    )


def _score_budget(
    groups: _ClassGroups, abstentions: Ints, *, total: int, budget: int
) -> tuple[Floats, Floats]:
    """Computes accuracy and standard error of each problem, at one budget; all have `total` samples."""
    sizes, size_columns = np.unique(np.concatenate([[0], groups.size]), return_inverse=True)
    # each group's column in `class_counts` below, in which column 0 counts abstentions
    size_columns = size_columns[1:]
    # how many of a problem's answers have each number of samples in `sizes`; shape (problems, sizes)
    class_counts = np.zeros((len(abstentions), len(sizes)))
    np.add.at(class_counts, (groups.problem, size_columns), groups.classes)
    class_counts[:, 0] = abstentions
    right = np.flatnonzero(groups.value)  # indexes of the groups whose answers have a value above 0
    problem, value, column = groups.problem[right], groups.value[right], size_columns[right]
    others = class_counts[problem]  # number of other answers with each number of samples
    others[np.arange(len(right)), column] -= 1
    win_shares = compute_win_shares(others, groups.size[right], sizes, total=total, budget=budget)
    credit = value * groups.classes[right]  # added up over a group's answers, which have equal value
    accuracy = np.bincount(problem, weights=credit * win_shares.share, minlength=len(abstentions))
    if budget == total:
        return np.clip(accuracy, 0, 1), np.full(len(abstentions), np.nan)
    # accuracy after a sample with a wrong answer is deleted, by the number of samples with that answer;
    # column 0: after an abstention is deleted
    without = np.zeros(class_counts.shape)
    np.add.at(without, problem, credit[:, None] * win_shares.less_other)
    # for each group of equal answers to a problem: accuracy after one of its samples is deleted
    without_vote = without[groups.problem, size_columns]
    without_vote[right] += value * (
        win_shares.less_own - win_shares.less_other[np.arange(len(right)), column]
    )
    return np.clip(accuracy, 0, 1), _compute_jackknife(
        groups, without_vote, abstentions, without[:, 0], total
    )


def _compute_jackknife(
    groups: _ClassGroups, without_vote: Floats, abstentions: Ints, without_abstention: Floats, total: int
) -> Floats:
    """Computes the standard error from the accuracies that remain when one sample is deleted."""
    samples = groups.size * groups.classes  # number of samples of each group
    mean = (
        np.bincount(groups.problem, weights=samples * without_vote, minlength=len(abstentions))
        + abstentions * without_abstention
    ) / total
    votes = np.bincount(
        groups.problem,
        weights=samples * (without_vote - mean[groups.problem]) ** 2,
        minlength=len(abstentions),
    )
    # sum of (accuracy without the sample - mean)**2 over each problem's samples
    spread = votes + abstentions * (without_abstention - mean) ** 2
    return np.asarray(np.sqrt(spread * (total - 1) / total))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WinShares:
    """The probability that an answer wins a vote of b of the n samples; j tied answers win 1/j each.

    `less_own` and `less_other` are NaN if b = n.
    """

    share: Floats  # probability that the answer wins
    less_own: Floats  # probability that the answer wins after one of its own samples is deleted
    # probability that the answer wins after a sample of another answer is deleted; a column for each size
    # (number of samples) of the other answer, 0 if no other answer has this size
    less_other: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Circle:
    """Evenly spaced points on the unit circle, at which polynomials are evaluated.

    Only half of them are kept, because the others are their conjugates.
    """

    chance: float  # p, the probability that a sample is drawn
    points: Floats  # angles of the points on the circle, in radians
    weights: Floats  # weight of each point in the Fourier sum that extracts a coefficient


def compute_win_shares(others: Floats, own: Ints, sizes: Ints, *, total: int, budget: int) -> WinShares:
    """Computes the probability that an answer wins the vote, for many cases (rows) at once.

    In each row, `own` of the `total` samples have the answer. `others`, shape (rows, sizes), has the number
    of other answers with each size (number of samples) in `sizes`; its first column counts samples without an
    answer.

    An answer with t votes wins if no other has more, and shares the win with others that also have t. If each
    sample is drawn with probability p, the votes for different answers are independent. The probability that

        the answer has t votes, no other answer has more, and b (`budget`) samples are drawn in all

    is a coefficient of a product of polynomials in z with one factor per answer. The coefficients of another
    answer's factor are its binomial probabilities of 0 to t votes; that of t votes is multiplied by y. The
    integral over y from 0 to 1 turns y^j into 1/(j + 1), the share of each of j + 1 leaders; a sum over
    Gauss-Legendre nodes computes it exactly. The coefficient of the product is divided by the probability
    that b samples are drawn in all, so the choice of p affects only rounding.

    The products are computed at points z on the unit circle, and a Fourier sum extracts the coefficient. The
    logarithm of a product is a sum, so one matrix product computes it for all rows. Deleting one sample
    changes one factor, which takes one more matrix product. If the answer has more than half of the b votes,
    no other answer can lead, and the probability is hypergeometric.
    """
    circle = _choose_circle(total, budget)
    sums, lesser = np.zeros((2, len(own)))  # become `WinShares.share` and `less_own`
    shifted = np.zeros(others.shape)  # becomes `WinShares.less_other`
    ways, fewer = (np.exp(_compute_log_binomial(mine, budget // 2, circle.chance)) for mine in (own, own - 1))
    around = np.concatenate([sizes, np.maximum(sizes - 1, 0)])
    chances = _compute_log_binomial(around, budget // 2, circle.chance)  # shape (2 * sizes, votes)
    room = max(1, _COMPLEX_CELLS // (len(around) * len(circle.points)))
    for votes in range(1, budget // 2 + 1):
        relevant = np.flatnonzero(own >= votes)
        for nodes, weights in _split_nodes(budget, votes, room=room):
            logs, ratios = _compute_factors(chances[:, : votes + 1], nodes, circle)
            reading = _compute_reader(weights, circle, budget - votes)
            step = max(1, _COMPLEX_CELLS // reading.size)
            for rows in (relevant[i : i + step] for i in range(0, len(relevant), step)):
                read = np.exp((others[rows] @ logs).view(np.complex128) + reading).view(np.float64)
                plain = read[:, ::2].sum(axis=1)  # sum of the real parts
                sums[rows] += ways[rows, votes] * plain
                lesser[rows] += fewer[rows, votes] * plain
                shifted[rows] += ways[rows, votes, None] * (read @ ratios)
    whole, less = np.exp(
        _compute_log_binomial(np.array([total, total - 1]), budget, circle.chance)[:, budget]
    )
    share = sums / whole + _compute_majority(own, total, budget)
    if budget == total:
        return WinShares(share=share, less_own=np.full_like(share, np.nan), less_other=shifted * np.nan)
    sure = _compute_majority(own, total - 1, budget)[:, None]
    return WinShares(
        share=share,
        less_own=lesser / less + _compute_majority(own - 1, total - 1, budget),
        # 0 if no other answer has this size
        less_other=np.where(others > 0, shifted / less + sure, 0.0),
    )


def _choose_circle(total: int, budget: int) -> _Circle:
    """Chooses points on the unit circle: enough to extract the coefficient for `budget` drawn samples.

    Also chooses p, the probability that a sample is drawn, so that `budget` is the most likely number drawn.
    """
    p = min(budget / total, 1 - 0.5 / total)
    # logarithms of the probabilities of 0, 1, ... samples
    chances = _compute_log_binomial(np.array([total]), total, p)[0]
    likely = np.flatnonzero(chances - chances[budget] > _NEGLIGIBLE)[-1]
    # an odd number of points, so that -1 isn't one of them: a factor may be 0 there, which has no logarithm
    count = max(budget, int(likely) - budget + 1) | 1
    half = np.arange(count // 2 + 1)
    return _Circle(chance=p, points=2 * np.pi * half / count, weights=np.where(half == 0, 1.0, 2.0) / count)


def _compute_factors(chances: Floats, nodes: Floats, circle: _Circle) -> tuple[Floats, Floats]:
    """Computes the factors of the product in `compute_win_shares`, for each y in `nodes` and point z.

    `chances` has the log-probabilities that another answer gets 0, 1, ... votes, up to the winner's number.
    Its first half is for answers of each size, its second half for answers with one sample fewer.

    Returns the factors' logarithms, shape (sizes, 2 * nodes * points), in which real and imaginary parts
    alternate. Also returns the ratios by which the factors change if an answer has one sample fewer. They are
    conjugated and transposed, so that a product with an array of such alternating parts gives real parts.
    """
    votes = chances.shape[1] - 1
    # divide each row by its largest probability, whose logarithm is added again below: a factor could
    # otherwise underflow
    scale = chances.max(axis=1)
    coefficients = np.exp(chances - scale[:, None])
    # powers of z; shape (votes + 1, points)
    powers = np.exp(1j * circle.points * np.arange(votes + 1)[:, None])
    head = coefficients[:, :votes] @ powers[:votes]  # shape (2 * sizes, points)
    last = coefficients[:, votes:] * powers[votes]
    count = len(chances) // 2
    head[0], head[count] = 1 - circle.chance + circle.chance * np.exp(1j * circle.points), 1.0
    last[[0, count]] = scale[[0, count]] = 0.0  # samples without an answer can't tie: no y in their factor
    factors = head[:, None, :] + nodes[:, None] * last[:, None, :]  # shape (2 * sizes, nodes, points)
    logs = (np.log(factors) + scale[:, None, None]).reshape(2 * count, -1)
    ratios = np.exp(logs[count:] - logs[:count]).conj()
    return logs[:count].view(np.float64), np.ascontiguousarray(ratios.view(np.float64).T)


def _compute_reader(weights: Floats, circle: _Circle, place: int) -> npt.NDArray[np.complex128]:
    """Returns logarithms of the weights with which a sum over y and z gives the coefficient of z^place."""
    turned = np.log(circle.weights) - 1j * place * circle.points
    return np.asarray((np.log(weights)[:, None] + turned).ravel())


@cache
def compute_gauss_nodes(count: int) -> tuple[Floats, Floats]:
    """Returns `count` Gauss-Legendre nodes and weights, for integrals from 0 to 1.

    They are exact for polynomials up to degree 2 * count - 1.
    """
    nodes, weights = leggauss(count)
    return (nodes + 1) / 2, weights / 2  # moved from [-1, 1] to [0, 1]


def _split_nodes(budget: int, votes: int, *, room: int) -> list[tuple[Floats, Floats]]:
    """Returns nodes and weights of the integral that shares ties, in parts of at most `room` nodes."""
    nodes, weights = compute_gauss_nodes(ceil(budget // votes / 2))
    return [(nodes[i : i + room], weights[i : i + room]) for i in range(0, len(nodes), room)]


@lru_cache(maxsize=32)
def _compute_log_factorials(upto: int) -> _Longs:
    """Computes logarithms of 0! to `upto`! in extended precision; doubles would lose digits of large ones."""
    logs = np.zeros(upto + 1, dtype=np.longdouble)
    logs[1:] = np.cumsum(np.log(np.arange(1, upto + 1, dtype=np.longdouble)))
    logs.setflags(write=False)
    return logs


def _compute_log_choose(n: Ints, k: Ints) -> _Longs:
    """Computes the logarithm of the binomial coefficient C(n, k); -inf if that is 0."""
    fits = (k >= 0) & (k <= n)
    logs = _compute_log_factorials(int(n.max(initial=0)))
    top, part = np.where(fits, n, 0), np.where(fits, k, 0)
    return np.asarray(np.where(fits, logs[top] - logs[part] - logs[top - part], -np.inf))


def _compute_log_binomial(n: Ints, upto: int, p: float) -> Floats:
    """Returns, for each n, log-probabilities of 0 to `upto` draws from n samples, each with chance p."""
    k, chance = np.arange(upto + 1), np.longdouble(p)
    logs = _compute_log_choose(n[:, None], k) + k * np.log(chance) + (n[:, None] - k) * np.log(1 - chance)
    return np.asarray(logs, dtype=np.float64)


def _compute_majority(own: Ints, total: int, budget: int) -> Floats:
    """Computes the probability that an answer gets more than half of the votes, so that no other can lead."""
    votes = np.arange(budget // 2 + 1, budget + 1)
    sizes, inverse = np.unique(own, return_inverse=True)
    logs = _compute_log_choose(sizes[:, None], votes) + _compute_log_choose(
        total - sizes[:, None], budget - votes
    )
    logs -= _compute_log_choose(np.array(total), np.array(budget))  # shape (sizes, votes)
    return np.asarray(np.exp(logs.astype(np.float64)).sum(axis=1)[inverse])


def score_window_vote(ballots: Ballots, grades: Floats, budgets: Sequence[int]) -> AccuracyEstimates:
    """Computes the vote's mean accuracy over disjoint windows of b samples in recorded order.

    This is the estimator of the paper that this package implements. n samples give n // b windows; the other
    samples aren't used. Its expectation is the mean over all subsets, but its variance is larger than that
    mean's. Results have shape (problems, budgets). The standard error comes from the spread of the windows.
    Both are NaN if a problem has fewer samples than the budget, or an ungraded sample; the standard error
    also with only one window.
    """
    accuracy, error = np.full((2, len(ballots), len(budgets)), np.nan)
    known, drawn = mask_graded(ballots, grades), ballots.drawn
    for column, budget in enumerate(budgets):
        enough = np.flatnonzero(known & (drawn >= budget))
        for rows in _split_rows(enough, ballots.classes, budget):
            counts, whole = _count_windows(ballots.classes[rows], budget)
            right = _score_windows(counts, measure_classes(ballots.classes[rows], grades[rows])[1])
            accuracy[rows, column], error[rows, column] = _average_windows(right, whole)
    return AccuracyEstimates(accuracy=accuracy, standard_error=error)


def compute_agreement(classes: ClassNumbers, budget: int) -> Floats:
    """Computes each problem's agreement; NaN if it has fewer than `budget` samples.

    Agreement is the most frequent answer's share of the answers in a window of `budget` samples, on average.
    """
    shares = np.full(len(classes), np.nan)
    enough = np.flatnonzero((classes != ABSENT).sum(axis=1) >= budget)
    for rows in _split_rows(enough, classes, budget):
        counts, whole = _count_windows(classes[rows], budget)
        best, answered = counts.max(axis=2, initial=0), counts.sum(axis=2)  # shapes (problems, windows)
        share = np.divide(best, answered, out=np.zeros(best.shape), where=answered > 0)
        shares[rows] = _average_windows(share, whole)[0]
    return shares


def _split_rows(rows: Ints, classes: ClassNumbers, budget: int) -> list[Ints]:
    """Splits problems, given as rows of `classes`, into parts whose window counts fit in memory."""
    kinds = int(classes.max(initial=0)) + 1
    step = max(1, _COUNT_CELLS // (kinds * max(1, classes.shape[1] // budget)))
    return [rows[i : i + step] for i in range(0, len(rows), step)]


def _count_windows(classes: ClassNumbers, budget: int) -> tuple[Ints, Bools]:
    """Counts answers in each window, shape (problems, windows, answers); also marks complete windows."""
    rows, width, kinds = len(classes), classes.shape[1] // budget, int(classes.max(initial=-1)) + 1
    cut = classes[:, : width * budget].reshape(rows, width, budget)
    cell = np.arange(rows * width).reshape(rows, width, 1) * kinds + cut
    counts = np.bincount(cell[cut >= 0], minlength=rows * width * kinds)
    return counts.reshape(rows, width, kinds), np.asarray((cut != ABSENT).all(axis=2))


def _score_windows(counts: Ints, values: Floats) -> Floats:
    """Returns the mean value of the winning answers in each window; shape (problems, windows)."""
    best = counts.max(axis=2, initial=0)[:, :, None]
    leads = (counts == best) & (best > 0)  # shape (problems, windows, answers)
    won = np.einsum("pwk,pk->pw", leads, values, optimize=False)
    ties = leads.sum(axis=2)
    return np.asarray(np.divide(won, ties, out=np.zeros(won.shape), where=ties > 0))


def _average_windows(values: Floats, whole: Bools) -> tuple[Floats, Floats]:
    """Returns each problem's mean over complete windows, and its standard error (NaN with one window)."""
    count = whole.sum(axis=1)
    mean = (values * whole).sum(axis=1) / count
    squares = (((values - mean[:, None]) * whole) ** 2).sum(axis=1)
    variance = np.divide(squares, count - 1, out=np.full(mean.shape, np.nan), where=count > 1)
    return mean, np.sqrt(variance / count)
