"""Recorded samples -> an accuracy table, with the cost of each budget in samples, tokens or money."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from adacompute.answers import VoteWeights
from adacompute.answers.vote import Signal
from adacompute.errors import NotRecorded, ScoreError, TooFewSamples
from adacompute.pool import Pool
from adacompute.pool.ballots import ABSENT, Ballots
from adacompute.records import AccuracyTable, TokenPrices
from adacompute.score.aggregates import (
    fit_vote_weights,
    score_any_correct,
    score_best_of,
    score_weighted_vote,
)
from adacompute.score.grades import (
    AccuracyEstimates,
    Bools,
    Floats,
    Ints,
    grade_samples,
    mask_graded,
    mask_votable,
)
from adacompute.score.plain_vote import score_exact_vote, score_window_vote
from adacompute.score.shrinkage import shrink as shrink_table

__all__ = [
    "SEED",
    "Aggregate",
    "Costs",
    "Estimator",
    "ProblemFacts",
    "build_missing_tokens_error",
    "check_method",
    "check_prompt_tokens",
    "check_ranking",
    "check_simulation",
    "check_weighting",
    "compute_costs",
    "compute_mean_output",
    "count_prompt_tokens",
    "describe_score_protocol",
    "largest_simulation_error",
    "score",
    "select_scorable",
]

Estimator = Literal["exact", "windows"]
Aggregate = Literal["vote", "weighted", "best-of", "any-correct"]
By = Literal["logprob", "entropy"] | VoteWeights | npt.ArrayLike

SEED = 0  # of a simulation without a given generator, so that results repeat
_MAX_NAMED = 5  # problems in a message
_UNITS = ("samples", "tokens")  # of cost; the third is money
_TOKEN_CHARACTERS = 4  # of a token of English, about
_MILLION = 1e6
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
    cost: Literal["samples", "tokens"] | TokenPrices = "samples",
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
    sizes = check_method(budgets, estimator=estimator, aggregate=aggregate, too_few=too_few)
    all_ballots = _read_ballots(source, model, parameters)
    rows = select_scorable(
        ProblemFacts.of(all_ballots), sizes[-1], aggregate=aggregate, drop=too_few == "drop"
    )
    costs = compute_costs(all_ballots, sizes, cost, rows=rows)
    kept_ballots = all_ballots if len(rows) == len(all_ballots) else all_ballots.only(rows)
    by = _select_scores(by, all_ballots, rows)
    scored, protocol = _estimate(kept_ballots, sizes, estimator, aggregate, by, rng=rng, draws=draws)
    dropped_rows = set(range(len(all_ballots))) - set(rows.tolist())
    table = AccuracyTable.of(
        scored.accuracy,
        costs=costs.amounts,
        modes=sizes,
        standard_error=scored.standard_error,
        ids=kept_ballots.ids,
        unit=costs.unit,
        dropped=[all_ballots.ids[row] for row in sorted(dropped_rows)],
        protocol="; ".join(filter(None, [protocol, costs.note])),
    )
    return shrink_table(table) if shrink else table


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProblemFacts:
    """What decides which problems can be scored."""

    ids: Sequence[str]  # (problems,)
    drawn: Ints  # (problems,) samples
    known: Bools  # (problems,) whether every sample's grade is
    votes: Bools  # (problems,) whether answers were recorded

    @classmethod
    def of(cls, ballots: Ballots) -> "ProblemFacts":
        """The facts of these ballots."""
        known = mask_graded(ballots, grade_samples(ballots))
        return cls(ids=ballots.ids, drawn=ballots.drawn, known=known, votes=mask_votable(ballots))


def check_method(
    budgets: Sequence[int], *, estimator: Estimator, aggregate: Aggregate, too_few: str
) -> tuple[int, ...]:
    """The budgets, checked; raises ScoreError where they or the method can't be used."""
    _check_choice("estimator", estimator, get_args(Estimator))
    _check_choice("aggregate", aggregate, get_args(Aggregate))
    _check_choice("too_few", too_few, ("error", "drop"))
    if estimator == "windows" and aggregate != "vote":
        raise ScoreError("windows are for plain votes; give estimator='exact' (--estimator exact)")
    return _check_budgets(budgets)


