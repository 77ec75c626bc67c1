"""Who decides how many samples a request gets. Knows nothing of how they are drawn, or of the network."""

from adacompute.policies.agreement import AdaptiveConsistency, DoublingPolicy, EarlyStopping
from adacompute.policies.base import Policy
from adacompute.policies.classifier import ClassifierPolicy
from adacompute.policies.curve import CurvePolicy
from adacompute.policies.heuristic import HeuristicPolicy
from adacompute.policies.oneshot import FixedPolicy, RandomPolicy
from adacompute.policies.oracle import OraclePolicy
from adacompute.policies.registry import POLICIES, load_policy
from adacompute.policies.shuffled import ShuffledPolicy
from adacompute.policies.stopping import StoppingPolicy

__all__ = [
    "POLICIES",
    "AdaptiveConsistency",
    "ClassifierPolicy",
    "CurvePolicy",
    "DoublingPolicy",
    "EarlyStopping",
    "FixedPolicy",
    "HeuristicPolicy",
    "OraclePolicy",
    "Policy",
    "RandomPolicy",
    "ShuffledPolicy",
    "StoppingPolicy",
    "load_policy",
]
