"""Computes a table of accuracies from recorded samples, for votes over one mode or over several modes."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from adacompute.answers import VoteWeights
from adacompute.errors import NotRecorded, ScoreError, TooFewSamples
from adacompute.pool import Pool
from adacompute.pool.ballots import ABSENT, Ballots, PromptCharge, count_calls
from adacompute.pool.modes import JoinedPool, ModeSet, read_modes
from adacompute.records import AccuracyTable, TokenPrices
from adacompute.score.aggregates import (
    fit_vote_weights,
    score_any_correct,
    score_best_of,
    score_weighted_vote,
)
from adacompute.score.grades import AccuracyEstimates, BlockMap, Floats, Ints, grade_samples, select_scorable
from adacompute.score.mixed_vote import score_mixed_vote
from adacompute.score.plain_vote import score_exact_vote, score_window_vote

Estimator = Literal["exact", "windows"]
Aggregate = Literal["vote", "weighted", "best-of", "any-correct"]
By = Literal["logprob", "entropy"] | VoteWeights | npt.ArrayLike
Budgets = Mapping[str, Sequence[int]] | Sequence[int]

DEFAULT_BUDGETS = (1, 2, 4, 8, 16)
MODE_BUDGETS = (1, 2, 4, 8)  # default numbers of samples of each mode, if there are several modes
# With several modes, `score` allows only these values; it also requires `model` and `parameters` to be None.
_PLAIN_OPTIONS = {"estimator": "exact", "aggregate": "vote", "by": "logprob", "cost": "samples"}
_SEED = 0  # seed of simulations if no generator is given, so that results repeat
_MIN_DRAWS = 2  # minimum number of simulated votes, because an error can't be estimated from one
_SUBSETS = "mean over all subsets of b of a problem's samples"
_RULES = "ties shared, abstentions ignored"
_JACKKNIFE = "standard errors by the jackknife over samples"


def score(
    source: Pool | JoinedPool | Ballots,
    budgets: Budgets | None = None,
    *,
    modes: ModeSet | None = None,
    mixed: bool = True,
    estimator: Estimator = "exact",
    aggregate: Aggregate = "vote",
    by: By = "logprob",
    cost: Literal["samples", "tokens"] | TokenPrices = "samples",
    too_few: Literal["error", "drop"] = "error",
    model: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    rng: np.random.Generator | None = None,
    draws: int = 2000,
    errors: bool = True,
    map_blocks: BlockMap = map,
) -> AccuracyTable:
    """Computes the accuracy of every problem at every budget from recorded samples, with standard errors.

    `aggregate` combines b samples into one answer: "vote" is unweighted, "weighted" is weighted `by` the
    model's confidence. "best-of" takes the best sample `by` log-probability, entropy or your own scores (an
    array of shape (problems, samples), higher is better). "any-correct" is pass@b. Accuracies are means over
    every subset of b samples. If there are more than `draws` subsets, weighted votes are simulated with at
    least `draws`. `estimator="windows"` estimates unweighted votes as in the paper that this package
    implements.

    A problem is an error if it has fewer samples than the largest budget, ungraded samples, or no answers to
    vote on. `too_few="drop"` leaves such problems out and lists them in `table.dropped`. `model` and
    `parameters` select a source if the pool has several. Default `budgets` are 1, 2, 4, 8 and 16 samples.

    Joined pools, or a pool with several sources and `modes`, give a table over modes. It has each mode's
    budgets and, unless `mixed=False`, mixed votes of two modes. Costs have the same unit as the modes' costs;
    without `modes`, a sample costs its mode's mean number of recorded tokens. `budgets` may be given by mode;
    the default is 1, 2, 4 and 8. Columns are named like "qwen x 2" and "smol x 2 + qwen x 1". A mixed vote
    has at most 16 samples of each mode; `errors=False` omits the standard errors of mixed votes.

    `map_blocks` maps a function over blocks of votes, as `map` does; `scale.stages.open_shards` makes one
    that runs on Ray.

    >>> from adacompute.pool import bundled
    >>> with bundled("words") as pool:
    ...     table = score(pool, budgets=(1, 16))
    >>> table.accuracy.mean(axis=0).round(2).tolist()
    [0.64, 0.85]
    """
    _check_choice("too_few", too_few, ("error", "drop"))
    several = isinstance(source, Ballots) and len(source.modes) > 1
    if modes is not None or several or isinstance(source, JoinedPool):
        options = {"estimator": estimator, "aggregate": aggregate, "by": by, "cost": cost}
        _check_mode_options({**options, "model": model, "parameters": parameters})
        return _score_modes(source, modes, budgets, mixed=mixed, too_few=too_few, errors=errors)
    _check_choice("estimator", estimator, get_args(Estimator))
    _check_choice("aggregate", aggregate, get_args(Aggregate))
    if estimator == "windows" and aggregate != "vote":
        raise ScoreError("estimator='windows' works only with aggregate='vote'; give estimator='exact'")
    sizes = check_budgets(DEFAULT_BUDGETS if budgets is None else budgets)
    all_ballots = _read_ballots(source, model, parameters)
    rows = select_scorable(all_ballots, sizes[-1], aggregate=aggregate, drop=too_few == "drop")
    costs = compute_costs(all_ballots, sizes, cost, rows=rows)
    kept_ballots = all_ballots if len(rows) == len(all_ballots) else all_ballots.only(rows)
    by = _select_scores(by, all_ballots, rows)
    scored, protocol = _estimate(
        kept_ballots, sizes, estimator, aggregate, by, rng=rng, draws=draws, map_blocks=map_blocks
    )
    dropped_rows = set(range(len(all_ballots))) - set(rows.tolist())
    return AccuracyTable.of(
        scored.accuracy,
        costs=costs.amounts,
        modes=sizes,
        standard_error=scored.standard_error,
        ids=kept_ballots.ids,
        unit=costs.unit,
        dropped=[all_ballots.ids[row] for row in sorted(dropped_rows)],
        protocol="; ".join(filter(None, [protocol, costs.note])),
    )


@dataclass(frozen=True, slots=True)
class ModeColumn:
    """A column of a table over several modes: the number of samples from one mode, or from each of two.

    >>> str(ModeColumn((("smol", 2), ("qwen", 1))))
    'smol x 2 + qwen x 1'
    """

    draws: tuple[tuple[str, int], ...]  # pairs: a mode's name, and the number of samples drawn from it

    def __str__(self) -> str:
        return " + ".join(f"{name} x {count}" for name, count in self.draws)


def list_columns(
    modes: ModeSet, budgets: Budgets = MODE_BUDGETS, *, mixed: bool = True
) -> tuple[ModeColumn, ...]:
    """Lists the columns of a table over several modes: each mode's budgets, then mixed votes of each pair.

    Leaves out modes with infinite cost, which are never drawn.
    """
    sizes = _check_mode_budgets(modes, budgets)
    single = [ModeColumn(((name, count),)) for name, counts in sizes.items() for count in counts]
    mixes = [
        ModeColumn(((first, k), (second, j)))
        for first, second in (combinations(sizes, 2) if mixed else ())
        for k in sizes[first]
        for j in sizes[second]
    ]
    return (*single, *mixes)


def _check_mode_budgets(modes: ModeSet, budgets: Budgets) -> dict[str, tuple[int, ...]]:
    """Checks each mode's budgets; leaves out modes with infinite cost, which are never drawn."""
    names = [mode.name for mode in modes.modes if math.isfinite(mode.cost)]
    if not names:
        raise ScoreError(f"every mode ({', '.join(modes.names)}) costs {math.inf}; give a finite cost")
    if not isinstance(budgets, Mapping):
        return dict.fromkeys(names, check_budgets(budgets))
    if unknown := [name for name in budgets if name not in modes.names]:
        raise ScoreError(f"{unknown[0]!r} in budgets is not a mode; the modes are {', '.join(modes.names)}")
    if missing := [name for name in names if name not in budgets]:
        raise ScoreError(
            f"there are no budgets for mode {missing[0]!r}; give some, e.g. {{{missing[0]!r}: (1, 2)}}, "
            "or leave it out of the modes"
        )
    return {name: check_budgets(budgets[name]) for name in names}


