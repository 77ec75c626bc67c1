"""`adacompute score`: shows the accuracy of recorded samples at each budget."""

import csv
import math
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from adacompute.atomic import publish_file
from adacompute.cli.options import (
    AnswerOptions,
    EngineOptions,
    JsonFlag,
    PoolPath,
    choose_from,
    load_settings,
)
from adacompute.cli.pool_options import ScoringOptions, SourceOptions, open_ballots
from adacompute.cli.terminal import (
    choose_scale,
    format_count,
    format_interval,
    format_path,
    format_percent,
    print_json,
    print_line,
    print_paragraph,
    print_table,
)
from adacompute.errors import needs_extra
from adacompute.pool.sqlite import map_errors
from adacompute.records import AccuracyTable, BudgetUnit
from adacompute.score.pool_summary import estimate_mean

CostOption = Annotated[BudgetUnit, choose_from(BudgetUnit, help="Unit in which to show costs.")]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="FILE", help="A .csv or .parquet file to write with every problem's scores."
    ),
]


def score(
    context: typer.Context,
    *,
    source: PoolPath,
    scoring: ScoringOptions,
    cost: CostOption = "samples",
    output: OutputOption = None,
    which: SourceOptions,
    reading: AnswerOptions,
    engine: EngineOptions,
    json: JsonFlag = False,
) -> None:
    """Show the accuracy of a pool's samples at each budget.

    Shows the mean over problems with its 95% interval, and the average cost. -o writes a file with the
    accuracy, standard error and cost of every problem at every budget.
    """
    engine.announce()
    if output is not None and output.suffix not in (".csv", ".parquet"):
        raise typer.BadParameter(f"{format_path(output)!r} has an unknown suffix; give .csv or .parquet")
    config = load_settings(context)
    method = scoring.build_scoring(cost, scoring.currency)
    with open_ballots(source, config.answers, reading, which, engine=engine) as (ballots, map_blocks):
        budgets = scoring.choose_budgets(ballots, config.score)
        scores = method.score_table(ballots, budgets, too_few=scoring.too_few, map_blocks=map_blocks)
    if output is not None:
        _write_scores(scores, output)
    print_json(_build_object(scores, source, output)) if json else _show(scores, source, output)


def _compute_means(scores: AccuracyTable) -> list[dict[str, Any]]:
    """Computes the mean accuracy over problems at each budget, with its interval."""
    costs = scores.cost_matrix.mean(axis=0).tolist()
    means = []
    for mode, values, cost in zip(scores.modes, scores.accuracy.T, costs, strict=True):
        estimate = estimate_mean(values)
        means.append(
            {
                "budget": mode,
                "accuracy": estimate.mean,
                "low": estimate.low,
                "high": estimate.high,
                "cost": cost,
            }
        )
    return means


def _build_object(scores: AccuracyTable, source: Path, output: Path | None) -> dict[str, Any]:
    return {
        "pool": format_path(source),
        "problems": len(scores),
        "dropped": list(scores.dropped),
        "unit": scores.unit,
        "rows": _compute_means(scores),
        "protocol": f"{scores.protocol}; 95% intervals over problems",
        "file": None if output is None else format_path(output),
    }


def _show(scores: AccuracyTable, source: Path, output: Path | None) -> None:
    left_out = f" ({len(scores.dropped):,} left out: they can't be scored)" if scores.dropped else ""
    print_line(f"{format_path(source)}: {format_count(len(scores), 'problem')}{left_out}")
    print_line()
    means = _compute_means(scores)
    rows = [
        [
            str(mean["budget"]),
            format_percent(mean["accuracy"]),
            format_interval(mean["low"], mean["high"]),
            choose_scale(scores.unit, mean["cost"]).format_cost(mean["cost"]),
        ]
        for mean in means
    ]
    print_table(["samples", "accuracy", "95% over problems", "average cost"], rows)
    print_line()
    print_paragraph(f"({scores.protocol})", indent=2)
    if output is not None:
        print_line(f"  every problem's: {format_path(output)}")


def _write_scores(scores: AccuracyTable, path: Path) -> None:
    """Writes a file with a row per problem and budget; leaves no file if this fails."""
    accuracy, errors = scores.accuracy, scores.standard_error
    known = np.full(accuracy.shape, np.nan) if errors is None else errors
    columns = {
        "problem": [name for name in scores.ids or () for _ in scores.modes],
        "budget": [mode for _ in scores.ids or () for mode in scores.modes],
        "accuracy": accuracy.ravel().tolist(),
        "standard_error": [None if math.isnan(error) else error for error in known.ravel().tolist()],
        "cost": scores.cost_matrix.ravel().tolist(),
    }
    with map_errors(path), publish_file(path) as beside:
        if path.suffix == ".csv":
            with beside.open("w", newline="", encoding="utf-8") as out:
                writer = csv.writer(out)
                writer.writerow(columns)
                writer.writerows(zip(*columns.values(), strict=True))
            return
        with needs_extra("parquet"):
            import pyarrow as pa
            import pyarrow.parquet as pq

        pq.write_table(pa.table(columns), beside)
