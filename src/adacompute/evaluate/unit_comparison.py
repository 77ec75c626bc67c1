"""Policies at the same average cost in tokens or money, by the recorded tokens.

Every policy is fitted and run as in `evaluate`. Only the cost of its settings is counted in another unit:
requests with more samples often have longer responses as well, so a policy that draws where it is hard pays
more for a sample than uniform sampling does, and a comparison in samples flatters it. There is no verdict and
no oracle in these units.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from adacompute.errors import BudgetInvalid, BudgetOutOfRange
from adacompute.evaluate.comparison import Match, PolicyPoints, PolicyResult, match_policies
from adacompute.evaluate.conclusions import make_bootstrap
from adacompute.evaluate.measure import AVERAGE_BUDGETS, ORACLE, Basis, Votes, leave_out_short
from adacompute.evaluate.parallel import ProgressCallback
from adacompute.evaluate.protocols import POLICY_NAMES, PolicyChoices, run_policies
from adacompute.policies.base import get_ballots
from adacompute.pool import Ballots, Pool
from adacompute.records import Budget, BudgetUnit, TokenPrices
from adacompute.replay.calibrate import RequestCosts, parse_average

__all__ = ["UnitComparison", "compare_in_unit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitComparison:
    """Policies at the same average cost in tokens or money, held-out."""

    unit: BudgetUnit
    currency: str  # of money
    budgets: tuple[float, ...]  # a request, rising
    problems: int
    folds: int
    votes: str  # "plain" or "weighted"
    basis: Basis
    least: float  # what a request costs with one sample
    matched: tuple[Match, ...] = field(repr=False)  # `worth`: what uniform sampling as accurate costs

    def match(self, policy: str, budget: float) -> Match | None:
        """A policy at one of the budgets; None where it can't cost that little, or took no part."""
        return next((row for row in self.matched if (row.policy, row.budget) == (policy, budget)), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def compare_in_unit(
    pool: Pool | Ballots,
    budgets: Sequence[str | Budget],
    *,
    prices: TokenPrices | None = None,
    policies: PolicyChoices = POLICY_NAMES,
    folds: int = 5,
    votes: Votes = "auto",
    orders: int = 50,
    seed: int = 0,
    workers: int = 1,
    progress: ProgressCallback | None = None,
) -> UnitComparison:
    """Compare policies at budgets in tokens or money; NotRecorded where samples have no number of tokens.

    `budgets` are such as "500 tokens", or "2 USD per 1000" with `prices`, all in one unit. Prompts are
    counted too: by `prices`, else as the pool's calls recorded them (`PromptCharge`).
    """
    averages = [parse_average(budget, prices) for budget in budgets]
    units = {average.unit for average in averages}
    if len(units) != 1 or "samples" in units:
        raise BudgetInvalid(
            f"budgets {', '.join(map(str, averages)) or 'none'} are not all in tokens, or all in money; "
            "give one unit, or use evaluate for samples"
        )
    ballots, _ = leave_out_short(get_ballots(pool))
    RequestCosts.of(averages[0], ballots, prices)  # raises before anything is fitted
    in_samples = [budget for budget in AVERAGE_BUDGETS if budget <= int(ballots.drawn.min(initial=16))]
    runs = run_policies(
        ballots,
        budgets=in_samples or AVERAGE_BUDGETS[:1],
        policies=[name for name in policies if name != ORACLE],
        parts=folds,
        votes=votes,
        orders=orders,
        seed=seed,
        workers=workers,
        calibrates=False,
        progress=progress,
    )
    costs = RequestCosts.of(averages[0], runs.setup.ballots, prices)
    everyone = [_count_in_unit(result, costs) for result in runs.everyone]
    amounts = tuple(sorted({average.amount for average in averages}))
    least = min(float(result.points.cost.mean(axis=1).min()) for result in everyone)
    if amounts[-1] < least:
        unit = averages[0].currency or averages[0].unit
        raise BudgetOutOfRange(
            f"budget {amounts[-1]:g} {unit} a request is below what one sample costs on average, "
            f"{least:.4g}; give a larger one"
        )
    return UnitComparison(
        unit=averages[0].unit,
        currency=averages[0].currency,
        budgets=amounts,
        problems=len(runs.setup.ballots),
        folds=runs.parts,
        votes="weighted" if runs.setup.weighted else "plain",
        basis=runs.setup.basis,
        least=least,
        matched=match_policies(everyone, amounts, boot=make_bootstrap(runs.setup), oracle=()),
    )


def _count_in_unit(result: PolicyResult, costs: RequestCosts) -> PolicyResult:
    """The same policy, with the cost of its settings in another unit."""
    tokens, waves = result.point_tokens, result.point_waves
    assert tokens is not None  # as recorded: the ballots were checked
    assert waves is not None
    rows = np.arange(result.points.cost.shape[1])
    points = PolicyPoints(
        cost=costs.compute(result.points.cost, waves, tokens, rows),
        accuracy=result.points.accuracy,
        labels=result.points.labels,
    )
    return replace(result, points=points)
