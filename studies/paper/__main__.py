"""The study's two commands: `python -m studies.paper reproduce` and `python -m studies.paper report`."""

import typer

from adacompute.cli import main
from adacompute.cli.app import select_config
from studies.paper.paper_report import report
from studies.paper.reproduce_command import reproduce

commands = typer.Typer(
    help="The paper's experiment on recordings of our own.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
commands.callback()(select_config)
commands.command("reproduce")(reproduce)
commands.command("report")(report)

if __name__ == "__main__":
    main(commands)
