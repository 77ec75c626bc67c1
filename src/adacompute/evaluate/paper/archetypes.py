"""Kinds of accuracy curve: four groups of problems, found by k-means. Knows nothing of policies.

The groups always come out as four where there are four different curves; whether they look like the paper's
Easy, Responsive, Diminishing and Hard is checked, and said.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.fits import oracle_labels
from adacompute.evaluate.paper.search import reachable
from adacompute.evaluate.paper.together import together
from adacompute.score import halves, score

__all__ = ["KINDS", "Archetype", "Archetypes", "Spent", "archetypes"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

KINDS = ("Easy", "Responsive", "Diminishing", "Hard")
_MIDDLE = ("Responsive", "Diminishing")
BUDGET = 2.0  # samples on average, of the oracle
_SEED = 0
_STARTS = 10
_EASY, _HARD = 0.75, 0.25  # accuracies: the paper's, from which on, and up to which
_FLAT = 0.1  # rise of an Easy curve, at most: the paper says nearly flat
_RISES = 0.2  # of a Responsive one, at least
_GAINS = 0.05  # of a Diminishing one, at least; and half of it by the middle budget
_LARGE = 4  # samples: budgets that the paper calls spent on the Responsive


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Archetype:
    """One group: its mean curve, and the problem that is nearest to it."""

    name: str  # of KINDS
    count: int  # problems
    centre: Floats  # (budgets,) mean accuracy
    spread: Floats  # (2, budgets) quarter and three quarters of its problems
    doubt: str  # why it doesn't look like its name; empty where it does
    case: str  # the recording of the nearest problem
    problem: str  # its id
    question: str
    curve: Floats  # (budgets,) its accuracy
    error: Floats  # (budgets,) standard errors; NaN where they can't be told

    @property
    def rise(self) -> float:
        """Accuracy that the largest budget adds to one sample."""
        return float(self.centre[-1] - self.centre[0])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spent:
    """The oracle's budgets by group."""

    shares: Floats  # (groups, budgets) of each group's problems; they add up to 1
    large: Floats  # (groups,) share of all samples drawn with budgets of 4 and more that each group gets


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Archetypes:
    """Groups of the problems of one recording or several."""

    cases: tuple[str, ...]
    problems: tuple[int, ...]  # (cases,)
    budgets: tuple[int, ...]
    groups: tuple[Archetype, ...]  # by KINDS
    shares: Floats  # (cases, groups) of each recording's problems
    budget: float | None  # the oracle's average; None: the samples don't allow it
    oracle: Spent | None  # groups and budgets told from the same samples, as in the paper
    apart: Spent | None  # groups from one half of the samples, budgets from the other
    curves: tuple[Floats, ...] = field(repr=False)  # (groups,) of (problems, budgets)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the groups."""
        return tuple(group.name for group in self.groups)


@dataclass(frozen=True, slots=True, eq=False)
class _Grouped:
    names: tuple[str, ...]
    centres: Floats  # (groups, budgets)
    group: Ints  # (problems,)


def archetypes(cases: Sequence[Case]) -> Archetypes:
    """Groups over all recordings together, at the budgets that they share."""
    cases = together(cases)
    budgets = cases[0].budgets
    curves = np.concatenate([case.exact.accuracy for case in cases])
    found = _grouped(curves)
    owner = np.repeat(np.arange(len(cases)), [len(case) for case in cases])
    budget = BUDGET if all(reachable(case, [BUDGET]) for case in cases) else None
    own = None if budget is None else _oracle(cases, found, budgets)
    return Archetypes(
        cases=tuple(case.name for case in cases),
        problems=tuple(len(case) for case in cases),
        budgets=budgets,
        groups=tuple(_archetype(cases, owner, curves, found, at) for at in range(len(found.names))),
        shares=np.stack(
            [_shares(found.group[owner == at], len(found.names)) for at in range(len(cases))],
        ),
        budget=budget,
        oracle=own,
        apart=None if budget is None else _apart(cases, found.names, budgets),
        curves=tuple(curves[found.group == at] for at in range(len(found.names))),
    )


def _grouped(curves: Floats) -> _Grouped:
    """K-means of curves, (problems, budgets), the groups in the order of KINDS."""
    from sklearn.cluster import KMeans

    count = min(len(KINDS), len(np.unique(curves, axis=0)))
    group = KMeans(n_clusters=count, n_init=_STARTS, random_state=_SEED).fit(curves).labels_
    centres = np.stack([curves[group == at].mean(axis=0) for at in range(count)])
    names = _named(centres)
    order = sorted(range(count), key=lambda at: KINDS.index(names[at]))
    place = np.argsort(order)
    return _Grouped(
        names=tuple(names[at] for at in order),
        centres=centres[order],
        group=np.asarray(place[group], dtype=np.int64),
    )


