"""How policies weigh votes: by confidence, on a pool's own scale. Knows nothing of when to stop."""

from dataclasses import replace

from adacompute.answers import Weigh
from adacompute.errors import NotRecorded
from adacompute.pool import Ballots
from adacompute.score.weighted import fitted

__all__ = ["SHARPNESS", "confidence"]

SHARPNESS = 1.0  # of vote weights: see docs/findings.md


def confidence(ballots: Ballots) -> Weigh | None:
    """How votes are weighed, its scale that of these samples; None where nothing tells how sure they are."""
    try:
        found = fitted(ballots, "logprob")
    except NotRecorded:
        return None
    return replace(found, sharpness=SHARPNESS) if found.sharpness else None  # 0: all are certain alike
