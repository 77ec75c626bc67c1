"""A policy at many settings of its dial, and the concave hull of the points of cost and accuracy this gives.

A request may always be given one of two settings at random, so what a policy reaches at an average cost
is the upper concave hull of its points: nothing below the cheapest point, the best point above it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from adacompute.policies.base import Floats, Policy
from adacompute.policies.paths import Paths
from adacompute.replay.per_problem import ExactReplay, ProblemResults, can_replay_exactly
from adacompute.solve.hull import find_hull

__all__ = ["Sweep", "find_hull", "sweep"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sweep:
    """Expected results per setting and problem, all (dials, problems) except the dials."""

    dials: tuple[float | None, ...]
    cost: Floats  # samples
    accuracy: Floats  # 0 to 1; NaN: not known
    agreement: Floats  # with the vote of all samples, 0 to 1
    waves: Floats
    tokens: Floats  # NaN: not known

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
    """The policy at each dial (`[None]` where it has none), on paths with the policy's own votes.

    With `exact`, made of the same ballots, a policy that decides from the prompt alone is scored
    exactly.
    """
    reading = policy.read(paths.ballots.prompts)
    if exact is not None and can_replay_exactly(policy):
        results = [exact.replay(policy, dial=dial, reading=reading) for dial in dials]
    else:
        results = [ProblemResults.from_policy(policy, paths, dial=dial, reading=reading) for dial in dials]
    shape = (len(results), len(paths.ballots))
    names = [f.name for f in fields(Sweep) if f.name != "dials"]
    stacked = {name: np.array([getattr(each, name) for each in results]).reshape(shape) for name in names}
    return Sweep(dials=tuple(dials), **stacked)
