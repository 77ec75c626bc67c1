"""The votes on every request of a batch, as the pool has them. Knows nothing of policies' decisions.

A tally is made anew from the pool whenever its request has new samples: what is kept is ten numbers a
request, however long the responses are, and a run that was killed begins with the same numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.answers import Tally, Weigh
from adacompute.paths import Standing
from adacompute.paths.standing import Ints
from adacompute.pool import Pool
from adacompute.records import Problem, Sample

__all__ = ["Votes"]

Rows = npt.NDArray[np.intp]


class Votes:
    """What each request stands at, by its place in the batch. Gold answers have no say in it."""

    def __init__(
        self, problems: Sequence[Problem], pool: Pool, *, model: str, parameters: Mapping[str, Any]
    ) -> None:
        self.weigh: Weigh | None = None  # how votes are weighed; set it before counting
        self._problems = problems
        self._pool = pool
        self._model = model
        self._parameters = parameters
        self._begun = False  # whether the pool has anything of this source
        empty = Standing.empty(len(problems))
        self._at = {field.name: getattr(empty, field.name).copy() for field in fields(empty)}
        self.following = np.zeros(len(problems), dtype=np.int64)  # the index of each request's next sample
        rows = {problem.id: row for row, problem in enumerate(problems)}
        for id_, indexes in pool.indexes(model, parameters):
            if (row := rows.get(id_)) is not None:
                self._at["drawn"][row] = len(indexes)
                self.following[row] = max(indexes) + 1  # a gap stays one: the votes' order is the indexes'

    def __len__(self) -> int:
        return len(self._problems)

    @property
    def drawn(self) -> Ints:
        """Samples of each request, (requests,)."""
        found: Ints = self._at["drawn"]
        return found

    @property
    def spent(self) -> int:
        """Samples of all requests."""
        return int(self.drawn.sum())

    def standing(self, rows: Rows) -> Standing:
        """Where some requests stand."""
        return Standing(**{name: values[rows] for name, values in self._at.items()})

    def count(self, rows: Rows) -> None:
        """Counts the votes on some requests anew: they have new samples."""
        found = Standing.of([self.tally(self.samples(row)) for row in rows.tolist()])
        for name, values in self._at.items():
            values[rows] = getattr(found, name)

    def samples(self, row: int) -> list[Sample]:
        """A request's samples in their order, without their grades: whoever votes doesn't know them."""
        self._begun = self._begun or self._pool.source_key(self._model, self._parameters) is not None
        if not self._begun:
            return []
        found = self._pool.recorded(self._problems[row].id, self._model, parameters=self._parameters)
        return [replace(sample, correct=None) for sample in found.samples]

    def tally(self, samples: Sequence[Sample]) -> Tally:
        """The vote of samples."""
        return Tally.of(samples, weigh=self.weigh, task=self._pool.task)
