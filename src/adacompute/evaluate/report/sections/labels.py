"""The section on the oracle's budgets: how many get each, who they are, who the classifier thinks they are.

Knows nothing of how a classifier learns.
"""

from collections.abc import Mapping, Sequence

from adacompute.evaluate.exhibits import Column, Section, Table
from adacompute.evaluate.figures.heatmap import draw_heatmap
from adacompute.evaluate.figures.scatter import draw_scatter
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.fits import Fits
from adacompute.evaluate.paper.heatmap import HEAT, Heatmap, heatmaps
from adacompute.evaluate.paper.labels import Labels, Scatter, labels, scatters
from adacompute.evaluate.paper.search import TARGETS, unreachable

__all__ = ["section", "table_of"]


def section(case: Case, fits: Mapping[float, Fits]) -> Section:
    """Label distribution, scatter and heatmap."""
    shares, spread, heat = labels(case), scatters(case), heatmaps(case, fits)
    pictures = (*((draw_scatter(spread),) if spread else ()), *((draw_heatmap(heat),) if heat else ()))
    return Section(
        key="labels",
        title="Who gets how much",
        words=_words(shares, spread, heat),
        tables=(table_of(shares),) if shares else (),
        pictures=pictures,
        missing=unreachable(case, sorted({*TARGETS, *HEAT})),
    )


def table_of(found: Sequence[Labels]) -> Table:
    """The label distribution, a row for each average budget."""
    budgets = found[0].budgets
    return Table(
        key="labels",
        title="The oracle's budgets",
        protocol="Oracle on all problems, in-sample, on the paper's windows.",
        columns=(
            Column(name="B", kind="amount"),
            Column(name="price λ", kind="price"),
            Column(name="cost", kind="number", about="samples on average, of these budgets"),
            *(Column(name=f"b = {budget}", kind="share") for budget in budgets),
        ),
        rows=tuple((one.budget, one.price, one.cost, *map(float, one.shares)) for one in found),
    )


def _words(shares: Sequence[Labels], spread: Sequence[Scatter], heat: Sequence[Heatmap]) -> tuple[str, ...]:
    if not shares:
        return ()
    first, last = shares[0], shares[-1]
    ones = f"At B = {first.budget:g} the oracle gives one sample to {first.ones:.0%} of the problems"
    if last is not first:
        ones += f", at B = {last.budget:g} to {last.ones:.0%}"
    words = [f"{ones}: the rest of the budget goes to the others.{_shape(spread[-1])}"]
    if heat:
        one = heat[-1]
        words.append(
            f"The heatmap shows the same budgets by {one.kind}. For the classifier's picture at B = "
            f"{one.budget:g} to become the oracle's, {one.paper_moved:.0%} of its decisions would have to "
            "change when it is asked about all problems, those it learned from included (scored as the "
            f"paper does), and {one.held_out_moved:.0%} when it is asked about new ones (held-out). "
            "Matching shares are not matching problems: imitation, problem by problem, is in the oracle-gap "
            "table."
        )
    return tuple(words)


def _shape(one: Scatter) -> str:
    if one.decile_chosen.max() <= one.decile_chosen.min():
        return " All tenths of the problems get the same."
    where = f"problems that one sample answers {one.peak:.0%} of the time"
    if one.inverted:
        return f" Most goes to {where}; the easiest and the hardest get less, the paper's inverted U."
    return f" Most goes to {where}, at one end of the scale: not the paper's inverted U."
