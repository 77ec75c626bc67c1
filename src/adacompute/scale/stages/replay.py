"""`replay` and `calibrate` over a folder of Parquet shards, equal to the local results.

A shard enters the random generator's stream at its own part, so its paths are those of one machine.
Policies travel as the plain data that they are stored as.
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from adacompute.answers import Task, VoteWeights
from adacompute.errors import NotRecorded, PolicyError, ScaleError
from adacompute.policies.base import SHARPNESS, Policy
from adacompute.policies.paths import PathLayout, build_paths
from adacompute.policies.stopping import StoppingPolicy
from adacompute.pool import Ballots, open_pool
from adacompute.replay.calibrate import check_calibration_budget, find_dial
from adacompute.replay.per_problem import (
    ProblemResults,
    can_replay_exactly,
    compute_mean_tokens,
    decide_first_wave,
    run_policy,
)
from adacompute.replay.replay import (
    Replayed,
    build_result,
    check_orders,
    check_policy,
    find_replayable,
    replay,
    resolve_dial,
)
from adacompute.scale.shard_passes import ShardRecord, pack_policy, unpack_policy
from adacompute.scale.stages.score import exact_votes, fit_weights_on_shards, settle_model_on_shards
from adacompute.scale.stages.sharded_pool import ShardedPool, ShardPart, open_sharded_pool

__all__ = ["advance_generator", "calibrate_shards", "replay_open_shards", "replay_shards"]

Ints = npt.NDArray[np.int64]


def check_generator(rng: np.random.Generator) -> None:
    """Refuses generators whose stream can't be entered in the middle."""
    if not isinstance(rng.bit_generator, np.random.PCG64):
        raise ScaleError(
            f"a {type(rng.bit_generator).__name__} can't be shared out to shards; give "
            "rng=np.random.default_rng(seed), which is a PCG64, or engine='local'"
        )


def advance_generator(rng: np.random.Generator, draws: int) -> np.random.Generator:
    """A generator that is `draws` 64-bit numbers further on; the given one stays as it is."""
    state: Any = rng.bit_generator.state
    advanced = np.random.PCG64()
    advanced.state = state
    advanced.advance(draws)
    moved: Any = advanced.state
    advanced.state = moved | {"has_uint32": state["has_uint32"], "uinteger": state["uinteger"]}
    return np.random.Generator(advanced)


def iterate_runs(ranks: Ints) -> Iterator[slice]:
    """Slices of ascending ranks within which they follow each other without a gap."""
    ends = np.flatnonzero(np.diff(ranks) != 1) + 1
    for start, end in zip([0, *ends.tolist()], [*ends.tolist(), len(ranks)], strict=True):
        if end > start:
            yield slice(start, end)


def select_rows(
    policy: Policy, shards: ShardedPool, too_few: Literal["error", "drop"]
) -> tuple[Ints, tuple[str, ...]]:
    """The problems to replay, and the ids of those left out."""
    index = shards.index
    good = find_replayable(index.ids, index.drawn, index.votable(), policy.longest, too_few=too_few)
    return np.flatnonzero(good), tuple(index.ids[i] for i in np.flatnonzero(~good).tolist())


def gather_prompts(shards: ShardedPool, rows: Ints) -> Ballots:
    """Ballots without samples: only the prompts of these problems are brought here."""
    texts = [text for report in shards.ask_shards(_read_prompts, rows) for text in report["prompts"]]
    place = np.argsort(np.concatenate([part.ranks for part in shards.split_rows(rows)]), kind="stable")
    none = np.zeros((len(rows), 0))
    unknown = (None,) * len(rows)
    return Ballots(
        ids=tuple(shards.index.ids[row] for row in rows.tolist()),
        prompts=tuple(texts[i] for i in place.tolist()),
        subjects=unknown,
        levels=unknown,
        gold_known=np.zeros(len(rows), dtype=bool),
        classes=none.astype(np.int32),
        correct=none.astype(np.float32),
        tokens=none,
        logprob=none,
        entropy=none,
    )


