"""The text and tables of docs/reference/menu-evaluation.md, from what scripts/menu_evaluation.py measured."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from evaluation_page import Bar

from adacompute.evaluate.mode_verdict import SPENT_TOLERANCE
from adacompute.pool.groups import count_in_groups

Found = dict[str, Any]

# Accuracies of the sketches in the design, section 9, by menu: plain votes, in the order of its budgets.
SKETCHES = {
    "facts, plain votes": (0.553, 0.667, 0.773, 0.855),
    "crux": (0.646, 0.669, 0.715, 0.753),
    "reasoning-gym, plain votes": (0.362, 0.381, 0.417, 0.440),
}
SLACK = 0.005
LEAST_GAIN = 0.02  # over the best fixed mix on CRUXEval
CASCADES = ("threshold cascade", "sequential cascade")
MIXES = ("best fixed mix", "joint fixed vote")
SURE = ("facts", "reasoning-gym", "gsm8k", "math")  # log-probabilities are recorded
DIRECT = ("gsm8k", "math")  # where the cheap mode has nothing to add
PEERS = (
    "best fixed mix",
    "joint fixed vote",
    "random router",
    "prompt router",
    "threshold cascade",
    "sequential cascade",
    "stopping, mixed",
)

_HEAD = """# Menus on recordings

**In short.** What a menu of modes buys on the recordings that we have, and when it isn't worth it. Made by
`python scripts/menu_evaluation.py` from recordings that are not part of the repository; every number and
every "reached" is computed. What the words mean:

- **cost**: one sample of the most expensive mode costs 1; the costs of the others are above each table. They
  are assumptions (ratios of list prices and lengths), not bills.
- **held out**: {folds} folds over problems, similar ones together (facts has 7 groups, too few, so single
  questions are held out there). The menu policy, the weights of votes and the prompt router are fitted, and
  every setting of a cascade, a mix or a router chosen, on the other folds.
- **at a cost**: each policy mixes the two neighbours of the budget on the hull of its own settings on the
  training folds. What that costs on the fold differs a little; every policy is measured at several budgets
  around the one that is asked for, and read at exactly the same cost on its own held-out curve. A star: it
  can't spend as much, and costs less.
- **votes** of peers are weighed as the menu weighs them, or plain, whichever is better on the training folds.
- **cascades**: of every pair of modes, up to 8 samples of the cheaper and 12 of the more expensive one.
  *Threshold*: k cheap samples, then j expensive ones unless the share of the commonest answer is high
  enough. *Sequential*: cheap ones until m agree, else expensive ones until m agree. With four modes also all
  of them in turn. Several hundred settings each, with plain and with weighed votes.
- **stopping, mixed**: each mode's own fitted stopping policy, up to 16 samples, mixed at random. It looks at
  log-probabilities, labels and prompts as the menu does: the strongest that one has without a menu.
