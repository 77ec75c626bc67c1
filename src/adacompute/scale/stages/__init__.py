"""`score`, `solve` and `replay` over a folder of Parquet shards, by Ray Data. Knows no command line."""

from adacompute.scale.stages.calibrate import calibrate_shards
from adacompute.scale.stages.opened import Opened, opened
from adacompute.scale.stages.replay import replay_shards, replayed
from adacompute.scale.stages.score import score_shards, scored
from adacompute.scale.stages.solve import solve_shards, solved

__all__ = [
    "Opened",
    "calibrate_shards",
    "opened",
    "replay_shards",
    "replayed",
    "score_shards",
    "scored",
    "solve_shards",
    "solved",
]
