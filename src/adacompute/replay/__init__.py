"""Replays a policy over recorded samples, as if they arrived live, to measure its cost and accuracy.

With one mode (a way to ask a model), the policy draws recorded samples in random orders, and cost is the
number of samples. With several modes the policy also chooses the mode, and cost is the sum over modes.
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
