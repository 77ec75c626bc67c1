"""The reproduction as a Markdown page, for a reader who has the paper open. Knows no mathematics.

The same order as the paper; every table names its protocol, every statement its place and line.
"""

from collections.abc import Sequence

from adacompute.evaluate.exhibits import Table, markdown
from adacompute.evaluate.reproduction import beside, drawn, tables
from adacompute.evaluate.reproduction.checks import CHECKS, Finding
from adacompute.evaluate.reproduction.experiment import Reproduction
from adacompute.evaluate.reproduction.parts import PARTS, READ, Part
from adacompute.evaluate.reproduction.said import said
from adacompute.evaluate.reproduction.slips import checked
from adacompute.evaluate.reproduction.words import counted, survives

__all__ = ["page", "tables_of"]


def tables_of(found: Reproduction) -> dict[str, Table]:
    """Every table of the page by its key; those that can't be had are left out."""
    runs, together = found.runs, found.pooled
    made = (
        beside.recordings(runs),
        beside.laws(runs),
        drawn.pareto(runs),
        drawn.heat(runs),
        drawn.fifths(runs),
        drawn.mechanism(runs),
        tables.main(runs),
        tables.main_held_out(runs),
        tables.gap(runs),
        beside.implied(runs),
        beside.ablation(together),
        tables.levels(runs),
        tables.labels(runs),
        beside.archetypes(together),
        tables.search(runs),
        drawn.efficiency(runs),
        drawn.efficiency_cost(runs),
        beside.granularity(runs),
        beside.importance(runs),
    )
    return {table.key: table for table in made if table is not None}


def page(found: Reproduction, *, command: str, picture: str = "") -> str:
    """The whole page; `picture` is the line that shows it at a glance, where there is one."""
    known, names = tables_of(found), {run.name for run in found.runs}
    opening = (
        f"For a reader who has the paper open: *{said().title}*. Its tables with our numbers beside its own, "
        "and every statement that it reads off them or off its figures, checked. Lines are its source's."
    )
    made = (
        f"Made by `{command}` in {_minutes(found)}; every number, and every verdict, is computed. "
        f"{counted(found)}: [what survives](#what-survives)."
    )
    lines = [
        "# Reproduction: the paper's experiment on our recordings",
        "",
        opening,
        "",
        made,
        *_quick(found),
    ]
    lines += ["", picture] if picture else []
    lines += ["", *_table(known["recordings"], names), "", READ]
    for part in PARTS:
        lines += ["", f"## {part.title}", *_part(part, known, found, names)]
    lines += ["", "## What doesn't go together in the paper", "", *_slips(found)]
    lines += ["", "## What survives"]
    for paragraph in survives(found):
        lines += ["", paragraph]
    lines += _missing(found)
    return "\n".join(lines) + "\n"


def _part(part: Part, known: dict[str, Table], found: Reproduction, names: set[str]) -> list[str]:
    lines: list[str] = []
    if part.words:
        lines += ["", part.words]
    for key in part.tables:
        if key in known:
            lines += ["", *_table(known[key], names)]
            if known[key].protocol:
                lines += ["", f"*{known[key].title}: {known[key].protocol}.*"]
    claims = [claim for claim in said().claims.values() if claim.part == part.key]
    return [*lines, "", *_claims([found.findings[claim.key] for claim in claims])]


def _table(table: Table, names: set[str]) -> list[str]:
    """Its lines, our recordings' names set off from the paper's."""
    lines = markdown(table)
    for at, row in enumerate(table.rows):
        first = str(row[0])
        if first in names:
            lines[at + 2] = lines[at + 2].replace(f"| {first} |", f"| **{first}** |", 1)
    return lines


def _claims(findings: Sequence[Finding]) -> list[str]:
    heads = ("the paper says", "where", "on ours, as the paper does", "second reading", "verdict", "found")
    lines = [f"| {' | '.join(heads)} |", "| --- | --- | --- | --- | --- | --- |"]
    for one in findings:
        claim, check = said().claims[one.key], CHECKS[one.key]
        place = f"{claim.place} (line {claim.line})"
        told = f"{one.found}. *Holds where*: {check.holds}.{f' *Why*: {one.why}' if one.why else ''}"
        pooled = check.pooled
        cells = (claim.says, place, _of(one.paper, pooled), _of(one.ours, pooled), f"**{one.verdict}**", told)
        lines.append(f"| {' | '.join(cell.replace('|', '∣') for cell in cells)} |")
    return lines


def _of(count: tuple[int, int], pooled: bool) -> str:
    held, tried = count
    if not tried:
        return "–"
    return ("yes" if held else "no") if pooled and tried == 1 else f"{held} of {tried}"


def _slips(found: Reproduction) -> list[str]:
    lines = ["| the paper | where | our check |", "| --- | --- | --- |"]
    for slip in said().slips.values():
        lines_of = dict.fromkeys(str(line) for line, _ in slip.quotes)
        place = f"{slip.place} (line{'s' if len(lines_of) > 1 else ''} {', '.join(lines_of)})"
        cells = (slip.says, place, checked(slip.key, found))
        lines.append(f"| {' | '.join(cell.replace('|', '∣') for cell in cells)} |")
    return lines


def _missing(found: Reproduction) -> list[str]:
    said_so = [f"- {run.name}: {line}" for run in found.runs for line in run.missing]
    said_so += [f"- together: {line}" for line in found.pooled.missing]
    return ["", "## What is missing", "", *said_so] if said_so else []


def _quick(found: Reproduction) -> list[str]:
    if not found.quick:
        return []
    return ["", "A quick look: fewer seeds, splits and grid points. Leave `--quick` out for the full one."]


def _minutes(found: Reproduction) -> str:
    workers = f"{found.workers} process{'' if found.workers == 1 else 'es'}"
    if found.seconds < 90:
        return f"{found.seconds:.0f} seconds of computing, by {workers}"
    return f"{found.seconds / 60:.0f} minutes of computing, by {workers}"
