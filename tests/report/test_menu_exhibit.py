"""The page of a menu says what is so: gains, losses, savings, and whom it asks."""

import pytest

from adacompute.evaluate.menu_evaluation import MenuEvaluation, MenuRow
from adacompute.evaluate.resampling import Interval
from adacompute.pool import Menu, Mode
from adacompute.report.document import format_cell
from adacompute.report.exhibits.menu import (
    ModeFacts,
    build_limits_section,
    build_modes_section,
    build_policies_section,
    build_verdict_section,
)

MENU = Menu(
    modes=(Mode(name="small", cost=0.0001), Mode(name="large", cost=0.001)), unit="money", currency="USD"
)
MODES = (
    ModeFacts(name="small", cost=0.0001, samples=(16, 16), votes=((1, 0.0001, 0.4), (2, 0.0002, 0.41))),
    ModeFacts(name="large", cost=0.001, samples=(16, 16), votes=((1, 0.001, 0.9),)),
)
BUDGETS = (0.0003, 0.0006)


def make_rows(policy: str, accuracy: float, gain: float | None, draws: dict[str, float]) -> list[MenuRow]:
    return [
        MenuRow(
            policy=policy,
            budget=budget,
            cost=budget,
            accuracy=Interval(mean=accuracy, low=accuracy - 0.05, high=accuracy + 0.05),
            gain=None if gain is None else Interval(mean=gain, low=gain - 0.01, high=gain + 0.01),
            draws=draws,
        )
        for budget in BUDGETS
    ]


def make_evaluation(*, over_single: float, over_cascade: float, large: float = 0.3) -> MenuEvaluation:
    rows = make_rows("menu", 0.7, None, {"small": 2.0, "large": large})
    rows += make_rows("best fixed mix", 0.7 - over_single, over_single, {})
    rows += make_rows("sequential cascade", 0.7 - over_cascade, over_cascade, {})
    return MenuEvaluation(
        menu=MENU,
        problems=100,
        folds=5,
        families=False,
        basis="accuracy",
        budgets=BUDGETS,
        rows=tuple(rows),
        oracle=(),
        worth=over_single > 0,
        verdict="A verdict.",
        gain=None,
        cascade_gain=None,
        savings={0.0003: 0.0004, 0.0006: None},
        protocol="by hand",
    )


@pytest.mark.parametrize(
    ("over_single", "over_cascade", "words"),
    [
        (0.05, 0.03, "clearly ahead of the better of two cascades, tuned as it was, at 2 of 2 costs"),
        (0.05, 0.0, "No clear difference from a cascade"),
        (0.05, -0.03, "A cascade, tuned as it was, is clearly better at 2 of 2 costs"),
        (0.0, 0.0, "No clear gain over single modes at 0.3: +0.0 (-1.0 to +1.0)"),
        (-0.05, 0.0, "do without a menu"),
    ],
)
def test_the_limits_say_who_is_ahead(over_single: float, over_cascade: float, words: str):
    evaluation = make_evaluation(over_single=over_single, over_cascade=over_cascade)
    assert words in " ".join(build_limits_section(evaluation, MODES).words)


def test_what_is_saved_is_counted_against_single_modes_and_may_have_no_bound():
    (table,) = build_verdict_section(make_evaluation(over_single=0.05, over_cascade=0.0), MODES).tables
    shown = [
        [format_cell(cell, column) for cell, column in zip(row, table.columns, strict=True)]
        for row in table.rows
    ]
    assert [row[0] for row in shown] == ["0.300", "0.600"]
    assert [row[-2:] for row in shown] == [["0.400", "25%"], ["never as good", "–"]]
    assert shown[0][4] == "+5.0 (+4.0 to +6.0)"


def test_nothing_is_saved_for_sure_where_the_gain_is_not_clear():
    (table,) = build_verdict_section(make_evaluation(over_single=0.0, over_cascade=0.0), MODES).tables
    assert [row[-2:] for row in table.rows] == [("not clear", "not clear")] * 2


def test_a_mode_that_gets_nothing_is_named():
    words = build_modes_section(make_evaluation(over_single=0.0, over_cascade=0.0, large=0.0), MODES).words
    assert "It has no use for large here" in words[-1]
    words = build_modes_section(make_evaluation(over_single=0.0, over_cascade=0.0), MODES).words
    assert "2.00 of small and 0.30 of large" in words[0]
    assert len(words) == 1


def test_policies_are_listed_with_those_that_are_better():
    words = " ".join(build_policies_section(make_evaluation(over_single=0.05, over_cascade=-0.05)).words)
    assert "Clearly ahead, at one cost or more, of best fixed mix" in words
    assert "Clearly behind, at one cost or more: sequential cascade did better there" in words
