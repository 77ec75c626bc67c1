"""Passes over shards by Ray Data: each shard keeps data in Ray, and reports something small to the driver.

What a shard keeps stays in Ray's object store between passes. Ray repeats a task that is lost with its
worker, with the same result; an error of ours comes back as data.
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import orjson

from adacompute import errors
from adacompute.errors import AdacomputeError, EngineUnavailable
from adacompute.policies import POLICIES
from adacompute.policies.base import Policy
from adacompute.pool import Ballots
from adacompute.pool.ballots import ABSENT, PromptCharge
from adacompute.solve.shard_search import ChoiceTotal, Edge, SlopeBracket, SlopeHistogram

__all__ = [
    "PackedPolicy",
    "ShardDataset",
    "ShardRecord",
    "TaskFailure",
    "pack_ballots",
    "pack_policy",
    "pad_columns",
    "parse_histogram",
    "parse_total",
    "raise_failures",
    "report_histogram",
    "report_total",
    "start_pass",
    "unpack_ballots",
    "unpack_policy",
]

ShardRecord: TypeAlias = Mapping[str, Any]  # arrays, and what JSON can say

PackedPolicy: TypeAlias = tuple[
    str, Mapping[str, Any], Mapping[str, npt.NDArray[Any]]
]  # kind, settings, arrays

_TEXT_FIELDS = ("ids", "prompts", "subjects", "levels")
_HISTOGRAM_FIELDS = ("problems", "cheapest", "dearest", "keys", "cost")


def pack(record: ShardRecord) -> bytes:
    """A record as bytes: arrays as npz, everything else as JSON in it."""
    arrays = {name: value for name, value in record.items() if isinstance(value, np.ndarray)}
    rest = {name: value for name, value in record.items() if name not in arrays}
    out = io.BytesIO()
    np.savez(out, **arrays, json=np.frombuffer(orjson.dumps(rest), dtype=np.uint8))  # type: ignore[arg-type]
    return out.getvalue()


def unpack(data: bytes) -> dict[str, Any]:
    """What was packed."""
    with np.load(io.BytesIO(data), allow_pickle=False) as stored:
        arrays: dict[str, Any] = {name: stored[name] for name in stored.files}
    rest: dict[str, Any] = orjson.loads(arrays.pop("json").tobytes())
    return {**arrays, **rest}


def pack_ballots(ballots: Ballots) -> dict[str, Any]:
    """Ballots as a record."""
    record = {
        field.name: list(value) if field.name in _TEXT_FIELDS else value
        for field in fields(ballots)
        for value in [getattr(ballots, field.name)]
    }
    return record | {"charge": asdict(ballots.charge)}


def unpack_ballots(record: ShardRecord) -> Ballots:
    """The ballots of a record."""
    parts: dict[str, Any] = {
        name: tuple(value) if name in _TEXT_FIELDS else value for name, value in record.items()
    }
    for value in parts.values():
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
    return Ballots(**parts | {"charge": PromptCharge(**parts["charge"])})


def pack_policy(policy: Policy) -> PackedPolicy:
    """A policy as plain data, so that nothing that is sent is code."""
    return policy.kind, policy.settings(), dict(policy.arrays())


def unpack_policy(packed_policy: PackedPolicy) -> Policy:
    """The policy that was packed, in another process."""
    kind, settings, arrays = packed_policy
    return POLICIES[kind].restore(settings, arrays)


def report_histogram(histogram: SlopeHistogram) -> ShardRecord:
    """A histogram of slopes as a record; the bracket that it is of is known to the driver."""
    return {name: getattr(histogram, name) for name in _HISTOGRAM_FIELDS}


def parse_histogram(report: ShardRecord, bracket: SlopeBracket) -> SlopeHistogram:
    """The histogram of a record."""
    return SlopeHistogram(bracket=bracket, **{name: report[name] for name in _HISTOGRAM_FIELDS})


def report_total(total: ChoiceTotal, edge: Edge | None) -> ShardRecord:
    """The sum of a shard's choices, and its edge at the price where it has one, as a record."""
    return {"total": asdict(total), "edge": None if edge is None else asdict(edge)}


def parse_total(report: ShardRecord) -> tuple[ChoiceTotal, Edge | None]:
    """The sum and the edge of a record."""
    total, edge = report["total"], report["edge"]
    return ChoiceTotal(**{**total, "counts": tuple(total["counts"])}), None if edge is None else Edge(**edge)


