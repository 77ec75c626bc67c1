"""reproduction.md: every table and figure of the paper is there, and its numbers are the code's."""

import re
from pathlib import Path

import pytest

from adacompute.pool import open_pool
from kept import assert_same_text
from studies.paper.labels import compute_labels
from studies.paper.paper_claims import format_setting, load_paper
from studies.paper.paper_pool import PaperPool, score_paper_pool
from studies.paper.price_search import search_prices
from studies.paper.reproduction_page import PARTS

FILE = Path(__file__).resolve().parents[1] / "reproduction.md"


@pytest.fixture(scope="module")
def page() -> str:
    return FILE.read_text("utf-8")


def tables(text: str) -> list[list[list[str]]]:
    """Every Markdown table, row by row, the rule between heading and body left out."""
    found = []
    for block in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in block.strip().split("\n")]
        found.append([rows[0], *rows[2:]])
    return found


def lines(rows: list[list[str]]) -> str:
    return "\n".join(" | ".join(row) for row in rows)


def part(text: str, key: str) -> list[list[list[str]]]:
    """The tables below one heading."""
    title = next(one.title for one in PARTS if one.key == key)
    return tables(text[text.index(f"## {title}") :].split("\n## ")[0])


def test_every_row_of_every_table_has_a_cell_for_every_heading(page: str):
    found = tables(page)
    assert len(found) > 20
    for one in found:
        assert {len(row) for row in one} == {len(one[0])}, one[0]


def test_every_table_and_figure_of_the_paper_is_named(page: str):
    for kind, known in (("Table", load_paper().tables), ("Figure", load_paper().figures)):
        numbers: set[int] = set()
        for first, second in re.findall(rf"{kind}s?\s+(\d+)(?: and (\d+))?", page):
            numbers |= {int(number) for number in (first, second) if number}
        assert {one.number for one in known.values()} <= numbers


def test_every_row_of_the_papers_main_table_stands_in_ours(page: str):
    first = part(page, "main")[0]
    for row in load_paper().rows("tab:main", method="ours"):
        own = next(
            cells for cells in first if cells[0] == format_setting(row) and cells[1] == f"{row['budget']:g}"
        )
        assert own[8] == f"{row['accuracy']:.3f} ± {row['std']:.3f}"
        assert own[9] == f"{row['cost']:.2f}"


def test_every_statement_has_its_line_and_its_verdict(page: str):
    rows = [row for one in tables(page) if one[0][0] == "the paper says" for row in one[1:]]
    assert [row[0] for row in rows] == [
        claim.says for one in PARTS for claim in load_paper().claims.values() if claim.part == one.key
    ]
    for row in rows:
        assert re.search(r"\(line \d+\)$", row[1])
        assert row[4] in {
            "**agrees**",
            "**in part**",
            "**only in-sample**",
            "**only with the same question on both sides**",
            "**doesn't**",
            "**can't be known**",
        }


@pytest.fixture(scope="module")
def math500(recordings: Path) -> PaperPool:
    with open_pool(next(recordings.glob("math500-*.jsonl.gz"))) as pool:
        return score_paper_pool(pool.ballots(), "math500")


@pytest.mark.recordings
def test_the_label_distribution_in_the_page_is_what_the_code_gives(page: str, math500: PaperPool):
    rows = [row for row in part(page, "labels")[0] if row[0] == "**math500**"]
    made = [
        ["**math500**", f"{one.budget:g}", *(f"{share:.3f}" for share in one.shares)]
        for one in compute_labels(math500)
    ]
    assert_same_text(lines(made), lines(rows), "run `make reproduction`")


@pytest.mark.recordings
def test_the_search_in_the_page_is_what_the_code_gives(page: str, math500: PaperPool):
    rows = [row[:5] for row in part(page, "search")[0] if row[0] == "**math500**"]
    made = [
        ["**math500**", f"{one.budget:g}", f"{one.price:.4g}", f"{one.cost:.3f}", f"{one.error:.3f}"]
        for one in search_prices(math500)
    ]
    assert_same_text(lines(made), lines(rows), "run `make reproduction`")
