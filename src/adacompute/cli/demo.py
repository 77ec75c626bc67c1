"""`adacompute demo`: the main job on the recordings inside the package. Knows no numbers of its own."""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adacompute.cli.evaluate import progress
from adacompute.cli.live import FOLDER, live, show_live
from adacompute.cli.options import Json, settings
from adacompute.cli.show import as_json, counted, line, paragraph, path_text, percent, table
from adacompute.errors import PoolNotFound
from adacompute.pool import bundled, bundled_names

if TYPE_CHECKING:
    from adacompute.evaluate import Evaluation, Match
    from adacompute.evaluate.report.record import Report

__all__ = ["demo"]

_WORKERS = 2
_WHO = (
    "uniform: the same number of samples for every problem, at the best mix of two numbers. asc: Adaptive-"
    "Consistency, the published rule that stops when the leader is likely to stay it. stopping: ours, which "
    "stops when the next sample isn't worth its price. gain: over uniform at the same cost, in points, "
    "paired over problems. as good as: so many uniform samples are right as often. In brackets are "
    "95% intervals over problems. USD: output tokens of a million requests at 0.60 per million, and of as "
    "many uniform samples as are as good; an example: `adacompute report` takes your own prices."
)
_NEXT = (
    "adacompute report words -o words        the same page without --quick: all folds, orders and seeds",
    "adacompute fit words -o policy          learn a policy and save it",
    "adacompute local                        serve that model; then, in another terminal:",
    "adacompute serve --upstream http://127.0.0.1:8081/v1 --budget 3 --policy policy   the gateway",
    "docs/quickstart.md                      the same on your own endpoint, in 15 minutes",
)

Recordings = Annotated[
    list[str] | None,
    typer.Argument(metavar="[RECORDING]...", help="Only these. [default: all]", show_default=False),
]


def demo(context: typer.Context, recordings: Recordings = None, json: Json = False) -> None:
    """Show what samples buy on the bundled recordings, write a report of each, and ask a gateway, live."""
    settings(context)  # or it says at once what is wrong with them
    names = _names(recordings or bundled_names())
    found = {name: _reported(name) for name in names}
    if json:
        said = live()
        as_json({**{name: _object(*one) for name, one in found.items()}, "live": said})
        return
    number = counted(len(found), "recording")
    paragraph(f"{number} inside the package: small models, asked each question many times.")
    paragraph("What does an average number of samples buy, when they are spent where they pay?")
    for name, (report, _) in found.items():
        line()
        _show(name, report)
    line()
    paragraph(_WHO)
    line()
    show_live(live())  # after what is certain: a model and a gateway may take long, or fail
    line()
    paragraph("One page of each, with every policy at every budget:")
    for _, page in found.values():
        line(f"  {path_text(page)}")
    line()
    paragraph("Go on with (after `. .venv/bin/activate`, where make has set things up):")
    for words in _NEXT:
        line(f"  {words}")


def _names(asked: Sequence[str]) -> tuple[str, ...]:
    """The recordings, each once; refused before any work where one isn't known or can't be written."""
    # here, for it draws: the other commands start without matplotlib
    from adacompute.evaluate.report.files import may_write

    known = bundled_names()
    for name in asked:
        if name not in known:
            raise PoolNotFound(f"there is no recording {name!r} in the package; there are {', '.join(known)}")
    for name in dict.fromkeys(asked):
        may_write(FOLDER / name)
    return tuple(dict.fromkeys(asked))


def _reported(name: str) -> tuple["Report", Path]:
    """The quick report of a recording, and where its page is."""
    from adacompute.evaluate.report.files import contents, write
    from adacompute.evaluate.report.make import report

    with bundled(name) as pool:
        ballots = pool.ballots()
    with progress(f"report of {name}") as told:
        found = report(
            ballots,
            name=name,
            command=f"adacompute report {name} -o DIR --quick",
            quick=True,
            workers=min(_WORKERS, os.cpu_count() or 1),
            progress=told,
        )
    return found, write(contents(found), FOLDER / name)


def _show(name: str, report: "Report") -> None:
    found, facts = report.evaluation, report.facts
    paragraph(f"{name}: {report.headline}")
    paragraph(
        f"{found.problems:,} problems, {facts['samples_least']} samples each of {facts['model']}; held-out, "
        f"{found.folds} folds, {found.votes} votes",
        indent=2,
        hang=2,
    )
    money = report.money or {}
    heads = ["samples", "uniform", "asc", "stopping", "gain", "as good as", "saved"]
    table(
        [*heads, f"{money['currency']}, 1M requests"],
        [_row(one.budget, found, money) for one in found.verdicts],
    )


def _row(budget: float, found: "Evaluation", money: Mapping[str, Any]) -> list[str]:
    """One average budget: what it buys, what would buy as much uniformly, and both in money."""
    cells = [f"{budget:g}"]
    cells += [_accuracy(found.match(policy, budget)) for policy in ("fixed", "asc", "stopping")]
    ours = found.match("stopping", budget)
    cells += ["–", "–", "–"] if ours is None else [_gain(ours), *_worth(ours)]
    spent = next((one for one in money["rows"] if one["budget"] == budget), None)
    tokens = [] if spent is None else [spent["tokens"], spent["same_as_tokens"]]
    # a million requests, at a price per million tokens
    cells.append(", not ".join(f"{one * money['output_price']:,.0f}" for one in tokens if one) or "–")
    return cells


def _accuracy(match: "Match | None") -> str:
    return "–" if match is None else percent(match.accuracy)


def _gain(match: "Match") -> str:
    from adacompute.evaluate.exhibits import Column, written

    return written(match.gain, Column(name="gain", kind="points"))


def _worth(match: "Match") -> tuple[str, str]:
    """Uniform samples that are as good, and the share of them that is saved."""
    worth = match.worth
    if worth is None:
        return "–", "–"
    if not math.isfinite(worth.mean):
        least = worth.low if worth.low is not None and math.isfinite(worth.low) else None
        return ("more than there are" if least is None else f"{least:.1f} or more"), "–"
    ends = [end for end in (worth.low, worth.high) if end is not None]
    shown = [f"{end:.1f}" if math.isfinite(end) else "more" for end in ends]
    between = f" ({' to '.join(shown)})" if shown else ""
    return f"{worth.mean:.1f}{between}", f"{1 - match.budget / worth.mean:.0%}"


def _object(report: "Report", page: Path) -> dict[str, Any]:
    from adacompute.evaluate.report.plain import as_data

    return {**as_data(report), "page": path_text(page)}
