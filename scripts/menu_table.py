"""Makes docs/reference/menus-held-out.md from the recordings beside the checkout (`make menus`).

It takes some hours on two cores. Each menu stands beside the best of its modes alone, the best cascade and a
router by prompt, at the same cost. Similar problems are held out together, then each question alone, which
shows what likeness is worth. Folds are drawn several times; accuracies are means over these, and intervals
are by bootstrap over groups, paired by problem. `--only NAME ...` measures some menus, `--keep FILE` adds
their numbers to a file, and `--from FILE` makes the page from what was kept. `--seeds 1 --orders 4 --page
FILE` is a quick try.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from menu_evaluation import MENUS as OTHERS
from menu_evaluation import ROOT, RecordedMenu, print_progress, read_menu_ballots
from recordings import FOLDER

from adacompute.evaluate import Bootstrap, Interval
from adacompute.evaluate.mode_rivals import ALL_MODES, CASCADES, SINGLES
from adacompute.evaluate.protocols import evaluate_modes
from adacompute.policies.base import Floats
from adacompute.pool.groups import count_in_groups
from adacompute.pool.modes import Menu

PAGE = ROOT / "docs" / "reference" / "menus-held-out.md"
ROUTER = "prompt router"
GROUPINGS = ("alike", "none")
MENUS = {
    "s1.1: 7B, 32B": RecordedMenu(
        files={"7b": "modes/mgsm-7b", "32b": "modes/mgsm-32b"},
        costs={"7b": 0.29, "32b": 1.0},
        budgets=(0.4, 0.6, 0.8, 1.0),
    ),
    "Qwen-32B, s1.1-32B": RecordedMenu(
        files={
            "no thinking": "modes/mmlu-qwen-nothink",
            "500 tokens": "modes/mmlu-s1-500",
            "8,000 tokens": "modes/mmlu-s1-8000",
        },
        costs={"no thinking": 1.0, "500 tokens": 2.3, "8,000 tokens": 6.9},
        budgets=(1.5, 2.3, 4.0),
    ),
    "tool calls: xLAM-1b, GPT-4o": RecordedMenu(
        files={"xlam-1b": "modes/tools-xlam-1b", "gpt-4o": "modes/tools-gpt-4o"},
        costs={"xlam-1b": 0.05, "gpt-4o": 1.0},
        budgets=(0.2, 0.4, 0.7),
    ),
    **{name: OTHERS[name] for name in ("facts", "crux", "words")},
}

HEAD = """# Menus, with similar problems held out

**In short.** At {cells} budgets the menu's policy is ahead of the better of cascade and router {ahead} times,
behind it {behind} times, and otherwise too close to tell or in too few groups for an interval; one mode alone
is right more often {alone} times.
Made by `make menus` from recordings that aren't part of the repository.

Right answers in percent, on held-out problems; {folds} folds, mean of {seeds} draws of them, {orders} random
orders of each problem's samples.

- *Best alone*: the better of fixed votes and stopping, of one mode or of several mixed at random.
- *Cascade*: the better of tuned threshold and sequential cascades. *Router*: a mode and a number of samples,
  by the prompt.
- *Gain*: of the menu over the better of cascade and router, in points, with a 95% interval by bootstrap over
  groups, paired by problem.
- *Single questions*: the menu and its gain if only equal questions are held out together: what it seems worth
  if the test has problems like those that it learned from.

| menu | at cost | best alone | cascade | router | **menu** | gain | single questions |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""

Found = dict[str, Any]


def measure(name: str, grouping: str, seed: int, orders: int) -> Found:
    """One menu on one draw of folds: what every problem adds to each accuracy, by policy and budget."""
    recorded = MENUS[name]
    ballots = read_menu_ballots(recorded.files).group(grouping)
    runs, _ = evaluate_modes(
        ballots,
        Menu.of(ballots, costs=recorded.costs),
        budgets=recorded.budgets,
        orders=orders,
        seed=seed,
        oracle=False,
    )
    each = {}
    for policy, (at, budget) in product(
        (ALL_MODES, ROUTER, *SINGLES, *CASCADES), enumerate(recorded.budgets)
    ):
        match = runs.get(policy).match(budget, at)
        if match is not None:
            each[f"{policy} {budget:g}"] = np.round(match.each, 6).tolist()
    return {"each": each, "groups": runs.setup.ballots.groups.tolist()}


