"""`adacompute fit`: a policy learned from recorded samples, saved, and its dial for some budgets.

Knows how to ask and to tell, not how a policy learns.
"""

import functools
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from adacompute.cli.evaluate import Votes, Voting
from adacompute.cli.fitted import show_fitted
from adacompute.cli.lengths import MOST, enough
from adacompute.cli.options import Extract, Json, Percent, PoolPath, settings
from adacompute.cli.show import as_json, counted, message, path_text
from adacompute.cli.source import Model, Parameters, ballots_from
from adacompute.cli.ways import number
from adacompute.errors import PolicyError
from adacompute.evaluate.charted import BUDGETS, charted
from adacompute.evaluate.prepare import weighable
from adacompute.policies.artefact import DOCUMENT
from adacompute.policies.base import Policy
from adacompute.policies.chart import Chart, write_chart
from adacompute.policies.confidence import confidence
from adacompute.policies.registry import POLICIES
from adacompute.policies.sight import Sight
from adacompute.pool import Ballots
from adacompute.score.grades import graded, grades

__all__ = ["fit"]

_FEW = 30  # problems; what is learned from fewer is hardly more than their luck


class Learned(StrEnum):
    stopping = "stopping"
    curve = "curve"
    classifier = "classifier"


class Learner(StrEnum):
    xgboost = "xgboost"
    logistic = "logistic"
    svm = "svm"
    forest = "forest"
    mlp = "mlp"


def _average(text: str) -> float:
    found = number(text)
    if not 1 <= found <= MOST:
        raise typer.BadParameter(f"{text!r} is no average number of samples; give 1 to {MOST}, e.g. 2")
    return found


Which = Annotated[Learned, typer.Option(help="What to learn.")]
Budget = Annotated[
    float | None,
    typer.Option(metavar="B", parser=_average, help="Samples on average; the classifier is fitted for one."),
]
Folder = Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The folder to save it in.")]
With = Annotated[Learner | None, typer.Option(help="What the classifier learns with. [default: xgboost]")]
Features = Annotated[
    str | None,
    typer.Option(
        metavar="PARTS",
        help="What the curve or classifier sees: text, embedding, entropy, joined by +; without entropy it "
        "decides beforehand. [default: text+entropy]",
    ),
]
Waves = Annotated[
    int | None, typer.Option(min=1, help="Rounds of sampling a request, at most (stopping); fewer wait less.")
]
Longest = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=256,
        help="Samples a request, at most: learned from problems with as many. [default: as recorded, to 16]",
    ),
]
Labels = Annotated[
    bool | None,
    typer.Option(
        "--labels/--no-labels",
        help="From correctness, or from agreement with the full vote (stopping). [default: as recorded]",
    ),
]


def fit(
    context: typer.Context,
    source: PoolPath,
    policy: Which = Learned.stopping,
    budget: Budget = None,
    output: Folder = Path("policy"),
    learner: With = None,
    features: Features = None,
    longest: Longest = None,
    max_waves: Waves = None,
    labels: Labels = None,
    votes: Votes = Voting.auto,
    model: Model = None,
    parameters: Parameters = None,
    extract: Extract = None,
    percent: Percent = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a policy that is there.")] = False,
    json: Json = False,
) -> None:
    """Learn from recorded samples when to stop sampling, save it, and say what its dial has to be.

    The dial for a budget needs no labels: what a policy costs is known without them.
    """
    _refuse_idle(policy, budget=budget, learner=learner, max_waves=max_waves, labels=labels)
    _check_features(policy, features)
    if not overwrite and (output / DOCUMENT).exists():
        raise PolicyError(f"{path_text(output)}: holds a policy already; give another name, or --overwrite")
    name = path_text(source)
    ballots = ballots_from(
        source,
        answers=settings(context).answers,
        model=model,
        parameters=parameters,
        extract=extract,
        percent=percent,
    )
    every = len(ballots)
    ballots, most = enough(ballots, longest)
    given: dict[str, Any] = {"longest": most}
    given["weigh"] = confidence(ballots) if weighable(ballots, votes.value) else None
    if policy is Learned.stopping:
        given["max_waves"] = max_waves
        if votes is Voting.auto and given["weigh"] is not None:
            given["weigh"] = "auto"  # the same, and kept on the scale of what it learns from
    if learner is not None:
        given["model"] = learner.value
    if features is not None:
        given["features"] = features
    refit = functools.partial(_fitted, policy, given=given, budget=budget, labels=labels)
    made = refit(ballots)
    made.save(output)
    chart = charted(made, ballots, refit=refit, budgets=_budgets(made, budget))
    if chart is not None:
        write_chart(output, chart)
    found = _found(made, ballots, chart, name=name, folder=path_text(output), labels=labels)
    found["left_out"] = every - len(ballots)
    if budget is not None and made.dial is not None:
        _say_unreached(found, budget)
    if len(ballots) < _FEW:
        message(f"{name}: learned from {counted(len(ballots), 'problem')}, which is few; give {_FEW} or more")
    as_json(found) if json else show_fitted(found)


