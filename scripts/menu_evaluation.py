"""Measure menus of modes on the recordings, and write docs/reference/menu-evaluation.md with its picture.

`python scripts/menu_evaluation.py --keep numbers.json`. The recordings are not part of the repository. A menu
takes some minutes; `--only NAME ...` measures some and takes the others from `--from FILE`, and with `--keep`
every menu is written as soon as it is measured. `--from FILE` alone makes the page from kept numbers. "NAME,
ratios" measures a pair of modes at other ratios of their costs.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from menu_evaluation_page import page
from recordings import FOLDER

from adacompute.evaluate import Evaluation, Match, evaluate
from adacompute.evaluate.comparison import pool_folds
from adacompute.evaluate.conclusions import EvaluationRuns, assemble_evaluation, make_bootstrap
from adacompute.evaluate.measure import EvaluationSetup, SplitResult
from adacompute.evaluate.mode_rivals import (
    SINGLES,
    SettingMix,
    apply_mixes,
    draw_mode_paths,
    follow_runs,
    list_targets,
)
from adacompute.evaluate.mode_verdict import judge_modes
from adacompute.evaluate.protocols import evaluate_modes
from adacompute.evaluate.resampling import Split
from adacompute.policies.base import Floats
from adacompute.policies.modes.policy import MenuPolicy
from adacompute.policies.stopping import StoppingPolicy
from adacompute.policies.stopping.prior import FALLBACK_PRIOR, load_bundled_prior
from adacompute.pool import Ballots, Mode, join_pools
from adacompute.pool.modes import Menu
from adacompute.replay.per_problem import run_policy

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "menu-evaluation.md"
RATIO_FILE = ROOT / "docs" / "figures" / "menu-ratios.json"
FOLDS, ORDERS, SEED = 5, 16, 0
Found = dict[str, Any]
WORDS = {"pays": ("Worth it", True), "single modes are as good": ("Not worth it", False)}


@dataclass(frozen=True, kw_only=True)
class RecordedMenu:
    """Recordings of the same problems, what a sample of each costs, and the costs to compare at."""

    files: Mapping[str, str]  # by mode
    costs: Mapping[str, float]
    budgets: Sequence[float]
    groups: str = "alike"  # what is held out together
    weigh: Literal["auto"] | None = "auto"
    taught_by: str | None = (
        None  # the menu that a transferred policy is fitted on, mode by mode in order of cost
    )


QWEN = "qwen2.5-coder-1.5b"
FACTS = {"smol": "facts-smollm2-135m", "qwen": f"modes/facts-{QWEN}"}
CRUX = {
    "gpt-3.5": "modes/crux-output-gpt-3.5-turbo-0613",
    "gpt-3.5-cot": "modes/crux-output-gpt-3.5-turbo-0613-cot",
    "gpt-4": "modes/crux-output-gpt-4-0613",
    "gpt-4-cot": "modes/crux-output-gpt-4-0613-cot",
}
CRUX_COSTS = {"gpt-3.5": 0.02, "gpt-3.5-cot": 0.045, "gpt-4": 0.5, "gpt-4-cot": 1.0}
CRUX_PAIR = ("gpt-3.5-cot", "gpt-4-cot")


def name_steps(name: str) -> dict[str, str]:
    """The files of a recording whose questions were also answered at once."""
    return {"direct": f"modes/{name}-{QWEN}-direct", "steps": f"{name}-{QWEN}"}


FEW, MANY = (0.3, 0.5, 0.7, 0.9), (1.5, 2.0, 3.0, 4.0)
GYM = {"files": name_steps("reasoning-gym"), "costs": {"direct": 0.1, "steps": 1.0}, "budgets": MANY}
PAIR = {
    "files": {name: CRUX[name] for name in CRUX_PAIR},
    "costs": {name: CRUX_COSTS[name] for name in CRUX_PAIR},
    "budgets": (0.2, 0.3, 0.5, 0.7),
}
CHEAP = {"direct": 0.03, "steps": 1.0}
MENUS = {
    "facts": RecordedMenu(files=FACTS, costs={"smol": 0.1, "qwen": 1.0}, budgets=FEW, groups="none"),
    "crux": RecordedMenu(**PAIR, taught_by="facts"),
    "reasoning-gym": RecordedMenu(**GYM),
    "crux, four modes": RecordedMenu(files=CRUX, costs=CRUX_COSTS, budgets=PAIR["budgets"]),
    "gsm8k": RecordedMenu(files=name_steps("gsm8k"), costs=CHEAP, budgets=MANY, taught_by="math"),
    "math": RecordedMenu(files=name_steps("math"), costs=CHEAP, budgets=MANY, taught_by="gsm8k"),
    "reasoning-gym, single questions": RecordedMenu(**GYM, groups="none"),
    "reasoning-gym, by family": RecordedMenu(**GYM, groups="subject"),
    "words": RecordedMenu(files=name_steps("words"), costs=CHEAP, budgets=MANY),
    "words, single questions": RecordedMenu(
        files=name_steps("words"), costs=CHEAP, budgets=MANY, groups="none"
    ),
    "facts, plain votes": RecordedMenu(
        files=FACTS, costs={"smol": 0.1, "qwen": 1.0}, budgets=FEW, weigh=None, groups="none"
    ),
    "reasoning-gym, plain votes": RecordedMenu(**GYM, weigh=None),
}


RATIO_FOLDS, RATIO_ORDERS = 2, 16
RATIOS = {"crux": (1, 3, 10, 30, 100), "facts": (1, 3, 10, 30, 100)}  # by menu; of the others:
OTHER_RATIOS = (1, 10, 100)
RATIO_BUDGETS = {  # by menu of two modes: costs to compare at, in samples of the expensive one
    "crux": (0.5, 1.0),
    "facts": (0.5, 1.0),
    "gsm8k": (2.0,),
    "reasoning-gym": (2.0,),
    "math": (2.0,),
}


def read_menu_ballots(files: Mapping[str, str]) -> Ballots:
    """The votes of recordings, joined."""
    with join_pools({mode: FOLDER / f"{file}.jsonl.gz" for mode, file in files.items()}) as pool:
        return pool.ballots()


class UntaughtMenu(MenuPolicy):
    """A menu policy whose stopping policies begin from a prior that has seen none of these recordings."""

    def _make_stopper(self, *arguments: Any, **options: Any) -> StoppingPolicy:  # noqa: ANN401
        stopper = super()._make_stopper(*arguments, **options)
        stopper.base_prior_ = stopper.prior_ = load_bundled_prior(FALLBACK_PRIOR)
        return stopper


def fit_elsewhere(recorded: RecordedMenu) -> dict[str, MenuPolicy]:
    """The policy that another menu's recordings teach, for the modes and costs of this one."""
    if recorded.taught_by is None:
        return {}
    menu = Menu(modes=tuple(Mode(name=name, cost=cost) for name, cost in recorded.costs.items()))
    taught = read_menu_ballots(MENUS[recorded.taught_by].files)
    known = recorded.taught_by in ("gsm8k", "math")  # the package's prior was learned on both
    policy = (UntaughtMenu if known else MenuPolicy)(menu, weigh="auto" if known else None, seed=SEED).fit(
        Ballots.join(dict(zip(menu.names, taught.parts, strict=True)))
    )
    return {f"transferred from {recorded.taught_by}": policy}


