"""Runs `score`, `solve` and `replay` over a folder of Parquet shards with Ray Data.

Ray tasks read the shards, and this process merges their votes, without texts. Then the stages run in this
process, but compute blocks of problems in Ray tasks. So the results are the same as on one machine.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.answers import Task
from adacompute.errors import AdacomputeError, PoolNotFound, RecordInvalid, ScaleError, TooFewSamples
from adacompute.pool import Ballots, Pool, fingerprint
from adacompute.pool.ballots import ABSENT, Mode, PromptCharge
from adacompute.pool.formats import Entry
from adacompute.pool.pool_files import list_parquet_files, open_entries, read_parquet_folder
from adacompute.pool.tables import pick_source
from adacompute.records import SIGNAL_NAMES
from adacompute.scale.cluster import cluster, map_blocks
from adacompute.score.grades import BlockMap

MAX_SHARDS = 1024  # maximum number of shards: more would take longer to distribute than they save


@contextmanager
def open_shards(
    folder: Path,
    *,
    task: Task | None = None,
    model: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    workers: int | None = None,
) -> Iterator[tuple[Ballots, BlockMap]]:
    """Reads the votes in a folder of Parquet shards on Ray; yields them, and a `map` that runs work on Ray.

    With these two as `ballots` and `run`, `score(ballots, map_blocks=run)` and
    `replay(policy, ballots, map_blocks=run)` give the same results as with the folder opened as a pool.
    `model` and `parameters` select a source if there are several. All workers need the folder under the same
    path. Raises the same errors as `open_pool(folder)` and reading its votes.
    """
    names = _list_files(folder)
    reader = _ShardReader(
        folder=str(folder.absolute()),
        shown=str(folder),
        names=names,
        task=task or Task(),
        model=model,
        parameters=parameters,
    )
    files = group_files([(folder / name).stat().st_size for name in names])
    with cluster(workers) as task_count:
        run = partial(map_blocks, workers=task_count)
        shards = run(reader.read, files)
        groups = join_shards([shard.ids for shard in shards])
        if len(groups) < len(files):  # if a problem is in several files, read these files as one shard
            files = [tuple(sorted(file for k in group for file in files[k])) for group in groups]
            shards = run(reader.read, files)
        yield _merge_shards(shards, reader), run


def _list_files(folder: Path) -> tuple[str, ...]:
    """Lists the Parquet files in a folder, in order of name. Raises ScaleError if it isn't a folder."""
    if folder.is_dir():
        return list_parquet_files(folder)
    if not folder.exists():
        raise PoolNotFound(f"{folder}: there is no such folder; check the path")
    raise ScaleError(
        f"{folder}: is one file, and engine ray works on a folder of Parquet; write one with "
        f"adacompute export {folder} FOLDER --shards 8, or use --engine local"
    )


