"""`adacompute solve`: the best use of an average budget on recorded samples. Knows no mathematics."""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import orjson
import typer

from adacompute.cli.options import (
    Budgets,
    Extract,
    Json,
    Percent,
    PoolPath,
    opened,
    settings,
    tasks_of,
    wanted_budgets,
)
from adacompute.cli.plan import plan_object, show_plan
from adacompute.cli.show import as_json, path_text
from adacompute.errors import ScoreError, TooFewSamples
from adacompute.evaluate import compared, halved
from adacompute.pool import Ballots, Pool
from adacompute.records import AccuracyTable
from adacompute.score import Price, score
from adacompute.score.shrink import shrink as shrunk
from adacompute.solve import solve as allocated

__all__ = ["solve"]


class Aggregate(StrEnum):
    vote = "vote"
    weighted = "weighted"
    best_of = "best-of"
    any_correct = "any-correct"


class By(StrEnum):
    logprob = "logprob"
    entropy = "entropy"


class Estimator(StrEnum):
    exact = "exact"
    windows = "windows"


class Cost(StrEnum):
    samples = "samples"
    tokens = "tokens"
    money = "money"


class TooFew(StrEnum):
    error = "error"
    drop = "drop"


class Method(StrEnum):
    exact = "exact"
    bisection = "bisection"


def _number(text: str) -> float:
    """Our own words for what is no number: they name it."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise typer.BadParameter(f"{text!r} is no number; give e.g. 2")
    return found


Budget = Annotated[
    float, typer.Option(metavar="B", parser=_number, help="The average cost of a problem, e.g. 2.")
]
How = Annotated[Aggregate, typer.Option(help="How the samples of a problem become one answer.")]
Signal = Annotated[By | None, typer.Option(help="What weighted and best-of go by. [default: logprob]")]
Estimate = Annotated[
    Estimator, typer.Option(help="All subsets of the samples, or the paper's disjoint windows.")
]
Unit = Annotated[Cost, typer.Option(help="What --budget counts.")]
PriceIn = Annotated[
    float | None,
    typer.Option(metavar="P", parser=_number, help="Of a million prompt tokens, for --cost money."),
]
PriceOut = Annotated[
    float | None,
    typer.Option(metavar="P", parser=_number, help="Of a million output tokens, for --cost money."),
]
Few = Annotated[TooFew, typer.Option(help="What to do about problems that can't be scored at every budget.")]
Shrink = Annotated[
    bool, typer.Option("--shrink", help="Pull each problem toward those like it before choosing.")
]
Solved = Annotated[Method, typer.Option(help="The exact solution, or the paper's bisection for one price.")]
Model = Annotated[str | None, typer.Option(metavar="NAME", help="Which model, where a pool holds several.")]
Parameters = Annotated[
    str | None,
    typer.Option(metavar="JSON", help="Which of its sampling parameters, where there are several."),
]


def solve(
    context: typer.Context,
    source: PoolPath,
    budget: Budget,
    budgets: Budgets = None,
    aggregate: How = Aggregate.vote,
    by: Signal = None,
    estimator: Estimate = Estimator.exact,
    cost: Unit = Cost.samples,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    too_few: Few = TooFew.error,
    shrink: Shrink = False,
    method: Solved = Method.exact,
    model: Model = None,
    parameters: Parameters = None,
    extract: Extract = None,
    percent: Percent = None,
    json: Json = False,
) -> None:
    """Say what an average budget buys at best, and on how many problems it is to be spent.

    An oracle: it chooses with the answers known. Shown beside it are all problems treated alike at the same
    average cost, and the oracle's value when it chooses and is judged on different samples.
    """
    config, name = settings(context), path_text(source)
    sizes = wanted_budgets(config.score, budgets)
    how = _scoring(aggregate, by, estimator, cost=_cost(cost, price_in, price_out))
    asked, default = tasks_of(config.answers, extract, percent)
    with opened(source, task=asked, default_task=default) as pool:
        ballots = _ballots(pool, model, parameters, name=name)
    scored = score(ballots, sizes, too_few=too_few.value, **how)
    table = shrunk(scored) if shrink else scored
    plan = allocated(table, budget=budget, method=method.value)
    pairs, why = _halved(ballots, table, shrink=shrink, how=how)
    found = compared(scored, plan, pairs)  # it is choosing that luck misleads: all alike needs no shrinking
    if json:
        as_json({"pool": name, **plan_object(table, found)})
    else:
        show_plan(table, found, name=name, why=why)


def _ballots(pool: Pool, model: str | None, parameters: str | None, *, name: str) -> Ballots:
    found = pool.ballots(model, parameters=_parameters(parameters))
    if not len(found):
        raise TooFewSamples(f"{name}: no problem has a sample; collect or import some first")
    return found


def _halved(
    ballots: Ballots, table: AccuracyTable, *, shrink: bool, how: dict[str, Any]
) -> tuple[Sequence[tuple[AccuracyTable, AccuracyTable]], str]:
    """Tables of halves of the samples; none where they are too few, and why."""
    try:
        return halved(ballots, table, shrink=shrink, **how), ""
    except ScoreError as exc:
        return (), str(exc)


def _scoring(aggregate: Aggregate, by: By | None, estimator: Estimator, *, cost: object) -> dict[str, Any]:
    """What `score` is told."""
    ranked = aggregate in (Aggregate.weighted, Aggregate.best_of)
    if by is not None and not ranked:
        raise typer.BadParameter(
            f"{by.value} is for --aggregate weighted or best-of, not {aggregate.value}", param_hint="--by"
        )
    return {
        "aggregate": aggregate.value,
        "estimator": estimator.value,
        "by": (by or By.logprob).value,
        "cost": cost,
    }


def _cost(cost: Cost, price_in: float | None, price_out: float | None) -> str | Price:
    if cost is not Cost.money:
        if price_in is not None or price_out is not None:
            raise typer.BadParameter("prices are for --cost money", param_hint="--price-in, --price-out")
        return cost.value
    if price_in is None or price_out is None:
        raise typer.BadParameter("money needs --price-in and --price-out", param_hint="--cost")
    return Price(input_per_million=price_in, output_per_million=price_out)


def _parameters(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as exc:
        raise typer.BadParameter(f"{text!r} is no JSON ({exc})", param_hint="--parameters") from exc
    if not isinstance(found, dict):
        raise typer.BadParameter(
            f'{text!r} is no object, e.g. {{"temperature": 0.7}}', param_hint="--parameters"
        )
    return found
