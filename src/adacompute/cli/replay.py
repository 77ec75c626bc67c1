"""`adacompute replay`: what a saved policy costs and gives on recorded samples. Knows no policy's work."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from adacompute.cli.engine import Engine, EngineName, Workers, check_workers, say_engine
from adacompute.cli.options import Extract, Json, Percent, PoolPath, settings
from adacompute.cli.sharded import shards_from
from adacompute.cli.show import as_json, counted, fact, interval, line, message, paragraph, path_text, percent
from adacompute.cli.source import Model, Parameters, ballots_from
from adacompute.cli.ways import Few, TooFew, paid, spent
from adacompute.policies.base import Policy
from adacompute.policies.registry import load_policy
from adacompute.replay import Replayed, calibrate
from adacompute.replay import replay as replay_here
from adacompute.scale.stages import calibrate_shards, replayed

__all__ = ["replay"]

Folder = Annotated[Path, typer.Option("--policy", metavar="DIR", help="The policy, as `fit` saved it.")]
Budget = Annotated[
    float | None,
    typer.Option(metavar="B", parser=spent, help="Samples a request on average: the price is found for it."),
]
PriceOf = Annotated[
    float | None,
    typer.Option(metavar="X", parser=paid, help="The policy's price (its threshold, if it has that)."),
]
Orders = Annotated[int, typer.Option(min=1, help="Random orders of each problem's samples, at least.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the random orders and the interval.")]


def replay(
    context: typer.Context,
    source: PoolPath,
    policy: Folder,
    budget: Budget = None,
    price: PriceOf = None,
    orders: Orders = 100,
    seed: Seed = 0,
    too_few: Few = TooFew.error,
    model: Model = None,
    parameters: Parameters = None,
    extract: Extract = None,
    percent: Percent = None,
    engine: Engine = EngineName.local,
    workers: Workers = None,
    json: Json = False,
) -> None:
    """Say what a saved policy costs and how often it is right on a pool, as if live.

    It draws the recorded samples in random orders. A result on problems that the policy was fitted on is
    in-sample, and says so: `evaluate` keeps them apart.
    """
    check_workers(engine, workers)
    say_engine(engine)
    made = load_policy(policy)
    _check_dial(made, budget, price)
    read: dict[str, Any] = {"answers": settings(context).answers, "model": model, "parameters": parameters}
    read |= {"extract": extract, "percent": percent}
    way: dict[str, Any] = {"orders": orders, "too_few": too_few.value}

    def found_by(
        calibrated: Callable[..., float | None], played: Callable[..., Replayed], on: object
    ) -> Replayed:
        dial = price
        if budget is not None:
            dial = calibrated(made, on, budget, rng=np.random.default_rng(seed), **way)
        return played(made, on, price=dial, rng=np.random.default_rng(seed), **way)

    if engine is EngineName.ray:
        with shards_from(source, workers=workers, **read) as shards:
            found = found_by(calibrate_shards, replayed, shards)
    else:
        found = found_by(calibrate, replay_here, ballots_from(source, **read))
    if found.in_sample:
        message(
            f"in-sample: the policy was fitted on {found.in_sample} of these "
            f"{counted(found.problems, 'problem')}; give samples of others, or use evaluate"
        )
    body = {"pool": path_text(source), "budget": budget, **found.to_dict()}
    as_json(body) if json else _show(found, path_text(source))


def _check_dial(policy: Policy, budget: float | None, price: float | None) -> None:
    if policy.dial is None:
        if budget is not None or price is not None:
            raise typer.BadParameter(
                f"the {policy.kind} policy has no dial: it was made for one budget; leave --budget and "
                "--price out"
            )
        return
    if (budget is None) == (price is None):
        raise typer.BadParameter(f"the {policy.kind} policy needs --budget B or --price X, one of them")


def _show(found: Replayed, name: str) -> None:
    left_out = f" ({len(found.dropped):,} left out)" if found.dropped else ""
    at = "" if found.dial is None else f" at {found.dial:.4g}"
    line(f"{name}: {counted(found.problems, 'problem')}{left_out}, policy {found.policy}{at}")
    line()
    fact("cost", f"{found.cost:.3g} samples a request on average")
    right = found.accuracy
    if right is None:
        fact("accuracy", "not known: no problem has grades or a gold answer")
    else:
        fact("accuracy", f"{percent(right.mean)} ({interval(right.low, right.high)} over problems)")
    fact("agreement", f"{percent(found.agreement)} with the vote of all samples")
    fact("waves", f"{found.waves:.3g} on average, {found.most_waves} at most")
    if found.tokens is not None:
        fact("tokens", f"{found.tokens:,.0f} a request on average")
    line()
    paragraph(f"({found.protocol})", indent=2)
