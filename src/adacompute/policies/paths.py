"""Puts recorded samples in random orders, and counts votes after each draw.

A path is a random order of a problem's samples, as many as a policy may draw. Policies are replayed as if
samples had arrived in this order. Votes are counted exactly as by `adacompute.answers.Tally`; ties go to the
answer seen first. A class is a group of equal answers.

`Paths` has samples of one mode, `ModePaths` those of several modes. With one mode, a problem's shuffled
samples are cut into several disjoint paths.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from adacompute.answers import VoteWeights
from adacompute.answers.vote import WEIGHT_UNIT, scale_units
from adacompute.errors import TooFewSamples
from adacompute.policies.base import Draws
from adacompute.policies.votes import NEVER_SEEN, Floats, Ints, Rows, VotesByMode, VoteState
from adacompute.pool import Ballots
from adacompute.pool.ballots import ABSENT
from adacompute.score.aggregates import compute_weight_units, has_signals, read_scores
from adacompute.score.grades import grade_samples, keep_samples, mask_graded, measure_classes

Int16s = npt.NDArray[np.int16]

_Scalar = TypeVar("_Scalar", bound=np.generic)
_CELLS = 1 << 16  # number of counts (random orders times answers) processed at a time, to fit in a cache
_COUNT_FIELDS = ("answered", "first", "second", "kinds", "run")
_STATE_COUNTS, _STATE_WEIGHTS = frozenset(_COUNT_FIELDS), frozenset({"lead", "runner", "total"})
_VALUE_FIELDS = ("lead", "runner", "total", "grade", "agrees", "tokens")


def count_steps(
    classes: npt.NDArray[np.int32],
    vote_weights: Ints,
    worth: Floats,
    full: Floats,
    out: dict[str, npt.NDArray[Any]],
) -> None:
    """Counts the votes in random orders of samples (paths), and writes the counts after each draw to `out`.

    `classes` has the answer of each draw (-1 if none), and `vote_weights` its vote's weight; shape (draws,
    paths). `worth` has each answer's value. `full` is 1 for an answer that wins a vote of all samples (1/n if
    n answers tie), and 0 for others. `worth` and `full` have shape (paths, classes).
    """
    longest, count = classes.shape
    class_count = worth.shape[1]
    weights, counts = (
        np.zeros(count * class_count, dtype=np.int64),
        np.zeros(count * class_count, dtype=np.int16),
    )
    first_step = np.full(count * class_count, longest, dtype=np.int16)  # first draw that gave each answer
    offset = np.arange(count) * class_count
    top, runner = np.full(count, -1, dtype=np.int64), np.full(count, -1, dtype=np.int64)
    answered, total, kinds = (
        np.zeros(count, np.int16),
        np.zeros(count, np.int64),
        np.zeros(count, np.int16),
    )
    for t in range(longest):
        rows = np.flatnonzero(classes[t] >= 0)
        cell = offset[rows] + classes[t, rows]
        answered[rows] += 1
        total[rows] += vote_weights[t, rows]
        new = counts[cell] == 0
        first_step[cell[new]] = t
        kinds[rows] += new
        counts[cell] += 1
        weights[cell] += vote_weights[t, rows]
        _update_leaders(rows, cell, top, runner, weights, first_step)
        for name, leading in (("first", top), ("second", runner)):
            out[name][t] = np.where(leading >= 0, counts[leading], 0)
        for name, leading in (("lead", top), ("runner", runner)):
            out[name][t] = np.where(leading >= 0, weights[leading], 0) / WEIGHT_UNIT
        out["answered"][t], out["total"][t], out["kinds"][t] = answered, total / WEIGHT_UNIT, kinds
        out["grade"][t] = np.where(top >= 0, worth.reshape(-1)[top], worth[:, 0] * 0.0)
        out["agrees"][t] = np.where(top >= 0, full.reshape(-1)[top], 0.0)


def count_runs(classes: npt.NDArray[np.int32], out: Int16s) -> None:
    """Writes to `out`, for each draw, how many samples in a row, up to this one, gave the same answer."""
    out[0] = classes[0] >= 0
    for t in range(1, len(classes)):
        out[t] = np.where(classes[t] == classes[t - 1], out[t - 1] + 1, 1) * (classes[t] >= 0)


def _update_leaders(
    rows: Ints, cell: Ints, top: Ints, runner: Ints, weights: Ints, first_step: Int16s
) -> None:
    """Updates the leaders and runners-up of the paths `rows`, in place, after a vote for the answers `cell`.

    The weight of an answer's votes never falls, so only the answer that just got a vote can overtake others.
    """

    def beats(left: Ints, right: Ints) -> npt.NDArray[np.bool_]:
        ours, theirs = weights[left], weights[right]
        ahead = (ours > theirs) | ((ours == theirs) & (first_step[left] < first_step[right]))
        return np.asarray((right < 0) | ahead)

    leader, second = top[rows], runner[rows]
    challenger = cell != leader
    to_top = challenger & beats(cell, leader)
    to_runner = challenger & ~to_top & (cell != second) & beats(cell, second)
    runner[rows[to_top]] = leader[to_top]
    top[rows[to_top]] = cell[to_top]
    runner[rows[to_runner]] = cell[to_runner]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyRun:
    """What a policy drew from each random order of samples (path), and how good its answer was."""

    drawn: Ints  # number of samples drawn
    waves: Ints
    grade: Floats  # value (mean grade) of the returned answer; NaN if unknown
    # 1 if the returned answer wins a vote of all recorded samples, 1/n if n answers tie, else 0; with several
    # modes, only samples of the most expensive mode vote
    agrees: Floats
    tokens: Floats  # number of output tokens; NaN if unknown
    cost: Floats  # cost of the samples: their number or, with several modes, in the unit of the modes' costs
    by_mode: Ints  # number of samples drawn from each mode; shape (paths, modes)

    @classmethod
    def of(cls, paths: "Paths", drawn: Ints, waves: Ints) -> "PolicyRun":
        """Builds the results for one mode, given how many samples were drawn on each path (random order)."""
        last = (drawn - 1) * len(paths) + np.arange(len(paths))
        grade, agrees, tokens = (values.take(last) for values in (paths.grade, paths.agrees, paths.tokens))
        return cls(
            drawn=drawn,
            waves=waves,
            grade=grade,
            agrees=agrees,
            tokens=tokens,
            cost=drawn.astype(np.float64),
            by_mode=drawn[:, None],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _RecordedPaths:
    """Recorded samples in random orders (paths).

    Path i * orders + r is random order r of the samples of problem i; i and r count from 0.
    """

    ballots: Ballots = field(repr=False)
    orders: int  # number of random orders (paths) per problem
    weigh: VoteWeights | None

    def __len__(self) -> int:
        return len(self.ballots) * self.orders

    @property
    def class_count(self) -> int:
        """Maximum number of distinct answers in a random order of samples; 0 with one mode (not needed)."""
        return 0

    @property
    def problems(self) -> Ints:
        """For each random order of samples (path), the index of its problem."""
        return np.repeat(np.arange(len(self.ballots)), self.orders)

    def mean_per_problem(self, values: Floats | Ints) -> Floats:
        """Averages `values`, one per random order of samples (path), over the orders of each problem."""
        return np.asarray(values.reshape(len(self.ballots), self.orders, *values.shape[1:]).mean(axis=1))

    def mark_seen(self, walk: "Walk", rows: Ints, draws: Draws) -> None:
        """Records in `walk` which answers first appear in the next draws; with one mode, does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Paths(_RecordedPaths):
    """The votes on every path (random order of samples) after 1, 2, …, `longest` draws of one mode.

    Arrays have the shape (longest, paths) unless noted otherwise.
    """

    longest: int  # number of samples in each random order (path)
    answered: Int16s
    first: Int16s
    second: Int16s
    kinds: Int16s
    run: Int16s
    lead: Floats
    runner: Floats
    total: Floats
    entropy: Floats  # mean token entropy of the first sample; shape (paths,)
    grade: Floats  # value (mean grade) of the leading answer, 0 to 1; NaN if unknown
    agrees: Floats  # 1 if the leading answer wins a vote of all samples; 1/n if n answers tie
    tokens: Floats  # total number of output tokens of the samples drawn so far; NaN if unknown

    def finish(self, walk: "Walk", waves: Ints) -> PolicyRun:
        """Returns how many samples were drawn per random order, and how good the resulting answers are."""
        return PolicyRun.of(self, walk.drawn[:, 0], waves)

    def state_of(self, walk: "Walk", rows: Ints) -> VoteState:
        """Returns the votes in the random orders `rows`, from the samples that `walk` has drawn so far."""
        return self.state_after(rows, walk.drawn[rows, 0])

    def state_after(self, rows: Ints, drawn: Ints) -> VoteState:
        """Returns the votes in the random orders `rows`, each after its own number of draws (at least 1)."""
        return _PathState.of(self, rows, drawn)

    def state_at(self, drawn: int) -> VoteState:
        """Returns the votes in all random orders after the same number of draws (at least 1)."""
        return _PathState.of(self, slice(None), np.full(len(self), drawn, dtype=np.int64), step=drawn - 1)


