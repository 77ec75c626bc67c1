"""Seconds of whole commands on 600 problems × 64 samples, each beside a yardstick timed in the same run.

`python -m benchmarks.commands --against CHECKOUT` runs each command with the code of another checkout too, in
turns with this one's, and prints the ratios.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from adacompute.pool import bundled, export_file

HERE = Path(__file__).resolve().parents[1]
PROBLEMS = 600
STARTS = 5  # times that what takes a second or less is started; the best counts
NUMPY, SUMS = "import numpy", "sums of 600 × 64"  # the yardsticks
# A fixed piece of work of the same kind: sorting, matrix products and gathering in numpy, in one thread.
YARDSTICK = """
import numpy as np
rng = np.random.default_rng(0)
for _ in range(20):
    order = rng.random((600, 100, 64)).argsort(axis=2)
    values = rng.random((600, 64))
    votes = np.take_along_axis(values[:, None], order, axis=2).cumsum(axis=2)
    votes.reshape(-1, 64) @ rng.random((64, 16))
"""
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Seconds(NamedTuple):
    """What one run took."""

    wall: float
    processor: float  # of all its processes


class Command(NamedTuple):
    """A command, and what its time is compared with."""

    name: str
    yardstick: str
    words: list[str]  # of Python
    times: int = 1


def make_pool(home: Path) -> Path:
    """A file of 600 problems × 64 samples: the bundled words, some of them asked twice."""
    whole, pool = home / "words.jsonl", home / "pool.jsonl"
    with bundled("words") as words:
        export_file(words, whole)
    lines = whole.read_text("utf-8").splitlines()
    again = [_again(line) for line in lines[: PROBLEMS - len(lines)]]
    pool.write_text("\n".join([*lines, *again]) + "\n", "utf-8")
    return pool


def _again(line: str) -> str:
    """The same samples of a question that is told apart."""
    one = json.loads(line)
    return json.dumps(one | {"id": f"{one['id']}-again", "question": f"Again: {one['question']}"})


def list_commands(pool: Path, folder: Path) -> list[Command]:
    """The commands that are timed; what they write goes to a folder."""

    def run(name: str, *words: str) -> Command:
        return Command(name, SUMS, ["-m", "adacompute", *words])

    return [
        Command(NUMPY, NUMPY, ["-c", "import numpy"], STARTS),
        Command("import adacompute", NUMPY, ["-c", "import adacompute"], STARTS),
        Command("adacompute --version", NUMPY, ["-m", "adacompute", "--version"], STARTS),
        Command(SUMS, SUMS, ["-c", YARDSTICK], STARTS),
        run("fit", "fit", str(pool), "-o", str(folder / "policy"), "--overwrite"),
        run(
            "fit --no-verdict", "fit", str(pool), "-o", str(folder / "policy"), "--overwrite", "--no-verdict"
        ),
        run("evaluate", "evaluate", str(pool)),
        run("report", "report", str(pool), "-o", str(folder / "report")),
        run("demo", "demo"),
    ]


def run() -> list[dict[str, Any]]:
    """One row a command: seconds, and how many times its yardstick that is."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        taken = {
            command.name: (command.yardstick, _best(lambda c=command: time_command(c, folder), command.times))
            for command in list_commands(make_pool(folder), folder)
        }
        taken["serve, until it is ready"] = NUMPY, _best(lambda: time_serve(folder), STARTS)
    return [
        {
            "command": name,
            "wall": own.wall,
            "processor": own.processor,
            "yardstick": yardstick,
            "ratio": own.processor / taken[yardstick][1].processor,
        }
        for name, (yardstick, own) in taken.items()
    ]


def time_command(command: Command, folder: Path, source: Path = HERE) -> Seconds:
    """Run it once, with the code of a checkout."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    limits = ONE_THREAD if command.name == SUMS else {}
    process = subprocess.run(
        [sys.executable, *command.words],
        cwd=folder,
        env=_environment(source) | limits,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    if process.returncode:
        raise RuntimeError(f"{command.name} ended with {process.returncode}")
    return _since(before, start)


def time_serve(folder: Path, source: Path = HERE) -> Seconds:
    """Start a gateway without a local model, until it says that it serves; processor time up to its end."""
    words = ["serve", "--json", "--upstream", "http://127.0.0.1:9/v1", "--budget", "3", "--port", "0"]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "adacompute", *words, "--state", str(folder / "gateway.sqlite")],
        cwd=folder,
        env=_environment(source),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    wall = time.perf_counter() - start
    process.terminate()
    process.wait()
    process.stdout.close()
    if "url" not in ready:
        raise RuntimeError("the gateway didn't start")
    return Seconds(wall, _since(before, start).processor)


def _environment(source: Path) -> Mapping[str, str]:
    """The environment of a command; Python may keep its bytecode, as it does for an installed package."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return inherited | {"PYTHONPATH": str(source / "src")}


def _since(before: resource.struct_rusage, start: float) -> Seconds:
    wall, spent = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Seconds(wall, spent.ru_utime + spent.ru_stime - before.ru_utime - before.ru_stime)


def _best(measure: Callable[[], Seconds], times: int) -> Seconds:
    taken = [measure() for _ in range(times)]
    return Seconds(*map(min, zip(*taken, strict=True)))


def main(words: list[str]) -> int:
    """Time this checkout's code and another's in turns; words after the checkout name the commands."""
    if len(words) < 2 or words[0] != "--against":
        print("give --against CHECKOUT [COMMAND]...", file=sys.stderr)
        return 2
    other, names = Path(words[1]).resolve(), words[2:]
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        for command in list_commands(make_pool(folder), folder):
            if names and command.name not in names:
                continue
            taken: dict[Path, list[Seconds]] = {other: [], HERE: []}
            for _ in range(command.times):
                for source, own in taken.items():
                    own.append(time_command(command, folder, source))
            before, now = (Seconds(*map(min, zip(*own, strict=True))) for own in taken.values())
            print(
                f"{command.name}: {before.wall:.2f} → {now.wall:.2f} s wall ({now.wall / before.wall:.2f}×), "
                f"{before.processor:.2f} → {now.processor:.2f} s processor "
                f"({now.processor / before.processor:.2f}×)",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