def _estimate(
    ballots: Ballots,
    budgets: Sequence[int],
    estimator: Estimator,
    aggregate: Aggregate,
    by: By,
    *,
    rng: np.random.Generator | None,
    draws: int,
) -> tuple[AccuracyEstimates, str]:
    """The estimates, and a description of how they were made."""
    values = grade_samples(ballots)
    if aggregate == "weighted":
        weights = _choose_weights(ballots, by)
        rng = np.random.default_rng(SEED) if rng is None else rng
        check_simulation(rng, draws)
        estimates = score_weighted_vote(ballots, values, budgets, weigh=weights, rng=rng, draws=draws)
        return estimates, describe_score_protocol(
            estimator,
            aggregate,
            weights.signal,
            simulation_error=largest_simulation_error(estimates),
            draws=draws,
        )
    if aggregate == "vote" and estimator == "windows":
        estimates = score_window_vote(ballots, values, budgets)
    elif aggregate == "vote":
        estimates = score_exact_vote(ballots, values, budgets)
    elif aggregate == "any-correct":
        estimates = score_any_correct(ballots, values, budgets)
    else:
        check_ranking(by)
        estimates = score_best_of(ballots, values, budgets, by=by)  # type: ignore[arg-type] # it checks the rest
    return estimates, describe_score_protocol(
        estimator, aggregate, by if isinstance(by, str) else "scores given"
    )


def largest_simulation_error(estimates: AccuracyEstimates) -> float | None:
    """The largest Monte Carlo error of the estimates; None where nothing was simulated."""
    if not estimates.simulated or estimates.simulation_error is None:
        return None
    return float(np.nanmax(estimates.simulation_error))


def describe_score_protocol(
    estimator: Estimator,
    aggregate: Aggregate,
    by: str,
    *,
    simulation_error: float | None = None,
    draws: int = 0,
) -> str:
    """A description of how scores were made."""
    if aggregate == "vote" and estimator == "windows":
        description = f"plain votes of disjoint windows of b samples in recorded order, {_RULES}"
        return f"{description}; standard errors over windows"
    if aggregate == "vote":
        return f"plain votes of b samples, {_SUBSETS}, {_RULES}; {_JACKKNIFE}"
    if aggregate == "any-correct":
        return f"whether any of b samples is right, {_SUBSETS}; {_JACKKNIFE}"
    if aggregate == "best-of":
        return f"the best of b samples by {by}, {_SUBSETS}, ties shared; {_JACKKNIFE}"
    method = _SUBSETS
    if simulation_error is not None:
        method = (
            f"simulated with at least {draws} subsets a problem, their error up to {simulation_error:.4f}"
        )
    return f"votes of b samples weighted by {by}, {method}, {_RULES}; {_JACKKNIFE}"


def check_ranking(by: By) -> None:
    """Raises ScoreError where samples would be ranked by vote weights."""
    if isinstance(by, VoteWeights):
        raise ScoreError(f"best-of can't rank by {by}; give by='logprob', 'entropy' or scores")


def _choose_weights(ballots: Ballots, by: By) -> VoteWeights:
    """How votes are weighted."""
    weighting = check_weighting(by)
    return weighting if isinstance(weighting, VoteWeights) else fit_vote_weights(ballots, weighting)


def check_weighting(by: By) -> Signal | VoteWeights:
    """What votes are weighted by; raises ScoreError where that is impossible."""
    if isinstance(by, VoteWeights):
        return by
    if not isinstance(by, str) or by not in ("logprob", "entropy"):
        description = repr(by) if isinstance(by, str) else "scores"
        raise ScoreError(
            f"votes can't be weighted by {description}; give by='logprob', 'entropy' or VoteWeights"
        )
    return "entropy" if by == "entropy" else "logprob"


