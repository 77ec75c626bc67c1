"""`adacompute demo`: a report of each bundled recording, then a gateway in front of a real model."""

import json
import math
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adacompute.answers import same_answer
from adacompute.cli.options import JsonFlag, load_settings
from adacompute.cli.progress import show_progress
from adacompute.cli.terminal import (
    format_count,
    format_path,
    format_percent,
    print_json,
    print_line,
    print_paragraph,
    print_table,
)
from adacompute.client.local import local_model
from adacompute.errors import LocalModelError, PoolNotFound
from adacompute.pool import bundled, bundled_names
from adacompute.problems import Template
from adacompute.records import Problem

if TYPE_CHECKING:
    from adacompute.evaluate import Evaluation, Match
    from adacompute.report.document import Report

__all__ = ["ask_gateway", "demo"]

GATEWAY_TITLE = "the gateway in front of a real model on this machine, asked with the OpenAI SDK"
_BUDGET = 3.0
_STATE_FILE, _LOG_FILE = "gateway.sqlite", "gateway.log"
_REPLY_SECONDS = 120.0  # seconds for one reply, and until it serves
_STOP_SECONDS = 10.0  # seconds from SIGTERM to SIGKILL


def ask_gateway(
    upstream: str, model: str, folder: Path, *, problems: Sequence[Problem], template: Template
) -> dict[str, Any]:
    """Start the gateway, ask it with the OpenAI SDK, stop it; returns what each question took."""
    try:
        from openai import OpenAI, OpenAIError
    except ImportError:
        return {"absent": "the OpenAI SDK isn't here: pip install openai, and say make demo again"}
    try:
        with _run_gateway(upstream, folder) as started:
            client = OpenAI(
                base_url=started["url"], api_key="none-is-needed", timeout=_REPLY_SECONDS, max_retries=0
            )
            requests = [_ask(client, model, problem, template) for problem in problems]
    except (OpenAIError, OSError, LookupError, ValueError) as exc:
        log = folder / _LOG_FILE
        return {"absent": f"the gateway did not answer: {str(exc) or type(exc).__name__}; {log} may say why"}
    samples = [request["samples"] for request in requests]
    return {
        "url": started["url"],
        "policy": started["policy"],
        "budget": _BUDGET,
        "requests": requests,
        "samples": sum(samples) / len(samples),
    }


def show_gateway(result: dict[str, Any], *, model: str) -> None:
    """Show what each question took of that model."""
    print_line(GATEWAY_TITLE)
    if "absent" in result:
        print_paragraph(result["absent"], indent=2)
        return
    print_table(
        ["question", "votes, the leader first", "answer given", "right", "samples", "tokens"],
        [
            [
                request["question"],
                format_votes(request["votes"], request["answer"]),
                request["answer"] or "–",
                "yes" if request["right"] else "no",
                str(request["samples"]),
                str(request["tokens"]),
            ]
            for request in result["requests"]
        ],
    )
    print_paragraph(
        "Votes are weighed by how sure the model was of each, so two may lose to one.",
        indent=2,
        hang=2,
    )
    print_paragraph(
        f"{model}; {result['samples']:.1f} samples on average of these few, {result['budget']:g} is what it "
        "steers towards. `adacompute serve` is the same, for your own endpoint: clients change base_url.",
        indent=2,
        hang=2,
    )


def _ask(client: Any, model: str, problem: Problem, template: Template) -> dict[str, Any]:  # noqa: ANN401 - the SDK's
    reply = client.chat.completions.create(
        model=model, messages=template.messages(problem), temperature=0.7, max_tokens=24, seed=7
    )
    extra = reply.model_extra["adacompute"]
    return {
        "question": problem.question,
        "answer": extra["answer"],
        "right": extra["answer"] is not None and same_answer(extra["answer"], problem.gold or "–"),
        "votes": extra["votes"],
        "samples": extra["samples"],
        "tokens": reply.usage.total_tokens,
    }


