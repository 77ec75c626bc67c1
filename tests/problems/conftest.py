"""What the tests of this room share: problems of our own, and a cache of `datasets` that isn't the user's."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

Write = Callable[..., Path]


@pytest.fixture
def jsonl(tmp_path: Path) -> Write:
    """Writes rows as JSON lines: `jsonl([{...}], "name.jsonl")`."""

    def write(rows: Iterable[Any], name: str = "problems.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
        return path

    return write


@pytest.fixture
def hf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The library `datasets`, with its cache in the test's folder and no bars."""
    datasets = pytest.importorskip("datasets", reason="needs the library datasets (adacompute[hf])")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    yield datasets
    datasets.enable_progress_bars()
