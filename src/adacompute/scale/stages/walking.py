"""Policies along the paths of one shard, in a worker. Knows no other shard.

A shard enters the generator's stream at its own part, so its paths are those of one machine. Policies travel
as what they are stored as.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.answers import Weigh
from adacompute.paths.paths import Cut, paths_of_orders
from adacompute.policies.base import Policy
from adacompute.policies.registry import POLICIES
from adacompute.pool import Ballots
from adacompute.replay.each import Each, mean_tokens
from adacompute.replay.run import first_wave, run
from adacompute.scale.stages.opened import Opened, Part
from adacompute.scale.stages.packing import Record
from adacompute.scale.stages.streams import later, runs

__all__ = ["EACH", "Drawing", "along", "beforehand", "counted", "drawing_of", "first_counts", "sent"]

Ints = npt.NDArray[np.int64]

EACH = ("cost", "accuracy", "agreement", "waves", "tokens")  # numbers that a problem has
_CELLS = 1 << 22  # draws of all paths that a task holds at a time, each some 60 bytes
_NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drawing:
    """What every shard draws its paths by."""

    stream: np.random.Generator  # before the first problem's draws
    cut: Cut
    weigh: Weigh | None
    dials: tuple[float | None, ...]


def drawing_of(
    policy: Policy,
    shards: Opened,
    rows: Ints,
    *,
    orders: int,
    rng: np.random.Generator,
    dials: tuple[float | None, ...],
) -> Drawing:
    """How paths are drawn of these problems."""
    fewest = int(shards.heads.drawn[rows].min())
    cut = Cut.of(fewest, orders=orders, longest=policy.longest)
    return Drawing(stream=rng, cut=cut, weigh=policy.weigh, dials=dials)


def sent(policy: Policy) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """A policy as it travels."""
    return policy.kind, policy.settings(), dict(policy.arrays())


def _made(given: tuple[str, dict[str, Any], dict[str, Any]]) -> Policy:
    kind, settings, arrays = given
    return POLICIES[kind].restored(settings, arrays)


def beforehand(ballots: Ballots, _: Part, given: Any) -> Record:  # noqa: ANN401
    """How many samples the policy asks for on the prompt alone, and what one takes in tokens."""
    policy, dial = _made(given[0]), given[1]
    budgets = first_wave(policy, policy.read(ballots.prompts), dial) if len(ballots) else _NONE
    return {"budgets": budgets, "tokens": mean_tokens(ballots)}


def along(ballots: Ballots, part: Part, given: Any) -> Record:  # noqa: ANN401
    """The policy along this shard's paths, some problems at a time."""
    policy, drawing = _made(given[0]), given[1]
    found = [
        Each.run(policy, paths_of_orders(some, order, weigh=drawing.weigh), dial=drawing.dials[0])
        for some, order in _orders(ballots, part, drawing)
    ]
    counts = np.zeros(drawing.cut.longest + 1, dtype=np.int64)
    return {
        **{name: np.concatenate([np.zeros(0), *(getattr(each, name) for each in found)]) for name in EACH},
        "counts": np.sum([counts, *(each.counts for each in found)], axis=0),
        "most_waves": max((each.most_waves for each in found), default=0),
    }


def counted(ballots: Ballots, part: Part, given: Any) -> Record:  # noqa: ANN401
    """How many samples the policy draws on all paths together, at each dial."""
    policy, drawing = _made(given[0]), given[1]
    total = np.zeros(len(drawing.dials), dtype=np.int64)
    for some, order in _orders(ballots, part, drawing):
        walked = paths_of_orders(some, order, weigh=drawing.weigh)
        reading = policy.read(some.prompts)
        total += [int(run(policy, walked, dial=dial, reading=reading).drawn.sum()) for dial in drawing.dials]
    return {"drawn": total}


def first_counts(ballots: Ballots, _: Part, given: Any) -> Record:  # noqa: ANN401
    """How many samples the policy asks for on the prompts alone, together, at each dial."""
    policy, dials = _made(given[0]), given[1]
    reading = policy.read(ballots.prompts)
    sums = [int(first_wave(policy, reading, dial).sum()) if len(ballots) else 0 for dial in dials]
    return {"drawn": np.array(sums, dtype=np.int64)}


def _orders(ballots: Ballots, part: Part, drawing: Drawing) -> Iterator[tuple[Ballots, Ints]]:
    """Some problems at a time, with which samples their paths draw, as one machine would draw them."""
    a_problem = drawing.cut.shuffles * ballots.classes.shape[1]  # numbers that are drawn
    step = max(1, _CELLS // max(1, a_problem))
    for run_ in runs(part.ranks):
        for start in range(run_.start, run_.stop, step):
            some = np.arange(start, min(start + step, run_.stop))
            stream = later(drawing.stream, int(part.ranks[start]) * a_problem)
            here = ballots.only(some)
            yield here, drawing.cut.orders(here, stream)