def mix_by_cost(cost: Floats, budget: float) -> SettingMix:
    """The two neighbours of a budget among settings in the order of a dial, by their cost alone, (settings,).

    >>> mix_by_cost(np.array([1.0, 2.0, 4.0]), 2.5)
    SettingMix(low=1, high=2, share=0.25)
    """
    dearer = np.flatnonzero(cost > budget)
    above = int(dearer[0]) if len(dearer) else len(cost)
    if above in (0, len(cost)):
        end = min(above, len(cost) - 1)
        return SettingMix(low=end, high=end, share=0.0)
    share = (budget - cost[above - 1]) / (cost[above] - cost[above - 1])
    return SettingMix(low=above - 1, high=above, share=float(share))


def measure_fitted(setup: EvaluationSetup, splits: Sequence[Split], policy: MenuPolicy) -> list[SplitResult]:
    """A policy that was fitted elsewhere, on every split: its price is chosen by cost on the other folds."""
    recorded = [int(votes.drawn.min()) for votes in setup.ballots.parts]
    longest = [min(pair) for pair in zip(policy.longest_by_mode, recorded, strict=True)]
    paths = draw_mode_paths(setup, policy.weigh, longest, number=len(splits))
    reading = policy.read(setup.ballots.prompts)
    runs = [run_policy(policy, paths, dial=float(price), reading=reading) for price in policy.prices_]
    settings, results = follow_runs(paths, runs), []
    for split in splits:
        costs = settings.cost[:, split.train].mean(axis=1)
        mixes = [mix_by_cost(costs, target) for target in list_targets(setup)]
        results.append(apply_mixes(setup, settings, mixes, split.test))
    return results


