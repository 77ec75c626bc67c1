"""Votes by mode and class, as arrays: of live tallies, and along recorded paths of several modes.

`MenuVotes` is what a policy over a menu may look at. The numbers are whole, so they are the same to the
last bit from a live tally and from a replayed path.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from adacompute.answers import Tally, VoteWeights
from adacompute.answers.vote import WEIGHT_UNIT, scale_units
from adacompute.errors import PolicyError, TooFewSamples
from adacompute.policies.base import Floats, Ints, VoteState, check_number, dump_weights, load_weights
from adacompute.policies.paths import PolicyRun, compute_class_worth, compute_full_vote
from adacompute.pool.ballots import ABSENT, Ballots
from adacompute.score.aggregates import compute_weight_units

__all__ = [
    "FEATURES_PER_MODE",
    "JOINT_FEATURES",
    "NEVER_SEEN",
    "MenuPaths",
    "MenuVotes",
    "compute_features",
    "draw_menu_paths",
    "dump_mode_weights",
    "join_weights",
    "load_mode_weights",
]

_Scalar = TypeVar("_Scalar", bound=np.generic)

NEVER_SEEN = 127  # the rank of a class that was not given yet; classes of a request are fewer
_ODDS_PRIOR = 0.3  # of a vote, added to both sides of the odds
_TINY = 1e-9
JOINT_FEATURES, FEATURES_PER_MODE = 4, 10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MenuVotes:
    """The votes of several requests by mode and class."""

    drawn: Ints  # (requests, modes) samples, with and without an answer
    counts: Ints  # (requests, modes, classes) votes
    weights: Ints  # (requests, modes, classes) in units, without the modes' factors
    joint: Ints  # (requests, classes) weight of all modes' votes in units, with the factors
    seen: Ints  # (requests, classes) in which order classes were first given; 127: not yet

    def __len__(self) -> int:
        return len(self.drawn)

    @classmethod
    def from_tallies(cls, tallies: Sequence[Tally], names: Sequence[str]) -> "MenuVotes":
        """The votes of live tallies, whose samples have modes of these names."""
        kinds = max([1, *(tally.kinds for tally in tallies)])
        shape = (len(tallies), len(names), kinds)
        drawn = np.zeros(shape[:2], dtype=np.int64)
        counts, weights = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        joint = np.zeros((len(tallies), kinds), dtype=np.int64)
        seen = np.full((len(tallies), kinds), NEVER_SEEN, dtype=np.int64)
        for row, tally in enumerate(tallies):
            joint[row, : tally.kinds] = tally.class_weights
            seen[row, : tally.kinds] = np.arange(tally.kinds)
            for mode, name in enumerate(names):
                votes = tally.get_mode_votes(name)
                drawn[row, mode] = votes.drawn
                for number, count in votes.counts.items():
                    counts[row, mode, number] = count
                    weights[row, mode, number] = votes.weights[number]
        return cls(drawn=drawn, counts=counts, weights=weights, joint=joint, seen=seen)

    @classmethod
    def empty(cls, requests: int, modes: int) -> "MenuVotes":
        """The votes of requests that nothing was drawn for yet."""
        zeros = np.zeros((requests, modes, 1), dtype=np.int64)
        return cls(
            drawn=zeros[:, :, 0],
            counts=zeros,
            weights=zeros,
            joint=zeros[:, 0],
            seen=np.full((requests, 1), NEVER_SEEN, dtype=np.int64),
        )

    def select(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> "MenuVotes":
        """Some of the requests."""
        return MenuVotes(
            drawn=self.drawn[rows],
            counts=self.counts[rows],
            weights=self.weights[rows],
            joint=self.joint[rows],
            seen=self.seen[rows],
        )

    def find_leaders(self) -> tuple[Ints, Ints]:
        """The classes that lead and come second in the joint vote, (requests,) each; -1: none."""
        return _find_first_two(self.joint, self.counts.sum(axis=1), self.seen)

    def state_of(self, mode: int) -> VoteState:
        """The vote state of one mode's samples alone."""
        counts, weights = self.counts[:, mode], self.weights[:, mode]
        top, runner = _find_first_two(weights, counts, self.seen)
        return VoteState(
            drawn=self.drawn[:, mode],
            answered=counts.sum(axis=1),
            first=_take(counts, top),
            second=_take(counts, runner),
            kinds=(counts > 0).sum(axis=1),
            run=np.zeros(len(self), dtype=np.int64),
            lead=_take(weights, top) / WEIGHT_UNIT,
            runner=_take(weights, runner) / WEIGHT_UNIT,
            total=weights.sum(axis=1) / WEIGHT_UNIT,
            entropy=np.full(len(self), np.nan),
        )

    def count_first(self, mode: int) -> Ints:
        """Votes of the commonest answer of one mode, (requests,)."""
        return np.asarray(self.counts[:, mode].max(axis=1))


