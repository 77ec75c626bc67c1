"""Which average budgets are met, with and without log-probabilities: `python -m benchmarks.budgets POOL...`.

For each recording (the bundled ones, and those that are named) a policy is calibrated and replayed at some
budgets. "Before" all requests are decided at one price; since then each has a price of its own near it
(`policies.place`). A cell is the cost met, in samples, or of several modes in samples of the dearest one;
accuracy follows, in percent.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

import adacompute as ac
from adacompute.errors import AdacomputeError
from adacompute.policies import AdaptiveConsistency, EarlyStopping, Policy
from adacompute.pool import Ballots

BUDGETS = (1.5, 2.0, 3.0, 4.0, 6.0)
MODE_BUDGETS = (0.2, 0.4, 0.7, 1.0, 2.0)
BUNDLED = ("words", "words-direct", "facts", "facts-qwen")


def drop_logprobs(ballots: Ballots) -> Ballots:
    """The same samples as an endpoint without log-probabilities would give them."""
    unknown = np.full(ballots.logprob.shape, np.nan)
    return replace(ballots, logprob=unknown, entropy=unknown, signals=None)


def meet(policy: Policy, ballots: Ballots, budget: float, *, spread: bool) -> str:
    """What the policy costs and gives at the price that calibration finds."""
    policy.spreads_price = spread and policy.spreads_price
    try:
        price = ac.calibrate(policy, ballots, budget, too_few="drop")
    except AdacomputeError:
        return "out of range"
    result = ac.replay(policy, ballots, price=price, too_few="drop")
    return f"{result.cost:.3f} {100 * result.accuracy.mean:.1f}%"


def print_rows(name: str, ballots: Ballots, makers: dict[str, type[Policy]]) -> None:
    """A row for each policy, before and after."""
    for kind, make in makers.items():
        for when, spread in (("before", False), ("after", True)):
            longest = min(16, int(np.median(ballots.drawn)))
            cells = [meet(make(longest=longest), ballots, budget, spread=spread) for budget in BUDGETS]
            print(f"| {name} | {kind} | {when} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pools", nargs="*", type=Path)
    asked = parser.parse_args()
    print(f"| recording | policy | | {' | '.join(f'{budget:g}' for budget in BUDGETS)} |")
    print("| --- | --- | --- |" + " --- |" * len(BUDGETS))
    rules: dict[str, type[Policy]] = {"asc": AdaptiveConsistency, "esc": EarlyStopping}
    for source in asked.pools or BUNDLED:
        with ac.bundled(source) if isinstance(source, str) else ac.open_pool(source) as pool:
            ballots = pool.ballots()
        name = source if isinstance(source, str) else source.name.removesuffix(".jsonl.gz")
        if np.isfinite(ballots.logprob).any():
            print_rows(name, ballots, {"stopping": ac.StoppingPolicy})
        rows = rules if isinstance(source, str) else {}
        print_rows(f"{name}, plain", drop_logprobs(ballots), {"stopping": ac.StoppingPolicy, **rows})
    if not asked.pools:
        print_modes()


def print_modes() -> None:
    """The menu of both bundled models on facts, fitted on half of the problems."""
    with ac.join_pools({"small": "facts", "large": "facts-qwen"}) as pool:
        ballots = pool.ballots()
    menu = ac.Menu.of(ballots, costs={"small": 0.1, "large": 1.0})
    policy = ac.MenuPolicy(menu).fit(ballots.only(range(0, len(ballots), 2)))
    cells = [meet(policy, ballots, budget, spread=True) for budget in MODE_BUDGETS]
    print(f"\n| two models on facts | {' | '.join(f'{budget:g}' for budget in MODE_BUDGETS)} |")
    print(f"| --- |{' --- |' * len(cells)}\n| fitted on half | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
