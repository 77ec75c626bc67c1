"""What `solve` has found, and as plain data for JSON. Knows nothing of how a person is told."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from adacompute.evaluate import Compared, Crossfitted, Uniform, uniform_frontier
from adacompute.records import AccuracyTable, Allocation
from adacompute.score import Estimate
from adacompute.solve import frontier

__all__ = ["Outcome", "compared_object", "outcome_object", "ticks_of"]

_POINTS = 4  # of the curve in JSON, between two budgets


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """One pool under one average budget."""

    name: str  # of the pool
    scored: AccuracyTable
    table: AccuracyTable  # that the oracle chose on: as scored, or shrunk
    found: Compared
    why: str = ""  # there is no lower end

    @property
    def shrunk(self) -> bool:
        """Whether the oracle's own numbers are posterior means, and so no upper end of anything."""
        return self.table is not self.scored


def outcome_object(outcome: Outcome) -> dict[str, Any]:
    """Plain data, for JSON: full numbers, null for what can't be told."""
    table, plan = outcome.table, outcome.found.plan
    return {
        "pool": outcome.name,
        "problems": len(table),
        "unit": plan.unit,
        "cost": plan.cost,
        "bound": plan.bound,
        "gap": plan.gap,
        "mix": _mix_object(table, plan),
        "dropped": list(table.dropped),
        **compared_object(outcome.found, why=outcome.why),
        "shrunk": outcome.shrunk,
        "curve": _curve_points(outcome),
        "protocol": f"{table.protocol}; chosen with the answers known (oracle); 95% intervals over problems",
    }


def compared_object(found: Compared, *, why: str = "") -> dict[str, Any]:
    """One average budget as every command gives it; `why` says why there is no lower end."""
    plan = found.plan
    return {
        "budget": plan.budget,
        "price": plan.price,
        "accuracy": plan.accuracy,
        "mixed_accuracy": plan.mixed_accuracy,
        "budgets": list(plan.modes),
        "counts": list(plan.counts),
        "uniform": _uniform_object(found.uniform),
        "crossfitted": _crossfitted_object(found.crossfitted),
        "crossfitted_why": why or None,
        "difference": asdict(found.difference),
    }


def _mix_object(table: AccuracyTable, plan: Allocation) -> list[dict[str, Any]]:
    return [
        {
            "problem": table.ids[move.problem] if table.ids else move.problem,
            "mode": plan.modes[move.mode],
            "probability": move.probability,
        }
        for move in plan.mix
    ]


def _uniform_object(alike: Uniform) -> dict[str, Any]:
    return {
        **_estimate_object(alike.accuracy),
        "cost": alike.cost,
        "budgets": list(alike.modes),
        "probability": alike.probability,
    }


def _crossfitted_object(fitted: Crossfitted | None) -> dict[str, Any] | None:
    if fitted is None:
        return None
    return {**_estimate_object(fitted.accuracy), "cost": fitted.cost, "splits": fitted.splits}


def _estimate_object(estimate: Estimate) -> dict[str, float | None]:
    return {"accuracy": estimate.mean, "low": estimate.low, "high": estimate.high}


def _curve_points(outcome: Outcome) -> list[dict[str, float]]:
    ticks = ticks_of(outcome.table)
    steps = np.arange(_POINTS * (len(ticks) - 1) + 1) / _POINTS
    costs = np.interp(steps, np.arange(len(ticks)), ticks)
    best, alike = frontier(outcome.table), uniform_frontier(outcome.scored)
    return [
        {"cost": cost, "accuracy": best.at(cost), "uniform": alike.at(cost), "price": best.price_at(cost)}
        for cost in costs.tolist()
    ]


def ticks_of(table: AccuracyTable) -> list[float]:
    """The modes' average costs, ascending."""
    return [float(cost) for cost in np.unique(table.cost_matrix.mean(axis=0))]
