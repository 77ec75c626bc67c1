"""Stores, imports, exports and checks recorded samples. Doesn't depend on endpoints or policies."""

from adacompute.pool.ballots import Ballots, Mode
from adacompute.pool.modes import MODE_PARAMETER, JoinedPool, join_pools, read_modes
from adacompute.pool.pool import DrawnSamples, Pool
from adacompute.pool.pool_files import (
    bundled,
    bundled_names,
    check_export,
    export_file,
    export_shards,
    import_file,
    open_pool,
)
from adacompute.pool.sqlite import fingerprint
from adacompute.pool.verification import Verification

__all__ = [
    "MODE_PARAMETER",
    "Ballots",
    "DrawnSamples",
    "JoinedPool",
    "Mode",
    "Pool",
    "Verification",
    "bundled",
    "bundled_names",
    "check_export",
    "export_file",
    "export_shards",
    "fingerprint",
    "import_file",
    "join_pools",
    "open_pool",
    "read_modes",
]
