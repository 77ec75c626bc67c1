"""The `adacompute` command: its subcommands, errors in one line, exit codes. Knows no stage itself."""

import signal
import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from adacompute.cli import (
    allocate,
    answer,
    collect,
    demo,
    evaluate,
    fit,
    local,
    pools,
    replay,
    report,
    reproduce,
    score,
    serve,
    solve,
)
from adacompute.cli.show import line, message, open_streams
from adacompute.errors import AdacomputeError

__all__ = ["app", "main"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        line(f"adacompute {installed_version('adacompute')}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option(help="Settings (TOML); without it, adacompute.toml here, if there is one.")
    ] = None,
    version: Annotated[  # noqa: ARG001 - its callback prints and exits before any command is looked for
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Spend a stated average number of LLM samples where they pay, and prove what that buys."""
    context.obj = config  # loaded by the command that needs it, so that a broken file blocks no --help


app.command("demo")(demo.demo)
app.command("collect")(collect.collect)
app.command("allocate")(allocate.allocate)
app.command("answer")(answer.answer)
app.command("import")(pools.import_)
app.command("export")(pools.export)
app.command("pool")(pools.pool)
app.command("score")(score.score)
app.command("solve")(solve.solve)
app.command("fit")(fit.fit)
app.command("replay")(replay.replay)
app.command("evaluate")(evaluate.evaluate)
app.command("report")(report.report)
app.command("reproduce")(reproduce.reproduce)
app.command("local")(local.local)
app.command("serve")(serve.serve)


class Stopped(BaseException):
    """Ctrl-C or a polite kill: an exception, so that what was begun is undone, and one that none swallows."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _stop(number: int, _frame: object) -> None:
    raise Stopped(number)


def main() -> None:
    """Run the command line: exit 0, 1 for a failure (one line on stderr), 2 for bad usage.

    128 and the signal's number where it was stopped: 130 by Ctrl-C, 143 by a kill, 141 by a reader of its
    output that has left, of which nothing is said.
    """
    open_streams()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        app(standalone_mode=True)
    except SystemExit as done:
        if isinstance(done.__context__, BrokenPipeError):  # what click makes of it is a failure
            sys.exit(128 + signal.SIGPIPE)
        raise
    except AdacomputeError as exc:
        _fail(str(exc), 1)
    except Stopped as stopped:
        for number in (signal.SIGINT, signal.SIGTERM):  # once is enough: what follows is only leaving
            signal.signal(number, signal.SIG_IGN)
        _fail("stopped; what was begun is undone, and the same command starts anew", 128 + stopped.number)
    except OSError as exc:
        _fail(f"{exc.strerror or exc}: {exc.filename or 'the output'} can't be used", 1)


def _fail(why: str, code: int) -> NoReturn:
    message(f"adacompute: {why}")
    sys.exit(code)
