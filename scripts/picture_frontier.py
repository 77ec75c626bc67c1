"""The frontier of a bundled recording, measured and kept: the picture and the table of README.md.

`python scripts/picture_frontier.py` writes docs/figures/frontier.json, in a minute or two: the numbers that
`adacompute report words` has in its verdict. `scripts/pictures.py` draws from it, and writes the table of
README.md.
"""

import dataclasses
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import adacompute as ac
from adacompute.evaluate.comparison import CostCurve, Evaluation, Match
from adacompute.evaluate.conclusions import (
    EvaluationInputs,
    assemble_evaluation,
    build_headline,
    find_headline_match,
)
from adacompute.evaluate.measure import OURS, UNIFORM
from adacompute.evaluate.oracle_bounds import Oracle, bracket_oracle
from adacompute.evaluate.protocols import AVERAGE_BUDGETS, EvaluationRuns, reduce_order_noise, run_policies
from adacompute.evaluate.resampling import Interval
from adacompute.report.exhibits.frontier import OracleCurve, PolicyFrontier, draw_frontier, trace_frontier
from adacompute.report.exhibits.money import EXAMPLE_MONEY, build_money_data, compute_savings
from adacompute.report.exhibits.token_cost import measure_tokens

RECORDING, OTHER = "words", "facts"
FILE = Path(__file__).resolve().parent.parent / "docs" / "figures" / "frontier.json"
POLICIES = ("fixed", "asc", "esc", "doubling", "stopping")
FOLDS, ORDERS, SEED = 5, 20, 0  # as the report has them


def measured() -> dict[str, Any]:
    """Everything that is shown, as plain data."""
    run, oracle, evaluation = evaluated(RECORDING)
    same, head = find_headline_match(evaluation), build_headline(evaluation)
    return {
        "headline": head.words,
        "below": head.below,
        "frontier": plain(trace_frontier(run, oracle=oracle)),
        "same": None if same is None else plain(same),
        "budgets": [row(evaluation, budget) for budget in AVERAGE_BUDGETS],
        "other": {OTHER: [row(evaluated(OTHER)[2], budget) for budget in AVERAGE_BUDGETS]},
        "money": [
            {"budget": one.budget, "cost": one.cost, "same_cost": one.same_cost}
            for one in compute_savings(
                build_money_data(evaluation, measure_tokens(run), EXAMPLE_MONEY), EXAMPLE_MONEY
            )
        ],
        "prices": {"input": EXAMPLE_MONEY.input_price, "output": EXAMPLE_MONEY.output_price},
    }


@cache
def evaluated(name: str) -> tuple[EvaluationRuns, Oracle, Evaluation]:
    """A recording, evaluated as a report does it, but for the policies that aren't shown."""
    run = reduce_order_noise(
        run_policies(
            ac.bundled(name).ballots(),
            budgets=AVERAGE_BUDGETS,
            policies=POLICIES,
            parts=FOLDS,
            orders=ORDERS,
            seed=SEED,
            workers=min(4, os.cpu_count() or 1),
        )
    )
    oracle = Oracle.of(run.setup)
    ends = bracket_oracle(run.setup, oracle=oracle)
    everyone = list(run.everyone)
    shown = EvaluationInputs(run.setup, everyone, ends, "held-out", run.parts, run.dropped, run.left_out)
    return run, oracle, assemble_evaluation(shown)


def row(evaluation: Evaluation, budget: float) -> dict[str, Any]:
    """Uniform and ours at one average budget."""
    uniform, ours = evaluation.match(UNIFORM, budget), evaluation.match(OURS, budget)
    assert uniform is not None
    assert ours is not None
    return {"budget": budget, "uniform": uniform.accuracy} | {
        key: plain(getattr(ours, key)) for key in ("accuracy", "gain", "worth")
    }


def plain(value: Any) -> Any:  # noqa: ANN401
    """Dataclasses and arrays as JSON has them, to five digits."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        return [plain(float(one)) for one in value]
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if np.isfinite(value) else None
    return value


def frontier_from(kept: dict[str, Any]) -> PolicyFrontier:
    """The frontier, as it was measured."""
    oracle = kept["oracle"]
    return PolicyFrontier(
        **kept
        | {
            "lines": tuple(line_from(one) for one in kept["lines"]),
            "published": line_from(kept["published"]),
            "oracle": OracleCurve(**oracle | {key: numbers(oracle[key]) for key in ("cost", "low", "high")}),
            "budgets": tuple(kept["budgets"]),
        }
    )


def line_from(kept: dict[str, Any]) -> CostCurve:
    return CostCurve(policy=kept["policy"], **{key: numbers(kept[key]) for key in kept if key != "policy"})


def match_from(kept: dict[str, Any]) -> Match:
    spans = {key: None if kept[key] is None else Interval(**kept[key]) for key in ("gain", "lead", "worth")}
    return Match(**kept | spans | {"recovered": tuple(kept["recovered"])})


def numbers(values: list[float | None]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([np.nan if value is None else value for value in values])


def drawn(kept: dict[str, Any]) -> str:
    """The calm picture, with the arrow that the headline speaks of."""
    same = None if kept["same"] is None else match_from(kept["same"])
    return draw_frontier(frontier_from(kept["frontier"]), few=True, match=same, key="frontier").svg


if __name__ == "__main__":
    FILE.write_text(json.dumps(measured(), indent=1) + "\n", "utf-8")
