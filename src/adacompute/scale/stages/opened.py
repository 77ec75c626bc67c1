"""A folder of shards, opened on Ray: ballots lie there, and what is known of each problem is here.

Knows nothing of scores or policies. What is here of a problem is its id, its place and a few numbers; what
was drawn stays in Ray's object store, shard by shard.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.answers import Task
from adacompute.errors import RecordInvalid, TooFewSamples
from adacompute.pool import Ballots
from adacompute.pool.read import pick_source
from adacompute.scale.cluster import cluster
from adacompute.scale.stages.packing import Record, packed_ballots, padded, unpacked_ballots
from adacompute.scale.stages.passes import Failed, Shared, failures, spread
from adacompute.scale.stages.reading import Ask, read_shard
from adacompute.scale.stages.shards import cut, joined, shard_files
from adacompute.score.score import Told

__all__ = ["Heads", "Opened", "Part", "opened", "part_of"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Heads:
    """What is known here of every problem, in the order of the pool, all (problems,)."""

    ids: tuple[str, ...]
    drawn: Ints  # samples
    known: Bools  # whether every sample's grade is
    answered: Bools  # whether any sample has an answer
    right: Bools  # whether any sample was graded above 0
    mute: Bools  # whether a sample without an answer was
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
    def told(self) -> Told:
        """What says which problems can be scored."""
        return Told(ids=self.ids, drawn=self.drawn, known=self.known, votes=self.votable())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """Which of a shard's problems are meant, and where they stand among all that are."""

    rows: Ints  # (some,) in the shard, ascending
    ranks: Ints  # (some,) among all, ascending
    width: int  # samples of the problem that has most, among all of the folder


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Opened:
    """Ballots on Ray, and the heads of their problems here."""

    path: Path
    ballots: Shared
    heads: Heads
    model: str | None
    parameters: Mapping[str, Any]

    @property
    def width(self) -> int:
        """Samples of the problem that has most."""
        return int(self.heads.drawn.max(initial=0))

    def parts(self, rows: Ints) -> list[Part]:
        """Each shard's part of these problems."""
        shard = self.heads.shard[rows]
        return [
            Part(rows=self.heads.row[rows[ranks]], ranks=ranks, width=self.width)
            for ranks in (np.flatnonzero(shard == k) for k in range(len(self.ballots)))
        ]

    def ask(
        self, work: "Callable[[Ballots, Part, Any], Record]", rows: Ints, given: Sequence[Any] | None = None
    ) -> list[Record]:
        """Asks every shard about its part of these problems; what is given for it goes along."""
        more = [None] * len(self.ballots) if given is None else given
        parts = self.parts(rows)
        return self.ballots.ask(_asked, [(part, work, one) for part, one in zip(parts, more, strict=True)])

    def merged(self, told: Sequence[Record], name: str, rows: Ints) -> npt.NDArray[Any]:
        """One array of what shards told of their parts of these problems, in the order of these."""
        found = np.concatenate([each[name] for each in told])
        ranks = np.concatenate([part.ranks for part in self.parts(rows)])
        merged = np.empty_like(found)
        merged[ranks] = found
        return merged

    def gathered(self, rows: Ints | None = None) -> Ballots:
        """The ballots of these problems, or of all, here: as the pool gives them."""
        rows = np.arange(len(self.heads)) if rows is None else rows
        told = self.ask(_whole, rows)
        pieces = [unpacked_ballots(each) for each in told]
        place = np.argsort(np.concatenate([part.ranks for part in self.parts(rows)]), kind="stable")
        texts = ("ids", "prompts", "subjects", "levels")
        merged: dict[str, Any] = {}
        for name in texts:
            every = [value for piece in pieces for value in getattr(piece, name)]
            merged[name] = tuple(every[i] for i in place.tolist())
        for name in ("gold_known", "classes", "correct", "tokens", "logprob", "entropy"):
            merged[name] = np.concatenate([getattr(piece, name) for piece in pieces])[place]
            merged[name].setflags(write=False)
        return Ballots(**merged, model=self.model, parameters=self.parameters)


def part_of(ballots: Ballots, part: Part) -> Ballots:
    """The problems of a part, as wide as the folder's widest."""
    some = ballots if len(part.rows) == len(ballots) else ballots.only(part.rows)
    names = ("classes", "correct", "tokens", "logprob", "entropy")
    wide: dict[str, Any] = {
        name: padded(getattr(some, name), part.width, classes=name == "classes") for name in names
    }
    return replace(some, **wide)


def _asked(record: Record, given: Any) -> tuple[None, Record]:  # noqa: ANN401 - whatever the work takes
    part, work, more = given
    return None, work(part_of(unpacked_ballots(record), part), part, more)


def _whole(ballots: Ballots, _: Part, __: None) -> Record:
    return packed_ballots(ballots)


@contextmanager
def opened(
    folder: Path,
    *,
    task: Task | None = None,
    model: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    workers: int | None = None,
) -> Iterator[Opened]:
    """A folder of Parquet shards on Ray, for as long as the block lasts.

    `model` and `parameters` name the source where there are several, as in a pool. All workers must see the
    folder under the same path. Errors are those of `open_pool(folder)` and of its ballots.
    """
    names = shard_files(folder)
    ask = Ask(
        folder=str(folder.absolute()),
        shown=str(folder),
        names=names,
        task=(task or Task()).to_dict(),
        model=model,
        parameters=None if parameters is None else dict(parameters),
    )
    shards = cut([(folder / name).stat().st_size for name in names])
    with cluster(workers) as many:
        found = spread(read_shard, [(ask, files) for files in shards], workers=many)
        marks = [
            np.zeros(0, dtype=np.uint64) if isinstance(each, Failed) else each["marks"] for each in found.told
        ]
        groups = joined(shards, marks)
        if len(groups) < len(shards):  # some problems are in several files, so these are read as one
            failures(found.told)
            shards = [tuple(sorted(file for k in group for file in shards[k])) for group in groups]
            found = spread(read_shard, [(ask, files) for files in shards], workers=many)
        yield _opened(folder, found, ask)


def _opened(folder: Path, found: Shared, ask: Ask) -> Opened:
    told = failures(found.told)
    if not any(each["lines"] for each in told):
        raise RecordInvalid(f"{folder}: holds no problem; give at least one row")
    sources: list[tuple[str | None, dict[str, Any]]] = []
    for each in told:
        sources += [known for name, values in each["sources"] if (known := (name, values)) not in sources]
    key = pick_source(dict(enumerate(sources)), str(folder), model=ask.model, parameters=ask.parameters)
    model, parameters = (None, {}) if key is None else sources[key]
    heads = _heads(told)
    if not len(heads):
        raise TooFewSamples(f"{folder}: no problem has a sample; collect or import some first")
    return Opened(path=folder, ballots=found, heads=heads, model=model, parameters=parameters)


def _heads(told: Sequence[Record]) -> Heads:
    """Problems in the order of their places, which is that of the pool."""
    order = np.argsort(np.concatenate([each["places"] for each in told]), kind="stable")
    counts = [len(each["places"]) for each in told]
    names = [name for each in told for name in each["ids"]]
    arrays = {
        name: np.concatenate([each[name] for each in told])[order]
        for name in ("drawn", "known", "answered", "right", "mute", "tokens")
    }
    return Heads(
        ids=tuple(names[i] for i in order.tolist()),
        shard=np.repeat(np.arange(len(told)), counts)[order],
        row=np.concatenate([np.arange(count) for count in counts])[order],
        **arrays,
    )
