"""Gateways that share one ledger and one price through Redis. Knows nothing of requests or of HTTP."""

from adacompute.serve.fleet.ledger import FleetLedger
from adacompute.serve.fleet.opening import Fleet, joined
from adacompute.serve.fleet.settings import USUAL, Pulse

__all__ = ["USUAL", "Fleet", "FleetLedger", "Pulse", "joined"]
