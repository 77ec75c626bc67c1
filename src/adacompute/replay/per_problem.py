"""A policy's results on each problem, along recorded paths or exactly, at one dial or several.

A policy that decides from the prompt alone takes an unweighted vote of b samples, whose exact accuracy over
all subsets is known, so no orders are needed. Giving ties to the first answer seen makes each tied answer win
equally often, so the mean over all orders equals sharing the tie.
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

_MAX_CELLS = 1 << 22  # draws over all paths of a block, about 60 bytes each
_MODE_PATHS = 6000  # paths in a block of several modes, up to a hundred megabytes
_SKIPPED_AT_ONCE = 1 << 20  # random numbers
_ROUNDING = 1e-9  # smaller shares of requests are rounding errors
_PLACES, _MOST_PLACES = 1 << 15, 64  # places: all prompts together (about), and most per prompt


def run_policy(
    policy: Policy, paths: Paths | ModePaths, *, dial: float | Floats | None, reading: Floats | None = None
) -> PolicyRun:
    """Runs the policy along every path, wave by wave, until it stops.

    `dial` may be given per path, (paths,). `reading` is what `policy.read` returns for the prompts of the
    paths' problems, or for each path, if the caller has it.
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
    """So many samples of one mode for every request, in one wave."""
    walk, rows = Walk(paths), np.arange(len(paths))
    walk.draw(rows, Draws(np.full(len(rows), mode), np.full(len(rows), samples)))
    return walk.finish(np.ones(len(rows), dtype=np.int64))


def decide_first_wave(policy: Policy, reading: Floats, dial: float | Floats | None) -> Draws:
    """The first draws for each request, as `decide` returns them."""
    draws = policy.decide(reading, make_empty_state(len(reading), len(policy.names)), dial)
    if (draws.counts < 1).any():
        raise PolicyError(f"{policy.kind} asks for no sample on an empty tally; a request needs at least 1")
    return draws


def check_paths(policy: Policy, paths: Paths | ModePaths) -> None:
    """Raises PolicyError if the paths are too short for the policy, or weigh votes differently."""
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
    """Expected results per problem, all (problems,)."""

    cost: Floats  # samples; with several modes, their cost
    accuracy: Floats  # 0 to 1; NaN if unknown
    agreement: Floats  # with the vote of all samples, 0 to 1
    waves: Floats
    tokens: Floats  # output tokens; NaN if unknown
    counts: Ints = field(repr=False)  # (longest + 1,) requests by number of samples
    rounds: Ints = field(repr=False)  # (problems, waves + 1) requests by number of waves
    by_mode: Floats  # (problems, modes) samples
    certified: Floats | None = None  # share of requests with a certified answer; None if not measured

    @classmethod
    def from_run(cls, paths: Paths | ModePaths, policy_run: PolicyRun) -> "ProblemResults":
        """The means over each problem's paths."""
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
        """The results of the policy along paths."""
        policy_run = run_policy(policy, paths, dial=dial, reading=reading)
        results, certified = cls.from_run(paths, policy_run), None
        if isinstance(paths, Paths):  # votes over several modes are never certified
            ends = paths.state_after(np.arange(len(paths)), policy_run.drawn)
            certified = policy.mask_certified(ends, dial)
        if certified is None:
            return results
        return replace(results, certified=paths.mean_per_problem(certified.astype(np.float64)))

    @classmethod
    def merge(cls, parts: "Sequence[ProblemResults]") -> "ProblemResults":
        """The results of several blocks, concatenated."""
        names = ["cost", "accuracy", "agreement", "waves", "tokens", "by_mode", "rounds"]
        names += [] if parts[0].certified is None else ["certified"]
        return cls(
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names},
            counts=np.sum([part.counts for part in parts], axis=0),
        )


def _count_rounds(paths: Paths | ModePaths, waves: Ints) -> Ints:
    """Requests by number of waves, (problems, waves + 1)."""
    shape = (len(paths.ballots), int(np.sum(paths.longest)) + 1)
    return np.bincount(paths.problems * shape[1] + waves, minlength=shape[0] * shape[1]).reshape(shape)


def count_most(rounds: Floats | Ints, share: float = 1.0) -> int:
    """The number of waves that this share of requests doesn't exceed; `rounds` are counts (waves + 1,).

    >>> count_most(np.array([0, 90, 8, 2]), 0.95), count_most(np.array([0, 90, 8, 2]))
    (2, 3)
    """
    seen = np.cumsum(rounds)
    return int(np.searchsorted(seen, seen[-1] * share * (1 - _ROUNDING)))


@dataclass(frozen=True, kw_only=True, eq=False)
class PathBlock:
    """Some problems, and the random state for their paths, which are the same each time."""

    ballots: Ballots
    reading: Floats  # what `policy.read` returns for the prompts
    start: int  # first row among all problems
    layout: PathLayout
    rng: np.random.Generator  # at the start of this block's part of the stream
    weigh: VoteWeights | None

    @cached_property
    def paths(self) -> Paths | ModePaths:
        """The paths, drawn on first use and kept."""
        return self.draw()

    def draw(self) -> Paths | ModePaths:
        """The paths, drawn for a single use."""
        rng, layout = copy.deepcopy(self.rng), self.layout
        if layout.by_mode:
            return draw_paths_by_mode(
                self.ballots, weigh=self.weigh, longest=layout.by_mode, orders=layout.orders, rng=rng
            )
        return build_paths(self.ballots, layout.draw_orders(self.ballots, rng), weigh=self.weigh)