@contextmanager
def _run_gateway(upstream: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Run a gateway as a process of its own, as an operator starts it, on a free port."""
    folder.mkdir(exist_ok=True)
    state, log = folder / _STATE_FILE, folder / _LOG_FILE
    for suffix in ("", "-wal", "-shm", "-journal"):  # of an earlier demo
        state.with_name(_STATE_FILE + suffix).unlink(missing_ok=True)
    words = ["serve", "--json", "--upstream", upstream, "--budget", f"{_BUDGET:g}", "--port", "0"]
    with log.open("wb") as errors:
        process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "adacompute", *words, "--state", str(state)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    try:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], _REPLY_SECONDS)
        first_line = process.stdout.readline() if ready else b""
        if not first_line:
            raise LocalModelError(f"the gateway did not start; {log} says why")
        yield json.loads(first_line)
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def format_votes(votes: Mapping[str, int], leader: str | None = None) -> str:
    """Write answers with their votes, the leader first: weighted, it may have fewer votes than others."""
    ranked = sorted(votes.items(), key=lambda item: (item[0] != leader, -item[1]))
    return ", ".join(answer + (f" × {count}" if count > 1 else "") for answer, count in ranked) or "–"


DEMO_FOLDER = Path("adacompute-demo")  # each demo replaces its own files in it, and nothing else
_QUESTION_IDS = (
    "facts-003",
    "facts-027",
    "facts-120",
    "facts-200",
    "facts-216",
    "facts-280",
)  # some easy, some not
_TEMPLATE = "answer-line"


def ask_live() -> dict[str, Any]:
    """Start the model and the gateway, ask, stop both; returns what each question took.

    Without the model, returns why it isn't there.
    """
    try:
        with local_model() as model:
            start = time.monotonic()
            template = Template.named(_TEMPLATE)
            gateway_result = ask_gateway(
                model.url, model.name, DEMO_FOLDER, problems=_read_problems(_QUESTION_IDS), template=template
            )
            return {"model": model.name, "seconds": time.monotonic() - start, "gateway": gateway_result}
    except LocalModelError as exc:
        return {"absent": str(exc)}


def show_live(result: dict[str, Any]) -> None:
    """Show what each question took."""
    if "absent" in result:
        print_line("a real model on this machine, live")
        print_paragraph(result["absent"], indent=2)
        return
    show_gateway(result["gateway"], model=result["model"])


def _read_problems(ids: Sequence[str]) -> list[Problem]:
    with bundled("facts") as facts:
        known = {problem.id: problem for problem in facts.problems()}
    return [known[id_] for id_ in ids]


_MAX_WORKERS = 2
_COLUMN_NOTE = (
    "uniform: the same number of samples for every problem, at the best mix of two numbers. asc: Adaptive-"
    "Consistency, the published rule that stops when the leader is likely to stay it. stopping: ours, which "
    "stops when the next sample isn't worth its price. gain: over uniform at the same cost, in points, "
    "paired over problems. as good as: so many uniform samples are right as often. In brackets are "
    "95% intervals over problems. USD: output tokens of a million requests at 0.60 per million, and of as "
    "many uniform samples as are as good; an example: `adacompute report` takes your own prices."
)
_NEXT_COMMANDS = (
    "adacompute report words -o words        the same page without --quick: all folds, orders and seeds",
    "adacompute fit words -o policy          learn a policy and save it",
    "adacompute local                        serve that model; then, in another terminal:",
    "adacompute serve --upstream http://127.0.0.1:8081/v1 --budget 3 --policy policy   the gateway",
    "docs/quickstart.md                      the same on your own endpoint, in 15 minutes",
)

RecordingsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[RECORDING]...", help="Only these. [default: all]", show_default=False),
]


def demo(context: typer.Context, recordings: RecordingsArgument = None, json: JsonFlag = False) -> None:
    """Report on the bundled recordings, then ask a gateway live.

    Shown is what an average number of samples buys on each recording; a report of each is written. Then a
    gateway is started in front of a small real model on this machine, and is asked a few questions.
    """
    load_settings(context)  # so that errors in the settings show at once
    names = _check_names(recordings or bundled_names())
    reports = {name: _write_report(name) for name in names}
    if json:
        live_result = ask_live()
        print_json({**{name: _build_object(*made) for name, made in reports.items()}, "live": live_result})
        return
    number = format_count(len(reports), "recording")
    print_paragraph(f"{number} inside the package: small models, asked each question many times.")
    print_paragraph("What does an average number of samples buy, when they are spent where they pay?")
    for name, (report, _) in reports.items():
        print_line()
        _show_recording(name, report)
    print_line()
    print_paragraph(_COLUMN_NOTE)
    print_line()
    show_live(ask_live())  # last, because a model and a gateway may take long, or fail
    print_line()
    print_paragraph("One page of each, with every policy at every budget:")
    for _, page in reports.values():
        print_line(f"  {format_path(page)}")
    print_line()
    print_paragraph("Go on with (after `. .venv/bin/activate`, where make has set things up):")
    for words in _NEXT_COMMANDS:
        print_line(f"  {words}")


def _check_names(requested: Sequence[str]) -> tuple[str, ...]:
    """Return the recordings, each once; refused before any work if one is unknown or can't be written."""
    # imported here, so that other commands start without matplotlib
    from adacompute.report.folder import check_report_folder

    known = bundled_names()
    for name in requested:
        if name not in known:
            raise PoolNotFound(f"there is no recording {name!r} in the package; there are {', '.join(known)}")
    for name in dict.fromkeys(requested):
        check_report_folder(DEMO_FOLDER / name)
    return tuple(dict.fromkeys(requested))


def _write_report(name: str) -> tuple["Report", Path]:
    """Write the quick report of a recording; returns it and where its page is."""
    from adacompute.report.build import build_report
    from adacompute.report.folder import render_files, write_report

    with bundled(name) as pool:
        ballots = pool.ballots()
    with show_progress(f"report of {name}") as report_progress:
        result = build_report(
            ballots,
            name=name,
            command=f"adacompute report {name} -o DIR --quick",
            quick=True,
            workers=min(_MAX_WORKERS, os.cpu_count() or 1),
            progress=report_progress,
        )
    return result, write_report(render_files(result), DEMO_FOLDER / name)


def _show_recording(name: str, report: "Report") -> None:
    evaluation, facts = report.evaluation, report.facts
    print_paragraph(f"{name}: {report.headline}")
    print_paragraph(
        f"{evaluation.problems:,} problems, {facts['samples_least']} samples each of {facts['model']}; "
        f"held-out, {evaluation.folds} folds, {evaluation.votes} votes",
        indent=2,
        hang=2,
    )
    money = report.money or {}
    headings = ["samples", "uniform", "asc", "stopping", "gain", "as good as", "saved"]
    print_table(
        [*headings, f"{money['currency']}, 1M requests"],
        [_build_row(budget, evaluation, money) for budget in evaluation.budgets],
    )


def _build_row(budget: float, evaluation: "Evaluation", money: Mapping[str, Any]) -> list[str]:
    """Build the row of one average budget: what it buys, what would buy as much uniformly, both in money."""
    cells = [f"{budget:g}"]
    cells += [_format_accuracy(evaluation.match(policy, budget)) for policy in ("fixed", "asc", "stopping")]
    match = evaluation.match("stopping", budget)
    cells += ["–", "–", "–"] if match is None else [_format_gain(match), *_format_worth(match)]
    money_row = next((row for row in money["rows"] if row["budget"] == budget), None)
    tokens = [] if money_row is None else [money_row["tokens"], money_row["same_as_tokens"]]
    # a million requests, at a price per million tokens
    cells.append(", not ".join(f"{count * money['output_price']:,.0f}" for count in tokens if count) or "–")
    return cells


def _format_accuracy(match: "Match | None") -> str:
    return "–" if match is None else format_percent(match.accuracy)


def _format_gain(match: "Match") -> str:
    from adacompute.report.document import Column, format_cell

    return format_cell(match.gain, Column(name="gain", kind="points"))


def _format_worth(match: "Match") -> tuple[str, str]:
    """Write how many uniform samples are as good, and the share of them that is saved."""
    worth = match.worth
    if worth is None:
        return "–", "–"
    if not math.isfinite(worth.mean):
        low_end = worth.low if worth.low is not None and math.isfinite(worth.low) else None
        return ("more than there are" if low_end is None else f"{low_end:.1f} or more"), "–"
    ends = [end for end in (worth.low, worth.high) if end is not None]
    shown = [f"{end:.1f}" if math.isfinite(end) else "more" for end in ends]
    interval_text = f" ({' to '.join(shown)})" if shown else ""
    return f"{worth.mean:.1f}{interval_text}", f"{1 - match.budget / worth.mean:.0%}"


def _build_object(report: "Report", page: Path) -> dict[str, Any]:
    from adacompute.report.document import to_data

    return {**to_data(report), "page": format_path(page)}
