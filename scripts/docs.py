"""Write the parts of the docs that are made by running the product, between their marks. Run by `make docs`.

A part stands between `<!-- made by: COMMAND -->` and `<!-- end -->`: the command's output replaces what is
between. `tests/docs` runs the same commands and fails where a page has drifted.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIVE = re.compile(  # to the next empty line
    r"^(the gateway in front of a real model on this machine, .+)\n(?:.+\n)+", re.MULTILINE
)
Run = Callable[[list[str], Path, dict[str, str]], "subprocess.CompletedProcess[str]"]
PART = re.compile(r"(<!-- made by: (?P<command>[^\n]+?) -->\n)(?P<body>.*?)(<!-- end -->)", re.DOTALL)


def pages() -> list[Path]:
    """README, CONTRIBUTING, CHANGELOG and everything below docs/ and studies/."""
    folders = (ROOT / "docs", ROOT / "studies")
    return [*sorted(ROOT.glob("*.md")), *(page for one in folders for page in sorted(one.rglob("*.md")))]


def run(words: list[str], folder: Path, environ: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """A command of ours, run to its end."""
    return subprocess.run(
        [str(Path(sys.executable).parent / words[0]), *words[1:]],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def made(command: str, *, folder: Path, run: Run = run) -> str:
    """What a command prints, as a fenced block: run in an empty folder, as someone would in a pipe."""
    words = shlex.split(command)
    if words[0] == "make":
        words = ["adacompute", words[1]]  # `make demo` is that command, once everything is set up
    environ = {k: v for k, v in os.environ.items() if not k.startswith("ADACOMPUTE_")} | {"COLUMNS": "100"}
    done = run(words, folder, environ)
    if done.returncode != 0:
        raise RuntimeError(f"{command}: exit {done.returncode}: {done.stderr}")
    body = "\n".join(line.rstrip() for line in done.stdout.strip("\n").split("\n"))
    return f"```\n$ {command}\n{body}\n```\n"


def renewed(text: str, *, run: Run = run) -> str:
    """A page with every made part made anew; the parts of one page share a folder, in order.

    Of the checkout it holds `tests`, where the logs are that the docs import.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "tests").symlink_to(ROOT / "tests")
        here = Path(folder)
        return PART.sub(lambda m: m[1] + made(m["command"], folder=here, run=run) + m[4], text)


def steady(text: str) -> str:
    """A page without what differs from run to run: what a real model said, live."""
    return LIVE.sub(r"\1\n(what it said)\n", text)


def parts(text: str) -> Iterator[str]:
    """The commands that make parts of a page."""
    return (match["command"] for match in PART.finditer(text))


if __name__ == "__main__":
    for page in pages():
        before = page.read_text("utf-8")
        if steady(after := renewed(before)) != steady(before):
            page.write_text(after, "utf-8")
            sys.stderr.write(f"renewed {page.relative_to(ROOT)}\n")
