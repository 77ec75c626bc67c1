"""A folder of Parquet shards opened on Ray: ballots stay there, an index of the problems is here.

A shard is one file, or several small ones where there are very many. Files that hold the same problem (of
two models, say) make one shard, because a problem is reported as a whole.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.answers import Task
from adacompute.errors import AdacomputeError, PoolNotFound, RecordInvalid, ScaleError, TooFewSamples
from adacompute.pool import Ballots, Pool, fingerprint
from adacompute.pool.ballots import ABSENT, ABSTAINS, PromptCharge
from adacompute.pool.formats import Entry
from adacompute.pool.pool_files import list_parquet_files, open_entries, read_parquet_folder
from adacompute.pool.tables import pick_source
from adacompute.records import SIGNAL_NAMES
from adacompute.scale.cluster import cluster
from adacompute.scale.shard_passes import (
    ShardDataset,
    ShardRecord,
    TaskFailure,
    pack_ballots,
    pad_columns,
    raise_failures,
    start_pass,
    unpack_ballots,
)
from adacompute.score.grades import ProblemFacts, grade_samples, mask_graded

__all__ = ["MAX_SHARDS", "ShardPart", "ShardedPool", "group_files", "open_sharded_pool"]

_EMPTY = np.zeros((0, 0))
_NO_BALLOTS = Ballots(
    ids=(),
    prompts=(),
    subjects=(),
    levels=(),
    gold_known=np.zeros(0, dtype=bool),
    classes=_EMPTY.astype(np.int32),
    correct=_EMPTY.astype(np.float32),
    tokens=_EMPTY,
    logprob=_EMPTY,
    entropy=_EMPTY,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """The settings by which all shards are read."""

    folder: str  # as workers find it
    shown: str  # as it was given, for messages
    names: tuple[str, ...]  # of all files
    task: dict[str, str]
    model: str | None
    parameters: dict[str, Any] | None


def read_shard(
    _: ShardRecord, argument: tuple[ReadRequest, tuple[int, ...]]
) -> tuple[ShardRecord | None, ShardRecord]:
    """Reads the files of one shard as ballots, which are kept, and reports on them."""
    request, files = argument
    try:
        return _read_files(request, files)
    except AdacomputeError as exc:  # the message names the folder as the user gave it
        raise type(exc)(str(exc).replace(request.folder, request.shown)) from exc


def _read_files(request: ReadRequest, files: tuple[int, ...]) -> tuple[ShardRecord, ShardRecord]:
    reading = read_parquet_folder(Path(request.folder), request.names, files)
    first = next(reading.entries, None)
    if first is None:  # an empty file: a pool of none is an error only where all are
        return pack_ballots(_NO_BALLOTS), {
            "lines": 0,
            "marks": _hash_ids({}),
            "sources": [],
            **_summarise_problems(_NO_BALLOTS, {}),
        }
    places: dict[str, int] = {}
    entries = _note_places(chain([first], reading.entries), places)
    with open_entries(replace(reading, entries=entries), Task.from_dict(request.task)) as pool:
        sources = pool.models
        ballots = _select_ballots(pool, request)
    report = {
        "lines": len(places),
        "marks": _hash_ids(places),
        "sources": [list(source) for source in sources],
        **_summarise_problems(ballots, places),
    }
    return pack_ballots(ballots), report


def _note_places(entries: Iterator[Entry], places: dict[str, int]) -> Iterator[Entry]:
    """The entries; each problem's first place is noted in `places` on the way."""
    for entry in entries:
        name = entry.value.get("id") if isinstance(entry.value, dict) else None
        if isinstance(name, str):
            places.setdefault(name, entry.place)
        yield entry


def _select_ballots(pool: Pool, request: ReadRequest) -> Ballots:
    """Those of the one source that fits; none where none or several do: the driver reports that."""
    mark = None if request.parameters is None else fingerprint(request.parameters)
    fitting = [
        pool.source_key(name, values)
        for name, values in pool.models
        if (request.model is None or name == request.model) and (mark is None or fingerprint(values) == mark)
    ]
    return pool.ballots_of(fitting[0] if len(fitting) == 1 else None)


