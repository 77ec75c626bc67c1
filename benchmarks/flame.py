"""`python -m benchmarks.flame`: where the gateway spends a request, as two pictures in docs/figures/flame.

py-spy, in an environment of its own (`.peers/py-spy`), looks at the stacks of a gateway under load: once
while requests are passed through, once while one sample is voted on with log-probabilities. A box is a
function, as wide as its share of the samples, above the one that called it. Time in C (parsers, sockets) is
in the box of the Python function that called it.
"""

import collections
import html
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import peers
from benchmarks.processes import ROOT, upstream
from benchmarks.serving import Way, gateway, list_ways, loaded, place

FOLDER = ROOT / "docs" / "figures" / "flame"
SECONDS, PER_SECOND, CLIENTS = 10, 400, 8
PICTURES = {  # file, and what it shows
    "pass": ("pass.svg", "A request passed through"),
    "weighed": ("vote.svg", "A request whose sample is voted on, with log-probabilities"),
}
WIDTH, ROW, LETTER = 1200, 17, 6.1  # pixels; a letter of 10 px in a monospace font
SMALLEST = 0.004  # share of the samples below which a box isn't drawn
ROOTS = ("Runner.run", "Thread.run")  # what called these says nothing
WAITS = ("Condition.wait", "Event.wait", "_worker", "_recv", "select")  # the last of a stack that only waits
COLOURS = {"adacompute": "#f4a259", "library": "#8cb4d9", "python": "#cfcfcf", "root": "#e8e8e8"}
LEGEND = {"adacompute": "adacompute", "library": "libraries", "python": "Python's own"}
OWN = ("asyncio/", "threading.py", "concurrent/", "json/", "logging/", "contextlib.py", "contextvars.py")

Stacks = dict[tuple[str, ...], int]  # functions from the root on, and in how many samples


@dataclass
class Box:
    """A function below the one that called it."""

    name: str
    samples: int = 0
    above: "dict[str, Box]" = field(default_factory=dict)


def record(way: Way) -> Stacks:
    """The stacks of a gateway that answers in this way, without pause, for some seconds."""
    spy = peers.environment("py-spy") / "bin" / "py-spy"
    asking = threading.Thread(target=loaded, args=(way, CLIENTS, SECONDS + 4.0))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "stacks.txt"
        words = [str(spy), "record", "--pid", str(way.pid), "--duration", str(SECONDS), "--function"]
        words += ["--rate", str(PER_SECOND), "--format", "raw", "--threads", "--output", str(file)]
        loaded(way, CLIENTS, 2.0)  # imports and caches of the first requests
        asking.start()
        done = subprocess.run(words, capture_output=True, text=True)
        asking.join()
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
            raise SystemExit(
                f"py-spy can't look at process {way.pid}: {why}; it may need root, or SYS_PTRACE"
            )
        return read_stacks(file.read_text("utf-8").splitlines())


def read_stacks(lines: Iterable[str]) -> Stacks:
    """py-spy's raw lines, "a (file);b (file) 3", without waits and what is below the loop or a thread."""
    stacks: collections.Counter[tuple[str, ...]] = collections.Counter()
    for line in lines:
        path, _, count = line.rpartition(" ")
        frames = [_shorten(frame) for frame in path.split(";")]
        if frames[-1].partition(" ")[0] in WAITS:
            continue
        below = [at for at, frame in enumerate(frames) if frame.startswith(ROOTS)]
        thread = "event loop" if "MainThread" in frames[0] else "other threads"
        stacks[(thread, *frames[(below[0] + 1 if below else 1) :])] += int(count)
    return dict(stacks)


def _shorten(frame: str) -> str:
    """A function and its file, without the place of the installation."""
    return re.sub(r"\((?:\S*/)?(?:site-packages|src|lib/python[\d.]+)/", "(", frame)


def build_tree(stacks: Stacks) -> Box:
    """All stacks as one tree, each function once above the one that called it."""
    root = Box("all samples")
    for path, count in stacks.items():
        root.samples += count
        box = root
        for name in path:
            box = box.above.setdefault(name, Box(name))
            box.samples += count
    return root


def draw(stacks: Stacks, title: str) -> str:
    """The flame graph as SVG: the root at the bottom, calls above it, in the order of their names."""
    root = build_tree(stacks)
    places = list(_place(root, 0.0, 0, root.samples))
    depth = max(level for _, _, level in places)
    height = (depth + 1) * ROW + 44
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    font = 'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="10"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>',
        f"<title>{html.escape(title)}: where the gateway spends it</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="8" y="18" font-size="13">{html.escape(title)}</text>',
        f'<text x="8" y="34">{root.samples:,} samples of the stack; hover over a box for its share</text>',
    ]
    for at, (kind, label) in enumerate(LEGEND.items()):
        x = WIDTH - 130 * (len(LEGEND) - at)
        lines.append(f'<rect x="{x}" y="10" width="11" height="11" fill="{COLOURS[kind]}"/>')
        lines.append(f'<text x="{x + 16}" y="19">{label}</text>')
    for box, start, level in places:
        lines.append(_draw_box(box, start, height - (level + 1) * ROW, root.samples))
    return "\n".join([*lines, "</svg>", ""])


def _place(box: Box, start: float, level: int, total: int) -> Iterator[tuple[Box, float, int]]:
    """Every box that is wide enough, with its left edge in samples and its level."""
    yield box, start, level
    for name in sorted(box.above):
        child = box.above[name]
        if child.samples >= SMALLEST * total:
            yield from _place(child, start, level + 1, total)
        start += child.samples


def _draw_box(box: Box, start: float, top: int, total: int) -> str:
    x, width = WIDTH * start / total, WIDTH * box.samples / total
    label = f"{box.name} {100 * box.samples / total:.1f}%"
    room = int((width - 4) / LETTER)
    name = box.name.partition(" (")[0]
    shown = label if len(label) <= room else name if len(name) <= room else name[: room - 1] + "…"
    place = f'x="{x:.1f}" y="{top}" width="{max(width - 0.4, 0.3):.1f}" height="{ROW - 1}"'
    text = f'<text x="{x + 2:.1f}" y="{top + 12}">{html.escape(shown)}</text>' if room >= 4 else ""
    colour = COLOURS[_find_kind(box.name)]
    return f'<g><title>{html.escape(label)}</title><rect {place} fill="{colour}"/>{text}</g>'


def _find_kind(name: str) -> str:
    """Whose code a function is."""
    place = name.rpartition(" (")[2]
    if "(" not in name:
        return "root"
    if place.startswith("adacompute"):
        return "adacompute"
    return "python" if place.startswith(OWN) or "/" not in place else "library"


def main(words: Sequence[str]) -> int:
    """Writes both pictures; exit code of the command."""
    folder = Path(words[0]) if words else FOLDER
    with upstream() as url, place() as home, gateway(url, home) as ours:
        ways = list_ways(ours)
        for name, (file, title) in PICTURES.items():
            (folder / file).write_text(draw(record(ways[name]), title), "utf-8")
            print(f"written: {folder / file}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
