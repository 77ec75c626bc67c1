"""A policy at many settings of its dial, over the same paths. Knows nothing of hulls or of other policies."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from adacompute.paths.paths import Paths
from adacompute.paths.standing import Floats
from adacompute.policies.base import Policy
from adacompute.replay.each import Each, Exact, is_exact

__all__ = ["Sweep", "sweep"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sweep:
    """Expected per setting and problem, all (dials, problems) but for the dials."""

    dials: tuple[float | None, ...]
    cost: Floats  # samples
    accuracy: Floats  # 0 to 1; NaN: not known
    agreement: Floats  # with the vote of all samples, 0 to 1
    waves: Floats
    tokens: Floats  # NaN: not known

    def __len__(self) -> int:
        return len(self.dials)

    def only(self, problems: Sequence[int] | np.ndarray[tuple[int, ...], np.dtype[np.integer]]) -> "Sweep":
        """Some of the problems, by row."""
        rows = np.asarray(problems, dtype=np.intp)
        arrays = {f.name: getattr(self, f.name)[:, rows] for f in fields(self) if f.name != "dials"}
        return Sweep(dials=self.dials, **arrays)


def sweep(
    policy: Policy, paths: Paths, dials: Sequence[float | None], *, exact: Exact | None = None
) -> Sweep:
    """The policy at each dial (`[None]` where it has none), on paths with the policy's own votes.

    With `exact`, made of the same ballots, a policy that decides on the prompt alone is scored by that.
    """
    reading = policy.read(paths.ballots.prompts)
    if exact is not None and is_exact(policy):
        found = [exact.each(policy, dial=dial, reading=reading) for dial in dials]
    else:
        found = [Each.run(policy, paths, dial=dial, reading=reading) for dial in dials]
    shape = (len(found), len(paths.ballots))
    names = [f.name for f in fields(Sweep) if f.name != "dials"]
    stacked = {name: np.array([getattr(each, name) for each in found]).reshape(shape) for name in names}
    return Sweep(dials=tuple(dials), **stacked)
