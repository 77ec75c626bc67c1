"""One shard, read in a worker: its ballots, and what the driver has to know of it. Knows no other shard."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from adacompute.answers import Task
from adacompute.errors import AdacomputeError
from adacompute.pool import Ballots, Pool, fingerprint
from adacompute.pool.ballots import ABSENT, ABSTAINS
from adacompute.pool.files import folder_reading
from adacompute.pool.opening import open_reading
from adacompute.pool.reading import Entry
from adacompute.scale.stages.packing import Record, packed_ballots
from adacompute.score.grades import graded, grades

__all__ = ["Ask", "read_shard"]

_FLAT = np.zeros((0, 0))
_NONE = Ballots(
    ids=(),
    prompts=(),
    subjects=(),
    levels=(),
    gold_known=np.zeros(0, dtype=bool),
    classes=_FLAT.astype(np.int32),
    correct=_FLAT.astype(np.float32),
    tokens=_FLAT,
    logprob=_FLAT,
    entropy=_FLAT,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What all shards are read by."""

    folder: str  # as workers find it
    shown: str  # as it was given, for messages
    names: tuple[str, ...]  # of all files
    task: dict[str, str]
    model: str | None
    parameters: dict[str, Any] | None


def read_shard(_: Record, given: tuple[Ask, tuple[int, ...]]) -> tuple[Record | None, Record]:
    """The files of one shard as ballots, which are kept, and what is told of them."""
    ask, files = given
    try:
        return _read(ask, files)
    except AdacomputeError as exc:  # said of the folder as it was given
        raise type(exc)(str(exc).replace(ask.folder, ask.shown)) from exc


def _read(ask: Ask, files: tuple[int, ...]) -> tuple[Record, Record]:
    reading = folder_reading(Path(ask.folder), ask.names, files)
    first = next(reading.entries, None)
    if first is None:  # an empty file: a pool of none is an error only where all are
        return packed_ballots(_NONE), {"lines": 0, "marks": _marks({}), "sources": [], **_heads(_NONE, {})}
    places: dict[str, int] = {}
    entries = _noted(chain([first], reading.entries), places)
    with open_reading(replace(reading, entries=entries), Task.from_dict(ask.task)) as pool:
        sources = pool.models
        ballots = _ballots(pool, ask)
    told = {
        "lines": len(places),
        "marks": _marks(places),
        "sources": [list(source) for source in sources],
        **_heads(ballots, places),
    }
    return packed_ballots(ballots), told


def _noted(entries: Iterator[Entry], places: dict[str, int]) -> Iterator[Entry]:
    """The entries, each problem's first place noted on the way."""
    for entry in entries:
        name = entry.value.get("id") if isinstance(entry.value, dict) else None
        if isinstance(name, str):
            places.setdefault(name, entry.place)
        yield entry


def _ballots(pool: Pool, ask: Ask) -> Ballots:
    """Those of the one source here that fits; none where none does, or several: the driver says so."""
    mark = None if ask.parameters is None else fingerprint(ask.parameters)
    fitting = [
        pool.source_key(name, values)
        for name, values in pool.models
        if (ask.model is None or name == ask.model) and (mark is None or fingerprint(values) == mark)
    ]
    return pool.ballots_of(fitting[0] if len(fitting) == 1 else None)


def _heads(ballots: Ballots, places: dict[str, int]) -> dict[str, Any]:
    there, mute = ballots.classes != ABSENT, ballots.classes == ABSTAINS
    return {
        "ids": list(ballots.ids),
        "places": np.array([places[name] for name in ballots.ids], dtype=np.int64),
        "drawn": ballots.drawn,
        "known": graded(ballots, grades(ballots)),
        "answered": (ballots.classes >= 0).any(axis=1),
        "right": (ballots.correct > 0).any(axis=1),
        "mute": (mute & (ballots.correct > 0)).any(axis=1),
        "tokens": ~(np.isnan(ballots.tokens) & there).any(axis=1),
    }


def _marks(places: dict[str, int]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """A number for each problem's id, by which shards that share one are found."""
    digests = [hashlib.blake2b(name.encode(errors="replace"), digest_size=8).digest() for name in places]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)
