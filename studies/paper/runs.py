"""Every number of the paper's experiment on one recording, and on several recordings together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from adacompute.errors import AdacomputeError
from studies.paper.ablation import Ablation, compute_ablation
from studies.paper.archetypes import Archetypes, compute_archetypes
from studies.paper.budget_choices import ChoiceOutcome, ClassifierFits, fit_classifiers
from studies.paper.difficulty import LevelTable, compute_levels
from studies.paper.granularity import Granularity, compute_granularity
from studies.paper.importance import Importance, compute_importance
from studies.paper.label_efficiency import LabelEfficiency, compute_efficiency
from studies.paper.labels import (
    HEATMAP_BUDGETS,
    Heatmap,
    LabelShares,
    Scatter,
    compute_heatmaps,
    compute_labels,
    compute_scatters,
)
from studies.paper.laws import Law, try_laws
from studies.paper.main_results import MainResults, compute_main_results
from studies.paper.mechanism import Mechanism, compute_mechanism
from studies.paper.oracle_gap import OracleGap, compute_gaps
from studies.paper.paper_pool import PaperPool
from studies.paper.pareto import ParetoFrontiers, compute_pareto
from studies.paper.price_search import (
    TARGET_BUDGETS,
    BudgetSearch,
    Staircases,
    compute_staircases,
    search_prices,
)

__all__ = ["PooledRun", "RecordingRun", "choose_pooled", "run_pooled", "run_recording"]

T = TypeVar("T")

_SEEDS, _QUICK_SEEDS = 3, 2
_SPLITS, _QUICK_SPLITS = 10, 2
_REPEATS, _QUICK_REPEATS = 5, 1  # shuffles of each feature
_QUICK_SHARES = (0.2, 1.0)  # of the training problems
_POOLED_RECORDINGS = 3  # recordings that the ablation pools, as the paper pools three models


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordingRun:
    """Everything computed on one recording. What its samples don't allow is None, and listed in `missing`."""

    case: PaperPool
    fits: dict[float, ClassifierFits] = field(repr=False)
    main: MainResults = field(repr=False)
    gaps: tuple[OracleGap, ...] = field(repr=False)
    searches: tuple[BudgetSearch, ...] = field(repr=False)
    staircases: Staircases = field(repr=False)
    labels: tuple[LabelShares, ...] = field(repr=False)
    scatters: tuple[Scatter, ...] = field(repr=False)
    heatmaps: tuple[Heatmap, ...] = field(repr=False)
    levels: LevelTable = field(repr=False)
    mechanism: Mechanism = field(repr=False)
    laws: tuple[Law, ...] = field(repr=False)
    pareto: ParetoFrontiers = field(repr=False)
    granularity: Granularity | None = field(repr=False)
    importance: Importance | None = field(repr=False)
    efficiency: LabelEfficiency | None = field(repr=False)
    missing: tuple[str, ...]

    @property
    def name(self) -> str:
        """Of the recording."""
        return self.case.name

    def classifier_outcome(self, budget: float) -> ChoiceOutcome:
        """The classifier's outcome on held-out problems, compared with a uniform budget at its own cost."""
        return self.main.held_out["classifier", budget]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PooledRun:
    """What is computed on several recordings together."""

    ablation: Ablation | None = field(repr=False)
    archetypes: Archetypes | None = field(repr=False)
    missing: tuple[str, ...]


def run_recording(case: PaperPool, *, quick: bool = False, seed: int = 0) -> RecordingRun:
    """Compute everything in the paper that is about one recording."""
    largest_budget = case.budgets[-1]
    fit_budgets = sorted(
        {budget for budget in (*HEATMAP_BUDGETS, *TARGET_BUDGETS) if budget <= largest_budget}
    ) or [float(largest_budget)]
    fits = fit_classifiers(case, fit_budgets, seeds=_QUICK_SEEDS if quick else _SEEDS, seed=seed)
    target_fits = {budget: fits[budget] for budget in TARGET_BUDGETS if budget in fits} or fits
    repeats = _QUICK_REPEATS if quick else _REPEATS
    missing: list[str] = []
    return RecordingRun(
        case=case,
        fits=fits,
        main=compute_main_results(case, target_fits),
        gaps=compute_gaps(case, target_fits),
        searches=search_prices(case),
        staircases=compute_staircases(case),
        labels=compute_labels(case),
        scatters=compute_scatters(case),
        heatmaps=compute_heatmaps(case, fits),
        levels=compute_levels(case),
        mechanism=compute_mechanism(case),
        laws=try_laws(case, fits),  # all that were learned, as in the report
        pareto=compute_pareto(case, quick=quick, seed=seed),
        granularity=_try(lambda: compute_granularity(case, quick=quick, seed=seed), missing),
        importance=_try(lambda: compute_importance(case, repeats=repeats, seed=seed), missing),
        efficiency=_try(lambda: _compute_efficiency(case, quick=quick, seed=seed), missing),
        missing=tuple(missing),
    )


def _compute_efficiency(case: PaperPool, *, quick: bool, seed: int) -> LabelEfficiency:
    if quick:
        return compute_efficiency(case, fractions=_QUICK_SHARES, seeds=_QUICK_SEEDS, seed=seed)
    return compute_efficiency(case, seed=seed)


def run_pooled(cases: Sequence[PaperPool], *, quick: bool = False, seed: int = 0) -> PooledRun:
    """Compute everything in the paper about several recordings: the ablation on three, archetypes on all."""
    missing: list[str] = []
    splits = _QUICK_SPLITS if quick else _SPLITS
    return PooledRun(
        ablation=_try(lambda: compute_ablation(choose_pooled(cases), splits=splits, seed=seed), missing),
        archetypes=_try(lambda: compute_archetypes(cases), missing),
        missing=tuple(missing),
    )


def _try(find: Callable[[], T], missing: list[str]) -> T | None:
    """Call `find`; None, with the reason added to `missing`, where these samples don't allow it."""
    try:
        return find()
    except AdacomputeError as exc:
        missing.append(str(exc))
        return None


def choose_pooled(cases: Sequence[PaperPool]) -> list[PaperPool]:
    """Choose the recordings to pool: three of the model with most recordings; all where no model has two."""
    by_model: dict[str, list[PaperPool]] = {}
    for case in sorted(cases, key=lambda case: case.name):
        by_model.setdefault(str(case.ballots.model), []).append(case)
    most = max(by_model.values(), key=len)
    return (most if len(most) > 1 else [own for group in by_model.values() for own in group])[
        :_POOLED_RECORDINGS
    ]
