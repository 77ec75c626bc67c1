"""The paper's experiment on one recording, and on several together: every number that is looked at.

Knows nothing of what the paper says.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from adacompute.errors import AdacomputeError
from adacompute.evaluate.paper.ablation import Ablation, ablation
from adacompute.evaluate.paper.archetypes import Archetypes, archetypes
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.efficiency import Efficiency, efficiency
from adacompute.evaluate.paper.fits import Fits, fitted
from adacompute.evaluate.paper.gap import Gap, gaps
from adacompute.evaluate.paper.granularity import Granularity, granularity
from adacompute.evaluate.paper.heatmap import HEAT, Heatmap, heatmaps
from adacompute.evaluate.paper.importance import Importance, importance
from adacompute.evaluate.paper.judged import Outcome
from adacompute.evaluate.paper.labels import Labels, Scatter, labels, scatters
from adacompute.evaluate.paper.laws import Law, laws
from adacompute.evaluate.paper.levels import Levels, levels
from adacompute.evaluate.paper.main import TARGETS, MainResults, main_results
from adacompute.evaluate.paper.mechanism import Mechanism, mechanism
from adacompute.evaluate.paper.pareto import Pareto, pareto
from adacompute.evaluate.paper.search import Search, searches
from adacompute.evaluate.paper.staircase import Staircases, staircases

__all__ = ["Pooled", "Run", "pooled", "ran", "three"]

T = TypeVar("T")

_SEEDS, _QUICK_SEEDS = 3, 2
_SPLITS, _QUICK_SPLITS = 10, 2
_REPEATS, _QUICK_REPEATS = 5, 1  # shuffles of each feature
_QUICK_SHARES = (0.2, 1.0)  # of the training problems
_THREE = 3  # recordings that the ablation pools, as the paper pools three models


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """One recording. What its samples don't allow is None, and said in `missing`."""

    case: Case
    fits: dict[float, Fits] = field(repr=False)
    main: MainResults = field(repr=False)
    gaps: tuple[Gap, ...] = field(repr=False)
    searches: tuple[Search, ...] = field(repr=False)
    staircases: Staircases = field(repr=False)
    labels: tuple[Labels, ...] = field(repr=False)
    scatters: tuple[Scatter, ...] = field(repr=False)
    heatmaps: tuple[Heatmap, ...] = field(repr=False)
    levels: Levels = field(repr=False)
    mechanism: Mechanism = field(repr=False)
    laws: tuple[Law, ...] = field(repr=False)
    pareto: Pareto = field(repr=False)
    granularity: Granularity | None = field(repr=False)
    importance: Importance | None = field(repr=False)
    efficiency: Efficiency | None = field(repr=False)
    missing: tuple[str, ...]

    @property
    def name(self) -> str:
        """Of the recording."""
        return self.case.name

    def learned(self, budget: float) -> Outcome:
        """The classifier held-out, beside all alike at its own cost."""
        return self.main.held_out["classifier", budget]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pooled:
    """Recordings together."""

    ablation: Ablation | None = field(repr=False)
    archetypes: Archetypes | None = field(repr=False)
    missing: tuple[str, ...]


def ran(case: Case, *, quick: bool = False, seed: int = 0) -> Run:
    """Everything of the paper that is about one recording."""
    most = case.budgets[-1]
    asked = sorted({budget for budget in (*HEAT, *TARGETS) if budget <= most}) or [float(most)]
    fits = fitted(case, asked, seeds=_QUICK_SEEDS if quick else _SEEDS, seed=seed)
    wanted = {budget: fits[budget] for budget in TARGETS if budget in fits} or fits
    repeats = _QUICK_REPEATS if quick else _REPEATS
    missing: list[str] = []
    return Run(
        case=case,
        fits=fits,
        main=main_results(case, wanted),
        gaps=gaps(case, wanted),
        searches=searches(case),
        staircases=staircases(case),
        labels=labels(case),
        scatters=scatters(case),
        heatmaps=heatmaps(case, fits),
        levels=levels(case),
        mechanism=mechanism(case),
        laws=laws(case, fits),  # all that were learned, as in the report
        pareto=pareto(case, quick=quick, seed=seed),
        granularity=_tried(lambda: granularity(case, quick=quick, seed=seed), missing),
        importance=_tried(lambda: importance(case, repeats=repeats, seed=seed), missing),
        efficiency=_tried(lambda: _efficiency(case, quick=quick, seed=seed), missing),
        missing=tuple(missing),
    )


def _efficiency(case: Case, *, quick: bool, seed: int) -> Efficiency:
    if quick:
        return efficiency(case, fractions=_QUICK_SHARES, seeds=_QUICK_SEEDS, seed=seed)
    return efficiency(case, seed=seed)


def pooled(cases: Sequence[Case], *, quick: bool = False, seed: int = 0) -> Pooled:
    """Everything of the paper that is about several: the ablation on three, the archetypes on all."""
    missing: list[str] = []
    splits = _QUICK_SPLITS if quick else _SPLITS
    return Pooled(
        ablation=_tried(lambda: ablation(three(cases), splits=splits, seed=seed), missing),
        archetypes=_tried(lambda: archetypes(cases), missing),
        missing=tuple(missing),
    )


def _tried(find: Callable[[], T], missing: list[str]) -> T | None:
    """What is found; None, and why, where these samples don't allow it."""
    try:
        return find()
    except AdacomputeError as exc:
        missing.append(str(exc))
        return None


def three(cases: Sequence[Case]) -> list[Case]:
    """Recordings to pool: three of the model that has most of them, by name; all where no model has two."""
    by_model: dict[str, list[Case]] = {}
    for case in sorted(cases, key=lambda case: case.name):
        by_model.setdefault(str(case.ballots.model), []).append(case)
    most = max(by_model.values(), key=len)
    return (most if len(most) > 1 else [own for group in by_model.values() for own in group])[:_THREE]
