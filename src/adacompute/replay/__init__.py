"""Replays a policy over recorded samples, as if they arrived live, to measure its cost and accuracy.

With one mode, the policy draws recorded samples in random orders, and the cost is the number of samples. With
several modes, the policy also chooses the mode of each sample, and the cost adds up over the modes.
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
