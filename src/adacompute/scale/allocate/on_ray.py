"""Allocating on Ray: shards read by tasks of Ray Data, one price, files written by tasks.

Knows nothing of policies but what a rule says. All tasks see the files under the same paths. A task that is
lost is run again and writes the same: names and bytes depend on nothing but the input.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from adacompute.errors import ScaleError
from adacompute.scale.allocate.prompts import File, Prompts, batches, texts
from adacompute.scale.allocate.record import Found, Progress
from adacompute.scale.allocate.rule import Packed, Rule
from adacompute.scale.allocate.written import write_file, writing
from adacompute.scale.cluster import cluster
from adacompute.scale.stages.packing import Record
from adacompute.scale.stages.passes import Shared, failures, spread
from adacompute.solve.shards import Bracket, Edge, Search, Shard, Share, Summary, Total

__all__ = ["on_ray"]

Arrow: TypeAlias = Any  # pyarrow ships no types
Ints = npt.NDArray[np.int64]

_ROWS = 100_000  # of a shard, about, at the most: 4 MB of curves
_EACH = 4  # shards a worker, at the least where there are row groups enough, so that all end together
_TOLD = ("problems", "cheapest", "dearest", "keys", "cost")  # of a summary


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A shard: a run of row groups of one file."""

    file: int
    groups: tuple[int, ...]
    start: int  # its first row in the file


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Work:
    """What every task has to know."""

    files: tuple[File, ...]
    column: str
    parts: tuple[_Part, ...]
    packed: Packed
    place: str

    def budgets_of(self, shard: int) -> Path:
        """Where the budgets of a shard are kept until its file is written."""
        return Path(self.place, f"budgets-{shard}")


def on_ray(
    prompts: Prompts,
    rule: Rule,
    place: Path,
    *,
    budget: float | None,
    price: float | None,
    workers: int | None,
    tell: Callable[[Progress], None],
) -> Found:
    """Budgets at the price of an average, at a given price, or without one, written to the workplace."""
    search = None
    with cluster(workers) as several:
        parts = _parts(prompts.files, several)
        work = _Work(
            files=tuple(replace(file, path=str(Path(file.path).absolute())) for file in prompts.files),
            column=prompts.column,
            parts=parts,
            packed=rule.packed,
            place=str(place),
        )
        numbers = list(range(len(parts)))
        if rule.priced and budget is not None:
            curves = spread(partial(_curves, work), numbers, workers=several)
            failures(curves.told)
            tell(Progress(doing="reading", done=len(prompts), prompts=len(prompts)))
            search = _searched(curves, rule, budget)
            shares = [(number, search.share(number)) for number in numbers]
            told = curves.ask(partial(_taken, work), shares)
        else:
            told = failures(spread(partial(_given, work, price), numbers, workers=several).told)
        failures(spread(partial(_written, work), list(range(len(prompts.files))), workers=several).told)
        tell(Progress(doing="writing", done=len(prompts), prompts=len(prompts)))
    totals = [_total(each) for each in told]
    plan = None if search is None else search.settled(totals)
    return Found(
        total=reduce(add, (total for total, _ in totals)), plan=plan, search=search, shards=len(parts)
    )


def _parts(files: Sequence[File], workers: int) -> tuple[_Part, ...]:
    """Runs of row groups, none of two files."""
    most = min(_ROWS, sum(file.rows for file in files) // (_EACH * workers) + 1)
    parts = []
    for number, file in enumerate(files):
        groups: list[int] = []
        start = row = 0
        for group, rows in enumerate(file.groups):
            if groups and row + rows - start > most:
                parts.append(_Part(file=number, groups=tuple(groups), start=start))
                groups, start = [], row
            groups.append(group)
            row += rows
        parts.append(_Part(file=number, groups=tuple(groups), start=start))
    return tuple(parts)


def _searched(curves: Shared, rule: Rule, budget: float) -> Search:
    search = Search(budget=budget)
    while (bracket := search.bracket) is not None:
        told = curves.ask(partial(_summary, rule.modes), [bracket] * len(curves))
        search.narrow(_summary_of(each, bracket) for each in told)
    return search


def _prompts(work: _Work, shard: int) -> Iterator[list[str]]:
    part = work.parts[shard]
    file, start = work.files[part.file], part.start
    if not Path(file.path).exists():
        raise ScaleError(f"{file.path}: a worker doesn't see it; put it where all see it under this path")
    if not part.groups:
        return
    for batch in batches(file, columns=[work.column], groups=part.groups):
        yield texts(batch, work.column, path=file.path, start=start)
        start += len(batch)


def _curves(work: _Work, _: Record, shard: int) -> tuple[Record, Record]:
    """Keeps what the policy predicts of a shard's prompts."""
    rule = Rule.restored(work.packed)
    found = [np.zeros((0, len(rule.modes))), *(rule.curves(some) for some in _prompts(work, shard))]
    return {"curves": np.concatenate(found)}, {}


def _shard(kept: Record, modes: Sequence[int]) -> Shard:
    return Shard.of(kept["curves"], costs=np.array(modes, dtype=np.float64))


def _summary(modes: Sequence[int], kept: Record, bracket: Bracket) -> tuple[None, Record]:
    found = _shard(kept, modes).summary(bracket)
    return None, {name: getattr(found, name) for name in _TOLD}


def _summary_of(told: Record, bracket: Bracket) -> Summary:
    return Summary(bracket=bracket, **{name: told[name] for name in _TOLD})


def _taken(work: _Work, kept: Record, given: tuple[int, Share]) -> tuple[None, Record]:
    """A shard's budgets at the price; they are kept in a file."""
    shard, share = given
    modes = Rule.restored(work.packed).modes
    taken = _shard(kept, modes).take(share)
    _keep(work, shard, np.array(modes, dtype=np.int64)[taken.choice])
    return None, {"total": asdict(taken.total), "edge": taken.edge and asdict(taken.edge)}


def _given(work: _Work, price: float | None, _: Record, shard: int) -> tuple[None, Record]:
    """A shard's budgets without a search."""
    rule = Rule.restored(work.packed)
    none = Total(problems=0, counts=(0,) * len(rule.modes), cost=0.0, accuracy=0.0)
    found = [
        (np.zeros(0, dtype=np.int64), none),
        *(rule.given(some, price) for some in _prompts(work, shard)),
    ]
    _keep(work, shard, np.concatenate([budgets for budgets, _ in found]))
    return None, {"total": asdict(reduce(add, (total for _, total in found))), "edge": None}


def _total(told: Record) -> tuple[Total, Edge | None]:
    total, edge = told["total"], told["edge"]
    return Total(**{**total, "counts": tuple(total["counts"])}), None if edge is None else Edge(**edge)


def _keep(work: _Work, shard: int, budgets: Ints) -> None:
    path = work.budgets_of(shard)
    if not path.parent.exists():
        raise ScaleError(f"{path.parent}: a worker doesn't see it; write to a folder that all workers share")
    with writing(path):
        beside = path.with_name(uuid4().hex)
        budgets.tofile(beside)
        beside.replace(path)


def _written(work: _Work, _: Record, number: int) -> tuple[None, Record]:
    """Writes one file, whose budgets are in its shards' files."""
    own = [shard for shard, part in enumerate(work.parts) if part.file == number]
    budgets = np.concatenate([np.fromfile(work.budgets_of(shard), dtype=np.int64) for shard in own])
    done = 0

    def following(batch: Arrow) -> Ints:
        nonlocal done
        done += len(batch)
        return budgets[done - len(batch) : done]

    write_file(work.files[number], Path(work.place), following)
    return None, {}
