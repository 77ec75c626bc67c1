"""The recorded samples: stored, read, written, checked. Knows nothing of endpoints or policies."""

from adacompute.pool.ballots import Ballots
from adacompute.pool.bundled import bundled, bundled_card, bundled_names
from adacompute.pool.content import fingerprint
from adacompute.pool.files import Exported, Imported, export_file, import_file
from adacompute.pool.opening import open_pool
from adacompute.pool.readable import Counts
from adacompute.pool.shards import export_shards
from adacompute.pool.store import Drawn, Pool
from adacompute.pool.verify import Verification

__all__ = [
    "Ballots",
    "Counts",
    "Drawn",
    "Exported",
    "Imported",
    "Pool",
    "Verification",
    "bundled",
    "bundled_card",
    "bundled_names",
    "export_file",
    "export_shards",
    "fingerprint",
    "import_file",
    "open_pool",
]
