"""Contradictions in the paper, each with what its own numbers and ours say.

Every sentence is computed from `paper.json`, from the code or from the recordings.
"""

import re
from collections.abc import Callable, Sequence

import numpy as np

from adacompute.policies.features import FEATURE_NAMES
from studies.paper.comparison_tables import (
    compute_left_imitation,
    compute_recall,
    find_break_even_share,
    find_ones_share,
)
from studies.paper.experiment import Reproduction
from studies.paper.paper_claims import format_setting, load_paper
from studies.paper.runs import RecordingRun

__all__ = ["SLIP_CHECKS", "check_slip"]

_THEORY = "[theory.md](theory.md)"


def check_slip(key: str, reproduction: Reproduction) -> str:
    """Say what we find about one of the paper's contradictions."""
    return SLIP_CHECKS[key](reproduction)


def _check_features(_: Reproduction) -> str:
    named = ("has_square_roots", "has_equation", "has_fractions", "has_multi_subproblems", "single_pass_acc")
    foreign = [name for name in named if name not in FEATURE_NAMES]
    return (
        f"{len(foreign)} of these {len(named)} are none of the 16. Ours are the 16 of appendix E.1 "
        "([features.md](../features.md)), in training and in serving."
    )


def _check_column(_: Reproduction) -> str:
    known = "is" if "single_pass_acc" in FEATURE_NAMES else "isn't"
    return f"It {known} among our features: a router that has it needs no router."


def _check_overhead(_: Reproduction) -> str:
    shares = ", ".join(f"{1 / budget:.0%} at B = {budget:g}" for budget in (1.5, 2.0, 3.0))
    return (
        f"One more sample is {shares}. Here the entropy is that of the first sample, which is one of "
        "the b that are paid for: nothing is left out, but the decision waits for it."
    )


def _check_free(reproduction: Reproduction) -> str:
    most = [float(run.mechanism.shares[0, -1]) for run in reproduction.runs]
    free = [run.staircases.windows.free for run in reproduction.runs]
    return (
        f"At λ = 0 the largest budget goes to {_format_span(most, '.0%')} of our problems, and the average "
        f"is {_format_span(free, '.1f')} samples: who is always or never right needs one. A counter-example "
        f"is in {_THEORY}."
    )


def _check_close(reproduction: Reproduction) -> str:
    rows = [row for row in load_paper().rows("tab:lambda_sweep", data="MATH") if row["error"] >= 0.05]
    errors_text = ", ".join(f"{row['error']:.3f}" for row in rows)
    ours = reproduction.findings["search-close"]
    return (
        f"Table 6 has {len(rows)} of nine at 0.05 or more: {errors_text}. With ours all targets are met to "
        "within 0.05 "
        f"on {ours.paper[0]} of {ours.paper[1]} recordings; mixing one problem meets every target exactly."
    )


def _check_fixed(reproduction: Reproduction) -> str:
    rows = load_paper().rows("tab:main", method="ours", budget=3.0, data="MATH")
    costs = [row["cost"] for row in rows]
    fair = [run.classifier_outcome(budget).gain for run in reproduction.runs for budget in run.main.budgets]
    gains = [gain.mean for gain in fair]
    sure = sum(not gain.holds_zero and gain.mean > 0 for gain in fair)
    second = [
        100 * float(np.diff(run.case.exact.accuracy[:, :2].mean(axis=0))[0]) for run in reproduction.runs
    ]
    return (
        f"At B = 3 on MATH the classifier spends {_format_span(costs, '.2f')}, fixed 2.00; and a second "
        f"vote adds {_format_span(second, '+.1f')} points on ours, most where samples abstain. Held-out, at "
        "the same cost and with uniform free to mix two budgets, ours gains "
        f"{_format_span([100 * gain for gain in gains], '+.1f')} points, and the interval is above zero in "
        f"{sure} of {len(gains)} cases."
    )


def _check_overspending(reproduction: Reproduction) -> str:
    rows = load_paper().rows("tab:main", method="oracle")
    over = [row for row in rows if row["cost"] > row["budget"]]
    most = max(row["cost"] - row["budget"] for row in over)
    ours = sum(one.exact_cost > one.budget + 1e-9 for run in reproduction.runs for one in run.searches)
    count = sum(len(run.searches) for run in reproduction.runs)
    return (
        f"It does in {len(over)} of {len(rows)} cases, by up to {most:.2f} samples; "
        f"ours in {ours} of {count}: the exact choice keeps the budget."
    )


def _check_heuristic(_: Reproduction) -> str:
    gains = []
    for row in load_paper().rows("tab:main", method="heuristic"):
        wanted = {name: row[name] for name in ("model", "data", "budget")}
        gains.append(
            100 * (row["accuracy"] - load_paper().rows("tab:main", method="fixed", **wanted)[0]["accuracy"])
        )
    return (
        f"Table 1 has {_format_span(gains, '+.1f')} points; the largest is on GSM8K, at 3.02 samples beside "
        "2.00."
    )


def _check_consistency(_: Reproduction) -> str:
    gains = {}
    for row in load_paper().rows("tab:main", method="ours"):
        wanted = {name: row[name] for name in ("model", "data", "budget")}
        fixed = load_paper().rows("tab:main", method="fixed", **wanted)[0]
        gains[format_setting(row), row["budget"]] = 100 * (row["accuracy"] - fixed["accuracy"])
    below = {key: gain for key, gain in gains.items() if round(gain, 1) < 3}
    losses_text = ", ".join(f"{name} at B = {budget:g} {gain:+.1f}" for (name, budget), gain in below.items())
    return f"Over fixed-b, {len(below)} of {len(gains)} lines have less than 3 points: {losses_text}."


