"""Every command line on a page names a command and options that are there."""

import re
import shlex
from pathlib import Path

import pytest

from adacompute.cli.app import load_command
from adacompute.cli.commands import COMMANDS

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = (ROOT / "docs", ROOT / "studies")
PAGES = [*sorted(ROOT.glob("*.md")), *(page for one in FOLDERS for page in sorted(one.rglob("*.md")))]


def lines(text: str) -> list[str]:
    """Commands of ours, in blocks and between backticks, each on one line."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    whole = "\n".join(blocks).replace("\\\n", " ")
    shown = re.findall(r"^\s*(?:\$ )?(adacompute +\w.*)$", whole, re.MULTILINE)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return shown + [" ".join(found.split()) for found in re.findall(r"`(adacompute [^`]+)`", prose)]


def words(line: str) -> list[str]:
    """Without what follows the command: a comment, an explanation behind two spaces."""
    line = re.split(r"\s#\s|\s{2,}(?=[a-z])(?!-)|…|\(", line)[0]
    return shlex.split(line.replace("'", ""))


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_command_on_a_page_is_there_with_its_options(page: Path):
    for line in lines(page.read_text("utf-8")):
        said = words(line)
        if len(said) < 2 or said[1].startswith("-"):
            continue
        assert said[1] in COMMANDS, f"{line}: there is no command {said[1]}"
        options = load_command(said[1]).params
        there = {name for option in options for name in (*option.opts, *option.secondary_opts)}
        there |= {"--help", "-h", "--config"}
        named = {word.split("=")[0] for word in said[2:] if re.match(r"--?[a-z]", word)}
        assert named <= there, f"{line}: {sorted(named - there)}"


def test_a_command_that_is_not_there_is_found():
    (line,) = lines("```sh\nadacompute fly pool.sqlite --high   # up\n```\n")
    assert words(line) == ["adacompute", "fly", "pool.sqlite", "--high"]
