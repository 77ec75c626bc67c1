"""`adacompute solve`: the best use of an average budget on recorded samples. Knows no mathematics."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from adacompute.cli.engine import Engine, EngineName, Workers, check_workers, say_engine
from adacompute.cli.options import Budgets, Extract, Json, Percent, PoolPath, settings, wanted_budgets
from adacompute.cli.outcome import Outcome, outcome_object
from adacompute.cli.plan import show_outcome
from adacompute.cli.sharded import shards_from
from adacompute.cli.show import as_json, path_text
from adacompute.cli.sizes import allowed
from adacompute.cli.source import Model, Parameters, ballots_from
from adacompute.cli.ways import (
    Aggregate,
    Cost,
    Currency,
    Estimate,
    Estimator,
    Few,
    How,
    InputPrice,
    OutputPrice,
    Shrink,
    Signal,
    TooFew,
    Unit,
    cost_of,
    scoring,
    spent,
)
from adacompute.config import ScoreConfig
from adacompute.errors import TooFewSamples
from adacompute.evaluate import Scoring, compared, halved
from adacompute.pool import Ballots
from adacompute.records import AccuracyTable, Allocation
from adacompute.scale.stages import Opened, solved
from adacompute.scale.stages import scored as scored_shards
from adacompute.score.shrink import shrink as shrunk
from adacompute.solve import solve as allocated

__all__ = ["solve"]


class Method(StrEnum):
    exact = "exact"
    bisection = "bisection"


Budget = Annotated[
    float, typer.Option(metavar="B", parser=spent, help="The average cost of a problem, e.g. 2.")
]
Solved = Annotated[Method, typer.Option(help="The exact solution, or the paper's bisection for one price.")]


def solve(
    context: typer.Context,
    source: PoolPath,
    budget: Budget,
    budgets: Budgets = None,
    aggregate: How = Aggregate.vote,
    by: Signal = None,
    estimator: Estimate = Estimator.exact,
    cost: Unit = Cost.samples,
    input_price: InputPrice = None,
    output_price: OutputPrice = None,
    currency: Currency = None,
    too_few: Few = TooFew.error,
    shrink: Shrink = False,
    method: Solved = Method.exact,
    model: Model = None,
    parameters: Parameters = None,
    extract: Extract = None,
    percent: Percent = None,
    engine: Engine = EngineName.local,
    workers: Workers = None,
    json: Json = False,
) -> None:
    """Say what an average budget buys at best, and on how many problems it is to be spent.

    An oracle: it chooses with the answers known. Shown beside it are all problems treated alike within the
    same budget (uniform), and the oracle's value when it chooses and is judged on different samples.
    """
    check_workers(engine, workers)
    say_engine(engine)
    config, name = settings(context), path_text(source)
    sizes = wanted_budgets(config.score, budgets)
    default = budgets is None and config.score == ScoreConfig()
    how = scoring(aggregate, by, estimator, cost=cost_of(cost, input_price, output_price, currency))
    read: dict[str, Any] = {"answers": config.answers, "model": model, "parameters": parameters}
    read |= {"extract": extract, "percent": percent}
    ask = _Ask(name=name, budget=budget, how=how, shrink=shrink, method=method, few=too_few)
    if engine is EngineName.ray:
        with shards_from(source, workers=workers, **read) as shards:
            found = _on_shards(shards, sizes, ask, default=default)
    else:
        ballots = ballots_from(source, **read)
        sizes = allowed(ballots, sizes, drop=too_few is TooFew.drop) if default else sizes
        scored = how.table(ballots, sizes, too_few=too_few.value)
        table = shrunk(scored) if shrink else scored
        plan = allocated(table, budget=budget, method=method.value)
        found = _outcome(ballots, scored, table, plan, ask)
    as_json(outcome_object(found)) if json else show_outcome(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ask:
    """What was asked for, but for the samples."""

    name: str
    budget: float
    how: Scoring
    shrink: bool
    method: Method
    few: TooFew


def _on_shards(shards: Opened, sizes: tuple[int, ...], ask: _Ask, *, default: bool) -> Outcome:
    """Scored and solved by Ray; the bracket is made here, from votes without their texts."""
    sizes = allowed(shards.heads, sizes, drop=ask.few is TooFew.drop) if default else sizes
    scored = scored_shards(shards, sizes, too_few=ask.few.value, **ask.how.asked())
    table = shrunk(scored) if ask.shrink else scored
    if ask.method is Method.bisection:
        plan = allocated(table, budget=ask.budget, method="bisection")
    else:
        many = shards.ballots
        plan = solved(table, budget=ask.budget, workers=many.workers, parts=len(many))
    return _outcome(shards.gathered(), scored, table, plan, ask)


def _outcome(
    ballots: Ballots, scored: AccuracyTable, table: AccuracyTable, plan: Allocation, ask: _Ask
) -> Outcome:
    pairs, why = _halved(ballots, scored, shrink=ask.shrink, how=ask.how)
    return Outcome(name=ask.name, scored=scored, table=table, found=compared(scored, plan, pairs), why=why)


def _halved(
    ballots: Ballots, scored: AccuracyTable, *, shrink: bool, how: Scoring
) -> tuple[Sequence[tuple[AccuracyTable, AccuracyTable]], str]:
    """Tables of halves of the samples; none where they are too few, and why."""
    try:
        return halved(ballots, scored, shrink=shrink, how=how), ""
    except TooFewSamples as exc:
        return (), str(exc)
