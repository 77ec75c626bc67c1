"""Stops as soon as the leading answer is certified to be the model's most common one.

The certificate is wrong with a probability of at most delta. It doesn't say whether the most common answer is
right. A sample without an answer counts as drawn but doesn't vote.

The leader is certified when its votes reach a boundary that rises with the runner-up's votes. The lowest
boundary of a family is chosen that certifies a wrong leader (not the most common answer) with a probability
of at most delta. This holds for any number and distribution of answers, and any stopping rule within
`longest` samples. docs/design/policies.md proves the bound on the probability:

- Order the other answers by probability. The l-th can only be certified if it has more votes than the most
  common answer and than the l - 1 answers before it. These l answers are at least as likely as the l-th.
- So the probability is at most the sum over l of Q(l), the probability that one of l + 1 equally likely
  answers reaches the boundary against all others. Q(1) is computed exactly, by following the votes of two
  answers; the rest of the sum is bounded by an integral for each point of the boundary.
"""

import math
from functools import lru_cache
from typing import Self

import numpy as np
import numpy.typing as npt

from adacompute.answers import Tally
from adacompute.errors import PolicyError, format_value
from adacompute.policies.base import Dial, Policy, check_dials, check_integer, check_source, parse_finite
from adacompute.policies.votes import Floats, Ints, VoteState
from adacompute.pool import Ballots, Pool

_LONGEST = 64  # default maximum number of samples per request; fewer can't certify a narrow lead
_MAX_LONGEST = 256  # highest maximum that a caller can set; a higher one would take long to compute
_NODES = 256  # number of points for numerical integration; more don't change the result
_SMALLEST = 1e-290  # lower probabilities are raised to this before dividing by them
_MARGIN = 1e-9  # bounds are raised by this share, to cover rounding errors


class GuaranteePolicy(Policy):
    """Draws until the leading answer is certified to be the most common one, at most `longest` samples.

    A certificate is wrong with a probability of at most `delta`. With `delta=None`, this probability is the
    policy's threshold, so `calibrate` finds the one that meets a budget. Votes are unweighted, because
    weights would invalidate the guarantee. Each round draws the smallest number of samples that could certify
    the leader.

    >>> policy = GuaranteePolicy(delta=0.05)
    >>> policy.more("", Tally()), policy.more("", Tally.of(["4"] * 5)), policy.more("", Tally.of(["4"] * 6))
    (6, 1, 0)
    >>> policy.certifies(Tally.of(["4"] * 6)), policy.certifies(Tally.of(["4"] * 6 + ["5"]))
    (True, False)
    """

    kind = "guarantee"
    needs_plain_votes = True
    spreads_price = False  # shifting delta would change the guarantee
    dial: Dial | None = "threshold"
    setting_names = ("delta", "longest")

    def __init__(self, delta: float | None = 0.05, *, longest: int = _LONGEST) -> None:
        self.delta = None if delta is None else _check_delta(delta)
        self.longest = check_integer("longest", longest, high=_MAX_LONGEST)
        if self.delta is not None:
            self.dial = None

    def count_draws(self, reading: Floats, state: VoteState, dial: float | Floats | None) -> Ints:  # noqa: ARG002
        needed = self._find_votes(state, dial) - state.first
        return np.asarray(np.clip(self.longest - state.drawn, 0, np.maximum(needed, 0)), dtype=np.int64)

    def certifies(self, tally: Tally, dial: float | None = None) -> bool:
        """Whether these votes certify that their leader is the model's most common answer.

        The certificate is wrong with a probability of at most `delta`, or `dial` if `delta` is None.
        """
        return bool(self.mask_certified(VoteState.from_tallies([tally]), dial)[0])

    def mask_certified(self, state: VoteState, dial: float | Floats | None = None) -> npt.NDArray[np.bool_]:
        """Marks the requests whose leader is certified; requests with more than `longest` votes never are."""
        reached = state.first >= self._find_votes(state, dial)
        return np.asarray(reached & (state.answered <= self.longest))

    def _find_votes(self, state: VoteState, dial: float | Floats | None) -> Ints:
        """Returns how many votes each request's leader needs to be certified."""
        second = np.minimum(state.second, self.longest)
        deltas, which = np.unique(self._choose_delta(dial), return_inverse=True)
        boundaries = np.stack([find_boundary(self.longest, delta) for delta in deltas.tolist()])
        return np.asarray(boundaries[which if len(deltas) > 1 else 0, second])

    def fit(self, pool: Pool | Ballots) -> Self:
        check_source(pool)
        return self

    def _choose_delta(self, dial: float | Floats | None) -> float | Floats:
        if self.delta is None:
            return check_dials("threshold", dial, high=1.0)
        if dial is not None:
            raise PolicyError(
                f"this guarantee was made for delta {self.delta:g}; leave {format_value(dial)} out, "
                "or make it with delta=None"
            )
        return self.delta


def _check_delta(value: object) -> float:
    delta = parse_finite(value)
    if delta is None or not 0 < delta < 1:
        raise PolicyError(
            f"delta {format_value(value)} can't be used; give a probability between 0 and 1, e.g. 0.05"
        )
    return delta


@lru_cache(maxsize=1 << 12)
def find_boundary(longest: int, delta: float) -> Ints:
    """Computes how many votes a leader needs to be certified if the runner-up has 0, 1, 2, ... votes.

    A number above `longest` means that the leader can't be certified.

    >>> find_boundary(64, 0.05)[:5].tolist()
    [6, 9, 12, 14, 16]
    """
    # A leader is certified if its doubt (see `_compute_doubts`) is one of the lowest. Bisection finds the
    # largest number of lowest doubts for which the probability of an error is at most delta.
    low, high = 0, len(_sort_doubts(longest))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _bound_risk(longest, middle) <= delta else (low, middle - 1)
    return _build_boundary(longest, low)