def _find_first_two(weights: Ints, counts: Ints, seen: Ints) -> tuple[Ints, Ints]:
    """The heaviest class and the next, ties to the one seen first; -1 where there is none."""
    # weights are below 2^56 and ranks below 2^7, so that one number orders both
    keys = np.where(counts > 0, weights * (NEVER_SEEN + 1) + (NEVER_SEEN - seen), -1)
    rows = np.arange(len(keys))
    top = keys.argmax(axis=1)
    has_top = keys[rows, top] >= 0
    keys[rows, top] = -1
    runner = keys.argmax(axis=1)
    has_runner = keys[rows, runner] >= 0
    return np.where(has_top, top, -1), np.where(has_runner, runner, -1)


def _take(values: Ints, classes: Ints) -> Ints:
    """The value of each row's class, (requests,); 0 where the class is -1."""
    taken = values[np.arange(len(values)), np.maximum(classes, 0)]
    return np.asarray(np.where(classes >= 0, taken, 0))


def compute_features(votes: MenuVotes, critical: Floats, hints: Floats) -> Floats:
    """What trees see of a request, (requests, features).

    The joint vote, then each mode's votes for the two leading answers, its own first two, how sure it was
    and its critical price (`critical`, (requests, modes), logarithms; NaN before its first sample), then
    what the prompts hint at.
    """
    top, runner = votes.find_leaders()
    lead, second = _take(votes.joint, top) / WEIGHT_UNIT, _take(votes.joint, runner) / WEIGHT_UNIT
    total = np.maximum(votes.joint.sum(axis=1) / WEIGHT_UNIT, _TINY)
    columns = [
        (votes.joint > 0).sum(axis=1),
        lead / total,
        lead - second,
        np.log((lead + _ODDS_PRIOR) / (second + _ODDS_PRIOR)),
    ]
    for mode in range(votes.drawn.shape[1]):
        counts, weights = votes.counts[:, mode], votes.weights[:, mode]
        answered = counts.sum(axis=1)
        of_leader, of_runner = _take(counts, top), _take(counts, runner)
        largest = np.sort(counts, axis=1)
        weight, leader_weight = weights.sum(axis=1) / WEIGHT_UNIT, _take(weights, top) / WEIGHT_UNIT
        columns += [
            votes.drawn[:, mode],
            answered,
            of_leader,
            of_runner,
            largest[:, -1],
            largest[:, -2] if counts.shape[1] > 1 else np.zeros(len(votes)),
            of_leader / np.maximum(answered, 1),
            np.where(answered > 0, np.log(np.maximum(weight, _TINY) / np.maximum(answered, 1)), 0.0),
            np.where(of_leader > 0, np.log(np.maximum(leader_weight, _TINY) / np.maximum(of_leader, 1)), 0.0),
            critical[:, mode],
        ]
    return np.hstack([np.stack(columns, axis=1), hints])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ModePath:
    """One mode's samples along every path, after 0, 1, ... draws; classes are numbered within a path."""

    classes: npt.NDArray[np.int16]  # (longest, paths) of each draw; -1 abstains
    counts: npt.NDArray[np.int16]  # (longest + 1, paths, classes)
    weights: Ints  # (longest + 1, paths, classes)
    joint: Ints  # (longest + 1, paths, classes)
    cost: Floats  # (longest + 1, paths) of the draws so far


