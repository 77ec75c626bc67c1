"""Measure menus of modes on the recordings, and write docs/menu-evaluation.md with its picture.

`python scripts/menu_evaluation.py --keep numbers.json`. The recordings are not part of the repository. A menu
takes some minutes; `--only NAME ...` measures some and takes the others from `--from FILE`, and with `--keep`
every menu is written as soon as it is measured. `--from FILE` alone makes the page from kept numbers.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from recordings import FOLDER

from adacompute.evaluate.menu_evaluation import evaluate_menu
from adacompute.pool import join_pools
from adacompute.pool.menu import Menu, MenuBallots

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "menu-evaluation.md"
FOLDS, ORDERS, SEED = 5, 40, 0
Found = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class RecordedMenu:
    """Recordings of the same problems, what a sample of each costs, and the costs to compare at."""

    files: Mapping[str, str]  # by mode
    costs: Mapping[str, float]
    budgets: Sequence[float]
    families: bool = False
    weigh: Literal["auto"] | None = "auto"


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
    "facts": RecordedMenu(files=FACTS, costs={"smol": 0.1, "qwen": 1.0}, budgets=FEW),
    "crux": RecordedMenu(**PAIR),
    "reasoning-gym": RecordedMenu(**GYM),
    "crux, four modes": RecordedMenu(files=CRUX, costs=CRUX_COSTS, budgets=PAIR["budgets"]),
    "gsm8k": RecordedMenu(files=name_steps("gsm8k"), costs=CHEAP, budgets=MANY),
    "math": RecordedMenu(files=name_steps("math"), costs=CHEAP, budgets=MANY),
    "reasoning-gym, by family": RecordedMenu(**GYM, families=True),
    "words": RecordedMenu(files=name_steps("words"), costs=CHEAP, budgets=MANY),
    "facts, plain votes": RecordedMenu(
        files=FACTS, costs={"smol": 0.1, "qwen": 1.0}, budgets=FEW, weigh=None
    ),
    "reasoning-gym, plain votes": RecordedMenu(**GYM, weigh=None),
}


def read_menu_ballots(files: Mapping[str, str]) -> MenuBallots:
    """The votes of recordings, joined."""
    with join_pools({mode: FOLDER / f"{file}.jsonl.gz" for mode, file in files.items()}) as pool:
        return pool.ballots()


def measure_menu(name: str, recorded: RecordedMenu, options: argparse.Namespace) -> Found:
    """One menu beside its peers, as plain data."""
    ballots = read_menu_ballots(recorded.files)
    started = time.monotonic()
    evaluation = evaluate_menu(
        ballots,
        Menu.of(ballots, costs=recorded.costs),
        budgets=recorded.budgets,
        folds=FOLDS,
        families=recorded.families,
        orders=options.orders,
        seed=SEED,
        workers=options.workers,
        weigh=recorded.weigh,
        progress=lambda done, total, last: print_progress(f"{name}: {done} of {total} ({last})"),
    )
    return {**evaluation.to_dict(), "seconds": round(time.monotonic() - started)}


def measure_all(options: argparse.Namespace, kept: Found) -> Found:
    """Every menu that is asked for, kept as soon as it is there."""
    found = {"menus": {}, "ratios": {}, "transfers": {}, **kept, "orders": options.orders, "folds": FOLDS}
    for name, recorded in MENUS.items():
        if options.only is None or name in options.only:
            found["menus"][name] = measure_menu(name, recorded, options)
            print_progress(f"{name}: {found['menus'][name]['verdict']}")
            keep(found, options)
    return found


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


if __name__ == "__main__":
    main()
