"""What priced stopping looks at in a tally, as numbers. Knows nothing of prices, prompts or learning.

All of it is free of scale: a weight of 1 is an averagely sure sample, whoever the model is.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from adacompute.paths import Standing

__all__ = ["NAMES", "SIGNS", "plain", "states"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

# name, and how the worth of going on may move with it: more margin never means more sampling
_COLUMNS: Final = {
    "drawn": 0,
    "first": -1,
    "second": 1,
    "answered": 0,
    "kinds": 0,
    "share": -1,  # of the leader, in votes
    "weighed_share": -1,  # of the leader, in weight
    "margin": -1,  # weight of the leader less the runner-up's
    "sureness": 0,  # log of the mean weight of all votes
    "leader_sureness": 0,  # log of the mean weight of the leader's votes
    "odds": -1,  # log of the leader's weight over the runner-up's
}
NAMES: Final = tuple(_COLUMNS)
SIGNS: Final = tuple(_COLUMNS.values())
_NONE = -9.0  # sureness where nobody answered
_SOFT = 0.3  # of a vote, added to both sides of the odds


def states(standing: Standing) -> Floats:
    """(requests, columns) in the order of NAMES."""
    answered, first = np.maximum(standing.answered, 1), np.maximum(standing.first, 1)
    some = standing.answered > 0
    total, lead = np.maximum(standing.total, 1e-9), np.maximum(standing.lead, 1e-9)
    found = np.empty((len(standing), len(NAMES)))
    found[:, 0] = standing.drawn
    found[:, 1] = standing.first
    found[:, 2] = standing.second
    found[:, 3] = standing.answered
    found[:, 4] = standing.kinds
    found[:, 5] = standing.first / answered
    found[:, 6] = standing.lead / total
    found[:, 7] = standing.lead - standing.runner
    found[:, 8] = np.where(some, np.log(total / answered), 0.0)
    found[:, 9] = np.where(some, np.log(lead / first), _NONE)
    found[:, 10] = np.log((standing.lead + _SOFT) / (standing.runner + _SOFT))
    return found


def plain(standing: Standing) -> Bools:
    """Where votes are counted, not weighed, (requests,): every weight so far is exactly 1."""
    return np.asarray(
        (standing.total == standing.answered)
        & (standing.lead == standing.first)
        & (standing.runner == standing.second)
    )