def check_simulation(rng: object, draws: object) -> None:
    """Raises ScoreError where a simulation can't use this generator or number of draws."""
    if not isinstance(rng, np.random.Generator) or not isinstance(draws, int):
        raise ScoreError(f"rng {rng!r} and draws {draws!r} can't be used; give default_rng(seed) and 2000")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ScoreError(f"{name} {value!r} is not known; give one of {', '.join(map(repr, choices))}")


def _check_budgets(budgets: object) -> tuple[int, ...]:
    sizes: list[Any] = list(budgets) if isinstance(budgets, Iterable) else []
    whole = all(isinstance(b, int | np.integer) and type(b) is not bool and b >= 1 for b in sizes)
    if not sizes or not whole or any(a >= b for a, b in pairwise(sizes)):
        raise ScoreError(
            f"budgets {budgets!r} can't be used; "
            "give whole numbers from 1, ascending, each once, e.g. (1, 2, 4)"
        )
    return tuple(int(b) for b in sizes)


def _read_ballots(source: object, model: str | None, parameters: Mapping[str, Any] | None) -> Ballots:
    if not isinstance(source, Ballots | Pool):
        kind = type(source).__name__
        raise ScoreError(f"a {kind} can't be scored; give a pool (open_pool, bundled) or ballots")
    if isinstance(source, Ballots):
        if model is not None or parameters is not None:
            raise ScoreError("model and parameters choose a pool's source; leave them out with ballots")
        ballots, name = source, "ballots"
    else:
        ballots, name = source.ballots(model, parameters=parameters), source.path
    if not len(ballots):
        raise TooFewSamples(f"{name}: no problem has a sample; collect or import some first")
    return ballots


def select_scorable(facts: ProblemFacts, largest: int, *, aggregate: Aggregate, drop: bool) -> Ints:
    """Rows of the problems that can be scored; raises for the others, unless `drop` leaves them out."""
    voting = aggregate in ("vote", "weighted")
    known, votes, drawn = facts.known, facts.votes | (not voting), facts.drawn
    usable = known & votes & (drawn >= largest)
    if usable.all() or (drop and usable.any()):
        return np.flatnonzero(usable)
    remedy = (
        "or too_few='drop' (--too-few drop) leaves them out"
        if usable.any()
        else "there is nothing else to score"
    )
    if not known.all():
        what, advice = "a sample whose correctness is not known", "give gold answers or grades"
        raise NotRecorded(_format_refusal(facts, ~known, what, f"{advice}, {remedy}"))
    if not votes.all():
        what, advice = "grades but no recorded answers to vote on", "record answers"
        raise NotRecorded(_format_refusal(facts, ~votes, what, f"{advice}, {remedy}"))
    what, advice = f"fewer than {largest} samples", "give smaller budgets (--budgets) or collect more"
    raise TooFewSamples(_format_refusal(facts, drawn < largest, what, f"{advice}, {remedy}"))


def _format_refusal(facts: ProblemFacts, bad: Bools, what: str, remedy: str) -> str:
    rows, drawn = np.flatnonzero(bad), facts.drawn
    count = f"{len(rows)} of {len(facts.ids)} problems {'has' if len(rows) == 1 else 'have'}"
    names = ", ".join(f"{facts.ids[row]!r} ({drawn[row]} samples)" for row in rows[:_MAX_NAMED])
    more = f" and {len(rows) - _MAX_NAMED} more" if len(rows) > _MAX_NAMED else ""
    return f"{count} {what}: {names}{more}; {remedy}"