def add_fitted(runs: EvaluationRuns, name: str, policy: MenuPolicy) -> EvaluationRuns:
    """The runs with one more policy, which was fitted elsewhere."""
    results = enumerate(measure_fitted(runs.setup, runs.splits, policy))
    pooled = pool_folds({(number, name): result for number, result in results}, name, runs.splits)
    return replace(runs, everyone=(*runs.everyone, pooled))


def measure_menu(name: str, recorded: RecordedMenu, options: argparse.Namespace) -> Found:
    """One menu beside its peers, as plain data."""
    ballots = read_menu_ballots(recorded.files).group(recorded.groups)
    started = time.monotonic()
    runs, evaluation = evaluate_modes(
        ballots,
        Menu.of(ballots, costs=recorded.costs),
        budgets=recorded.budgets,
        folds=FOLDS,
        orders=options.orders,
        seed=SEED,
        workers=options.workers,
        votes="auto" if recorded.weigh else "plain",
        progress=lambda done, total, last: print_progress(f"{name}: {done} of {total} ({last})"),
    )
    for other, policy in fit_elsewhere(recorded).items():
        runs = add_fitted(runs, other, policy)
    verdict = judge_modes(runs, make_bootstrap(runs.setup))
    evaluation = assemble_evaluation(runs, verdict, oracle=evaluation.oracle)
    return {**describe(evaluation), "seconds": round(time.monotonic() - started)}


def describe(evaluation: Evaluation) -> Found:
    """What the page needs of an evaluation, as plain data."""
    verdict = evaluation.verdict
    word, worth = WORDS.get(verdict.decided, ("Can't tell", None))
    return {
        "menu": evaluation.get_modes().dump(),
        "problems": evaluation.problems,
        "groups": evaluation.groups,
        "worth": worth,
        "verdict": f"{word}: {verdict.support[0].lower()}{verdict.support[1:]}",
        "budgets": list(evaluation.budgets),
        "rows": [describe_match(match) for match in evaluation.matched],
        "oracle": [asdict(bracket) for bracket in evaluation.oracle],
        "gain": asdict(verdict.gains["single modes"]),
        "cascade_gain": asdict(verdict.gains["cascades"]),
        "savings": {
            f"{row.budget:g}": row.worth.mean if math.isfinite(row.worth.mean) else None
            for row in verdict.rows
        },
    }


