"""Recorded samples -> an accuracy table, with its costs. Knows nothing of what the table is used for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from adacompute.answers import Weigh
from adacompute.answers.weigh import Signal
from adacompute.errors import NotRecorded, ScoreError, TooFewSamples
from adacompute.pool import Ballots, Pool
from adacompute.records import AccuracyTable
from adacompute.score.costs import Price, costs_of
from adacompute.score.exact import exact_vote
from adacompute.score.grades import Bools, Floats, Ints, Scored, graded, grades, votable
from adacompute.score.ranks import any_correct, best_of
from adacompute.score.shrink import shrink as shrunk
from adacompute.score.weighted import fitted, weighted_vote
from adacompute.score.windows import window_vote

__all__ = [
    "SEED",
    "Aggregate",
    "By",
    "Estimator",
    "Told",
    "check_ranking",
    "check_simulation",
    "checked_way",
    "scorable",
    "score",
    "simulated",
    "weighing",
    "words_of",
]

Estimator = Literal["exact", "windows"]
Aggregate = Literal["vote", "weighted", "best-of", "any-correct"]
By = Literal["logprob", "entropy"] | Weigh | npt.ArrayLike

_NAMED = 5  # problems in a message
SEED = 0  # of a simulation whose generator was not given: twice the same question has one answer
_SUBSETS = "mean over all subsets of b of a problem's samples"
_RULES = "ties shared, abstentions ignored"
_JACKKNIFE = "standard errors by the jackknife over samples"


def score(
    source: Pool | Ballots,
    budgets: Sequence[int] = (1, 2, 4, 8, 16),
    *,
    estimator: Estimator = "exact",
    aggregate: Aggregate = "vote",
    by: By = "logprob",
    cost: Literal["samples", "tokens"] | Price = "samples",
    too_few: Literal["error", "drop"] = "error",
    shrink: bool = False,
    model: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    rng: np.random.Generator | None = None,
    draws: int = 2000,
) -> AccuracyTable:
    """The accuracy of every problem at every budget, from its recorded samples, with standard errors.

    `aggregate` makes one answer of b samples: the plain vote; the vote weighted `by` how sure the model was;
    the best-of-b `by` its log-probability, its entropy or scores of your own, (problems, samples), higher
    being better; or any of them being correct (pass@b). All are means over every subset of b samples, but
    for weighted votes, which are simulated with at least `draws` subsets where there are more. `estimator`
    "windows" is the paper's, for plain votes. Problems with fewer samples than the largest budget, or without
    what the score needs, are an error, or are left out with `too_few="drop"` and listed in `table.dropped`.
    `model` and `parameters` name the source of a pool that holds several.

    >>> from adacompute.pool import bundled
    >>> with bundled("words") as pool:
    ...     table = score(pool, budgets=(1, 16))
    >>> table.accuracy.mean(axis=0).round(2).tolist()
    [0.64, 0.85]
    """
    sizes = checked_way(budgets, estimator=estimator, aggregate=aggregate, too_few=too_few)
    everything = _ballots(source, model, parameters)
    rows = scorable(Told.of(everything), sizes[-1], aggregate=aggregate, drop=too_few == "drop")
    spent = costs_of(everything, sizes, cost, rows=rows)
    kept = everything if len(rows) == len(everything) else everything.only(rows)
    by = _only_scores(by, everything, rows)
    scored, protocol = _scored(kept, sizes, estimator, aggregate, by, rng=rng, draws=draws)
    left_out = set(range(len(everything))) - set(rows.tolist())
    table = AccuracyTable.of(
        scored.accuracy,
        costs=spent.amounts,
        modes=sizes,
        standard_error=scored.standard_error,
        ids=kept.ids,
        unit=spent.unit,
        dropped=[everything.ids[row] for row in sorted(left_out)],
        protocol="; ".join(filter(None, [protocol, spent.note])),
    )
    return shrunk(table) if shrink else table


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Told:
    """What has to be known of problems to say which can be scored."""

    ids: Sequence[str]  # (problems,)
    drawn: Ints  # (problems,) samples
    known: Bools  # (problems,) whether every sample's grade is
    votes: Bools  # (problems,) whether answers were recorded

    @classmethod
    def of(cls, ballots: Ballots) -> "Told":
        """Of ballots."""
        known = graded(ballots, grades(ballots))
        return cls(ids=ballots.ids, drawn=ballots.drawn, known=known, votes=votable(ballots))


def checked_way(
    budgets: Sequence[int], *, estimator: Estimator, aggregate: Aggregate, too_few: str
) -> tuple[int, ...]:
    """The budgets; ScoreError where these or the way to score at them can't be used."""
    _check_choice("estimator", estimator, get_args(Estimator))
    _check_choice("aggregate", aggregate, get_args(Aggregate))
    _check_choice("too_few", too_few, ("error", "drop"))
    if estimator == "windows" and aggregate != "vote":
        raise ScoreError("windows are for plain votes; give estimator='exact' (--estimator exact)")
    return _checked_budgets(budgets)


