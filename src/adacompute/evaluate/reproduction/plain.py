"""The reproduction as plain data, for a program. Knows no Markdown."""

from typing import Any

from adacompute.evaluate.report.plain import finite
from adacompute.evaluate.reproduction.checks import CHECKS
from adacompute.evaluate.reproduction.experiment import Reproduction
from adacompute.evaluate.reproduction.page import tables_of
from adacompute.evaluate.reproduction.said import said
from adacompute.evaluate.reproduction.slips import checked
from adacompute.evaluate.reproduction.words import survives

__all__ = ["as_data"]


def as_data(found: Reproduction) -> dict[str, Any]:
    """Tables, statements and slips; null for what can't be told."""
    claims = [
        {
            "key": one.key,
            "says": said().claims[one.key].says,
            "place": said().claims[one.key].place,
            "line": said().claims[one.key].line,
            "verdict": one.verdict,
            "looked_at": CHECKS[one.key].value,
            "holds": CHECKS[one.key].holds,
            "reading": CHECKS[one.key].reading,
            "found": one.found,
            "why": one.why,
            "seen": one.seen,
        }
        for one in found.findings.values()
    ]
    slips = [
        {"key": slip.key, "says": slip.says, "place": slip.place, "found": checked(slip.key, found)}
        for slip in said().slips.values()
    ]
    data: Any = finite(
        {
            "recordings": [run.name for run in found.runs],
            "quick": found.quick,
            "seed": found.seed,
            "seconds": found.seconds,
            "tables": {key: table.records() for key, table in tables_of(found).items()},
            "claims": claims,
            "slips": slips,
            "summary": survives(found),
            "missing": {run.name: run.missing for run in found.runs if run.missing},
        }
    )
    return dict(data)
