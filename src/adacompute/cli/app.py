"""The `adacompute` typer app, which imports a command only when that command is called."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

import adacompute
from adacompute.cli.commands import COMMANDS, explain_unknown, render_help
from adacompute.cli.terminal import print_line

_HELP_NAMES = {"help_option_names": ["-h", "--help"]}
_ALWAYS_FIRST = ("--json", "--help")  # options that are never listed under "Advanced options"


class AdvancedCommand(TyperCommand):
    """A command whose help lists its main options first, and the others under "Advanced options"."""

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
    """The root command. It knows the names of all commands, but imports only the one called."""

    _completes_names = False

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 - typer's own click
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - typer's own click
        if cmd_name not in COMMANDS:
            ctx.fail(explain_unknown(cmd_name))
        if self._completes_names:
            return TyperCommand(cmd_name, help=COMMANDS[cmd_name].summary)
        return load_command(cmd_name)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:  # noqa: ANN401 - typer's own click
        self._completes_names = True  # names can be completed without importing the commands
        return super().shell_complete(ctx, incomplete)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's own click
        formatter.write(render_help(ctx.command_path, columns=formatter.width + 2))


def load_command(name: str) -> AdvancedCommand:
    """Imports a command's function and builds the command from its signature."""
    entry = COMMANDS[name]
    module = import_module(f"adacompute.cli.{entry.module or entry.name}")
    function = flatten_options(getattr(module, entry.function or entry.name))
    info = CommandInfo(name=name, cls=AdvancedCommand, callback=function, context_settings=_HELP_NAMES)
    command = get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode=None)
    assert isinstance(command, AdvancedCommand)
    command.first_options = [f"--{name}" for name in entry.options.split()]
    return command


def flatten_options(command: Callable[..., None]) -> Callable[..., None]:
    """Wraps a command's function for typer: each field of a dataclass parameter becomes an option."""
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        if not (isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation)):
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        groups[name] = parameter.annotation
        parameters += inspect.signature(parameter.annotation, eval_str=True).parameters.values()

    @wraps(command)
    def run(**options: Any) -> None:  # noqa: ANN401 - of any type
        for name, group in groups.items():
            options[name] = group(**{item.name: options.pop(item.name) for item in fields(group)})
        command(**options)

    run.__dict__["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


app = typer.Typer(
    cls=_RootGroup,
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
            metavar="FILE", help="Settings file (TOML). [default: adacompute.toml, if there is one]"
        ),
    ] = None,
    version: Annotated[  # noqa: ARG001 - its callback prints and exits before any command runs
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit."),
    ] = False,
) -> None:
    """Vote over LLM samples within an average budget, spent where it helps, and measure the gain."""
    context.obj = config  # each command loads the settings itself, so --help works even if the file is broken
