"""`adacompute score`: how right recorded samples are at each budget. Knows no mathematics."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from adacompute.cli.amounts import scale_of
from adacompute.cli.engine import Engine, EngineName, Workers, check_workers, say_engine
from adacompute.cli.options import Budgets, Extract, Json, Percent, PoolPath, settings, wanted_budgets
from adacompute.cli.sharded import shards_from
from adacompute.cli.show import as_json, counted, interval, line, paragraph, path_text, percent, table
from adacompute.cli.sizes import allowed
from adacompute.cli.source import Model, Parameters, ballots_from
from adacompute.cli.ways import (
    Aggregate,
    Cost,
    Currency,
    Estimate,
    Estimator,
    Few,
    How,
    InputPrice,
    OutputPrice,
    Shrink,
    Signal,
    TooFew,
    Unit,
    cost_of,
    scoring,
)
from adacompute.config import ScoreConfig
from adacompute.pool.faults import mapped
from adacompute.pool.publish import published
from adacompute.records import AccuracyTable
from adacompute.scale.stages import scored
from adacompute.score.shrink import shrink as shrunk
from adacompute.score.summary import estimated

__all__ = ["score"]

_COLUMNS = ("problem", "budget", "accuracy", "standard_error", "cost")

Out = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="FILE", help="A .csv or .parquet file for every problem's scores."
    ),
]


def score(
    context: typer.Context,
    source: PoolPath,
    budgets: Budgets = None,
    aggregate: How = Aggregate.vote,
    by: Signal = None,
    estimator: Estimate = Estimator.exact,
    cost: Unit = Cost.samples,
    input_price: InputPrice = None,
    output_price: OutputPrice = None,
    currency: Currency = None,
    too_few: Few = TooFew.error,
    shrink: Shrink = False,
    output: Out = None,
    model: Model = None,
    parameters: Parameters = None,
    extract: Extract = None,
    percent: Percent = None,
    engine: Engine = EngineName.local,
    workers: Workers = None,
    json: Json = False,
) -> None:
    """Say how right the samples of a pool are at each budget.

    The mean accuracy over problems with its 95% interval, and what it costs; with -o, also a file with the
    accuracy, standard error and cost of every problem at every budget.
    """
    check_workers(engine, workers)
    say_engine(engine)
    if output is not None and output.suffix not in (".csv", ".parquet"):
        raise typer.BadParameter(f"{path_text(output)!r} has an unknown suffix; give .csv or .parquet")
    config = settings(context)
    sizes = wanted_budgets(config.score, budgets)
    default = budgets is None and config.score == ScoreConfig()
    how = scoring(aggregate, by, estimator, cost=cost_of(cost, input_price, output_price, currency))
    read: dict[str, Any] = {"answers": config.answers, "model": model, "parameters": parameters}
    read |= {"extract": extract, "percent": percent}
    drop = too_few is TooFew.drop
    if engine is EngineName.ray:
        with shards_from(source, workers=workers, **read) as shards:
            sizes = allowed(shards.heads, sizes, drop=drop) if default else sizes
            found = scored(shards, sizes, too_few=too_few.value, **how.asked())
    else:
        ballots = ballots_from(source, **read)
        sizes = allowed(ballots, sizes, drop=drop) if default else sizes
        found = how.table(ballots, sizes, too_few=too_few.value)
    found = shrunk(found) if shrink else found
    if output is not None:
        _write(found, output)
    as_json(_object(found, source, output)) if json else _show(found, source, output)


def _means(found: AccuracyTable) -> list[dict[str, Any]]:
    """Each budget's mean over problems, with its interval."""
    costs = found.cost_matrix.mean(axis=0).tolist()
    means = []
    for mode, values, cost in zip(found.modes, found.accuracy.T, costs, strict=True):
        told = estimated(values)
        means.append(
            {"budget": mode, "accuracy": told.mean, "low": told.low, "high": told.high, "cost": cost}
        )
    return means


def _object(found: AccuracyTable, source: Path, output: Path | None) -> dict[str, Any]:
    return {
        "pool": path_text(source),
        "problems": len(found),
        "dropped": list(found.dropped),
        "unit": found.unit,
        "rows": _means(found),
        "protocol": f"{found.protocol}; 95% intervals over problems",
        "file": None if output is None else path_text(output),
    }


def _show(found: AccuracyTable, source: Path, output: Path | None) -> None:
    left_out = f" ({len(found.dropped):,} left out: they can't be scored)" if found.dropped else ""
    line(f"{path_text(source)}: {counted(len(found), 'problem')}{left_out}")
    line()
    means = _means(found)
    rows = [
        [
            str(each["budget"]),
            percent(each["accuracy"]),
            interval(each["low"], each["high"]),
            scale_of(found.unit, each["cost"]).words(each["cost"]),
        ]
        for each in means
    ]
    table(["samples", "accuracy", "95% over problems", "average cost"], rows)
    line()
    paragraph(f"({found.protocol})", indent=2)
    if output is not None:
        line(f"  every problem's: {path_text(output)}")


def _write(found: AccuracyTable, path: Path) -> None:
    """One row for each problem and budget, whole or not at all."""
    with mapped(path), published(path) as beside:
        if path.suffix == ".csv":
            with beside.open("w", newline="", encoding="utf-8") as out:
                writer = csv.writer(out)
                writer.writerow(_COLUMNS)
                writer.writerows(_rows(found))
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = zip(*_rows(found), strict=True)
        pq.write_table(pa.table(dict(zip(_COLUMNS, map(list, columns), strict=True))), beside)


def _rows(found: AccuracyTable) -> Iterator[tuple[Any, ...]]:
    errors = np.full(found.accuracy.shape, np.nan) if found.standard_error is None else found.standard_error
    costs = found.cost_matrix
    for row, name in enumerate(found.ids or ()):
        for column, mode in enumerate(found.modes):
            error = float(errors[row, column])
            yield (
                name,
                mode,
                float(found.accuracy[row, column]),
                None if np.isnan(error) else error,
                float(costs[row, column]),
            )
