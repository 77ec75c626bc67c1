"""Makes docs/reference/evaluation.md from the recordings beside the checkout: `make evaluation`, half an hour.

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
PEERS = ("fixed", "asc", "esc", "doubling", "curve", "classifier")
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


def recordings(folder: Path) -> dict[str, Ballots]:
    """Every recording by its short name: what comes before the model's."""
    found = {}
    for file in sorted(folder.glob("*.jsonl.gz")):
        with open_pool(file) as pool:
            short = file.name.split("-qwen")[0].split("-smollm")[0].split("-r1")[0]
            found[short] = pool.ballots()
    return found


def withheld(ballots: Ballots) -> Ballots:
    """The same samples, as if no log-probability had been recorded."""
    return replace(ballots, logprob=np.full(ballots.logprob.shape, np.nan))


def weighable(ballots: Ballots) -> bool:
    return bool(np.isfinite(ballots.signal("logprob")[ballots.classes != -2]).all())


@dataclass(frozen=True)
class Run:
    """Everyone's settings on one recording, out of fold, with one way of counting votes."""

    setup: EvaluationSetup
    points: dict[str, PolicyPoints]


def ran(name: str, ballots: Ballots, others: Sequence[Ballots], given: argparse.Namespace) -> Run:
    """The peers, kept from an earlier run where asked for, and ours, fitted on the other recordings."""
    kept = given.peers / f"{name.replace(', ', '-')}.npz" if given.peers else None
    if kept is not None and kept.is_file():
        peers = read(kept)
    else:
        peers = points_of(went(name, ballots, PEERS, given.workers))
        if kept is not None:
            given.peers.mkdir(parents=True, exist_ok=True)
            np.savez(kept, **{f"{one}|{part}": getattr(peers[one], part) for one in peers for part in PARTS})
    start = time.monotonic()
    prior = StoppingPolicy.pooled(list(others), without=ballots)
    waves = StoppingPolicy(prior=prior, max_waves=3)
    say(f"{name}: prior fitted on {len(others)} others, {time.monotonic() - start:.0f} s")
    makers = ((TRANSFERRED, As(prior)), (LABELS, Calibrated(prior, True)), (BARE, Calibrated(prior, False)))
    ours = went(name, ballots, (*makers, (WAVES, As(waves))), given.workers)
    return Run(ours.setup, peers | points_of(ours))


def went(name: str, ballots: Ballots, policies: PolicyChoices, workers: int) -> EvaluationRuns:
    """Policies on one recording: the same folds and orders whoever they are."""
    return run_policies(
        ballots,
        policies=policies,
        parts=FOLDS,
        orders=ORDERS,
        seed=SEED,
        workers=workers,
        calibrates=False,
        progress=lambda done, total, last: say(f"{name}: {done} of {total} ({last})"),
    )


def points_of(run: EvaluationRuns) -> dict[str, PolicyPoints]:
    return {one.name: one.points for one in run.everyone}


def read(file: Path) -> dict[str, PolicyPoints]:
    with np.load(file) as kept:
        return {one: PolicyPoints(**{part: kept[f"{one}|{part}"] for part in PARTS}) for one in PEERS}


def numbers(name: str, runs: dict[str, Run]) -> dict[str, Any]:
    """One recording: accuracies at matched cost, differences with intervals, the oracle."""
    main = runs.get("weighted", runs["plain"])
    peers = join_points([run.points[one] for run in runs.values() for one in PEERS])
    oracles = {votes: {one.budget: one for one in bracket_oracle(run.setup)} for votes, run in runs.items()}
    found: dict[str, Any] = {"name": name, "problems": len(main.setup.ballots), "votes": list(runs), "at": {}}
    for budget in AVERAGE_BUDGETS:
        at = {one: match_cost(points, budget) for one, points in main.points.items()}
        plain = {one: match_cost(points, budget) for one, points in runs["plain"].points.items()}
        at["peers"] = match_cost(peers, budget)
        found["at"][str(budget)] = {
            "accuracy": {one: own and own.accuracy for one, own in at.items()},
            "plain": {one: own and own.accuracy for one, own in plain.items()},
            "oracle": {
                votes: [own[budget].low and own[budget].low.mean, own[budget].high]
                for votes, own in oracles.items()
            },
            **differences(at, make_bootstrap(main.setup)),
        }
    return found


PAIRS = {
    "lead": (TRANSFERRED, "peers"),
    "labels": (LABELS, TRANSFERRED),
    "bare": (BARE, TRANSFERRED),
    "gain": (TRANSFERRED, "fixed"),
    "kept": (WAVES, "fixed"),
    "labels_lead": (LABELS, "peers"),
}


def differences(at: dict[str, MatchedCost | None], boot: Bootstrap) -> dict[str, Any]:
    """Paired, with intervals; and problem by problem, for the mean over recordings."""
    each = {}
    for key, (one, other) in PAIRS.items():
        a, b = at[one], at[other]
        each[key] = a.each - b.each if a is not None and b is not None else None
    told = {key: None if gap is None else plain_interval(boot.interval(gap)) for key, gap in each.items()}
    return {"difference": told, "each": each}


def plain_interval(found: Interval) -> dict[str, float | None]:
    return {"mean": found.mean, "low": found.low, "high": found.high}


def means(each: list[dict[str, Any]]) -> dict[str, Any]:
    """Over recordings: mean accuracies, and paired differences with their intervals."""
    found = {}
    for budget in map(str, AVERAGE_BUDGETS):
        here = [one["at"][budget] for one in each]
        keys = here[0]["each"]
        found[budget] = {
            key: plain_interval(mean_over_recordings([one["each"][key] for one in here], seed=SEED))
            for key in keys
            if all(one["each"][key] is not None for one in here)
        }
    return found


def measure(given: argparse.Namespace) -> dict[str, Any]:
    pools = recordings(FOLDER)
    say(f"{len(pools)} recordings: {', '.join(pools)}")
    each = []
    for name, ballots in pools.items():
        others = [one for other, one in pools.items() if other != name]
        runs = {}
        if weighable(ballots):
            runs["weighted"] = ran(f"{name}, weighted", ballots, others, given)
        bare = withheld(ballots)
        runs["plain"] = ran(f"{name}, plain", bare, [withheld(one) for one in others], given)
        each.append(numbers(name, runs))
    found = {
        "recordings": each,
        "means": means(each),
        "orders": ORDERS,
        "folds": FOLDS,
        "budgets": list(AVERAGE_BUDGETS),
    }
    for one in each:
        for at in one["at"].values():
            del at["each"]  # one number a problem: not for the page
    return found


def say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", type=Path, help="write the numbers to this file too")
    parser.add_argument("--from", dest="given", type=Path, help="make the page from kept numbers")
    parser.add_argument("--workers", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("--peers", type=Path, help="keep the peers' numbers here, and take them from here")
    given = parser.parse_args()
    if given.given:
        found = json.loads(given.given.read_text("utf-8"))
    elif not (FOLDER / "README.md").is_file():
        sys.exit(
            f"{FOLDER}: the recordings are not there; this page is made from them, and can't be renewed here"
        )
    else:
        found = measure(given)
    if given.keep:
        given.keep.write_text(json.dumps(found), "utf-8")
    PAGE.write_text(page(found), "utf-8")
    say(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
