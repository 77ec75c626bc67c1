"""Makes docs/reference/evaluation.md from the recordings beside the checkout (`make evaluation`, 10 minutes).

`python scripts/evaluation.py --keep FILE` keeps the numbers too; `--from FILE` writes the page from them
without measuring again, and with `--only facts words` measures these recordings and takes the others from the
file. `--peers FOLDER` keeps what each of the other policies gave, to measure ours alone next time, and a new
peer alone when one is added. `--orders 4 --page FILE` is a quick try that leaves the page alone.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from evaluation_page import page
from recordings import FOLDER, read_recordings, read_signals

from adacompute.evaluate import Bootstrap, Interval, MatchedCost, PolicyPoints, join_points, match_cost
from adacompute.evaluate.conclusions import EvaluationRuns, make_bootstrap
from adacompute.evaluate.measure import AVERAGE_BUDGETS, EvaluationSetup
from adacompute.evaluate.oracle_bounds import bracket_oracle
from adacompute.evaluate.protocols import PolicyChoices, run_policies
from adacompute.policies import FixedPolicy
from adacompute.policies.base import Policy
from adacompute.policies.stopping import StoppingPolicy
from adacompute.pool import Ballots, bundled
from studies.recordings import mean_over_recordings

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "evaluation.md"
ORDERS, FOLDS, SEED = 100, 5, 2026
PEERS = ("fixed", "asc", "esc", "doubling", "bayes", "pets", "curve", "classifier")
SHIPPED, EARLIER, TRANSFERRED, LABELS, BARE, WAVES = (
    "shipped",
    "earlier",
    "transferred",
    "calibrated",
    "calibrated, no labels",
    "transferred, 3 waves",
)
SIGNALLED = ("gsm8k", "math")  # recordings whose tokens' signals were measured
PARTS = ("cost", "accuracy")


@dataclass(frozen=True)
class As:
    """Makes a policy as it is, on the vote scale of the training problems.

    Of the priors in the package, a policy takes one that hasn't seen these problems by itself.
    """

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


@dataclass(frozen=True)
class Uniform:
    """Makes a policy that gives everybody as many samples, with votes weighted as the shipped one's."""

    def __call__(self, train: Ballots, *, budget: float, longest: int, **_: object) -> Policy:
        weigh = StoppingPolicy().copy_for(train).weigh
        return FixedPolicy(budget=budget, budgets=range(1, longest + 1), weigh=weigh, longest=longest).fit(
            train
        )


def withhold_logprobs(ballots: Ballots) -> Ballots:
    """The same samples, as if no log-probability had been recorded, nor what single tokens tell."""
    return replace(ballots, logprob=np.full(ballots.logprob.shape, np.nan), signals=None)


def can_weigh_votes(ballots: Ballots) -> bool:
    return bool(np.isfinite(ballots.signal("logprob")[ballots.classes != -2]).all())


@dataclass(frozen=True)
class Run:
    """Everyone's settings on one recording, out of fold, with one way of counting votes."""

    setup: EvaluationSetup
    points: dict[str, PolicyPoints]


def run_recording(name: str, ballots: Ballots, others: Sequence[Ballots], options: argparse.Namespace) -> Run:
    """The peers, kept from an earlier run where asked for, and ours: none has seen the recording."""
    peers = run_peers(name, ballots, options)
    start = time.monotonic()
    prior = StoppingPolicy.pooled(list(others), without=ballots)
    earlier = StoppingPolicy.pooled([read_bundled("facts"), read_bundled("words")], without=ballots)
    waves = StoppingPolicy(prior=prior, max_waves=3)
    print_progress(f"{name}: prior fitted on {len(others)} others, {time.monotonic() - start:.0f} s")
    makers = (
        (SHIPPED, As(StoppingPolicy())),
        (EARLIER, As(earlier)),
        (TRANSFERRED, As(prior)),
        (LABELS, Calibrated(prior, True)),
        (BARE, Calibrated(prior, False)),
        (WAVES, As(waves)),
    )
    ours = run_with_shared_folds(name, ballots, makers, options)
    return Run(ours.setup, peers | list_points(ours))


def run_peers(name: str, ballots: Ballots, options: argparse.Namespace) -> dict[str, PolicyPoints]:
    """Every peer's settings, from its own file where it was measured before."""
    files = {
        peer: options.peers and options.peers / f"{name.replace(', ', '-')}-{peer}-{options.orders}.npz"
        for peer in PEERS
    }
    peers = {peer: read_points(file) for peer, file in files.items() if file and file.is_file()}
    missing = tuple(peer for peer in PEERS if peer not in peers)
    if missing:
        peers |= list_points(run_with_shared_folds(name, ballots, missing, options))
    if options.peers:
        options.peers.mkdir(parents=True, exist_ok=True)
        for peer in missing:
            np.savez(files[peer], **{part: getattr(peers[peer], part) for part in PARTS})
    return peers


def run_with_shared_folds(
    name: str, ballots: Ballots, policies: PolicyChoices, options: argparse.Namespace
) -> EvaluationRuns:
    """Policies on one recording: the same folds and orders whoever they are."""
    return run_policies(
        ballots,
        policies=policies,
        parts=FOLDS,
        orders=options.orders,
        seed=SEED,
        workers=options.workers,
        calibrates=False,
        progress=lambda done, total, last: print_progress(f"{name}: {done} of {total} ({last})"),
    )


def read_bundled(name: str) -> Ballots:
    """A recording in the package."""
    with bundled(name) as pool:
        return pool.ballots()


def list_points(run: EvaluationRuns) -> dict[str, PolicyPoints]:
    return {one.name: one.points for one in run.everyone}


