"""What is known before a pool is seen: learned on other recordings, without the task. Knows no dial.

Two judges: a table of plain tallies, and trees that also see how sure the model was. The trees need many
problems to be trusted, so their share of the verdict grows with how many they have seen.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import as_file, files

import numpy as np
import numpy.typing as npt

from adacompute.errors import PolicyInvalid
from adacompute.paths import Paths, Standing, paths
from adacompute.policies.artefact import read_artefact
from adacompute.policies.base import Arrays
from adacompute.policies.chart import Chart, read_chart
from adacompute.policies.confidence import confidence
from adacompute.policies.stopping.counts import counts_table, look_up
from adacompute.policies.stopping.induction import learned
from adacompute.policies.stopping.judge import Judge
from adacompute.policies.stopping.prints import prints
from adacompute.policies.stopping.states import NAMES, plain, states
from adacompute.policies.stopping.waves import QUANTILES
from adacompute.policies.stored import stored
from adacompute.pool import Ballots

__all__ = ["BUNDLED", "Prior", "bundled_chart", "bundled_prior", "prior_of", "worths"]

Floats = npt.NDArray[np.float64]

BUNDLED = ("facts-words", "words", "facts")  # recordings that each prior in the package was learned on
_FOLDER = "priors"
_PATHS = 24000  # in all: more say little more, since problems are what is few
_ORDERS = (8, 64)  # a problem, at least and at most
_TABLE_ORDERS = 64  # a problem: a table takes them at once, and its rare tallies need them
_TRUSTED = 500  # problems: with so many, trees and table have equal say


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prior:
    """Standings -> logarithms of critical prices."""

    table: Floats  # (draws, first, second)
    judge: Judge | None  # of weighed votes; None: none were recorded
    problems: int  # that the trees were learned on; 0 where there are none
    openings: Floats  # (QUANTILES, draws) of critical prices
    scale: float  # of mean log-probabilities, where nothing better is known
    prints: npt.NDArray[np.uint64]  # of the prompts it was learned on, ascending

    def critical(self, standing: Standing, rows: Floats) -> Floats:
        """Logarithms of critical prices, (requests,); `rows` are the states of the standing."""
        found = look_up(self.table, standing.drawn, standing.first, standing.second)
        if self.judge is None:
            return found
        share = self.problems / (self.problems + _TRUSTED)
        counted = plain(standing)
        if not counted.any():
            return share * self.judge.critical(rows) + (1 - share) * found
        if not counted.all():
            some = ~counted
            found[some] = share * self.judge.critical(rows[some]) + (1 - share) * found[some]
        return found

    def arrays(self) -> Arrays:
        """What was learned."""
        found = {"table": self.table, "openings": self.openings, "prints": self.prints}
        return found if self.judge is None else {**found, **self.judge.arrays("weighed_")}

    @classmethod
    def restored(cls, arrays: Arrays, *, problems: int, scale: float) -> "Prior":
        """The prior that gave these; PolicyInvalid where none could have."""
        table = stored(arrays, "table", np.float64, (None, None, None))
        if min(table.shape) < 1 or table.shape[1] != table.shape[2]:
            raise PolicyInvalid(f"array 'table' of shape {table.shape} is no table of tallies")
        prints_ = stored(arrays, "prints", np.uint64, (None,))
        return cls(
            table=table,
            judge=Judge.restored(arrays, "weighed_", features=len(NAMES)) if problems else None,
            problems=problems,
            openings=stored(arrays, "openings", np.float64, (len(QUANTILES), len(table))),
            scale=scale,
            prints=np.sort(prints_),
        )


def prior_of(recordings: Sequence[Ballots], *, longest: int, seed: int = 0) -> Prior:
    """Learned on recordings: from agreement with the full vote, and from labels where they are known."""
    orders = int(np.clip(_PATHS // max(1, sum(map(len, recordings))), *_ORDERS))
    rng = np.random.default_rng(seed)
    plain_paths = [paths(one, rng=rng, orders=_TABLE_ORDERS, longest=longest) for one in recordings]
    table = counts_table(plain_paths, [one.agrees for one in plain_paths])
    weighs = [confidence(one) for one in recordings]
    chosen = [k for k, weigh in enumerate(weighs) if weigh is not None]
    some = [paths(recordings[k], rng=rng, orders=orders, longest=longest, weigh=weighs[k]) for k in chosen]
    judge = learned(some, [worths(one) for one in some], table, seed=seed) if some else None
    scales = [weigh.scale for weigh in weighs if weigh is not None]
    marks = np.unique(np.concatenate([prints(one.prompts) for one in recordings]))
    found = Prior(
        table=table,
        judge=judge,
        problems=sum(len(one.ballots) for one in some),
        openings=np.zeros((len(QUANTILES), longest - 1)),
        scale=float(np.mean(scales)) if scales else -1.0,
        prints=marks,
    )
    return _opened(found, some or plain_paths)


def worths(one: Paths, *, labels: bool = True) -> Floats:
    """What the leading answer is worth to learn from, (longest, paths).

    Agreement with the full vote; where labels are known, its mean with being right: agreement has less
    noise, being right is what counts.
    """
    if not labels:
        return one.agrees
    return np.where(np.isnan(one.grade), one.agrees, (one.grade + one.agrees) / 2)


@functools.cache
def bundled_prior(name: str = BUNDLED[0]) -> Prior:
    """A prior inside the package."""
    with as_file(files("adacompute.policies.stopping") / _FOLDER / name) as folder:
        stored_ = read_artefact(folder)
    return Prior.restored(
        stored_.arrays, problems=stored_.settings["problems"], scale=stored_.settings["scale"]
    )


@functools.cache
def bundled_chart() -> Chart | None:
    """What a policy on the prior in the package costs and gives, on recordings that its prior hasn't seen."""
    with as_file(files("adacompute.policies.stopping") / _FOLDER / BUNDLED[0]) as folder:
        return read_chart(folder, policy=read_artefact(folder).sha256)


def _opened(prior: Prior, some: Sequence[Paths]) -> Prior:
    """With the quantiles of its critical prices after each draw."""
    openings = np.empty(prior.openings.shape)
    for t in range(len(prior.table)):
        found = [one.standing(np.arange(len(one)), np.full(len(one), t + 1)) for one in some]
        critical = [prior.critical(standing, states(standing)) for standing in found]
        openings[:, t] = np.quantile(np.concatenate(critical), QUANTILES)
    return replace(prior, openings=openings)
