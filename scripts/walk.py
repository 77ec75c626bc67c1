"""Walk a page of the docs: run each of its steps for real, in order, in one empty folder.

A step stands between `<!-- step -->` and `<!-- end -->`: `$ COMMAND` and what it prints. With
`<!-- step: background -->` it is started and left running; of a `live` one only the command counts, for a
model said the rest. `<!-- file: NAME -->` writes the block below it into the folder. Outputs are compared
without their numbers.

`python scripts/walk.py docs/quickstart.md` walks with the small model of this machine, in some minutes;
`--write` puts what came into the page, `--without=report` leaves a command out. `tests/docs/test_walk.py`
walks with recorded responses.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

FILE = re.compile(r"<!-- file: (?P<name>[\w.-]+) -->\n```\w*\n(?P<text>.*?)```\n", re.DOTALL)
STEP = re.compile(
    r"(?P<head><!-- step(?:: (?P<kind>\w+))? -->\n```\n)"
    r"\$ (?P<command>(?:[^\n]*\\\n)*[^\n]*)\n(?P<output>.*?)"
    r"(?P<tail>```\n<!-- end -->)",
    re.DOTALL,
)
READY = "Ctrl-C stops it"  # the last line of what stays in the foreground
BIN = Path(sys.executable).parent
Run = Callable[[list[str], Path, dict[str, str]], "subprocess.CompletedProcess[str]"]


@dataclass(frozen=True)
class StepTaken:
    """A step that was run, with what the page shows and what it printed."""

    command: str
    kind: str  # "", "background" or "live"
    shown: str  # on the page
    printed: str


def walk_steps(
    text: str,
    folder: Path,
    *,
    run: Run | None = None,
    skip: Callable[[str], bool] = lambda _: False,
    swaps: Mapping[str, str] | None = None,
) -> Iterator[StepTaken]:
    """Run the steps of a page except those to skip, with some texts replaced by others."""
    for file in FILE.finditer(text):
        (folder / file["name"]).write_text(swap_texts(file["text"], swaps or {}), "utf-8")
    running: list[subprocess.Popen[str]] = []
    environ = {k: v for k, v in os.environ.items() if not k.startswith("ADACOMPUTE_")} | {"COLUMNS": "100"}
    try:
        for step in STEP.finditer(text):
            command, kind = step["command"], step["kind"] or ""
            if skip(command):
                continue
            words = shlex.split(swap_texts(command.replace("\\\n", " "), swaps or {}))
            if kind == "background":
                running.append(start(words, folder, environ))
                printed = read_until_ready(running[-1])
            else:
                done = (run or run_to_end)(words, folder, environ)
                if done.returncode:
                    raise RuntimeError(f"{command}: exit {done.returncode}\n{done.stderr[-2000:]}")
                printed = done.stdout
            yield StepTaken(command, kind, step["output"], tidy(printed))
    finally:
        for process in reversed(running):
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


def run_to_end(words: list[str], folder: Path, environ: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """A command, run to its end."""
    words = [str(BIN / words[0]), *words[1:]]
    return subprocess.run(
        words, cwd=folder, env=environ, capture_output=True, text=True, timeout=900, check=False
    )


def start(words: list[str], folder: Path, environ: dict[str, str]) -> "subprocess.Popen[str]":
    """A command that stays, with its output and its messages in one pipe."""
    words = [str(BIN / words[0]), *words[1:]]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, cwd=folder, env=environ, stdout=pipe, stderr=subprocess.STDOUT, text=True)


def read_until_ready(running: "subprocess.Popen[str]") -> str:
    """What a command prints until it is ready, which it says last."""
    assert running.stdout is not None
    lines: list[str] = []
    for line in running.stdout:
        lines.append(line)
        if READY in line:
            return "".join(lines)
    raise RuntimeError(f"{running.args}: ended before it was ready\n{''.join(lines)}")


def swap_texts(text: str, swaps: Mapping[str, str]) -> str:
    """A text in which some texts are replaced by others."""
    for old, new in swaps.items():
        text = text.replace(old, new)
    return text


def tidy(text: str) -> str:
    """Without blanks at the ends of lines, and with one newline at its own."""
    return "\n".join(line.rstrip() for line in text.strip("\n").split("\n")) + "\n"


def skeleton(text: str) -> list[str]:
    """Lines without their numbers: what doesn't differ from run to run.

    >>> skeleton("  1   37.2%  26.7–47.7%\\n")
    ['# # #']
    """
    plain = re.sub(r"\b[0-9a-f]{12}\b", "#", text)  # a version: some digits of a hash
    plain = re.sub(r"[-+]?\d[\d.,]*(?:e-\d+)?%?(?:–[\d.,]+%?)?", "#", plain)
    return [" ".join(line.split()) for line in plain.strip("\n").split("\n")]


def main(page: Path, *options: str) -> None:
    """Walk a page, print what came and whether the page shows it, and write it there with --write."""
    before = page.read_text("utf-8")
    without = {option.removeprefix("--without=") for option in options}
    outputs: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as place:
        for went in walk_steps(before, Path(place), skip=lambda command: command.split()[1] in without):
            outputs[went.command] = went.printed
            print(f"$ {went.command}\n{went.printed}", flush=True)
            if went.kind != "live" and skeleton(went.printed) != skeleton(went.shown):
                print("   (the page shows something else)", flush=True)
    if "--write" in options:
        page.write_text(STEP.sub(lambda found: _renew_step(found, outputs), before), "utf-8")


def _renew_step(found: re.Match[str], outputs: Mapping[str, str]) -> str:
    command = found["command"]
    return f"{found['head']}$ {command}\n{outputs.get(command, found['output'])}{found['tail']}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