def _check_selectivity(_: Reproduction) -> str:
    shares = [1 - row["b1"] for row in load_paper().rows("tab:oracle_dist", budget=1.5, data="MATH")]
    return f"Table 4 has {_format_span(shares, '.0%')} on MATH."


def _check_two(_: Reproduction) -> str:
    rows = load_paper().rows("tab:oracle_dist", data="MATH")
    fewer = sum(row["b2"] < row["b4"] for row in rows)
    return (
        f"In Table 4 b = 2 is rarer than b = 4 in {fewer} of {len(rows)} cases on MATH. Ties being "
        "shared, two votes are right as often as one where every sample has an answer, so b = 2 pays only "
        "where some have none."
    )


def _check_imitation(reproduction: Reproduction) -> str:
    rows, rate = load_paper().tables["tab:oracle_gap"].rows, compute_recall(reproduction.runs)
    below = [
        sum(compute_left_imitation(row, share) < find_ones_share(row) for row in rows)
        for share in (1.0, rate)
    ]
    in_sample = [float(one.paper.imitation.mean()) for run in reproduction.runs for one in run.gaps]
    held_out = [float(one.held_out.imitation.mean()) for run in reproduction.runs for one in run.gaps]
    return (
        f"Scored on all problems ours imitates {_format_span(in_sample, '.0%')}, on those not learned from "
        f"{_format_span(held_out, '.0%')}. If Table 5 is scored on all, and the problems learned from are "
        f"imitated perfectly, the other fifth is imitated worse than by always b = 1 in {below[0]} of its "
        f"{len(rows)} rows; if {rate:.3f} of them are, as with ours on average, in {below[1]}; at "
        f"{find_break_even_share():.3f} or less, in none. An inference, not a finding (table above)."
    )


def _check_rows(reproduction: Reproduction) -> str:
    own = reproduction.pooled.ablation
    if own is None:
        return "Too little was recorded to try it."
    random, apart = (own.score_of("xgboost", reading) for reading in ("scored as the paper does", "held-out"))
    return (
        f"Ours, split at random: imitation {random.imitation.mean:.3f}, "
        f"{random.imitation.mean - random.majority.mean:+.3f} "
        f"beside the commonest budget; by question {apart.imitation.mean:.3f}, "
        f"{apart.imitation.mean - apart.majority.mean:+.3f}."
    )


def _check_strong(reproduction: Reproduction) -> str:
    short = [one.bound - one.accuracy for run in reproduction.runs for one in run.searches if one.binding]
    return (
        f"Ours: a choice without mixing lacks {_format_span([100 * gap for gap in short], '.3f')} points of "
        f"the bound: little, and not nothing. Proof, counter-example and tests: {_THEORY}, Proposition 1."
    )


def _check_exact(reproduction: Reproduction) -> str:
    held, tried = _select_laws(reproduction.runs, "single")
    mixed = [one.mixed for run in reproduction.runs for one in run.searches if one.binding]
    return (
        f"A single price's own labels reach the bound in {held} of {tried} cases here; bisection leaves "
        f"{_format_span([float(count) for count in mixed], '.0f')} problems to be mixed, the exact solve at "
        "most one."
    )


def _check_near(reproduction: Reproduction) -> str:
    stated, tried = _select_laws(reproduction.runs, "stated")
    wider, of = _select_laws(reproduction.runs, "wider")
    fails = [
        f"{run.name}, {law.protocol}: {law.tried - law.held} of {law.tried}"
        for run in reproduction.runs
        for law in run.laws
        if law.key == "stated" and not law.holds
    ]
    where = f" It fails on {'; '.join(fails)}." if fails else ""
    return (
        f"As stated it held in {stated} of {tried} cases of ours (classifiers × B × seeds, both "
        f"readings): M̄ is large.{where} With λ(B′ − cost) added, in {wider} of {of}. A case where it fails "
        f"even with every label right: {_THEORY}, Theorem 3."
    )


def _check_bound(reproduction: Reproduction) -> str:
    own = reproduction.pooled.ablation
    if own is None:
        return "Too little was recorded to try it."
    count = sum(len(points.error) for points in own.points)
    task, relaxed = own.count_above("task", of="mean"), own.count_above("relaxed", of="worst")
    luck = "" if task else " That none does is the data's kindness: nothing forbids it."
    return (
        f"Of {count} splits × learners of ours {task} lie above the mean-gap line by accuracy regret, and "
        f"{relaxed} above the theorem's by relaxed regret.{luck}"
    )


def _select_laws(runs: Sequence[RecordingRun], key: str) -> tuple[int, int]:
    own = [law for run in runs for law in run.laws if law.key == key]
    return sum(law.held for law in own), sum(law.tried for law in own)


def _format_span(values: Sequence[float], form: str) -> str:
    """`1.0 to 3.0`, or one number where both ends read alike."""
    known = [value for value in values if np.isfinite(value)]
    if not known:
        return "–"
    low, high = format(min(known), form), format(max(known), form)
    if low == high:
        return low
    return f"{re.sub('%$', '', low)} to {high}"


SLIP_CHECKS: dict[str, Callable[[Reproduction], str]] = {
    "features": _check_features,
    "label-column": _check_column,
    "overhead": _check_overhead,
    "free": _check_free,
    "close": _check_close,
    "fixed": _check_fixed,
    "oracle-over": _check_overspending,
    "heuristic": _check_heuristic,
    "consistent": _check_consistency,
    "selective": _check_selectivity,
    "two": _check_two,
    "imitation": _check_imitation,
    "rows": _check_rows,
    "strong": _check_strong,
    "exact": _check_exact,
    "near": _check_near,
    "mean-bound": _check_bound,
}
