"""A policy along recorded paths, wave by wave. Knows nothing of dials found, folds or intervals."""

from dataclasses import dataclass

import numpy as np

from adacompute.errors import PolicyError
from adacompute.paths.paths import Paths
from adacompute.paths.standing import Floats, Ints, Standing
from adacompute.policies.base import Policy

__all__ = ["Run", "first_wave", "run"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """Where a policy stopped on each path, all (paths,)."""

    drawn: Ints
    waves: Ints
    grade: Floats  # worth of the answer returned; NaN: not known
    agrees: Floats  # 1 where it is the answer of the full vote
    tokens: Floats  # output tokens; NaN: not known


def run(policy: Policy, paths: Paths, *, dial: float | None, reading: Floats | None = None) -> Run:
    """Asks the policy on every path until it stops there.

    `reading` is what `policy.read` gives for the prompts of the paths' problems, where that is known.
    """
    _check(policy, paths)
    reading = policy.read(paths.ballots.prompts) if reading is None else reading
    owner = paths.problems
    drawn, waves = np.zeros(len(paths), dtype=np.int64), np.zeros(len(paths), dtype=np.int64)
    going = np.arange(len(paths))
    asked = first_wave(policy, reading, dial)[owner]
    while len(going):
        going, asked = going[asked > 0], asked[asked > 0]
        drawn[going] += asked
        waves[going] += 1
        most = int(drawn[going].max(initial=0))
        if most > policy.longest:
            raise PolicyError(
                f"{policy.kind} asks for {most} samples of a request, above its own {policy.longest}"
            )
        going = going[drawn[going] < paths.longest]
        if len(going):
            asked = policy.decide(reading[owner[going]], paths.standing(going, drawn[going]), dial)
    at = (drawn - 1, np.arange(len(paths)))
    return Run(
        drawn=drawn,
        waves=waves,
        grade=paths.grade[at],
        agrees=paths.agrees[at],
        tokens=paths.tokens[at],
    )


def first_wave(policy: Policy, reading: Floats, dial: float | None) -> Ints:
    """How many samples each request gets before anything is known of it, (requests,)."""
    asked = policy.decide(reading, Standing.empty(len(reading)), dial)
    if (asked < 1).any():
        raise PolicyError(f"{policy.kind} asks for no sample on an empty tally; a request needs at least 1")
    return asked


def _check(policy: Policy, paths: Paths) -> None:
    if paths.longest < policy.longest:
        raise PolicyError(
            f"{policy.kind} may draw {policy.longest} samples of a request, and the paths have "
            f"{paths.longest}; make longer ones, or give the policy a lower `longest`"
        )
    if paths.weigh != policy.weigh:
        raise PolicyError(
            f"{policy.kind} weighs votes by {policy.weigh}, and the paths by {paths.weigh}; "
            "make paths with weigh=policy.weigh"
        )
