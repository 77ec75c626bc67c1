"""The reproduction as a Markdown page in the paper's order, and as plain data.

For a reader who has the paper open: every table names its protocol, every statement its place and line.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adacompute.records import AccuracyTable
from adacompute.report.document import Table, replace_non_finite
from studies.paper.budget_choices import mix_accuracy
from studies.paper.classifier_checks import CHECKS
from studies.paper.comparison_tables import (
    build_ablation_table,
    build_archetypes_table,
    build_efficiency_cost_table,
    build_efficiency_table,
    build_fifths_table,
    build_gap_table,
    build_granularity_table,
    build_heatmap_table,
    build_held_out_table,
    build_implied_table,
    build_importance_table,
    build_labels_table,
    build_laws_table,
    build_levels_table,
    build_main_table,
    build_mechanism_table,
    build_pareto_table,
    build_recordings_table,
    build_search_table,
)
from studies.paper.errata import check_slip
from studies.paper.experiment import Reproduction
from studies.paper.oracle_checks import BOTH_SIDES, Finding, Verdict
from studies.paper.paper_claims import load_paper
from studies.paper.pareto import ParetoCurve
from studies.paper.wording import to_markdown

__all__ = ["PARTS", "build_data", "build_page", "count_verdicts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePart:
    """A heading of the page, and what stands below it."""

    key: str  # of the claims
    title: str
    tables: tuple[str, ...] = ()  # keys
    words: str = ""


_MAIN = """\
The second table is what the paper doesn't have: the same classifiers on the problems that they haven't
learned from, beside uniform at the classifier's own cost, free to mix two budgets by lot. Intervals are 95%
over problems."""
_GAP = """\
Most problems have the oracle's budget b = 1, so imitation means little without what always answering the
commonest budget imitates. The second table is an inference from the paper's own numbers: if Table 5 is
scored on all 200 problems, and the 160 learned from are imitated perfectly, or as well as ours are, so much
is left for the other 40. How well they were imitated the paper doesn't say."""
_THREE = """\
The paper pools three models on the same questions. We have no three models on the same questions, so three
recordings of one model are pooled."""
_LAWS = """\
Every statement tried on the recordings' own tables. Proofs and counter-examples are in
[theory.md](theory.md); what is tried on a classifier is tried in both readings."""
_SETS = """\
Coarse is {1, 8, 16}, default {1, 2, 4, 8, 16}, fine {1, 2, 3, 4, 6, 8, 12, 16}. More budgets are more luck to
choose from, so the cross-fitted oracle stands beside."""

_GROUPS = """\
Recordings without levels are cut into fifths by one-sample accuracy. There the ends have no room to gain, so
that the middle gains most by definition: the statements are counted only where levels are recorded."""