def _scored(
    ballots: Ballots,
    budgets: Sequence[int],
    estimator: Estimator,
    aggregate: Aggregate,
    by: By,
    *,
    rng: np.random.Generator | None,
    draws: int,
) -> tuple[Scored, str]:
    """The scores, and how they were come by, in words."""
    values = grades(ballots)
    if aggregate == "weighted":
        weigh = _weigh(ballots, by)
        rng = np.random.default_rng(SEED) if rng is None else rng
        check_simulation(rng, draws)
        scored = weighted_vote(ballots, values, budgets, weigh=weigh, rng=rng, draws=draws)
        return scored, words_of(estimator, aggregate, weigh.signal, simulated=simulated(scored), draws=draws)
    if aggregate == "vote" and estimator == "windows":
        scored = window_vote(ballots, values, budgets)
    elif aggregate == "vote":
        scored = exact_vote(ballots, values, budgets)
    elif aggregate == "any-correct":
        scored = any_correct(ballots, values, budgets)
    else:
        check_ranking(by)
        scored = best_of(ballots, values, budgets, by=by)  # type: ignore[arg-type] # it checks the rest
    return scored, words_of(estimator, aggregate, by if isinstance(by, str) else "scores given")


def simulated(scored: Scored) -> float | None:
    """The largest error of a simulation; None where nothing was simulated."""
    if not scored.simulated or scored.simulation_error is None:
        return None
    return float(np.nanmax(scored.simulation_error))


def words_of(
    estimator: Estimator,
    aggregate: Aggregate,
    by: str,
    *,
    simulated: float | None = None,
    draws: int = 0,
) -> str:
    """How scores were come by, in words."""
    if aggregate == "vote" and estimator == "windows":
        words = f"plain votes of disjoint windows of b samples in recorded order, {_RULES}"
        return f"{words}; standard errors over windows"
    if aggregate == "vote":
        return f"plain votes of b samples, {_SUBSETS}, {_RULES}; {_JACKKNIFE}"
    if aggregate == "any-correct":
        return f"whether any of b samples is right, {_SUBSETS}; {_JACKKNIFE}"
    if aggregate == "best-of":
        return f"the best of b samples by {by}, {_SUBSETS}, ties shared; {_JACKKNIFE}"
    how = _SUBSETS
    if simulated is not None:
        how = f"simulated with at least {draws} subsets a problem, their error up to {simulated:.4f}"
    return f"votes of b samples weighted by {by}, {how}, {_RULES}; {_JACKKNIFE}"


def check_ranking(by: By) -> None:
    """Refuses to rank by weights."""
    if isinstance(by, Weigh):
        raise ScoreError(f"best-of can't rank by {by}; give by='logprob', 'entropy' or scores")


def _weigh(ballots: Ballots, by: By) -> Weigh:
    """How votes are weighted."""
    asked = weighing(by)
    return asked if isinstance(asked, Weigh) else fitted(ballots, asked)