def _check_mode_options(options: Mapping[str, object]) -> None:
    """Raises ScoreError for options that apply to one mode only."""
    for name, value in options.items():
        default = _PLAIN_OPTIONS.get(name)
        if value is not default and not (isinstance(value, str) and value == default):
            raise ScoreError(
                f"{name} {value!r} is for one mode, not for several; leave it out, or score one mode's pool"
            )


def _score_modes(
    source: Pool | JoinedPool | Ballots,
    modes: ModeSet | None,
    budgets: Budgets | None,
    *,
    mixed: bool,
    too_few: Literal["error", "drop"],
    errors: bool,
) -> AccuracyTable:
    """Computes the accuracy table over the modes of joined pools, or of a pool with several sources."""
    recorded = read_modes(source)
    modes = ModeSet.of(recorded) if modes is None else modes
    sizes = _check_mode_budgets(modes, MODE_BUDGETS if budgets is None else budgets)
    columns = list_columns(modes, sizes, mixed=mixed)
    ballots = recorded.select([modes[name] for name in sizes])
    rows = _select_rows(ballots, sizes, drop=too_few == "drop")
    costs = {
        votes.names[0]: _compute_mode_costs(votes, sizes[votes.names[0]], rows) for votes in ballots.parts
    }
    kept = ballots if len(rows) == len(ballots) else ballots.only(rows)
    accuracy, error, notes = _estimate_modes(kept, columns, errors=errors)
    amounts = [
        sum((costs[name].amounts[..., sizes[name].index(count)] for name, count in column.draws), 0.0)
        for column in columns
    ]
    notes += dict.fromkeys(cost.note for cost in costs.values() if cost.note)
    return AccuracyTable.of(
        accuracy,
        costs=np.stack(np.broadcast_arrays(*amounts), axis=-1),
        modes=[str(column) for column in columns],
        standard_error=error,
        ids=kept.ids,
        unit=modes.currency or modes.unit,
        order="any",
        dropped=[ballots.ids[row] for row in sorted(set(range(len(ballots))) - set(rows.tolist()))],
        protocol="; ".join(notes),
    )


