"""`python -m studies.fleet`: measure, simulate, and print every table.

--quick simulates less, in a fraction of the time. --write keeps the numbers in studies/fleet/fleet.json,
draws studies/fleet/fleet.svg from them and renews the tables of studies/fleet/README.md; with
--draw, from the numbers that are kept already.
"""

import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from studies.fleet import caps
from studies.fleet import questions as ask
from studies.fleet.arithmetic import arithmetic
from studies.fleet.figure import figure
from studies.fleet.measured import measured
from studies.fleet.tables import TABLES, renewed

FOLDER = Path(__file__).resolve().parent
KEPT, PICTURE, PAGE = FOLDER / "fleet.json", FOLDER / "fleet.svg", FOLDER / "README.md"
# gateways, requests a second, seconds, told of each request
CELLS = [
    (1, 10.0, 180.0, True), (1, 100.0, 180.0, True), (1, 300.0, 180.0, True),
    (2, 1e3, 180.0, True), (20, 1e4, 60.0, True),
    (1, 100.0, 180.0, False), (2, 1e3, 180.0, False), (100, 1e4, 180.0, False), (1000, 1e5, 180.0, False),
    (1000, 1e6, 180.0, False),
]  # fmt: skip
FEW = [(1, 100.0, 60.0, True), (1000, 1e4, 60.0, False)]


def answers(*, quick: bool) -> dict[str, Any]:
    """Every number, by question."""
    found: dict[str, Any] = {"measured": _told("measured", lambda: measured(quick=quick))}
    service = ask.service_of(found["measured"])
    found["held"] = _told("held", lambda: ask.held(service, FEW if quick else CELLS))
    found["independent"] = _told("independent", lambda: ask.independent(service, 4 if quick else 20))
    found["ledger"] = _told("ledger", lambda: caps.ledger(found["measured"], 1.0 if quick else 10.0))
    found["arithmetic"] = arithmetic(found["measured"])
    if not quick:
        found["memory"] = _told("memory", lambda: ask.memory(service))
        found["leases"] = _told("leases", caps.leases)
        found["saturation"] = _told("saturation", lambda: ask.saturation(service))
        found["drift"] = _told("drift", lambda: ask.drift(service))
        found["loss"] = _told("loss", lambda: ask.loss(service))
        found["stale"] = _told("stale", lambda: ask.stale(service))
    return dict(_plain(found))


def _told(name: str, work: Callable[[], Any]) -> Any:  # noqa: ANN401 # whatever is answered
    began = time.monotonic()
    found = work()
    print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    return found


def _plain(value: Any) -> Any:  # noqa: ANN401 # whatever JSON holds
    """Numbers as JSON has them, to five digits that count."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float | np.floating):
        number = float(value)
        return float(f"{number:.5g}") if math.isfinite(number) else None
    return int(value) if isinstance(value, np.integer) else value


def main(words: list[str]) -> int:
    """Exit code of the command."""
    unknown = set(words) - {"--quick", "--write", "--draw"}
    if unknown or {"--quick", "--write"} <= set(words):
        print(
            "give --quick to see less, or --write to renew the page; --draw draws it again", file=sys.stderr
        )
        return 2
    draw = "--draw" in words
    numbers = json.loads(KEPT.read_text("utf-8")) if draw else answers(quick="--quick" in words)
    if "--write" in words and not draw:
        KEPT.write_text(json.dumps(numbers, indent=1) + "\n", "utf-8")
    if "--write" in words or draw:
        PICTURE.write_text(figure(numbers), "utf-8")
        PAGE.write_text(renewed(PAGE.read_text("utf-8"), numbers), "utf-8")
        print("written: studies/fleet/fleet.json, studies/fleet/fleet.svg, studies/fleet/README.md")
        return 0
    shown = [name for name in TABLES if name in numbers]
    print("\n\n".join(f"## {name}\n\n{TABLES[name](numbers)}" for name in shown))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
