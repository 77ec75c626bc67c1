"""A policy over recorded samples, as if live. Knows nothing of protocols, folds or what a result means."""

from adacompute.paths.paths import Paths, paths, paths_of_orders
from adacompute.replay.calibrate import calibrate
from adacompute.replay.each import Exact
from adacompute.replay.hull import Mixed, hull_at
from adacompute.replay.replay import replay
from adacompute.replay.result import Replayed
from adacompute.replay.run import Run, run
from adacompute.replay.sweep import Sweep, sweep

__all__ = [
    "Exact",
    "Mixed",
    "Paths",
    "Replayed",
    "Run",
    "Sweep",
    "calibrate",
    "hull_at",
    "paths",
    "paths_of_orders",
    "replay",
    "run",
    "sweep",
]
