"""`make bench`: run every benchmark and write docs/benchmarks.md. Knows nothing of what is measured.

`python -m benchmarks answers` runs only the ones named, and prints instead of writing.
"""

import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks import answers, imports

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"


class Bench(NamedTuple):
    """A benchmark: what it shows, and the table it makes."""

    title: str
    says: str
    table: Callable[[], list[dict[str, str]]]


def answers_table() -> list[dict[str, str]]:
    """Answers a second, ours and math-verify's."""
    return [
        {
            "what": what,
            f"ours, {unit}": f"{ours:,.0f}",
            f"{name}, {unit}": f"{theirs:,.0f}",
            "ratio": f"{ratio:,.0f}×",
        }
        for what, ours, name, theirs, ratio, unit in answers.run()
    ]


def imports_table() -> list[dict[str, str]]:
    """Samples a second and peak memory, ours beside the floor."""
    names = {
        "import_file": "`import_file`: checked, classed, hashed, all or nothing",
        "floor": "floor: `json.loads` + `executemany`, no checks",
        "add_samples": "`add_samples`: one durable call a sample",
    }
    return [
        {
            "way": names[row["way"]],
            "text a sample": f"{row['text_bytes']:,} bytes",
            "samples": f"{row['samples']:,}",
            "samples/s": f"{row['samples_per_second']:,}",
            "ratio to floor": f"{row['of_floor']:.2f}×",
            "peak memory": f"{row['peak_rss_mb']} MB",
        }
        for row in imports.run()
    ]


BENCHES = {
    "answers": Bench(
        "Reading and comparing answers",
        "Distinct answers as models write them (seven in ten plain numbers, the rest formulas, units, text, "
        "tuples), and whole responses of about 1 KB; one core, best of three, no cache between runs. "
        "The aim is 20,000 answers a second.",
        answers_table,
    ),
    "imports": Bench(
        "Importing samples",
        "A JSONL file with answers and grades given; each way in a process of its own, on one core. The aim "
        "is 30,000 samples a second and under 500 MB.",
        imports_table,
    ),
}


def markdown(rows: list[dict[str, str]]) -> str:
    """A table with the first column to the left."""
    heads = list(rows[0])
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *([row[h] for h in heads] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def page(names: list[str]) -> str:
    """The whole page of results."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}"
    head = "Written by `make bench`; a speed is a ratio against a named alternative in the same run."
    parts = ["# Benchmarks", f"{head} Last run on: {machine}, Python {platform.python_version()}."]
    for name in names:
        bench = BENCHES[name]
        print(f"{name} …", file=sys.stderr)
        parts += [
            f"## {bench.title}",
            f"{bench.says} (`python -m benchmarks {name}`)",
            markdown(bench.table()),
        ]
    return "\n\n".join(parts) + "\n"


def main(words: list[str]) -> int:
    """Exit code of the command."""
    unknown = [word for word in words if word not in BENCHES]
    if unknown:
        print(f"no benchmark {unknown[0]!r}; there are {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    text = page(words or list(BENCHES))
    if words:
        print(text)
    else:
        PAGE.write_text(text, "utf-8")
        print(f"written: {PAGE.relative_to(PAGE.parent.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
