"""The reproduction at a glance: imitation and gain of every setting, in both readings. Knows no drawing."""

from dataclasses import dataclass

from adacompute.evaluate.bootstrap import Interval
from adacompute.evaluate.reproduction.experiment import Reproduction
from adacompute.evaluate.reproduction.said import said, setting

__all__ = ["BUDGET", "Glance", "glance"]

BUDGET = 2.0  # samples on average: where fixed spends what the classifier may


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """One setting; what the paper doesn't tell of its own is None."""

    name: str
    ours: bool
    imitation: float  # scored as the paper does
    commonest: float  # of always answering the commonest budget, on the same problems
    gain: float  # over fixed, scored as the paper does
    held_out: float | None  # imitation
    held_out_commonest: float | None
    fair: Interval | None  # held-out gain over the best mix for all alike at the same cost


def glance(found: Reproduction) -> tuple[Glance, ...]:
    """The paper's settings, then ours, at B = 2; recordings that don't reach it are left out."""
    rows = []
    for row in said().rows("tab:oracle_gap", budget=BUDGET):
        wanted = {name: row[name] for name in ("model", "data", "budget")}
        fixed = said().rows("tab:main", method="fixed", **wanted)[0]
        rows.append(
            Glance(
                name=setting(row),
                ours=False,
                imitation=row["imitation"],
                commonest=said().rows("tab:oracle_dist", **wanted)[0]["b1"],
                gain=row["accuracy"] - fixed["accuracy"],
                held_out=None,
                held_out_commonest=None,
                fair=None,
            )
        )
    for run in found.runs:
        for one in (one for one in run.gaps if one.budget == BUDGET):
            fixed_too = float(run.main.paper["fixed", BUDGET].accuracy.mean())
            rows.append(
                Glance(
                    name=run.name,
                    ours=True,
                    imitation=float(one.paper.imitation.mean()),
                    commonest=float(one.paper.majority.mean()),
                    gain=float(one.paper.accuracy.mean()) - fixed_too,
                    held_out=float(one.held_out.imitation.mean()),
                    held_out_commonest=float(one.held_out.majority.mean()),
                    fair=run.learned(BUDGET).gain,
                )
            )
    return tuple(rows)
