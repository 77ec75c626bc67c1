"""Budgets that are given as a quality: what they say, and the cost that measurements give them."""

import numpy as np
import pytest

from adacompute.errors import BudgetInvalid
from adacompute.policies.quality import Quality, QualityCurve, choose_curve
from adacompute.records import names_quality

COSTS = (1.0, 2.0, 3.0, 4.0, 5.0)


def curve(
    gains: tuple[float, ...], lows: tuple[float, ...], *, samples: int = 8, mode: str | None = None
) -> QualityCurve:
    return QualityCurve(
        samples=samples, mode=mode, rival_cost=8.0, accuracy=0.8, costs=COSTS, gains=gains, lows=lows
    )


@pytest.mark.parametrize(
    ("text", "quality"),
    [
        ("as good as 8", Quality(8)),
        ("As good as 8 samples", Quality(8)),
        ("as good as 1 sample", Quality(1)),
        ("as good as large", Quality(1, "large")),
        ("as good as large x 4", Quality(4, "large")),
        ("as good as large × 4", Quality(4, "large")),
        ("as good as box 4", Quality(1, "box 4")),
        ("as good as gpt-4o", Quality(1, "gpt-4o")),
        ("as good as m x 2 x 4", Quality(4, "m x 2")),
        ("within 1 point of 16", Quality(16, None, 0.01)),
        ("within 0.5 points of large x 4", Quality(4, "large", 0.005)),
    ],
)
def test_what_a_quality_says(text: str, quality: Quality):
    assert names_quality(text)
    assert Quality.parse(text) == quality
    assert Quality.parse(str(quality)) == quality


@pytest.mark.parametrize(
    "text",
    [
        "as good as",
        "as good as 0",
        "within a point of 8",
        "within 1 of 8",
        "good as 8",
        "as good as large x 0",
    ],
)
def test_what_names_no_quality_is_refused_with_an_example(text: str):
    with pytest.raises(BudgetInvalid, match="as good as 8"):
        Quality.parse(text)


@pytest.mark.parametrize("value", [3, 2.5, "3", "2 USD per 1000", "500 tokens", ""])
def test_amounts_are_no_qualities(value: object):
    assert not names_quality(value)


def lowest_good(gains: np.ndarray, lows: np.ndarray, margin: float) -> float | None:
    """By the definition: the lowest cost from which on both conditions hold."""
    for place, cost in enumerate(COSTS):
        if (gains[place:] >= 0).all() and (lows[place:] >= -margin).all():
            return cost
    return None


def test_the_cost_is_the_lowest_from_which_on_the_quality_holds():
    rng = np.random.default_rng(7)
    reached = set()
    for _ in range(300):
        gains = np.sort(rng.normal(0.005, 0.01, 5)) + rng.normal(0, 0.002, 5)
        lows = gains - rng.uniform(0.002, 0.02, 5)
        measured = curve(tuple(gains.tolist()), tuple(lows.tolist()))
        expected = lowest_good(gains, lows, 0.01)
        reached.add(expected)
        if expected is None:
            with pytest.raises(BudgetInvalid, match="as good as 8"):
                measured.find_cost(Quality(8), problems=300)
        else:
            assert measured.find_cost(Quality(8), problems=300).cost == expected
    assert reached == {None, *COSTS}


def test_within_points_asks_only_for_the_lower_end():
    measured = curve((-0.02, -0.004, -0.002, 0.0, 0.0), (-0.03, -0.009, -0.008, -0.006, -0.006))
    assert measured.find_cost(Quality(8, within=0.01), problems=300).cost == 2.0
    assert measured.find_cost(Quality(8), problems=300).cost == 4.0
    with pytest.raises(BudgetInvalid, match=r"within 0\.5 points"):
        measured.find_cost(Quality(8, within=0.005), problems=300)


def test_a_margin_decides_how_sure_it_must_be():
    measured = curve((0.0,) * 5, (-0.03, -0.025, -0.02, -0.015, -0.012))
    assert measured.find_cost(Quality(8), problems=100, margin=0.02).cost == 3.0
    with pytest.raises(BudgetInvalid, match=r"44 more problems may show it, or give --margin 1\.2"):
        measured.find_cost(Quality(8), problems=100)


def test_what_is_worse_at_every_cost_is_not_reached_by_more_problems():
    with pytest.raises(BudgetInvalid, match="ask for less") as refused:
        curve((-0.05,) * 5, (-0.06,) * 5).find_cost(Quality(8), problems=100)
    assert "more problems" not in str(refused.value)


@pytest.mark.parametrize(
    ("quality", "remedy"),
    [
        (Quality(12), "give one of 4, 8"),
        (Quality(8, "large"), "give one of 4, 8"),
    ],
)
def test_a_rival_that_was_not_measured_is_refused_with_those_that_were(quality: Quality, remedy: str):
    both = [curve((0.0,) * 5, (0.0,) * 5, samples=samples) for samples in (4, 8)]
    assert choose_curve(both, Quality(8)) is both[1]
    with pytest.raises(BudgetInvalid, match=remedy):
        choose_curve(both, quality)


def test_without_measurements_a_quality_is_refused():
    with pytest.raises(BudgetInvalid, match="30 problems"):
        choose_curve([], Quality(8))


def test_of_several_modes_one_must_be_named():
    with pytest.raises(BudgetInvalid, match="give one of large x 8"):
        choose_curve([curve((0.0,) * 5, (0.0,) * 5, mode="large")], Quality(8))


def test_what_is_saved_is_a_share_of_the_rivals_cost():
    found = curve((0.0,) * 5, (0.0,) * 5).find_cost(Quality(8), problems=30)
    assert (found.cost, found.saved) == (1.0, 0.875)
    assert str(found).startswith("as good as 8: 1 on average for 8, 88% less; +0.0 points")