def group_files(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Groups files, given their sizes, into at most 1024 shards of similar size; returns indexes of files.

    >>> group_files([5, 5, 5])
    [(0,), (1,), (2,)]
    """
    if len(sizes) <= MAX_SHARDS:
        return [(file,) for file in range(len(sizes))]
    reach = np.cumsum(np.asarray(sizes) + 1)
    # index of the shard that each file belongs to
    shard = np.minimum((reach - 1) * MAX_SHARDS // reach[-1], MAX_SHARDS - 1)
    return [tuple(np.flatnonzero(shard == k).tolist()) for k in np.unique(shard)]


def join_shards(ids: Sequence[Sequence[str]]) -> list[list[int]]:
    """Groups shards that share a problem and so must be merged; other shards stay alone.

    >>> join_shards([["a", "b"], ["c"], ["b"]])
    [[0, 2], [1]]
    """
    parent = list(range(len(ids)))

    def find_root(shard: int) -> int:
        while parent[shard] != shard:
            parent[shard] = parent[parent[shard]]  # shortens the path to the root for later searches
            shard = parent[shard]
        return shard

    owners: dict[str, int] = {}
    for shard, name in ((shard, name) for shard, names in enumerate(ids) for name in names):
        low, high = sorted((find_root(owners.setdefault(name, shard)), find_root(shard)))
        parent[high] = low
    groups: dict[int, list[int]] = {}
    for shard in range(len(ids)):
        groups.setdefault(find_root(shard), []).append(shard)
    return list(groups.values())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Shard:
    """The votes that one task has read from its files."""

    ids: tuple[str, ...]  # ids of all problems in the files, including problems without votes
    places: npt.NDArray[np.int64]  # for each problem with votes: its position among the problems of all files
    sources: tuple[tuple[str | None, dict[str, Any]], ...]
    ballots: Ballots | None  # votes of the source that was asked for; None if the files are empty


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShardReader:
    """Reads shards of votes, usually in Ray tasks."""

    folder: str  # absolute path of the folder, under which workers read it
    shown: str  # path of the folder as the user gave it, for error messages
    names: tuple[str, ...]  # names of all files
    task: Task
    model: str | None
    parameters: Mapping[str, Any] | None

    def read(self, files: tuple[int, ...]) -> _Shard:
        """Reads the votes in some files, given by index."""
        try:
            return self._read(files)
        except AdacomputeError as exc:  # the message shows the folder's path as the user gave it
            raise type(exc)(str(exc).replace(self.folder, self.shown)) from exc

    def _read(self, files: tuple[int, ...]) -> _Shard:
        reading = read_parquet_folder(Path(self.folder), self.names, files)
        first = next(reading.entries, None)
        if first is None:  # an empty file is no error unless all files are empty
            return _Shard(ids=(), places=np.zeros(0, dtype=np.int64), sources=(), ballots=None)
        places: dict[str, int] = {}
        entries = _note_places(chain([first], reading.entries), places)
        with open_entries(replace(reading, entries=entries), self.task) as pool:
            ballots = self._select_ballots(pool)
            return _Shard(
                ids=tuple(places),
                places=np.array([places[name] for name in ballots.ids], dtype=np.int64),
                sources=tuple(pool.models),
                ballots=ballots,
            )

    def _select_ballots(self, pool: Pool) -> Ballots:
        """Returns the votes of the source that matches `model` and `parameters`.

        Returns no votes if not exactly one source matches. If that is an error, `_merge_shards` raises it.
        """
        mark = None if self.parameters is None else fingerprint(self.parameters)
        fitting = [
            pool.source_key(name, values)
            for name, values in pool.models
            if (self.model is None or name == self.model) and (mark is None or fingerprint(values) == mark)
        ]
        return pool.ballots_of(fitting[0] if len(fitting) == 1 else None)


def _note_places(entries: Iterable[Entry], places: dict[str, int]) -> Generator[Entry, None, None]:
    """Yields the entries; stores in `places` the position at which each problem first occurs."""
    for entry in entries:
        name = entry.value.get("id") if isinstance(entry.value, dict) else None
        if isinstance(name, str):
            places.setdefault(name, entry.place)
        yield entry


def _merge_shards(shards: Sequence[_Shard], reader: _ShardReader) -> Ballots:
    """Merges the votes of all shards, in the order that they would have in a pool with all files."""
    pieces = [shard.ballots for shard in shards if shard.ballots is not None]
    if not pieces:
        raise RecordInvalid(f"{reader.shown}: holds no problem; give at least one row")
    sources: list[tuple[str | None, dict[str, Any]]] = []
    for source in (source for shard in shards for source in shard.sources):
        if source not in sources:
            sources.append(source)
    key = pick_source(
        dict(enumerate(sources)), reader.shown, model=reader.model, parameters=reader.parameters
    )
    model, parameters = (None, {}) if key is None else sources[key]
    order = np.argsort(np.concatenate([shard.places for shard in shards]), kind="stable")
    if not len(order):
        raise TooFewSamples(f"{reader.shown}: no problem has a sample; collect or import some first")
    merged: dict[str, Any] = {}
    for name in ("ids", "prompts", "subjects", "levels", "extras"):
        values = [value for piece in pieces for value in getattr(piece, name) or [None] * len(piece)]
        merged[name] = tuple(values[row] for row in order.tolist())
    width = max(piece.classes.shape[1] for piece in pieces)
    has_signals = any(piece.signals is not None for piece in pieces)
    arrays = ("gold_known", "classes", "correct", "tokens", "logprob", "entropy")
    for name in (*arrays, *(["signals"] if has_signals else [])):
        merged[name] = np.concatenate([_widen(piece, name, width) for piece in pieces])[order]
        merged[name].setflags(write=False)
    charge = PromptCharge.merge([(piece.charge, len(piece)) for piece in pieces])
    return Ballots(**merged, modes=(Mode.of_source(model, parameters, charge),))


def _widen(ballots: Ballots, name: str, width: int) -> npt.NDArray[Any]:
    """Returns the array `name` of these votes, padded to `width` samples per problem."""
    array = getattr(ballots, name)
    if array is None:  # this shard has no confidence signals, but others do
        array = np.full((*ballots.classes.shape, len(SIGNAL_NAMES)), np.nan)
    if array.ndim == 1:
        return np.asarray(array)
    widths = ((0, 0), (0, width - array.shape[1]), *((0, 0),) * (array.ndim - 2))
    return np.pad(array, widths, constant_values=ABSENT if name == "classes" else np.nan)
