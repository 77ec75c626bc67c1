"""Policies decide how many samples a request gets. The caller draws the samples."""

from pathlib import Path

from adacompute.errors import PolicyInvalid
from adacompute.policies.agreement import (
    AdaptiveConsistency,
    BayesPolicy,
    EarlyStopping,
)
from adacompute.policies.artefact import check_folder, read_artefact
from adacompute.policies.base import Draw, Policy
from adacompute.policies.baselines import (
    FixedPolicy,
    OraclePolicy,
)
from adacompute.policies.classifier import ClassifierPolicy
from adacompute.policies.curve import CurvePolicy
from adacompute.policies.guarantee import GuaranteePolicy
from adacompute.policies.modes.policy import MenuPolicy
from adacompute.policies.stopping import StoppingPolicy

__all__ = [
    "POLICIES",
    "AdaptiveConsistency",
    "BayesPolicy",
    "ClassifierPolicy",
    "CurvePolicy",
    "Draw",
    "EarlyStopping",
    "FixedPolicy",
    "GuaranteePolicy",
    "MenuPolicy",
    "OraclePolicy",
    "Policy",
    "StoppingPolicy",
    "load_policy",
    "read_policy",
]

POLICIES: dict[str, type[Policy]] = {
    policy.kind: policy
    for policy in (
        FixedPolicy,
        AdaptiveConsistency,
        EarlyStopping,
        BayesPolicy,
        GuaranteePolicy,
        OraclePolicy,
        ClassifierPolicy,
        CurvePolicy,
        StoppingPolicy,
        MenuPolicy,
    )
}


def load_policy(folder: str | Path) -> Policy:
    """Loads a policy that `save` wrote to a folder. Raises PolicyInvalid, with the reason, if that fails."""
    return read_policy(folder)[0]


def read_policy(folder: str | Path) -> tuple[Policy, str]:
    """Loads a policy like `load_policy`, and also returns the hash of its stored files."""
    artefact = read_artefact(check_folder(folder))
    policy_class = POLICIES.get(artefact.kind)
    if policy_class is None:
        raise PolicyInvalid(
            f"{folder}: there is no policy of kind {artefact.kind!r}; the kinds are {', '.join(POLICIES)}"
        )
    try:
        policy = policy_class.restore(artefact.settings, artefact.arrays)
    except PolicyInvalid as exc:
        raise PolicyInvalid(f"{folder}: {exc}") from exc
    policy.source_model = artefact.model
    return policy, artefact.sha256
