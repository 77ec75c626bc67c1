"""`adacompute demo`: asks a real model through the gateway, then evaluates bundled recordings."""

import json
import multiprocessing
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adacompute.answers import same_answer
from adacompute.cli.options import JsonFlag, load_settings
from adacompute.cli.terminal import (
    format_path,
    print_json,
    print_line,
    print_message,
    print_paragraph,
)
from adacompute.client.local import local_model
from adacompute.errors import LocalModelError, PoolNotFound
from adacompute.pool import bundled, join_pools
from adacompute.pool.modes import ModeSet
from adacompute.problems import Template
from adacompute.records import Problem, TokenPrices

if TYPE_CHECKING:
    from adacompute.evaluate.comparison import Evaluation, Verdict
    from adacompute.report.document import Report

# output folder; files in it are replaced only if an earlier demo wrote them
DEMO_FOLDER = Path("adacompute-demo")
# questions whose recorded samples are always right, almost always right, or right about half of the time;
# votes help most with the last sort
QUESTION_IDS = ("facts-000", "facts-137", "facts-052", "facts-101", "facts-202")
TEMPLATE = "answer-line"
RECORDINGS = ("facts", "words")  # bundled recordings that can be given as arguments
_RECORDING = "words"  # default: one recording, because evaluating each takes half a minute on one core
SAMPLING = {"temperature": 0.7, "max_tokens": 24}  # the parameters with which the recording was sampled
_BUDGET, _SEED = 3.0, 7
# recordings of two models that were asked the same questions
MENU_RECORDINGS = {"SmolLM2-135M": "facts", "Qwen2.5-1.5B": "facts-qwen"}
MENU_PRICES = {  # example prices in USD per million tokens
    "SmolLM2-135M": TokenPrices(input=0.1, output=0.5),
    "Qwen2.5-1.5B": TokenPrices(input=2.0, output=8.0),
}
_MENU_BUDGETS = (0.015e-3, 0.03e-3, 0.045e-3, 0.06e-3)  # average budgets in USD per request
# few folds and few random orders of the samples, so that the evaluation takes only half a minute
_MENU_FOLDS, _MENU_ORDERS = 2, 8
_STATE_FILE, _LOG_FILE = "gateway.sqlite", "gateway.log"
_REPLY_SECONDS = 120.0  # time limit in seconds for a reply, and for the gateway's start
_STOP_SECONDS = 10.0  # time limit in seconds for the gateway to stop; after that, it is killed
_LIVE_TITLE = "{model} on this machine, behind the gateway, asked with the OpenAI SDK:"
_ANSWER_WIDTH, _RIGHT_WIDTH, _SAMPLES_WIDTH = 12, 5, 7
_INTRODUCTION = (
    "A recording inside the package, of a small model that was asked each question 64 times: what does an "
    "average number of samples buy, when they are spent where they pay?"
)
_MENU_INTRODUCTION = (
    "Two models, in money: each was asked the same questions, facts, 64 times. At example prices of 0.10 USD "
    "per million tokens of prompts and 0.50 of responses for SmolLM2-135M, 2 and 8 for Qwen2.5-1.5B, a "
    "sample of the larger costs {ratio:.0f} times one of the smaller. What does an average sum buy, when "
    "each request may stop, ask again, or ask the other model? The questions are of seven kinds, "
    "and requests are taken to be of these too."
)
_NEXT_COMMANDS = (
    "adacompute ask QUESTION --endpoint URL   your own model, adaptively",
    "adacompute report words -o words         the same page without --quick: more folds and orders",
    "adacompute evaluate --join a=facts --join b=facts-qwen --cost a=1 --cost b=9 --no-groups   your menu",
    "adacompute local                         serve the model of this demo; then, in another terminal:",
    "adacompute serve --upstream http://127.0.0.1:8081/v1 --budget 3     the gateway",
    "docs/quickstart.md                       the same on your own endpoint, in 15 minutes",
)

RecordingsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RECORDING]...", help="Recordings: facts, words. [default: words]", show_default=False
    ),
]


