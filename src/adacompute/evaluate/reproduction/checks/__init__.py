"""Every statement of the paper that is checked, and how."""

from adacompute.evaluate.reproduction.checks.check import Check, Finding, Seen, Verdict, finding
from adacompute.evaluate.reproduction.checks.learned import LEARNED
from adacompute.evaluate.reproduction.checks.oracle import ORACLE
from adacompute.evaluate.reproduction.checks.pooled import POOLED
from adacompute.evaluate.reproduction.checks.price import PRICE
from adacompute.evaluate.reproduction.checks.sweeps import SWEEPS

__all__ = ["CHECKS", "Check", "Finding", "Seen", "Verdict", "finding"]

CHECKS = {check.key: check for check in (*PRICE, *ORACLE, *LEARNED, *SWEEPS, *POOLED)}