- **rounds**: waves of samples, one after the other: the mean, and what 95% of requests don't exceed.
- **C3PO**: a cascade by agreement, chosen without labels under a cap on a request's cost (arXiv
  2511.07396v1). *Confidence cascade*: one sample of each mode, the cheapest first, until one's mean
  log-probability reaches a threshold (vLLM's semantic-router, `confidence`), over all recorded samples
  instead of random orders; the menu may use this rule, too.
- **shuffled**: what the menu drew for each request, handed to a request of another prompt.
- **oracle**: decides beforehand, with the answers known, among votes of 1, 2, 4 and 8 samples of a mode and,
  with two modes, mixed votes; from "chosen and judged on different samples" to "on the same". A menu sees
  votes as they come in, and may exceed it.
- {orders} random orders of each problem's samples, the same for all; 95% intervals by bootstrap over groups
  of similar problems, paired.
"""

_ABOUT_ALL = """## All menus

Gains in points of accuracy at the same cost, mean over the budgets of each table below. Without a menu: the
better of the best fixed mix and stopping, mixed, at each budget.
"""

_ABOUT_RATIOS = """## What price ratio makes a mode worth having

![Points of accuracy that the menu gains over the better of stopping and fixed mixes, by how many times as
much the expensive mode costs, one line for each pair of modes](../figures/menu-ratios.svg)

The same pairs with other costs of the cheap mode, at one or two average costs, in samples of the expensive
mode; {folds} folds, {orders} orders. Gains over what one has without a menu, in points. Half an expensive
sample can't be met where the cheap one costs as much as the expensive one.
"""

_ABOUT_TRANSFERS = """## Transferred menus

A policy that was fitted on another recording with modes of a similar kind, and is judged as it is: of this
recording only costs are used, to choose its price. At each cost its accuracy, and what the menu that was
fitted here gains over it.
"""


def page(found: Found) -> str:
    """The whole page."""
    parts = [
        _HEAD.format(**found),
        _summarise(found),
        _list_bars(found),
        _show_ratios(found),
        _show_transfers(found),
    ]
    parts += [_show_menu(name, menu) for name, menu in found["menus"].items()]
    if found.get("missing"):
        parts.append(f"## Not measured yet\n\n{'; '.join(found['missing'])}.\n")
    return "\n".join(parts).rstrip() + "\n"


def find_row(menu: Found, policy: str, budget: float) -> Found | None:
    """A policy at one of the budgets; None where it can't cost that little."""
    rows = (row for row in menu["rows"] if (row["policy"], row["budget"]) == (policy, budget))
    return next(rows, None)


def _get_accuracy(menu: Found, policy: str, budget: float) -> float:
    row = find_row(menu, policy, budget)
    return float(row["accuracy"]["mean"]) if row else 0.0


def _find_best(menu: Found, policies: Sequence[str], budget: float) -> Found:
    """The best of some policies at a budget."""
    rows = [row for policy in policies if (row := find_row(menu, policy, budget)) is not None]
    return max(rows, key=lambda row: float(row["accuracy"]["mean"]))


def _summarise(found: Found) -> str:
    lines = [
        _ABOUT_ALL,
        "| menu | problems | over what one has without a menu | over the better kind of cascade | worth it |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    words = {True: "yes", False: "no", None: "can't tell"}
    for name, menu in found["menus"].items():
        cells = [name, str(menu["problems"]), _points(menu["gain"]), _points(menu["cascade_gain"])]
        lines.append(f"| {' | '.join([*cells, words[menu['worth']]])} |")
    return "\n".join(lines) + "\n"


def _list_bars(found: Found) -> str:
    head = "## What had to be reached\n\n| bar | measured | |\n| --- | --- | --- |"
    return "\n".join([head, *(bar.line for bar in bars(found))]) + "\n"


def bars(found: Found) -> list[Bar]:
    """Every bar whose menus were measured, computed."""
    menus = found["menus"]
    made = [_compare_sketches(menus)] if set(SKETCHES) & set(menus) else []
    if "crux" in menus:
        made.append(_compare_mixes(menus["crux"]))
    if {"crux", "crux, four modes"} <= set(menus):
        made.append(_compare_pair(menus))
    made.append(_never_below_cascades(menus))
    if set(SURE) <= set(menus):
        made += [_ahead_of_cascades(menus), _never_below_stopping(menus)]
    return made


def _compare_sketches(menus: Found) -> Bar:
    short, margins = [], []
    for name, marks in SKETCHES.items():
        if name not in menus:
            short.append(f"{name} is not measured yet")
            continue
        for budget, mark in zip(menus[name]["budgets"], marks, strict=True):
            had = _get_accuracy(menus[name], "menu", budget)
            margins.append(had - mark)
            if had < mark - SLACK:
                short.append(f"{name} at {budget:g}: {had:.3f} for {mark:.3f}")
    measured = f"margins {min(margins):+.3f} to {max(margins):+.3f}"
    return Bar(f"at least the sketches of section 9, plain votes (± {SLACK})", measured, tuple(short))


def _compare_mixes(menu: Found) -> Bar:
    short, gains = [], []
    for budget in (budget for budget in menu["budgets"] if budget >= 0.3):
        gain = _find_best(menu, MIXES, budget)["gain"]
        gains.append(f"{budget:g}: {_points(gain)}")
        if gain["mean"] < LEAST_GAIN or gain["low"] <= 0:
            short.append(f"at {budget:g}")
    what = "CRUXEval's pair: 2 points or more over the best fixed mix, joint votes included, at 0.3 to 0.7"
    return Bar(what, "; ".join(gains), tuple(short))


def _compare_pair(menus: Found) -> Bar:
    short, gaps = [], []
    pair, four = menus["crux"], menus["crux, four modes"]
    for budget in pair["budgets"]:
        gap = _get_accuracy(four, "menu", budget) - _get_accuracy(pair, "menu", budget)
        gaps.append(f"{budget:g}: {100 * gap:+.1f}")
        if gap < -SLACK:
            short.append(f"at {budget:g}")
    return Bar("CRUXEval: four modes at least as good as the pair (± 0.005)", "; ".join(gaps), tuple(short))


def _list_cells(menus: Found) -> Iterator[tuple[str, Found, float]]:
    for name, menu in menus.items():
        for budget in menu["budgets"]:
            yield name, menu, budget


def _never_below_cascades(menus: Found) -> Bar:
    short, ends = [], []
    for name, menu, budget in _list_cells(menus):
        gain = _find_best(menu, CASCADES, budget)["gain"]
        ends.append(gain["high"])
        if gain["high"] < 0:
            short.append(f"{name} at {budget:g}: {_points(gain)}")
    what = "never significantly below the best threshold or sequential cascade, on any menu and budget"
    return Bar(what, f"the least upper end is {100 * min(ends):+.1f} points", tuple(short))


def _ahead_of_cascades(menus: Found) -> Bar:
    gains = {name: menus[name]["cascade_gain"] for name in SURE}
    short = [name for name, gain in gains.items() if gain["mean"] <= 0]
    measured = "; ".join(f"{name}: {_points(gain)}" for name, gain in gains.items())
    return Bar("ahead of cascades on the mean where log-probabilities are recorded", measured, tuple(short))


def _never_below_stopping(menus: Found) -> Bar:
    short, gains = [], []
    for name in DIRECT:
        menu = menus[name]
        for budget in menu["budgets"]:
            row = find_row(menu, "stopping: steps", budget)
            if row is not None:
                gains.append(row["gain"]["mean"])
                if row["gain"]["high"] < 0:
                    short.append(f"{name} at {budget:g}: {_points(row['gain'])}")
    measured = f"{100 * min(gains):+.1f} to {100 * max(gains):+.1f} points"
    return Bar("gsm8k and math: never significantly below stopping alone", measured, tuple(short))


def _show_ratios(found: Found) -> str:
    if not found.get("ratios"):
        return ""
    lines = [_ABOUT_RATIOS.format(**found["ratio_protocol"])]
    ratios = sorted({int(ratio) for pair in found["ratios"].values() for ratio in pair["gain"]})
    lines += [
        f"| expensive mode costs … times as much | {' | '.join(map(str, ratios))} |",
        f"| --- |{' ---: |' * len(ratios)}",
    ]
    for name, pair in found["ratios"].items():
        cells = [_points(pair["gain"].get(str(ratio))) for ratio in ratios]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _show_transfers(found: Found) -> str:
    lines = [_ABOUT_TRANSFERS]
    empty = len(lines)
    for name, menu in found["menus"].items():
        for policy in dict.fromkeys(row["policy"] for row in menu["rows"]):
            if not policy.startswith("transferred"):
                continue
            if len(lines) == empty:
                lines += [
                    "| menu | policy | at cost: accuracy, gain of the fitted menu over it |",
                    "| --- | --- | --- |",
                ]
            rows = [row for row in menu["rows"] if row["policy"] == policy]
            cells = [f"{row['budget']:g}: {_percent(row)}, {_points(row['gain'])}" for row in rows]
            lines.append(f"| {name} | {policy} | {'; '.join(cells)} |")
    return "\n".join(lines) + "\n" if len(lines) > empty else ""


def _show_menu(name: str, menu: Found) -> str:
    modes = ", ".join(f"{mode['name']} {mode['cost']:g}" for mode in menu["menu"]["modes"])
    lines = [
        f"## {name[0].upper()}{name[1:]}\n",
        f"{count_in_groups(menu['problems'], menu['groups'])}; {modes}. {menu['verdict']}\n",
    ]
    budgets = menu["budgets"]
    lines += [
        f"| at cost | {' | '.join(f'{budget:g}' for budget in budgets)} |",
        f"| --- |{' ---: |' * len(budgets)}",
    ]
    ours = [find_row(menu, "menu", budget) for budget in budgets]
    lines.append(f"| **menu**, right | {' | '.join(f'**{_percent(row)}**' for row in ours)} |")
    for mode in menu["menu"]["modes"]:
        shares = [f"{row['draws'][mode['name']]:.2f}" if row else "" for row in ours]
        lines.append(f"| its samples of {mode['name']} | {' | '.join(shares)} |")
    saved = [menu["savings"][f"{budget:g}"] for budget in budgets]
    costs = ["more than recorded" if cost is None else f"{cost:.2f}" for cost in saved]
    lines.append(f"| the same without a menu costs | {' | '.join(costs)} |")
    lines.append(f"| its rounds a request | {' | '.join(map(_rounds, ours))} |")
    brackets = {bracket["budget"]: bracket for bracket in menu["oracle"]}
    lines.append(f"| oracle | {' | '.join(_bracket(brackets.get(budget)) for budget in budgets)} |")
    middle = budgets[len(budgets) // 2]
    heads = [*(f"{budget:g}" for budget in budgets), f"rounds at {middle:g}"]
    lines += ["", f"| peer: right, gain of the menu over it | {' | '.join(heads)} |"]
    lines.append(f"| --- |{' ---: |' * len(heads)}")
    for policy in _list_peers(menu):
        rows = [find_row(menu, policy, budget) for budget in budgets]
        cells = [*map(_cell, rows), _rounds(find_row(menu, policy, middle))]
        lines.append(f"| {policy} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _list_peers(menu: Found) -> list[str]:
    names = dict.fromkeys(row["policy"] for row in menu["rows"] if row["policy"] != "menu")
    known = [name for name in PEERS if name in names]
    alone = [name for name in names if name.startswith(("uniform: ", "stopping: "))]
    return [*known, *alone, *(name for name in names if name not in {*known, *alone})]


def _bracket(bracket: Found | None) -> str:
    if bracket is None:
        return "–"
    low = bracket["low"]
    return (
        f"{100 * bracket['high']:.1f}"
        if low is None
        else f"{100 * low['mean']:.1f} to {100 * bracket['high']:.1f}"
    )


def _cell(row: Found | None) -> str:
    return "–" if row is None else f"{_percent(row)}, {_points(row['gain'])}"


def _rounds(row: Found | None) -> str:
    """Rounds a request, mean and 95th percentile."""
    mean, p95 = (None, None) if row is None else row["rounds"]
    return "–" if mean is None or p95 is None else f"{mean:.1f} ({p95})"


def _percent(row: Found | None) -> str:
    """A row's accuracy, with a star where it costs less than the budget."""
    if row is None:
        return "–"
    star = "*" if row["cost"] < (1 - SPENT_TOLERANCE) * row["budget"] else ""
    return f"{100 * row['accuracy']['mean']:.1f}{star}"


def _points(gain: Found | None) -> str:
    """A gain in points with its interval."""
    if gain is None:
        return "–"
    if gain["low"] is None:
        return f"{100 * gain['mean']:+.1f}"
    return f"{100 * gain['mean']:+.1f} ({100 * gain['low']:+.1f} to {100 * gain['high']:+.1f})"
