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
from adacompute.evaluate.beyond.frontier import Frontier, OracleLine, frontier_of
from adacompute.evaluate.beyond.headline import chosen, headline_of
from adacompute.evaluate.beyond.lines import Line
from adacompute.evaluate.beyond.money import EXAMPLE, money_data, savings
from adacompute.evaluate.beyond.steadied import steadied
from adacompute.evaluate.beyond.tokens import tokens_of
from adacompute.evaluate.bootstrap import Interval
from adacompute.evaluate.bracket import Oracle, brackets
from adacompute.evaluate.entrants import OURS, PLAIN
from adacompute.evaluate.figures.frontier import draw_frontier
from adacompute.evaluate.protocols import BUDGETS, Played, played
from adacompute.evaluate.rows import Evaluation, Match
from adacompute.evaluate.told import Shown, told

RECORDING, OTHER = "words", "facts"
FILE = Path(__file__).resolve().parent.parent / "docs" / "figures" / "frontier.json"
POLICIES = ("fixed", "asc", "esc", "doubling", "stopping")
FOLDS, ORDERS, SEED = 5, 20, 0  # as the report has them


def measured() -> dict[str, Any]:
    """Everything that is shown, as plain data."""
    run, oracle, evaluation = evaluated(RECORDING)
    same, head = chosen(evaluation), headline_of(evaluation)
    return {
        "headline": head.words,
        "below": head.below,
        "frontier": plain(frontier_of(run, oracle=oracle)),
        "same": None if same is None else plain(same),
        "budgets": [row(evaluation, budget) for budget in BUDGETS],
        "other": {OTHER: [row(evaluated(OTHER)[2], budget) for budget in BUDGETS]},
        "money": [
            {"budget": one.budget, "cost": one.cost, "same_cost": one.same_cost}
            for one in savings(money_data(evaluation, tokens_of(run), EXAMPLE), EXAMPLE)
        ],
        "prices": {"input": EXAMPLE.input_price, "output": EXAMPLE.output_price},
    }


@cache
def evaluated(name: str) -> tuple[Played, Oracle, Evaluation]:
    """A recording, evaluated as a report does it, but for the policies that aren't shown."""
    run = steadied(
        played(
            ac.bundled(name).ballots(),
            budgets=BUDGETS,
            policies=POLICIES,
            parts=FOLDS,
            orders=ORDERS,
            seed=SEED,
            workers=min(4, os.cpu_count() or 1),
        )
    )
    oracle = Oracle.of(run.setup)
    ends = brackets(run.setup, oracle=oracle)
    everyone = list(run.everyone)
    shown = Shown(run.setup, everyone, ends, "held-out", run.parts, run.dropped, run.left_out)
    return run, oracle, told(shown)


def row(evaluation: Evaluation, budget: float) -> dict[str, Any]:
    """Uniform and ours at one average budget."""
    uniform, ours = evaluation.match(PLAIN, budget), evaluation.match(OURS, budget)
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


def frontier_from(kept: dict[str, Any]) -> Frontier:
    """The frontier, as it was measured."""
    oracle = kept["oracle"]
    return Frontier(
        **kept
        | {
            "lines": tuple(line_from(one) for one in kept["lines"]),
            "published": line_from(kept["published"]),
            "oracle": OracleLine(**oracle | {key: numbers(oracle[key]) for key in ("cost", "low", "high")}),
            "budgets": tuple(kept["budgets"]),
        }
    )


def line_from(kept: dict[str, Any]) -> Line:
    return Line(policy=kept["policy"], **{key: numbers(kept[key]) for key in kept if key != "policy"})


def match_from(kept: dict[str, Any]) -> Match:
    spans = {key: None if kept[key] is None else Interval(**kept[key]) for key in ("gain", "lead", "worth")}
    return Match(**kept | spans | {"recovered": tuple(kept["recovered"])})


def numbers(values: list[float | None]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([np.nan if value is None else value for value in values])


def drawn(kept: dict[str, Any]) -> str:
    """The calm picture, with the arrow that the headline speaks of."""
    same = None if kept["same"] is None else match_from(kept["same"])
    return draw_frontier(frontier_from(kept["frontier"]), few=True, same=same, key="frontier").svg


if __name__ == "__main__":
    FILE.write_text(json.dumps(measured(), indent=1) + "\n", "utf-8")
