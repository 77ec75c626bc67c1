"""Gateways that share one ledger and one price through Redis."""

from adacompute.serve.fleet.ledger import FleetLedger
from adacompute.serve.fleet.membership import Fleet, join_fleet
from adacompute.serve.fleet.redis_client import DEFAULT_TIMING, FleetTiming

__all__ = ["DEFAULT_TIMING", "Fleet", "FleetLedger", "FleetTiming", "join_fleet"]