PARTS = (
    PagePart(
        key="solve",
        title="Sections 3 and 4.4, appendix G.1, Figure 2: the price, the cost and the theorems",
        tables=("laws",),
        words=_LAWS,
    ),
    PagePart(
        key="main",
        title="Section 5.2, Table 1: main results",
        tables=("main", "main-held-out"),
        words=_MAIN,
    ),
    PagePart(key="pareto", title="Section 5.3, Figure 4: Pareto frontiers", tables=("pareto",)),
    PagePart(
        key="gap",
        title="Section 5.4, appendix F.3, Table 5: oracle gap and imitation",
        tables=("gap", "implied"),
        words=_GAP,
    ),
    PagePart(
        key="ablation",
        title="Section 5.5, appendix H.1, Tables 2 and 7, Figure 10: classifier ablation",
        tables=("ablation",),
        words=_THREE,
    ),
    PagePart(
        key="heatmap",
        title="Section 5.6, appendices F.4 and F.5, Figures 5 and 6: who gets how much",
        tables=("heat", "fifths"),
    ),
    PagePart(
        key="levels",
        title="Appendix F.1, Table 3: accuracy by level",
        tables=("levels",),
        words=_GROUPS,
    ),
    PagePart(key="labels", title="Appendix F.2, Table 4: oracle label distribution", tables=("labels",)),
    PagePart(key="archetypes", title="Appendix F.6, Figures 1 and 7: archetypes", tables=("archetypes",)),
    PagePart(key="search", title="Appendix G.2, Table 6, Figure 8: λ search", tables=("search",)),
    PagePart(key="mechanism", title="Appendix G.3, Figure 9: the price at work", tables=("mechanism",)),
    PagePart(
        key="efficiency",
        title="Appendix H.2, Figure 11: data efficiency",
        tables=("efficiency", "efficiency-cost"),
    ),
    PagePart(
        key="granularity",
        title="Appendix H.3, Figure 12: budget sets",
        tables=("granularity",),
        words=_SETS,
    ),
    PagePart(key="importance", title="Appendix H.4, Figure 13: feature importance", tables=("importance",)),
)
HOW_TO_READ = """\
How to read it:

- **scored as the paper does**: on all problems, the 80% learned from included, by the paper's disjoint
  windows of samples. The paper doesn't say on which problems its tables are scored; what it shows comes out
  this way.
- **held-out**: the same classifiers on the other 20% of the problems, over all subsets of their samples. The
  oracle's labels are of all problems together in both, as in the paper.
- Statements about the oracle alone are told from the windows and, as a second reading, over all subsets.
- **agrees**: on four fifths of the recordings or more, in the second reading where there is one. **only
  in-sample**: on half of them or more scored as the paper does, and on half or fewer held-out. **doesn't**:
  on a fifth or fewer. Else **in part**.
- **only with the same question on both sides**: as *only in-sample*, where rows are split at random, so that
  none is judged that was learned from, but most questions stand on both sides at another B.
- When a statement is taken to hold stands beside it (*Holds where*). These thresholds are ours: the paper's
  own number where it has one, else what its words would bear. They were chosen with our numbers in sight.
- Nothing here is a fit to the paper's data: other models, other questions. Agreement is of patterns. Figure
  3, the pipeline, states nothing to be checked."""


_LOW, _HIGH = 1.5, 3.1  # samples on average
_ORDER: tuple[Verdict, ...] = (
    "agrees",
    "in part",
    "only in-sample",
    BOTH_SIDES,
    "doesn't",
    "can't be known",
)
_VERDICT_TEXTS = {
    "agrees": "agree",
    "in part": "agree in part",
    "only in-sample": "hold in-sample only",
    BOTH_SIDES: "hold only with the same question on both sides of a split",
    "doesn't": "don't",
    "can't be known": "can't be known",
}


def count_verdicts(reproduction: Reproduction) -> str:
    """Say how many statements got which verdict."""
    counts = Counter(one.verdict for one in reproduction.findings.values())
    parts = [f"{counts[verdict]} {_VERDICT_TEXTS[verdict]}" for verdict in _ORDER if counts[verdict]]
    return (
        f"Of {len(reproduction.findings)} statements that the paper reads off its experiments, {_join(parts)}"
    )


def summarise(reproduction: Reproduction) -> list[str]:
    """Summarise what survives, one text per paragraph."""
    return [
        f"{count_verdicts(reproduction)}.",
        _describe_oracle(reproduction),
        _describe_classifier(reproduction),
        _describe_baseline(reproduction),
        _POINTER,
    ]


