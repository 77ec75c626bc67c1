"""`adacompute solve`: the best use of an average budget on recorded samples. Knows no mathematics."""

import math
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
from adacompute.score import Price, score
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


def solve(
    context: typer.Context,
    source: PoolPath,
    budget: Annotated[float, typer.Option(metavar="B", help="The average cost of a problem.")],
    budgets: Budgets = None,
    aggregate: Annotated[
        Aggregate, typer.Option(help="How the samples of a problem become one answer.")
    ] = Aggregate.vote,
    by: Annotated[By | None, typer.Option(help="What weighted and best-of go by. [default: logprob]")] = None,
    estimator: Annotated[
        Estimator, typer.Option(help="All subsets of the samples, or the paper's disjoint windows.")
    ] = Estimator.exact,
    cost: Annotated[Cost, typer.Option(help="What --budget counts.")] = Cost.samples,
    price_in: Annotated[
        float | None, typer.Option(help="Of a million prompt tokens, for --cost money.")
    ] = None,
    price_out: Annotated[
        float | None, typer.Option(help="Of a million output tokens, for --cost money.")
    ] = None,
    too_few: Annotated[
        TooFew, typer.Option(help="What to do about problems that can't be scored at every budget.")
    ] = TooFew.error,
    shrink: Annotated[
        bool, typer.Option("--shrink", help="Pull each problem toward those like it before choosing.")
    ] = False,
    method: Annotated[
        Method, typer.Option(help="The exact solution, or the paper's bisection for one price.")
    ] = Method.exact,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which model, where a pool holds several.")
    ] = None,
    parameters: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Which of its sampling parameters, where there are several."),
    ] = None,
    extract: Extract = None,
    percent: Percent = None,
    json: Json = False,
) -> None:
    """Say what an average budget buys at best, and on how many problems it is to be spent.

    An oracle: it chooses with the answers known. Shown beside it are all problems treated alike at the same
    average cost, and the oracle's value when it chooses and is judged on different samples.
    """
    if not math.isfinite(budget):
        raise typer.BadParameter(f"{budget} is no finite number", param_hint="--budget")
    config = settings(context)
    sizes = wanted_budgets(config.score, budgets)
    how = _scoring(aggregate, by, estimator, cost=_cost(cost, price_in, price_out))
    asked, default = tasks_of(config.answers, extract, percent)
    with opened(source, task=asked, default_task=default) as pool:
        ballots = pool.ballots(model, parameters=_parameters(parameters))
    if not len(ballots):
        raise TooFewSamples(f"{path_text(source)}: no problem has a sample; collect or import some first")
    table = score(ballots, sizes, too_few=too_few.value, shrink=shrink, **how)
    plan = allocated(table, budget=budget, method=method.value)
    try:
        pairs, why = halved(ballots, table, shrink=shrink, **how), ""
    except ScoreError as exc:
        pairs, why = (), str(exc)
    found = compared(table, plan, pairs)
    if json:
        as_json({"pool": path_text(source), **plan_object(table, found)})
        return
    show_plan(table, found, name=path_text(source), why=why)


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
