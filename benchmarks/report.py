"""The whole report of 600 problems × 64 samples: seconds, processor time and memory. Knows no section."""

import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from adacompute.pool import bundled, export_file

PROBLEMS, WORKERS = 600, 2
BESIDE = Path(__file__).resolve().parents[2] / "shared" / "recordings"
EVERY = 0.1  # seconds between two looks at memory


def run() -> list[dict[str, Any]]:
    """One row a pool: the bundled words, some asked twice; and a recording of that size, if it is there."""
    found = []
    with tempfile.TemporaryDirectory() as home:
        for name, path in _pools(Path(home)):
            found.append({"pool": name, **measured(path, Path(home) / "report")})
    return found


def measured(pool: Path, folder: Path) -> dict[str, Any]:
    """The command on one pool; memory is that of all its processes together, at its highest."""
    words = ["report", str(pool), "-o", str(folder), "--workers", str(WORKERS)]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.Popen(
        [Path(sys.executable).parent / "adacompute", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(map(_resident, _family(process.pid))))
        time.sleep(EVERY)
    if process.returncode:
        raise RuntimeError(f"the report of {pool.name} ended with {process.returncode}")
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds": time.perf_counter() - start,
        "processor": spent.ru_utime + spent.ru_stime - before.ru_utime - before.ru_stime,
        "peak_mb": peak / 2**20,
        "page_mb": (folder / "report.html").stat().st_size / 2**20,
    }


def make_pool(home: Path) -> Path:
    """A file of 600 problems × 64 samples: the bundled words, some of them asked twice."""
    whole, pool = home / "words.jsonl", home / "pool.jsonl"
    with bundled("words") as words:
        export_file(words, whole)
    lines = whole.read_text("utf-8").splitlines()
    again = [_again(line) for line in lines[: PROBLEMS - len(lines)]]
    pool.write_text("\n".join([*lines, *again]) + "\n", "utf-8")
    return pool


def _pools(home: Path) -> Iterator[tuple[str, Path]]:
    pool = make_pool(home)
    with bundled("words") as words:
        yield f"words, {PROBLEMS - len(words)} of them twice", pool
    for path in sorted(BESIDE.glob("reasoning-gym*.jsonl.gz")):
        with gzip.open(path) as records:
            count = sum(1 for _ in records)
        yield f"reasoning-gym, {count} problems", path


def _again(line: str) -> str:
    """The same samples of a question that is told apart."""
    one = json.loads(line)
    return json.dumps(one | {"id": f"{one['id']}-again", "question": f"Again: {one['question']}"})


def _family(pid: int) -> list[int]:
    """A process and all below it."""
    try:
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(one for child in below for one in _family(int(child)))]


def _resident(pid: int) -> int:
    """Bytes, a page that several processes share counted in parts."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
