"""`replay` over a folder of Parquet shards, equal to the local one. Knows no protocol."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from adacompute.answers import Task
from adacompute.policies.base import Policy
from adacompute.pool import open_pool
from adacompute.replay.asked import checked_draws, checked_policy, dial_of
from adacompute.replay.each import Each, is_exact
from adacompute.replay.replay import replay, told
from adacompute.replay.result import Replayed
from adacompute.scale.stages.exact import exact_votes
from adacompute.scale.stages.opened import Opened, opened
from adacompute.scale.stages.packing import Record
from adacompute.scale.stages.settling import adapted_to, prompts_of, rows_of
from adacompute.scale.stages.streams import checked_stream, later
from adacompute.scale.stages.walking import EACH, along, beforehand, drawing_of, sent

__all__ = ["replay_shards", "replayed"]

Ints = npt.NDArray[np.int64]


def replay_shards(
    policy: Policy,
    folder: Path | str,
    *,
    price: float | None = None,
    dial: float | None = None,
    orders: int = 100,
    rng: np.random.Generator | None = None,
    too_few: Literal["error", "drop"] = "error",
    task: Task | None = None,
    engine: Literal["local", "ray"] = "ray",
    workers: int | None = None,
) -> Replayed:
    """As `replay(policy, open_pool(folder), ...)`, and the very same numbers; by Ray, shard by shard."""
    way: dict[str, Any] = {"price": price, "dial": dial, "orders": orders, "rng": rng, "too_few": too_few}
    if engine == "local":
        with open_pool(folder, task=task) as pool:
            return replay(policy, pool, **way)
    dial_of(checked_policy(policy), price, dial)
    with opened(Path(folder), task=task, workers=workers) as shards:
        return replayed(policy, shards, **way)


def replayed(
    policy: Policy,
    shards: Opened,
    *,
    price: float | None = None,
    dial: float | None = None,
    orders: int = 100,
    rng: np.random.Generator | None = None,
    too_few: Literal["error", "drop"] = "error",
) -> Replayed:
    """A policy over shards that are open."""
    value = dial_of(checked_policy(policy), price, dial)
    rng = checked_draws(orders, rng)
    checked_stream(rng)
    rows, dropped = rows_of(policy, shards, too_few)
    thin = prompts_of(shards, rows)
    policy = adapted_to(policy, shards, rows, thin, apart=True)
    if is_exact(policy):
        each, count = _exact(policy, shards, rows, value), 0
    else:
        drawing = drawing_of(policy, shards, rows, orders=orders, rng=rng, dials=(value,))
        found = shards.ask(along, rows, [(sent(policy), drawing)] * len(shards.ballots))
        each, count = _each(shards, rows, found), drawing.cut.shuffles * drawing.cut.windows
        after = later(rng, len(rows) * drawing.cut.shuffles * shards.width)
        rng.bit_generator.state = after.bit_generator.state
    return told(policy, value, thin, each, orders=count, dropped=dropped, rng=rng)


def _exact(policy: Policy, shards: Opened, rows: Ints, dial: float | None) -> Each:
    """A policy that decides on the prompt alone: every budget that it gives is scored exactly."""
    found = shards.ask(beforehand, rows, [(sent(policy), dial)] * len(shards.ballots))
    budgets = shards.merged(found, "budgets", rows)
    chosen = np.unique(budgets).tolist()
    column = np.searchsorted(chosen, budgets)
    at = np.arange(len(rows))
    right, alike = (
        exact_votes(shards, rows, chosen, worth=worth).accuracy[at, column] for worth in ("right", "agrees")
    )
    return Each.beforehand(
        budgets,
        accuracy=right,
        agreement=alike,
        tokens=shards.merged(found, "tokens", rows),
        longest=policy.longest,
    )


def _each(shards: Opened, rows: Ints, found: Sequence[Record]) -> Each:
    """What shards found, put together."""
    arrays = {name: shards.merged(found, name, rows) for name in EACH}
    return Each(
        **arrays,
        counts=np.sum([each["counts"] for each in found], axis=0),
        most_waves=max(int(each["most_waves"]) for each in found),
    )
