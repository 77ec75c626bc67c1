"""Measure how many problems a menu needs: fitted on 50 to 280, judged on the same others.

`python scripts/menu_data.py facts crux` prints a table for docs/menus.md; it takes some minutes. The
recordings are not part of the repository. Each split keeps some problems apart; menus are fitted on the first
50, 100, ... of the rest, so that all are judged on the same problems. The price is found on the judged
problems, which needs no labels, so that all cost the same.
"""

import argparse

import numpy as np
from menu_evaluation import MENUS, read_menu_ballots

from adacompute.policies.modes.policy import MenuPolicy
from adacompute.pool import Ballots
from adacompute.pool.modes import Menu
from adacompute.replay import calibrate, replay
from adacompute.score import score

SIZES = (50, 100, 200, 280)
SPLITS, ORDERS = 4, 30
BUDGETS = (0.3, 0.5, 0.7)


def measure_router(ballots: Ballots, menu: Menu, budget: float) -> float:
    """The accuracy of one sample of either mode, by lot, at an average cost."""
    table = score(ballots, (1,), modes=menu, mixed=False, errors=False)
    return float(np.interp(budget, menu.costs, table.accuracy.mean(axis=0)))


def measure_split(ballots: Ballots, menu: Menu, seed: int) -> list[list[float]]:
    """By size and budget: the gain over a router by lot on the problems kept apart."""
    order = np.random.default_rng(seed).permutation(len(ballots))
    kept = ballots.only(np.sort(order[max(SIZES) :]))
    routed = [measure_router(kept, menu, budget) for budget in BUDGETS]
    gains = []
    for size in SIZES:
        policy = MenuPolicy(menu, seed=seed).fit(ballots.only(np.sort(order[:size])))
        gains.append([])
        for budget, base in zip(BUDGETS, routed, strict=True):
            price = calibrate(policy, kept, budget, orders=ORDERS)
            accuracy = replay(policy, kept, price=price, orders=ORDERS).accuracy
            gains[-1].append(accuracy.mean - base)
    return gains


def measure(name: str, splits: int) -> np.ndarray:
    """The gains of every split, (splits, sizes, budgets)."""
    recorded = MENUS[name]
    ballots = read_menu_ballots(recorded.files)
    menu = Menu.of(ballots, costs=recorded.costs)
    return np.array([measure_split(ballots.select(menu.names), menu, seed) for seed in range(splits)])


def main() -> None:
    parser = argparse.ArgumentParser(description="How many problems a menu needs.")
    parser.add_argument("names", nargs="+", choices=sorted(MENUS), metavar="NAME")
    parser.add_argument("--splits", type=int, default=SPLITS)
    options = parser.parse_args()
    print(f"| fitted on | {' | '.join(f'{size} problems' for size in SIZES)} |")
    print(f"| --- |{' ---: |' * len(SIZES)}")
    for name in options.names:
        gains = 100 * measure(name, options.splits).mean(axis=2)  # (splits, sizes)
        cells = [f"{column.mean():+.1f} ({column.min():+.1f} to {column.max():+.1f})" for column in gains.T]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
