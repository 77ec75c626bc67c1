"""The section on the paper's Pareto frontiers. Knows nothing of how they are come by."""

import numpy as np

from adacompute.evaluate.exhibits import Section
from adacompute.evaluate.figures.pareto import draw_pareto
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.pareto import Curve, Pareto, pareto
from adacompute.evaluate.report.phrases import gains, unlike
from adacompute.evaluate.report.sections.main import NOTHING, untold

__all__ = ["section"]

_EVEN = 0.0005  # of accuracy: half of what a table shows


def section(case: Case, *, quick: bool = False, model: str = "xgboost", seed: int = 0) -> Section:
    """Accuracy against average budget on a dense grid, in both readings."""
    found = pareto(case, quick=quick, model=model, seed=seed)
    return Section(
        key="pareto",
        title="Pareto frontiers",
        words=(_as_paper(found), _held_out(found)) if found.paper["oracle"].cost[-1] > 1 else (NOTHING,),
        pictures=(draw_pareto(found),),
        missing=untold(case),
    )


def _as_paper(found: Pareto) -> str:
    ours = found.paper["classifier"]
    others = np.max(
        [_at(found.paper[rule], ours.budget) for rule in ("fixed", "random", "heuristic")], axis=0
    )
    ahead = int((ours.accuracy > others + _EVEN).sum())
    oracle = found.paper["oracle"]
    text = (
        f"Scored as the paper does, the classifier lies above fixed-b, random and longest prompts at {ahead} "
        f"of {len(ours.budget)} average budgets from 1 to {found.modes[-1]}."
    )
    if oracle.cost[-1] < found.modes[-1] - 0.5:
        text += (
            f" The oracle wants {oracle.cost[-1]:.1f} samples on average and no more: from there on its "
            "curve is flat, and so is the classifier's."
        )
    return text


def _held_out(found: Pareto) -> str:
    ours = found.held_out["classifier"]
    spending = [at for at, cost in enumerate(ours.cost) if cost > 1 + 1e-9]  # at one sample all are the same
    told = [ours.gain[at] for at in spending]
    above, below = unlike(told)
    if not told:
        return "Held-out, the classifier gives one sample to all: it is the same as all alike."
    best = max(range(len(told)), key=lambda at: told[at].mean)
    cost = ours.cost[spending[best]]
    return (
        f"Held-out, and by what is spent, the classifier is clearly above all alike at {len(above)} of "
        f"{len(told)} average budgets and clearly below at {len(below)}. It does best at {cost:.1f} samples "
        f"on average: {gains([told[best]])} of difference. Curves are read across at equal spending; where "
        "the red band holds the dashed line, the classifier adds nothing that shows."
    )


def _at(curve: Curve, budgets: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> list[float]:
    """The curve's accuracy at some budgets of its own grid."""
    place = {round(float(budget), 6): at for at, budget in enumerate(curve.budget)}
    return [float(curve.accuracy[place[round(float(budget), 6)]]) for budget in budgets]