def _say_unreached(found: dict[str, Any], budget: float) -> None:
    reached = [one["budget"] for one in found["settings"]]
    if budget not in reached:
        some = (
            f"give one of {', '.join(f'{one:g}' for one in reached)}" if reached else "collect more samples"
        )
        message(f"{found['policy']}: budget {budget:g} can't be reached on these samples; {some}")


def _refuse_idle(
    policy: Learned,
    *,
    budget: float | None,
    learner: Learner | None,
    max_waves: int | None,
    labels: bool | None,
) -> None:
    """Options that the policy has no use for are an error: they would be thought to have done something."""
    if policy is Learned.classifier and budget is None:
        raise typer.BadParameter(
            "the classifier is fitted for one budget; give e.g. --budget 2", param_hint="--budget"
        )
    for option, given, owner in (
        ("--learner", learner, Learned.classifier),
        ("--max-waves", max_waves, Learned.stopping),
        ("--labels", labels, Learned.stopping),
    ):
        if given is not None and policy is not owner:
            raise typer.BadParameter(f"is for --policy {owner.value}, not {policy.value}", param_hint=option)


def _check_features(policy: Learned, features: str | None) -> None:
    if features is None:
        return
    if policy is Learned.stopping:
        raise typer.BadParameter(
            f"is for --policy {Learned.curve} and {Learned.classifier}, not {policy}", param_hint="--features"
        )
    try:
        Sight.of(features)
    except PolicyError as exc:
        raise typer.BadParameter(str(exc), param_hint="--features") from exc


def _fitted(
    policy: Learned, ballots: Ballots, *, given: dict[str, Any], budget: float | None, labels: bool | None
) -> Policy:
    made: Any = POLICIES[policy.value](**given)
    if policy is Learned.classifier:
        found: Policy = made.fit(ballots, budget=budget)
    elif policy is Learned.stopping:
        found = made.fit(ballots, labels=labels)
    else:
        found = made.fit(ballots)
    return found


def _found(
    made: Policy, ballots: Ballots, chart: Chart | None, *, name: str, folder: str, labels: bool | None
) -> dict[str, Any]:
    """Plain data, for JSON: what was learned from, where it is, and the dial for some budgets."""
    known = int(graded(ballots, grades(ballots)).sum())
    used = made.kind != "stopping" or labels is not False
    return {
        "pool": name,
        "policy": made.kind,
        "folder": folder,
        "problems": len(ballots),
        "samples": int(ballots.drawn.sum()),
        "labels": known if used else 0,
        "votes": "plain" if made.weigh is None else f"weighted by {made.weigh.signal}",
        "longest": made.longest,
        "max_waves": made.max_waves,
        "dial": made.dial,
        "settings": _settings(chart),
        **_named(made, ballots),
    }


def _budgets(made: Policy, budget: float | None) -> tuple[float, ...]:
    if made.dial is None:
        return (1.0 if budget is None else budget,)
    return tuple(sorted({*BUDGETS, *([] if budget is None else [budget])}))


def _settings(chart: Chart | None) -> list[dict[str, Any]]:
    """The dial for each budget, and what it costs and gives."""
    return [
        {
            "budget": row.budget,
            "dial": row.price,
            "cost": row.cost,
            "agreement": row.stays,
            "accuracy": row.accuracy,
            "uniform": row.uniform,
            "waves": row.waves,
            "share": row.agreement,
            "share_deviation": row.deviation,
            "protocol": chart.protocol,
        }
        for row in (() if chart is None else chart.rows)
        if chart is not None
    ]


def _named(made: Any, ballots: Ballots) -> dict[str, Any]:  # noqa: ANN401 - what a kind has of its own
    if made.kind != "classifier":
        return {}
    labels, predicted = made.labels_of(ballots, made.budget_), made.predicted(ballots)
    budgets, counts = np.unique(labels, return_counts=True)
    return {
        "learner": made.model,
        "oracle_counts": dict(zip(map(str, budgets.tolist()), counts.tolist(), strict=True)),
        "imitation": float((labels == predicted).mean()),
        "majority": float(counts.max() / counts.sum()),
    }
