"""`adacompute import`, `export` and `pool`: move samples into and out of a pool, and show its content."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

from adacompute.cli.modes import ModeOptions
from adacompute.cli.options import (
    NO_ANSWER_HINT,
    AnswerOptions,
    BudgetsOption,
    JsonFlag,
    PoolPath,
    choose_from,
    load_settings,
    open_source,
    parse_budgets,
    parse_columns,
)
from adacompute.cli.terminal import (
    choose_scale,
    format_count,
    format_interval,
    format_path,
    format_percent,
    open_progress,
    print_fact,
    print_json,
    print_line,
    print_table,
)
from adacompute.config import AnswersConfig
from adacompute.errors import NotRecorded, PoolDamaged, shorten
from adacompute.pool import Ballots, Verification, check_export, export_file, export_shards, import_file
from adacompute.pool.modes import MODE_PARAMETER, ModeSet
from adacompute.pool.pool_files import Format
from adacompute.problems import read_samples
from adacompute.records import Account
from adacompute.score import SourceSummary, Summary, summarise
from adacompute.score.pool_summary import estimate_mean

_LABEL_WIDTH = 14  # width of labels in the summary, in columns
_LISTED_ROWS = 3  # maximum number of damaged rows that the error message lists


def show_summary(summary: Summary, *, name: str) -> None:
    """Shows what is in a pool, and for each model how often votes over several samples are right."""
    samples = format_count(summary.samples, "sample")
    print_line(f"{name}: {format_count(summary.problems, 'problem')}, {samples}")
    if summary.gold_known:
        known = format_percent(summary.gold_known / summary.problems)
        print_fact("gold answers", f"{known} of problems", column=_LABEL_WIDTH)
    for label, kinds in (("subjects", summary.subjects), ("levels", summary.levels)):
        if kinds:
            print_fact(label, _list_largest(kinds), column=_LABEL_WIDTH)
    for source in summary.sources:
        _show_source(source)
    if any(source.votes for source in summary.sources):
        print_line(f"  ({summary.protocol})")


def _show_source(source: SourceSummary) -> None:
    low, high = source.samples_min, source.samples_max
    parameters = {key: value for key, value in source.parameters.items() if key != MODE_PARAMETER}
    facts = [("mode", str(source.parameters[MODE_PARAMETER]))] if MODE_PARAMETER in source.parameters else []
    facts.append(("model", source.model or "(not named)"))
    if parameters:
        facts.append(
            ("parameters", ", ".join(f"{k} {_format_parameter(k, v)}" for k, v in parameters.items()))
        )
    facts.append(("samples", f"{low if low == high else f'{low} to {high}'} a problem"))
    facts.append(("answer found", f"{format_percent(source.answered)} of samples{_format_cut_off(source)}"))
    if not source.answered and not source.unvotable:
        facts.append(("hint", NO_ANSWER_HINT))
    if source.classes_mean is not None:
        classes = f"{source.classes_mean:.1f} different ones a problem, at most {source.classes_max}"
        facts.append(("answers", classes))
    if source.agreement is not None and source.answered:
        leader = (
            f"{format_percent(source.agreement)} of {source.agreement_budget} votes go to the leading answer"
        )
        is_partial = source.agreement_problems < source.problems
        facts.append(
            ("agreement", leader + (f" ({source.agreement_problems:,} problems)" if is_partial else ""))
        )
    if source.mean_tokens is not None:
        facts.append(("tokens", f"{source.mean_tokens:,.0f} a sample"))
    if source.account is not None:
        facts.append(("calls", _format_calls(source.account)))
    facts += [("failed", f"{number:,} × {kind}") for kind, number in source.failures.items()]
    if source.accuracy is None:
        facts.append(("accuracy", "not known: there are no gold answers and no recorded grades"))
    elif not source.votes:
        reason = "no answers were recorded" if source.unvotable else "too few samples"
        facts.append(
            ("accuracy", f"{format_percent(source.accuracy.mean)} of one sample; no votes: {reason}")
        )
    elif source.unvotable:
        facts.append(
            ("left out", f"{format_count(source.unvotable, 'problem')} without recorded answers: no vote")
        )
    for label, value in facts:
        print_fact(label, value, column=_LABEL_WIDTH)
    if source.votes:
        _show_votes(source)


def _show_votes(source: SourceSummary) -> None:
    tokens = source.mean_tokens
    print_table(
        ["samples voting", "accuracy", "95% interval", "problems", *(["tokens"] if tokens else [])],
        [
            [
                f"{budget}",
                format_percent(vote.mean),
                format_interval(vote.low, vote.high),
                f"{vote.problems:,}",
                *([f"{tokens * budget:,.0f}"] if tokens else []),
            ]
            for budget, vote in source.votes.items()
        ],
    )


def _format_cut_off(source: SourceSummary) -> str:
    if source.finished is None or source.finished == 1:
        return ""
    return f" ({format_percent(1 - source.finished)} were cut off)"


def _format_calls(account: Account) -> str:
    maybe = f" ({account.maybe:,} gave nothing and may have been charged)" if account.maybe else ""
    tokens = f"{account.prompt_tokens:,} tokens of prompts, {account.completion_tokens:,} of responses"
    return f"{account.calls:,}{maybe}, {tokens}"


def _format_parameter(name: str, value: object) -> str:
    """Formats a sampling parameter; shortens the text of a prompt template."""
    if name == "template" and isinstance(value, Mapping) and value.get("messages"):
        turns = value["messages"]
        return f"of {format_count(len(turns), 'turn')} ({shorten(str(turns[0].get('content', '')), 40)})"
    return shorten(str(value), 40)


def _list_largest(kinds: Mapping[str, int], *, limit: int = 6) -> str:
    """Lists the most frequent kinds with their counts: `capital (123), past (45), and 4 more`."""
    by_size = sorted(kinds.items(), key=lambda item: -item[1])
    names = ", ".join(f"{kind} ({number})" for kind, number in by_size[:limit])
    return names + (f", and {len(kinds) - limit} more" if len(kinds) > limit else "")


def describe_damage(verification: Verification, *, name: str) -> str:
    """Describes in one line which rows of a pool are damaged, and what to do."""
    damaged = [*verification.mismatches, *verification.integrity, *verification.foreign_keys]
    more = f" and {len(damaged) - _LISTED_ROWS:,} more" if len(damaged) > _LISTED_ROWS else ""
    return (
        f"{name}: {'; '.join(damaged[:_LISTED_ROWS])}{more} not as written; "
        "restore the pool from a copy, or import its source again"
    )


ExistingSamples = Literal["error", "skip"]


def import_(
    context: typer.Context,
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A pool, table or log, or a folder of them.")],
    pool_path: Annotated[Path, typer.Option("--pool", help="Pool file to add to; created if missing.")],
    file_format: Annotated[Format, choose_from(Format, "--format", help="Format of the file.")] = "native",
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="For a table (JSON, CSV, Parquet): which column holds what, e.g. "
            "question=prompt,text=output,gold=label; also answer, id, model, tokens and others.",
        ),
    ] = None,
    reading: AnswerOptions,
    existing: Annotated[
        ExistingSamples,
        choose_from(ExistingSamples, help="What to do with problems whose samples are already there."),
    ] = "error",
    reread: Annotated[
        bool, typer.Option("--reread", help="Extract answers from the texts, even if the file gives them.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Add recorded samples to a pool.

    A table has one sample or a list of samples per row; rows with the same question are one problem. Answers
    are extracted from the texts if the file doesn't give them, and graded if it gives a gold answer. A pool
    keeps the --extract and --percent that it was created with. If anything fails, nothing is added.
    """
    task, default_task = reading.build_tasks(load_settings(context).answers)
    if columns is not None and file_format != "native":
        raise typer.BadParameter("is for tables; leave --format out", param_hint="--columns")
    source = file if columns is None else read_samples(file, columns=parse_columns(columns))
    start = time.monotonic()
    with open_progress(f"importing {format_path(file)}") as update:

        def report(problems: int, samples: int) -> None:
            rate = samples / max(time.monotonic() - start, 1e-9)
            update(problems, None, f"problems, {format_count(samples, 'sample')}, {rate:,.0f} a second")

        result = import_file(
            source,
            pool_path,
            format=file_format,
            task=task,
            default_task=default_task,
            existing=existing,
            reread=reread,
            progress=report,
        )
    if json:
        print_json({"pool": format_path(pool_path), **asdict(result)})
        return
    added = f"{format_count(result.problems, 'problem')} and {format_count(result.samples, 'sample')}"
    print_line(f"{format_path(pool_path)}: added {added}")
    if result.failures:
        print_line(f"  and {format_count(result.failures, 'failed attempt')}")
    if result.skipped:
        print_line(f"  left out {format_count(result.skipped, 'problem')} whose samples were already there")


