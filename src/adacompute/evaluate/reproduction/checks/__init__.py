"""Every statement of the paper that is checked, and how.

Knows neither what the paper's words are, which paper.json holds, nor how a verdict is shown.
"""

from adacompute.evaluate.reproduction.checks.check import BOTH_SIDES, Check, Finding, Seen, Verdict, finding
from adacompute.evaluate.reproduction.checks.learned import LEARNED
from adacompute.evaluate.reproduction.checks.oracle import ORACLE
from adacompute.evaluate.reproduction.checks.pooled import POOLED
from adacompute.evaluate.reproduction.checks.price import PRICE
from adacompute.evaluate.reproduction.checks.sweeps import SWEEPS

__all__ = ["BOTH_SIDES", "CHECKS", "Check", "Finding", "Seen", "Verdict", "finding"]

CHECKS = {check.key: check for check in (*PRICE, *ORACLE, *LEARNED, *SWEEPS, *POOLED)}
