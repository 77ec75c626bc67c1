"""Every policy by its name, and reading one back. Knows nothing of what any of them does."""

from pathlib import Path

from adacompute.errors import PolicyInvalid
from adacompute.policies.agreement import AdaptiveConsistency, DoublingPolicy, EarlyStopping
from adacompute.policies.artefact import read_artefact
from adacompute.policies.base import Policy
from adacompute.policies.classifier import ClassifierPolicy
from adacompute.policies.curve import CurvePolicy
from adacompute.policies.folder import folder_of
from adacompute.policies.heuristic import HeuristicPolicy
from adacompute.policies.oneshot import FixedPolicy, RandomPolicy
from adacompute.policies.oracle import OraclePolicy
from adacompute.policies.shuffled import ShuffledPolicy
from adacompute.policies.stopping import StoppingPolicy

__all__ = ["POLICIES", "load_policy", "read_policy"]

POLICIES: dict[str, type[Policy]] = {
    policy.kind: policy
    for policy in (
        FixedPolicy,
        RandomPolicy,
        HeuristicPolicy,
        ShuffledPolicy,
        AdaptiveConsistency,
        EarlyStopping,
        DoublingPolicy,
        OraclePolicy,
        ClassifierPolicy,
        CurvePolicy,
        StoppingPolicy,
    )
}


def load_policy(folder: str | Path) -> Policy:
    """The policy that `save` wrote to a folder; PolicyInvalid, with the reason, where it didn't."""
    return read_policy(folder)[0]


def read_policy(folder: str | Path) -> tuple[Policy, str]:
    """As `load_policy`, with the hash of what was read."""
    artefact = read_artefact(folder_of(folder))
    kind = POLICIES.get(artefact.kind)
    if kind is None:
        raise PolicyInvalid(
            f"{folder}: there is no policy of kind {artefact.kind!r}; the kinds are {', '.join(POLICIES)}"
        )
    try:
        return kind.restored(artefact.settings, artefact.arrays), artefact.sha256
    except PolicyInvalid as exc:
        raise PolicyInvalid(f"{folder}: {exc}") from exc