def _describe_oracle(reproduction: Reproduction) -> str:
    """Describe the solve stage."""
    gains, crossed = [], []
    for run in reproduction.runs:
        gains += _compute_lead(run.pareto.paper["oracle"], run.case.windows)
        if "crossfitted" in run.pareto.held_out:
            crossed += _compute_lead(run.pareto.held_out["crossfitted"], run.case.exact)
    laws = [law for run in reproduction.runs for law in run.laws if law.form != "the paper's own form"]
    text = (
        "**What survives: the solve stage.** There is much to gain from spending samples where they pay: at "
        f"1.5 to 3 samples the oracle is {_format_points(gains)} points above the best uniform mix, "
        "scored as the paper does"
    )
    if crossed:
        text += f", and {_format_points(crossed)} when its choice is judged on samples that it hasn't seen"
    return (
        f"{text}. Cost never rises with the price, one price is one dial, and the frontier is exact once one "
        "problem is mixed. The theory holds in the forms of [theory.md](theory.md): "
        f"{sum(law.holds for law in laws)} of {len(laws)} laws × recordings without an exception."
    )


def _compute_lead(curve: ParetoCurve, table: AccuracyTable) -> list[float]:
    """How far a curve is above the best uniform mix, at the grid's budgets from 1.5 to 3."""
    here = (curve.budget >= _LOW) & (curve.budget <= _HIGH)
    alike = mix_accuracy(
        table.costs, np.tile(table.accuracy.mean(axis=0), (int(here.sum()), 1)), curve.cost[here]
    )
    return [float(value) for value in curve.accuracy[here] - alike]


def _describe_classifier(reproduction: Reproduction) -> str:
    """Describe the learn stage."""
    in_sample = [float(one.paper.imitation.mean()) for run in reproduction.runs for one in run.gaps]
    held_out = [float(one.held_out.imitation.mean()) for run in reproduction.runs for one in run.gaps]
    ahead = [one.held_out.ahead for run in reproduction.runs for one in run.gaps]
    lower = sum(one.high is not None and one.high < 0 for one in ahead)
    higher = sum(one.low is not None and one.low > 0 for one in ahead)
    return (
        "**What doesn't: the learn stage.** Numbers like the paper's come out when problems learned from "
        f"are judged too: imitation {_format_shares(in_sample)}. On other problems it is "
        f"{_format_shares(held_out)}: beside always answering the commonest budget clearly lower in {lower} "
        f"of {len(ahead)} cases, clearly higher in {higher}, no clear difference in "
        f"{len(ahead) - lower - higher} (95% intervals over problems).{_describe_trees(reproduction)}"
    )


def _describe_trees(reproduction: Reproduction) -> str:
    """Compare trees with other learners, in both ways to split."""
    seen = reproduction.findings["ablation-trees"].seen
    known = {name: (one.value, one.own) for name, one in seen.items() if one.value is not None}
    if not known:
        return ""
    first, second = (
        " and ".join(f"{_format_point(both[at])} points ({name})" for name, both in known.items())
        for at in (0, 1)
    )
    return (
        f" Trees lead the other learners by {first} where a question may stand on both sides of the split, "
        f"and by {second} where it can't."
    )


def _describe_baseline(reproduction: Reproduction) -> str:
    """Describe the baseline of the comparison."""
    over = [
        float(
            run.main.paper["classifier", budget].accuracy.mean()
            - run.main.paper["fixed", budget].accuracy.mean()
        )
        for run in reproduction.runs
        for budget in run.main.budgets
    ]
    fair = [one.gain for run in reproduction.runs for one in map(run.classifier_outcome, run.main.budgets)]
    above = sum(one.mean > 0 and not one.holds_zero for one in fair)
    under = sum(one.mean < 0 and not one.holds_zero for one in fair)
    best = max(
        reproduction.runs,
        key=lambda run: max(one.gain.mean for one in map(run.classifier_outcome, run.main.budgets)),
    )
    return (
        "**What is left of the gain.** Scored as the paper does, the classifier gains "
        f"{_format_points(over)} points over fixed-b. Held-out, over the best mix of two budgets for all "
        f"alike at the same cost, it gains {_format_points([one.mean for one in fair])}: of {len(fair)} "
        f"cases the interval is above zero in {above} and below in {under}. It does best on {best.name}."
    )


