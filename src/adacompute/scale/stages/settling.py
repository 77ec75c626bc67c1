"""Which problems of shards a policy is replayed on, and what it takes from them first. Knows no paths."""

import copy
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from adacompute.answers import Weigh
from adacompute.errors import NotRecorded
from adacompute.policies.base import Policy
from adacompute.policies.confidence import SHARPNESS
from adacompute.policies.stopping import StoppingPolicy
from adacompute.pool import Ballots
from adacompute.replay.asked import replayable_rows
from adacompute.scale.stages.opened import Opened, Part
from adacompute.scale.stages.packing import Record
from adacompute.scale.stages.score import weigh_of

__all__ = ["adapted_to", "prompts_of", "rows_of"]

Ints = npt.NDArray[np.int64]


def rows_of(
    policy: Policy, shards: Opened, too_few: Literal["error", "drop"]
) -> tuple[Ints, tuple[str, ...]]:
    """The problems to replay, and the ids of those left out."""
    heads = shards.heads
    good = replayable_rows(heads.ids, heads.drawn, heads.votable(), policy.longest, too_few=too_few)
    return np.flatnonzero(good), tuple(heads.ids[i] for i in np.flatnonzero(~good).tolist())


def prompts_of(shards: Opened, rows: Ints) -> Ballots:
    """Ballots without a sample: the prompts of these problems are here, and nothing else."""
    texts = [text for each in shards.ask(_texts, rows) for text in each["prompts"]]
    place = np.argsort(np.concatenate([part.ranks for part in shards.parts(rows)]), kind="stable")
    none = np.zeros((len(rows), 0))
    unknown = (None,) * len(rows)
    return Ballots(
        ids=tuple(shards.heads.ids[row] for row in rows.tolist()),
        prompts=tuple(texts[i] for i in place.tolist()),
        subjects=unknown,
        levels=unknown,
        gold_known=np.zeros(len(rows), dtype=bool),
        classes=none.astype(np.int32),
        correct=none.astype(np.float32),
        tokens=none,
        logprob=none,
        entropy=none,
    )


def _texts(ballots: Ballots, _: Part, __: None) -> Record:
    return {"prompts": list(ballots.prompts)}


def adapted_to(policy: Policy, shards: Opened, rows: Ints, thin: Ballots, *, apart: bool) -> Policy:
    """The policy, or a copy of it (`apart`), settled on these samples, where it can be."""
    if not isinstance(policy, StoppingPolicy):  # no other one takes anything from samples
        return policy
    settled = copy.copy(policy) if apart else policy

    def confidence(_: Ballots) -> Weigh | None:
        try:
            found = weigh_of(shards, rows, "logprob")
        except NotRecorded:
            return None
        return replace(found, sharpness=SHARPNESS) if found.sharpness else None

    return settled.settle_by(
        thin, confidence=confidence, openings=lambda _: settled.openings_of(shards.gathered(rows))
    )
