"""The section on shares of the oracle's gain. Knows nothing of how they were come by."""

from collections.abc import Mapping

from adacompute.evaluate.beyond.recovered import Shares, recovered_of
from adacompute.evaluate.bootstrap import Interval
from adacompute.evaluate.bracket import Oracle
from adacompute.evaluate.entrants import OURS
from adacompute.evaluate.exhibits import Column, Section, Table
from adacompute.evaluate.figures.palette import look
from adacompute.evaluate.figures.recovered import draw_recovered
from adacompute.evaluate.protocols import Played
from adacompute.evaluate.report.phrases import listed

__all__ = ["section"]

_TITLE = "Share of the oracle's gain"
_LEFT_OUT = ("random", "shuffled", "heuristic")  # yardsticks: they are in the frontier's table


def section(found: Played, *, oracle: Oracle | None = None) -> Section:
    """How much of what the one-shot oracle gains over uniform each policy has."""
    if found.setup.basis != "accuracy":
        why = "share of the oracle's gain: an oracle needs grades; record grades or gold answers"
        return Section(key="recovered", title=_TITLE, missing=(why,))
    shares = recovered_of(found, oracle=oracle)
    told = any(one.of_high is not None for one in shares.rows)
    missing = [f"the oracle's cross-fitted end: {shares.why}"] if shares.why else []
    if not told:
        missing.append(
            "shares: the oracle's gain over uniform is below 0.1 points or not clearly above zero, so there "
            "is nothing to share; more problems tell smaller gains"
        )
    return Section(
        key="recovered",
        title=_TITLE,
        words=_words(shares),
        tables=_tables(shares),
        pictures=(draw_recovered(shares),) if told else (),
        missing=tuple(missing),
    )


def _words(shares: Shares) -> tuple[str, ...]:
    gains = [
        f"{_ends(low, high)} at {b:g}" for b, (low, high) in zip(shares.budgets, shares.gains, strict=True)
    ]
    first = f"What there is to gain: the oracle is above uniform by {listed(gains)} points."
    ours = [one for one in shares.rows if one.policy == OURS and one.of_high is not None]
    if not ours:
        return (first,)
    said = [f"{_percent(one.of_high, one.of_low)} at {one.budget:g}" for one in ours]
    second = f"Stopping has {listed(said)} of that (of the in-sample gain, to of the cross-fitted one)."
    none = []
    for name in shares.policies:
        rows = [one.of_high for one in shares.rows if one.policy == name and one.of_high is not None]
        if name != OURS and rows and all(one.mean <= 0 for one in rows):
            none.append(look(name).name)
    third = f"Nothing of it at any budget: {listed(none)}." if none else ""
    return tuple(text for text in (first, second, third) if text)


def _tables(shares: Shares) -> tuple[Table, ...]:
    """A row a policy, a column a budget: of the gain in-sample and, where it can be told, cross-fitted."""
    found = [_table(shares, "in-sample", {(one.policy, one.budget): one.of_high for one in shares.rows})]
    if not shares.why:
        fitted = {(one.policy, one.budget): one.of_low for one in shares.rows}
        found.append(_table(shares, "cross-fitted", fitted))
    return tuple(found)


def _table(shares: Shares, which: str, of: Mapping[tuple[str, float], Interval | None]) -> Table:
    names = sorted((name for name in shares.policies if name not in _LEFT_OUT), key=lambda one: one != OURS)
    return Table(
        key=f"recovered-{which}",
        title=f"Share of the oracle's {which} gain over uniform, at the same cost",
        protocol=f"held-out, matched cost; the oracle {which}",
        columns=(
            Column(name="policy"),
            *(
                Column(name=f"at {budget:g}", kind="percent", about="samples on average; 95% intervals")
                for budget in shares.budgets
            ),
        ),
        rows=tuple(
            (look(name).name, *(of.get((name, budget)) for budget in shares.budgets)) for name in names
        ),
        note=(
            "Blank where the policy can't cost so little, or the oracle's gain is below 0.1 points or not "
            "clearly above zero. Above 100%: more than the oracle gains."
        ),
        bold=tuple(at for at, name in enumerate(names) if name == OURS),
    )


def _ends(low: Interval | None, high: Interval) -> str:
    return f"{100 * high.mean:.1f}" if low is None else f"{100 * low.mean:.1f} to {100 * high.mean:.1f}"


def _percent(high: Interval | None, low: Interval | None) -> str:
    if high is None:
        return "–"
    return f"{high.mean:.0%}" if low is None else f"{high.mean:.0%} to {low.mean:.0%}"
