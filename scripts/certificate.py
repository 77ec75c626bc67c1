"""What a certificate costs (docs/design/policies.md), and its error on distributions made to break it.

    python scripts/certificate.py             the table, on the recordings beside the checkout
    python scripts/certificate.py --simulate  errors by simulation

Each problem's samples are replayed in random orders. `guarantee` draws up to 64 plain votes. Beside it stands
the accuracy of priced stopping, as it comes, with a prior that hasn't seen the recording. PPR-1v1 is given
how many different answers each problem has, which it needs and a gateway doesn't know.
"""

import sys

import numpy as np
import numpy.typing as npt
from recordings import read_recordings

import adacompute as ac
from adacompute.policies import GuaranteePolicy
from adacompute.policies.guarantee import find_boundary
from adacompute.policies.paths import Paths, draw_paths
from adacompute.pool import Ballots
from adacompute.replay import run_policy

DELTA, LONGEST, ORDERS, SEED = 0.05, 64, 20, 0
BUDGETS = (2, 4, 8)  # samples on average of priced stopping
TRIALS = 20_000  # paths of each simulated distribution
Floats = npt.NDArray[np.float64]


def find_ppr_cost(paths: Paths) -> tuple[float, float]:
    """Samples and share certified by PPR-1v1: evidence 2^n B(a + 1, b + 1) of (K - 1) / delta or more."""
    log_factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, LONGEST + 2)))])
    first, second = paths.first.astype(int), paths.second.astype(int)
    evidence = (
        (first + second) * np.log(2)
        + log_factorials[first]
        + log_factorials[second]
        - log_factorials[first + second + 1]
    )
    kinds = np.maximum(2, paths.ballots.classes.max(axis=1) + 1)[paths.problems]
    reached = (evidence >= np.log((kinds - 1) / DELTA)) & (first > second)
    drawn = np.where(reached.any(axis=0), reached.argmax(axis=0) + 1, LONGEST)
    return float(drawn.mean()), float(reached.any(axis=0).mean())


def measure_stopping(ballots: Ballots, budget: float) -> float:
    """The accuracy of priced stopping, as it comes, with a prior that hasn't seen these problems."""
    policy = ac.StoppingPolicy().copy_without(ballots)
    price = ac.calibrate(policy, ballots, budget=budget, orders=ORDERS)
    return ac.replay(policy, ballots, price=price, orders=ORDERS).accuracy.mean


def build_row(name: str, ballots: Ballots) -> list[str]:
    paths = draw_paths(ballots, rng=np.random.default_rng(SEED), orders=ORDERS, longest=LONGEST)
    policy = GuaranteePolicy(DELTA, longest=LONGEST)
    run = run_policy(policy, paths, dial=None)
    certified = policy.mask_certified(paths.state_after(np.arange(len(paths)), run.drawn))
    wrong = (1 - run.agrees[certified]).mean()
    ppr_cost, ppr_share = find_ppr_cost(paths)
    return [
        name,
        f"{run.drawn.mean():.1f}",
        f"{certified.mean():.0%}",
        f"{run.drawn[certified].mean():.1f}",
        f"{wrong:.2%}",
        f"{np.nanmean(run.grade):.1%}",
        *(f"{measure_stopping(ballots, budget):.1%}" for budget in BUDGETS),
        f"{ppr_cost:.1f} ({ppr_share:.0%})",
    ]


def simulate() -> None:
    """Prints the share of paths on which another answer than the commonest is ever certified."""
    rng = np.random.default_rng(SEED)
    tail = 1 / np.arange(1, 201) ** 1.1
    made = {
        "two, tied": [0.5, 0.5],
        "three, tied": [1 / 3] * 3,
        "ten, tied": [0.1] * 10,
        "a hundred, tied": [0.01] * 100,
        "two tied at 45%, one of 10%": [0.45, 0.45, 0.1],
        "two tied at 10%, 800 of 0.1%": [0.1, 0.1, *[0.001] * 800],
        "two tied at 30%, a heavy tail": [0.3, 0.3, *(0.4 * tail / tail.sum())],
        "51% to 49%": [0.51, 0.49],
        "36%, 32%, 32%": [0.36, 0.32, 0.32],
    }
    for delta in (0.01, 0.05, 0.1):
        boundary = find_boundary(LONGEST, delta)
        for name, shares in made.items():
            wrong = sum(_count_wrong(np.array(shares), boundary, rng, TRIALS // 10) for _ in range(10))
            print(f"delta {delta}: {name}: {wrong / TRIALS:.4f}")


def _count_wrong(
    shares: Floats, boundary: npt.NDArray[np.int64], rng: np.random.Generator, trials: int
) -> int:
    """Paths that certify another answer than number 0, which counts as the only commonest one."""
    draws = rng.choice(len(shares), size=(LONGEST, trials), p=shares / shares.sum())
    votes = np.zeros((trials, len(shares)), dtype=np.int16)
    rows, wrong, over = np.arange(trials), 0, np.zeros(trials, dtype=bool)
    for drawn in draws:
        votes[rows, drawn] += 1
        top = np.partition(votes, -2, axis=1)[:, -2:]
        stops = ~over & (top[:, 1] >= boundary[top[:, 0]])
        wrong += int((votes[stops].argmax(axis=1) != 0).sum())
        over |= stops
    return wrong


def main() -> None:
    if "--simulate" in sys.argv[1:]:
        simulate()
        return
    heads = ["recording", "samples", "certified", "samples of those", "not the pool's commonest", "accuracy"]
    heads += [*(f"stopping at {budget}" for budget in BUDGETS), "PPR-1v1"]
    print("| " + " | ".join(heads) + " |")
    print("| --- " * len(heads) + "|")
    for name, ballots in read_recordings().items():
        print("| " + " | ".join(build_row(name, ballots)) + " |", flush=True)


if __name__ == "__main__":
    main()
