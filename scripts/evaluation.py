"""Makes docs/reference/evaluation.md from the recordings beside the checkout (`make evaluation`, 30 minutes).

`python scripts/evaluation.py --keep FILE` keeps the numbers too; `--from FILE` writes the page from them
without measuring again; `--peers FOLDER` keeps what the other policies gave, to measure ours alone next time.
The page's words and tables are in `evaluation_page.py`; what is compared, and how, in `adacompute.evaluate`.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from evaluation_page import page

from adacompute.evaluate import Bootstrap, Interval, MatchedCost, PolicyPoints, join_points, match_cost
from adacompute.evaluate.conclusions import make_bootstrap
from adacompute.evaluate.measure import EvaluationSetup
from adacompute.evaluate.oracle_bounds import bracket_oracle
from adacompute.evaluate.protocols import AVERAGE_BUDGETS, EvaluationRuns, PolicyChoices, run_policies
from adacompute.evaluate.resampling import mean_over_recordings
from adacompute.policies.base import Policy
from adacompute.policies.stopping import StoppingPolicy
from adacompute.pool import Ballots, open_pool

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT.parent / "shared" / "recordings"
PAGE = ROOT / "docs" / "reference" / "evaluation.md"
ORDERS, FOLDS, SEED = 100, 5, 2026
PEERS = ("fixed", "asc", "esc", "doubling", "bayes", "pets", "curve", "classifier")
TRANSFERRED, LABELS, BARE, WAVES = (
    "transferred",
    "calibrated",
    "calibrated, no labels",
    "transferred, 3 waves",
)
PARTS = ("cost", "accuracy")


@dataclass(frozen=True)
class As:
    """Makes the transferred policy as it is, on the vote scale of the training problems."""

    policy: StoppingPolicy

    def __call__(self, train: Ballots, **_: object) -> Policy:
        return self.policy.copy_for(train)


@dataclass(frozen=True)
class Calibrated:
    """Makes the transferred policy's heir, fitted on the training problems."""

    prior: StoppingPolicy
    labels: bool

    def __call__(self, train: Ballots, **_: object) -> Policy:
        return StoppingPolicy(prior=self.prior).fit(train, labels=self.labels)


def read_recordings(folder: Path) -> dict[str, Ballots]:
    """Every recording by its short name: what comes before the model's."""
    results = {}
    for file in sorted(folder.glob("*.jsonl.gz")):
        with open_pool(file) as pool:
            short = file.name.split("-qwen")[0].split("-smollm")[0].split("-r1")[0]
            results[short] = pool.ballots()
    return results


def withhold_logprobs(ballots: Ballots) -> Ballots:
    """The same samples, as if no log-probability had been recorded."""
    return replace(ballots, logprob=np.full(ballots.logprob.shape, np.nan))


def can_weigh_votes(ballots: Ballots) -> bool:
    return bool(np.isfinite(ballots.signal("logprob")[ballots.classes != -2]).all())


@dataclass(frozen=True)
class Run:
    """Everyone's settings on one recording, out of fold, with one way of counting votes."""

    setup: EvaluationSetup
    points: dict[str, PolicyPoints]


def run_recording(name: str, ballots: Ballots, others: Sequence[Ballots], options: argparse.Namespace) -> Run:
    """The peers, kept from an earlier run where asked for, and ours, fitted on the other recordings."""
    kept = options.peers / f"{name.replace(', ', '-')}.npz" if options.peers else None
    if kept is not None and kept.is_file():
        peers = read_points(kept)
    else:
        peers = list_points(run_with_shared_folds(name, ballots, PEERS, options.workers))
        if kept is not None:
            options.peers.mkdir(parents=True, exist_ok=True)
            np.savez(kept, **{f"{one}|{part}": getattr(peers[one], part) for one in peers for part in PARTS})
    start = time.monotonic()
    prior = StoppingPolicy.pooled(list(others), without=ballots)
    waves = StoppingPolicy(prior=prior, max_waves=3)
    print_progress(f"{name}: prior fitted on {len(others)} others, {time.monotonic() - start:.0f} s")
    makers = ((TRANSFERRED, As(prior)), (LABELS, Calibrated(prior, True)), (BARE, Calibrated(prior, False)))
    ours = run_with_shared_folds(name, ballots, (*makers, (WAVES, As(waves))), options.workers)
    return Run(ours.setup, peers | list_points(ours))


def run_with_shared_folds(
    name: str, ballots: Ballots, policies: PolicyChoices, workers: int
) -> EvaluationRuns:
    """Policies on one recording: the same folds and orders whoever they are."""
    return run_policies(
        ballots,
        policies=policies,
        parts=FOLDS,
        orders=ORDERS,
        seed=SEED,
        workers=workers,
        calibrates=False,
        progress=lambda done, total, last: print_progress(f"{name}: {done} of {total} ({last})"),
    )


