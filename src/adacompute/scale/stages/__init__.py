"""`score`, `solve` and `replay` over a folder of Parquet shards, by Ray Data: one file for each stage."""

from adacompute.scale.stages.replay import calibrate_shards, replay_open_shards, replay_shards
from adacompute.scale.stages.score import score_open_shards, score_shards
from adacompute.scale.stages.sharded_pool import ShardedPool, open_sharded_pool
from adacompute.scale.stages.solve import solve_shards, solve_table_on_ray

__all__ = [
    "ShardedPool",
    "calibrate_shards",
    "open_sharded_pool",
    "replay_open_shards",
    "replay_shards",
    "score_open_shards",
    "score_shards",
    "solve_shards",
    "solve_table_on_ray",
]
