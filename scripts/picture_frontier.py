"""The frontier of a bundled recording, measured and kept: the picture and the table of README.md.

`python scripts/picture_frontier.py` writes docs/figures/frontier.json, in a minute or two: the numbers that
`adacompute report words` has in its verdict. `scripts/pictures.py` draws from it, and writes the table of
README.md.
"""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

import adacompute as ac
from adacompute.evaluate.comparison import CostCurve, Evaluation, Match
from adacompute.evaluate.conclusions import EvaluationRuns, assemble_evaluation
from adacompute.evaluate.measure import AVERAGE_BUDGETS
from adacompute.evaluate.oracle_bounds import Oracle, bracket_oracle
from adacompute.evaluate.protocols import reduce_order_noise, run_policies
from adacompute.evaluate.verdict import judge_pool
from adacompute.replay.matching import Interval
from adacompute.report.exhibits.frontier import OracleCurve, PolicyFrontier, draw_few, trace_frontier
from adacompute.report.exhibits.money import EXAMPLE_MONEY
from adacompute.report.exhibits.verdict import find_verdict_match

RECORDING = "words"
FILE = Path(__file__).resolve().parent.parent / "docs" / "figures" / "frontier.json"
POLICIES = ("fixed", "asc", "esc", "doubling", "stopping")
FOLDS, ORDERS, SEED = 5, 20, 0  # as the report has them


def measure() -> dict[str, Any]:
    """Everything that is shown, as plain data."""
    run, oracle, evaluation = evaluate_recording(RECORDING)
    verdict = evaluation.verdict
    same = find_verdict_match(verdict)
    return {
        "headline": verdict.sentence,
        "below": verdict.support,
        "frontier": to_plain(trace_frontier(run, oracle=oracle)),
        "same": None if same is None else to_plain(same),
        "budgets": [make_row(evaluation, budget) for budget in AVERAGE_BUDGETS],
        "money": [
            {"budget": saving.budget, "cost": saving.cost, "same_cost": saving.same_cost}
            for saving in EXAMPLE_MONEY.compute_savings(verdict)
        ],
        "prices": {"input": EXAMPLE_MONEY.prices.input, "output": EXAMPLE_MONEY.prices.output},
    }


def evaluate_recording(name: str) -> tuple[EvaluationRuns, Oracle, Evaluation]:
    """Evaluate a recording as a report does, without the policies that aren't shown."""
    ballots = ac.bundled(name).ballots()
    workers = min(4, os.cpu_count() or 1)
    run = reduce_order_noise(
        run_policies(
            ballots,
            budgets=AVERAGE_BUDGETS,
            policies=POLICIES,
            parts=FOLDS,
            orders=ORDERS,
            seed=SEED,
            workers=workers,
        )
    )
    oracle = Oracle.of(run.setup)
    verdict = judge_pool(ballots, workers=workers)
    brackets = bracket_oracle(run.setup, oracle=oracle)
    return run, oracle, assemble_evaluation(run, verdict, oracle=brackets)


def make_row(evaluation: Evaluation, budget: float) -> dict[str, Any]:
    """Uniform and ours at one average budget."""
    row = evaluation.verdict.row(budget)
    assert row is not None
    return {"budget": budget} | {
        key: to_plain(getattr(row, key)) for key in ("uniform", "accuracy", "gain", "worth")
    }


def to_plain(value: Any) -> Any:  # noqa: ANN401
    """Dataclasses and arrays as JSON has them, to five digits."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        return [to_plain(float(number)) for number in value]
    if isinstance(value, tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if np.isfinite(value) else None
    return value


def read_frontier(kept: dict[str, Any]) -> PolicyFrontier:
    """The frontier from its kept numbers."""
    oracle = kept["oracle"]
    return PolicyFrontier(
        **kept
        | {
            "curves": tuple(read_curve(curve) for curve in kept["curves"]),
            "published": read_curve(kept["published"]),
            "oracle": OracleCurve(**oracle | {key: to_array(oracle[key]) for key in ("cost", "low", "high")}),
            "budgets": tuple(kept["budgets"]),
        }
    )


def read_curve(kept: dict[str, Any]) -> CostCurve:
    return CostCurve(policy=kept["policy"], **{key: to_array(kept[key]) for key in kept if key != "policy"})


def read_match(kept: dict[str, Any]) -> Match:
    spans = {key: None if kept[key] is None else Interval(**kept[key]) for key in ("gain", "lead", "worth")}
    return Match(**kept | spans | {"recovered": tuple(kept["recovered"])})


def to_array(values: list[float | None]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([np.nan if value is None else value for value in values])


def draw_kept_frontier(kept: dict[str, Any]) -> str:
    """The simple picture, with the arrow for the headline."""
    same = None if kept["same"] is None else read_match(kept["same"])
    return draw_few(read_frontier(kept["frontier"]), match=same, key="frontier").svg


if __name__ == "__main__":
    FILE.write_text(json.dumps(measure(), indent=1) + "\n", "utf-8")
