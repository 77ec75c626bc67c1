"""The `adacompute` command: its subcommands, errors in one line, exit codes. Knows no stage itself."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated

import typer

from adacompute.cli import demo, pools
from adacompute.cli.show import line, message
from adacompute.config import load_config
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
    context.obj = load_config(config)


app.command("demo")(demo.demo)
app.command("import")(pools.import_)
app.command("export")(pools.export)
app.command("pool")(pools.pool)


def main() -> None:
    """Run the command line: exit 0, 1 for a failure (one line on stderr), 2 for bad usage."""
    try:
        app()
    except AdacomputeError as exc:
        message(f"adacompute: {exc}")
        sys.exit(1)
    except KeyboardInterrupt:
        message("adacompute: interrupted; nothing was half written")
        sys.exit(130)