def pad_columns(array: npt.NDArray[Any], width: int, *, classes: bool = False) -> npt.NDArray[Any]:
    """An array (problems, samples, …) with so many columns; added cells are absent."""
    missing = width - array.shape[1]
    if missing <= 0:
        return array
    widths = ((0, 0), (0, missing), *((0, 0),) * (array.ndim - 2))
    return np.pad(array, widths, constant_values=ABSENT if classes else np.nan)


Dataset: TypeAlias = Any  # ray.data's, which is loaded late
# from what a shard keeps and an argument to what it keeps then, and its report
ShardWork: TypeAlias = Callable[[ShardRecord, Any], tuple[ShardRecord | None, ShardRecord]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailure:
    """An error of ours in which a task ended."""

    kind: str
    message: str

    def to_error(self) -> AdacomputeError:
        """As it was raised."""
        error: AdacomputeError = getattr(errors, self.kind, AdacomputeError)(self.message)
        return error


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShardDataset:
    """What shards keep in Ray, and what they reported when it was made."""

    dataset: Dataset
    workers: int  # tasks at the same time
    reports: Sequence[ShardRecord | TaskFailure]  # (shards,)

    def __len__(self) -> int:
        return len(self.reports)

    def run_and_keep(self, work: ShardWork, arguments: Sequence[Any]) -> "ShardDataset":
        """A pass after which shards keep something else; one argument for each shard."""
        return _run_pass(self.dataset, work, arguments, workers=self.workers, keep=True)

    def ask(self, work: ShardWork, arguments: Sequence[Any]) -> list[ShardRecord]:
        """A pass that only asks; the first shard's error is raised."""
        return raise_failures(
            _run_pass(self.dataset, work, arguments, workers=self.workers, keep=False).reports
        )


def start_pass(work: ShardWork, arguments: Sequence[Any], *, workers: int) -> ShardDataset:
    """A first pass, in which shards have nothing but their arguments."""
    import ray.data

    items = [{"at": at, "kept": pack({})} for at in range(len(arguments))]
    with _map_ray_errors():
        dataset = ray.data.from_items(items, override_num_blocks=max(1, len(items)))
        return _run_pass(dataset, work, arguments, workers=workers, keep=True)


def raise_failures(reports: Sequence[ShardRecord | TaskFailure]) -> list[ShardRecord]:
    """The reports; raises the first error among them."""
    records: list[ShardRecord] = []
    for report in reports:
        if isinstance(report, TaskFailure):
            raise report.to_error()
        records.append(report)
    return records


def _run_pass(
    dataset: Dataset, work: ShardWork, arguments: Sequence[Any], *, workers: int, keep: bool
) -> ShardDataset:
    import ray
    import ray.data

    with _map_ray_errors():
        refs = [ray.put(argument) for argument in arguments]
        result = dataset.map(
            partial(_run_shard, work=work, refs=refs, keep_data=keep),
            compute=ray.data.TaskPoolStrategy(size=min(workers, max(1, len(refs)))),
        )
        if keep:
            result = result.materialize()
        rows = (result.select_columns(["at", "report", "error"]) if keep else result).take_all()
    rows.sort(key=lambda row: row["at"])
    return ShardDataset(dataset=result, workers=workers, reports=[_parse_report(row) for row in rows])


def _run_shard(
    row: dict[str, Any], *, work: ShardWork, refs: Sequence[Any], keep_data: bool
) -> dict[str, Any]:
    """One shard's part of a pass, in a worker."""
    import ray

    at = int(row["at"])
    data: ShardRecord | None = None
    report: ShardRecord = {}
    error = ""
    try:
        data, report = work(unpack(row["kept"]), ray.get(refs[at]))
    except AdacomputeError as exc:
        error = json.dumps([type(exc).__name__, str(exc)])
    stored = {"kept": pack(data or {})} if keep_data else {}
    return {"at": at, "report": pack(report), "error": error, **stored}


def _parse_report(row: Mapping[str, Any]) -> ShardRecord | TaskFailure:
    if row["error"]:
        kind, message = json.loads(row["error"])
        return TaskFailure(kind=kind, message=message)
    return unpack(row["report"])


@contextmanager
def _map_ray_errors() -> Iterator[None]:
    """Turns the permanent loss of workers into an error that says what to do."""
    from ray.exceptions import RayError, RayTaskError

    try:
        yield
    except RayTaskError:  # a bug of ours: its traceback is worth more than one line
        raise
    except RayError as exc:
        why = (str(exc).strip().splitlines() or [type(exc).__name__])[0][:300]
        raise EngineUnavailable(
            f"engine ray: workers were lost for good ({why}); the same command starts again"
        ) from exc
