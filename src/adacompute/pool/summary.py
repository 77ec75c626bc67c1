"""What is in a pool, in numbers. Knows nothing of policies; its vote is the plain one.

A sample's accuracy is what was recorded as `correct`; an abstention of which nothing was recorded is wrong
where the problem's gold answer or grades are known, and else unknown, as its problem is then.
Vote accuracy is the paper's estimator: the mean over disjoint windows of b samples in the order recorded,
ties shared equally, abstentions ignored, a window in which all abstain wrong. Intervals are over problems.
A null answer that was graded right is no abstention: there the answers were not recorded, so problems without
any answer have no vote, and are left out of votes and agreement.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from adacompute.errors import RecordInvalid
from adacompute.pool.ballots import ABSENT, ABSTAINS, Ballots
from adacompute.pool.store import Pool

__all__ = ["Estimate", "SourceSummary", "Summary", "estimated", "summarise"]

PROTOCOL = (
    "a vote of b: each problem's samples cut into windows of b as recorded, leftovers unused; "
    "ties shared; 95% interval over problems"
)
_FEW = 40  # subjects or levels worth listing
_CELLS = 1 << 22  # counts held at a time
_Z = 1.959964  # of a 95% interval

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over problems with its 95% interval; no interval from a single problem."""

    mean: float
    low: float | None
    high: float | None
    problems: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSummary:
    """What one model gave under one set of parameters. Shares and accuracies are 0 to 1."""

    model: str | None
    parameters: Mapping[str, Any]
    problems: int  # with samples
    samples: int
    samples_min: int  # a problem
    samples_median: float
    samples_max: int
    answered: float | None  # share of samples with an answer
    finished: float | None  # share, of those where it is known
    mean_tokens: float | None
    failures: Mapping[str, int]  # by kind
    accuracy: Estimate | None  # of one sample; None: correctness is not known
    votes: Mapping[int, Estimate]  # by budget, as far as there are samples and answers
    unvotable: int  # problems with grades but no recorded answers: they have an accuracy and no vote
    agreement: float | None  # mean share of the leading answer
    agreement_budget: int | None  # the largest of the budgets that at least half of the problems have
    agreement_problems: int  # that have it
    classes_mean: float | None  # different answers a problem
    classes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What is in a pool."""

    problems: int
    samples: int
    failures: int
    gold_known: int  # problems with a gold answer
    subjects: Mapping[str, int] | None  # problems by subject; None: none, or too many to list
    levels: Mapping[str, int] | None
    sources: tuple[SourceSummary, ...]
    protocol: str = PROTOCOL

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        found = asdict(self)
        for source in found["sources"]:
            source["votes"] = {str(budget): vote for budget, vote in source["votes"].items()}
        return found | {"sources": list(found["sources"])}


def summarise(pool: Pool, budgets: Sequence[int] = (1, 2, 4, 8, 16)) -> Summary:
    """Counts, shares and the plain vote's accuracy by budget, for every source of a pool."""
    if not budgets or any(type(b) is not int or b < 1 for b in budgets):
        raise RecordInvalid(f"budgets {budgets!r} can't be used; give whole numbers from 1, e.g. (1, 2, 4)")
    with pool.steady():
        counts, census = pool.counts(), pool.census()
        return Summary(
            problems=counts.problems,
            samples=counts.samples,
            failures=counts.failures,
            gold_known=census.gold,
            subjects=census.subjects if 0 < len(census.subjects) <= _FEW else None,
            levels=census.levels if 0 < len(census.levels) <= _FEW else None,
            sources=tuple(
                _source(pool, model, parameters, sorted(set(budgets))) for model, parameters in pool.models
            ),
        )


def _source(
    pool: Pool, model: str | None, parameters: Mapping[str, Any], budgets: Sequence[int]
) -> SourceSummary:
    key = pool.source_key(model, parameters)
    ballots = pool.ballots_of(key)
    totals = pool.totals(key)
    drawn = ballots.drawn
    grades, votable = _grades(ballots), _votable(ballots)
    graded = ~(np.isnan(grades) & (ballots.classes != ABSENT)).any(axis=1)  # (problems,)
    classes = ballots.classes[votable]
    largest = _common(budgets, drawn[votable])
    agreement = _windows(classes, None, largest)[1] if largest is not None else np.zeros(0)
    kinds = classes.max(axis=1, initial=-1) + 1  # (votable problems,)
    votes = {b: _vote(ballots.classes, grades, graded & votable & (drawn >= b), b) for b in budgets}
    return SourceSummary(
        model=model,
        parameters=parameters,
        problems=len(ballots),
        samples=int(drawn.sum()),
        samples_min=int(drawn.min()) if len(drawn) else 0,
        samples_median=float(np.median(drawn)) if len(drawn) else 0.0,
        samples_max=int(drawn.max(initial=0)),
        answered=totals.answered,
        finished=totals.finished,
        mean_tokens=totals.tokens,
        failures=totals.failures,
        accuracy=estimated(np.nanmean(grades[graded], axis=1)) if graded.any() else None,
        votes={b: vote for b, vote in votes.items() if vote is not None},
        unvotable=int((~votable).sum()),
        agreement=float(agreement.mean()) if len(agreement) else None,
        agreement_budget=largest,
        agreement_problems=len(agreement),
        classes_mean=float(kinds.mean()) if len(kinds) else None,
        classes_max=int(kinds.max(initial=0)),
    )


