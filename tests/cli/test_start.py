"""The command line starts light, and its table of commands says what is there."""

import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from adacompute.cli.app import AdvancedCommand, load_command
from adacompute.cli.commands import COMMANDS, render_help
from tiers import leave_to_nightly

COMMAND = str(Path(sys.executable).parent / "adacompute")
MOST_MODULES = 8  # of ours, that `--version` may load
HEAVY = {"numpy", "typer", "click", "rich", "orjson", "asyncio", "importlib.metadata"}


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["-h"], [], ["nonsense"]])
def test_what_needs_no_command_loads_none(words: list[str]):
    code = f"""
import atexit, sys
sys.argv = ["adacompute", *{words!r}]
atexit.register(lambda: sys.__stderr__.write("LOADED " + " ".join(sys.modules)))
from adacompute.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    loaded = done.stderr.rpartition("LOADED ")[2].split()
    assert HEAVY & set(loaded) == set()
    assert 1 < len([name for name in loaded if name.split(".")[0] == "adacompute"]) <= MOST_MODULES


def load_modules(command: str) -> set[str]:
    """The modules of ours that a command loads."""
    code = f"import sys, adacompute.cli.app as cli; cli.load_command({command!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name for name in done.stdout.split() if name.startswith("adacompute.")}


def test_a_command_loads_no_other():
    loaded = load_modules("export")
    assert "adacompute.cli.pools" in loaded
    others = {"serve", "collect", "fit", "evaluate", "report", "demo", "allocate"}
    assert loaded & {f"adacompute.cli.{name}" for name in others} == set()


@pytest.mark.parametrize("name", ["ask", "serve"])
def test_what_asks_at_once_loads_nothing_that_evaluates(name: str):
    loaded = load_modules(name)
    assert f"adacompute.cli.{name}" in loaded
    assert loaded & {"adacompute.evaluate", "adacompute.scale", "adacompute.report"} == set()


@pytest.mark.parametrize("entry", COMMANDS.values(), ids=COMMANDS)
def test_every_entry_of_the_table_is_the_command_that_its_module_has(entry):
    module = importlib.import_module(f"adacompute.cli.{entry.module or entry.name}")
    function = getattr(module, entry.function or entry.name)
    assert inspect.getdoc(function).splitlines()[0] == entry.summary
    command = load_command(entry.name)
    options = {name for parameter in command.params for name in parameter.opts}
    assert {f"--{name}" for name in entry.options.split()} <= options


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_no_summary_is_cut(columns: int):
    lines = render_help("adacompute", columns=columns).splitlines()
    for entry in COMMANDS.values():
        assert any(line.split(maxsplit=1) == [entry.name, entry.summary] for line in lines)
    assert max(map(len, lines)) < columns


def test_a_narrow_terminal_wraps_summaries():
    text = render_help("adacompute", columns=50)
    assert max(map(len, text.splitlines())) < 50
    assert all(entry.summary in " ".join(text.split()) for entry in COMMANDS.values())


def options_in(line: str) -> list[str]:
    """The options that a line of help is about: `-o, --output FILE  The file` gives -o and --output."""
    return re.findall(r"(?<![\w-])--?[a-z][\w-]*", re.split(r"\s{2,}", line.strip())[0])


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_every_option_once_and_few_of_them_first(name: str):
    command = load_command(name)
    assert isinstance(command, AdvancedCommand)
    text = command.get_help(command.make_context(name, [], resilient_parsing=True))
    lines = text.partition("\nOptions:")[2].splitlines()
    names = [word for line in lines if line.startswith("  -") for word in options_in(line)]
    for parameter in command.params:
        if parameter.param_type_name == "option":
            assert [names.count(option) for option in parameter.opts] == [1] * len(parameter.opts)
    first = text.partition("Advanced options:")[0]
    listed = [line for line in first.splitlines() if line.startswith("  -")]
    assert len(listed) <= 12
    assert len(first.splitlines()) <= 40


def test_the_help_of_the_root_is_the_same_with_and_without_typer(adacompute):
    from typer.testing import CliRunner

    from adacompute.cli.app import app

    shown = CliRunner().invoke(app, ["--help"], prog_name="adacompute").stdout
    assert shown == adacompute("--help").stdout


@pytest.mark.parametrize(("redirect", "code"), [(">&-", 0), (">/dev/full", 1), (">&- 2>&-", 0)])
def test_a_version_that_cannot_be_printed_gives_no_traceback(redirect: str, code: int):
    done = subprocess.run(
        ["sh", "-c", f"{COMMAND} --version {redirect}"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (code, code)


def test_completion_is_installed_for_the_shell_that_asks(tmp_path: Path):
    words = ["bash", "-c", f"'{COMMAND}' --install-completion; '{COMMAND}' --show-completion; true"]
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=True)
    assert "complete -o default -F _adacompute_completion adacompute" in done.stdout
    (script,) = (tmp_path / ".bash_completions").iterdir()
    asked = f"source {script}; COMP_WORDS=(adacompute eval); COMP_CWORD=1; _adacompute_completion '{COMMAND}'"
    words = ["bash", "-c", f"{asked}; echo ${{COMPREPLY[@]}}"]
    assert (
        subprocess.run(words, env=environ, capture_output=True, text=True, check=True).stdout == "evaluate\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("shell", leave_to_nightly(["bash", "zsh", "fish"]))
@pytest.mark.parametrize(
    ("typed", "word"), [("adacompute ev", "evaluate"), ("adacompute pool --js", "--json")]
)
def test_every_shell_is_told_commands_and_options(shell: str, typed: str, word: str):
    asked = {
        "_ADACOMPUTE_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(typed.count(" ")),
        "_TYPER_COMPLETE_ARGS": typed,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = subprocess.run([COMMAND], env=os.environ | asked, capture_output=True, text=True, check=True)
    assert word in done.stdout
