"""`adacompute replay`: shows what a saved policy costs, and how often it is right on recorded samples."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from adacompute.cli.modes import (
    JoinOptions,
    format_draws,
    parse_mode_budget,
    refuse_beside_modes,
    warn_unspent,
)
from adacompute.cli.options import EngineOptions, JsonFlag, load_settings, parse_budget, parse_price
from adacompute.cli.pool_options import SourceOptions, TooFewOption, open_ballots
from adacompute.cli.terminal import (
    format_count,
    format_interval,
    format_path,
    format_percent,
    print_fact,
    print_json,
    print_line,
    print_message,
    print_paragraph,
)
from adacompute.policies import load_policy
from adacompute.policies.base import Policy
from adacompute.pool import Ballots
from adacompute.pool.modes import ModeSet
from adacompute.replay import Replayed, calibrate
from adacompute.replay import replay as replay_here
from adacompute.score.grades import BlockMap

PolicyFolder = Annotated[Path, typer.Option("--policy", metavar="DIR", help="Policy folder from `fit`.")]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="B",
        help="Average samples per request (for several modes: cost); finds the price for it.",
    ),
]
PriceOption = Annotated[
    float | None,
    typer.Option(metavar="X", parser=parse_price, help="Price or threshold, instead of --budget."),
]
OrdersOption = Annotated[int, typer.Option(min=1, help="Fewest random orders of each problem's samples.")]
OrderSeedOption = Annotated[int, typer.Option(min=0, help="Seed of the random orders and the interval.")]


def replay(
    context: typer.Context,
    *,
    samples: JoinOptions,
    policy: PolicyFolder,
    budget_text: BudgetOption = None,
    price: PriceOption = None,
    orders: OrdersOption = 100,
    seed: OrderSeedOption = 0,
    too_few: TooFewOption = "error",
    which: SourceOptions,
    engine: EngineOptions,
    json: JsonFlag = False,
) -> None:
    """Show what a saved policy costs, and how often it is right.

    Runs the policy as if live on recorded samples, in random orders. If some problems are those that the
    policy was fitted on, the output says that the result is in-sample; `evaluate` avoids this. A policy over
    several modes needs --join or a pool with several models; its modes cost what they did in `fit`.
    """
    budget = None if budget_text is None else parse_budget(budget_text)
    engine.announce()
    loaded_policy = load_policy(policy)
    mode_set = loaded_policy.mode_set
    _check_dial(loaded_policy, budget, price)
    if mode_set is not None:
        refuse_beside_modes(which, engine=engine.engine if engine.is_ray else None)
        budget = None if budget is None else parse_mode_budget(budget, mode_set)
    elif samples.join:
        raise typer.BadParameter(
            f"is for a policy over several modes, and {format_path(policy)} is {loaded_policy.kind}",
            param_hint="--join",
        )
    answers = load_settings(context).answers
    opened: AbstractContextManager[tuple[Ballots, BlockMap]]
    if mode_set is None:
        opened = open_ballots(samples.get_source(), answers, samples, which, engine=engine)
    else:
        opened = nullcontext((samples.read_modes(answers), map))
    with opened as (ballots, map_blocks):
        options: dict[str, Any] = {"orders": orders, "too_few": too_few, "map_blocks": map_blocks}
        if budget is not None:
            price = calibrate(loaded_policy, ballots, budget, rng=np.random.default_rng(seed), **options)
        result = replay_here(loaded_policy, ballots, price=price, rng=np.random.default_rng(seed), **options)
    if mode_set is not None and isinstance(budget, float):
        warn_unspent(result.cost, budget, mode_set)
    if result.in_sample:
        print_message(
            f"in-sample: the policy was fitted on {result.in_sample} of these "
            f"{format_count(result.problems, 'problem')}; give samples of others, or use evaluate"
        )
    body = {**samples.describe(), "budget": budget, **result.to_dict()}
    print_json(body) if json else _show(result, samples.name, mode_set)


def _check_dial(policy: Policy, budget: float | str | None, price: float | None) -> None:
    if policy.dial is None:
        if budget is not None or price is not None:
            raise typer.BadParameter(
                f"the {policy.kind} policy was made for one budget; leave --budget and --price out"
            )
        return
    if (budget is None) == (price is None):
        raise typer.BadParameter(f"the {policy.kind} policy needs --budget B or --price X, one of them")


def _show(result: Replayed, name: str, mode_set: ModeSet | None) -> None:
    left_out = f" ({len(result.dropped):,} left out)" if result.dropped else ""
    dial_text = "" if result.dial is None else f" at {result.dial:.4g}"
    print_line(
        f"{name}: {format_count(result.problems, 'problem')}{left_out}, policy {result.policy}{dial_text}"
    )
    print_line()
    if mode_set is None:
        print_fact("cost", format_count(f"{result.cost:.3g}", "sample") + " a request on average")
    else:
        print_fact("cost", f"{mode_set.format_cost(result.cost)} on average")
        print_fact("modes", format_draws(dict(result.draws or {})))
    accuracy = result.accuracy
    if not accuracy.problems:
        print_fact("accuracy", "not known: no problem has grades or a gold answer")
    else:
        known = "too few groups of similar problems for an interval"
        if accuracy.low is not None or accuracy.problems == 1:
            known = f"{format_interval(accuracy.low, accuracy.high)} over problems"
        print_fact("accuracy", f"{format_percent(accuracy.mean)} ({known})")
    reference = "all samples" if mode_set is None else "the most expensive mode's samples"
    print_fact("agreement", f"{format_percent(result.agreement)} with the vote of {reference}")
    if result.certified is not None:
        print_fact("certified", f"{format_percent(result.certified)} of the answers")
    if mode_set is None:
        print_fact("waves", f"{result.waves:.3g} on average, {result.most_waves} at most")
    if mode_set is None and result.tokens is not None:
        print_fact("tokens", f"{result.tokens:,.0f} a request on average")
    print_line()
    print_paragraph(f"({result.protocol})", indent=2)
