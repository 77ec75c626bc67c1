"""Allocating in this process, in bounded memory. Knows nothing of Ray.

What the policy predicts of each prompt is kept in a file beside the output, 8 bytes a budget: the price needs
it three times, and predicting it again would take as long as all the rest.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from adacompute.scale.allocate.prompts import Prompts, batches, texts
from adacompute.scale.allocate.record import Found, Progress
from adacompute.scale.allocate.rule import Rule
from adacompute.scale.allocate.written import write_file, writing
from adacompute.solve.shards import (
    WHOLE,
    Bracket,
    Edge,
    Search,
    Shard,
    Share,
    Summary,
    Total,
    merged,
    settled,
)

__all__ = ["bought_here", "given_here"]

Arrow: TypeAlias = Any  # pyarrow ships no types
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Told = Callable[[Progress], None]

_ROWS = 1 << 14  # of the kept curves, at a time


@dataclass(slots=True)
class _Counter:
    """Tells how far it is."""

    doing: str
    prompts: int
    tell: Told
    done: int = 0

    def __call__(self, rows: int) -> None:
        self.done += rows
        self.tell(Progress(doing=self.doing, done=self.done, prompts=self.prompts))


def given_here(prompts: Prompts, rule: Rule, place: Path, *, price: float | None, tell: Told) -> Found:
    """Budgets without a search: at a price, or by a policy that has none. One pass."""
    totals, counter = [], _Counter("writing", len(prompts), tell)
    for file in prompts.files:
        start = 0

        def budgets(batch: Arrow, path: str = file.path) -> Ints:
            nonlocal start
            found, total = rule.given(texts(batch, prompts.column, path=path, start=start), price)
            start += len(found)
            totals.append(total)
            return found

        write_file(file, place, budgets, told=counter)
    return Found(total=reduce(add, totals))


def bought_here(prompts: Prompts, rule: Rule, place: Path, *, budget: float, tell: Told) -> Found:
    """Budgets at the price of an average."""
    kept = place / "curves"
    search = Search(budget=budget)
    with writing(kept), kept.open("wb") as out:
        search.narrow([_read(prompts, rule, out, _Counter("reading", len(prompts), tell))])
    while (bracket := search.bracket) is not None:
        search.narrow([_summary(kept, rule, bracket)])
    with kept.open("rb") as curves:
        taker = _Taker(rule=rule, curves=curves, share=search.whole_share)
        counter = _Counter("writing", len(prompts), tell)
        for file in prompts.files:
            write_file(file, place, taker, told=counter)
    assert taker.total is not None  # there is a prompt
    plan = settled(taker.total, taker.edge, budget=budget, price=search.price, start=taker.start)
    return Found(total=taker.total, plan=plan, search=search)


def _read(prompts: Prompts, rule: Rule, out: BinaryIO, counter: _Counter) -> Summary:
    """Keeps what is predicted of all prompts, and sums it up."""

    def summaries() -> Iterator[Summary]:
        for file in prompts.files:
            start = 0
            for batch in batches(file, columns=[prompts.column]):
                found = rule.curves(texts(batch, prompts.column, path=file.path, start=start))
                out.write(found.tobytes())
                start += len(found)
                counter(len(found))
                yield rule.shard(found).summary()

    return merged(summaries(), bracket=WHOLE)


def _summary(kept: Path, rule: Rule, bracket: Bracket) -> Summary:
    with kept.open("rb") as curves:
        return merged((shard.summary(bracket) for shard in _shards(curves, rule)), bracket=bracket)


def _shards(curves: BinaryIO, rule: Rule) -> Iterator[Shard]:
    while len(found := _next(curves, rule, _ROWS)):
        yield rule.shard(found)


def _next(curves: BinaryIO, rule: Rule, rows: int) -> Floats:
    modes = len(rule.modes)
    return np.frombuffer(curves.read(8 * rows * modes)).reshape(-1, modes)


@dataclass(slots=True, kw_only=True)
class _Taker:
    """Budgets of rows in order, with the room for ties handed on from batch to batch."""

    rule: Rule
    curves: BinaryIO
    share: Share
    total: Total | None = None
    edge: Edge | None = None
    start: int = 0  # of the batch that has the edge
    _done: int = 0

    def __call__(self, batch: Arrow) -> Ints:
        taken = self.rule.shard(_next(self.curves, self.rule, len(batch))).take(self.share)
        self.share = self.share.after(taken)
        self.total = taken.total if self.total is None else self.total + taken.total
        if taken.edge is not None:
            self.edge, self.start = taken.edge, self._done
        self._done += len(batch)
        return np.array(self.rule.modes, dtype=np.int64)[taken.choice]
