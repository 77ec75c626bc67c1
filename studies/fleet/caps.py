"""What is asked of the shared ledger: how much one Redis takes, and what leases of a cap leave unspent.

Knows nothing of prices or pages.
"""

import dataclasses
from typing import Any

import numpy as np

from studies.fleet.fleet import EASY
from studies.fleet.ledger import answered, fixed, guided, lease, queue
from studies.fleet.questions import BUDGET, WAVES
from studies.fleet.traffic import price_for, recorded, row_of

__all__ = ["FLUSHES", "leases", "ledger"]

FLUSHES = (0.0, 0.001, 0.005, 0.01, 0.05, 0.5)  # seconds between a replica's calls; 0: one for each

Numbers = dict[str, Any]


def ledger(measured: Numbers, seconds: float = 10.0) -> Numbers:
    """How many requests one Redis takes, and what it adds."""
    call, each = measured["redis"]["call_us"] / 1e6, measured["redis"]["reservation_us"] / 1e6
    rows = []
    for replicas in (10, 100, 1000):
        for rate in (300.0, 1e3, 3e3, 8e3):
            shared = {"replicas": replicas, "reservations": rate * WAVES, "call": call, "each": each}
            row: Numbers = {"replicas": replicas, "rate": rate}
            for flush in FLUSHES:
                found = queue(flush=flush, seconds=seconds, seed=7, **shared)
                row[f"{flush:g}"] = found.late if found.load < 1 else None
            row["built"] = answered(seconds=seconds, seed=7, **shared).late
            rows.append(row)
    most = {
        "each": 1 / (2 * (call + each / 2) * WAVES),
        "batched": 1 / (each * WAVES),
        "replicas_at_10ms": 0.01 / call,
    }
    curve = [
        {
            "replicas": replicas,
            "rate": share * most["batched"],
            "late": answered(
                replicas=replicas, reservations=share * most["batched"] * WAVES, call=call, each=each,
                seconds=seconds, seed=7,
            ).late,
        }
        for replicas in (10, 100, 1000)
        for share in (0.01, 0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95)
    ]  # fmt: skip
    return {"rows": rows, "most": most, "curve": curve}


def leases(rate: float = 1e5, replicas: int = 1000) -> Numbers:
    """A cap of a minute's spending, leased to replicas in chunks, where some have far more traffic."""
    row = row_of(price_for({EASY: 1.0}, BUDGET))
    costs = recorded(EASY).drawn[row].astype(np.int64)
    cap = 60 * rate * BUDGET
    rules = {
        "100": fixed(100), "1,000": fixed(1000), "10,000": fixed(10_000), "half of an even share": guided(),
        "a tenth of an even share": guided(10.0),
    }  # fmt: skip
    rows = []
    for name, rule in rules.items():
        found = lease(rule, replicas=replicas, cap=cap, rate=rate, costs=costs, skew=0.5, tick=0.05, seed=8)
        rows.append({"chunk": name, **dataclasses.asdict(found)})
    return {"cap": cap, "rate": rate, "replicas": replicas, "each": rate * WAVES * 2, "rows": rows}