class _PathState(VoteState):
    """The votes in random orders of samples (paths).

    Each field is computed on first use, because most policies use few fields.
    """

    _paths: Paths
    _rows: Ints | slice
    _step: Ints | int

    @classmethod
    def of(cls, paths: Paths, rows: Ints | slice, drawn: Ints, step: int | None = None) -> "_PathState":
        state = object.__new__(cls)
        values = {
            "drawn": drawn,
            "_paths": paths,
            "_rows": rows,
            "_step": drawn - 1 if step is None else step,
        }
        for name, value in values.items():
            object.__setattr__(state, name, value)
        return state

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - called for fields that were not read yet
        if name == "entropy":
            value = self._paths.entropy[self._rows]
        elif name in _STATE_COUNTS:
            value = getattr(self._paths, name)[self._step, self._rows].astype(np.int64)
        elif name in _STATE_WEIGHTS:
            value = getattr(self._paths, name)[self._step, self._rows]
        else:
            raise AttributeError(name)
        object.__setattr__(self, name, value)
        return value

    def select(self, rows: Rows) -> VoteState:
        own = np.arange(len(self._paths)) if isinstance(self._rows, slice) else self._rows
        return _PathState.of(self._paths, own[rows], self.drawn[rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class PathLayout:
    """How to shuffle a problem's samples and cut them into random orders of equal length (paths)."""

    longest: int  # number of samples in each random order (path)
    windows: int  # number of parts (paths) that each shuffle is cut into
    shuffles: int  # how often each problem's samples are shuffled
    by_mode: tuple[int, ...] = ()  # number of draws from each mode, if there are several

    @property
    def orders(self) -> int:
        """The number of random orders (paths) per problem."""
        return self.shuffles * self.windows

    @classmethod
    def for_orders(cls, min_samples: int, *, orders: int, longest: int) -> "PathLayout":
        """Makes a layout of at least `orders` random orders (paths) per problem.

        Each problem must have at least `min_samples` samples.
        """
        windows = max(1, min_samples // longest)
        return cls(longest=longest, windows=windows, shuffles=-(-orders // windows))

    def draw_orders(self, ballots: Ballots, rng: np.random.Generator) -> Ints:
        """Draws the indices of the samples in each random order; shape (problems, orders, longest)."""
        order = _shuffle_samples(ballots, self.shuffles, rng)[:, :, : self.windows * self.longest]
        return order.reshape(len(ballots), self.shuffles * self.windows, self.longest)


def draw_paths(
    ballots: Ballots,
    *,
    rng: np.random.Generator,
    orders: int = 100,
    longest: int = 16,
    weigh: VoteWeights | None = None,
) -> Paths:
    """Draws random orders (paths) of recorded samples, at least `orders` per problem, and counts votes."""
    _check_drawn(ballots, longest)
    fewest_samples = int(ballots.drawn.min(initial=ballots.classes.shape[1]))
    layout = PathLayout.for_orders(fewest_samples, orders=orders, longest=longest)
    return build_paths(ballots, layout.draw_orders(ballots, rng), weigh=weigh)


def _check_drawn(ballots: Ballots, longest: int, mode: str = "") -> None:
    """Raises TooFewSamples if a problem has fewer than `longest` samples of the mode."""
    fewest = int(ballots.drawn.min(initial=longest))
    if fewest < longest:
        of_mode = f" of mode {mode!r}" if mode else ""
        raise TooFewSamples(
            f"replaying up to {longest} samples{of_mode} needs as many of each problem, and problem "
            f"{ballots.ids[int(ballots.drawn.argmin())]!r} has {fewest}; collect more, or lower `longest`"
        )


def build_paths(
    ballots: Ballots, order: npt.NDArray[np.integer], *, weigh: VoteWeights | None = None
) -> Paths:
    """Counts votes in given orders of samples.

    `order` has the samples' indices in each order; shape (problems, orders, longest).
    """
    problems, orders, longest = order.shape
    path_count = problems * orders
    counts = {name: np.zeros((longest, path_count), dtype=np.int16) for name in _COUNT_FIELDS}
    values = {name: np.zeros((longest, path_count)) for name in _VALUE_FIELDS}
    entropy = np.zeros(path_count)
    weights = _vote_weights(ballots, weigh)
    worth, full_shares = compute_class_worth(ballots), compute_full_vote(ballots, weights)
    chunk = max(1, _CELLS // max(1, orders * worth.shape[1]))
    for start in range(0, problems, chunk):
        rows = np.arange(start, min(start + chunk, problems))
        owner = np.repeat(rows, orders)
        sample = order[rows].reshape(-1, longest)
        flat_index = owner[:, None] * ballots.classes.shape[1] + sample  # shape (paths, longest)
        columns = slice(start * orders, start * orders + len(owner))
        classes = _take_samples(ballots.classes, flat_index)
        count_steps(
            classes,
            _take_samples(weights, flat_index),
            worth[owner],
            full_shares[owner],
            {name: array[:, columns] for name, array in {**counts, **values}.items()},
        )
        count_runs(classes, counts["run"][:, columns])
        np.cumsum(_take_samples(ballots.tokens, flat_index), axis=0, out=values["tokens"][:, columns])
        entropy[columns] = ballots.entropy[owner, sample[:, 0]]
    return Paths(
        ballots=ballots, orders=orders, longest=longest, weigh=weigh, entropy=entropy, **counts, **values
    )


def _shuffle_samples(ballots: Ballots, shuffles: int, rng: np.random.Generator) -> Ints:
    """Shuffles the indices of each problem's samples, `shuffles` times; missing samples come last."""
    problems, samples = ballots.classes.shape
    bits = max(1, (samples - 1).bit_length())
    # sorts random integers whose last bits are the sample's index: fast, and the same on every machine
    keys: Ints = rng.integers(0, 1 << (62 - bits), (problems, shuffles, samples), dtype=np.int64) << bits
    keys |= np.arange(samples)
    keys += ((ballots.classes == ABSENT).astype(np.int64) << 62)[:, None, :]
    keys.sort(axis=2)
    keys &= (1 << bits) - 1
    return keys


def _take_samples(values: npt.NDArray[_Scalar], flat_index: Ints) -> npt.NDArray[_Scalar]:
    """Picks the values at these indices into the flattened array; shape (longest, paths)."""
    return np.ascontiguousarray(np.take(values.reshape(-1), flat_index).T)


def _vote_weights(ballots: Ballots, weigh: VoteWeights | None) -> Ints:
    """Computes the weight of each sample's vote, in integer units.

    All weights are equal if `weigh` is None, or if none of its signals was recorded.
    """
    if weigh is None or not (
        np.isfinite(ballots.signal(weigh.signal)).any()
        or has_signals(ballots, weigh.model)
        or (weigh.score is not None and read_scores(ballots)[1].any())
    ):
        return np.full(ballots.classes.shape, WEIGHT_UNIT)
    return compute_weight_units(ballots, weigh)


def compute_class_worth(ballots: Ballots) -> Floats:
    """Computes the value of each answer: the mean grade of its samples; NaN if its problem has no grades."""
    values = grade_samples(ballots)
    worth = measure_classes(ballots.classes, values)[1]
    if worth.shape[1] == 0:  # no sample has an answer
        worth = np.zeros((len(ballots), 1))
    worth[~mask_graded(ballots, values)] = np.nan
    return worth


def compute_full_vote(ballots: Ballots, weights: Ints | None = None) -> Floats:
    """Returns 1 for each answer that wins a vote of all samples of the most expensive mode, and 0 for others.

    If n answers tie, each of them gets 1/n. The result has shape (problems, answers).
    """
    weights = np.full(ballots.classes.shape, WEIGHT_UNIT) if weights is None else weights
    kinds = max(1, int(ballots.classes.max(initial=-1)) + 1)
    sums = np.zeros((len(ballots), kinds), dtype=np.int64)
    row, column = np.nonzero((ballots.classes >= 0) & (ballots.mode == len(ballots.modes) - 1))
    np.add.at(sums, (row, ballots.classes[row, column]), weights[row, column])
    best = sums.max(axis=1, keepdims=True)
    wins = (sums == best) & (best > 0)
    return np.asarray(wins / np.maximum(wins.sum(axis=1, keepdims=True), 1))


def grade_by_other_half(ballots: Ballots) -> Ballots:
    """Returns half of each problem's samples, graded by their agreement with the vote of the other half.

    So no sample is judged by a vote in which it takes part. With several modes, only samples of the most
    expensive mode are halved; an odd one goes to the half that votes. If n answers tie, each is graded 1/n.
    Every problem is halved by the same random order.
    """
    dearest = (ballots.mode == len(ballots.modes) - 1) & (ballots.classes != ABSENT)
    keys = np.random.default_rng(0x4A1F).random(ballots.classes.shape[1])
    rank = np.where(dearest, keys, np.inf).argsort(axis=1).argsort(axis=1)
    votes = dearest & (rank >= dearest.sum(axis=1, keepdims=True) // 2)  # samples of the half that votes
    wins = compute_full_vote(ballots, votes.astype(np.int64))
    right = np.where(ballots.classes >= 0, np.take_along_axis(wins, np.maximum(ballots.classes, 0), 1), 0.0)
    kept = (ballots.classes != ABSENT) & ~votes
    own = replace(ballots, correct=right.astype(np.float32), gold_known=np.zeros(len(ballots), bool))
    parts = {name: keep_samples(own[name], kept[:, own.mode == k]) for k, name in enumerate(own.names)}
    return Ballots.join(parts).number_classes()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ModePath:
    """One mode's votes in random orders of each problem's samples (paths), after 0, 1, … draws.

    Answers are numbered on each path separately.
    """

    classes: npt.NDArray[np.int16]  # answer of each draw, -1 if none; shape (longest, paths)
    counts: npt.NDArray[np.int16]  # number of votes for each answer; shape (longest + 1, paths, classes)
    weights: Ints  # weight of each answer's votes in a vote of this mode alone; shape like `counts`
    joint: Ints  # weight of each answer's votes in a vote of all modes; shape like `counts`
    cost: Floats  # cost of the draws so far; shape (longest + 1, paths)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModePaths(_RecordedPaths):
    """Recorded samples of every mode in random orders."""

    modes: tuple[_ModePath, ...] = field(repr=False)
    grade: Floats  # value (mean grade) of each answer; NaN if unknown; shape (paths, classes)
    agrees: Floats  # 1 if an answer wins a vote of the most expensive mode's samples; 1/n if n tie

    @property
    def longest(self) -> tuple[int, ...]:
        """For each mode, the number of its samples in each random order (path)."""
        return tuple(len(mode.classes) for mode in self.modes)

    @property
    def class_count(self) -> int:
        """The maximum number of distinct answers in a random order (path)."""
        return int(self.grade.shape[1])

    def only(self, problems: Ints) -> "ModePaths":
        """Returns the random orders of some problems, which are given by index."""
        rows = (problems[:, None] * self.orders + np.arange(self.orders)).reshape(-1)
        names = [each.name for each in fields(_ModePath)]
        modes = (_ModePath(**{name: getattr(mode, name)[:, rows] for name in names}) for mode in self.modes)
        return replace(
            self,
            ballots=self.ballots.only(problems),
            modes=tuple(modes),
            grade=self.grade[rows],
            agrees=self.agrees[rows],
        )

    def finish(self, walk: "Walk", waves: Ints) -> PolicyRun:
        """Returns how many samples were drawn per random order, and how good the resulting answers are."""
        rows = np.arange(len(self))
        leader = self.state_of(walk, rows).find_leaders()[0]
        return PolicyRun(
            drawn=walk.drawn.sum(axis=1),
            waves=waves,
            grade=self.worth_of(rows, leader),
            agrees=self.worth_of(rows, leader, by_agreement=True),
            tokens=np.full(len(rows), np.nan),
            cost=self.cost_after(rows, walk.drawn),
            by_mode=walk.drawn,
        )

    def state_of(self, walk: "Walk", rows: Ints) -> VotesByMode:
        """Returns the votes in the random orders `rows`, from the samples that `walk` has drawn so far."""
        return self.votes_after(rows, walk.drawn[rows], walk.seen[rows])

    def mark_seen(self, walk: "Walk", rows: Ints, draws: Draws) -> None:
        for mode, path in enumerate(self.modes):
            counts = np.where(draws.modes == mode, draws.counts, 0)
            for already in range(int(counts.max(initial=0))):
                drawing = rows[counts > already]
                number = path.classes[walk.drawn[drawing, mode] + already, drawing]
                new = (number >= 0) & (walk.seen[drawing, np.maximum(number, 0)] == NEVER_SEEN)
                walk.seen[drawing[new], number[new]] = walk.drawn[drawing[new]].sum(axis=1) + already

    def votes_after(self, rows: Ints, drawn: Ints, seen: Ints | None = None) -> VotesByMode:
        """Returns the votes in the random orders `rows`, given how many samples of each mode were drawn.

        `drawn` has shape (requests, modes). `seen` has each answer's rank by first appearance; shape
        (requests, classes). None means that cheaper modes were drawn first.
        """
        counts = np.stack(
            [mode.counts[drawn[:, k], rows] for k, mode in enumerate(self.modes)], axis=1
        ).astype(np.int64)
        weights = np.stack([mode.weights[drawn[:, k], rows] for k, mode in enumerate(self.modes)], axis=1)
        joint = np.sum([mode.joint[drawn[:, k], rows] for k, mode in enumerate(self.modes)], axis=0)
        if seen is None:
            seen = np.broadcast_to(np.arange(self.class_count), (len(rows), self.class_count))
        return VotesByMode(drawn=drawn, counts=counts, weights=weights, joint=joint, seen=seen)

    def cost_after(self, rows: Ints, drawn: Ints) -> Floats:
        """Returns the cost of the samples drawn in the random orders `rows`.

        `drawn` has how many were drawn of each mode; shape (requests, modes).
        """
        return np.asarray(np.sum([mode.cost[drawn[:, k], rows] for k, mode in enumerate(self.modes)], axis=0))

    def worth_of(self, rows: Ints, classes: Ints, *, by_agreement: bool = False) -> Floats:
        """Returns the value of the answer `classes[i]` in the random order `rows[i]`, for each i.

        The value is the answer's mean grade: 0 for no answer (-1), NaN if the problem has no grades. With
        `by_agreement`, it is 1 if the answer wins a vote of all samples of the most expensive mode, 1/n if n
        answers tie, else 0.
        """
        values = self.agrees if by_agreement else self.grade
        known = values[rows, np.maximum(classes, 0)]
        return np.asarray(np.where(classes >= 0, known, known * 0.0))


def draw_paths_by_mode(
    ballots: Ballots,
    *,
    weigh: VoteWeights | None,
    longest: Sequence[int],
    orders: int,
    rng: np.random.Generator,
) -> ModePaths:
    """Draws random orders of each mode's samples, and counts votes and costs along them."""
    parts = ballots.parts
    for name, votes, count in zip(ballots.names, parts, longest, strict=True):
        _check_drawn(votes, count, name)
    problems = len(ballots)
    chosen = [_shuffle(votes, orders, count, rng) for votes, count in zip(parts, longest, strict=True)]
    classes = [
        np.take_along_axis(votes.classes[:, None, :], order, axis=2).reshape(problems * orders, -1)
        for votes, order in zip(parts, chosen, strict=True)
    ]
    labels, kinds = _number_within_paths(np.concatenate(classes, axis=1))
    owner = np.repeat(np.arange(problems), orders)
    ends = np.cumsum(longest)
    modes = []
    for k, (name, votes, order) in enumerate(zip(ballots.names, parts, chosen, strict=True)):
        own = labels[:, ends[k] - longest[k] : ends[k]]
        units = _compute_units(votes, weigh, name)
        scaled = _scale_all(units, 1.0 if weigh is None else weigh.get_mode(name).factor)
        modes.append(
            _count_prefixes(
                own,
                _take_in_order(units, order),
                _take_in_order(scaled, order),
                _take_in_order(votes.sample_costs(), order),
                kinds=kinds,
            )
        )
    joined = np.concatenate(classes, axis=1)
    return ModePaths(
        ballots=ballots,
        orders=orders,
        weigh=weigh,
        modes=tuple(modes),
        grade=_spread_worth(compute_class_worth(ballots), owner, joined, labels, kinds),
        agrees=_spread_worth(compute_full_vote(ballots), owner, joined, labels, kinds),
    )


def _shuffle(ballots: Ballots, orders: int, count: int, rng: np.random.Generator) -> Ints:
    """Draws the indices of `count` samples, `orders` times per problem; shape (problems, orders, count)."""
    keys = rng.integers(0, 1 << 62, (len(ballots), orders, ballots.classes.shape[1]), dtype=np.int64)
    keys += ((ballots.classes == ABSENT).astype(np.int64) << 62)[:, None, :]  # missing samples come last
    return np.argsort(keys, axis=2, kind="stable")[:, :, :count]


def _number_within_paths(classes: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int16], int]:
    """Numbers each row's distinct answers by first appearance; also returns how many a row has at most."""
    steps = classes.shape[1]
    first = np.empty(classes.shape, dtype=np.int64)
    for start in range(0, len(classes), 1024):  # in batches, to save memory
        some = classes[start : start + 1024]
        first[start : start + 1024] = (some[:, :, None] == some[:, None, :]).argmax(axis=2)
    is_new = (first == np.arange(steps)) & (classes >= 0)
    rank = np.cumsum(is_new, axis=1) - 1
    labels = np.where(classes >= 0, np.take_along_axis(rank, first, axis=1), -1).astype(np.int16)
    return labels, max(1, int(labels.max(initial=-1)) + 1)


def _compute_units(ballots: Ballots, weigh: VoteWeights | None, name: str) -> Ints:
    """Computes the weight that each sample's vote has among votes of its own mode, in integer units."""
    if weigh is None:
        return np.full(ballots.classes.shape, WEIGHT_UNIT)
    return compute_weight_units(ballots, weigh.get_mode(name), partial=True)


def _take_in_order(values: npt.NDArray[_Scalar], order: Ints) -> npt.NDArray[_Scalar]:
    """Returns the samples' values in each random order (path); shape (paths, longest)."""
    taken = np.take_along_axis(values[:, None, :], order, axis=2)
    return np.asarray(taken.reshape(-1, order.shape[2]))


def _scale_all(units: Ints, factor: float) -> Ints:
    if factor == 1.0:
        return units
    return np.array([scale_units(each, factor) for each in units.reshape(-1).tolist()]).reshape(units.shape)


def _count_prefixes(
    labels: npt.NDArray[np.int16], weights: Ints, scaled: Ints, cost: Floats, *, kinds: int
) -> _ModePath:
    """Counts one mode's votes after 0, 1, … draws; all array arguments have shape (paths, longest)."""
    paths, longest = labels.shape
    counts = np.zeros((longest + 1, paths, kinds), dtype=np.int16)
    sums = np.zeros((longest + 1, paths, kinds), dtype=np.int64)
    joint = np.zeros((longest + 1, paths, kinds), dtype=np.int64)
    paid = np.zeros((longest + 1, paths))
    for step in range(longest):
        counts[step + 1], sums[step + 1], joint[step + 1] = counts[step], sums[step], joint[step]
        rows = np.flatnonzero(labels[:, step] >= 0)
        classes = labels[rows, step]
        counts[step + 1, rows, classes] += 1
        sums[step + 1, rows, classes] += weights[rows, step]
        joint[step + 1, rows, classes] += scaled[rows, step]
        paid[step + 1] = paid[step] + cost[:, step]
    return _ModePath(
        classes=np.ascontiguousarray(labels.T), counts=counts, weights=sums, joint=joint, cost=paid
    )


def _spread_worth(
    worth: Floats, owner: Ints, classes: npt.NDArray[np.int32], labels: npt.NDArray[np.int16], kinds: int
) -> Floats:
    """Returns the value of the answers in each random order, given the values of each problem's answers."""
    values = np.zeros((len(owner), kinds))
    values[np.asarray(np.isnan(worth).any(axis=1))[owner]] = np.nan
    rows, steps = np.nonzero(labels >= 0)
    values[rows, labels[rows, steps]] = worth[owner[rows], classes[rows, steps]]
    return values


class Walk:
    """Simulated requests, one per random order of samples (path), and how many samples each has drawn."""

    def __init__(self, paths: Paths | ModePaths) -> None:
        self._paths = paths
        self._longest = np.atleast_1d(paths.longest)
        self.drawn = np.zeros((len(paths), len(self._longest)), dtype=np.int64)  # shape (paths, modes)
        # rank of each answer by its first appearance on the path; shape (paths, classes)
        self.seen = np.full((len(paths), paths.class_count), NEVER_SEEN, dtype=np.int64)

    def draw(self, rows: Ints, draws: Draws) -> Ints:
        """Draws samples for the requests `rows`, as `draws` says; returns the requests that got at least one.

        A request gets fewer samples, or none, if its random order (path) has no more of the mode.
        """
        counts = np.minimum(draws.counts, self._longest[draws.modes] - self.drawn[rows, draws.modes])
        rows, draws = rows[counts > 0], Draws(draws.modes[counts > 0], counts[counts > 0])
        self._paths.mark_seen(self, rows, draws)
        self.drawn[rows, draws.modes] += draws.counts
        return rows

    def select_open(self, rows: Ints) -> Ints:
        """Returns the requests among `rows` whose random orders have samples left to draw."""
        return rows[(self.drawn[rows] < self._longest).any(axis=1)]

    def state(self, rows: Ints) -> VoteState | VotesByMode:
        """Returns the votes so far of the requests `rows`, each of which must have drawn a sample."""
        return self._paths.state_of(self, rows)

    def finish(self, waves: Ints) -> PolicyRun:
        """Returns how many samples were drawn for each request, and how good the resulting answers are."""
        return self._paths.finish(self, waves)