_POINTER = (
    "**What to do instead.** What a prompt can't tell, the first votes do: stopping as they come in beats "
    "deciding beforehand, held-out and without labels of the task. See "
    "[evaluation.md](../../docs/reference/evaluation.md), and [findings.md](../findings.md) for "
    "what else was tried."
)


def _format_point(value: float | None) -> str:
    return "–" if value is None else f"{round(100 * value, 1) + 0.0:+.1f}"  # no -0.0


def _format_points(values: Sequence[float]) -> str:
    return f"{100 * min(values):+.1f} to {100 * max(values):+.1f}"


def _format_shares(values: Sequence[float]) -> str:
    return f"{100 * min(values):.0f} to {max(values):.0%}"


def _join(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def build_tables(reproduction: Reproduction) -> dict[str, Table]:
    """Build every table of the page by its key; those that can't be had are left out."""
    runs, together = reproduction.runs, reproduction.pooled
    candidates = (
        build_recordings_table(runs),
        build_laws_table(runs),
        build_pareto_table(runs),
        build_heatmap_table(runs),
        build_fifths_table(runs),
        build_mechanism_table(runs),
        build_main_table(runs),
        build_held_out_table(runs),
        build_gap_table(runs),
        build_implied_table(runs),
        build_ablation_table(together),
        build_levels_table(runs),
        build_labels_table(runs),
        build_archetypes_table(together),
        build_search_table(runs),
        build_efficiency_table(runs),
        build_efficiency_cost_table(runs),
        build_granularity_table(runs),
        build_importance_table(runs),
    )
    return {table.key: table for table in candidates if table is not None}


def build_page(reproduction: Reproduction, *, command: str, picture: str = "") -> str:
    """Build the whole page; `picture` is the line that shows the overview figure, where there is one."""
    tables, names = build_tables(reproduction), {run.name for run in reproduction.runs}
    opening = (
        f"For a reader who has the paper open: *{load_paper().title}*. Its tables with our numbers beside "
        "its own, and every statement that it reads off them or off its figures, checked. Lines are its "
        "source's."
    )
    origin = (
        f"Made by `{command}` in {_format_duration(reproduction)}; every number, and every verdict, is "
        f"computed. {count_verdicts(reproduction)}: [what survives](#what-survives)."
    )
    lines = [
        "# Reproduction: the paper's experiment on our recordings",
        "",
        opening,
        "",
        origin,
        *_note_quick(reproduction),
    ]
    lines += ["", picture] if picture else []
    lines += ["", *_build_table(tables["recordings"], names), "", HOW_TO_READ]
    for part in PARTS:
        lines += ["", f"## {part.title}", *_build_part(part, tables, reproduction, names)]
    lines += ["", "## What doesn't go together in the paper", "", *_build_errata(reproduction)]
    lines += ["", "## What survives"]
    for paragraph in summarise(reproduction):
        lines += ["", paragraph]
    lines += _list_missing(reproduction)
    return "\n".join(lines) + "\n"


def _build_part(
    part: PagePart, tables: dict[str, Table], reproduction: Reproduction, names: set[str]
) -> list[str]:
    lines: list[str] = []
    if part.words:
        lines += ["", part.words]
    for key in part.tables:
        if key in tables:
            lines += ["", *_build_table(tables[key], names)]
            if tables[key].protocol:
                lines += ["", f"*{tables[key].title}: {tables[key].protocol}.*"]
    claims = [claim for claim in load_paper().claims.values() if claim.part == part.key]
    return [*lines, "", *_build_claims([reproduction.findings[claim.key] for claim in claims])]


def _build_table(table: Table, names: set[str]) -> list[str]:
    """Write a table's lines, with our recordings' names in bold."""
    lines = to_markdown(table)
    for at, row in enumerate(table.rows):
        first = str(row[0])
        if first in names:
            lines[at + 2] = lines[at + 2].replace(f"| {first} |", f"| **{first}** |", 1)
    return lines


def _build_claims(findings: Sequence[Finding]) -> list[str]:
    heads = ("the paper says", "where", "on ours, as the paper does", "second reading", "verdict", "found")
    lines = [f"| {' | '.join(heads)} |", "| --- | --- | --- | --- | --- | --- |"]
    for finding in findings:
        claim, check = load_paper().claims[finding.key], CHECKS[finding.key]
        place = f"{claim.place} (line {claim.line})"
        explanation = (
            f"{finding.found}. *Holds where*: {check.holds}.{f' *Why*: {finding.why}' if finding.why else ''}"
        )
        pooled = check.pooled
        cells = (
            claim.says,
            place,
            _format_count(finding.paper, pooled),
            _format_count(finding.ours, pooled),
            f"**{finding.verdict}**",
            explanation,
        )
        lines.append(f"| {' | '.join(cell.replace('|', '∣') for cell in cells)} |")
    return lines


def _format_count(count: tuple[int, int], pooled: bool) -> str:
    held, tried = count
    if not tried:
        return "–"
    return ("yes" if held else "no") if pooled and tried == 1 else f"{held} of {tried}"


def _build_errata(reproduction: Reproduction) -> list[str]:
    lines = ["| the paper | where | our check |", "| --- | --- | --- |"]
    for slip in load_paper().slips.values():
        lines_of = dict.fromkeys(str(line) for line, _ in slip.quotes)
        place = f"{slip.place} (line{'s' if len(lines_of) > 1 else ''} {', '.join(lines_of)})"
        cells = (slip.says, place, check_slip(slip.key, reproduction))
        lines.append(f"| {' | '.join(cell.replace('|', '∣') for cell in cells)} |")
    return lines


def _list_missing(reproduction: Reproduction) -> list[str]:
    reasons = [f"- {run.name}: {line}" for run in reproduction.runs for line in run.missing]
    reasons += [f"- together: {line}" for line in reproduction.pooled.missing]
    return ["", "## What is missing", "", *reasons] if reasons else []


def _note_quick(reproduction: Reproduction) -> list[str]:
    if not reproduction.quick:
        return []
    return ["", "A quick look: fewer seeds, splits and grid points. Leave `--quick` out for the full one."]


def _format_duration(reproduction: Reproduction) -> str:
    workers = f"{reproduction.workers} process{'' if reproduction.workers == 1 else 'es'}"
    if reproduction.seconds < 90:
        return f"{reproduction.seconds:.0f} seconds of computing, by {workers}"
    return f"{reproduction.seconds / 60:.0f} minutes of computing, by {workers}"


def build_data(reproduction: Reproduction) -> dict[str, Any]:
    """Build plain data of tables, statements and errata; null for what is unknown."""
    claims = [
        {
            "key": one.key,
            "says": load_paper().claims[one.key].says,
            "place": load_paper().claims[one.key].place,
            "line": load_paper().claims[one.key].line,
            "verdict": one.verdict,
            "looked_at": CHECKS[one.key].value,
            "holds": CHECKS[one.key].holds,
            "reading": CHECKS[one.key].reading,
            "found": one.found,
            "why": one.why,
            "seen": one.seen,
        }
        for one in reproduction.findings.values()
    ]
    slips = [
        {"key": slip.key, "says": slip.says, "place": slip.place, "found": check_slip(slip.key, reproduction)}
        for slip in load_paper().slips.values()
    ]
    data: Any = replace_non_finite(
        {
            "recordings": [run.name for run in reproduction.runs],
            "quick": reproduction.quick,
            "seed": reproduction.seed,
            "seconds": reproduction.seconds,
            "tables": {key: table.records() for key, table in build_tables(reproduction).items()},
            "claims": claims,
            "slips": slips,
            "summary": summarise(reproduction),
            "missing": {run.name: run.missing for run in reproduction.runs if run.missing},
        }
    )
    return dict(data)