def _select_rows(ballots: Ballots, sizes: Mapping[str, Sequence[int]], *, drop: bool) -> Ints:
    """Returns the rows of the problems that can be scored in every mode."""
    rows = np.arange(len(ballots))
    for name, votes in zip(ballots.names, ballots.parts, strict=True):
        try:
            usable = select_scorable(votes, sizes[name][-1], aggregate="vote", drop=drop)
        except ScoreError as exc:
            raise type(exc)(f"mode {name!r}: {exc}") from exc
        rows = np.intersect1d(rows, usable)
    if not len(rows):
        raise ScoreError(
            "no problem can be scored in every mode; give smaller budgets, or record the same problems in all"
        )
    return rows


def _compute_mode_costs(ballots: Ballots, counts: Sequence[int], rows: Ints) -> "Costs":
    mode = ballots.get_mode()
    if mode.prices is None:
        return Costs(amounts=np.array(counts) * mode.cost, unit="")
    return compute_costs(ballots, counts, mode.prices, rows=rows)


def _estimate_modes(
    ballots: Ballots,
    columns: Sequence[ModeColumn],
    *,
    errors: bool,
) -> tuple[Floats, Floats, list[str]]:
    """Returns accuracies, standard errors, and notes on how they were computed.

    The arrays have shape (problems, columns).
    """
    parts = dict(zip(ballots.names, ballots.parts, strict=True))
    accuracy, error = np.empty((2, len(ballots), len(columns)))
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, column in enumerate(columns):
        groups.setdefault(tuple(name for name, _ in column.draws), []).append(place)
    for names, places in groups.items():
        votes, counts = [parts[name] for name in names], [columns[place].draws for place in places]
        if len(names) == 1:
            sizes = [count for ((_, count),) in counts]
            estimates = score_exact_vote(votes[0], grade_samples(votes[0]), sizes)
        else:
            pairs = [(first, second) for (_, first), (_, second) in counts]
            estimates = score_mixed_vote(votes[0], votes[1], pairs, errors=errors)
        accuracy[:, places], error[:, places] = estimates.accuracy, estimates.standard_error
    mixes = any(len(column.draws) > 1 for column in columns)
    method = "plain votes of b samples of one mode" + (
        " and mixed votes of two modes, plain" if mixes else ""
    )
    notes = [f"{method}, mean over all subsets of a problem's samples, {_RULES}"]
    return accuracy, error, [*notes, _JACKKNIFE]


