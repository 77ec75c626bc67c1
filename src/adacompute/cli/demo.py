"""`adacompute demo`: the main job on the recordings inside the package. Knows no numbers of its own."""

import typer

from adacompute.cli.options import Json, settings
from adacompute.cli.show import as_json, line, percent
from adacompute.cli.summary import show_summary
from adacompute.pool import bundled, bundled_names
from adacompute.score import Summary, summarise

__all__ = ["demo"]


def demo(context: typer.Context, json: Json = False) -> None:
    """Show what votes buy on the bundled recordings."""
    budgets = settings(context).summary.budgets
    summaries: dict[str, Summary] = {}
    for name in bundled_names():
        with bundled(name) as pool:
            summaries[name] = summarise(pool, budgets=budgets)
    if json:
        as_json({name: summary.to_dict() for name, summary in summaries.items()})
        return
    line("Two recordings inside the package: small models, asked each question many times.")
    for name, summary in summaries.items():
        line()
        show_summary(summary, name=name)
    line()
    for name, summary in summaries.items():
        line(_verdict(name, summary))
    line()
    line("Your own samples (after `. .venv/bin/activate`, where make has set things up):")
    line("  adacompute import FILE --pool pool.sqlite && adacompute pool pool.sqlite")


def _verdict(name: str, summary: Summary) -> str:
    """What the dearest vote bought over one sample, and at what price."""
    (source,) = summary.sources
    budget, vote = max(source.votes.items(), default=(1, None))
    if source.accuracy is None or vote is None or budget == 1:
        return f"{name}: no votes of several samples were looked at"
    gain = 100 * (vote.mean - source.accuracy.mean)
    return (
        f"{name}: one sample is right {percent(source.accuracy.mean)} of the time, a vote of {budget} "
        f"{percent(vote.mean)}: {gain:+.1f} points for {budget} times the cost"
    )
