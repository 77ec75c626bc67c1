"""What survives, in words, every number of them computed. Knows no Markdown beyond a link."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from adacompute.evaluate.paper.mixing import mixed
from adacompute.evaluate.paper.pareto import Curve
from adacompute.evaluate.reproduction.checks import BOTH_SIDES, Verdict
from adacompute.evaluate.reproduction.experiment import Reproduction
from adacompute.records import AccuracyTable

__all__ = ["counted", "survives"]

_LOW, _HIGH = 1.5, 3.1  # samples on average
_ORDER: tuple[Verdict, ...] = (
    "agrees",
    "in part",
    "only in-sample",
    BOTH_SIDES,
    "doesn't",
    "can't be told",
)
_SAID = {
    "agrees": "agree",
    "in part": "agree in part",
    "only in-sample": "hold in-sample only",
    BOTH_SIDES: "hold only with the same question on both sides of a split",
    "doesn't": "don't",
    "can't be told": "can't be told",
}


def counted(found: Reproduction) -> str:
    """How many statements came out which way."""
    counts = Counter(one.verdict for one in found.findings.values())
    parts = [f"{counts[verdict]} {_SAID[verdict]}" for verdict in _ORDER if counts[verdict]]
    return f"Of {len(found.findings)} statements that the paper reads off its experiments, {_listed(parts)}"


def survives(found: Reproduction) -> list[str]:
    """The summary, a paragraph each."""
    return [f"{counted(found)}.", _oracle(found), _learned(found), _baseline(found), _POINTER]


def _oracle(found: Reproduction) -> str:
    """The solve stage."""
    gains, crossed = [], []
    for run in found.runs:
        gains += _above(run.pareto.paper["oracle"], run.case.windows)
        if "crossfitted" in run.pareto.held_out:
            crossed += _above(run.pareto.held_out["crossfitted"], run.case.exact)
    laws = [law for run in found.runs for law in run.laws if law.form != "the paper's own form"]
    told = (
        "**What survives: the solve stage.** There is much to gain from spending samples where they pay: at "
        f"1.5 to 3 samples the oracle is {_points(gains)} points above the best mix for all alike, "
        "scored as the paper does"
    )
    if crossed:
        told += f", and {_points(crossed)} when its choice is judged on samples that it hasn't seen"
    return (
        f"{told}. Cost never rises with the price, one price is one dial, and the frontier is exact once one "
        "problem is mixed. The theory holds in the forms of [theory.md](theory.md): "
        f"{sum(law.holds for law in laws)} of {len(laws)} laws × recordings without an exception."
    )


def _above(curve: Curve, table: AccuracyTable) -> list[float]:
    """How far a curve is above the best mix for all alike, at the grid's budgets from 1.5 to 3."""
    here = (curve.budget >= _LOW) & (curve.budget <= _HIGH)
    alike = mixed(table.costs, np.tile(table.accuracy.mean(axis=0), (int(here.sum()), 1)), curve.cost[here])
    return [float(value) for value in curve.accuracy[here] - alike]


def _learned(found: Reproduction) -> str:
    """The learn stage."""
    in_sample = [float(one.paper.imitation.mean()) for run in found.runs for one in run.gaps]
    held_out = [float(one.held_out.imitation.mean()) for run in found.runs for one in run.gaps]
    ahead = [one.held_out.ahead for run in found.runs for one in run.gaps]
    lower = sum(one.high is not None and one.high < 0 for one in ahead)
    higher = sum(one.low is not None and one.low > 0 for one in ahead)
    return (
        "**What doesn't: the learn stage.** Numbers like the paper's come out when problems learned from "
        f"are judged too: imitation {_shares(in_sample)}. On other problems it is {_shares(held_out)}: "
        f"beside always answering the commonest budget clearly lower in {lower} of {len(ahead)} cases, "
        f"clearly higher in {higher}, no clear difference in {len(ahead) - lower - higher} (95% intervals "
        f"over problems).{_trees(found)}"
    )


def _trees(found: Reproduction) -> str:
    """Trees beside other learners, in both ways to split."""
    seen = found.findings["ablation-trees"].seen
    known = {name: (one.value, one.own) for name, one in seen.items() if one.value is not None}
    if not known:
        return ""
    first, second = (
        " and ".join(f"{_point(both[at])} points ({name})" for name, both in known.items()) for at in (0, 1)
    )
    return (
        f" Trees lead the other learners by {first} where a question may stand on both sides of the split, "
        f"and by {second} where it can't."
    )


def _baseline(found: Reproduction) -> str:
    """The comparison."""
    over = [
        float(
            run.main.paper["classifier", budget].accuracy.mean()
            - run.main.paper["fixed", budget].accuracy.mean()
        )
        for run in found.runs
        for budget in run.main.budgets
    ]
    fair = [one.gain for run in found.runs for one in map(run.learned, run.main.budgets)]
    above = sum(one.mean > 0 and not one.holds_zero for one in fair)
    under = sum(one.mean < 0 and not one.holds_zero for one in fair)
    best = max(found.runs, key=lambda run: max(one.gain.mean for one in map(run.learned, run.main.budgets)))
    return (
        f"**What is left of the gain.** Scored as the paper does, the classifier gains {_points(over)} "
        "points over "
        f"fixed-b. Held-out, over the best mix of two budgets for all alike at the same cost, it gains "
        f"{_points([one.mean for one in fair])}: of {len(fair)} cases the interval is above zero in "
        f"{above} and below in {under}. It does best on {best.name}."
    )


_POINTER = (
    "**What to do instead.** What a prompt can't tell, the first votes do: stopping as they come in "
    "beats deciding "
    "beforehand, held-out and without labels of the task. See [evaluation.md](evaluation.md), and "
    "[findings.md](findings.md) for what else was tried."
)


def _point(value: float | None) -> str:
    return "–" if value is None else f"{round(100 * value, 1) + 0.0:+.1f}"  # no -0.0


def _points(values: Sequence[float]) -> str:
    return f"{100 * min(values):+.1f} to {100 * max(values):+.1f}"


def _shares(values: Sequence[float]) -> str:
    return f"{100 * min(values):.0f} to {max(values):.0%}"


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
