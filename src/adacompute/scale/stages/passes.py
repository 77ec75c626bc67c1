"""Passes over shards by Ray Data: each keeps something there, and tells the driver something small.

Knows nothing of pools or scores. What a shard keeps stays in Ray's object store between passes. A task that
is lost with its worker is run again by Ray, and gives the same; an error of ours comes back as data.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from adacompute import errors
from adacompute.errors import AdacomputeError, EngineUnavailable
from adacompute.scale.stages.packing import Record, packed, unpacked

__all__ = ["Failed", "Shared", "failures", "spread"]

Dataset: TypeAlias = Any  # ray.data's, which is loaded late
Work: TypeAlias = Callable[[Record, Any], tuple[Record | None, Record]]  # what is kept, what is told


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """An error of ours that a task ended in."""

    kind: str
    message: str

    def error(self) -> AdacomputeError:
        """As it was raised."""
        found: AdacomputeError = getattr(errors, self.kind, AdacomputeError)(self.message)
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shared:
    """What shards keep, and what they told when it was made."""

    dataset: Dataset
    workers: int  # tasks at the same time
    told: Sequence[Record | Failed]  # (shards,)

    def __len__(self) -> int:
        return len(self.told)

    def keep(self, work: Work, given: Sequence[Any]) -> "Shared":
        """A pass after which shards keep something else; `given` is one for each shard."""
        return _passed(self.dataset, work, given, workers=self.workers, kept=True)

    def ask(self, work: Work, given: Sequence[Any]) -> list[Record]:
        """A pass that only asks; the first shard's error is raised."""
        return failures(_passed(self.dataset, work, given, workers=self.workers, kept=False).told)


def spread(work: Work, given: Sequence[Any], *, workers: int) -> Shared:
    """A first pass, which begins with nothing but what is given."""
    import ray.data

    items = [{"at": at, "kept": packed({})} for at in range(len(given))]
    with _engine():
        dataset = ray.data.from_items(items, override_num_blocks=max(1, len(items)))
        return _passed(dataset, work, given, workers=workers, kept=True)


def failures(told: Sequence[Record | Failed]) -> list[Record]:
    """What was told; raises the first error there is."""
    found: list[Record] = []
    for each in told:
        if isinstance(each, Failed):
            raise each.error()
        found.append(each)
    return found


def _passed(dataset: Dataset, work: Work, given: Sequence[Any], *, workers: int, kept: bool) -> Shared:
    import ray
    import ray.data

    with _engine():
        refs = [ray.put(each) for each in given]
        made = dataset.map(
            partial(_row, work=work, refs=refs, kept=kept),
            compute=ray.data.TaskPoolStrategy(size=min(workers, max(1, len(refs)))),
        )
        if kept:
            made = made.materialize()
        rows = (made.select_columns(["at", "told", "error"]) if kept else made).take_all()
    rows.sort(key=lambda row: row["at"])
    return Shared(dataset=made, workers=workers, told=[_told(row) for row in rows])


def _row(row: dict[str, Any], *, work: Work, refs: Sequence[Any], kept: bool) -> dict[str, Any]:
    """One shard's part of a pass, in a worker."""
    import ray

    at = int(row["at"])
    keep: Record | None = None
    told: Record = {}
    error = ""
    try:
        keep, told = work(unpacked(row["kept"]), ray.get(refs[at]))
    except AdacomputeError as exc:
        error = json.dumps([type(exc).__name__, str(exc)])
    left = {"kept": packed(keep or {})} if kept else {}
    return {"at": at, "told": packed(told), "error": error, **left}


def _told(row: Mapping[str, Any]) -> Record | Failed:
    if row["error"]:
        kind, message = json.loads(row["error"])
        return Failed(kind=kind, message=message)
    return unpacked(row["told"])


@contextmanager
def _engine() -> Iterator[None]:
    """What Ray loses for good becomes an error that says what to do."""
    from ray.exceptions import RayError, RayTaskError

    try:
        yield
    except RayTaskError:  # a fault of our own: its trace is worth more than a line
        raise
    except RayError as exc:
        why = (str(exc).strip().splitlines() or [type(exc).__name__])[0][:300]
        raise EngineUnavailable(
            f"engine ray: workers were lost for good ({why}); the same command starts anew"
        ) from exc