def list_points(run: EvaluationRuns) -> dict[str, PolicyPoints]:
    return {one.name: one.points for one in run.everyone}


def read_points(file: Path) -> dict[str, PolicyPoints]:
    with np.load(file) as kept:
        return {one: PolicyPoints(**{part: kept[f"{one}|{part}"] for part in PARTS}) for one in PEERS}


def compute_numbers(name: str, runs: dict[str, Run]) -> dict[str, Any]:
    """One recording: accuracies at matched cost, differences with intervals, the oracle."""
    main = runs.get("weighted", runs["plain"])
    peers = join_points([run.points[one] for run in runs.values() for one in PEERS])
    oracles = {votes: {one.budget: one for one in bracket_oracle(run.setup)} for votes, run in runs.items()}
    results: dict[str, Any] = {
        "name": name,
        "problems": len(main.setup.ballots),
        "votes": list(runs),
        "at": {},
    }
    for budget in AVERAGE_BUDGETS:
        at = {one: match_cost(points, budget) for one, points in main.points.items()}
        plain = {one: match_cost(points, budget) for one, points in runs["plain"].points.items()}
        at["peers"] = match_cost(peers, budget)
        results["at"][str(budget)] = {
            "accuracy": {one: own and own.accuracy for one, own in at.items()},
            "plain": {one: own and own.accuracy for one, own in plain.items()},
            "oracle": {
                votes: [own[budget].low and own[budget].low.mean, own[budget].high]
                for votes, own in oracles.items()
            },
            **compute_differences(at, make_bootstrap(main.setup)),
        }
    return results


PAIRS = {
    "lead": (TRANSFERRED, "peers"),
    "labels": (LABELS, TRANSFERRED),
    "bare": (BARE, TRANSFERRED),
    "gain": (TRANSFERRED, "fixed"),
    "kept": (WAVES, "fixed"),
    "labels_lead": (LABELS, "peers"),
}


def compute_differences(at: dict[str, MatchedCost | None], boot: Bootstrap) -> dict[str, Any]:
    """Paired, with intervals; and problem by problem, for the mean over recordings."""
    each = {}
    for key, (one, other) in PAIRS.items():
        a, b = at[one], at[other]
        each[key] = a.each - b.each if a is not None and b is not None else None
    intervals = {
        key: None if gap is None else plain_interval(boot.interval(gap)) for key, gap in each.items()
    }
    return {"difference": intervals, "each": each}


def plain_interval(interval: Interval) -> dict[str, float | None]:
    return {"mean": interval.mean, "low": interval.low, "high": interval.high}


def average_recordings(each: list[dict[str, Any]]) -> dict[str, Any]:
    """Over recordings: mean accuracies, and paired differences with their intervals."""
    results = {}
    for budget in map(str, AVERAGE_BUDGETS):
        here = [one["at"][budget] for one in each]
        keys = here[0]["each"]
        results[budget] = {
            key: plain_interval(mean_over_recordings([one["each"][key] for one in here], seed=SEED))
            for key in keys
            if all(one["each"][key] is not None for one in here)
        }
    return results


def measure(options: argparse.Namespace) -> dict[str, Any]:
    pools = read_recordings(FOLDER)
    print_progress(f"{len(pools)} recordings: {', '.join(pools)}")
    each = []
    for name, ballots in pools.items():
        others = [one for other, one in pools.items() if other != name]
        runs = {}
        if can_weigh_votes(ballots):
            runs["weighted"] = run_recording(f"{name}, weighted", ballots, others, options)
        bare = withhold_logprobs(ballots)
        runs["plain"] = run_recording(
            f"{name}, plain", bare, [withhold_logprobs(one) for one in others], options
        )
        each.append(compute_numbers(name, runs))
    results = {
        "recordings": each,
        "means": average_recordings(each),
        "orders": ORDERS,
        "folds": FOLDS,
        "budgets": list(AVERAGE_BUDGETS),
    }
    for one in each:
        for at in one["at"].values():
            del at["each"]  # one number a problem: not for the page
    return results


def print_progress(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", type=Path, help="write the numbers to this file too")
    parser.add_argument("--from", dest="given", type=Path, help="make the page from kept numbers")
    parser.add_argument("--workers", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("--peers", type=Path, help="keep the peers' numbers here, and take them from here")
    options = parser.parse_args()
    if options.given:
        results = json.loads(options.given.read_text("utf-8"))
    elif not (FOLDER / "README.md").is_file():
        sys.exit(
            f"{FOLDER}: the recordings are not there; this page is made from them, and can't be renewed here"
        )
    else:
        results = measure(options)
    if options.keep:
        options.keep.write_text(json.dumps(results), "utf-8")
    PAGE.write_text(page(results), "utf-8")
    print_progress(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