def _read_prompts(ballots: Ballots, _: ShardPart, __: None) -> ShardRecord:
    return {"prompts": list(ballots.prompts)}


def settle_sharded_policy(
    policy: Policy, shards: ShardedPool, rows: Ints, prompt_ballots: Ballots, *, copy_first: bool
) -> Policy:
    """The policy, or a copy of it (`copy_first`), settled on these samples where that applies."""
    if not isinstance(policy, StoppingPolicy):  # no other one takes anything from samples
        return policy
    target = copy.copy(policy) if copy_first else policy

    def confidence(_: Ballots) -> VoteWeights | None:
        try:
            weights = fit_weights_on_shards(shards, rows, "logprob")
        except NotRecorded:
            return None
        if not weights.sharpness:
            return None
        model = target.prior_.signal_model
        if model is not None:
            model = settle_model_on_shards(shards, rows, model)
        return replace(weights, sharpness=SHARPNESS, model=model)

    return target.settle_by(
        prompt_ballots,
        fit_weights=confidence,
        compute_quantiles=lambda _: target.compute_quantiles(shards.gather_ballots(rows)),
    )


PROBLEM_FIELDS = ("cost", "accuracy", "agreement", "waves", "tokens")  # numbers that a problem has
_MAX_CELLS = 1 << 22  # draws of all paths that a task holds at a time, each some 60 bytes
_NO_BUDGETS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PathDrawing:
    """How every shard draws its paths."""

    stream: np.random.Generator  # before the first problem's draws
    layout: PathLayout
    weigh: VoteWeights | None
    dials: tuple[float | None, ...]


def plan_drawing(
    policy: Policy,
    shards: ShardedPool,
    rows: Ints,
    *,
    orders: int,
    rng: np.random.Generator,
    dials: tuple[float | None, ...],
) -> PathDrawing:
    """How paths are drawn of these problems."""
    fewest = int(shards.index.drawn[rows].min())
    layout = PathLayout.for_orders(fewest, orders=orders, longest=policy.longest)
    return PathDrawing(stream=rng, layout=layout, weigh=policy.weigh, dials=dials)


def decide_budgets(ballots: Ballots, _: ShardPart, argument: Any) -> ShardRecord:  # noqa: ANN401
    """How many samples the policy asks for on the prompt alone, and the mean tokens of a sample."""
    policy, dial = unpack_policy(argument[0]), argument[1]
    budgets = decide_first_wave(policy, policy.read(ballots.prompts), dial) if len(ballots) else _NO_BUDGETS
    return {"budgets": budgets, "tokens": compute_mean_tokens(ballots)}


def replay_shard(ballots: Ballots, part: ShardPart, argument: Any) -> ShardRecord:  # noqa: ANN401
    """Replays the policy along this shard's paths, some problems at a time."""
    policy, drawing = unpack_policy(argument[0]), argument[1]
    results = [
        ProblemResults.from_policy(
            policy, build_paths(problems, order, weigh=drawing.weigh), dial=drawing.dials[0]
        )
        for problems, order in _iterate_orders(ballots, part, drawing)
    ]
    counts = np.zeros(drawing.layout.longest + 1, dtype=np.int64)
    return {
        **{
            name: np.concatenate([np.zeros(0), *(getattr(result, name) for result in results)])
            for name in PROBLEM_FIELDS
        },
        "counts": np.sum([counts, *(result.counts for result in results)], axis=0),
        "most_waves": max((result.most_waves for result in results), default=0),
    }


def count_draws(ballots: Ballots, part: ShardPart, argument: Any) -> ShardRecord:  # noqa: ANN401
    """How many samples the policy draws on all paths together, at each dial."""
    policy, drawing = unpack_policy(argument[0]), argument[1]
    total = np.zeros(len(drawing.dials), dtype=np.int64)
    for problems, order in _iterate_orders(ballots, part, drawing):
        paths = build_paths(problems, order, weigh=drawing.weigh)
        reading = policy.read(problems.prompts)
        total += [
            int(run_policy(policy, paths, dial=dial, reading=reading).drawn.sum()) for dial in drawing.dials
        ]
    return {"drawn": total}