def split_paths(
    policy: Policy, ballots: Ballots, reading: Floats, *, layout: PathLayout, rng: np.random.Generator
) -> Iterator[PathBlock]:
    """Splits problems into blocks whose paths fit in memory.

    With one mode, `rng` ends as if everything had been drawn; with several, each block has its own stream.
    """
    several = len(ballots.modes) > 1
    seed = int(rng.integers(2**31)) if several else 0
    draws = layout.shuffles * ballots.classes.shape[1]  # per problem
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
    """Advances a generator by this many 64-bit numbers."""
    if not isinstance(rng.bit_generator, np.random.PCG64):
        for start in range(0, draws, _SKIPPED_AT_ONCE):
            rng.integers(0, 1 << 62, min(_SKIPPED_AT_ONCE, draws - start), dtype=np.int64)
        return
    before: Any = rng.bit_generator.state
    rng.bit_generator.advance(draws)
    after: Any = rng.bit_generator.state
    # restore an unused half of a number, which `advance` discards
    rng.bit_generator.state = after | {name: before[name] for name in ("has_uint32", "uinteger")}


def replay_block(policy: Policy, dial: float | None, block: PathBlock) -> ProblemResults:
    """The policy's results on a block's problems."""
    reading, dials = place_requests(policy, dial, block.ballots.prompts, block.reading, block.layout.orders)
    return ProblemResults.from_policy(policy, block.paths, dial=dials, reading=reading)


def place_requests(
    policy: Policy, dial: float | None, prompts: Sequence[str], reading: Floats, orders: int
) -> tuple[Floats, float | Floats | None]:
    """The readings for each order of each prompt, and the dials, by the request's place."""
    return policy.repeat_reading(reading, orders), policy.spread_dial(dial, place_orders(prompts, orders))


def count_places(policy: Policy, requests: int) -> int:
    """The number of places to decide each prompt at, without orders: enough for smooth costs."""
    return 1 if policy.dial is None else max(1, min(_MOST_PLACES, _PLACES // max(1, requests)))


class ExactReplay:
    """Unweighted votes of b samples per problem, scored exactly when first needed."""

    def __init__(self, ballots: Ballots, *, map_blocks: BlockMap = map) -> None:
        self._ballots = ballots
        self._map_blocks = map_blocks
        self._grades = grade_samples(ballots)
        self._agreement = compute_agreement(ballots)
        self._scores: dict[int, tuple[Floats, Floats]] = {}  # accuracy and agreement by b, both (problems,)

    def replay(
        self, policy: Policy, *, dial: float | Floats | None, reading: Floats | None = None
    ) -> ProblemResults:
        """The results of a policy that decides from the prompt alone and doesn't weigh votes.

        `reading` and `dial` may be given for several places per prompt, (prompts * places,).
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
    """Each answer's share of the vote of all samples of its problem, (problems, samples); NaN if absent."""
    share = compute_full_vote(ballots)  # (problems, classes)
    agreement = np.zeros(ballots.classes.shape)
    row, column = np.nonzero(ballots.classes >= 0)
    agreement[row, column] = share[row, ballots.classes[row, column]]
    agreement[ballots.classes == ABSENT] = np.nan
    return agreement


def compute_mean_tokens(ballots: Ballots) -> Floats:
    """Mean output tokens per sample, (problems,); NaN if unknown."""
    present = ballots.classes != ABSENT
    return np.asarray(np.where(present, ballots.tokens, 0.0).sum(axis=1) / np.maximum(1, present.sum(axis=1)))


def can_replay_exactly(policy: Policy) -> bool:
    """Whether a policy can be replayed exactly, without orders."""
    return policy.one_shot and policy.weigh is None and policy.longest <= MAX_EXACT_BUDGET


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sweep:
    """Expected results per dial and problem, all (dials, problems) except the dials."""

    dials: tuple[float | None, ...]
    cost: Floats  # samples
    accuracy: Floats  # 0 to 1; NaN if unknown
    agreement: Floats  # with the vote of all samples, 0 to 1
    waves: Floats
    tokens: Floats  # NaN if unknown
    rounds: Ints  # (dials, problems, waves + 1) requests by number of waves

    def __len__(self) -> int:
        return len(self.dials)

    def select(self, problems: Sequence[int] | np.ndarray[tuple[int, ...], np.dtype[np.integer]]) -> "Sweep":
        """Some of the problems, by row."""
        rows = np.asarray(problems, dtype=np.intp)
        arrays = {f.name: getattr(self, f.name)[:, rows] for f in fields(self) if f.name != "dials"}
        return Sweep(dials=self.dials, **arrays)


def sweep(
    policy: Policy, paths: Paths, dials: Sequence[float | None], *, exact: ExactReplay | None = None
) -> Sweep:
    """The policy's results at each dial (`[None]` if it has none), on paths with its own votes.

    `exact` must be made from the same ballots; with it, a policy that decides from the prompt alone is scored
    exactly.
    """
    reading = policy.read(paths.ballots.prompts)
    if exact is not None and can_replay_exactly(policy):
        results = [exact.replay(policy, dial=dial, reading=reading) for dial in dials]
    else:
        results = [ProblemResults.from_policy(policy, paths, dial=dial, reading=reading) for dial in dials]
    shape = (len(results), len(paths.ballots))
    names = [f.name for f in fields(Sweep) if f.name != "dials"]
    stacked = {name: np.array([getattr(each, name) for each in results]) for name in names}
    return Sweep(
        dials=tuple(dials),
        **{name: values.reshape(shape + values.shape[2:]) for name, values in stacked.items()},
    )