def demo(context: typer.Context, recordings: RecordingsArgument = None, json: JsonFlag = False) -> None:
    """Ask a small model through the gateway, and write a report.

    Starts a small real model and a gateway on this machine, and asks a few questions. Then shows, on recorded
    answers, how much accuracy an average number of samples buys with one model, and an average amount of
    money with two models. Finally writes a report. Takes a minute or two on two cores.
    """
    from adacompute.report.canvas import check_drawing

    load_settings(context)  # reports errors in the settings before the demo begins
    check_drawing()  # fails early if matplotlib is missing
    names = _check_names(recordings or [_RECORDING])
    start = time.monotonic()

    def say(phase: str) -> None:
        print_message(f"{time.monotonic() - start:3.0f} s  {phase}")

    with _judge_in_background(names) as (verdicts, menu):
        live_result = ask_live(say, show=not json)
        if not json:
            print_paragraph(_INTRODUCTION)
            print_line()
        say(f"judging {', '.join(names)}: stopping against uniform sampling; a page of {names[0]}")
        report, page = _write_report(names[0], verdicts[names[0]])
        for name, verdict in verdicts.items():
            if not json:
                _show_verdict(name, verdict.result())
        say("judging two models on facts, in money")
        evaluation = menu.result()
    if json:
        print_json({"live": live_result, **_build_object(verdicts, report, page, evaluation)})
        return
    _show_menu(evaluation)
    if report.money is not None and report.money["words"]:
        print_paragraph(f"In money, on {names[0]}: {report.money['words']}")
        print_line()
    print_paragraph(f"One page of {names[0]}, with every policy at every budget; open it in a browser:")
    print_line(f"  {format_path(page)}")
    print_line()
    print_paragraph("Go on with (after `. .venv/bin/activate`, where make has set things up):")
    for words in _NEXT_COMMANDS:
        print_line(f"  {words}")
    print_message(f"done in {time.monotonic() - start:.0f} s")


def ask_live(say: Callable[[str], None], *, show: bool) -> dict[str, Any]:
    """Starts the model and the gateway, asks the questions, and stops both.

    Returns a JSON object with the replies, or with the reason why there are none. If `show`, prints each
    reply when it arrives.
    """
    say("starting a small real model on this machine")
    # leave one core to the process that evaluates the recordings at the same time
    cores = os.cpu_count() or 1
    try:
        with local_model(threads=max(1, cores - 1)) as model:
            start = time.monotonic()
            problems = _read_problems(QUESTION_IDS)
            width = max(len(problem.question) for problem in problems)

            def show_reply(request: Mapping[str, Any]) -> None:
                if request["question"] == problems[0].question:
                    print_paragraph(_LIVE_TITLE.format(model=model.name))
                    _print_row(width, "question", "answer", "right", "samples", "votes")
                answer, right = request["answer"], "yes" if request["right"] else "no"
                votes = format_votes(request["votes"], answer)
                _print_row(width, request["question"], answer or "–", right, str(request["samples"]), votes)

            say("starting the gateway in front of it, and asking")
            gateway_result = ask_gateway(
                model.url,
                model.name,
                DEMO_FOLDER,
                problems=problems,
                template=Template.named(TEMPLATE),
                on_reply=show_reply if show else None,
            )
            result = {"model": model.name, "seconds": time.monotonic() - start, "gateway": gateway_result}
    except LocalModelError as exc:
        result = {"absent": str(exc)}
    if show:
        _show_live_end(result)
    return result


def _print_row(width: int, question: str, answer: str, right: str, samples: str, votes: str) -> None:
    cells = [question.ljust(width), answer.ljust(_ANSWER_WIDTH), right.ljust(_RIGHT_WIDTH)]
    print_line("  " + "  ".join([*cells, samples.rjust(_SAMPLES_WIDTH), votes]).rstrip())


def _show_live_end(result: Mapping[str, Any]) -> None:
    """Shows the mean number of samples per reply, or why there are no replies."""
    gateway_result = result.get("gateway", result)
    if "absent" in gateway_result:
        print_line("a real model on this machine, behind the gateway")
        print_paragraph(gateway_result["absent"], indent=2)
    else:
        print_paragraph(
            "Where the first samples agree it stops; where they don't it asks again, and votes, weighed by "
            f"how sure the model was. {gateway_result['samples']:.1f} samples on average of these few, "
            f"{gateway_result['budget']:g} is what it steers towards.",
            indent=2,
            hang=2,
        )
    print_line()