class MenuWalk:
    """Requests that draw along paths of several modes, and the order in which each was given its answers."""

    def __init__(self, paths: "MenuPaths") -> None:
        self._paths = paths
        self.drawn = np.zeros((len(paths), len(paths.modes)), dtype=np.int64)  # (paths, modes)
        self._seen = np.full((len(paths), paths.kinds), NEVER_SEEN, dtype=np.int64)

    def draw(self, rows: Ints, counts: Ints) -> Ints:
        """Draws so many more samples of each mode, (requests, modes); returns the rows that drew any.

        Where a path has no more samples of a mode, it ends there.
        """
        counts = np.minimum(counts, np.array(self._paths.longest) - self.drawn[rows])
        for mode, own in enumerate(counts.T):
            for already in range(int(own.max(initial=0))):
                drawing = rows[own > already]
                number = self._paths.modes[mode].classes[self.drawn[drawing, mode], drawing]
                new = (number >= 0) & (self._seen[drawing, np.maximum(number, 0)] == NEVER_SEEN)
                self._seen[drawing[new], number[new]] = self.drawn[drawing[new]].sum(axis=1)
                self.drawn[drawing, mode] += 1
        return rows[counts.any(axis=1)]

    def select_open(self, rows: Ints) -> Ints:
        """Those of the requests that may go on."""
        return rows

    def state(self, rows: Ints) -> MenuVotes:
        """The votes of these requests."""
        return self._paths.votes_after(rows, self.drawn[rows], self._seen[rows])

    def finish(self, waves: Ints) -> PolicyRun:
        """What the requests ended with."""
        rows, paths = np.arange(len(self.drawn)), self._paths
        leader = self.state(rows).find_leaders()[0]
        return PolicyRun(
            drawn=self.drawn.sum(axis=1),
            waves=waves,
            grade=paths.worth_of(rows, leader),
            agrees=paths.worth_of(rows, leader, by_agreement=True),
            tokens=np.full(len(rows), np.nan),
            cost=paths.cost_after(rows, self.drawn),
            by_mode=self.drawn,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MenuPaths:
    """Recorded samples of every mode in random orders. Path i * orders + r is order r of problem i."""

    ballots: Ballots = field(repr=False)
    orders: int  # paths a problem
    weigh: VoteWeights | None
    modes: tuple[_ModePath, ...] = field(repr=False)
    grade: Floats  # (paths, classes) worth of each answer; NaN: not known
    agrees: Floats  # (paths, classes) its share of the vote of all samples of the dearest mode

    def __len__(self) -> int:
        return len(self.grade)

    @property
    def problems(self) -> Ints:
        """The row of each path's problem, (paths,)."""
        return np.repeat(np.arange(len(self.ballots)), self.orders)

    @property
    def longest(self) -> tuple[int, ...]:
        """Draws of each mode, at most."""
        return tuple(len(mode.classes) for mode in self.modes)

    @property
    def most_draws(self) -> int:
        """The most samples that a request can draw."""
        return sum(self.longest)

    def start(self) -> MenuWalk:
        """One request a path, that has drawn nothing yet."""
        return MenuWalk(self)

    @property
    def kinds(self) -> int:
        """The most classes of a path."""
        return int(self.grade.shape[1])

    def only(self, problems: Ints) -> "MenuPaths":
        """The paths of some problems, by their rows."""
        rows = (problems[:, None] * self.orders + np.arange(self.orders)).reshape(-1)
        names = [each.name for each in fields(_ModePath)]
        return replace(
            self,
            ballots=self.ballots.only(problems),
            modes=tuple(
                _ModePath(**{name: getattr(mode, name)[:, rows] for name in names}) for mode in self.modes
            ),
            grade=self.grade[rows],
            agrees=self.agrees[rows],
        )

    def votes_after(self, rows: Ints, drawn: Ints, seen: Ints | None = None) -> MenuVotes:
        """The votes of paths after so many draws of each mode, (requests,) and (requests, modes).

        `seen` is in which order classes were first given, (requests, classes); None takes the cheapest
        mode's samples for the first.
        """
        counts = np.stack(
            [mode.counts[drawn[:, k], rows] for k, mode in enumerate(self.modes)], axis=1
        ).astype(np.int64)
        weights = np.stack([mode.weights[drawn[:, k], rows] for k, mode in enumerate(self.modes)], axis=1)
        joint = np.sum([mode.joint[drawn[:, k], rows] for k, mode in enumerate(self.modes)], axis=0)
        if seen is None:
            seen = np.broadcast_to(np.arange(self.kinds), (len(rows), self.kinds))
        return MenuVotes(drawn=drawn, counts=counts, weights=weights, joint=joint, seen=seen)

    def cost_after(self, rows: Ints, drawn: Ints) -> Floats:
        """What the draws of paths cost, (requests,)."""
        return np.asarray(np.sum([mode.cost[drawn[:, k], rows] for k, mode in enumerate(self.modes)], axis=0))

    def worth_of(self, rows: Ints, classes: Ints, *, by_agreement: bool = False) -> Floats:
        """The worth of an answer of each path, (requests,); 0 where there is none (class -1)."""
        values = self.agrees if by_agreement else self.grade
        known = values[rows, np.maximum(classes, 0)]
        return np.asarray(np.where(classes >= 0, known, known * 0.0))

    def mean_per_problem(self, values: Floats | Ints) -> Floats:
        """The mean over the orders of each problem, (problems,) from (paths,)."""
        return np.asarray(values.reshape(-1, self.orders).mean(axis=1))


def draw_menu_paths(
    ballots: Ballots,
    *,
    weigh: VoteWeights | None,
    longest: Sequence[int],
    orders: int,
    rng: np.random.Generator,
) -> MenuPaths:
    """Random orders of each mode's samples; costs are those of the modes."""
    parts = ballots.parts
    for name, votes, count in zip(ballots.names, parts, longest, strict=True):
        fewest = int(votes.drawn.min(initial=count))
        if fewest < count:
            raise TooFewSamples(
                f"replaying up to {count} samples of mode {name!r} needs as many of each problem, and "
                f"problem {votes.ids[int(votes.drawn.argmin())]!r} has {fewest}; collect more, or lower "
                "`longest`"
            )
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
    return MenuPaths(
        ballots=ballots,
        orders=orders,
        weigh=weigh,
        modes=tuple(modes),
        grade=_spread_worth(compute_class_worth(ballots), owner, joined, labels, kinds),
        agrees=_spread_worth(compute_full_vote(ballots), owner, joined, labels, kinds),
    )


def _shuffle(ballots: Ballots, orders: int, count: int, rng: np.random.Generator) -> Ints:
    """Random samples of each problem, in random order, (problems, orders, count)."""
    keys = rng.integers(0, 1 << 62, (len(ballots), orders, ballots.classes.shape[1]), dtype=np.int64)
    keys += ((ballots.classes == ABSENT).astype(np.int64) << 62)[:, None, :]  # absent ones come last
    return np.argsort(keys, axis=2, kind="stable")[:, :, :count]


def _number_within_paths(classes: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int16], int]:
    """Classes numbered by first appearance within each row; -1 abstains. And how many there are at most."""
    steps = classes.shape[1]
    first = np.empty(classes.shape, dtype=np.int64)
    for start in range(0, len(classes), 1024):  # some rows at a time: all pairs of steps take much memory
        some = classes[start : start + 1024]
        first[start : start + 1024] = (some[:, :, None] == some[:, None, :]).argmax(axis=2)
    is_new = (first == np.arange(steps)) & (classes >= 0)
    rank = np.cumsum(is_new, axis=1) - 1
    labels = np.where(classes >= 0, np.take_along_axis(rank, first, axis=1), -1).astype(np.int16)
    return labels, max(1, int(labels.max(initial=-1)) + 1)


