"""The `adacompute` command: its subcommands, errors in one line on stderr, and exit codes."""

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
    score,
    serve,
    solve,
)
from adacompute.cli.terminal import prepare_streams, print_line, print_message
from adacompute.errors import AdacomputeError

__all__ = ["app", "main"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        print_line(f"adacompute {installed_version('adacompute')}")
        raise typer.Exit


@app.callback()
def select_config(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option(help="Settings (TOML); without it, adacompute.toml here, if there is one.")
    ] = None,
    version: Annotated[  # noqa: ARG001 - its callback prints and exits before any command runs
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit."),
    ] = False,
) -> None:
    """Spend a stated average number of LLM samples where they pay, and prove what that buys."""
    context.obj = config  # loaded by the command that needs it, so that --help works with a broken file


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
app.command("local")(local.local)
app.command("serve")(serve.serve)


class CommandStopped(BaseException):
    """Ctrl-C or SIGTERM. A BaseException, so that clean-up runs and no handler swallows it."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number


def _raise_stopped(signal_number: int, _frame: object) -> None:
    raise CommandStopped(signal_number)


def main(commands: typer.Typer = app) -> None:
    """Run the command line: exit 0, 1 for a failure (one line on stderr), 2 for bad usage.

    A signal exits with 128 plus its number: 130 after Ctrl-C, 143 after SIGTERM, and 141, without a
    message, where the reader of its output has closed the pipe.
    """
    prepare_streams()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _raise_stopped)
    try:
        commands(standalone_mode=True)
    except SystemExit as exit_request:
        if isinstance(exit_request.__context__, BrokenPipeError):  # click turned it into exit code 1
            sys.exit(128 + signal.SIGPIPE)
        raise
    except AdacomputeError as exc:
        _exit_with(str(exc), 1)
    except CommandStopped as stopped:
        for number in (signal.SIGINT, signal.SIGTERM):  # a second signal must not interrupt the exit
            signal.signal(number, signal.SIG_IGN)
        _exit_with(
            "stopped; what was begun is undone, and the same command starts anew", 128 + stopped.signal_number
        )
    except OSError as exc:
        _exit_with(f"{exc.strerror or exc}: {exc.filename or 'the output'} can't be used", 1)


def _exit_with(reason: str, code: int) -> NoReturn:
    print_message(f"adacompute: {reason}")
    sys.exit(code)
