"""`main`, the entry point of the command line: handles signals and exit codes."""

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import adacompute
from adacompute.cli.commands import COMMANDS, explain_unknown, render_help, render_usage
from adacompute.cli.terminal import prepare_streams, print_line, print_message
from adacompute.errors import AdacomputeError

if TYPE_CHECKING:
    import typer

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_HELP_WIDTH = 80  # width of the help in columns if there is no terminal
_COMPLETION = "_ADACOMPUTE_COMPLETE"  # shells set this environment variable to request completions


class CommandStopped(BaseException):
    """Raised on Ctrl-C or SIGTERM; a BaseException, so that `except Exception` doesn't catch it."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number


def main(commands: "typer.Typer | None" = None) -> None:
    """Runs the command line. Exit codes: 0 success, 1 failure (with one line on stderr), 2 wrong usage.

    Runs `commands`, if given, in place of the package's own. After a signal, exits with 128 plus its number:
    130 for Ctrl-C, 143 for SIGTERM. If the reader of the output closed the pipe, exits with 141.
    """
    prepare_streams()
    for number in _STOP_SIGNALS:
        signal.signal(number, _raise_stopped)
    try:
        if commands is None:
            _run(sys.argv[1:])
        else:
            commands(standalone_mode=True)
    except SystemExit as exit_request:
        if isinstance(exit_request.__context__, BrokenPipeError):  # click has caught a broken pipe
            sys.exit(128 + signal.SIGPIPE)
        raise
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so the flush at exit can't fail
        sys.exit(128 + signal.SIGPIPE)
    except AdacomputeError as exc:
        _exit_with(str(exc), 1)
    except CommandStopped as stopped:
        _exit_with(
            "stopped: nothing was written, and the same command starts again",
            128 + stopped.signal_number,
        )
    except OSError as exc:
        _exit_with(f"{exc.strerror or exc}: {exc.filename or 'the output'} can't be used", 1)


def _run(words: list[str]) -> None:
    """Handles `--version`, `--help` and unknown commands without importing typer; runs all else with it."""
    is_completing = _COMPLETION in os.environ and not words
    if words == ["--version"]:
        print_line(f"adacompute {adacompute.__version__}")
    elif words in ([], ["-h"], ["--help"]) and not is_completing:
        _print_help(is_error=not words)
    elif not is_completing and words[0] not in COMMANDS and not words[0].startswith("-"):
        program = _find_program()
        print_message(render_usage(program))
        print_message(f"Try '{program} -h' for help.")
        print_message("")
        print_message(f"Error: {explain_unknown(words[0])}")
        sys.exit(2)
    else:
        from adacompute.cli.app import app  # imported here, because importing typer is slow

        app(standalone_mode=True)


def _print_help(*, is_error: bool) -> None:
    """Prints the help to stdout. If `is_error`, prints it to stderr instead and exits with 2."""
    import shutil

    # the environment variable COLUMNS overrides the terminal's width
    columns = shutil.get_terminal_size((_HELP_WIDTH, 24)).columns
    for line in render_help(_find_program(), columns=columns).splitlines():
        (print_message if is_error else print_line)(line)
    if is_error:
        sys.exit(2)


def _find_program() -> str:
    """Returns the program's name as typed: the script's name, or `python -m adacompute`."""
    name = Path(sys.argv[0]).name
    return "python -m adacompute" if name == "__main__.py" else name


def _raise_stopped(signal_number: int, _frame: object) -> None:
    for number in _STOP_SIGNALS:  # ignore further signals, which would interrupt the exit
        signal.signal(number, signal.SIG_IGN)
    raise CommandStopped(signal_number)


def _exit_with(reason: str, code: int) -> NoReturn:
    print_message(f"adacompute: {reason}")
    sys.exit(code)