def ask_gateway(
    upstream: str,
    model: str,
    folder: Path,
    *,
    problems: Sequence[Problem],
    template: Template,
    on_reply: Callable[[Mapping[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Starts the gateway, asks it the questions with the OpenAI SDK, and stops it; returns the replies."""
    try:
        from openai import OpenAI, OpenAIError
    except ImportError:
        return {"absent": "the OpenAI SDK isn't here: pip install openai, and run the demo again"}
    try:
        with _run_gateway(upstream, folder) as started:
            client = OpenAI(
                base_url=started["url"], api_key="none-is-needed", timeout=_REPLY_SECONDS, max_retries=0
            )
            requests = []
            for problem in problems:
                requests.append(_ask(client, model, problem, template))
                if on_reply is not None:
                    on_reply(requests[-1])
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


def _ask(client: Any, model: str, problem: Problem, template: Template) -> dict[str, Any]:  # noqa: ANN401 - the SDK's
    reply = client.chat.completions.create(
        model=model, messages=template.messages(problem), seed=_SEED, **SAMPLING
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
    """Runs a gateway in a process of its own, on a free port, with the command `adacompute serve`."""
    folder.mkdir(exist_ok=True)
    state, log = folder / _STATE_FILE, folder / _LOG_FILE
    for suffix in ("", "-wal", "-shm", "-journal"):  # remove the state of an earlier demo
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
    """Formats answers with their vote counts, `leader` first, even if another answer has more votes."""
    ranked = sorted(votes.items(), key=lambda item: (item[0] != leader, -item[1]))
    return ", ".join(answer + (f" × {count}" if count > 1 else "") for answer, count in ranked) or "–"


def _read_problems(ids: Sequence[str]) -> list[Problem]:
    with bundled("facts") as facts:
        known = {problem.id: problem for problem in facts.problems()}
    return [known[id_] for id_ in ids]


@contextmanager
def _judge_in_background(
    names: Sequence[str],
) -> "Iterator[tuple[dict[str, Future[Verdict]], Future[Evaluation]]]":
    """Evaluates the recordings in another process, while this one asks the model and writes the report."""
    from adacompute.evaluate.parallel import start_worker

    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=start_worker) as process:
        try:
            verdicts = {name: process.submit(judge_recording, name) for name in names}
            yield verdicts, process.submit(judge_menu)
        except BaseException:  # if the demo fails or is interrupted, stop evaluating
            process.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                child.terminate()
            raise


def judge_recording(name: str) -> "Verdict":
    """Computes what `adacompute evaluate` would say about a bundled recording."""
    from adacompute.evaluate.verdict import judge_pool

    with bundled(name) as pool:
        return judge_pool(pool.ballots())


def judge_menu() -> "Evaluation":
    """Compares a policy over two models with each model alone, at equal cost, on held-out problems."""
    from adacompute.evaluate import evaluate

    with join_pools(MENU_RECORDINGS) as pool:
        return evaluate(
            pool,
            modes=ModeSet.of(pool, prices=MENU_PRICES),
            budgets=_MENU_BUDGETS,
            policies=(),
            folds=_MENU_FOLDS,
            orders=_MENU_ORDERS,
            groups="none",
        )


def _check_names(requested: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of the recordings to evaluate, without duplicates.

    Raises an error if a name is unknown or the report can't be written.
    """
    # imported here, because the report needs matplotlib
    from adacompute.report.folder import check_report_folder

    for name in requested:
        if name not in RECORDINGS:
            raise PoolNotFound(f"the demo has no recording {name!r}; there are {', '.join(RECORDINGS)}")
    names = tuple(dict.fromkeys(requested))
    check_report_folder(DEMO_FOLDER / names[0])
    return names


def _write_report(name: str, verdict: "Future[Verdict]") -> tuple["Report", Path]:
    """Writes a quick report on a recording; returns the report and the path of its page."""
    from adacompute.report.build import build_report
    from adacompute.report.folder import render_files, write_report

    with bundled(name) as pool:
        ballots = pool.ballots()
    result = build_report(
        ballots,
        name=name,
        command=f"adacompute report {name} -o DIR --quick",
        quick=True,
        wait_for_verdict=verdict.result,
    )
    return result, write_report(render_files(result), DEMO_FOLDER / name)


def _show_verdict(name: str, verdict: "Verdict") -> None:
    from adacompute.cli.evaluation_tables import show_verdict

    print_paragraph(f"{name}: {verdict.protocol}")
    show_verdict(verdict)
    print_line()


def _show_menu(evaluation: "Evaluation") -> None:
    """Shows how much accuracy each average budget in money buys with one model, and with both."""
    from adacompute.cli.evaluation_tables import show_verdict

    menu = evaluation.get_modes()
    print_paragraph(_MENU_INTRODUCTION.format(ratio=menu.costs[-1] / menu.costs[0]))
    show_verdict(evaluation.verdict, menu=menu)
    print_line()


def _build_object(
    verdicts: "Mapping[str, Future[Verdict]]", report: "Report", page: Path, evaluation: "Evaluation"
) -> dict[str, Any]:
    from adacompute.report.document import replace_non_finite, to_data

    judged = {name: replace_non_finite(future.result()) for name, future in verdicts.items()}
    return {
        "verdicts": judged,
        "menu": replace_non_finite(evaluation.to_dict()),
        "report": {**to_data(report), "page": format_path(page)},
    }
