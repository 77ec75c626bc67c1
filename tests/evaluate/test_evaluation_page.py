"""The page of evaluations: a bar is reached by its numbers, never by words."""

import copy
from typing import Any

import pytest

from harness import import_script

made = import_script("evaluation_page")

BUDGETS = [1.5, 2.0, 3.0, 4.0, 6.0]
GOOD = {"mean": 0.02, "low": 0.01, "high": 0.03}
BAD = {"mean": -0.02, "low": -0.03, "high": -0.01}
KEYS = (
    "lead",
    "labels",
    "bare",
    "gain",
    "kept",
    "labels_lead",
    "shipped",
    "shipped_gain",
    "shipped_lead",
    "renewed",
)
PEERS = ["fixed", "asc", "esc"]
BARS = (
    "better of the two sketches",
    "plain sketch",
    "transferred: never significantly below",
    "transferred: ahead of the peers on the mean",
    "shipped prior: ahead of the peers on the mean",
    "shipped prior: never significantly below the peers",
    "below transferred",
    "the one it replaces",
    "points or more on the mean of",
    "points or more above transferred",
    "(plain votes, as in the design)",
    "bracket with weighted votes",
    "without labels",
    "3 waves",
)


def numbers() -> dict[str, Any]:
    """Two recordings on which every bar is reached."""
    at = {
        str(budget): {
            "accuracy": {key: 0.9 for key, _ in made.list_rows({"peers": PEERS})},
            "plain": {key: 0.9 for key, _ in made.list_rows({"peers": PEERS})},
            "difference": dict.fromkeys(KEYS, GOOD),
            "oracle": {"weighted": [0.8, 0.82], "plain": [0.8, 0.82]},
        }
        for budget in BUDGETS
    }
    recordings = [
        {
            "name": name,
            "problems": 9,
            "groups": list(range(9)),
            "votes": ["weighted", "plain"],
            "at": copy.deepcopy(at),
        }
        for name in ("words", "facts")
    ]
    means = {str(budget): dict.fromkeys(KEYS, GOOD) for budget in BUDGETS}
    policies = ("fixed", "shipped")
    signals = [
        {
            "name": name,
            "problems": 9,
            "samples": 16,
            "at": {
                str(budget): {
                    "accuracy": {key: {"on": 0.9, "off": 0.8} for key in policies},
                    "difference": dict.fromkeys(policies, GOOD),
                }
                for budget in BUDGETS
            },
        }
        for name in ("gsm8k", "math")
    ]
    found = {
        "recordings": recordings,
        "means": means,
        "signals": signals,
        "signal_means": {str(budget): dict.fromkeys(policies, GOOD) for budget in BUDGETS},
        "orders": 9,
        "folds": 5,
        "peers": PEERS,
        "budgets": BUDGETS,
    }
    return copy.deepcopy(found)


def short(found: dict[str, Any]) -> list[str]:
    """Which bars are not reached."""
    bars = made.bars(found)
    assert len(bars) == len(BARS)
    return [name for name, bar in zip(BARS, bars, strict=True) if bar.short and name in bar.what]


def test_good_numbers_reach_every_bar():
    assert short(numbers()) == []
    assert "not reached" not in made.page(numbers())


@pytest.mark.parametrize(
    ("place", "value", "bars"),
    [
        (("recordings", 0, "at", "2.0", "accuracy", "transferred"), 0.77, ["better of the two sketches"]),
        (("recordings", 0, "at", "2.0", "plain", "transferred"), 0.73, ["plain sketch"]),
        (
            ("recordings", 1, "at", "6.0", "difference", "lead"),
            BAD,
            ["transferred: never significantly below"],
        ),
        (
            ("means", "3.0", "lead"),
            {"mean": 0.01, "low": -0.001, "high": 0.02},
            ["transferred: ahead of the peers on the mean"],
        ),
        (
            ("means", "4.0", "shipped_lead"),
            {"mean": 0.0134, "low": 0.012, "high": 0.02},
            ["shipped prior: ahead of the peers on the mean"],
        ),
        (
            ("recordings", 1, "at", "1.5", "difference", "shipped_lead"),
            BAD,
            ["shipped prior: never significantly below the peers"],
        ),
        (("recordings", 1, "at", "2.0", "difference", "shipped"), BAD, ["below transferred"]),
        (("recordings", 0, "at", "6.0", "difference", "renewed"), BAD, ["the one it replaces"]),
        (
            ("signal_means", "4.0", "shipped"),
            {"mean": 0.0049, "low": 0, "high": 0.02},
            ["points or more on the mean of"],
        ),
        (
            ("means", "2.0", "labels"),
            {"mean": 0.004, "low": 0, "high": 1},
            ["points or more above transferred"],
        ),
        (
            ("recordings", 1, "at", "3.0", "oracle", "plain"),
            [0.91, 0.93],
            ["(plain votes, as in the design)"],
        ),
        (("recordings", 1, "at", "6.0", "oracle", "weighted"), [0.91, 0.93], ["bracket with weighted votes"]),
        (("recordings", 0, "at", "1.5", "difference", "bare"), BAD, ["without labels"]),
        (("means", "4.0", "kept"), {"mean": 0.015, "low": 0, "high": 1}, ["3 waves"]),
    ],
)
def test_one_number_that_falls_short_is_one_bar_not_reached(place: tuple, value: object, bars: list[str]):
    found = numbers()
    *way, last = place
    part: Any = found
    for step in way:
        part = part[step]
    part[last] = value
    assert short(found) == bars
    assert made.page(found).count("not reached") == 1


def test_below_a_budget_of_three_the_oracle_is_no_bar():
    found = numbers()
    found["recordings"][0]["at"]["2.0"]["oracle"]["plain"] = [0.99, 0.99]
    assert short(found) == []
