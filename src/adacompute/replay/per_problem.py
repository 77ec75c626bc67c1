"""Computes a policy's results on each problem, by drawing its recorded samples in random orders.

A policy that decides from the prompt alone and doesn't weigh votes needs no random orders. Its exact accuracy
with b samples is the mean over all subsets of b samples. Tied answers share the win equally, as they do over
all orders if ties go to the first answer seen.
"""

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from adacompute.answers import VoteWeights
from adacompute.errors import PolicyError
from adacompute.policies.base import Draws, Policy, place_orders
from adacompute.policies.paths import (
    ModePaths,
    PathLayout,
    Paths,
    PolicyRun,
    Walk,
    build_paths,
    compute_full_vote,
    draw_paths_by_mode,
)
from adacompute.policies.votes import Floats, Ints, make_empty_state
from adacompute.pool import Ballots
from adacompute.pool.ballots import ABSENT
from adacompute.score.grades import BlockMap, grade_samples
from adacompute.score.plain_vote import MAX_EXACT_BUDGET, score_exact_vote

_MAX_CELLS = 1 << 22  # maximum number of samples drawn for a block of problems; a sample takes about 60 bytes
_MODE_PATHS = 6000  # maximum number of random orders in a block with several modes; they take up to 100 MB
_SKIPPED_AT_ONCE = 1 << 20  # number of random numbers to discard at a time
_ROUNDING = 1e-9  # a smaller share of requests is only a rounding error
# target for the number of decisions over all prompts, and maximum number of slightly different prices at
# which each prompt is decided
_PLACES, _MOST_PLACES = 1 << 15, 64


def run_policy(
    policy: Policy, paths: Paths | ModePaths, *, dial: float | Floats | None, reading: Floats | None = None
) -> PolicyRun:
    """Runs the policy along every path (a random order of a problem's samples) until it stops.

    `dial` is the price or threshold for all paths, or an array with one for each path. `reading` is what
    `policy.read` returns, with a row for each prompt or for each path; None computes it here.
    """
    check_paths(policy, paths)
    reading = policy.read(paths.ballots.prompts) if reading is None else reading
    walk = Walk(paths)
    owner = np.arange(len(paths)) if len(reading) == len(paths) else paths.problems
    active, waves = np.arange(len(paths)), np.zeros(len(paths), dtype=np.int64)
    if isinstance(dial, np.ndarray):
        draws = decide_first_wave(policy, reading[owner], dial)
    else:
        draws = Draws(*(values[owner] for values in decide_first_wave(policy, reading, dial)))
    while len(active):
        highest = int((walk.drawn[active].sum(axis=1) + draws.counts).max())
        if highest > policy.longest:
            raise PolicyError(
                f"{policy.kind} asks for {highest} samples of a request, above its own {policy.longest}"
            )
        active = walk.draw(active, draws)
        waves[active] += 1
        active = walk.select_open(active)
        if len(active):
            own_dial = dial[active] if isinstance(dial, np.ndarray) else dial
            draws = policy.decide(reading[owner[active]], walk.state(active), own_dial)
    return walk.finish(waves)


def follow_mode(paths: Paths | ModePaths, mode: int, samples: int) -> PolicyRun:
    """Simulates drawing the same number of samples of one mode for every request, in one round."""
    walk, rows = Walk(paths), np.arange(len(paths))
    walk.draw(rows, Draws(np.full(len(rows), mode), np.full(len(rows), samples)))
    return walk.finish(np.ones(len(rows), dtype=np.int64))


def decide_first_wave(policy: Policy, reading: Floats, dial: float | Floats | None) -> Draws:
    """Asks the policy which samples each request draws first. Raises PolicyError if a request draws none."""
    draws = policy.decide(reading, make_empty_state(len(reading), len(policy.names)), dial)
    if (draws.counts < 1).any():
        raise PolicyError(f"{policy.kind} asks for no sample on an empty tally; a request needs at least 1")
    return draws


