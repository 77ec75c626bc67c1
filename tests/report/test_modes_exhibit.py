"""The page of several modes says what is so: gains, losses, savings, and whom it asks."""

import math

import pytest

from adacompute.evaluate.comparison import Evaluation, Match, Verdict, VerdictRow
from adacompute.pool import Mode
from adacompute.pool.modes import Menu
from adacompute.replay.matching import Interval
from adacompute.report.document import format_cell
from adacompute.report.exhibits.frontier import build_policy_table, trace_modes
from adacompute.report.exhibits.modes import build_limits, describe_shares
from adacompute.report.exhibits.verdict import build_budgets_table

MENU = Menu(
    modes=(Mode(name="small", cost=0.0001), Mode(name="large", cost=0.001)), unit="money", currency="USD"
)
BUDGETS = (0.0003, 0.0006)


def make_interval(mean: float) -> Interval:
    return Interval(mean=mean, low=mean - 0.01, high=mean + 0.01)


def make_matches(policy: str, accuracy: float, lead: float | None, draws: dict[str, float]) -> list[Match]:
    return [
        Match(
            policy=policy,
            budget=budget,
            cost=budget,
            accuracy=accuracy,
            low=accuracy - 0.05,
            high=accuracy + 0.05,
            gain=None,
            lead=None if lead is None else make_interval(lead),
            recovered=(None, None),
            worth=None,
            draws=draws,
        )
        for budget in BUDGETS
    ]


def make_evaluation(*, over_single: float, over_cascade: float, large: float = 0.3) -> Evaluation:
    matched = make_matches("menu", 0.7, None, {"small": 2.0, "large": large})
    matched += make_matches("best fixed mix", 0.7 - over_single, over_single, {})
    matched += make_matches("sequential cascade", 0.7 - over_cascade, over_cascade, {})
    rows = [
        VerdictRow(
            budget=budget,
            cost=budget,
            accuracy=0.7,
            uniform=0.7 - over_single,
            gain=make_interval(over_single),
            joint=Interval(mean=over_single, low=None, high=None),
            worth=Interval(mean=needed, low=None, high=None),
        )
        for budget, needed in zip(BUDGETS, (0.0004, math.inf), strict=True)
    ]
    return Evaluation(
        problems=100,
        folds=5,
        protocol="held-out",
        votes="plain",
        basis="accuracy",
        orders=40,
        longest=16,
        dropped=0,
        left_out=(),
        rows=(),
        matched=tuple(matched),
        oracle=(),
        imitation=(),
        budgets=BUDGETS,
        verdict=Verdict(
            decided="pays" if over_single > 0 else "not decided yet",
            sentence="A sentence.",
            support="",
            policy="menu",
            budget=None,
            basis="accuracy",
            problems=100,
            problems_needed=None,
            protocol="by hand",
            rows=tuple(rows),
        ),
        unit="money",
        currency="USD",
        mode_set=MENU,
    )


@pytest.mark.parametrize(
    ("over_single", "over_cascade", "words"),
    [
        (0.05, 0.03, "clearly ahead of the better of two cascades, tuned as it was, at 2 of 2 costs"),
        (0.05, 0.0, "No clear difference from a cascade"),
        (0.05, -0.03, "A cascade, tuned as it was, is clearly better at 2 of 2 costs"),
        (0.0, 0.0, "No clear gain over single modes at 0.3: +0.0 (-1.0 to +1.0)"),
        (-0.05, 0.0, "stay with one mode"),
    ],
)
def test_the_limits_say_who_is_ahead(over_single: float, over_cascade: float, words: str):
    evaluation = make_evaluation(over_single=over_single, over_cascade=over_cascade)
    assert words in " ".join(build_limits(evaluation).words)


def test_what_is_saved_is_counted_against_single_modes_and_may_have_no_bound():
    table = build_budgets_table(make_evaluation(over_single=0.05, over_cascade=0.0))
    shown = [
        [format_cell(cell, column) for cell, column in zip(row, table.columns, strict=True)]
        for row in table.rows
    ]
    assert [row[0] for row in shown] == ["0.300", "0.600"]
    assert [row[4:6] for row in shown] == [["0.400", "25%"], ["more than there are", "–"]]
    assert shown[0][3] == "+5.0 (+4.0 to +6.0)"


def test_nothing_is_saved_for_sure_where_the_gain_is_not_clear():
    table = build_budgets_table(make_evaluation(over_single=0.0, over_cascade=0.0))
    assert [row[4:6] for row in table.rows] == [(None, None)] * 2


def test_a_mode_that_gets_nothing_is_named():
    words = describe_shares(make_evaluation(over_single=0.0, over_cascade=0.0, large=0.0))
    assert "It has no use for large here" in words[-1]
    words = describe_shares(make_evaluation(over_single=0.0, over_cascade=0.0))
    assert "2.00 of small and 0.30 of large" in words[0]
    assert len(words) == 1


def test_every_policy_is_listed_with_what_the_menu_gains_over_it():
    evaluation = make_evaluation(over_single=0.05, over_cascade=-0.05)
    table = build_policy_table(evaluation, trace_modes(evaluation))
    assert [row[0] for row in table.rows] == ["sequential cascade", "menu (ours)", "best fixed mix"]
    assert [row[2] for row in table.rows] == [make_interval(-0.05), None, make_interval(0.05)]
