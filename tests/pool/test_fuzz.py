"""Inputs changed at random, always the same ones: whatever happens is an error of ours, in one line."""

import copy
import json
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pool_lines import line, write

from adacompute.errors import AdacomputeError
from adacompute.pool import export_file, import_file, open_pool
from adacompute.score import summarise

FIXTURES = Path(__file__).parent.parent / "fixtures"
DEEP = "[" * 600 + "]" * 600
VALUES = (  # as JSON: each use is a fresh one
    *("null", "true", "0", "-1", "5", str(2**70), "1e300", "NaN", '"x"', '""', '"\\ud800"'),
    *("[]", "[[]]", "[null]", "{}", '{"a": 1}', DEEP),
)


def attempt(call: Callable[[], object]) -> bool:
    """Whether it went well; only an error of ours, in one line with a remedy, may stop it."""
    try:
        call()
    except AdacomputeError as exc:
        said = str(exc)
    else:
        return True
    assert "\n" not in said
    assert "; " in said, "a remedy follows"
    return False


def places(value: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """Every container with every key in it, but for the depths of a deep one."""
    if isinstance(value, dict | list) and depth < 20:
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key], depth + 1)


def mutated(value: Any, rng: random.Random) -> Any:
    """A copy in which one to three places hold something else, or are gone."""
    changed = copy.deepcopy(value)
    for _ in range(rng.randint(1, 3)):
        if not (spots := list(places(changed))):
            break
        holder, key = rng.choice(spots)
        if rng.random() < 0.1:
            del holder[key]
        else:
            holder[key] = json.loads(rng.choice(VALUES))
    return changed