def check_paths(policy: Policy, paths: Paths | ModePaths) -> None:
    """Raises PolicyError if paths (random orders) are too short or don't weigh votes as the policy does."""
    if isinstance(paths.longest, int) and paths.longest < policy.longest:
        raise PolicyError(
            f"{policy.kind} may draw {policy.longest} samples of a request, and the paths have "
            f"{paths.longest}; make longer ones, or give the policy a lower `longest`"
        )
    if paths.weigh != policy.weigh:
        raise PolicyError(
            f"{policy.kind} weighs votes by {policy.weigh}, and the paths by {paths.weigh}; "
            "make paths with weigh=policy.weigh"
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProblemResults:
    """A policy's mean results on each problem. Arrays have one value per problem unless a shape is given."""

    cost: Floats  # mean cost in samples, or in the modes' unit of cost if there are several modes
    accuracy: Floats  # share of right answers, 0 to 1; NaN if unknown
    # share of requests whose answer wins a vote of all recorded samples of the most expensive mode
    agreement: Floats
    waves: Floats  # mean number of rounds of calls
    tokens: Floats  # mean number of output tokens; NaN if unknown
    counts: Ints = field(repr=False)  # number of requests with 0, 1, 2, ... samples, over all problems
    # number of requests with 0, 1, ... rounds of calls; shape (problems, rounds + 1)
    rounds: Ints = field(repr=False)
    by_mode: Floats  # mean number of samples of each mode; shape (problems, modes)
    # share of requests whose answer is guaranteed to be the model's most frequent one; None if not measured
    certified: Floats | None = None

    @classmethod
    def from_run(cls, paths: Paths | ModePaths, policy_run: PolicyRun) -> "ProblemResults":
        """Averages a run of a policy over the random orders (paths) of each problem's samples."""
        return cls(
            cost=paths.mean_per_problem(policy_run.cost),
            accuracy=paths.mean_per_problem(policy_run.grade),
            agreement=paths.mean_per_problem(policy_run.agrees),
            waves=paths.mean_per_problem(policy_run.waves),
            tokens=paths.mean_per_problem(policy_run.tokens),
            counts=np.bincount(policy_run.drawn, minlength=int(np.sum(paths.longest)) + 1),
            rounds=_count_rounds(paths, policy_run.waves),
            by_mode=paths.mean_per_problem(policy_run.by_mode),
        )

    @classmethod
    def from_policy(
        cls,
        policy: Policy,
        paths: Paths | ModePaths,
        *,
        dial: float | Floats | None,
        reading: Floats | None = None,
    ) -> "ProblemResults":
        """Runs the policy along random orders (paths) of samples, and averages by problem."""
        policy_run = run_policy(policy, paths, dial=dial, reading=reading)
        results, certified = cls.from_run(paths, policy_run), None
        if isinstance(paths, Paths):  # no policy with several modes guarantees its answers
            ends = paths.state_after(np.arange(len(paths)), policy_run.drawn)
            certified = policy.mask_certified(ends, dial)
        if certified is None:
            return results
        return replace(results, certified=paths.mean_per_problem(certified.astype(np.float64)))

    @classmethod
    def merge(cls, parts: "Sequence[ProblemResults]") -> "ProblemResults":
        """Joins the results of several blocks of problems."""
        names = ["cost", "accuracy", "agreement", "waves", "tokens", "by_mode", "rounds"]
        names += [] if parts[0].certified is None else ["certified"]
        return cls(
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names},
            counts=np.sum([part.counts for part in parts], axis=0),
        )


def _count_rounds(paths: Paths | ModePaths, waves: Ints) -> Ints:
    """Counts each problem's requests with 0, 1, ... rounds of calls; shape (problems, rounds + 1)."""
    shape = (len(paths.ballots), int(np.sum(paths.longest)) + 1)
    return np.bincount(paths.problems * shape[1] + waves, minlength=shape[0] * shape[1]).reshape(shape)


def count_most(rounds: Floats | Ints, share: float = 1.0) -> int:
    """Returns the smallest number of rounds that is enough for this share of the requests.

    `rounds` counts the requests with 0, 1, 2, ... rounds of calls.

    >>> count_most(np.array([0, 90, 8, 2]), 0.95), count_most(np.array([0, 90, 8, 2]))
    (2, 3)
    """
    seen = np.cumsum(rounds)
    return int(np.searchsorted(seen, seen[-1] * share * (1 - _ROUNDING)))


