"""The numbers behind the pictures of docs/concepts.md, measured on the bundled recordings.

`python scripts/picture_numbers.py` writes docs/figures/numbers.json, in some seconds. The pictures are drawn
from it by scripts/pictures.py; `tests/docs/test_pictures.py` measures some of them again.
"""

import importlib.util
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

import adacompute as ac

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "figures" / "numbers.json"
RECORDINGS = ("facts", "words")
BUDGETS = (1, 2, 3, 4, 6, 8, 12, 16)
ASKED = ("facts-000", "facts-046", "facts-135", "facts-003", "facts-016", "facts-049", "facts-060")


def measure_votes() -> dict[str, Any]:
    """Accuracy of plain votes, by how many vote."""
    accuracy = {}
    for name in RECORDINGS:
        table = ac.score(ac.bundled(name), budgets=BUDGETS)
        accuracy[name] = [round(float(value), 4) for value in table.accuracy.mean(axis=0)]
    return {"budgets": list(BUDGETS), "accuracy": accuracy}


def run_requests(dial: float) -> list[dict[str, Any]]:
    """Some requests of `facts` as they would have run: answers as recorded, and where it stopped."""
    pool = ac.bundled("facts")
    policy = ac.StoppingPolicy().settle(pool.ballots())
    shown = []
    for recorded in pool:
        if recorded.problem.id not in ASKED:
            continue
        tally = ac.Tally(weigh=policy.weigh)
        drawn: list[dict[str, Any]] = []
        while more := policy.more(recorded.problem.question, tally, dial):
            for sample in recorded.samples[len(drawn) : len(drawn) + more]:
                tally.add(sample)
                drawn.append({"answer": sample.answer, "right": sample.correct == 1.0})
        shown.append({"question": recorded.problem.question, "drawn": drawn, "answer": tally.leader})
    return shown


def measure_dials() -> dict[str, Any]:
    """What the stopping policy costs, and how often it is right, at prices: on `words`."""
    costs = load_simulation().recorded("words")
    return {
        "price": [float(f"{math.exp(log):.4g}") for log in costs.logs],
        "cost": [round(value, 3) for value in costs.mean],
        "accuracy": [round(float(value), 4) for value in costs.right.mean(axis=1)],
    }


def measure_single_samples() -> dict[str, float]:
    """The share of requests that stop after one sample, at 3 on average."""
    shares = {}
    for name in RECORDINGS:
        costs = load_simulation().recorded(name)
        shares[name] = round(float((costs.drawn[costs.at(costs.price(3.0))] == 1).mean()), 3)
    return shares


def simulate_pacer() -> dict[str, Any]:
    """2,000 requests, easy ones first, then hard ones: the price moves, the average stays."""
    from adacompute.serve.pricing.pacer import Pacer

    module = load_simulation()
    costs = module.recorded("words")
    pacer = Pacer(3.0, start=costs.price(3.0), low=module.LOW, high=module.HIGH)
    fixed = costs.at(costs.price(3.0))
    out = module.paced(pacer, costs, "easy then hard", requests=2000, delay=8, seed=1)
    blind = np.cumsum([costs.rows[fixed][path] for path in out.chosen]) / np.arange(1, len(out.chosen) + 1)
    at = sorted({*range(20, 200, 10), *range(200, 2000, 25), 1999})
    return {
        "request": [number + 1 for number in at],
        "average": [round(out.averages[number], 3) for number in at],
        "unpaced": [round(float(blind[number]), 3) for number in at],
        "price": [float(f"{out.prices[number]:.4g}") for number in at],
    }


def load_simulation() -> Any:  # noqa: ANN401
    """The simulation of live traffic that the pacer's tests use."""
    name = "simulated_traffic"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "tests" / "serve" / "pacing.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


if __name__ == "__main__":
    shown: dict[str, Any] = {
        "votes": measure_votes(),
        "dials": measure_dials(),
        "paced": simulate_pacer(),
        "alone": measure_single_samples(),
    }
    shown["price"] = float(
        f"{load_simulation().recorded('facts').price(3.0):.4g}"
    )  # for 3 samples on average
    shown["requests"] = run_requests(shown["price"])
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(shown, indent=1, ensure_ascii=False) + "\n", "utf-8")