def _select_scores(by: By, ballots: Ballots, rows: Ints) -> By:
    """The caller's own scores for these rows; they were given for all problems, (problems, samples)."""
    if isinstance(by, str | VoteWeights):
        return by
    scores: Floats = np.asarray(by, dtype=np.float64)
    if scores.shape != ballots.classes.shape:
        raise ScoreError(
            f"scores of shape {scores.shape} don't fit these samples; "
            f"give (problems, samples) = {ballots.classes.shape}"
        )
    return scores[rows]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Costs:
    """What each budget costs, and in which unit."""

    amounts: Floats  # (budgets,) the same for every problem, or (problems, budgets)
    unit: str
    note: str = ""  # what was assumed, in words


def compute_costs(
    ballots: Ballots, budgets: Sequence[int], cost: Literal["samples", "tokens"] | TokenPrices, *, rows: Ints
) -> Costs:
    """The cost of every budget for the problems `rows`, by their own mean of output tokens."""
    counts = np.array(budgets, dtype=np.float64)  # (budgets,)
    if isinstance(cost, TokenPrices):
        return Costs(
            amounts=_compute_money(ballots, counts, cost, rows),
            unit=cost.currency,
            note=_describe_assumption(ballots, cost),
        )
    if cost not in _UNITS:
        raise ScoreError(f"cost {cost!r} is not known; give 'samples', 'tokens' or TokenPrices")
    if cost == "samples":
        return Costs(amounts=counts, unit="samples")
    return Costs(amounts=compute_mean_output(ballots, rows)[:, None] * counts, unit="tokens")


def _compute_money(ballots: Ballots, counts: Floats, prices: TokenPrices, rows: Ints) -> Floats:
    """(problems, budgets)"""
    output = np.zeros(len(rows))
    if prices.output > 0:
        output = compute_mean_output(ballots, rows) * prices.output / _MILLION
    prompts = count_prompt_tokens(ballots, prices)[rows] * prices.input / _MILLION  # (problems,)
    times = counts if prices.prompts == "each" else np.ones(len(counts))
    return np.asarray(output[:, None] * counts + prompts[:, None] * times)


def compute_mean_output(ballots: Ballots, rows: Ints) -> Floats:
    """Output tokens of a sample, (problems,)."""
    tokens, present = ballots.tokens[rows], ballots.classes[rows] != ABSENT
    unknown = np.flatnonzero((np.isnan(tokens) & present).any(axis=1))
    if len(unknown):
        raise build_missing_tokens_error(
            ballots.ids[rows[unknown[0]]], unknown=len(unknown), problems=len(rows)
        )
    return np.asarray(np.where(present, tokens, 0.0).sum(axis=1) / present.sum(axis=1))


def build_missing_tokens_error(name: str, *, unknown: int, problems: int) -> NotRecorded:
    """The error where problems, `name` the first of them, have samples without a number of tokens."""
    return NotRecorded(
        f"problem {name!r} has samples without a number of tokens "
        f"(the first of {unknown} of {problems} problems); "
        "record them, or give cost='samples' (--cost samples)"
    )


def count_prompt_tokens(ballots: Ballots, prices: TokenPrices) -> Floats:
    """Of every problem of the source, (problems,)."""
    tokens = prices.prompt_tokens
    if tokens is None:
        return np.array([len(prompt) / _TOKEN_CHARACTERS for prompt in ballots.prompts])
    check_prompt_tokens(prices, len(ballots))
    return np.broadcast_to(np.array(tokens, dtype=np.float64), (len(ballots),))


def check_prompt_tokens(prices: TokenPrices, problems: int) -> None:
    """Raises ScoreError where the prompts' tokens are not given for that many problems."""
    tokens = prices.prompt_tokens
    if isinstance(tokens, Sequence) and len(tokens) != problems:
        raise ScoreError(
            f"prompt_tokens of {len(tokens)} problems don't fit these {problems}; "
            "give one for each, or one number for all"
        )


def _describe_assumption(ballots: Ballots, prices: TokenPrices) -> str:
    if prices.prompt_tokens is not None or prices.input == 0 or not len(ballots):
        return ""
    return f"prompt tokens estimated at {_TOKEN_CHARACTERS} characters of the question each"