@dataclass(frozen=True, kw_only=True, eq=False)
class PathBlock:
    """A block of problems, and a random generator that draws the same orders of their samples every time."""

    ballots: Ballots
    reading: Floats  # what `policy.read` returns for these prompts; one row per prompt
    start: int  # index of the block's first problem among all problems
    layout: PathLayout
    rng: np.random.Generator  # random generator, in the state from which this block's random orders are drawn
    weigh: VoteWeights | None

    @cached_property
    def paths(self) -> Paths | ModePaths:
        """The random orders of the problems' samples, drawn on first use and kept."""
        return self.draw()

    def draw(self) -> Paths | ModePaths:
        """Draws the random orders of the problems' samples, without keeping them."""
        rng, layout = copy.deepcopy(self.rng), self.layout
        if layout.by_mode:
            return draw_paths_by_mode(
                self.ballots, weigh=self.weigh, longest=layout.by_mode, orders=layout.orders, rng=rng
            )
        return build_paths(self.ballots, layout.draw_orders(self.ballots, rng), weigh=self.weigh)


def split_paths(
    policy: Policy, ballots: Ballots, reading: Floats, *, layout: PathLayout, rng: np.random.Generator
) -> Iterator[PathBlock]:
    """Splits problems into blocks whose random orders of samples fit in memory.

    With one mode, each block gets a copy of `rng`, which then skips the numbers that the block will use, so
    the orders don't depend on the blocks. With several modes, each block has a generator of its own.
    """
    several = len(ballots.modes) > 1
    seed = int(rng.integers(2**31)) if several else 0
    draws = layout.shuffles * ballots.classes.shape[1]  # number of random numbers that each problem needs
    step = max(1, _MODE_PATHS // layout.orders if several else _MAX_CELLS // draws)
    for number, start in enumerate(range(0, len(ballots), step)):
        rows = np.arange(start, min(start + step, len(ballots)))
        yield PathBlock(
            ballots=ballots if len(rows) == len(ballots) else ballots.only(rows),
            reading=reading[rows],
            start=start,
            layout=layout,
            rng=np.random.default_rng([seed, number]) if several else copy.deepcopy(rng),
            weigh=policy.weigh,
        )
        if not several:
            skip_draws(rng, len(rows) * draws)


def skip_draws(rng: np.random.Generator, draws: int) -> None:
    """Puts a random generator into the state that it has after `draws` more 64-bit numbers."""
    if not isinstance(rng.bit_generator, np.random.PCG64):
        for start in range(0, draws, _SKIPPED_AT_ONCE):
            rng.integers(0, 1 << 62, min(_SKIPPED_AT_ONCE, draws - start), dtype=np.int64)
        return
    before: Any = rng.bit_generator.state
    rng.bit_generator.advance(draws)
    after: Any = rng.bit_generator.state
    # `advance` discards the unused 32 bits of the last 64-bit number, if any, so restore them
    rng.bit_generator.state = after | {name: before[name] for name in ("has_uint32", "uinteger")}


def replay_block(policy: Policy, dial: float | None, block: PathBlock) -> ProblemResults:
    """Runs the policy on a block of problems; returns the results per problem."""
    reading, dials = place_requests(policy, dial, block.ballots.prompts, block.reading, block.layout.orders)
    return ProblemResults.from_policy(policy, block.paths, dial=dials, reading=reading)


def place_requests(
    policy: Policy, dial: float | None, prompts: Sequence[str], reading: Floats, orders: int
) -> tuple[Floats, float | Floats | None]:
    """Returns a row of `reading` and a price or threshold for each random order of each prompt's samples."""
    return policy.repeat_reading(reading, orders), policy.spread_dial(dial, place_orders(prompts, orders))


def count_places(policy: Policy, requests: int) -> int:
    """Returns at how many slightly different prices each prompt is decided, to make the mean cost smooth."""
    return 1 if policy.dial is None else max(1, min(_MOST_PLACES, _PLACES // max(1, requests)))


class ExactReplay:
    """Computes the exact accuracy of unweighted votes of b samples, for each b when it is first needed."""

    def __init__(self, ballots: Ballots, *, map_blocks: BlockMap = map) -> None:
        self._ballots = ballots
        self._map_blocks = map_blocks
        self._grades = grade_samples(ballots)
        self._agreement = compute_agreement(ballots)
        # number of samples b -> accuracy and agreement, each with one value per problem
        self._scores: dict[int, tuple[Floats, Floats]] = {}

    def replay(
        self, policy: Policy, *, dial: float | Floats | None, reading: Floats | None = None
    ) -> ProblemResults:
        """Returns the results of a policy that decides from the prompt alone and doesn't weigh votes.

        `reading` and `dial` may have several rows for each prompt; results are averaged over them.
        """
        reading = policy.read(self._ballots.prompts) if reading is None else reading
        budgets = decide_first_wave(policy, reading, dial).counts.reshape(len(self._ballots), -1)
        chosen = np.unique(budgets).tolist()
        self._score(chosen)
        accuracy, agreement = np.zeros(len(budgets)), np.zeros(len(budgets))
        for budget in chosen:
            share = (budgets == budget).mean(axis=1)
            rows = share > 0
            for total, values in zip((accuracy, agreement), self._scores[budget], strict=True):
                total[rows] += share[rows] * values[rows]
        cost = budgets.mean(axis=1)
        return ProblemResults(
            cost=cost,
            accuracy=accuracy,
            agreement=agreement,
            waves=np.ones(len(budgets)),
            tokens=cost * compute_mean_tokens(self._ballots),
            counts=np.bincount(budgets.reshape(-1), minlength=policy.longest + 1),
            rounds=np.tile(np.arange(policy.longest + 1) == 1, (len(budgets), 1)).astype(np.int64),
            by_mode=cost[:, None],
        )

    def _score(self, budgets: Iterable[int]) -> None:
        new = [budget for budget in budgets if budget not in self._scores]
        if new:
            accuracy, agreement = (
                score_exact_vote(self._ballots, values, new, map_blocks=self._map_blocks).accuracy
                for values in (self._grades, self._agreement)
            )
            self._scores |= {budget: (accuracy[:, k], agreement[:, k]) for k, budget in enumerate(new)}


def compute_agreement(ballots: Ballots) -> Floats:
    """Returns 1 for each sample whose answer wins a vote of all its problem's samples, else 0.

    If n answers tie, their samples get 1/n. A cell without a recorded sample gets NaN.
    """
    share = compute_full_vote(ballots)  # 1 for the winner, else 0; shape (problems, answers)
    agreement = np.zeros(ballots.classes.shape)
    row, column = np.nonzero(ballots.classes >= 0)
    agreement[row, column] = share[row, ballots.classes[row, column]]
    agreement[ballots.classes == ABSENT] = np.nan
    return agreement


def compute_mean_tokens(ballots: Ballots) -> Floats:
    """Returns each problem's mean number of output tokens per sample; NaN if unknown."""
    present = ballots.classes != ABSENT
    return np.asarray(np.where(present, ballots.tokens, 0.0).sum(axis=1) / np.maximum(1, present.sum(axis=1)))


def can_replay_exactly(policy: Policy) -> bool:
    """Whether a policy's results can be computed exactly, without random orders of the samples."""
    return policy.one_shot and policy.weigh is None and policy.longest <= MAX_EXACT_BUDGET


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sweep:
    """A policy's mean results at each price or threshold, for each problem; shape (dials, problems)."""

    dials: tuple[float | None, ...]
    cost: Floats  # mean number of samples
    accuracy: Floats  # share of right answers, 0 to 1; NaN if unknown
    waves: Floats  # mean number of rounds of calls
    tokens: Floats  # mean number of output tokens; NaN if unknown
    rounds: Ints  # number of requests with 0, 1, ... rounds of calls; shape (dials, problems, rounds + 1)

    def __len__(self) -> int:
        return len(self.dials)

    def select(self, problems: Sequence[int] | np.ndarray[tuple[int, ...], np.dtype[np.integer]]) -> "Sweep":
        """Returns the results of some problems; `problems` has their indexes."""
        rows = np.asarray(problems, dtype=np.intp)
        arrays = {f.name: getattr(self, f.name)[:, rows] for f in fields(self) if f.name != "dials"}
        return Sweep(dials=self.dials, **arrays)


def sweep(policy: Policy, paths: Paths, dials: Sequence[float | None]) -> Sweep:
    """Runs the policy along random orders (paths) of samples, at each price or threshold in `dials`."""
    reading = policy.read(paths.ballots.prompts)
    results = [ProblemResults.from_policy(policy, paths, dial=dial, reading=reading) for dial in dials]
    shape = (len(results), len(paths.ballots))
    names = [f.name for f in fields(Sweep) if f.name != "dials"]
    stacked = {name: np.array([getattr(each, name) for each in results]) for name in names}
    return Sweep(
        dials=tuple(dials),
        **{name: values.reshape(shape + values.shape[2:]) for name, values in stacked.items()},
    )
