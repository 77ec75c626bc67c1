"""The small picture of two frontiers: what it shows is where the numbers are."""

import pytest

from adacompute import AccuracyTable, frontier
from adacompute.cli.solve import draw_curve
from adacompute.evaluate import uniform_frontier

TABLE = AccuracyTable.of([[0.2, 0.9, 0.9], [0.8, 0.8, 0.9], [0.1, 0.1, 0.7]], costs=[1, 4, 16])
PICTURE = 12  # lines
AXIS = 8  # its column


def picture(
    table: AccuracyTable, *, budget: float | None = None, fine: bool = False, columns: int = 80
) -> list[str]:
    ticks = sorted(set(table.cost_matrix.mean(axis=0).tolist()))
    best, alike = frontier(table), uniform_frontier(table)
    return draw_curve(best, alike, ticks=ticks, budget=budget, fine=fine, columns=columns)


def marks(lines: list[str], mark: str) -> dict[int, int]:
    """The highest row of a mark, by column."""
    found: dict[int, int] = {}
    for row, line in enumerate(lines[1 : 1 + PICTURE]):
        for column, character in enumerate(line[AXIS + 1 :]):
            if character == mark:
                found.setdefault(column, row)
    return found


@pytest.mark.parametrize("fine", [True, False])
@pytest.mark.parametrize("budget", [None, 1.0, 2.0, 15.9, 16.0])
def test_it_fits_eighty_columns_and_about_sixteen_lines(fine: bool, budget: float | None):
    lines = picture(TABLE, budget=budget, fine=fine)
    assert len(lines) == PICTURE + 5
    assert max(map(len, lines)) <= 80
    assert all(line == line.rstrip() for line in lines)


def test_plain_is_ascii_and_fine_is_not():
    assert "\n".join(picture(TABLE, budget=2)).isascii()
    assert not "\n".join(picture(TABLE, budget=2, fine=True)).isascii()


def test_the_frontier_rises_and_is_never_below_all_alike():
    lines = picture(TABLE)
    best, alike = marks(lines, "*"), marks(lines, ".")
    assert len(best) == 60  # one mark a column
    rows = [best[column] for column in range(60)]
    assert rows == sorted(rows, reverse=True)
    assert all(best[column] <= row for column, row in alike.items())


def test_a_label_of_accuracy_stands_at_its_height():
    lines = picture(TABLE)
    labelled = {
        float(line[: AXIS - 1].strip().rstrip("%")): row
        for row, line in enumerate(lines[1:13])
        if "%" in line
    }
    curve = frontier(TABLE)
    best = marks(lines, "*")
    low, high = min(labelled), max(labelled)
    for column in range(60):
        shown = low + (labelled[low] - best[column]) / (labelled[low] - labelled[high]) * (high - low)
        assert shown == pytest.approx(100 * curve.at(16 ** (column / 59)), abs=7)  # a line is about 4 points


def test_the_budget_is_marked_where_it_lies_on_a_doubling_scale():
    lines = picture(TABLE, budget=4)
    at = lines[PICTURE + 1].index("^")
    assert at - AXIS - 1 in (29, 30)  # 4 is half of the way from 1 to 16
    assert "^ the budget, 4" in lines[-1]
    assert {line[at : at + 1] for line in lines[1 : PICTURE + 1]} <= {":", "*", "."}


def test_a_budget_outside_of_the_picture_is_not_marked():
    assert not any("^" in line for line in picture(TABLE, budget=99))


def test_costs_and_their_unit_are_labelled():
    table = AccuracyTable.of([[0.2, 0.9, 0.95]], costs=[300, 1200, 4800], unit="tokens")
    *_, names, title, legend = picture(table)
    assert names.split() == ["300", "1,200", "4,800"]
    assert "tokens a problem on average, log scale" in title
    assert legend.split("   ")[-2:] == ["*** oracle, upper end", "... uniform"]


def test_labels_that_would_touch_are_left_out():
    table = AccuracyTable.of([[0.2, 0.3, 0.4, 0.5]], costs=[1000, 1001, 1002, 9000], unit="tokens")
    assert picture(table)[-3].split() == ["1,000", "9,000"]


@pytest.mark.parametrize("fine", [True, False])
@pytest.mark.parametrize(
    "table",
    [
        AccuracyTable.of([[0.5, 0.5]], costs=[1, 2]),
        AccuracyTable.of([[1.0, 1.0]], costs=[1, 2]),
        AccuracyTable.of([[0.0, 1.0]], costs=[0, 1]),
        AccuracyTable.of([[0.9, 0.1]], costs=[1, 1e6]),
        AccuracyTable.of([[0.5, 0.5004]], costs=[1e-7, 2e-7], unit="dollars"),
    ],
)
def test_flat_free_and_tiny_tables_are_drawn(table: AccuracyTable, fine: bool):
    lines = picture(table, budget=float(table.costs[0]), fine=fine)
    assert max(map(len, lines)) <= 80
    assert len(lines) == PICTURE + 5
    drawn = {
        c for line in lines[1 : 1 + PICTURE] for c, mark in enumerate(line[AXIS + 1 :]) if is_drawn(mark)
    }
    assert drawn == set(range(60))  # the oracle has a mark in every column


def is_drawn(mark: str) -> bool:
    return mark == "*" or 0x2800 < ord(mark) <= 0x28FF


@pytest.mark.parametrize("fine", [True, False])
@pytest.mark.parametrize("columns", [55, 60, 70])
def test_a_narrow_picture_keeps_to_its_columns_and_says_as_much(columns: int, fine: bool):
    lines = picture(TABLE, budget=2, fine=fine, columns=columns)
    assert max(map(len, lines)) <= columns
    said = " ".join(lines[PICTURE + 1 :])
    assert all(part in said for part in ("oracle, upper end", "uniform", "the budget, 2", "16"))


def test_tiny_money_is_labelled_by_the_thousand_and_without_exponents():
    table = AccuracyTable.of([[0.2, 0.9]], costs=[0.00002, 0.00004], unit="dollars")
    *_, names, title, _legend = picture(table)
    assert names.split() == ["0.02", "0.04"]
    assert "dollars per 1,000 problems on average" in title


def test_a_single_mode_has_no_picture():
    assert picture(AccuracyTable.of([[0.5]], costs=[1])) == []
