"""Which files of a folder are worked on together. Knows nothing of what is in them, but for problems' marks.

A shard is a file, or several small ones where there are very many. Files that hold the same problem (of two
models, say) make one shard, for a problem is told of as a whole.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from adacompute.errors import PoolNotFound, ScaleError
from adacompute.pool.files import folder_files

__all__ = ["MOST", "cut", "joined", "shard_files"]

MOST = 1024  # shards: more of them cost more time to hand out than they save


def shard_files(folder: Path) -> tuple[str, ...]:
    """The Parquet files of a folder, by name; ScaleError where this is no folder."""
    if folder.is_dir():
        return folder_files(folder)
    if not folder.exists():
        raise PoolNotFound(f"{folder}: there is no such folder; check the path")
    raise ScaleError(
        f"{folder}: is one file, and engine ray works on a folder of Parquet; write one with "
        f"adacompute export {folder} FOLDER --shards 8, or use --engine local"
    )


def cut(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Files by number, those of one shard together, from the size of each.

    >>> cut([5, 5, 5])
    [(0,), (1,), (2,)]
    """
    if len(sizes) <= MOST:
        return [(file,) for file in range(len(sizes))]
    reach = np.cumsum(np.asarray(sizes) + 1)
    shard = np.minimum((reach - 1) * MOST // reach[-1], MOST - 1)  # (files,)
    return [tuple(np.flatnonzero(shard == k).tolist()) for k in np.unique(shard)]


def joined(shards: Sequence[tuple[int, ...]], marks: Sequence[npt.NDArray[np.uint64]]) -> list[list[int]]:
    """Shards, by number, that have to be one because they share a problem; those that share none alone.

    >>> joined([(0,), (1,), (2,)], [np.array([1, 2]), np.array([3]), np.array([2])])
    [[0, 2], [1]]
    """
    above = list(range(len(shards)))

    def top(shard: int) -> int:
        while above[shard] != shard:
            above[shard] = above[above[shard]]  # else the way up grows with every pair
            shard = above[shard]
        return shard

    every = np.concatenate([*marks, np.zeros(0, dtype=np.uint64)])
    owner = np.repeat(np.arange(len(marks)), [len(each) for each in marks])
    order = np.argsort(every, kind="stable")
    same = np.flatnonzero(np.diff(every[order]) == 0)
    for one, other in zip(owner[order][same].tolist(), owner[order][same + 1].tolist(), strict=True):
        low, high = sorted((top(one), top(other)))
        above[high] = low
    groups: dict[int, list[int]] = {}
    for shard in range(len(shards)):
        groups.setdefault(top(shard), []).append(shard)
    return list(groups.values())
