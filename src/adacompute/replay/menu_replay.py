"""Replays a policy over a menu: recorded samples of several modes in random orders, as if live.

Paths are drawn some problems at a time, so that memory stays small. Votes are counted in the order in which
the policy drew them, as a live tally counts them. Costs are those of the recorded samples where the menu has
prices, else the modes' own.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from adacompute.errors import BudgetInvalid, BudgetOutOfRange, PolicyError
from adacompute.policies.base import Floats, Ints
from adacompute.policies.menu.policy import MenuPolicy
from adacompute.policies.menu.votes import NEVER_SEEN, MenuPaths, MenuVotes, draw_menu_paths
from adacompute.pool import Ballots
from adacompute.records import Budget
from adacompute.replay.per_problem import ProblemResults

__all__ = [
    "MenuChooser",
    "MenuReplay",
    "MenuRun",
    "check_menu_budget",
    "find_menu_price",
    "prepare_menu",
    "run_menu",
]

_CHUNK_PATHS = 6000  # paths at a time
_KEPT_CHUNKS = 4  # whose paths are kept for the next price, each up to a hundred megabytes
_STOP = -1


class MenuChooser(Protocol):
    """What is replayed over a menu: a `MenuPolicy`, or anything that chooses modes as it does."""

    def read(self, prompts: Sequence[str]) -> Floats:
        """What it sees of prompts, (prompts, numbers)."""

    def choose(self, reading: Floats, votes: MenuVotes, price: float | None) -> Ints:
        """The mode that each request draws a sample from now, (requests,); -1 stops."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MenuRun:
    """Where a policy stopped on each path."""

    drawn: Ints  # (paths, modes)
    cost: Floats  # (paths,) in the menu's unit
    grade: Floats  # (paths,) worth of the answer returned; NaN: not known
    agrees: Floats  # (paths,) 1 where it is the answer of all samples of the dearest mode