def compute_risk(boundary: Ints) -> float:
    """Computes an upper bound for the probability that a wrong answer (not the most common one) is certified.

    `boundary` is ascending: the votes that a leader needs if the runner-up has 0, 1, 2, … votes.
    """
    longest = len(boundary) - 1
    points = [(int(a), b) for b, a in enumerate(boundary) if a + b <= longest]
    others = math.fsum(_integrate_others(a)[b] for a, b in points)
    return min(1.0, (_walk_pair(boundary) + others) * (1 + _MARGIN))


@lru_cache(maxsize=8)
def _compute_doubts(longest: int) -> Floats:
    """Computes the doubt about a leader, by its votes a and the runner-up's votes b; infinite if a <= b.

    The doubt is 1 / evidence. The evidence is the likelihood ratio of "the leader is more common" to "both
    are equally common": the mean of (2p)^a (2 - 2p)^b over shares p between 1/2 and 1. The evidence rises
    with a and falls with b. Doubts are quotients of integers, so they are the same on every machine.
    """
    doubts = np.full((longest + 1, longest + 1), np.inf)
    for votes in range(1, longest + 1):
        # binomial coefficients: in round b of the loop, `ways` is C(votes, b), `chosen` is C(votes + 1, b),
        # and `below` becomes the sum of C(votes + 1, k) for k = 0, …, b
        below, ways = 0, 1
        chosen = 1
        for b in range((votes + 1) // 2):
            below += chosen
            # by symmetry, the sum of C(votes + 1, k) for k <= votes - b is 2^(votes + 1) - below
            doubts[votes - b, b] = ((votes + 1) * ways) / (2 ** (votes + 1) - below)
            ways = ways * (votes - b) // (b + 1)
            chosen = chosen * (votes + 1 - b) // (b + 1)
    doubts.setflags(write=False)
    return doubts


@lru_cache(maxsize=8)
def _sort_doubts(longest: int) -> Floats:
    doubts = _compute_doubts(longest)
    return np.unique(doubts[np.isfinite(doubts)])


@lru_cache(maxsize=4096)
def _build_boundary(longest: int, count: int) -> Ints:
    """Returns how many votes a leader needs for its doubt to be one of the `count` lowest.

    Element b is for a runner-up with b votes.
    """
    limit = _sort_doubts(longest)[count - 1] if count else -1.0
    certified = _compute_doubts(longest) <= limit
    boundary = np.where(certified.any(axis=0), certified.argmax(axis=0), 2 * longest + 1).astype(np.int64)
    boundary.setflags(write=False)
    return boundary


@lru_cache(maxsize=1 << 16)
def _bound_risk(longest: int, count: int) -> float:
    return compute_risk(_build_boundary(longest, count))


def _walk_pair(boundary: Ints) -> float:
    """Computes the probability that the first of two equally likely answers ever reaches the boundary.

    Element b of `boundary` is the number of votes that the first answer needs if the other has b.
    """
    longest = len(boundary) - 1
    other = np.arange(longest + 1)  # number of votes for the other answer
    chances = np.zeros(longest + 1)
    chances[0] = 1.0
    reached = 0.0
    for votes in range(1, longest + 1):
        chances[1:] = (chances[1:] + chances[:-1]) / 2
        chances[0] /= 2
        crossed = votes - other >= boundary
        reached += float(chances[crossed].sum())
        chances[crossed] = 0.0
    return reached


@lru_cache(maxsize=1)
def _get_nodes() -> tuple[Floats, Floats]:
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return np.asarray(nodes), np.asarray(weights)


@lru_cache(maxsize=1 << 11)
def _integrate_others(a: int) -> Floats:
    """Bounds the probability that one of three or more equally likely answers leads with `a` votes.

    Element b of the result is a sum over l = 2, 3, … other answers; it is infinite if b is a - 1. The l-th
    term is the probability that none of the l others has more than b votes at this answer's a-th vote.

    Let each answer's votes arrive at rate 1. The time s of an answer's a-th vote has a gamma density, and the
    other answers' counts at that time are independent Poisson variables. With F = P(count <= b), the sum over
    l >= 2 of F^l is F^2 / (1 - F). This is integrated over s by Gauss-Legendre quadrature, up to where the
    density vanishes.
    """
    nodes, weights = _get_nodes()
    end = a + 12 * math.sqrt(a) + 30
    time = (nodes + 1) / 2 * end
    count = np.arange(2 * a + 60)[:, None]
    log_factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, len(count))))])[:, None]
    # logarithms of Poisson probabilities; shape (counts, points)
    logs = count * np.log(time) - time - log_factorials
    poisson = np.exp(logs)
    up_to = np.cumsum(poisson, axis=0)[:a]
    above = np.cumsum(poisson[::-1], axis=0)[::-1][1 : a + 1]
    above = np.where(up_to < 0.5, 1.0 - up_to, above)  # the sum `above` is inaccurate if it is large
    ratio = poisson[a - 1] / np.maximum(above, _SMALLEST)
    tiny = above <= _SMALLEST  # if the sum `above` is tiny, its first term gives a valid bound
    ratio[tiny] = np.exp(np.minimum(logs[a - 1] - logs[1 : a + 1], 0.0))[tiny]
    sums: Floats = (ratio * up_to**2) @ weights * end / 2
    sums[a - 1] = np.inf
    sums.setflags(write=False)
    return sums
