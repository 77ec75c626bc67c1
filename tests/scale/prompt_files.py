"""Parquet files of prompts for tests. Knows nothing of policies."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from shared import read_votes

KINDS = pa.dictionary(pa.int8(), pa.string())
KEPT = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("prompt", pa.large_string()),
        pa.field("kind", KINDS),
        pa.field("notes", pa.list_(pa.string())),
    ],
    metadata={"owner": "me"},
)


def questions() -> list[str]:
    """Of the bundled recordings."""
    return [prompt for name in ("facts", "words") for prompt in read_votes(name).prompts]


def long_prompts(rows: int) -> list[str]:
    """About 500 characters each, all different."""
    some = questions()
    return [f"{i}. " + " ".join(some[(i * 7 + k) % len(some)] for k in range(5)) for i in range(rows)]


def table_of(prompts: Sequence[str], *, start: int = 0) -> pa.Table:
    """With other columns of several types."""
    rows = range(start, start + len(prompts))
    return pa.table(
        {
            "id": pa.array(rows, pa.int32()),
            "prompt": pa.array(prompts, pa.large_string()),
            "kind": pa.array(["ab"[row % 2] for row in rows])
            .dictionary_encode()
            .cast(KEPT.field("kind").type),
            "notes": pa.array([["x"] * (row % 3) or None for row in rows], pa.list_(pa.string())),
        },
        schema=KEPT,
    )


def file_of(path: Path, prompts: Sequence[str], *, group: int = 1000) -> Path:
    pq.write_table(table_of(prompts), path, row_group_size=group)
    return path


def folder_of(path: Path, prompts: Sequence[str], sizes: Sequence[int], *, group: int = 300) -> Path:
    """Files of so many rows each, the rest in the last; also things that aren't prompts."""
    path.mkdir()
    start = 0
    for number, size in enumerate([*sizes, len(prompts)]):
        some = prompts[start : start + size]
        pq.write_table(table_of(some, start=start), path / f"part-{number}.parquet", row_group_size=group)
        start += len(some)
    (path / "_SUCCESS").write_text("")
    (path / ".hidden.parquet").write_text("")
    return path


def budgets_in(path: Path) -> list[int]:
    """In the order of files and rows."""
    parts = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    return [each for part in parts for each in pq.read_table(part, partitioning=None)["budget"].to_pylist()]