def _summarise_problems(ballots: Ballots, places: dict[str, int]) -> dict[str, Any]:
    present, mute = ballots.classes != ABSENT, ballots.classes == ABSTAINS
    return {
        "ids": list(ballots.ids),
        "places": np.array([places[name] for name in ballots.ids], dtype=np.int64),
        "drawn": ballots.drawn,
        "known": mask_graded(ballots, grade_samples(ballots)),
        "answered": (ballots.classes >= 0).any(axis=1),
        "right": (ballots.correct > 0).any(axis=1),
        "mute": (mute & (ballots.correct > 0)).any(axis=1),
        "tokens": ~(np.isnan(ballots.tokens) & present).any(axis=1),
    }


def _hash_ids(places: dict[str, int]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """A number for each problem's id, by which shards that share one are found."""
    digests = [hashlib.blake2b(name.encode(errors="replace"), digest_size=8).digest() for name in places]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


MAX_SHARDS = 1024  # shards: more of them cost more time to hand out than they save


def shard_files(folder: Path) -> tuple[str, ...]:
    """The Parquet files of a folder, by name; ScaleError where this is not a folder."""
    if folder.is_dir():
        return list_parquet_files(folder)
    if not folder.exists():
        raise PoolNotFound(f"{folder}: there is no such folder; check the path")
    raise ScaleError(
        f"{folder}: is one file, and engine ray works on a folder of Parquet; write one with "
        f"adacompute export {folder} FOLDER --shards 8, or use --engine local"
    )


def group_files(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Files by number, grouped into shards by the size of each.

    >>> group_files([5, 5, 5])
    [(0,), (1,), (2,)]
    """
    if len(sizes) <= MAX_SHARDS:
        return [(file,) for file in range(len(sizes))]
    reach = np.cumsum(np.asarray(sizes) + 1)
    shard = np.minimum((reach - 1) * MAX_SHARDS // reach[-1], MAX_SHARDS - 1)  # (files,)
    return [tuple(np.flatnonzero(shard == k).tolist()) for k in np.unique(shard)]


def join_shards(
    shards: Sequence[tuple[int, ...]], marks: Sequence[npt.NDArray[np.uint64]]
) -> list[list[int]]:
    """Groups of shards that must be one because they share a problem; those that share none stay alone.

    >>> join_shards([(0,), (1,), (2,)], [np.array([1, 2]), np.array([3]), np.array([2])])
    [[0, 2], [1]]
    """
    parent = list(range(len(shards)))

    def find_root(shard: int) -> int:
        while parent[shard] != shard:
            parent[shard] = parent[parent[shard]]  # halves the path, else it would grow with every pair
            shard = parent[shard]
        return shard

    all_marks = np.concatenate([*marks, np.zeros(0, dtype=np.uint64)])
    owner = np.repeat(np.arange(len(marks)), [len(numbers) for numbers in marks])
    order = np.argsort(all_marks, kind="stable")
    same = np.flatnonzero(np.diff(all_marks[order]) == 0)
    for first, second in zip(owner[order][same].tolist(), owner[order][same + 1].tolist(), strict=True):
        low, high = sorted((find_root(first), find_root(second)))
        parent[high] = low
    groups: dict[int, list[int]] = {}
    for shard in range(len(shards)):
        groups.setdefault(find_root(shard), []).append(shard)
    return list(groups.values())


Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProblemIndex:
    """What the driver knows of every problem, in the order of the pool, all (problems,)."""

    ids: tuple[str, ...]
    drawn: Ints  # samples
    known: Bools  # whether every sample's grade is known
    answered: Bools  # whether any sample has an answer
    right: Bools  # whether any sample was graded above 0
    mute: Bools  # whether any sample without an answer was graded above 0
    tokens: Bools  # whether every sample's tokens are known
    shard: Ints
    row: Ints  # in its shard

    def __len__(self) -> int:
        return len(self.ids)

    def votable(self, rows: Ints | None = None) -> Bools:
        """As `score.grades.votable`, of these problems or of some of them."""
        rows = np.arange(len(self)) if rows is None else rows
        return self.answered[rows] if self.mute[rows].any() else np.ones(len(rows), dtype=bool)

    @property
    def scorable_problems(self) -> ProblemFacts:
        """What decides which problems can be scored."""
        return ProblemFacts(ids=self.ids, drawn=self.drawn, known=self.known, votes=self.votable())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShardPart:
    """Which of a shard's problems are meant, and their ranks among all that are."""

    rows: Ints  # (rows,) in the shard, ascending
    ranks: Ints  # (rows,) among all, ascending
    width: int  # samples of the problem that has most, among all of the folder


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShardedPool:
    """Ballots on Ray, and the index of their problems here."""

    path: Path
    ballots: ShardDataset
    index: ProblemIndex
    model: str | None
    parameters: Mapping[str, Any]

    @property
    def width(self) -> int:
        """Samples of the problem that has most."""
        return int(self.index.drawn.max(initial=0))

    def split_rows(self, rows: Ints) -> list[ShardPart]:
        """Each shard's part of these problems."""
        shard = self.index.shard[rows]
        return [
            ShardPart(rows=self.index.row[rows[ranks]], ranks=ranks, width=self.width)
            for ranks in (np.flatnonzero(shard == k) for k in range(len(self.ballots)))
        ]

    def ask_shards(
        self,
        work: "Callable[[Ballots, ShardPart, Any], ShardRecord]",
        rows: Ints,
        arguments: Sequence[Any] | None = None,
    ) -> list[ShardRecord]:
        """Asks every shard about its part of these problems, with one argument each."""
        shard_arguments = [None] * len(self.ballots) if arguments is None else arguments
        parts = self.split_rows(rows)
        return self.ballots.ask(
            _run_on_part,
            [(part, work, argument) for part, argument in zip(parts, shard_arguments, strict=True)],
        )

    def merge_reports(self, reports: Sequence[ShardRecord], name: str, rows: Ints) -> npt.NDArray[Any]:
        """One array of what shards reported of their parts of these problems, in the order of these."""
        values = np.concatenate([report[name] for report in reports])
        ranks = np.concatenate([part.ranks for part in self.split_rows(rows)])
        merged = np.empty_like(values)
        merged[ranks] = values
        return merged

    def gather_ballots(self, rows: Ints | None = None) -> Ballots:
        """The ballots of these problems, or of all, brought here as the pool gives them."""
        rows = np.arange(len(self.index)) if rows is None else rows
        reports = self.ask_shards(_pack_all, rows)
        pieces = [unpack_ballots(report) for report in reports]
        place = np.argsort(np.concatenate([part.ranks for part in self.split_rows(rows)]), kind="stable")
        texts = ("ids", "prompts", "subjects", "levels")
        merged: dict[str, Any] = {}
        for name in texts:
            every = [value for piece in pieces for value in getattr(piece, name)]
            merged[name] = tuple(every[i] for i in place.tolist())
        for name in ("gold_known", "classes", "correct", "tokens", "logprob", "entropy"):
            merged[name] = np.concatenate([getattr(piece, name) for piece in pieces])[place]
            merged[name].setflags(write=False)
        merged["signals"] = _merge_signals(pieces, place)
        charge = PromptCharge.merge([(piece.charge, len(piece)) for piece in pieces])
        return Ballots(**merged, model=self.model, parameters=self.parameters, charge=charge)


def _merge_signals(pieces: Sequence[Ballots], place: Ints) -> npt.NDArray[np.float64] | None:
    """The signals of all pieces, NaN for those without any; None where none has some."""
    if all(piece.signals is None for piece in pieces):
        return None
    unknown = [np.full((*piece.classes.shape, len(SIGNAL_NAMES)), np.nan) for piece in pieces]
    parts = [
        nothing if piece.signals is None else piece.signals
        for piece, nothing in zip(pieces, unknown, strict=True)
    ]
    merged = np.concatenate(parts)[place]
    merged.setflags(write=False)
    return merged


def select_part(ballots: Ballots, part: ShardPart) -> Ballots:
    """The problems of a part, as wide as the folder's widest."""
    selected = ballots if len(part.rows) == len(ballots) else ballots.only(part.rows)
    wide: dict[str, Any] = {
        name: pad_columns(getattr(selected, name), part.width, classes=name == "classes")
        for name in selected.sample_arrays
    }
    return replace(selected, **wide)


def _run_on_part(record: ShardRecord, argument: Any) -> tuple[None, ShardRecord]:  # noqa: ANN401 - whatever the work takes
    part, work, extra = argument
    return None, work(select_part(unpack_ballots(record), part), part, extra)


def _pack_all(ballots: Ballots, _: ShardPart, __: None) -> ShardRecord:
    return pack_ballots(ballots)


@contextmanager
def open_sharded_pool(
    folder: Path,
    *,
    task: Task | None = None,
    model: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    workers: int | None = None,
) -> Iterator[ShardedPool]:
    """A folder of Parquet shards on Ray, for as long as the block lasts.

    `model` and `parameters` name the source where there are several, as in a pool. All workers must see the
    folder under the same path. Errors are those of `open_pool(folder)` and of its ballots.
    """
    names = shard_files(folder)
    request = ReadRequest(
        folder=str(folder.absolute()),
        shown=str(folder),
        names=names,
        task=(task or Task()).to_dict(),
        model=model,
        parameters=None if parameters is None else dict(parameters),
    )
    shards = group_files([(folder / name).stat().st_size for name in names])
    with cluster(workers) as task_count:
        dataset = start_pass(read_shard, [(request, files) for files in shards], workers=task_count)
        marks = [
            np.zeros(0, dtype=np.uint64) if isinstance(report, TaskFailure) else report["marks"]
            for report in dataset.reports
        ]
        groups = join_shards(shards, marks)
        if len(groups) < len(shards):  # some problems are in several files, which are read as one shard
            raise_failures(dataset.reports)
            shards = [tuple(sorted(file for k in group for file in shards[k])) for group in groups]
            dataset = start_pass(read_shard, [(request, files) for files in shards], workers=task_count)
        yield _build_sharded_pool(folder, dataset, request)


def _build_sharded_pool(folder: Path, dataset: ShardDataset, request: ReadRequest) -> ShardedPool:
    reports = raise_failures(dataset.reports)
    if not any(report["lines"] for report in reports):
        raise RecordInvalid(f"{folder}: holds no problem; give at least one row")
    sources: list[tuple[str | None, dict[str, Any]]] = []
    for report in reports:
        sources += [known for name, values in report["sources"] if (known := (name, values)) not in sources]
    key = pick_source(
        dict(enumerate(sources)), str(folder), model=request.model, parameters=request.parameters
    )
    model, parameters = (None, {}) if key is None else sources[key]
    index = _build_index(reports)
    if not len(index):
        raise TooFewSamples(f"{folder}: no problem has a sample; collect or import some first")
    return ShardedPool(path=folder, ballots=dataset, index=index, model=model, parameters=parameters)


def _build_index(reports: Sequence[ShardRecord]) -> ProblemIndex:
    """Problems in the order of their places, which is that of the pool."""
    order = np.argsort(np.concatenate([report["places"] for report in reports]), kind="stable")
    counts = [len(report["places"]) for report in reports]
    names = [name for report in reports for name in report["ids"]]
    arrays = {
        name: np.concatenate([report[name] for report in reports])[order]
        for name in ("drawn", "known", "answered", "right", "mute", "tokens")
    }
    return ProblemIndex(
        ids=tuple(names[i] for i in order.tolist()),
        shard=np.repeat(np.arange(len(reports)), counts)[order],
        row=np.concatenate([np.arange(count) for count in counts])[order],
        **arrays,
    )
