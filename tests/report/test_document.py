"""Tables as people read them: no cell breaks its row, no zero has a sign, no heading stands twice."""

import pytest

from adacompute.report.document import Column, Kind, Table, format_cell
from studies.paper.wording import to_markdown


def table(*names: str, rows: tuple[tuple[str, ...], ...] = ()) -> Table:
    columns = tuple(Column(name=name) for name in names)
    return Table(key="one", title="one", protocol="none", columns=columns, rows=rows)


def test_no_text_ends_its_cell_or_its_row():
    head, _, row = to_markdown(table("a|b", "c", rows=(("x | y", "two\nlines\r\nor more"),)))
    assert head == r"| a\|b | c |"
    assert row == r"| x \| y | two lines or more |"


def test_two_columns_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two columns of one name in level, level"):
        table("level", "level")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("share", "0.0%"),
        ("percent", "0%"),
        ("points", "+0.0"),
        ("count", "0"),
        ("fraction", "0.000"),
        ("number", "0.00"),
    ],
)
def test_what_rounds_to_nothing_has_no_minus(kind: Kind, text: str):
    assert format_cell(-0.0004, Column(name="x", kind=kind)) == text
    assert format_cell(-0.0, Column(name="x", kind=kind)) == text