def count_first_draws(ballots: Ballots, _: ShardPart, argument: Any) -> ShardRecord:  # noqa: ANN401
    """How many samples the policy asks for on the prompts alone, together, at each dial."""
    policy, dials = unpack_policy(argument[0]), argument[1]
    reading = policy.read(ballots.prompts)
    sums = [int(decide_first_wave(policy, reading, dial).sum()) if len(ballots) else 0 for dial in dials]
    return {"drawn": np.array(sums, dtype=np.int64)}


def _iterate_orders(
    ballots: Ballots, part: ShardPart, drawing: PathDrawing
) -> Iterator[tuple[Ballots, Ints]]:
    """Some problems at a time, with which samples their paths draw, as one machine would draw them."""
    draws_per_problem = drawing.layout.shuffles * ballots.classes.shape[1]  # numbers that are drawn
    step = max(1, _MAX_CELLS // max(1, draws_per_problem))
    for ranks_run in iterate_runs(part.ranks):
        for start in range(ranks_run.start, ranks_run.stop, step):
            rows = np.arange(start, min(start + step, ranks_run.stop))
            stream = advance_generator(drawing.stream, int(part.ranks[start]) * draws_per_problem)
            problems = ballots.only(rows)
            yield problems, drawing.layout.draw_orders(problems, stream)


def replay_shards(
    policy: Policy,
    folder: Path | str,
    *,
    price: float | None = None,
    orders: int = 100,
    rng: np.random.Generator | None = None,
    too_few: Literal["error", "drop"] = "error",
    task: Task | None = None,
    engine: Literal["local", "ray"] = "ray",
    workers: int | None = None,
) -> Replayed:
    """As `replay(policy, open_pool(folder), ...)`, with exactly the same numbers; by Ray, shard by shard."""
    value = resolve_dial(check_policy(policy), price)
    settings: dict[str, Any] = {"price": value, "orders": orders, "rng": rng, "too_few": too_few}
    if engine == "local":
        with open_pool(folder, task=task) as pool:
            return replay(policy, pool, **settings)
    with open_sharded_pool(Path(folder), task=task, workers=workers) as shards:
        return replay_open_shards(policy, shards, **settings)


def replay_open_shards(
    policy: Policy,
    shards: ShardedPool,
    *,
    price: float | None = None,
    orders: int = 100,
    rng: np.random.Generator | None = None,
    too_few: Literal["error", "drop"] = "error",
) -> Replayed:
    """A policy over shards that are open."""
    value = resolve_dial(check_policy(policy), price)
    rng = check_orders(orders, rng)
    check_generator(rng)
    rows, dropped = select_rows(policy, shards, too_few)
    prompt_ballots = gather_prompts(shards, rows)
    policy = settle_sharded_policy(policy, shards, rows, prompt_ballots, copy_first=True)
    if can_replay_exactly(policy):
        per_problem, count = _replay_exactly(policy, shards, rows, value), 0
    else:
        drawing = plan_drawing(policy, shards, rows, orders=orders, rng=rng, dials=(value,))
        reports = shards.ask_shards(
            replay_shard, rows, [(pack_policy(policy), drawing)] * len(shards.ballots)
        )
        per_problem, count = (
            _merge_problems(shards, rows, reports),
            drawing.layout.shuffles * drawing.layout.windows,
        )
        after = advance_generator(rng, len(rows) * drawing.layout.shuffles * shards.width)
        rng.bit_generator.state = after.bit_generator.state
    return build_result(policy, value, prompt_ballots, per_problem, orders=count, dropped=dropped, rng=rng)


def _replay_exactly(policy: Policy, shards: ShardedPool, rows: Ints, dial: float | None) -> ProblemResults:
    """A policy that decides on the prompt alone: every budget that it gives is scored exactly."""
    reports = shards.ask_shards(decide_budgets, rows, [(pack_policy(policy), dial)] * len(shards.ballots))
    budgets = shards.merge_reports(reports, "budgets", rows)
    chosen = np.unique(budgets).tolist()
    column = np.searchsorted(chosen, budgets)
    at = np.arange(len(rows))
    right, alike = (
        exact_votes(shards, rows, chosen, target=worth).accuracy[at, column] for worth in ("right", "agrees")
    )
    return ProblemResults.from_budgets(
        budgets,
        accuracy=right,
        agreement=alike,
        tokens=shards.merge_reports(reports, "tokens", rows),
        longest=policy.longest,
    )


def _merge_problems(shards: ShardedPool, rows: Ints, reports: Sequence[ShardRecord]) -> ProblemResults:
    """What shards found, put together."""
    arrays = {name: shards.merge_reports(reports, name, rows) for name in PROBLEM_FIELDS}
    return ProblemResults(
        **arrays,
        counts=np.sum([report["counts"] for report in reports], axis=0),
        most_waves=max(int(report["most_waves"]) for report in reports),
    )


_STEPS_AHEAD = 2  # steps of a bisection that are asked for beforehand


def calibrate_shards(
    policy: Policy,
    shards: ShardedPool,
    budget: float,
    *,
    orders: int = 50,
    rng: np.random.Generator | None = None,
    tolerance: float = 0.005,
    too_few: Literal["error", "drop"] = "error",
) -> float:
    """As `calibrate`, of a policy with a dial, over shards that are open; the policy is settled on them."""
    budget, tolerance = check_calibration_budget(budget, tolerance)
    rng = check_orders(orders, rng)
    check_generator(rng)
    if check_policy(policy).dial is None:
        raise PolicyError(
            f"{policy.kind} has no dial to find over shards; fit it for a budget of {budget:g} first"
        )
    rows, _ = select_rows(policy, shards, too_few)
    policy = settle_sharded_policy(policy, shards, rows, gather_prompts(shards, rows), copy_first=False)
    ask_costs = _build_cost_function(policy, shards, rows, orders, rng)
    known: dict[float, float] = {}
    needed_dials: set[float] = set()

    def cost(dial: float) -> float:
        if dial not in known:
            wanted = _predict_dials(dial, sorted(needed_dials), by_ratio=policy.dial != "threshold")
            known.update(zip(wanted, ask_costs(wanted), strict=True))
        needed_dials.add(dial)
        return known[dial]

    return find_dial(policy, cost, budget, tolerance)


def _build_cost_function(
    policy: Policy, shards: ShardedPool, rows: Ints, orders: int, rng: np.random.Generator
) -> Callable[[Sequence[float]], list[float]]:
    """A function that gives the mean cost at each of some dials, in one pass."""

    def costs(dials: Sequence[float]) -> list[float]:
        work: Any = count_first_draws
        argument: Any = tuple(dials)
        count = len(rows)
        if not policy.one_shot:
            work = count_draws
            argument = plan_drawing(policy, shards, rows, orders=orders, rng=rng, dials=argument)
            count *= argument.layout.shuffles * argument.layout.windows
        reports = shards.ask_shards(work, rows, [(pack_policy(policy), argument)] * len(shards.ballots))
        total = np.sum([report["drawn"] for report in reports], axis=0)
        return [float(np.float64(draws) / count) for draws in total.tolist()]

    return costs


def _predict_dials(dial: float, known_dials: Sequence[float], *, by_ratio: bool) -> list[float]:
    """The dial, and those that a bisection asks for next: a pass costs more than one dial in it."""
    below = [value for value in known_dials if value < dial]
    above = [value for value in known_dials if value > dial]
    wanted = [dial]
    if not below or not above:
        return wanted
    ends = [below[-1], dial, above[0]]
    for _ in range(_STEPS_AHEAD):
        middles = [
            math.sqrt(low * high) if by_ratio and low > 0 else (low + high) / 2
            for low, high in pairwise(ends)
        ]
        wanted += middles
        ends = sorted([*ends, *middles])
    return wanted