def _estimate(
    ballots: Ballots,
    budgets: Sequence[int],
    estimator: Estimator,
    aggregate: Aggregate,
    by: By,
    *,
    rng: np.random.Generator | None,
    draws: int,
    map_blocks: BlockMap,
) -> tuple[AccuracyEstimates, str]:
    """Estimates accuracies at each budget; also describes the method in words."""
    values = grade_samples(ballots)
    if aggregate == "weighted":
        weights = _choose_weights(ballots, by)
        rng = np.random.default_rng(_SEED) if rng is None else rng
        _check_simulation(rng, draws)
        estimates = score_weighted_vote(
            ballots, values, budgets, weigh=weights, rng=rng, draws=draws, map_blocks=map_blocks
        )
        method = _SUBSETS
        if estimates.simulation_error is not None and estimates.simulated:
            largest = float(np.nanmax(estimates.simulation_error))
            method = f"simulated with at least {draws} subsets a problem, their error up to {largest:.4f}"
        what = f"votes of b samples weighted by {weights.signal}, {method}, {_RULES}"
        return estimates, f"{what}; {_JACKKNIFE}"
    if aggregate == "vote" and estimator == "windows":
        windows = f"plain votes of disjoint windows of b samples in recorded order, {_RULES}"
        return score_window_vote(ballots, values, budgets), f"{windows}; standard errors over windows"
    if aggregate == "vote":
        estimates = score_exact_vote(ballots, values, budgets, map_blocks=map_blocks)
        return estimates, f"plain votes of b samples, {_SUBSETS}, {_RULES}; {_JACKKNIFE}"
    if aggregate == "any-correct":
        estimates = score_any_correct(ballots, values, budgets)
        return estimates, f"whether any of b samples is right, {_SUBSETS}; {_JACKKNIFE}"
    if isinstance(by, VoteWeights):
        raise ScoreError(f"best-of can't rank by {by}; give by='logprob', 'entropy' or scores")
    estimates = score_best_of(ballots, values, budgets, by=by)  # type: ignore[arg-type] # it checks the rest
    name = by if isinstance(by, str) else "scores given"
    return estimates, f"the best of b samples by {name}, {_SUBSETS}, ties shared; {_JACKKNIFE}"


def _choose_weights(ballots: Ballots, by: By) -> VoteWeights:
    """Chooses the vote weights that `by` describes; raises ScoreError if `by` can't weight votes."""
    if isinstance(by, VoteWeights):
        return by
    if not isinstance(by, str) or by not in ("logprob", "entropy"):
        description = repr(by) if isinstance(by, str) else "scores"
        raise ScoreError(
            f"votes can't be weighted by {description}; give by='logprob', 'entropy' or VoteWeights"
        )
    return fit_vote_weights(ballots, "entropy" if by == "entropy" else "logprob")


def _check_simulation(rng: object, draws: object) -> None:
    if not isinstance(rng, np.random.Generator) or not isinstance(draws, int) or draws < _MIN_DRAWS:
        raise ScoreError(f"rng {rng!r} and draws {draws!r} can't be used; give default_rng(seed) and 2000")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ScoreError(f"{name} {value!r} is not known; give one of {', '.join(map(repr, choices))}")


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


