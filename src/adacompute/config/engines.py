"""What the environment says of engines that we don't run ourselves. Knows nothing of what runs on them."""

import os
from collections.abc import MutableMapping

__all__ = ["ray_address"]


def ray_address(environ: MutableMapping[str, str] | None = None) -> str | None:
    """The cluster that RAY_ADDRESS names; None: none. Ray is told not to report its use to its makers."""
    environ = os.environ if environ is None else environ
    environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    return environ.get("RAY_ADDRESS", "").strip() or None