def _named(centres: Floats) -> list[str]:
    """A name for each centre, (groups, budgets): the highest, the lowest, and the rest by their rise.

    The rise is that over one sample at all budgets together: from small budgets to large ones two groups may
    rise as much as each other, the one early and the other late.
    """
    level, rise = centres.mean(axis=1), (centres - centres[:, :1]).mean(axis=1)
    order = np.argsort(-level, kind="stable")
    if len(order) == 1:
        return ["Easy" if level[0] >= 0.5 else "Hard"]
    names = [""] * len(order)
    names[order[0]], names[order[-1]] = "Easy", "Hard"
    for at, name in zip(sorted(order[1:-1], key=lambda at: -rise[at]), _MIDDLE, strict=False):
        names[at] = name
    return names


def _archetype(cases: Sequence[Case], owner: Ints, curves: Floats, found: _Grouped, at: int) -> Archetype:
    rows, centre = np.flatnonzero(found.group == at), found.centres[at]
    nearest = int(rows[((curves[rows] - centre) ** 2).sum(axis=1).argmin()])
    case = cases[owner[nearest]]
    row = nearest - int(np.flatnonzero(owner == owner[nearest])[0])
    error = case.exact.standard_error
    return Archetype(
        name=found.names[at],
        count=len(rows),
        centre=centre,
        spread=np.quantile(curves[rows], (0.25, 0.75), axis=0),
        doubt=_doubt(found.names[at], centre),
        case=case.name,
        problem=case.ballots.ids[row],
        question=case.ballots.prompts[row],
        curve=curves[nearest],
        error=np.full(len(centre), np.nan) if error is None else error[row],
    )


def _doubt(name: str, centre: Floats) -> str:
    """Why a mean curve doesn't look like what the paper calls so; empty where it does."""
    first, last, rise = float(centre[0]), float(centre[-1]), float(centre[-1] - centre[0])
    told = f"goes from {first:.0%} to {last:.0%}"
    if name == "Easy" and (first < _EASY or abs(rise) > _FLAT):
        return f"{told}, where Easy is flat from {_EASY:.0%} or more"
    if name == "Responsive" and rise < _RISES:
        return f"{told}, where Responsive rises by {100 * _RISES:.0f} points or more"
    if name == "Diminishing" and rise < _GAINS:
        return f"{told}, where Diminishing still rises"
    if name == "Diminishing" and centre[len(centre) // 2] - first < rise / 2:
        return f"{told}, most of it late, where Diminishing saturates early"
    if name == "Hard" and float(centre.max()) > _HARD:
        return f"{told}, where Hard stays below {_HARD:.0%}"
    return ""


def _oracle(cases: Sequence[Case], found: _Grouped, budgets: tuple[int, ...]) -> Spent:
    labels = np.concatenate([oracle_labels(case.windows, BUDGET)[0] for case in cases])
    return _spent(found.group, labels, len(found.names), budgets)


def _apart(cases: Sequence[Case], names: tuple[str, ...], budgets: tuple[int, ...]) -> Spent | None:
    """Groups told from one half of the samples and the oracle's budgets from the other; None: too few.

    A problem whose accuracy at 4 samples luck has raised is called Responsive and given 4 samples by the same
    luck; here the two know nothing of each other's.
    """
    if min(int(case.ballots.drawn.min()) for case in cases) < 2 * budgets[-1]:
        return None
    rng = np.random.default_rng(_SEED)
    curves, labels = [], []
    for case in cases:
        one, other = halves(case.ballots, rng)
        curves.append(score(one, budgets).accuracy)
        labels.append(oracle_labels(score(other, budgets), BUDGET)[0])
    found = _grouped(np.concatenate(curves))
    if found.names != names:
        return None
    return _spent(found.group, np.concatenate(labels), len(names), budgets)


def _spent(group: Ints, labels: Ints, groups: int, budgets: tuple[int, ...]) -> Spent:
    counts = np.zeros((groups, len(budgets)))
    np.add.at(counts, (group, labels), 1)
    size = np.asarray(budgets, dtype=np.float64)
    drawn = (counts * size * (size >= _LARGE)).sum(axis=1)
    return Spent(
        shares=counts / np.maximum(counts.sum(axis=1, keepdims=True), 1),
        large=drawn / max(drawn.sum(), 1.0),
    )


def _shares(group: Ints, groups: int) -> Floats:
    return np.bincount(group, minlength=groups) / len(group)
