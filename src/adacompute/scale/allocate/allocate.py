"""Prompts, a policy, an average -> the same prompts with budgets. Knows nothing of how an engine works."""

import math
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

from adacompute.errors import BudgetOutOfRange, ScaleError
from adacompute.policies.base import Policy
from adacompute.policies.curve import CurvePolicy
from adacompute.scale.allocate.local import bought_here, given_here
from adacompute.scale.allocate.prompts import Prompts, opened
from adacompute.scale.allocate.record import Allotted, Found, Progress
from adacompute.scale.allocate.rule import Rule
from adacompute.scale.allocate.written import check_output, publish, workplace
from adacompute.solve.price import check_budget, check_price

__all__ = ["allocate"]

_CLOSE = 0.01  # of a sample on average: nearer than that is met
Engine = Literal["local", "ray"]


def allocate(
    source: str | os.PathLike[str],
    policy: Policy,
    *,
    into: str | os.PathLike[str],
    budget: float | None = None,
    price: float | None = None,
    column: str | None = None,
    engine: Engine = "local",
    workers: int | None = None,
    overwrite: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Allotted:
    """Writes `source`, a Parquet file or a folder of them, to `into` with a column `budget`.

    The policy decides on the prompt alone. With `budget`, a curve's one price over all prompts is found, so
    that they get that many samples on average at the most; with `price`, that is the price. Both engines
    give every prompt the same.
    """
    start = time.monotonic()
    if engine not in ("local", "ray"):
        raise ScaleError(f"engine {engine!r} is not known; give 'local' or 'ray'")
    rule = Rule.of(policy)
    _check_asked(rule, budget, price)
    check_output(Path(into), Path(source), overwrite=overwrite)
    prompts = opened(Path(source), column=column)
    rule.given(["What is 1 + 1?"], 0.0 if rule.priced else None)  # what isn't fitted says so here
    tell = progress or _quiet
    with workplace(Path(into)) as place:
        check_output(Path(into), Path(source), overwrite=overwrite)  # another run may just have ended
        if engine == "ray":
            from adacompute.scale.allocate.on_ray import on_ray  # here: it takes half of the package along

            found = on_ray(prompts, rule, place, budget=budget, price=price, workers=workers, tell=tell)
        elif rule.priced and budget is not None:
            found = bought_here(prompts, rule, place, budget=budget, tell=tell)
        else:
            found = given_here(prompts, rule, place, price=price, tell=tell)
        publish(prompts, place, Path(into))
    told = _told(prompts, rule, found, budget, price)
    return replace(told, notes=_notes(told, rule), seconds=time.monotonic() - start)


def _quiet(progress: Progress) -> None:
    """Nobody wants to know."""


def _check_asked(rule: Rule, budget: float | None, price: float | None) -> None:
    """Refuses an average, or a price, that the policy has no budgets for."""
    kind, modes, own = rule.policy.kind, rule.modes, rule.own_budget
    if (budget is None) == (price is None):
        raise BudgetOutOfRange("give a budget, or a price instead: one of the two")
    if price is not None:
        if own is not None:
            raise BudgetOutOfRange(f"{kind} has no price; give the budget it was made for, {own:g}")
        check_price(price)
        return
    check_budget(budget, cheapest=float(modes[0]), dearest=float(modes[-1]), unit="samples")
    if own is not None and budget is not None and not math.isclose(own, budget):
        raise BudgetOutOfRange(
            f"{kind} was made for {own:g} samples on average, not {budget:g}; "
            f"give --budget {own:g}, or fit one for {budget:g}"
        )


def _told(prompts: Prompts, rule: Rule, found: Found, budget: float | None, price: float | None) -> Allotted:
    total, plan, search = found.total, found.plan, found.search
    return Allotted(
        problems=total.problems,
        policy=rule.policy.kind,
        budget=None if budget is None else float(budget),
        price=price if plan is None else plan.price,
        budgets=rule.modes,
        counts=total.counts,
        cost=total.cost / total.problems,
        accuracy=min(1.0, total.accuracy / total.problems) if rule.priced else None,
        bound=None if plan is None else min(1.0, plan.bound),
        mix=None if plan is None else plan.mix,
        files=len(prompts.files),
        shards=found.shards,
        rounds=0 if search is None else search.rounds,
        summary_bytes=0 if search is None else search.nbytes,
    )


def _notes(told: Allotted, rule: Rule) -> tuple[str, ...]:
    notes = []
    if isinstance(rule.policy, CurvePolicy) and not rule.policy.tells_apart:
        notes.append(
            "this policy predicts the same of every prompt: its features told it nothing on problems it "
            "hadn't seen, so who gets more is a matter of the row"
        )
    if told.budget is not None and told.accuracy is None and abs(told.cost - told.budget) > _CLOSE:
        side = "above" if told.cost > told.budget else "below"
        notes.append(
            f"{told.policy} gives {told.cost:.2f} samples on average, {side} the {told.budget:g} asked for: "
            "it has no price that could be moved"
        )
    if told.budget is not None and told.price == 0 and told.cost < told.budget - _CLOSE:
        notes.append(
            f"no more than {told.cost:.2f} samples on average are predicted to help; the rest is unspent"
        )
    return tuple(notes)
