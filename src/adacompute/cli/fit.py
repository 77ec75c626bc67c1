"""`adacompute fit`: a policy learned from recorded samples, saved, and its dial for some budgets.

Knows how to ask and to tell, not how a policy learns.
"""

import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from adacompute.cli.evaluate import Votes, Voting
from adacompute.cli.options import Extract, Json, Percent, PoolPath, settings
from adacompute.cli.show import as_json, counted, fact, line, message, paragraph, path_text, percent, table
from adacompute.cli.source import Model, Parameters, ballots_from
from adacompute.errors import BudgetOutOfRange, PolicyError
from adacompute.evaluate.prepare import weighable
from adacompute.policies.artefact import DOCUMENT
from adacompute.policies.base import Policy
from adacompute.policies.confidence import confidence
from adacompute.policies.registry import POLICIES
from adacompute.pool import Ballots
from adacompute.replay import calibrate, replay
from adacompute.score.grades import graded, grades

__all__ = ["fit"]

_ASKED = (1.5, 2.0, 3.0, 4.0, 6.0)  # samples on average that the dial is told for
_ORDERS = 20
_DIGITS = 5  # of a price
_SHORT = 0.9  # of a budget: spending less is worth a word
_MOST = 16  # samples a request


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
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 1 <= found <= _MOST:
        raise typer.BadParameter(f"{text!r} is no average number of samples; give 1 to {_MOST}, e.g. 2")
    return found


Which = Annotated[Learned, typer.Option(help="What to learn.")]
Budget = Annotated[
    float | None,
    typer.Option(metavar="B", parser=_average, help="Samples on average; the classifier is fitted for one."),
]
Folder = Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The folder to save it in.")]
With = Annotated[Learner | None, typer.Option(help="What the classifier learns with. [default: xgboost]")]
Waves = Annotated[
    int | None, typer.Option(min=1, help="Rounds of sampling a request, at most (stopping); fewer wait less.")
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
    given: dict[str, Any] = {"longest": min(_MOST, int(ballots.drawn.min()))}
    given["weigh"] = confidence(ballots) if weighable(ballots, votes.value) else None
    if policy is Learned.stopping:
        given["max_waves"] = max_waves
        if votes is Voting.auto and given["weigh"] is not None:
            given["weigh"] = "auto"  # the same, and kept on the scale of what it learns from
    if learner is not None:
        given["model"] = learner.value
    made = _fitted(policy, ballots, given, budget=budget, labels=labels)
    made.save(output)
    found = _found(made, ballots, name=name, folder=path_text(output), budget=budget, labels=labels)
    as_json(found) if json else _show(found)


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


def _fitted(
    policy: Learned, ballots: Ballots, given: dict[str, Any], *, budget: float | None, labels: bool | None
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
    made: Policy, ballots: Ballots, *, name: str, folder: str, budget: float | None, labels: bool | None
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
        "settings": _dials(made, ballots, budget),
        **_named(made, ballots),
    }


def _dials(made: Policy, ballots: Ballots, budget: float | None) -> list[dict[str, Any]]:
    """The dial for each budget, and what it costs and gives on these very problems."""
    if made.dial is None:
        return [_ran(made, ballots, budget, None)]
    found = []
    for asked in sorted({*_ASKED, *([] if budget is None else [budget])}):
        try:
            dial = calibrate(made, ballots, asked, orders=_ORDERS, rng=np.random.default_rng(0))
        except BudgetOutOfRange as exc:
            if asked == budget:
                message(f"{made.kind}: {exc}")
            continue
        found.append(_ran(made, ballots, asked, None if dial is None else _told(dial)))
    return found


def _told(price: float) -> float:
    """A price as it is printed, rounded up: what is spent is measured at the number that people copy."""
    if price <= 0:
        return price
    step = 10.0 ** (math.floor(math.log10(price)) - _DIGITS + 1)
    return float(f"{math.ceil(price / step - 1e-9) * step:.{_DIGITS}g}")


def _ran(made: Policy, ballots: Ballots, budget: float | None, dial: float | None) -> dict[str, Any]:
    done = replay(made, ballots, dial=dial, orders=_ORDERS, rng=np.random.default_rng(1))
    return {
        "budget": budget,
        "dial": dial,
        "cost": done.cost,
        "agreement": done.agreement,
        "accuracy": None if done.accuracy is None else done.accuracy.mean,
        "waves": done.waves,
        "protocol": "in-sample: on the problems that it was fitted on",
    }


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


def _show(found: dict[str, Any]) -> None:
    problems, samples = counted(found["problems"], "problem"), counted(found["samples"], "sample")
    line(f"{found['policy']}: learned from {problems} and {samples} of {found['pool']}")
    line()
    for label, value in _facts(found):
        fact(label, value)
    line()
    if found["settings"]:
        _show_settings(found)
        line()
    paragraph("What it is worth has to be judged on problems that it has not learned from. Go on with:")
    line(f"  adacompute evaluate {found['pool']} --policies fixed,asc,{found['policy']}")
    line(f"  adacompute answer PROMPTS --policy {found['folder']} --budget 2 --endpoint URL -o answers.jsonl")
    line(f"  python: adacompute.load_policy({found['folder']!r})")


def _facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    graded_ = f"correctness of {counted(found['labels'], 'problem')}"
    waves = found["max_waves"]
    facts = [
        ("saved in", found["folder"]),
        ("learned", graded_ if found["labels"] else "agreement with the vote of all samples: no labels"),
        ("votes", found["votes"]),
        ("asks for", f"at most {found['longest']} samples" + (f" in {waves} rounds" if waves else "")),
    ]
    if "imitation" in found:
        counts = ", ".join(f"{n:,} × {budget}" for budget, n in found["oracle_counts"].items())
        facts.append(("oracle", f"gives {counts} samples"))
        names = f"names the oracle's budget on {percent(found['imitation'])} of these problems, in-sample"
        facts.append(("imitation", f"{names} (always the commonest: {percent(found['majority'])})"))
    return facts


def _show_settings(found: dict[str, Any]) -> None:
    dial = found["dial"]
    headings = [
        "samples on average",
        *([dial] if dial else []),
        "spent",
        "rounds",
        "agrees with the full vote",
    ]
    rows = []
    for one in found["settings"]:
        own = [f"{one['dial']:.{_DIGITS}g}"] if dial else []
        rows.append(
            [
                f"{one['budget']:g}",
                *own,
                f"{one['cost']:.2f}",
                f"{one['waves']:.1f}",
                percent(one["agreement"]),
            ]
        )
    table(headings, rows)
    paragraph("(by replay of these very samples, which needs no labels)", indent=2)
    if dial and any(one["cost"] < _SHORT * one["budget"] for one in found["settings"]):
        paragraph(
            "Many requests stand alike here, so one price can't meet every budget: where less is spent than "
            "asked for, mix two of these prices by lot.",
            indent=2,
        )
