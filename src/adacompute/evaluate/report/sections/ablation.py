"""The section on learners of the oracle's budgets, and on the regret bound. Knows no learner's inside."""

import numpy as np

from adacompute.evaluate.exhibits import Cell, Column, Section, Table
from adacompute.evaluate.figures.ablation import draw_ablation
from adacompute.evaluate.paper.ablation import MODELS, READINGS, STEPS, Ablation, Outcome, ablation
from adacompute.evaluate.paper.case import Case
from adacompute.evaluate.paper.search import unreachable
from adacompute.evaluate.report.phrases import listed, points

__all__ = ["bound_of", "section", "table_of"]

_SPLITS, _QUICK = 10, 3


def section(case: Case, *, quick: bool = False, seed: int = 0) -> Section:
    """Five learners, two ways to split, and what the bound says."""
    found = ablation([case], splits=_QUICK if quick else _SPLITS, seed=seed)
    return Section(
        key="ablation",
        title="Learners, and the regret bound",
        words=_words(found),
        tables=(table_of(found), bound_of(found)),
        pictures=(draw_ablation(found),),
        missing=unreachable(case),
    )


def table_of(found: Ablation) -> Table:
    """A row a learner and reading."""
    rows: list[tuple[Cell, ...]] = [
        (
            MODELS[one.model],
            one.reading,
            one.accuracy,
            one.gap,
            one.imitation,
            one.majority.mean,
            one.cost,
            one.accuracy.mean - one.uniform.mean,
        )
        for one in found.outcomes
    ]
    return Table(
        key="ablation",
        title="Learners of the oracle's budgets",
        protocol=_protocol(found),
        columns=(
            Column(name="learner"),
            Column(name="reading"),
            Column(name="accuracy", kind="share"),
            Column(name="oracle gap", kind="points", about="points below the oracle on the judged rows"),
            Column(name="imitation", kind="share", about="rows given the oracle's budget"),
            Column(name="commonest budget", kind="share", about="imitation of always the commonest"),
            Column(name="cost", kind="number", about="samples on average"),
            Column(name="over all alike", kind="points", about="points over all alike at the same cost"),
        ),
        rows=tuple(rows),
        note=(
            f"Mean and standard deviation over splits. The MLP is trained for {STEPS} rounds at most. The "
            "paper's gap is to the oracle on all rows, so that its deviation is that of the accuracy."
        ),
        bold=tuple(at for at, one in enumerate(found.outcomes) if one.model == found.best(one.reading).model),
    )


def bound_of(found: Ablation) -> Table:
    """How many points lie above each line."""
    rows: list[tuple[Cell, ...]] = []
    every = sum(len(some.error) for some in found.points)
    for which, name in (("relaxed", "net value, each row at its own price"), ("task", "accuracy")):
        for of, slope in (("worst", found.worst_gap), ("mean", found.mean_gap)):
            rows.append(
                (
                    name,
                    "largest M · ε" if of == "worst" else "mean M · ε",
                    slope,
                    found.above(which, of=of),
                    every,
                    which == "relaxed" and of == "worst",
                )
            )
    return Table(
        key="regret-bound",
        title="Points above the regret bound",
        protocol=f"{_protocol(found)} Both readings, by the windows that the oracle's budgets come from.",
        columns=(
            Column(name="regret in"),
            Column(name="line"),
            Column(name="M", kind="fraction", about="the line's slope"),
            Column(name="points above", kind="count"),
            Column(name="points", kind="count"),
            Column(name="a theorem", kind="flag", about="whether no point can lie above"),
        ),
        rows=tuple(rows),
    )


def _words(found: Ablation) -> tuple[str, ...]:
    if (found.confusion.sum(axis=(0, 2)) > 0).sum() < 2:
        return ("The oracle gives every problem the same budget, so there is nothing to learn.",)
    paper, held_out = READINGS
    first, then = found.best(paper), found.best(held_out)
    plain, later = found.of("logistic", paper), found.of("logistic", held_out)
    ahead = first.accuracy.mean - plain.accuracy.mean, then.accuracy.mean - later.accuracy.mean
    split = (
        "With rows split at random, so that most questions stand on both sides at another B, "
        f"{MODELS[first.model]} is the most accurate, {points(ahead[:1])} over logistic regression. Split by "
        f"question, {MODELS[then.model]} is, {points(ahead[1:])} over it with {then.cost.mean:.2f} samples "
        f"against {later.cost.mean:.2f}: {points([then.accuracy.mean - then.uniform.mean])} over all alike "
        "at its own cost."
    )
    return split, _imitation(found), _bound(found)


def _imitation(found: Ablation) -> str:
    paper, held_out = READINGS
    better = [
        [MODELS[model] for model in MODELS if _imitates(found.of(model, reading))] for reading in READINGS
    ]
    trees = found.of("xgboost", paper), found.of("xgboost", held_out)
    near = [_near(found.confusion[at]) for at in range(len(READINGS))]
    told = (
        f"The boosted trees imitate {trees[0].imitation.mean:.1%} of the oracle's budgets scored as the "
        f"paper does and {trees[1].imitation.mean:.1%} held-out; always the commonest budget, "
        f"{trees[0].majority.mean:.1%} and {trees[1].majority.mean:.1%}. Better than always the commonest: "
        f"{listed(better[0]) or 'no learner'} scored as the paper does, {listed(better[1]) or 'no learner'} "
        "held-out."
    )
    if all(one is not None for one in near):
        told += (
            f" Of the trees' errors {near[0]:.0%} and {near[1]:.0%} are one budget off; the paper says most."
        )
    return told


def _bound(found: Ablation) -> str:
    every = sum(len(some.error) for some in found.points)
    return (
        f"The theorem bounds the regret in net value by ε times the largest M, {found.worst_gap:.2f} here: "
        f"{found.above('relaxed', of='worst')} of {every} points lie above. The paper draws that line "
        "dotted, calls it loose, and takes the dashed one, ε times the mean of M "
        f"({found.mean_gap:.2f}), for the bound, with the regret in accuracy: for that neither is one; "
        f"{found.above('task', of='mean')} of {every} lie above the dashed one, "
        f"{found.above('task', of='worst')} above the dotted one. It finds the points' slope to match that "
        f"mean; here it is {found.slope:.2f}."
    )


def _imitates(one: Outcome) -> bool:
    return one.imitation.mean > one.majority.mean


def _near(confusion: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float | None:
    """Share of errors that are one budget off; None: there are none."""
    apart = np.abs(np.subtract.outer(np.arange(len(confusion)), np.arange(len(confusion))))
    errors = confusion[apart > 0].sum()
    return float(confusion[apart == 1].sum() / errors) if errors else None


def _protocol(found: Ablation) -> str:
    targets = listed([f"{one:g}" for one in found.targets])
    return (
        f"{found.rows} rows: problems of {listed(found.cases)} at B = {targets}; {found.splits} splits, "
        "judged on the 20% not learned from. Scored as the paper does: rows split at random within each "
        "label, by windows. Held-out: split by question, over all subsets."
    )