def describe_match(match: Match) -> Found:
    """One policy at one cost; its gain is the menu's over it."""
    return {
        "policy": "shuffled" if match.policy == "shuffled draws" else match.policy,
        "budget": match.budget,
        "cost": match.cost,
        "accuracy": {"mean": match.accuracy, "low": match.low, "high": match.high},
        "gain": None if match.lead is None else asdict(match.lead),
        "draws": dict(match.draws),
        "rounds": [match.rounds, match.rounds_p95],
    }


def measure_ratios(name: str, options: argparse.Namespace, found: Found) -> None:
    """Adds what a pair gains where its expensive mode costs so many times as much, a line for each cost."""
    ballots = read_menu_ballots(MENUS[name].files).group(MENUS[name].groups)
    cheap, dear = MENUS[name].costs
    for ratio in RATIOS.get(name, OTHER_RATIOS):
        evaluation = evaluate(
            ballots,
            modes=Menu.of(ballots, costs={cheap: 1 / ratio, dear: 1.0}),
            budgets=[budget for budget in RATIO_BUDGETS[name] if budget * ratio >= 1],
            folds=RATIO_FOLDS,
            orders=RATIO_ORDERS,
            seed=SEED,
            workers=options.workers,
            policies=(),
        )
        for budget in evaluation.budgets:
            single = evaluation.find_best(SINGLES, budget)
            if single is None or single.lead is None:
                continue
            line = found.setdefault(f"{name}, at cost {budget:g}", {"budget": budget, "gain": {}})
            line["gain"][str(ratio)] = asdict(single.lead)
            print_progress(f"{name}, ratio {ratio}, at cost {budget:g}: {line['gain'][str(ratio)]}")


def measure_all(options: argparse.Namespace, kept: Found) -> Found:
    """Every menu that is asked for, kept as soon as it is there."""
    found = {
        "menus": {},
        "ratios": {},
        **kept,
        "orders": options.orders,
        "folds": FOLDS,
        "ratio_protocol": {"folds": RATIO_FOLDS, "orders": RATIO_ORDERS},
    }
    for name, recorded in MENUS.items():
        if options.only is None or name in options.only:
            found["menus"][name] = measure_menu(name, recorded, options)
            print_progress(f"{name}: {found['menus'][name]['verdict']}")
            keep(found, options)
    for name in RATIO_BUDGETS:
        if options.only is None or f"{name}, ratios" in options.only:
            measure_ratios(name, options, found["ratios"])
            keep(found, options)
    return found


def list_missing(found: Found) -> list[str]:
    """What is part of this page and has no numbers yet."""
    measured = {line.partition(", at cost")[0] for line in found["ratios"]}
    ratios = [f"{name} at other ratios of costs" for name in RATIO_BUDGETS if name not in measured]
    return [*(name for name in MENUS if name not in found["menus"]), *ratios]


def keep(found: Found, options: argparse.Namespace) -> None:
    """Writes the numbers, so that nothing measured is lost."""
    if options.keep:
        options.keep.write_text(json.dumps(found), "utf-8")


def print_progress(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", type=Path, help="write the numbers to this file too")
    parser.add_argument("--from", dest="given", type=Path, help="make the page from kept numbers")
    parser.add_argument("--only", nargs="+", help="measure these menus; the others come from --from")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--orders", type=int, default=ORDERS, help="random orders of each problem's samples")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write")
    options = parser.parse_args()
    found = json.loads(options.given.read_text("utf-8")) if options.given else {}
    if options.only or not options.given:
        if not (FOLDER / "README.md").is_file():
            sys.exit(f"{FOLDER}: the recordings are not there; this page is made from them")
        found = measure_all(options, found)
    found["menus"] = {name: found["menus"][name] for name in MENUS if name in found["menus"]}
    if found.get("ratios"):
        RATIO_FILE.write_text(json.dumps(found["ratios"], indent=1) + "\n", "utf-8")
    options.page.write_text(page(found | {"missing": list_missing(found)}), "utf-8")
    print_progress(f"wrote {options.page}; draw its picture with scripts/pictures.py")


if __name__ == "__main__":
    main()
