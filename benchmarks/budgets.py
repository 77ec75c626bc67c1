"""Which average budgets are met, with and without log-probabilities: `python -m benchmarks.budgets POOL...`.

For each recording (the bundled ones, and those beside the checkout or that are named) a policy is calibrated
and replayed at some budgets. A menu is fitted on every second problem; its cheapest mode costs 1. A cell is
what one price for all requests costs; then what it costs if each has a price of its own near that one
(`policies.base`), as since, and how often that is right.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

import adacompute as ac
from adacompute.errors import AdacomputeError
from adacompute.policies import AdaptiveConsistency, EarlyStopping, Policy
from adacompute.pool import Ballots
from adacompute.replay.replay import Replayed

BUDGETS = (1.5, 2.0, 3.0, 4.0, 6.0)
TOLERANCE = 0.005
FEWEST = 300  # problems, from which on a budget must be met
BUNDLED = ("words", "words-direct", "facts", "facts-qwen")
SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "recordings"
RECORDED = (  # beside the checkout
    "gsm8k-qwen2.5-coder-1.5b",
    "math-qwen2.5-coder-1.5b",
    "reasoning-gym-qwen2.5-coder-1.5b",
    "math500-r1-distill-llama-8b",
)
CRUX = "modes/crux-output-gpt"
MENUS: dict[str, dict[str, tuple[str, float]]] = {  # by mode: its recording, and what a sample costs
    "facts, two models": {"small": ("facts", 1), "large": ("facts-qwen", 10)},
    "CRUXEval, GPT-3.5 and 4": {
        "small": (f"{CRUX}-3.5-turbo-0613-cot", 1),
        "large": (f"{CRUX}-4-0613-cot", 22),
    },
    "MGSM, s1.1 7B and 32B": {"small": ("modes/mgsm-7b", 1), "large": ("modes/mgsm-32b", 3.4)},
}
RULES: dict[str, type[Policy]] = {"asc": AdaptiveConsistency, "esc": EarlyStopping}


def drop_logprobs(ballots: Ballots) -> Ballots:
    """The same samples as an endpoint without log-probabilities would give them."""
    unknown = np.full(ballots.logprob.shape, np.nan)
    return replace(ballots, logprob=unknown, entropy=unknown, signals=None)


def meet(policy: Policy, ballots: Ballots, budget: float, *, spread: bool) -> Replayed | None:
    """What the policy costs and gives at the price that calibration finds; None: the budget is refused."""
    spreads = policy.spreads_price
    policy.spreads_price = spread and spreads
    try:
        price = ac.calibrate(policy, ballots, budget, too_few="drop")
        return ac.replay(policy, ballots, price=price, too_few="drop")
    except AdacomputeError:
        return None
    finally:
        policy.spreads_price = spreads


def show(policy: Policy, ballots: Ballots, budget: float) -> str:
    """A cell: the cost before, the cost since, bold if it isn't the budget, and how often it is right."""
    before, since = (meet(policy, ballots, budget, spread=spread) for spread in (False, True))
    if since is None:
        return "out of range"
    is_missed = len(ballots) >= FEWEST and abs(since.cost / budget - 1) > TOLERANCE
    met = f"**{since.cost:.3f}**" if is_missed else f"{since.cost:.3f}"
    return f"{'–' if before is None else f'{before.cost:.2f}'} → {met}, {100 * since.accuracy.mean:.1f}%"


def list_rows(name: str, ballots: Ballots, policies: Mapping[str, Policy]) -> Iterator[dict[str, str]]:
    """A row for each policy."""
    for kind, policy in policies.items():
        cells = {f"{budget:g}": show(policy, ballots, budget) for budget in BUDGETS}
        yield {"recording": name, "policy": kind, **cells}


def open_recording(source: str | Path) -> ac.Pool:
    """A bundled recording, one beside the checkout, or a file."""
    if isinstance(source, Path):
        return ac.open_pool(source)
    return ac.bundled(source) if source in BUNDLED else ac.open_pool(SHARED / f"{source}.jsonl.gz")


def list_pools(pools: Sequence[Path | str]) -> Iterator[dict[str, str]]:
    """The rows of some recordings, with and without log-probabilities."""
    for source in pools:
        with open_recording(source) as pool:
            ballots = pool.ballots()
        name = source if isinstance(source, str) else source.name.removesuffix(".jsonl.gz")
        longest = min(16, int(np.median(ballots.drawn)))
        if np.isfinite(ballots.logprob).any():
            yield from list_rows(name, ballots, {"stopping": ac.StoppingPolicy(longest=longest)})
        makers = {"stopping": ac.StoppingPolicy, **(RULES if source in BUNDLED else {})}
        plain = {kind: make(longest=longest) for kind, make in makers.items()}
        yield from list_rows(f"{name}, plain votes", drop_logprobs(ballots), plain)


def list_menus() -> Iterator[dict[str, str]]:
    """The rows of the menus whose recordings are there."""
    for name, modes in MENUS.items():
        sources = {mode: source for mode, (source, _) in modes.items()}
        if not all(source in BUNDLED or is_beside(source) for source in sources.values()):
            continue
        with ExitStack() as stack:
            pools = {mode: stack.enter_context(open_recording(source)) for mode, source in sources.items()}
            ballots = ac.join_pools(pools).ballots()
        menu = ac.Menu.of(ballots, costs={mode: cost for mode, (_, cost) in modes.items()})
        longest = min(16, *(int(part.drawn.min()) for part in ballots.parts))
        policy = ac.MenuPolicy(menu, longest=longest).fit(ballots.only(range(0, len(ballots), 2)))
        yield from list_rows(name, ballots, {"menu": policy})


def is_beside(name: str) -> bool:
    return (SHARED / f"{name}.jsonl.gz").is_file()


def run() -> list[dict[str, str]]:
    """The rows of the bundled recordings, and of those beside the checkout that are there."""
    return [*list_pools([*BUNDLED, *filter(is_beside, RECORDED)]), *list_menus()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pools", nargs="*", type=Path)
    asked = parser.parse_args()
    rows = list_pools(asked.pools or [*BUNDLED, *filter(is_beside, RECORDED)])
    for number, row in enumerate(rows):
        if not number:
            print(f"| {' | '.join(row)} |\n|{' --- |' * len(row)}")
        print(f"| {' | '.join(row.values())} |", flush=True)
    for row in [] if asked.pools else list_menus():
        print(f"| {' | '.join(row.values())} |", flush=True)


if __name__ == "__main__":
    main()
