"""A policy over recorded samples, as if live. Knows nothing of protocols, folds or what a result means.

With one mode the policy draws along random orders of its samples, and cost counts samples; with two each
mode's samples come in an order of their own, the policy also says which is drawn, and cost is what both cost.
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
