"""Which sections there are, in which part of the page, and what each is made of. Knows no HTML."""

from collections.abc import Mapping

from adacompute.evaluate.exhibits import Section
from adacompute.evaluate.paper.fits import Fits
from adacompute.evaluate.report.given import Given, Job
from adacompute.evaluate.report.sections import (
    ablation,
    archetypes,
    calibration,
    efficiency,
    frontier,
    gap,
    granularity,
    growth,
    importance,
    labels,
    laws,
    levels,
    main,
    pareto,
    pipeline,
    recovered,
    solve,
    tokens,
    verdict,
    worth,
)

__all__ = ["JOBS", "PARTS"]

Learned = Mapping[float, Fits]

PARTS = (  # key, title, what is there, whether its sections are folded at first
    ("verdict", "Verdict", "", False),
    ("pool", "What is in the pool", "How hard its problems are, and what more samples do for them.", False),
    ("held-out", "Every policy, held-out", "Fitted on other problems than it is judged on.", False),
    ("paper", "The paper's tables and figures", "On this pool, scored as the paper does and held-out.", True),
    ("laws", "Laws", "What the paper states, checked on this pool's own table.", True),
)


def _verdict(given: Given, _fits: Learned) -> Section:
    return verdict.section(given.played, given.evaluation, money=given.money, oracle=given.oracle)


def _frontier(given: Given, _fits: Learned) -> Section:
    return frontier.section(given.played, given.evaluation, oracle=given.oracle)


def _recovered(given: Given, _fits: Learned) -> Section:
    return recovered.section(given.played, oracle=given.oracle)


def _worth(given: Given, _fits: Learned) -> Section:
    return worth.section(given.played, given.evaluation)


def _calibration(given: Given, _fits: Learned) -> Section:
    return calibration.section(given.played, given.evaluation)


def _tokens(given: Given, _fits: Learned) -> Section:
    return tokens.section(given.played)


def _levels(given: Given, _fits: Learned) -> Section:
    return levels.section(given.known)


def _archetypes(given: Given, _fits: Learned) -> Section:
    return archetypes.section(given.known)


def _growth(given: Given, _fits: Learned) -> Section:
    return growth.section(given.known, quick=given.quick, seed=given.seed)


def _ablation(given: Given, _fits: Learned) -> Section:
    return ablation.section(given.known, quick=given.quick, seed=given.seed)


def _importance(given: Given, _fits: Learned) -> Section:
    return importance.section(given.known, quick=given.quick, seed=given.seed)


def _efficiency(given: Given, _fits: Learned) -> Section:
    return efficiency.section(given.known, quick=given.quick, seed=given.seed)


def _pipeline(_given: Given, _fits: Learned) -> Section:
    return pipeline.section()


def _main(given: Given, fits: Learned) -> Section:
    return main.section(given.known, fits)


def _gap(given: Given, fits: Learned) -> Section:
    return gap.section(given.known, fits)


def _pareto(given: Given, _fits: Learned) -> Section:
    return pareto.section(given.known, quick=given.quick, seed=given.seed)


def _labels(given: Given, fits: Learned) -> Section:
    return labels.section(given.known, fits)


def _solve(given: Given, _fits: Learned) -> Section:
    return solve.section(given.known)


def _granularity(given: Given, _fits: Learned) -> Section:
    return granularity.section(given.known, quick=given.quick, seed=given.seed)


def _laws(given: Given, fits: Learned) -> Section:
    return laws.section(given.known, fits)


JOBS = (  # in the order of the page
    Job(key="verdict", title="Verdict", part="verdict", make=_verdict, graded=False),
    Job(key="levels", title="Levels", part="pool", make=_levels),
    Job(key="archetypes", title="Kinds of problem", part="pool", make=_archetypes),
    Job(key="worth", title="When it is worth it", part="held-out", make=_worth, graded=False),
    Job(key="frontier", title="Frontier", part="held-out", make=_frontier, graded=False, effort=3),
    Job(key="recovered", title="The oracle's gain", part="held-out", make=_recovered),
    Job(key="calibration", title="Calibration", part="held-out", make=_calibration, graded=False),
    Job(key="tokens", title="Tokens", part="held-out", make=_tokens, graded=False),
    Job(key="growth", title="What must be recorded", part="held-out", make=_growth, slow=True, effort=25),
    Job(key="pipeline", title="How it works", part="paper", make=_pipeline),
    Job(key="main", title="Main results", part="paper", make=_main),
    Job(key="gap", title="Oracle gap and imitation", part="paper", make=_gap),
    Job(key="pareto", title="Pareto frontiers", part="paper", make=_pareto, effort=12),
    Job(key="labels", title="Labels", part="paper", make=_labels),
    Job(key="solve", title="The price", part="paper", make=_solve),
    Job(key="ablation", title="Learners", part="paper", make=_ablation, effort=20),
    Job(key="importance", title="Features", part="paper", make=_importance, effort=8),
    Job(key="granularity", title="Granularity", part="paper", make=_granularity, effort=8),
    Job(key="efficiency", title="Data efficiency", part="paper", make=_efficiency, effort=15),
    Job(key="laws", title="Statements", part="laws", make=_laws),
)
