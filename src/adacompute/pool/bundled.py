"""The recordings inside the package. Knows nothing of how they were made: their cards do."""

import gzip
import json
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable

from adacompute.answers import Task
from adacompute.errors import PoolNotFound
from adacompute.pool.opening import open_file
from adacompute.pool.store import Pool

__all__ = ["bundled", "bundled_card", "bundled_names"]

_NAMES = ("facts", "words")
_FOLDER = "recordings"


def bundled_names() -> tuple[str, ...]:
    """What `bundled` can open."""
    return _NAMES


def bundled(name: str) -> Pool:
    """A recording inside the package, read-only.

    >>> len(bundled("facts"))
    353
    """
    folder = _folder(name)
    # comparing answers takes seconds, and for a fixed file it comes out the same every time
    classes = json.loads(gzip.decompress((folder / f"{name}.classes.gz").read_bytes()))
    with as_file(folder / f"{name}.parquet") as path:
        return open_file(path, Task(), classes=classes)


def bundled_card(name: str) -> str:
    """Where a recording comes from and what its fields mean, in Markdown."""
    return (_folder(name) / f"{name}.md").read_text("utf-8")


def _folder(name: str) -> Traversable:
    if name not in _NAMES:
        raise PoolNotFound(f"there is no recording {name!r} in the package; there are {', '.join(_NAMES)}")
    return files("adacompute.pool") / _FOLDER
