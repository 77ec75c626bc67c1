"""`adacompute import`, `export` and `pool`. Knows the words of the commands, not how a pool works."""

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from adacompute.cli.options import (
    Budgets,
    Extract,
    Json,
    Percent,
    PoolPath,
    opened,
    settings,
    tasks_of,
    wanted_budgets,
)
from adacompute.cli.show import as_json, counted, line, path_text, progress
from adacompute.cli.summary import damage, show_summary
from adacompute.errors import PoolDamaged
from adacompute.pool import export_file, export_shards, import_file
from adacompute.score import summarise

__all__ = ["export", "import_", "pool"]


class Format(StrEnum):
    native = "native"
    lm_eval = "lm-eval"
    inspect = "inspect"


class Existing(StrEnum):
    error = "error"
    skip = "skip"


def import_(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A pool file, a log, or a folder of them.")],
    into: Annotated[Path, typer.Option("--pool", help="The pool to add to; made if it isn't there.")],
    kind: Annotated[Format, typer.Option("--format", help="What wrote the file.")] = Format.native,
    extract: Extract = None,
    percent: Percent = None,
    existing: Annotated[
        Existing, typer.Option(help="What to do about problems whose samples are already there.")
    ] = Existing.error,
    reread: Annotated[
        bool, typer.Option("--reread", help="Read answers out of the texts anew, whatever the file says.")
    ] = False,
    json: Json = False,
) -> None:
    """Add recorded samples to a pool: all or nothing.

    Answers are read out of the texts where the file doesn't give them, and graded where it gives a gold
    answer. A pool keeps the --extract and --percent it was made with.
    """
    asked, default = tasks_of(settings(context).answers, extract, percent)
    with progress(f"importing {path_text(file)}") as at:
        done = import_file(
            file,
            into,
            format=kind.value,
            task=asked,
            default_task=default,
            existing=existing.value,
            reread=reread,
            progress=at,
        )
    if json:
        as_json({"pool": path_text(into), **asdict(done)})
        return
    line(
        f"{path_text(into)}: added {counted(done.problems, 'problem')} and {counted(done.samples, 'sample')}"
    )
    if done.failures:
        line(f"  and {counted(done.failures, 'failed attempt')}")
    if done.skipped:
        line(f"  left out {counted(done.skipped, 'problem')} whose samples were already there")


def export(
    source: PoolPath,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A .jsonl, .jsonl.gz or .parquet file; with --shards, a folder."),
    ],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it is there.")] = False,
    shards: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Write N Parquet files into a new folder, for --engine ray."),
    ] = None,
    json: Json = False,
) -> None:
    """Write a pool to a file, without loss.

    The file, or the folder of --shards, appears whole or not at all.
    """
    if shards is not None and overwrite:
        raise typer.BadParameter(
            "a folder of shards is never replaced; remove it first", param_hint="--overwrite"
        )
    with opened(source) as stored:
        done = (
            export_file(stored, file, overwrite=overwrite)
            if shards is None
            else export_shards(stored, file, shards=shards)
        )
    if json:
        as_json({"file": path_text(file), **asdict(done)})
        return
    size = f"{counted(done.problems, 'problem')}, {counted(done.samples, 'sample')}, {done.bytes:,} bytes"
    line(f"{path_text(file)}: {size}")


def pool(
    context: typer.Context,
    source: PoolPath,
    budgets: Budgets = None,
    extract: Extract = None,
    percent: Percent = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check every row against the hash it was stored with.")
    ] = False,
    json: Json = False,
) -> None:
    """Say what is in a pool, and how right its votes are.

    Problems, samples, models, share of answers found, agreement, and the accuracy of one sample and of
    votes by budget, each with its 95% interval over problems.
    """
    config = settings(context)
    wanted = wanted_budgets(config.score, budgets)
    asked, default = tasks_of(config.answers, extract, percent)
    with opened(source, task=asked, default_task=default) as stored:
        checked = stored.verify() if verify else None
        if checked is not None and not checked.ok:
            if json:
                as_json({"pool": path_text(source), "verification": checked.to_dict()})
            raise PoolDamaged(damage(checked, name=path_text(source)))
        summary = summarise(stored, budgets=wanted)
    if json:
        body = {"pool": path_text(source), **summary.to_dict()}
        as_json(body if checked is None else {**body, "verification": checked.to_dict()})
        return
    show_summary(summary, name=path_text(source))
    if checked is not None:
        rows = f"{counted(checked.problems, 'problem')} and {counted(checked.samples, 'sample')}"
        line(f"verified: {rows}, each as it was written")
