"""`adacompute evaluate`: policies side by side at the same average cost. Knows no mathematics."""

import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from adacompute.cli.compared import show_evaluation
from adacompute.cli.options import Extract, Json, Percent, PoolPath, settings
from adacompute.cli.show import as_json, counted, message, path_text
from adacompute.cli.source import Model, Parameters, ballots_from
from adacompute.evaluate import evaluate as evaluated
from adacompute.evaluate.protocols import BUDGETS, NAMES
from adacompute.evaluate.workers import Progress as Told
from adacompute.policies.registry import POLICIES
from adacompute.pool import Ballots

__all__ = ["Votes", "Voting", "evaluate", "progress"]

_MOST = 16  # samples a request
_WORKERS = 4  # processes, at most, where nobody says how many
_STEPS = 10  # lines of progress where stderr is no terminal


class Protocols(StrEnum):
    held_out = "held-out"
    paper = "paper"


class Voting(StrEnum):
    auto = "auto"
    plain = "plain"
    weighted = "weighted"


Averages = Annotated[
    str | None,
    typer.Option(metavar="LIST", help="Samples on average, e.g. 1.5,2,3. [default: 1.5,2,3,4,6]"),
]
Players = Annotated[
    str | None,
    typer.Option(
        metavar="LIST", help=f"Of {', '.join(sorted(POLICIES))}; or all. [default: all but shuffled]"
    ),
]
How = Annotated[
    Protocols, typer.Option(help="Fitted on other problems than judged, or as the paper did (in-sample).")
]
Folds = Annotated[
    int, typer.Option(min=2, help="Parts of the problems, each judged by what the others taught.")
]
Seeds = Annotated[int, typer.Option(min=1, help="Random splits, for --protocol paper.")]
Votes = Annotated[
    Voting, typer.Option(help="Weighted by confidence where every sample has log-probabilities (auto).")
]
Orders = Annotated[int, typer.Option(min=1, help="Random orders of each problem's samples.")]
Seed = Annotated[int, typer.Option(min=0, help="Of folds, orders and intervals.")]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Processes; the result is the same. [default: the cores, at most 4]"),
]


def evaluate(
    context: typer.Context,
    source: PoolPath,
    budgets: Averages = None,
    policies: Players = None,
    protocol: How = Protocols.held_out,
    folds: Folds = 5,
    seeds: Seeds = 3,
    votes: Votes = Voting.auto,
    orders: Orders = 50,
    seed: Seed = 0,
    workers: Workers = None,
    model: Model = None,
    parameters: Parameters = None,
    extract: Extract = None,
    percent: Percent = None,
    json: Json = False,
) -> None:
    """Say what each policy buys at the same average cost, on problems it has not learned from.

    Intervals are 95% over problems, by bootstrap, paired where policies are compared. Without gold answers,
    agreement with the vote of all of a problem's samples stands in for accuracy.
    """
    name, names = path_text(source), _names(policies)
    asked = None if budgets is None else _numbers(budgets)
    ballots = ballots_from(
        source,
        answers=settings(context).answers,
        model=model,
        parameters=parameters,
        extract=extract,
        percent=percent,
    )
    with progress(f"evaluating {name}") as told:
        found = evaluated(
            ballots,
            budgets=_allowed(ballots) if asked is None else asked,
            policies=names,
            protocol=protocol.value,
            folds=folds,
            seeds=seeds,
            votes=votes.value,
            orders=orders,
            rng=np.random.default_rng(seed),
            workers=workers or min(_WORKERS, os.cpu_count() or 1),
            progress=told,
        )
    as_json({"pool": name, **found.to_dict()}) if json else show_evaluation(found, name=name)


@contextmanager
def progress(what: str) -> Iterator[Told]:
    """How far a long job is, on stderr: a bar on a terminal, else a line now and then."""
    start = time.monotonic()
    if not sys.stderr.isatty():

        def line(done: int, total: int, last: str) -> None:
            if done == total or done * _STEPS // total > (done - 1) * _STEPS // total:
                message(f"{what}: {done} of {total} ({last}), {time.monotonic() - start:.0f} s")

        yield line
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what)

        def at(done: int, total: int, last: str) -> None:
            bar.update(task, completed=done, total=total, description=f"{what}: {last}")

        yield at


def _names(text: str | None) -> tuple[str, ...]:
    if text is None:
        return NAMES
    if text.strip() == "all":
        return (*(name for name in POLICIES if name != "oracle"), "oracle")
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    for name in names:
        if name not in POLICIES:
            known = ", ".join(sorted(POLICIES))
            raise typer.BadParameter(
                f"there is no policy {name!r}; the policies are {known}", param_hint="--policies"
            )
    if not names or len(set(names)) < len(names):
        raise typer.BadParameter(f"{text!r} names no policy, or one twice", param_hint="--policies")
    return names


def _numbers(text: str) -> tuple[float, ...]:
    """Average budgets as given, refused before any sample is looked at."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError as exc:
        why = f"{text!r} is no list of numbers; give e.g. 1.5,2,3"
        raise typer.BadParameter(why, param_hint="--budgets") from exc
    for budget in found:
        if not (math.isfinite(budget) and 1 <= budget <= _MOST):
            why = f"{budget:g} samples on average can't be spent; give 1 to {_MOST}"
            raise typer.BadParameter(why, param_hint="--budgets")
    return found


def _allowed(ballots: Ballots) -> tuple[float, ...]:
    """Those of the default budgets that the samples allow; says so where they are fewer."""
    fewest = int(ballots.drawn.min())
    found = tuple(budget for budget in BUDGETS if budget <= fewest)
    if found and found != BUDGETS:
        listed = ", ".join(f"{budget:g}" for budget in found)
        message(f"evaluated at {listed}: the problem with fewest samples has {counted(fewest, 'sample')}")
    return found or BUDGETS[:1]