def _grades(ballots: Ballots) -> Floats:
    """Each sample's correctness, (problems, samples); NaN: not known."""
    grades = ballots.correct.astype(np.float64)
    known = ballots.gold_known | ~np.isnan(grades).all(axis=1)
    grades[(ballots.classes == ABSTAINS) & np.isnan(grades) & known[:, None]] = 0.0
    return grades


def _votable(ballots: Ballots) -> npt.NDArray[np.bool_]:
    """Problems whose answers were recorded, as far as one can tell, (problems,)."""
    if not ((ballots.classes == ABSTAINS) & (ballots.correct > 0)).any():
        return np.ones(len(ballots), dtype=bool)
    return np.asarray((ballots.classes >= 0).any(axis=1))


def _common(budgets: Sequence[int], drawn: npt.NDArray[np.int64]) -> int | None:
    """The largest budget that at least half of the problems have; None: there is none."""
    return max((b for b in budgets if len(drawn) and 2 * (drawn >= b).sum() >= len(drawn)), default=None)


def _vote(
    classes: npt.NDArray[np.int32], grades: Floats, rows: npt.NDArray[np.bool_], budget: int
) -> Estimate | None:
    return estimated(_windows(classes[rows], grades[rows], budget)[0]) if rows.any() else None


def estimated(values: Floats) -> Estimate:
    """The mean of one value a problem, (problems,), with its normal 95% interval, within 0 to 1.

    Where all problems have the same value, Wilson's interval: four problems out of four prove little.
    """
    mean = float(values.mean())
    if len(values) == 1:
        return Estimate(mean=mean, low=None, high=None, problems=1)
    count, spread = len(values), float(values.std(ddof=1))
    middle, half = mean, _Z * spread / count**0.5
    if spread == 0:
        share = _Z**2 / count
        middle = (mean + share / 2) / (1 + share)
        half = (share * (mean * (1 - mean) + share / 4)) ** 0.5 / (1 + share)
    return Estimate(mean=mean, low=max(0.0, middle - half), high=min(1.0, middle + half), problems=count)


def _windows(classes: npt.NDArray[np.int32], correct: Floats | None, budget: int) -> tuple[Floats, Floats]:
    """Each problem's vote accuracy and the leader's share of the answers, means over windows, (problems,)."""
    enough = (classes != ABSENT).sum(axis=1) >= budget
    classes = classes[enough]
    correct = None if correct is None else correct[enough]
    kinds = int(classes.max(initial=0)) + 1
    step = max(1, _CELLS // (kinds * max(1, classes.shape[1] // budget)))
    parts = [
        _count(classes[i : i + step], None if correct is None else correct[i : i + step], budget, kinds)
        for i in range(0, len(classes), step)
    ]
    right = np.concatenate([part[0] for part in parts]) if parts else np.zeros(0)
    return right, np.concatenate([part[1] for part in parts]) if parts else np.zeros(0)


def _count(
    classes: npt.NDArray[np.int32], correct: Floats | None, budget: int, kinds: int
) -> tuple[Floats, Floats]:
    rows, width = len(classes), classes.shape[1] // budget
    cut = classes[:, : width * budget].reshape(rows, width, budget)  # (problems, windows, budget)
    there = (cut != ABSENT).all(axis=2)  # (problems, windows): whole windows only
    cell = np.arange(rows * width).reshape(rows, width, 1) * kinds + cut
    counts = np.bincount(cell[cut >= 0], minlength=rows * width * kinds).reshape(rows, width, kinds)
    best = counts.max(axis=2)  # (problems, windows)
    answered = counts.sum(axis=2)
    share = np.divide(best, answered, out=np.zeros(best.shape), where=answered > 0)
    agreement = _mean(share, there)
    if correct is None:
        return np.zeros(rows), agreement
    value = np.zeros((rows, kinds))  # correctness of each class: its samples' mean, (problems, classes)
    at, kind = np.nonzero(classes >= 0)[0], classes[classes >= 0]
    sizes = np.zeros((rows, kinds))
    np.add.at(sizes, (at, kind), 1.0)
    np.add.at(value, (at, kind), correct[classes >= 0])
    value = np.divide(value, sizes, out=value, where=sizes > 0)
    leads = (counts == best[:, :, None]) & (best[:, :, None] > 0)  # (problems, windows, classes)
    won = np.einsum("pwk,pk->pw", leads, value, optimize=False)
    ties = leads.sum(axis=2)
    return _mean(np.divide(won, ties, out=np.zeros(won.shape), where=ties > 0), there), agreement


def _mean(values: Floats, there: npt.NDArray[np.bool_]) -> Floats:
    return np.asarray((values * there).sum(axis=1) / there.sum(axis=1))
