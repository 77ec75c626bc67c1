"""`main`, where the command line begins: signals, exit codes, and what can be said without any command."""

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

_HELP_WIDTH = 80  # columns, where there is no terminal
_COMPLETION = "_ADACOMPUTE_COMPLETE"  # the variable by which a shell asks for completions


class CommandStopped(BaseException):
    """Ctrl-C or SIGTERM. A BaseException, so that clean-up runs and no handler swallows it."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number


def main(commands: "typer.Typer | None" = None) -> None:
    """Run the command line: exit 0, 1 for a failure (one line on stderr), 2 for bad usage.

    `commands` are those of another program; without them, adacompute's own. A signal exits with 128 plus its
    number: 130 after Ctrl-C, 143 after SIGTERM, and 141, without a message, where the reader of the output
    has closed the pipe.
    """
    prepare_streams()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _raise_stopped)
    try:
        if commands is None:
            _run(sys.argv[1:])
        else:
            commands(standalone_mode=True)
    except SystemExit as exit_request:
        if isinstance(exit_request.__context__, BrokenPipeError):  # click turned it into exit code 1
            sys.exit(128 + signal.SIGPIPE)
        raise
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at the end
        sys.exit(128 + signal.SIGPIPE)
    except AdacomputeError as exc:
        _exit_with(str(exc), 1)
    except CommandStopped as stopped:
        for number in (signal.SIGINT, signal.SIGTERM):  # a second signal must not interrupt the exit
            signal.signal(number, signal.SIG_IGN)
        _exit_with(
            "stopped: nothing was written, and the same command starts again",
            128 + stopped.signal_number,
        )
    except OSError as exc:
        _exit_with(f"{exc.strerror or exc}: {exc.filename or 'the output'} can't be used", 1)


def _run(words: list[str]) -> None:
    """Answer `--version`, `--help` and an unknown command at once; for all else, import the commands."""
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
        from adacompute.cli.app import app  # imported here, because importing typer takes long

        app(standalone_mode=True)


def _print_help(*, is_error: bool) -> None:
    """Print the help on stdout; on stderr, with exit code 2, where no command was given."""
    for line in render_help(_find_program(), columns=_find_columns()).splitlines():
        (print_message if is_error else print_line)(line)
    if is_error:
        sys.exit(2)


def _find_columns() -> int:
    """Return the width of the terminal, or what COLUMNS says."""
    import shutil

    return shutil.get_terminal_size((_HELP_WIDTH, 24)).columns


def _find_program() -> str:
    """Return what the user typed: the script's name, or `python -m adacompute`."""
    name = Path(sys.argv[0]).name
    return "python -m adacompute" if name == "__main__.py" else name


def _raise_stopped(signal_number: int, _frame: object) -> None:
    raise CommandStopped(signal_number)


def _exit_with(reason: str, code: int) -> NoReturn:
    print_message(f"adacompute: {reason}")
    sys.exit(code)
