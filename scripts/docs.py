"""Write the parts of the docs that are made by running the product, between their marks. Run by `make docs`.

`python scripts/docs.py docs/reference/cli.md` renews that page only.

A part stands between `<!-- made by: COMMAND -->` and `<!-- end -->`: the command's output replaces what is
between. With `<!-- made by: COMMAND, paragraphs 1 to 2 -->` only these paragraphs of the output are shown.
`tests/docs` runs the same commands and fails where a page has drifted.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
Run = Callable[[list[str], Path, dict[str, str]], "subprocess.CompletedProcess[str]"]
PART = re.compile(
    r"(?P<head><!-- made by: (?P<command>[^\n]+?)(?:, paragraphs (?P<first>\d+) to (?P<last>\d+))? -->\n)"
    r"(?P<body>.*?)(?P<tail><!-- end -->)",
    re.DOTALL,
)


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


def render_part(part: "re.Match[str]", *, folder: Path, run: Run = run) -> str:
    """A part with what its command prints in an empty folder, as a fenced block."""
    command = part["command"]
    words = shlex.split(command)
    if words[0] == "make":
        words = ["adacompute", words[1]]  # `make demo` is that command, once everything is set up
    environ = {k: v for k, v in os.environ.items() if not k.startswith("ADACOMPUTE_")} | {"COLUMNS": "100"}
    done = run(words, folder, environ)
    if done.returncode != 0:
        raise RuntimeError(f"{command}: exit {done.returncode}: {done.stderr}")
    body = "\n".join(line.rstrip() for line in done.stdout.strip("\n").split("\n"))
    if part["first"]:
        paragraphs = body.split("\n\n")
        first, last = int(part["first"]), int(part["last"])
        body = "\n\n".join(paragraphs[first - 1 : last]) + ("\n…" if last < len(paragraphs) else "")
        body = f"…\n{body}" if first > 1 else body
    return f"{part['head']}```\n$ {command}\n{body}\n```\n{part['tail']}"


def renew_page(text: str, *, run: Run = run) -> str:
    """A page with every made part made again; the parts of one page share a folder, in order.

    Of the checkout the folder holds `tests`, where the logs are that the docs import.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "tests").symlink_to(ROOT / "tests")
        return PART.sub(lambda part: render_part(part, folder=Path(folder), run=run), text)


def parts(text: str) -> Iterator[str]:
    """The commands that make parts of a page."""
    return (match["command"] for match in PART.finditer(text))


def choose_pages(arguments: list[str]) -> list[Path]:
    """The pages that are named on the command line; all where none is."""
    parser = argparse.ArgumentParser(description="Renew the parts of the docs that commands make.")
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="e.g. docs/reference/cli.md [default: all]")
    named = [Path(name).resolve() for name in parser.parse_args(arguments).pages]
    known = pages()
    for page in named:
        if page not in known:
            parser.error(f"{page.name} is no page of the docs; give e.g. README.md or docs/reference/cli.md")
    return named or known


if __name__ == "__main__":
    for page in choose_pages(sys.argv[1:]):
        before = page.read_text("utf-8")
        if (after := renew_page(before)) != before:
            page.write_text(after, "utf-8")
            sys.stderr.write(f"renewed {page.relative_to(ROOT)}\n")