def export(
    source: PoolPath,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A .jsonl, .jsonl.gz or .parquet file; with --shards, a folder."),
    ],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    shards: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Write N Parquet files into a new folder, for --engine ray."),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Write a pool to a file, without loss.

    The file, or with --shards the folder, is written whole or not at all.
    """
    if shards is not None and overwrite:
        raise typer.BadParameter(
            "a folder of shards is never replaced; remove it first", param_hint="--overwrite"
        )
    check_export(file, overwrite=overwrite, shards=shards)  # reports errors before the pool is read
    with open_source(source) as opened_pool:
        result = (
            export_file(opened_pool, file, overwrite=overwrite)
            if shards is None
            else export_shards(opened_pool, file, shards=shards)
        )
    if json:
        print_json({"file": format_path(file), **asdict(result)})
        return
    size = f"{format_count(result.problems, 'problem')}, {format_count(result.samples, 'sample')}"
    print_line(f"{format_path(file)}: {size}, {result.bytes:,} bytes")


def _summarise_mode(name: str, ballots: Ballots, mode_set: ModeSet | None) -> dict[str, Any]:
    """Returns a mode's statistics for the JSON output; unknown values are null."""
    present = ballots.classes >= -1
    graded = ~np.isnan(ballots.correct).all(axis=1)  # which problems have grades; shape (problems,)
    tokens = ballots.tokens[present]
    accuracy = None
    if graded.any():
        accuracy = asdict(estimate_mean(np.nanmean(ballots.correct[graded].astype(np.float64), axis=1)))
    return {
        "mode": name,
        "model": ballots.model,
        "problems": len(ballots),
        "samples": int(present.sum()),
        "answered": float((ballots.classes[present] >= 0).mean()),
        "accuracy": accuracy,  # accuracy of a single sample
        "tokens": None if np.isnan(tokens).any() else float(tokens.mean()),
        "cost": mode_set[name].cost if mode_set is not None and name in mode_set.names else None,
    }


