"""Tables as Markdown, and numbers in sentences."""

from collections.abc import Iterable

from adacompute.report.document import Table, format_cell, join_words


def format_points(values: Iterable[float]) -> str:
    """Differences of shares, in points.

    >>> format_points([0.012, -0.003])
    '+1.2 and -0.3 points'
    """
    return f"{join_words([f'{100 * value:+.1f}' for value in values])} points"


def format_shares(values: Iterable[float]) -> str:
    """Shares, as percent.

    >>> format_shares([0.951, 0.9])
    '95.1% and 90.0%'
    """
    return join_words([f"{value:.1%}" for value in values])


def to_markdown(table: Table) -> list[str]:
    """The lines of a Markdown table."""
    heads = [column.name for column in table.columns]
    rules = ["---" if column.kind in ("text", "flag") else "---:" for column in table.columns]
    lines = [heads, rules]
    for at, row in enumerate(table.rows):
        cells = [format_cell(cell, column) for cell, column in zip(row, table.columns, strict=True)]
        lines.append([f"**{cell}**" for cell in cells] if at in table.bold else cells)
    return [f"| {' | '.join(map(_escape_cell, line))} |" for line in lines]


def _escape_cell(text: str) -> str:
    """A cell's text, escaped so that it ends neither the cell nor the row."""
    return " ".join(text.split()).replace("|", r"\|")
