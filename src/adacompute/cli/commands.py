"""The table of commands, and the help of `adacompute`, generated from it.

Imports only the standard library, so that `adacompute --help` and `--version` are fast.
"""

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

_DESCRIPTION = "Vote over LLM samples within an average budget, spent where it helps, and measure the gain."
_OPTIONS = (
    ("--config FILE", "Settings file (TOML). [default: adacompute.toml, if there is one]"),
    ("--version", "Print the version and exit."),
    ("--install-completion", "Complete commands and options by Tab in this shell."),
    ("--show-completion", "Print the script that this installs."),
    ("-h, --help", "Show this message and exit."),
)
_MAX_WIDTH = 80  # maximum width of the help in columns, as in the help of a single command
_MIN_WIDTH = 40


class CommandEntry(NamedTuple):
    """A command: what it does, its main options, and where it is implemented."""

    name: str
    summary: str  # the first line of the command function's docstring
    options: str  # the command's main options; `--help` lists all others under "Advanced options"
    module: str = ""  # the command's module in adacompute.cli; "" if it has the same name
    function: str = ""  # the command's function in its module; "" if it has the same name


_GROUPS = {  # the keys are the headings in `adacompute --help`
    "Ask": (
        CommandEntry(
            "ask",
            "Answer one prompt by a vote over several samples.",
            "endpoint model budget policy system max-tokens temperature",
        ),
    ),
    "Record samples": (
        CommandEntry(
            "collect",
            "Ask a model each problem many times, and store the samples.",
            "pool endpoint model menu samples limit max-cost dry-run",
        ),
        CommandEntry(
            "menu",
            "Check a menu: ask each mode one question, and show what it cost.",
            "timeout",
            module="menu_check",
        ),
        CommandEntry(
            "import",
            "Add recorded samples to a pool.",
            "pool columns format extract",
            module="pools",
            function="import_",
        ),
        CommandEntry("export", "Write a pool to a file, without loss.", "overwrite", module="pools"),
        CommandEntry(
            "pool",
            "Show what is in a pool, and how often its votes are right.",
            "budgets join",
            module="pools",
        ),
    ),
    "Study what samples buy": (
        CommandEntry("score", "Show the accuracy of a pool's samples at each budget.", "budgets cost output"),
        CommandEntry(
            "solve", "Show the most accuracy that an average budget can buy.", "budget budgets cost"
        ),
        CommandEntry(
            "evaluate",
            "Compare policies at the same average cost, on held-out problems.",
            "budgets policies join cost prices",
        ),
        CommandEntry(
            "replay", "Show what a saved policy costs, and how often it is right.", "policy budget price join"
        ),
        CommandEntry(
            "report",
            "Write one page that says what a budget buys on a pool.",
            "output quick input-price output-price join cost prices",
        ),
    ),
    "Decide how many samples": (
        CommandEntry(
            "fit",
            "Learn a policy from recorded samples, and save it.",
            "policy budget output overwrite join cost prices",
        ),
        CommandEntry(
            "allocate",
            "Decide beforehand how many samples each prompt of a batch gets.",
            "policy output budget",
        ),
        CommandEntry(
            "answer",
            "Answer a file of prompts by votes, within an average budget.",
            "output policy budget endpoint model max-cost dry-run",
        ),
    ),
    "Serve": (
        CommandEntry(
            "serve",
            "Serve an OpenAI-compatible gateway that answers by vote.",
            "upstream policy budget model port keys cap record check",
        ),
        CommandEntry("local", "Serve a small real model on this machine, until Ctrl-C.", "gguf port menu"),
    ),
    "See it work": (CommandEntry("demo", "Ask a small model through the gateway, and write a report.", ""),),
}
COMMANDS = {entry.name: entry for entries in _GROUPS.values() for entry in entries}


def render_usage(program: str) -> str:
    return f"Usage: {program} [OPTIONS] COMMAND [ARGS]..."


def render_help(program: str, *, columns: int) -> str:
    """Returns the text of `adacompute --help`: the options, then the commands in groups, with summaries."""
    width = max(_MIN_WIDTH, min(columns, _MAX_WIDTH) - 2)
    lines = [render_usage(program), ""]
    lines += textwrap.wrap(_DESCRIPTION, width, initial_indent="  ", subsequent_indent="  ")
    lines += ["", "Options:", *_render_rows(_OPTIONS, width)]
    for group, entries in _GROUPS.items():
        rows = [(entry.name, entry.summary) for entry in entries]
        lines += ["", f"{group}:", *_render_rows(rows, width, column=max(map(len, COMMANDS)))]
    lines += ["", *textwrap.wrap(f"'{program} COMMAND --help' shows the options of a command.", width)]
    return "\n".join(lines)


def _render_rows(rows: Sequence[tuple[str, str]], width: int, *, column: int = 0) -> list[str]:
    column = max(column, *(len(name) for name, _ in rows))
    lines = []
    for name, text in rows:
        lines += textwrap.wrap(
            text, width, initial_indent=f"  {name:<{column}}  ", subsequent_indent=" " * (column + 4)
        )
    return lines


def explain_unknown(name: str) -> str:
    """Returns the error message for an unknown command, which suggests commands with similar names."""
    import difflib  # imported here, because only this message needs it

    matches = difflib.get_close_matches(name, COMMANDS)
    if not matches:
        return f"No such command {name!r}."
    return f"No such command {name!r}. Did you mean {', '.join(map(repr, matches))}?"