def _select_scores(by: By, ballots: Ballots, rows: Ints) -> By:
    """If `by` is an array of scores, returns those of the problems in `rows`; otherwise returns `by`."""
    if isinstance(by, str | VoteWeights):
        return by
    scores: Floats = np.asarray(by, dtype=np.float64)
    if scores.shape != ballots.classes.shape:
        raise ScoreError(
            f"scores of shape {scores.shape} don't fit these samples; "
            f"give (problems, samples) = {ballots.classes.shape}"
        )
    return scores[rows]


_UNITS = ("samples", "tokens")  # units of cost other than money
_MILLION = 1e6


def check_budgets(budgets: object) -> tuple[int, ...]:
    """Checks that budgets are valid numbers of samples; raises ScoreError if they can't be used."""
    sizes: list[Any] = list(budgets) if isinstance(budgets, Iterable) else []
    whole = all(isinstance(b, int | np.integer) and type(b) is not bool and b >= 1 for b in sizes)
    if not sizes or not whole or any(a >= b for a, b in pairwise(sizes)):
        raise ScoreError(
            f"budgets {budgets!r} can't be used; "
            "give whole numbers from 1, ascending, each once, e.g. (1, 2, 4)"
        )
    return tuple(int(b) for b in sizes)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Costs:
    """The cost of each budget, with its unit."""

    amounts: Floats  # cost of each budget; shape (budgets,), or (problems, budgets) if problems differ
    unit: str
    note: str = ""  # describes what the costs assume about prompts


def compute_costs(
    ballots: Ballots, budgets: Sequence[int], cost: Literal["samples", "tokens"] | TokenPrices, *, rows: Ints
) -> Costs:
    """Computes what each number of samples in `budgets` costs, for the problems in `rows`.

    Costs in tokens and money are based on each problem's mean output tokens.
    """
    counts = np.array(budgets, dtype=np.float64)
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
    """Computes the cost of each budget in money; shape (problems, budgets)."""
    output = np.zeros(len(rows))
    if prices.output > 0:
        output = compute_mean_output(ballots, rows) * prices.output / _MILLION
    # cost of each problem's prompt
    prompts = count_prompt_tokens(ballots, prices)[rows] * prices.input / _MILLION
    times = count_calls(counts, choose_charge(ballots, prices).choices)
    return np.asarray(output[:, None] * counts + prompts[:, None] * times)


def compute_mean_output(ballots: Ballots, rows: Ints) -> Floats:
    """Computes each problem's mean output tokens per sample."""
    tokens, present = ballots.tokens[rows], ballots.classes[rows] != ABSENT
    unknown = np.flatnonzero((np.isnan(tokens) & present).any(axis=1))
    if len(unknown):
        raise NotRecorded(
            f"problem {ballots.ids[rows[unknown[0]]]!r} has samples without a number of tokens "
            f"(the first of {len(unknown)} of {len(rows)} problems); "
            "record them, or give cost='samples' (--cost samples)"
        )
    return np.asarray(np.where(present, tokens, 0.0).sum(axis=1) / present.sum(axis=1))


def count_prompt_tokens(ballots: Ballots, prices: TokenPrices) -> Floats:
    """Returns each problem's number of prompt tokens, as given in `prices` or else as recorded with calls."""
    tokens = prices.prompt_tokens
    if isinstance(tokens, Sequence) and len(tokens) != len(ballots):
        raise ScoreError(
            f"prompt_tokens of {len(tokens)} problems don't fit these {len(ballots)}; "
            "give one for each, or one number for all"
        )
    return ballots.count_prompt_tokens(tokens)


def choose_charge(ballots: Ballots, prices: TokenPrices) -> PromptCharge:
    """Decides how prompts are charged: as `prices` says, or else as recorded with the source's calls."""
    if prices.prompts is None:
        return ballots.charge
    return replace(ballots.charge, choices=1 if prices.prompts == "each" else None)


def _describe_assumption(ballots: Ballots, prices: TokenPrices) -> str:
    if prices.prompt_tokens is not None or prices.input == 0 or not len(ballots):
        return ""
    return str(choose_charge(ballots, prices))