def damaged(content: bytes, rng: random.Random) -> bytes:
    """A few bytes changed, or the end cut off."""
    changed = bytearray(content)
    if rng.random() < 0.15:
        return bytes(changed[: rng.randrange(len(changed))])
    for _ in range(rng.choice([1, 2, 8, 40])):
        changed[rng.randrange(len(changed))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
    return bytes(changed)


def test_logs_of_inspect_with_anything_anywhere(tmp_path: Path):
    rng = random.Random(11)
    log = json.loads((FIXTURES / "inspect" / "tiny-0.3.285.json").read_text())
    log["samples"] = log["samples"][:4]
    for sample in log["samples"]:  # what is read, so that most changes hit it
        for name in set(sample) - {"id", "epoch", "input", "target", "output", "scores", "metadata", "error"}:
            del sample[name]
        logprobs = {"content": [{"token": "a", "logprob": -0.5}]}
        sample["output"]["choices"][0] |= {"logprobs": logprobs, "stop_reason": "stop"}
    log["eval"] = {name: log["eval"][name] for name in ("task", "model", "model_generate_config")}
    log = {"eval": log["eval"], "plan": {"config": log["plan"]["config"]}, "samples": log["samples"]}
    good = sum(
        attempt(lambda: import_changed(tmp_path, "a.json", json.dumps(mutated(log, rng)), "inspect"))
        for _ in range(120)
    )
    assert 0 < good < 120


def test_logs_of_lm_eval_with_anything_anywhere(tmp_path: Path):
    rng = random.Random(12)
    (log,) = (FIXTURES / "lm_eval" / "tiny-model").glob("samples_tiny_repeats_*.jsonl")
    rows = [json.loads(text) for text in log.read_text().splitlines()[:4]]
    good = 0
    for _ in range(120):
        text = "".join(json.dumps(row) + "\n" for row in mutated(rows, rng))
        good += attempt(lambda text=text: import_changed(tmp_path, "samples_a.jsonl", text, "lm-eval"))
    assert 0 < good < 120


def import_changed(folder: Path, name: str, text: str, kind: Any) -> None:
    (folder / name).write_text(text)
    (folder / "p.sqlite").unlink(missing_ok=True)
    import_file(folder / name, folder / "p.sqlite", format=kind)
    read_through(folder / "p.sqlite")


def read_through(path: Path) -> None:
    with open_pool(path) as pool:
        for call in (
            lambda: list(pool),
            lambda: list(pool.lines()),
            lambda: list(pool.problems()),
            lambda: pool.keys(*pool.models[0]),
            lambda: summarise(pool),
            pool.ballots,
            pool.counts,
            pool.digest,
            pool.verify,
        ):
            attempt(call)


def test_lines_of_a_pool_file_with_anything_anywhere(tmp_path: Path):
    rng = random.Random(13)
    row = line("p", parameters={"t": 0.5, "stop": ["x"]}, note={"a": [1]}, subject="s", level=1)
    row["failures"] = [{"index": 3, "kind": "timeout", "attempt": 1, "message": "m", "at": 1.5}]
    row["samples"][0] |= {
        "text": "t",
        "tokens": 3,
        "logprob": -1.0,
        "entropy": 0.1,
        "finished": True,
        "x": [1],
    }
    good = 0
    for _ in range(200):
        text = json.dumps(mutated(row, rng) if rng.random() < 0.97 else json.loads(rng.choice(VALUES))) + "\n"
        (tmp_path / "a.jsonl").write_text(text)
        good += attempt(lambda: read_through(tmp_path / "a.jsonl"))
    assert 0 < good < 200


@pytest.fixture(scope="module")
def pool_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    rows = [
        line(f"p{i}", parameters={"t": 0.5}, note={"é": [i]}, failures=[{"index": 9, "kind": "timeout"}])
        for i in range(12)
    ]
    import_file(write(folder / "a.jsonl", rows), folder / "p.sqlite")
    with open_pool(folder / "p.sqlite") as pool:
        export_file(pool, folder / "p.parquet")
    return folder / "p.sqlite"


def test_parquet_with_bytes_changed(pool_file: Path, tmp_path: Path):
    rng = random.Random(14)
    whole = pool_file.with_suffix(".parquet").read_bytes()
    for _ in range(120):
        (tmp_path / "a.parquet").write_bytes(damaged(whole, rng))
        attempt(lambda: read_through(tmp_path / "a.parquet"))


def test_sqlite_with_bytes_changed(pool_file: Path, tmp_path: Path):
    rng = random.Random(15)
    whole = pool_file.read_bytes()
    used = [i for i in range(100, len(whole)) if whole[i]]
    for number in range(120):
        changed = bytearray(damaged(whole, rng) if number % 4 == 0 else whole)
        for _ in range(rng.choice([1, 3, 12])):
            changed[min(rng.choice(used), len(changed) - 1)] = rng.randrange(256)
        (tmp_path / "a.sqlite").write_bytes(changed)
        attempt(lambda: read_through(tmp_path / "a.sqlite"))
        (tmp_path / "b.sqlite").unlink(missing_ok=True)
        attempt(lambda: import_file(tmp_path / "a.sqlite", tmp_path / "b.sqlite"))
        attempt(lambda: import_file(pool_file.with_name("a.jsonl"), tmp_path / "a.sqlite", existing="skip"))


def test_sqlite_with_any_column_of_another_type(pool_file: Path, tmp_path: Path):
    with sqlite3.connect(pool_file) as connection:
        columns = [
            (table, name)
            for table in ("settings", "problems", "sources", "records", "samples", "failures", "migrations")
            for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")
        ]
    connection.close()
    for table, name in columns:
        for value in ("x'ff'", "CAST(x'ff' AS TEXT)", "'{'", "9223372036854775807"):
            shutil.copy(pool_file, tmp_path / "a.sqlite")
            connection = sqlite3.connect(tmp_path / "a.sqlite", isolation_level=None)
            connection.execute("PRAGMA ignore_check_constraints = ON")
            where = (
                f"rowid = (SELECT max(rowid) FROM {table})"
                if table not in ("settings", "migrations")
                else "1"
            )
            try:
                connection.execute(f"UPDATE {table} SET {name} = {value} WHERE {where}")
            except sqlite3.IntegrityError:
                continue
            finally:
                connection.close()
            attempt(lambda: read_through(tmp_path / "a.sqlite"))
