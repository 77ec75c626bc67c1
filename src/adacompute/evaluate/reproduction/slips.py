"""What doesn't go together in the paper, each with what its own numbers and ours say. Knows no page.

Every sentence here is made from `paper.json`, from the code or from the recordings.
"""

import re
from collections.abc import Callable, Sequence

import numpy as np

from adacompute.evaluate.reproduction.beside import left_for, none_below, ones_of, recalled
from adacompute.evaluate.reproduction.experiment import Reproduction
from adacompute.evaluate.reproduction.runs import Run
from adacompute.evaluate.reproduction.said import said, setting
from adacompute.features import NAMES

__all__ = ["CHECKED", "checked"]

_THEORY = "[theory.md](theory.md)"


def checked(key: str, found: Reproduction) -> str:
    """What we find about one of the paper's slips."""
    return CHECKED[key](found)


def _features(_: Reproduction) -> str:
    named = ("has_square_roots", "has_equation", "has_fractions", "has_multi_subproblems", "single_pass_acc")
    foreign = [name for name in named if name not in NAMES]
    return (
        f"{len(foreign)} of these {len(named)} are none of the 16. Ours are the 16 of appendix E.1 "
        "([features.md](features.md)), in training and in serving."
    )


def _column(_: Reproduction) -> str:
    known = "is" if "single_pass_acc" in NAMES else "isn't"
    return f"It {known} among our features: a router that has it needs no router."


def _overhead(_: Reproduction) -> str:
    shares = ", ".join(f"{1 / budget:.0%} at B = {budget:g}" for budget in (1.5, 2.0, 3.0))
    return (
        f"One more sample is {shares}. Here the entropy is that of the first sample, which is one of "
        "the b that are paid for: nothing is left out, but the decision waits for it."
    )


def _free(found: Reproduction) -> str:
    most = [float(run.mechanism.shares[0, -1]) for run in found.runs]
    free = [run.staircases.windows.free for run in found.runs]
    return (
        f"At λ = 0 the largest budget goes to {_span(most, '.0%')} of our problems, and the average is "
        f"{_span(free, '.1f')} samples: who is always or never right needs one. A counter-example is in "
        f"{_THEORY}."
    )


def _close(found: Reproduction) -> str:
    rows = [row for row in said().rows("tab:lambda_sweep", data="MATH") if row["error"] >= 0.05]
    told = ", ".join(f"{row['error']:.3f}" for row in rows)
    ours = found.findings["search-close"]
    return (
        f"Table 6 has {len(rows)} of nine at 0.05 or more: {told}. With ours all targets are met to "
        "within 0.05 "
        f"on {ours.paper[0]} of {ours.paper[1]} recordings; mixing one problem meets every target exactly."
    )


def _fixed(found: Reproduction) -> str:
    rows = said().rows("tab:main", method="ours", budget=3.0, data="MATH")
    costs = [row["cost"] for row in rows]
    fair = [run.learned(budget).gain for run in found.runs for budget in run.main.budgets]
    gains = [gain.mean for gain in fair]
    sure = sum(not gain.holds_zero and gain.mean > 0 for gain in fair)
    second = [100 * float(np.diff(run.case.exact.accuracy[:, :2].mean(axis=0))[0]) for run in found.runs]
    return (
        f"At B = 3 on MATH the classifier spends {_span(costs, '.2f')}, fixed 2.00; and a second vote adds "
        f"{_span(second, '+.1f')} points on ours, most where samples abstain. Held-out, at the "
        "same cost and with all alike free to mix two budgets, ours gains "
        f"{_span([100 * gain for gain in gains], '+.1f')} "
        f"points, and the interval is above zero in {sure} of {len(gains)} cases."
    )


def _over(found: Reproduction) -> str:
    rows = said().rows("tab:main", method="oracle")
    over = [row for row in rows if row["cost"] > row["budget"]]
    most = max(row["cost"] - row["budget"] for row in over)
    ours = sum(one.exact_cost > one.budget + 1e-9 for run in found.runs for one in run.searches)
    count = sum(len(run.searches) for run in found.runs)
    return (
        f"It does in {len(over)} of {len(rows)} cases, by up to {most:.2f} samples; "
        f"ours in {ours} of {count}: the exact choice keeps the budget."
    )


def _heuristic(_: Reproduction) -> str:
    gains = []
    for row in said().rows("tab:main", method="heuristic"):
        wanted = {name: row[name] for name in ("model", "data", "budget")}
        gains.append(
            100 * (row["accuracy"] - said().rows("tab:main", method="fixed", **wanted)[0]["accuracy"])
        )
    return f"Table 1 has {_span(gains, '+.1f')} points; the largest is on GSM8K, at 3.02 samples beside 2.00."


def _consistent(_: Reproduction) -> str:
    gains = {}
    for row in said().rows("tab:main", method="ours"):
        wanted = {name: row[name] for name in ("model", "data", "budget")}
        fixed = said().rows("tab:main", method="fixed", **wanted)[0]
        gains[setting(row), row["budget"]] = 100 * (row["accuracy"] - fixed["accuracy"])
    below = {key: gain for key, gain in gains.items() if round(gain, 1) < 3}
    told = ", ".join(f"{name} at B = {budget:g} {gain:+.1f}" for (name, budget), gain in below.items())
    return f"Over fixed-b, {len(below)} of {len(gains)} lines have less than 3 points: {told}."