def weighing(by: By) -> Signal | Weigh:
    """What votes are weighted by; ScoreError where they can't be."""
    if isinstance(by, Weigh):
        return by
    if not isinstance(by, str) or by not in ("logprob", "entropy"):
        given = repr(by) if isinstance(by, str) else "scores"
        raise ScoreError(f"votes can't be weighted by {given}; give by='logprob', 'entropy' or a Weigh")
    return "entropy" if by == "entropy" else "logprob"


def check_simulation(rng: object, draws: object) -> None:
    """Refuses what a simulation can't draw with."""
    if not isinstance(rng, np.random.Generator) or not isinstance(draws, int):
        raise ScoreError(f"rng {rng!r} and draws {draws!r} can't be used; give default_rng(seed) and 2000")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ScoreError(f"{name} {value!r} is not known; give one of {', '.join(map(repr, choices))}")


def _checked_budgets(budgets: object) -> tuple[int, ...]:
    given: list[Any] = list(budgets) if isinstance(budgets, Iterable) else []
    whole = all(isinstance(b, int | np.integer) and type(b) is not bool and b >= 1 for b in given)
    if not given or not whole or any(a >= b for a, b in pairwise(given)):
        raise ScoreError(
            f"budgets {budgets!r} can't be used; "
            "give whole numbers from 1, ascending, each once, e.g. (1, 2, 4)"
        )
    return tuple(int(b) for b in given)


def _ballots(source: object, model: str | None, parameters: Mapping[str, Any] | None) -> Ballots:
    if not isinstance(source, Ballots | Pool):
        kind = type(source).__name__
        raise ScoreError(f"a {kind} can't be scored; give a pool (open_pool, bundled) or ballots")
    if isinstance(source, Ballots):
        if model is not None or parameters is not None:
            raise ScoreError("model and parameters choose a pool's source; leave them out with ballots")
        found, name = source, "ballots"
    else:
        found, name = source.ballots(model, parameters=parameters), source.path
    if not len(found):
        raise TooFewSamples(f"{name}: no problem has a sample; collect or import some first")
    return found


def scorable(told: Told, largest: int, *, aggregate: Aggregate, drop: bool) -> Ints:
    """Rows of the problems that can be scored; raises for the others, unless they are to be dropped."""
    voting = aggregate in ("vote", "weighted")
    known, votes, drawn = told.known, told.votes | (not voting), told.drawn
    good = known & votes & (drawn >= largest)
    if good.all() or (drop and good.any()):
        return np.flatnonzero(good)
    remedy = (
        "or too_few='drop' (--too-few drop) leaves them out"
        if good.any()
        else "there is nothing else to score"
    )
    if not known.all():
        what, advice = "a sample whose correctness is not known", "give gold answers or grades"
        raise NotRecorded(_refusal(told, ~known, what, f"{advice}, {remedy}"))
    if not votes.all():
        what, advice = "grades but no recorded answers to vote on", "record answers"
        raise NotRecorded(_refusal(told, ~votes, what, f"{advice}, {remedy}"))
    what, advice = f"fewer than {largest} samples", "give smaller budgets (--budgets) or collect more"
    raise TooFewSamples(_refusal(told, drawn < largest, what, f"{advice}, {remedy}"))


def _refusal(told: Told, bad: Bools, what: str, remedy: str) -> str:
    rows, drawn = np.flatnonzero(bad), told.drawn
    count = f"{len(rows)} of {len(told.ids)} problems {'has' if len(rows) == 1 else 'have'}"
    names = ", ".join(f"{told.ids[row]!r} ({drawn[row]} samples)" for row in rows[:_NAMED])
    more = f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
    return f"{count} {what}: {names}{more}; {remedy}"


def _only_scores(by: By, ballots: Ballots, rows: Ints) -> By:
    """Scores of one's own for these problems; they were given for all of them, (problems, samples)."""
    if isinstance(by, str | Weigh):
        return by
    scores: Floats = np.asarray(by, dtype=np.float64)
    if scores.shape != ballots.classes.shape:
        raise ScoreError(
            f"scores of shape {scores.shape} don't fit these samples; "
            f"give (problems, samples) = {ballots.classes.shape}"
        )
    return scores[rows]
