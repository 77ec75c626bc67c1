"""Several recordings at the budgets that all of them have. Knows nothing of what is made of them."""

from collections.abc import Sequence
from dataclasses import replace

from adacompute.errors import NotRecorded
from adacompute.evaluate.paper.case import Case
from adacompute.score import score

__all__ = ["together"]


def together(cases: Sequence[Case]) -> tuple[Case, ...]:
    """The same recordings, scored at the budgets of the one with the fewest."""
    if not cases:
        raise NotRecorded("no recording was given; give one or more")
    budgets = min((case.budgets for case in cases), key=len)
    return tuple(
        case
        if case.budgets == budgets
        else replace(
            case,
            budgets=budgets,
            windows=score(case.ballots, budgets, estimator="windows"),
            exact=score(case.ballots, budgets),
        )
        for case in cases
    )
