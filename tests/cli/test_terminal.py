"""On a terminal: the tables of a pipe, and whole words and numbers where they don't fit."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tiers import leave_to_nightly

COMMAND = str(Path(sys.executable).parent / "adacompute")


def terminal(words: list[str], folder: Path, *, columns: int = 100) -> str:
    """What a person sees who runs the command in a terminal of so many columns."""
    parent, child = pty.openpty()
    environ = {k: v for k, v in os.environ.items() if not k.startswith("ADACOMPUTE_")}
    run = subprocess.Popen(
        [COMMAND, *words],
        stdin=child,
        stdout=child,
        stderr=child,
        cwd=folder,
        env=environ | {"TERM": "xterm", "COLUMNS": str(columns), "LINES": "60"},
        close_fds=True,
    )
    os.close(child)
    seen, end = b"", time.monotonic() + 60
    while time.monotonic() < end and select.select([parent], [], [], 60)[0]:
        try:
            part = os.read(parent, 65536)
        except OSError:  # the terminal closes with its last user
            break
        if not part:
            break
        seen += part
    os.close(parent)
    assert run.wait(60) == 0
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode()).replace("\r\n", "\n")


SOLVE = ["solve", "few.jsonl", "--budget", "2"]


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """A folder with a small pool, which commands read at once."""
    samples = [{"answer": answer} for answer in "4435" * 6]
    problem = {"question": "?", "gold": "4"}
    lines = [{"id": f"p{i}", "samples": samples[i % 3 :][:16]} | problem for i in range(12)]
    (tmp_path / "few.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return tmp_path


@pytest.mark.slow
def test_a_terminal_has_the_table_of_a_pipe(adacompute, few: Path):
    table = [line for line in adacompute(*SOLVE).stdout.splitlines() if line.startswith("  ")][:4]
    screen = terminal(SOLVE, few)
    assert all(line in screen for line in table)


@pytest.mark.slow
def test_a_narrow_terminal_is_told_as_much_and_nothing_is_cut(adacompute, few: Path):
    screen = terminal(SOLVE, few, columns=60)
    assert "…" not in screen
    numbers = re.findall(r"[\d.,]*\d%?", adacompute(*SOLVE).stdout)
    assert set(numbers) <= set(re.findall(r"[\d.,]*\d%?", screen))
    lines = screen.splitlines()
    copied = "  adacompute "  # a command stays whole
    assert [line for line in lines if len(line) > 60 and not line.startswith(copied)] == []
    at = next(number for number, line in enumerate(lines) if line.startswith("  bound "))
    assert lines[at + 1].startswith(" " * 14)  # a long fact goes on below itself
    assert lines[at + 1][14] != " "


@pytest.mark.slow
def test_progress_on_a_terminal_counts_and_takes_names_as_they_are(tmp_path: Path):
    samples = [{"text": t} for t in ("Answer: 0.5", "Answer: 2", "Answer: 1/2", "Answer: 1")]
    lines = [{"id": f"q{i}", "question": "?", "gold": "1/2", "samples": samples} for i in range(600)]
    (tmp_path / "[bold].jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    screen = terminal(["import", "[bold].jsonl", "--pool", "p.sqlite"], tmp_path)
    assert "importing [bold].jsonl" in screen
    assert "added 600 problems and 2,400 samples" in screen


def test_names_in_a_pool_cannot_write_to_the_terminal(adacompute, tmp_path: Path):
    line = {"id": "p", "question": "?", "model": "\x1b]0;mine\x07\nforged", "samples": [{"answer": "1"}]}
    (tmp_path / "a.jsonl").write_text(json.dumps(line))
    shown = adacompute("pool", "a.jsonl").stdout
    assert "\x1b" not in shown
    assert "\nforged" not in shown
    assert r"\x1b]0;mine\x07\nforged" in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    "environ",
    leave_to_nightly(
        [
            {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
            {"PYTHONIOENCODING": "latin-1"},
        ]
    ),
)
def test_any_locale_will_do(adacompute, few: Path, environ: dict[str, str]):
    assert "accuracy" in adacompute(*SOLVE, **environ).stdout
