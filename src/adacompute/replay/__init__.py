"""Replays a policy over recorded samples as if live. Knows nothing about protocols or the meaning of results.

With one mode, the policy draws along random orders of its samples, and cost counts samples. With several
modes, each has its own order, the policy also chooses the mode, and cost is the sum over modes.
"""

from adacompute.policies.paths import Paths, PolicyRun, build_paths, draw_paths
from adacompute.replay.calibrate import calibrate
from adacompute.replay.per_problem import ExactReplay, Sweep, run_policy, sweep
from adacompute.replay.replay import Replayed, replay

__all__ = [
    "ExactReplay",
    "Paths",
    "PolicyRun",
    "Replayed",
    "Sweep",
    "build_paths",
    "calibrate",
    "draw_paths",
    "replay",
    "run_policy",
    "sweep",
]