def _selective(_: Reproduction) -> str:
    shares = [1 - row["b1"] for row in said().rows("tab:oracle_dist", budget=1.5, data="MATH")]
    return f"Table 4 has {_span(shares, '.0%')} on MATH."


def _two(_: Reproduction) -> str:
    rows = said().rows("tab:oracle_dist", data="MATH")
    fewer = sum(row["b2"] < row["b4"] for row in rows)
    return (
        f"In Table 4 b = 2 is rarer than b = 4 in {fewer} of {len(rows)} cases on MATH. Ties being "
        "shared, two votes are right as often as one where every sample has an answer, so b = 2 pays only "
        "where some have none."
    )


def _imitation(found: Reproduction) -> str:
    rows, rate = said().tables["tab:oracle_gap"].rows, recalled(found.runs)
    below = [sum(left_for(row, share) < ones_of(row) for row in rows) for share in (1.0, rate)]
    in_sample = [float(one.paper.imitation.mean()) for run in found.runs for one in run.gaps]
    held_out = [float(one.held_out.imitation.mean()) for run in found.runs for one in run.gaps]
    return (
        f"Scored on all problems ours imitates {_span(in_sample, '.0%')}, on those not learned from "
        f"{_span(held_out, '.0%')}. If Table 5 is scored on all, and the problems learned from are imitated "
        f"perfectly, the other fifth is imitated worse than by always b = 1 in {below[0]} of its {len(rows)} "
        f"rows; if {rate:.3f} of them are, as with ours on average, in {below[1]}; at {none_below():.3f} or "
        "less, in none. An inference, not a finding (table above)."
    )


def _rows(found: Reproduction) -> str:
    own = found.pooled.ablation
    if own is None:
        return "Too little was recorded to try it."
    random, apart = (own.of("xgboost", reading) for reading in ("scored as the paper does", "held-out"))
    return (
        f"Ours, split at random: imitation {random.imitation.mean:.3f}, "
        f"{random.imitation.mean - random.majority.mean:+.3f} "
        f"beside the commonest budget; by question {apart.imitation.mean:.3f}, "
        f"{apart.imitation.mean - apart.majority.mean:+.3f}."
    )


def _strong(found: Reproduction) -> str:
    short = [one.bound - one.accuracy for run in found.runs for one in run.searches if one.binding]
    return (
        f"Ours: a choice without mixing lacks {_span([100 * gap for gap in short], '.3f')} points of "
        f"the bound: little, and not nothing. Proof, counter-example and tests: {_THEORY}, Proposition 1."
    )


def _exact(found: Reproduction) -> str:
    held, tried = _law(found.runs, "single")
    mixed = [one.mixed for run in found.runs for one in run.searches if one.binding]
    return (
        f"A single price's own labels reach the bound in {held} of {tried} cases here; bisection leaves "
        f"{_span([float(count) for count in mixed], '.0f')} problems to be mixed, the exact solve at "
        "most one."
    )


def _near(found: Reproduction) -> str:
    stated, tried = _law(found.runs, "stated")
    wider, of = _law(found.runs, "wider")
    fails = [
        f"{run.name}, {law.protocol}: {law.tried - law.held} of {law.tried}"
        for run in found.runs
        for law in run.laws
        if law.key == "stated" and not law.holds
    ]
    where = f" It fails on {'; '.join(fails)}." if fails else ""
    return (
        f"As stated it held in {stated} of {tried} cases of ours (classifiers × B × seeds, both "
        f"readings): M̄ is large.{where} With λ(B′ − cost) added, in {wider} of {of}. A case where it fails "
        f"even with every label right: {_THEORY}, Theorem 3."
    )


def _bound(found: Reproduction) -> str:
    own = found.pooled.ablation
    if own is None:
        return "Too little was recorded to try it."
    count = sum(len(points.error) for points in own.points)
    task, relaxed = own.above("task", of="mean"), own.above("relaxed", of="worst")
    luck = "" if task else " That none does is the data's kindness: nothing forbids it."
    return (
        f"Of {count} splits × learners of ours {task} lie above the mean-gap line by accuracy regret, and "
        f"{relaxed} above the theorem's by relaxed regret.{luck}"
    )


def _law(runs: Sequence[Run], key: str) -> tuple[int, int]:
    own = [law for run in runs for law in run.laws if law.key == key]
    return sum(law.held for law in own), sum(law.tried for law in own)


def _span(values: Sequence[float], form: str) -> str:
    """`1.0 to 3.0`, or one number where both ends read alike."""
    known = [value for value in values if np.isfinite(value)]
    if not known:
        return "–"
    low, high = format(min(known), form), format(max(known), form)
    if low == high:
        return low
    return f"{re.sub('%$', '', low)} to {high}"


CHECKED: dict[str, Callable[[Reproduction], str]] = {
    "features": _features,
    "label-column": _column,
    "overhead": _overhead,
    "free": _free,
    "close": _close,
    "fixed": _fixed,
    "oracle-over": _over,
    "heuristic": _heuristic,
    "consistent": _consistent,
    "selective": _selective,
    "two": _two,
    "imitation": _imitation,
    "rows": _rows,
    "strong": _strong,
    "exact": _exact,
    "near": _near,
    "mean-bound": _bound,
}