def read_points(file: Path) -> PolicyPoints:
    with np.load(file) as kept:
        return PolicyPoints(**{part: kept[part] for part in PARTS})


def compute_numbers(name: str, runs: dict[str, Run]) -> dict[str, Any]:
    """One recording: accuracies at matched cost, differences with intervals, the oracle."""
    main = runs.get("weighted", runs["plain"])
    peers = join_points([run.points[one] for run in runs.values() for one in PEERS])
    oracles = {votes: {one.budget: one for one in bracket_oracle(run.setup)} for votes, run in runs.items()}
    results: dict[str, Any] = {
        "name": name,
        "problems": len(main.setup.ballots),
        "groups": main.setup.ballots.groups.tolist(),
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
    "shipped_lead": (SHIPPED, "peers"),
    "shipped_gain": (SHIPPED, "fixed"),
    "shipped": (SHIPPED, TRANSFERRED),
    "renewed": (SHIPPED, EARLIER),
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
    plain = {key: None if gap is None else gap.tolist() for key, gap in each.items()}
    return {"difference": intervals, "each": plain}


def plain_interval(interval: Interval) -> dict[str, float | None]:
    return {"mean": interval.mean, "low": interval.low, "high": interval.high}


def average_recordings(each: list[dict[str, Any]]) -> dict[str, Any]:
    """Over recordings: mean accuracies, and paired differences with their intervals."""
    results, groups = {}, [np.asarray(recording["groups"]) for recording in each]
    for budget in map(str, AVERAGE_BUDGETS):
        here = [one["at"][budget] for one in each]
        keys = here[0]["each"]
        results[budget] = {
            key: plain_interval(
                mean_over_recordings([np.asarray(one["each"][key]) for one in here], groups, seed=SEED)
            )
            for key in keys
            if all(one["each"][key] is not None for one in here)
        }
    return results


def measure_signals(name: str, ballots: Ballots, options: argparse.Namespace) -> dict[str, Any]:
    """One recording's first samples, weighted by what their tokens tell and by log-probability alone."""
    with_signals = read_signals(name, ballots)
    compared = {"on": with_signals, "off": replace(with_signals, signals=None)}
    policies = (("fixed", Uniform()), (SHIPPED, As(StoppingPolicy())))
    runs = {
        way: run_with_shared_folds(f"{name}, signals {way}", one, policies, options)
        for way, one in compared.items()
    }
    boot, at = make_bootstrap(runs["on"].setup), {}
    for budget in AVERAGE_BUDGETS:
        cell: dict[str, Any] = {"accuracy": {}, "difference": {}, "each": {}}
        for policy in ("fixed", SHIPPED):
            on, off = (match_cost(runs[way].get(policy).points, budget) for way in ("on", "off"))
            assert on is not None
            assert off is not None
            gap = on.each - off.each
            cell["accuracy"][policy] = {"on": on.accuracy, "off": off.accuracy}
            cell["difference"][policy] = plain_interval(boot.interval(gap))
            cell["each"][policy] = gap.tolist()
        at[str(budget)] = cell
    return {
        "name": name,
        "problems": len(with_signals),
        "groups": with_signals.groups.tolist(),
        "samples": with_signals.classes.shape[1],
        "at": at,
    }


def measure(options: argparse.Namespace, kept: dict[str, Any]) -> dict[str, Any]:
    """The numbers of every recording: measured, or kept ones where only others are asked for."""
    pools = read_recordings()
    print_progress(f"{len(pools)} recordings: {', '.join(pools)}")
    known = {part: {one["name"]: one for one in kept.get(part, ())} for part in ("recordings", "signals")}
    each, signals = [], []
    for name, ballots in pools.items():
        if options.only is not None and name not in options.only:
            each += [known["recordings"][name]] if name in known["recordings"] else []
            signals += [known["signals"][name]] if name in known["signals"] else []
            continue
        each.append(measure_recording(name, pools, options))
        if name in SIGNALLED:
            signals.append(measure_signals(name, ballots, options))
    return {
        "recordings": each,
        "means": average_recordings(each),
        "signals": signals,
        "signal_means": average_recordings(signals) if signals else {},
        "orders": options.orders,
        "folds": FOLDS,
        "peers": list(PEERS),
        "budgets": list(AVERAGE_BUDGETS),
    }


def measure_recording(name: str, pools: dict[str, Ballots], options: argparse.Namespace) -> dict[str, Any]:
    """Everyone on one recording, with weighted votes where they can be, and with plain ones."""
    ballots, others = pools[name], [one for other, one in pools.items() if other != name]
    runs = {}
    if can_weigh_votes(ballots):
        runs["weighted"] = run_recording(f"{name}, weighted", ballots, others, options)
    bare = withhold_logprobs(ballots)
    runs["plain"] = run_recording(f"{name}, plain", bare, [withhold_logprobs(one) for one in others], options)
    return compute_numbers(name, runs)


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
    parser.add_argument("--only", nargs="+", help="measure these recordings; the others come from --from")
    parser.add_argument("--orders", type=int, default=ORDERS, help="random orders of each problem's samples")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write")
    options = parser.parse_args()
    results = json.loads(options.given.read_text("utf-8")) if options.given else {}
    if options.only or not options.given:
        if not (FOLDER / "README.md").is_file():
            sys.exit(
                f"{FOLDER}: the recordings are not there; this page is made from them, and can't be renewed "
                "here"
            )
        results = measure(options, results)
    if options.keep:
        options.keep.write_text(json.dumps(results), "utf-8")
    options.page.write_text(page(results), "utf-8")
    print_progress(f"wrote {options.page}")


if __name__ == "__main__":
    main()