def run_menu(policy: MenuChooser, paths: MenuPaths, *, price: float | None, reading: Floats) -> MenuRun:
    """Runs the policy along every path, sample by sample, until it stops there.

    `reading` is what `policy.read` gives for the prompts of the paths' problems.
    """
    drawn = np.zeros((len(paths), len(paths.modes)), dtype=np.int64)
    seen = np.full((len(paths), paths.kinds), NEVER_SEEN, dtype=np.int64)
    active, longest = np.arange(len(paths)), np.array(paths.longest)
    step = 0
    while len(active):
        votes = paths.votes_after(active, drawn[active], seen[active])
        chosen = policy.choose(reading[paths.owner[active]], votes, price)
        if step == 0 and (chosen == _STOP).any():
            raise PolicyError(
                "a policy over a menu asks for no sample on an empty tally; it needs at least 1"
            )
        active, chosen = active[chosen != _STOP], chosen[chosen != _STOP]
        if (drawn[active, chosen] >= longest[chosen]).any():
            raise PolicyError(f"a policy over a menu asks for more samples of a mode than {longest.max()}")
        for mode in np.unique(chosen):
            rows = active[chosen == mode]
            number = paths.modes[mode].classes[drawn[rows, mode], rows]
            new = (number >= 0) & (seen[rows, np.maximum(number, 0)] == NEVER_SEEN)
            seen[rows[new], number[new]] = step
            drawn[rows, mode] += 1
        step += 1
    rows = np.arange(len(paths))
    leader = paths.votes_after(rows, drawn, seen).find_leaders()[0]
    return MenuRun(
        drawn=drawn,
        cost=paths.cost_after(rows, drawn),
        grade=paths.worth_of(rows, leader),
        agrees=paths.worth_of(rows, leader, by_agreement=True),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MenuReplay:
    """Recorded problems and paths that a menu policy is replayed on, at one price after another."""

    policy: MenuPolicy
    ballots: Ballots
    orders: int
    seed: int
    reading: Floats = field(repr=False)
    _paths: dict[int, MenuPaths] = field(default_factory=dict, repr=False)  # kept where they are few

    def run(self, price: float | None) -> "tuple[ProblemResults, Floats]":
        """The results of each problem at a price, and the mean samples of each mode, (modes,)."""
        parts: list[dict[str, Any]] = []
        each = max(1, _CHUNK_PATHS // self.orders)
        longest = [stopper.longest for stopper in self.policy.stoppers_]
        counts = np.zeros(sum(longest) + 1, dtype=np.int64)
        for number, start in enumerate(range(0, len(self.ballots), each)):
            rows = np.arange(start, min(start + each, len(self.ballots)))
            paths = self._draw(number, rows, longest)
            run = run_menu(self.policy, paths, price=price, reading=self.reading[rows])
            counts += np.bincount(run.drawn.sum(axis=1), minlength=len(counts))
            parts.append(
                {
                    "cost": paths.mean_per_problem(run.cost),
                    "accuracy": paths.mean_per_problem(run.grade),
                    "agreement": paths.mean_per_problem(run.agrees),
                    "waves": paths.mean_per_problem(run.drawn.sum(axis=1)),
                    "tokens": np.full(len(rows), np.nan),
                    "drawn": np.stack([paths.mean_per_problem(column) for column in run.drawn.T], axis=1),
                }
            )
        values = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        drawn = values.pop("drawn")
        results = ProblemResults(
            **values, counts=counts, most_waves=int(np.flatnonzero(counts).max(initial=0))
        )
        return results, drawn.mean(axis=0)

    def _draw(self, number: int, rows: Ints, longest: Sequence[int]) -> MenuPaths:
        """The paths of some problems: the same ones whenever they are drawn."""
        if number in self._paths:
            return self._paths[number]
        paths = draw_menu_paths(
            self.ballots.only(rows),
            weigh=self.policy.weigh,
            longest=longest,
            orders=self.orders,
            rng=np.random.default_rng([self.seed, number]),
        )
        if number < _KEPT_CHUNKS:
            self._paths[number] = paths
        return paths


def prepare_menu(policy: MenuPolicy, ballots: Ballots, *, orders: int, seed: int) -> MenuReplay:
    """Reads the prompts for the policy; `ballots` are of its modes."""
    return MenuReplay(
        policy=policy, ballots=ballots, orders=orders, seed=seed, reading=policy.read(ballots.prompts)
    )


def find_menu_price(prepared: MenuReplay, budget: float) -> float:
    """The lowest price whose mean cost is not above the budget.

    Between two corners of its hull a policy divides requests by their hash, so that the cost there is known
    from what the two corners cost on each problem: only corners are replayed.
    """
    policy, costs = prepared.policy, dict[int, Floats]()

    def cost_of(corner: int) -> Floats:
        if corner not in costs:
            costs[corner] = prepared.run(float(policy.prices_[corner]))[0].cost
        return costs[corner]

    low, high = 0, len(policy.prices_) - 1  # the dearest corner within the budget is between them
    if cost_of(low).mean() > budget:
        least = policy.menu.format_least(float(cost_of(low).mean()))
        raise BudgetOutOfRange(
            f"budget {policy.menu.format_cost(budget)} is below what {policy.kind} costs at any price; "
            f"give {least} or more"
        )
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if cost_of(middle).mean() <= budget else (low, middle - 1)
    if low == len(policy.prices_) - 1:
        return float(policy.prices_[low])
    hashes = prepared.reading[:, -1]
    order = np.argsort(hashes, kind="stable")
    added = np.cumsum((cost_of(low + 1) - cost_of(low))[order]) / len(order)
    within = int(np.flatnonzero(np.append(0.0, added) <= budget - cost_of(low).mean()).max())
    ends = np.concatenate([[0.0], hashes[order], [1.0]])
    share = (ends[within] + ends[within + 1]) / 2 if within else 0.0  # those with a lower hash are dearer
    return float(policy.prices_[low] ** (1 - share) * policy.prices_[low + 1] ** share)


def check_menu_budget(policy: MenuPolicy, budget: float | str | Budget) -> float:
    """An average cost in the menu's unit; BudgetInvalid for another unit or currency."""
    if not isinstance(budget, str | Budget):
        amount = float(budget)
    else:
        menu = policy.menu
        parsed = Budget.parse(budget, currency=menu.currency or None)
        unit = {"money": "money", "tokens": "tokens"}.get(menu.unit)
        if parsed.unit != unit:
            raise BudgetInvalid(
                f"budget {parsed} is not in the menu's unit, {menu.currency or menu.unit}; give a number"
            )
        amount = parsed.amount
    if not (math.isfinite(amount) and amount > 0):
        raise BudgetInvalid(f"budget {budget!r} can't be spent; give a number above 0")
    return amount