def average_seeds(seeds: Mapping[str, Found]) -> dict[str, Floats]:
    """What every problem adds to each accuracy, (problems,), on the mean of draws."""
    first, *_ = seeds.values()
    return {key: np.mean([one["each"][key] for one in seeds.values()], axis=0) for key in first["each"]}


def find_best(each: Mapping[str, Floats], policies: Sequence[str], budget: float) -> Floats:
    """The best of these policies at a cost, (problems,)."""
    known = [each[key] for policy in policies if (key := f"{policy} {budget:g}") in each]
    return max(known, key=lambda values: float(values.mean()))


def list_rows(name: str, found: Mapping[str, Mapping[str, Found]], counts: Counter[str]) -> list[str]:
    """A menu's rows of the table; adds to the counts of budgets by who is ahead."""
    rows, groups = [], {by: next(iter(seeds.values()))["groups"] for by, seeds in found.items()}
    each = {by: average_seeds(seeds) for by, seeds in found.items()}
    boots = {by: Bootstrap.of_groups(groups[by]) for by in found}
    size = count_in_groups(len(groups["alike"]), len(set(groups["alike"])))
    for budget in MENUS[name].budgets:
        gains = {}
        for by, own in each.items():
            rival = find_best(own, (*CASCADES, ROUTER), budget)
            gain = boots[by].difference(own[f"{ALL_MODES} {budget:g}"], rival)
            gains[by] = format_gain(gain)
            if by == "alike":
                counts["cells"] += 1
                counts["ahead"] += (gain.low or 0) > 0
                counts["behind"] += (gain.high or 0) < 0
        alike = each["alike"]
        shown = [
            find_best(alike, policies, budget) for policies in (SINGLES, CASCADES, (ROUTER,), (ALL_MODES,))
        ]
        counts["alone"] += bool(shown[0].mean() > shown[-1].mean())
        cells = [f"{100 * values.mean():.1f}" for values in shown]
        alone = 100 * each["none"][f"{ALL_MODES} {budget:g}"].mean()
        label = f"{name}<br>{size}" if not rows else ""
        rows.append(
            f"| {label} | {budget:g} | {' | '.join(cells[:3])} | **{cells[3]}** | {gains['alike']} | "
            f"{alone:.1f}, {gains['none']} |\n"
        )
    return rows


def format_gain(gain: Interval) -> str:
    if gain.low is None or gain.high is None:
        return f"{100 * gain.mean:+.1f}"
    return f"{100 * gain.mean:+.2f} ({100 * gain.low:+.2f} to {100 * gain.high:+.2f})"


def measure_all(options: argparse.Namespace, found: Found) -> None:
    """Adds the menus that are asked for, and keeps each as soon as it is there."""
    names = options.only or list(MENUS)
    tasks = list(product(names, GROUPINGS, range(options.seeds)))
    with ProcessPoolExecutor(options.workers) as executor:
        futures = [executor.submit(measure, *task, options.orders) for task in tasks]
        for (name, grouping, seed), future in zip(tasks, futures, strict=True):
            seeds = found["menus"].setdefault(name, {}).setdefault(grouping, {})
            seeds[str(seed)] = future.result()
            print_progress(f"{name}, groups {grouping}, seed {seed}")
            if options.keep:
                options.keep.write_text(json.dumps(found), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", type=Path, help="write the numbers to this file too")
    parser.add_argument("--from", dest="given", type=Path, help="make the page from kept numbers")
    parser.add_argument("--only", nargs="+", choices=MENUS, help="measure these; the others come from --from")
    parser.add_argument("--seeds", type=int, default=10, help="draws of folds")
    parser.add_argument("--orders", type=int, default=8, help="random orders of each problem's samples")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write")
    options = parser.parse_args()
    found: Found = json.loads(options.given.read_text("utf-8")) if options.given else {"menus": {}}
    if options.only or not options.given:
        if not (FOLDER / "README.md").is_file():
            sys.exit(f"{FOLDER}: the recordings are not there; this page is made from them")
        found |= {"seeds": options.seeds, "orders": options.orders}
        measure_all(options, found)
    counts: Counter[str] = Counter()
    measured = [(name, found["menus"][name]) for name in MENUS if name in found["menus"]]
    rows = [row for name, seeds in measured for row in list_rows(name, seeds, counts)]
    shown = {key: counts[key] for key in ("cells", "ahead", "behind", "alone")}
    head = HEAD.format(folds=5, seeds=found["seeds"], orders=found["orders"], **shown)
    options.page.write_text(head + "".join(rows), "utf-8")
    print_progress(f"wrote {options.page}")


if __name__ == "__main__":
    main()
