"""Summarises a pool in numbers.

The accuracy of an unweighted vote is exact: the mean over all subsets of b samples. Tied answers share the
vote equally. Samples without an answer are ignored; if no sample has one, the vote is wrong. Agreement is the
most frequent answer's share of all answers, averaged over disjoint windows of b samples. Problems that can't
be voted on are left out of both. Intervals show the uncertainty from the choice of problems.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from adacompute.errors import RecordInvalid
from adacompute.pool.ballots import Ballots
from adacompute.pool.pool import Pool
from adacompute.records import Account
from adacompute.score.grades import Bools, Floats, Ints, grade_samples, mask_graded, mask_votable
from adacompute.score.plain_vote import compute_agreement, score_exact_vote

PROTOCOL = (
    "a vote of b: the mean over all subsets of b of a problem's samples; "
    "ties shared, abstentions ignored; 95% interval over problems"
)
_MAX_LISTED = 40  # maximum number of subjects or levels to list; if there are more, none is listed
_Z = 1.959964  # a 95% interval extends this many standard errors to each side


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanEstimate:
    """A mean over problems, with its 95% interval if there are at least two; NaN if there are none."""

    mean: float
    low: float | None
    high: float | None
    problems: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSummary:
    """Statistics of one source: a model with one set of parameters. Shares and accuracies are 0 to 1."""

    model: str | None
    parameters: Mapping[str, Any]
    problems: int  # number of problems with samples
    samples: int
    samples_min: int  # smallest number of samples of a problem
    samples_median: float
    samples_max: int
    answered: float | None  # share of samples with an answer
    finished: float | None  # share of samples that weren't cut off; None if unknown
    mean_tokens: float | None
    failures: Mapping[str, int]  # kind of failure -> number of failed calls
    accuracy: MeanEstimate | None  # accuracy of a single sample; None if correctness is unknown
    votes: Mapping[int, MeanEstimate]  # number of samples per vote -> accuracy of such votes
    unvotable: int  # number of problems with grades but no recorded answers, which can't be voted on
    agreement: float | None  # mean share of the most frequent answer in a window of consecutive samples
    agreement_budget: int | None  # number of samples in such a window
    agreement_problems: int  # number of problems with at least `agreement_budget` samples
    classes_mean: float | None  # mean number of different answers to a problem
    classes_max: int
    account: Account | None = None  # calls and tokens that the samples cost; None if not recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Statistics of a pool."""

    problems: int
    samples: int
    failures: int
    gold_known: int  # number of problems with a gold answer
    # subject -> number of problems; None if there are no subjects, or too many
    subjects: Mapping[str, int] | None
    levels: Mapping[str, int] | None  # level -> number of problems; None as for `subjects`
    sources: tuple[SourceSummary, ...]
    protocol: str = PROTOCOL

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON."""
        data = asdict(self)
        for source in data["sources"]:
            source["votes"] = {str(budget): vote for budget, vote in source["votes"].items()}
        return data | {"sources": list(data["sources"])}


def summarise(pool: Pool, budgets: Sequence[int] = (1, 2, 4, 8, 16)) -> Summary:
    """Computes counts, shares and accuracies of unweighted votes, for every source of a pool."""
    if not budgets or any(type(b) is not int or b < 1 for b in budgets):
        raise RecordInvalid(f"budgets {budgets!r} can't be used; give whole numbers from 1, e.g. (1, 2, 4)")
    with pool.snapshot():
        counts, census = pool.counts(), pool.census()
        return Summary(
            problems=counts.problems,
            samples=counts.samples,
            failures=counts.failures,
            gold_known=census.gold,
            subjects=census.subjects if 0 < len(census.subjects) <= _MAX_LISTED else None,
            levels=census.levels if 0 < len(census.levels) <= _MAX_LISTED else None,
            sources=tuple(
                _summarise_source(pool, model, parameters, sorted(set(budgets)))
                for model, parameters in pool.models
            ),
        )


def _summarise_source(
    pool: Pool, model: str | None, parameters: Mapping[str, Any], budgets: Sequence[int]
) -> SourceSummary:
    key = pool.source_key(model, parameters)
    ballots = pool.ballots_of(key)
    totals = pool.totals(key)
    drawn = ballots.drawn
    values, voting = grade_samples(ballots), mask_votable(ballots)
    known = mask_graded(ballots, values)  # whether all samples of each problem have a grade
    classes = ballots.classes[voting]
    largest = _find_common_budget(budgets, drawn[voting])
    shares = compute_agreement(classes, largest) if largest is not None else np.zeros(0)
    shares = shares[~np.isnan(shares)]  # keep only problems with enough samples
    kinds = classes.max(axis=1, initial=-1) + 1  # number of different answers to each problem
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
        accuracy=estimate_mean(np.nanmean(values[known], axis=1)) if known.any() else None,
        votes=_estimate_votes(ballots, values, known & voting, budgets),
        unvotable=int((~voting).sum()),
        agreement=float(shares.mean()) if len(shares) else None,
        agreement_budget=largest,
        agreement_problems=len(shares),
        classes_mean=float(kinds.mean()) if len(kinds) else None,
        classes_max=int(kinds.max(initial=0)),
        account=account if (account := pool.account(model, parameters)).calls else None,
    )


def _find_common_budget(budgets: Sequence[int], drawn: Ints) -> int | None:
    """Finds the largest budget for which at least half of the problems have enough samples, or None."""
    return max((b for b in budgets if len(drawn) and 2 * (drawn >= b).sum() >= len(drawn)), default=None)


def _estimate_votes(
    ballots: Ballots, values: Floats, rows: Bools, budgets: Sequence[int]
) -> dict[int, MeanEstimate]:
    """Estimates each budget's vote accuracy over the problems in `rows` that have enough samples."""
    voted = np.where(rows[:, None], values, np.nan)  # treat problems that can't be voted on as ungraded
    wanted = [b for b in budgets if (rows & (ballots.drawn >= b)).any()]
    accuracy = score_exact_vote(ballots, voted, wanted).accuracy  # shape (problems, budgets)
    return {b: estimate_mean(column[~np.isnan(column)]) for b, column in zip(wanted, accuracy.T, strict=True)}


def estimate_mean(values: Floats) -> MeanEstimate:
    """Computes the mean of one value per problem, with its normal 95% interval clipped to [0, 1].

    If all values are equal, Wilson's interval is used, because the normal one would have length 0.
    """
    mean = float(values.mean()) if len(values) else math.nan
    if len(values) <= 1:
        return MeanEstimate(mean=mean, low=None, high=None, problems=len(values))
    count, spread = len(values), float(values.std(ddof=1))
    middle, half = mean, _Z * spread / count**0.5
    if spread == 0:
        share = _Z**2 / count
        middle = (mean + share / 2) / (1 + share)
        half = (share * (mean * (1 - mean) + share / 4)) ** 0.5 / (1 + share)
    return MeanEstimate(mean=mean, low=max(0.0, middle - half), high=min(1.0, middle + half), problems=count)
