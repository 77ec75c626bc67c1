"""Which average budgets are met, with and without log-probabilities: `python -m benchmarks.budgets POOL...`.

For each recording (the bundled ones, and those beside the checkout or that are named) a policy is calibrated
and replayed at some budgets. "Before" all requests are decided at one price; since then each has a price of
its own near it (`policies.base`). A cell is the cost met, in samples; accuracy follows, in percent.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import adacompute as ac
from adacompute.errors import AdacomputeError
from adacompute.policies import AdaptiveConsistency, EarlyStopping, Policy
from adacompute.pool import Ballots

BUDGETS = (1.5, 2.0, 3.0, 4.0, 6.0)
MODE_BUDGETS = (0.2, 0.4, 0.7, 1.0, 2.0)  # samples of the larger model
MODES = {"small": "facts", "large": "facts-qwen"}
BUNDLED = ("words", "words-direct", "facts", "facts-qwen")
SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "recordings"
RECORDED = ("gsm8k-qwen2.5-coder-1.5b", "math-qwen2.5-coder-1.5b")  # beside the checkout
RULES: dict[str, type[Policy]] = {"asc": AdaptiveConsistency, "esc": EarlyStopping}


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


def list_rows(name: str, ballots: Ballots, makers: dict[str, type[Policy]]) -> Iterator[dict[str, str]]:
    """A row for each policy, before and after."""
    longest = min(16, int(np.median(ballots.drawn)))
    for kind, make in makers.items():
        for when, spread in (("before", False), ("after", True)):
            cells = {
                f"{each:g}": meet(make(longest=longest), ballots, each, spread=spread) for each in BUDGETS
            }
            yield {"recording": name, "policy": kind, "": when, **cells}


def list_pools(pools: Sequence[Path | str]) -> Iterator[dict[str, str]]:
    """The rows of some recordings, with and without log-probabilities."""
    for source in pools:
        with ac.bundled(source) if isinstance(source, str) else ac.open_pool(source) as pool:
            ballots = pool.ballots()
        name = source if isinstance(source, str) else source.name.removesuffix(".jsonl.gz")
        if np.isfinite(ballots.logprob).any():
            yield from list_rows(name, ballots, {"stopping": ac.StoppingPolicy})
        rules = RULES if isinstance(source, str) else {}
        plain = {"stopping": ac.StoppingPolicy, **rules}
        yield from list_rows(f"{name}, plain votes", drop_logprobs(ballots), plain)


def list_modes() -> Iterator[dict[str, str]]:
    """Both bundled models on facts, a menu fitted on half of the problems, in samples of the larger one."""
    with ac.join_pools(MODES) as pool:
        ballots = pool.ballots()
    menu = ac.Menu.of(ballots, costs={"small": 0.1, "large": 1.0})
    policy = ac.MenuPolicy(menu).fit(ballots.only(range(0, len(ballots), 2)))
    for budget in MODE_BUDGETS:
        yield {"budget": f"{budget:g}", "met": meet(policy, ballots, budget, spread=True)}


def run() -> list[dict[str, str]]:
    """The rows of the bundled recordings, and of those beside the checkout that are there."""
    beside = [SHARED / f"{name}.jsonl.gz" for name in RECORDED]
    return list(list_pools([*BUNDLED, *(path for path in beside if path.exists())]))


def print_table(rows: Iterator[dict[str, str]]) -> None:
    for number, row in enumerate(rows):
        if not number:
            print(f"| {' | '.join(row)} |\n|{' --- |' * len(row)}")
        print(f"| {' | '.join(row.values())} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pools", nargs="*", type=Path)
    asked = parser.parse_args()
    print_table(list_pools(asked.pools or BUNDLED))
    if not asked.pools:
        print()
        print_table(list_modes())


if __name__ == "__main__":
    main()