def _compute_units(ballots: Ballots, weigh: VoteWeights | None, name: str) -> Ints:
    """What each sample weighs in units, without its mode's factor, (problems, samples)."""
    if weigh is None:
        return np.full(ballots.classes.shape, WEIGHT_UNIT)
    return compute_weight_units(ballots, weigh.get_mode(name), partial=True)


def _take_in_order(values: npt.NDArray[_Scalar], order: Ints) -> npt.NDArray[_Scalar]:
    """A value of each sample, (problems, samples), as paths draw them, (paths, longest)."""
    taken = np.take_along_axis(values[:, None, :], order, axis=2)
    return np.asarray(taken.reshape(-1, order.shape[2]))


def _scale_all(units: Ints, factor: float) -> Ints:
    if factor == 1.0:
        return units
    return np.array([scale_units(each, factor) for each in units.reshape(-1).tolist()]).reshape(units.shape)


def _count_prefixes(
    labels: npt.NDArray[np.int16], weights: Ints, scaled: Ints, cost: Floats, *, kinds: int
) -> _ModePath:
    """Votes after each number of draws; all but `kinds` are (paths, longest)."""
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
    """The worth of each path's classes, (paths, kinds), of that of its problem's, (problems, classes)."""
    values = np.zeros((len(owner), kinds))
    values[np.asarray(np.isnan(worth).any(axis=1))[owner]] = np.nan
    rows, steps = np.nonzero(labels >= 0)
    values[rows, labels[rows, steps]] = worth[owner[rows], classes[rows, steps]]
    return values


def join_weights(names: Sequence[str], weights: Sequence[VoteWeights | None], factors: Floats) -> VoteWeights:
    """The weights of every mode's votes; those of a mode without log-probabilities are plain."""
    plain = VoteWeights(signal="logprob", scale=-1.0, sharpness=0.0)
    modes = tuple(
        (name, replace(plain if own is None else own, factor=float(factor)))
        for name, own, factor in zip(names, weights, factors, strict=True)
    )
    return replace(plain, modes=modes)


def dump_mode_weights(weigh: VoteWeights | None) -> list[dict[str, Any]] | None:
    """What a vote of each mode weighs, for an artefact; None: all the same."""
    if weigh is None or not weigh.modes:
        return None
    return [
        {"mode": name, "factor": own.factor, "weigh": dump_weights(replace(own, factor=1.0))}
        for name, own in weigh.modes
    ]


def load_mode_weights(stored: object, names: Sequence[str]) -> VoteWeights:
    """The weights that `dump_mode_weights` gave; PolicyError if they are those of other modes."""
    if not isinstance(stored, list) or [each["mode"] for each in stored] != list(names):
        raise PolicyError(f"votes {stored!r} don't say what a vote of each of {', '.join(names)} weighs")
    factors = [check_number("factor", each["factor"], low=1e-6, high=1e6) for each in stored]
    return join_weights(names, [load_weights(each["weigh"]) for each in stored], np.array(factors))
