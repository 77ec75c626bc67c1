"""Allocating a batch of prompts: rates beside the work without files, Ray's workers, memory by size.

Knows nothing of pages. Each way runs in a process of its own, so that its peak memory is its own.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from adacompute.policies.curve import CurvePolicy
from adacompute.pool import bundled
from benchmarks.processes import peak_kb

ROWS = 200_000  # prompts of the rates
CHARS = 500
RAY = (1, 2)  # workers
BUDGET = 2.3
_BATCH = 50_000  # prompts written at a time


def texts(rows: int, chars: int, *, seed: int = 0) -> Iterator[list[str]]:
    """Prompts of about so many characters, all different, some thousand at a time."""
    known: list[str] = []
    for name in ("facts", "words"):
        with bundled(name) as pool:
            known += pool.ballots().prompts
    rng = np.random.default_rng(seed)
    whole = " ".join(known[i] for i in rng.integers(0, len(known), 20_000))
    for start in range(0, rows, _BATCH):
        at = rng.integers(0, len(whole) - chars, min(_BATCH, rows - start)).tolist()
        yield [f"{start + i}. {whole[a : a + chars - 10]}" for i, a in enumerate(at)]


def write(path: Path, rows: int, chars: int, *, files: int = 1) -> None:
    """A folder of Parquet files of prompts, with an id."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.mkdir()
    each = -(-rows // files)
    for number in range(files):
        schema = pa.schema([("id", pa.int64()), ("prompt", pa.string())])
        with pq.ParquetWriter(path / f"{number:03}.parquet", schema) as writer:
            start = number * each
            for some in texts(min(each, rows - start), chars, seed=number):
                table = pa.table({"id": range(start, start + len(some)), "prompt": some}, schema=schema)
                writer.write_table(table, row_group_size=10_000)
                start += len(some)


def fitted(folder: Path) -> None:
    """A curve that reads text alone."""
    with bundled("words") as pool:
        CurvePolicy(features="text").fit(pool).save(folder)


def local(source: Path, policy: CurvePolicy, into: Path) -> float:
    """Seconds of the whole, files included."""
    from adacompute.scale.allocate import allocate

    return allocate(source, policy, budget=BUDGET, into=into).seconds


def floor(source: Path, policy: CurvePolicy, _: Path) -> float:
    """The same features, curves and price, in memory: no reading, keeping or writing."""
    import pyarrow.parquet as pq

    from adacompute.records import AccuracyTable
    from adacompute.solve import solve

    prompts = pq.read_table(source)["prompt"].to_pylist()
    start = time.perf_counter()
    curves = policy.predict_curve(prompts)
    costs = np.array(policy.choices, dtype=float)
    solve(AccuracyTable(accuracy=curves, costs=costs, modes=policy.choices), budget=BUDGET)
    return time.perf_counter() - start


def on_ray(source: Path, policy: CurvePolicy, into: Path, *, workers: int) -> float:
    """Seconds, without Ray's own start: a first, small run starts its workers."""
    from adacompute.scale.allocate import allocate
    from adacompute.scale.cluster import cluster

    with tempfile.TemporaryDirectory() as folder, cluster(workers):
        small = Path(folder, "small")
        write(small, 200 * workers, CHARS, files=4 * workers)
        allocate(small, policy, budget=BUDGET, into=Path(folder, "out"), engine="ray", workers=workers)
        found = allocate(source, policy, budget=BUDGET, into=into, engine="ray", workers=workers)
    return found.seconds


WAYS: dict[str, Any] = {"local": local, "floor": floor}
WAYS |= {f"ray-{n}": lambda s, p, i, n=n: on_ray(s, p, i, workers=n) for n in RAY}


def rates(*, rows: int = ROWS) -> list[dict[str, Any]]:
    """Prompts a second by each way, and the ratio to its alternative: no files, or one worker."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fitted(folder / "policy")
        write(folder / "in", rows, CHARS, files=8)
        found = {way: _measure(way, folder, folder / "in") for way in WAYS}
    base = {"local": "floor", "floor": "floor"}
    return [
        {
            "way": way,
            "rate": rows / one["seconds"],
            "ratio": found[base.get(way, "ray-1")]["seconds"] / one["seconds"],
            "peak_mb": one["peak_kb"] / 1024,
        }
        for way, one in found.items()
    ]


def _measure(way: str, folder: Path, source: Path) -> dict[str, Any]:
    into = folder / f"out-{way}-{source.name}"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.allocate", way, str(folder / "policy"), str(source), str(into)],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _one(way: str, policy: str, source: str, into: str) -> None:
    from adacompute.policies import load_policy

    seconds = WAYS[way](Path(source), load_policy(policy), Path(into))
    print(json.dumps({"seconds": seconds, "peak_kb": peak_kb()}))


if __name__ == "__main__":
    _one(*sys.argv[1:5])
