"""The `adacompute` command as typer sees it: a group whose commands are imported when they are called."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

import adacompute
from adacompute.cli.commands import COMMANDS, CommandEntry, explain_unknown, render_help
from adacompute.cli.terminal import print_line

__all__ = ["AdvancedCommand", "app", "load_command", "select_config"]

_HELP_NAMES = {"help_option_names": ["-h", "--help"]}
_ALWAYS_FIRST = ("--json", "--help")  # options that stand on the first screen of every command


class AdvancedCommand(TyperCommand):
    """A command whose help lists a few options first, and the others under "Advanced options"."""

    first_options: Sequence[str] = ()

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's own click
        arguments, first, advanced = [], [], []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if parameter.param_type_name == "argument":
                arguments.append(record)
            elif parameter.required or {*self.first_options, *_ALWAYS_FIRST} & {*parameter.opts}:
                first.append(record)
            else:
                advanced.append(record)
        for title, records in (("Arguments", arguments), ("Options", first), ("Advanced options", advanced)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class _RootGroup(TyperGroup):
    """The root command. It knows its commands by name, and imports one when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 - typer's own click
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - typer's own click
        if cmd_name not in COMMANDS:
            ctx.fail(explain_unknown(cmd_name))
        return load_command(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's own click
        formatter.write(render_help(ctx.command_path, columns=formatter.width + 2))


def load_command(name: str) -> AdvancedCommand:
    """Import a command and build it from its function's signature."""
    entry = COMMANDS[name]
    info = CommandInfo(
        name=name, cls=AdvancedCommand, callback=_load_function(entry), context_settings=_HELP_NAMES
    )
    command = get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode=None)
    assert isinstance(command, AdvancedCommand)
    command.first_options = entry.options
    return command


def _load_function(entry: CommandEntry) -> Any:  # noqa: ANN401 - a function with any options
    return getattr(import_module(f"adacompute.cli.{entry.module}"), entry.function)


app = typer.Typer(
    cls=_RootGroup,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=_HELP_NAMES,
)


def _print_version(requested: bool) -> None:
    if requested:
        print_line(f"adacompute {adacompute.__version__}")
        raise typer.Exit


@app.callback()
def select_config(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Settings (TOML); without it, adacompute.toml here, if there is one."
        ),
    ] = None,
    version: Annotated[  # noqa: ARG001 - its callback prints and exits before any command runs
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit."),
    ] = False,
) -> None:
    """Vote over LLM samples within an average budget, spent where it helps, and measure the gain."""
    context.obj = config  # loaded by the command that needs it, so that --help works with a broken file
