"""The page of menus: a bar is reached by its numbers, and what was not measured is not claimed."""

import copy
from typing import Any

import pytest
from menu_modes import make_modes

from adacompute.evaluate.protocols import evaluate_modes
from adacompute.policies.modes.policy import MenuPolicy
from adacompute.pool.modes import Menu
from harness import import_script

made, measured = import_script("menu_evaluation_page"), import_script("menu_evaluation")

GOOD = {"mean": 0.03, "low": 0.01, "high": 0.05}
BAD = {"mean": -0.03, "low": -0.05, "high": -0.01}
UNSURE = {"mean": -0.01, "low": -0.02, "high": 0.01}
BUDGETS = (0.3, 0.5, 0.7, 0.9)
POLICIES = (
    "best fixed mix",
    "joint fixed vote",
    "threshold cascade",
    "sequential cascade",
    "stopping: steps",
)


def make_row(policy: str, budget: float, mean: float, gain: dict[str, float] | None) -> dict[str, Any]:
    return {
        "policy": policy,
        "budget": budget,
        "cost": budget,
        "accuracy": {"mean": mean, "low": mean - 0.02, "high": mean + 0.02},
        "gain": gain,
        "draws": {"direct": 2.0, "steps": 0.5},
        "rounds": [1.5, 3],
    }


def make_menu() -> dict[str, Any]:
    rows = [make_row("menu", budget, 0.9, None) for budget in BUDGETS]
    rows += [make_row(policy, budget, 0.87, GOOD) for policy in POLICIES for budget in BUDGETS]
    return {
        "menu": {"modes": [{"name": "direct", "cost": 0.1}, {"name": "steps", "cost": 1.0}]},
        "problems": 100,
        "groups": 100,
        "budgets": list(BUDGETS),
        "rows": rows,
        "oracle": [],
        "worth": True,
        "verdict": "Worth it: so it is.",
        "gain": GOOD,
        "cascade_gain": GOOD,
        "savings": {"0.3": 0.4, "0.5": None, "0.7": 0.9, "0.9": 1.0},
    }


@pytest.fixture
def numbers() -> dict[str, Any]:
    names = (*made.SKETCHES, *made.SURE, "crux, four modes")
    return {"menus": {name: make_menu() for name in names}, "folds": 5, "orders": 40}


def find_bar(numbers: dict[str, Any], words: str) -> Any:
    (bar,) = [bar for bar in made.bars(numbers) if words in bar.what]
    return bar


def set_gain(numbers: dict[str, Any], menu: str, policy: str, gain: dict[str, float]) -> None:
    for row in numbers["menus"][menu]["rows"]:
        if row["policy"] == policy:
            row["gain"] = gain


def test_every_bar_is_reached_by_good_numbers(numbers: dict[str, Any]):
    bars = made.bars(numbers)
    assert len(bars) == 6
    assert [bar.short for bar in bars] == [()] * 6


@pytest.mark.parametrize(
    ("words", "menu", "policy"),
    [
        ("2 points or more", "crux", "joint fixed vote"),
        ("never significantly below the best threshold", "math", "sequential cascade"),
        ("never significantly below stopping", "gsm8k", "stopping: steps"),
    ],
)
def test_a_bar_is_missed_where_the_interval_is_below(
    numbers: dict[str, Any], words: str, menu: str, policy: str
):
    assert not find_bar(numbers, words).short
    set_gain(numbers, menu, policy, BAD)
    for row in numbers["menus"][menu]["rows"]:
        row["accuracy"]["mean"] += 0.05 * (row["policy"] == policy)  # the best peer is what is compared with
    assert find_bar(numbers, words).short
    assert "**not reached**" in made.page(numbers)


def test_what_is_within_noise_is_not_below(numbers: dict[str, Any]):
    set_gain(numbers, "math", "sequential cascade", UNSURE)
    assert not find_bar(numbers, "never significantly below the best threshold").short


def test_the_sketches_are_met_within_their_slack(numbers: dict[str, Any]):
    row = made.find_row(numbers["menus"]["crux"], "menu", 0.5)
    row["accuracy"]["mean"] = made.SKETCHES["crux"][1] - 0.004
    assert not find_bar(numbers, "sketches").short
    row["accuracy"]["mean"] -= 0.002
    assert find_bar(numbers, "sketches").short == ("crux at 0.5: 0.663 for 0.669",)


def test_four_modes_are_compared_with_the_pair(numbers: dict[str, Any]):
    made.find_row(numbers["menus"]["crux, four modes"], "menu", 0.7)["accuracy"]["mean"] = 0.89
    assert find_bar(numbers, "four modes").short == ("at 0.7",)


def test_what_was_not_measured_is_not_claimed(numbers: dict[str, Any]):
    fewer = copy.deepcopy(numbers)
    del fewer["menus"]["gsm8k"], fewer["menus"]["facts, plain votes"]
    what = " ".join(bar.what for bar in made.bars(fewer))
    assert "stopping" not in what
    assert find_bar(fewer, "sketches").short == ("facts, plain votes is not measured yet",)
    text = made.page(fewer)
    assert "Transferred" not in text
    assert "price ratio" not in text
    assert "Not measured yet" not in text
    fewer["menus"]["math"]["rows"][0]["cost"] *= 0.5
    text = made.page(fewer | {"missing": ["gsm8k", "words"]})
    assert "## Not measured yet\n\ngsm8k; words.\n" in text
    row = fewer["menus"]["math"]["rows"][0]
    assert f"{100 * row['accuracy']['mean']:.1f}*" in text  # it can't spend as much


def test_a_page_shows_every_peer_and_what_is_saved(numbers: dict[str, Any]):
    numbers["menus"]["crux"]["rows"].append(make_row("transferred from facts", 0.5, 0.88, GOOD))
    text = made.page(numbers)
    assert all(f"| {policy} |" in text for policy in POLICIES)
    assert "| the same without a menu costs | 0.40 | more than recorded | 0.90 | 1.00 |" in text
    assert "| crux | transferred from facts | 0.5: 88.0, +3.0 (+1.0 to +5.0) |" in text


def test_a_policy_fitted_elsewhere_is_judged_beside_the_others():
    taught, ballots = make_modes(problems=20, samples=8, seed=3), make_modes(problems=42, samples=6)
    costs = {"small": 0.1, "large": 1.0}
    options = {"budgets": (0.7,), "folds": 2, "orders": 6, "oracle": False}
    runs, _ = evaluate_modes(ballots, Menu.of(ballots, costs=costs), **options)
    policy = MenuPolicy(Menu.of(taught, costs=costs)).fit(taught)
    with_it = measured.add_fitted(runs, "transferred", policy)
    match = with_it.get("transferred").match(0.7, 0)
    control = with_it.get("shuffled draws").match(0.7, 0)
    assert match is not None
    assert control is not None
    assert match.cost == pytest.approx(0.7)  # its price is chosen by cost, though its costs were others
    assert match.accuracy > control.accuracy
