"""Importing a large file: ours beside the floor (no checks at all) and beside one call a problem.

Knows nothing of `make`: `run()` answers rows, and each way runs in a process of its own so that its
peak memory is its own.
"""

import json
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.processes import peak_kb

PROBLEMS, SAMPLES, TEXT = 15_625, 64, 200  # a million samples of about 200 bytes
ONE_BY_ONE = 50  # problems for the slow way: its rate is steady
LONG = 1_500  # bytes of a text in the second case


def write_file(path: Path, *, problems: int, samples: int, text: int, seed: int = 0) -> None:
    """A pool file with answers and correctness given, as a recording has them."""
    rng = random.Random(seed)
    words = ["so", "the", "total", "is", "therefore", "we", "add", "12", "and", "multiply", "by", "3"]
    filler = " ".join(rng.choice(words) for _ in range(4 * (text + 20_000)))
    with path.open("w", encoding="utf-8") as file:
        for i in range(problems):
            gold = rng.randrange(1000)
            drawn = []
            for _ in range(samples):
                start = rng.randrange(20_000)
                answer = gold if rng.random() < 0.6 else rng.randrange(gold + 8)
                drawn.append(
                    {
                        "text": filler[start : start + text],
                        "answer": str(answer),
                        "correct": int(answer == gold),
                        "tokens": text // 4,
                        "logprob": round(-rng.random() * 30, 3),
                        "entropy": round(rng.random(), 4),
                        "finished": 1,
                    }
                )
            line = {
                "id": f"p{i}",
                "question": f"What is {i}?",
                "gold": str(gold),
                "model": "m",
                "samples": drawn,
            }
            file.write(json.dumps(line) + "\n")


def ours(source: Path, target: Path) -> None:
    """`import_file`: every field checked, classes, hashes, all or nothing."""
    from adacompute.pool import import_file

    import_file(source, target)


def floor(source: Path, target: Path) -> None:
    """json.loads and executemany into one table: no checks, classes or hashes; the least that it takes."""
    connection = sqlite3.connect(target)
    connection.execute(
        "CREATE TABLE problems (key INTEGER PRIMARY KEY, id TEXT UNIQUE, question TEXT, gold TEXT)"
    )
    connection.execute(
        "CREATE TABLE samples (problem, idx, text, answer, correct, tokens, logprob, entropy, finished, "
        "PRIMARY KEY (problem, idx))"
    )
    with source.open(encoding="utf-8") as file:
        for key, line in enumerate(file):
            row = json.loads(line)
            connection.execute(
                "INSERT INTO problems VALUES (?, ?, ?, ?)", (key, row["id"], row["question"], row["gold"])
            )
            connection.executemany(
                "INSERT INTO samples VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(key, i, *sample.values()) for i, sample in enumerate(row["samples"])],
            )
    connection.commit()
    connection.close()


def one_by_one(source: Path, target: Path) -> None:
    """The public `add_samples`, one call a sample, each durable: how a collector writes."""
    from adacompute.pool import open_pool
    from adacompute.records import Problem, Sample

    with open_pool(target, create=True) as pool, source.open(encoding="utf-8") as file:
        for line, _ in zip(file, range(ONE_BY_ONE), strict=False):
            row = json.loads(line)
            pool.add_problem(Problem(id=row["id"], question=row["question"], gold=row["gold"]))
            for i, sample in enumerate(row["samples"]):
                sample["finished"] = bool(sample["finished"])
                pool.add_samples(row["id"], [(i, Sample(**sample))], model="m")


WAYS: dict[str, Callable[[Path, Path], None]] = {
    "import_file": ours,
    "floor": floor,
    "add_samples": one_by_one,
}


def run(*, problems: int = PROBLEMS, samples: int = SAMPLES) -> list[dict[str, Any]]:
    """One row a way and text length: samples a second, peak memory, and the ratio to the floor."""
    rows: list[dict[str, Any]] = []
    for text, share in ((TEXT, 1.0), (LONG, 0.2)):
        count = max(1, int(problems * share))
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "big.jsonl")
            write_file(source, problems=count, samples=samples, text=text)
            measured = {}
            for way in WAYS:
                size = min(count, ONE_BY_ONE) * samples if way == "add_samples" else count * samples
                measured[way] = {
                    "way": way,
                    "text_bytes": text,
                    "samples": size,
                    **_measure(way, source, size),
                }
        best = measured["floor"]["samples_per_second"]
        rows += [row | {"of_floor": round(row["samples_per_second"] / best, 3)} for row in measured.values()]
    return rows


def _measure(way: str, source: Path, samples: int) -> dict[str, Any]:
    target = source.with_name(f"{way}.sqlite")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.imports", "--one", way, str(source), str(target)],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    size = target.stat().st_size
    target.unlink()
    return {
        "seconds": round(found["seconds"], 2),
        "samples_per_second": round(samples / found["seconds"]),
        "peak_rss_mb": round(found["peak_kb"] / 1024),
        "file_mb": round(size / 1e6),
    }


def _one(way: str, source: Path, target: Path) -> None:
    start = time.perf_counter()
    WAYS[way](source, target)
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "peak_kb": peak_kb()}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        _one(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
    else:
        for measured_row in run():
            print(json.dumps(measured_row))