def _show_modes(modes: Sequence[Mapping[str, Any]], mode_set: ModeSet | None) -> None:
    """Shows the number of modes and problems, then a table of the modes."""
    print_line(f"{format_count(len(modes), 'mode')} of {format_count(modes[0]['problems'], 'problem')}")
    unit = "" if mode_set is None or mode_set.unit == "cost" else f", {mode_set.currency or mode_set.unit}"
    scale = choose_scale(unit, 0.0 if mode_set is None else mode_set.modes[-1].cost)
    cost_of = "a sample" if scale.problems == 1 else f"{scale.problems:,} samples"
    headings = ["mode", "problems", "samples", "answer found", "accuracy of one", "95% interval", "tokens"]
    rows = []
    for mode in modes:
        accuracy, tokens, cost = mode["accuracy"], mode["tokens"], "not known"
        if mode["cost"] is not None:
            cost = scale.format_number(mode["cost"]) if math.isfinite(mode["cost"]) else "never drawn"
        cells = [shorten(mode["mode"], 40), f"{mode['problems']:,}", f"{mode['samples']:,}"]
        right = ["not known", ""]
        if accuracy is not None:
            right = [format_percent(accuracy["mean"]), format_interval(accuracy["low"], accuracy["high"])]
        cells += [format_percent(mode["answered"]), *right]
        rows.append([*cells, "not known" if tokens is None else f"{tokens:,.1f}", cost])
    print_table([*headings, f"cost of {cost_of}{unit}"], rows)


def _show_joined(options: ModeOptions, answers: AnswersConfig, *, json: bool) -> None:
    """Shows a table of modes, which are several joined pools or the models in one pool."""
    given = options.read_costs()
    ballots = options.read_modes(answers)
    mode_set = _find_modes(ballots, given)
    modes = [
        _summarise_mode(name, votes, mode_set)
        for name, votes in zip(ballots.names, ballots.parts, strict=True)
    ]
    if not json:
        _show_modes(modes, mode_set)
        return
    body: dict[str, Any] = {"problems": len(ballots), "modes": modes}
    if options.join:
        body = {**options.describe(), **body}
    print_json(
        body if mode_set is None else {**body, "unit": mode_set.unit, "currency": mode_set.currency or None}
    )


def _find_modes(ballots: Ballots, given: Mapping[str, Any]) -> ModeSet | None:
    """Returns the modes with their costs; None if there are no cost options and no recorded tokens."""
    try:
        return ModeSet.of(ballots, **given)
    except NotRecorded:
        if any(given.values()):
            raise
        return None


def pool(
    context: typer.Context,
    *,
    mode_set: ModeOptions,
    budgets: BudgetsOption = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check every row against its stored hash.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Show what is in a pool, and how often its votes are right.

    Shows problems, samples, models, how often an answer is found, how much the answers agree, and the
    accuracy of one sample and of votes at each budget, with 95% intervals over problems. With --join,
    --cost or --prices, shows problems, samples, accuracy of one sample, tokens and cost of each mode.
    """
    config = load_settings(context)
    if mode_set.is_given:
        for is_given, option in ((budgets is not None, "--budgets"), (verify, "--verify")):
            if is_given:
                raise typer.BadParameter("is for one pool; leave it out beside modes", param_hint=option)
        _show_joined(mode_set, config.answers, json=json)
        return
    source = mode_set.get_source()
    budget_list = parse_budgets(config.score, budgets)
    with open_source(source, mode_set.build_tasks(config.answers)) as opened_pool:
        verification = opened_pool.verify() if verify else None
        if verification is not None and not verification.ok:
            if json:
                print_json({"pool": format_path(source), "verification": verification.to_dict()})
            raise PoolDamaged(describe_damage(verification, name=format_path(source)))
        summary = summarise(opened_pool, budgets=budget_list)
    if json:
        body = {"pool": format_path(source), **summary.to_dict()}
        print_json(body if verification is None else {**body, "verification": verification.to_dict()})
        return
    show_summary(summary, name=format_path(source))
    if verification is not None:
        problems = format_count(verification.problems, "problem")
        samples = format_count(verification.samples, "sample")
        print_line(f"verified: {problems} and {samples}, each as it was written")
