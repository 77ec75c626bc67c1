"""A long page of the docs begins with what is in it."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
LONG = 1500  # words of prose from which a page needs a summary
PAGES = sorted(DOCS.rglob("*.md"))
NAMES = [page.relative_to(DOCS).as_posix() for page in PAGES]


def count_prose(text: str) -> int:
    """The words of a page that one reads as text: no code, tables, headings, addresses or comments."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    lines = [line for line in text.split("\n") if not line.startswith(("|", "#"))]
    return len(re.findall(r"\S*\w\S*", "\n".join(lines)))


def find_summary(text: str) -> str:
    """The paragraph `In short` above the first section; "" where there is none."""
    top = text.partition("\n## ")[0]
    summary = re.search(r"^\*\*In short\.\*\*(.*?)(?:\n\n|\Z)", top, re.DOTALL | re.MULTILINE)
    return summary[1].strip() if summary else ""


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_page_of_more_than_1500_words_has_a_summary_on_top(page: Path):
    text = page.read_text("utf-8")
    if count_prose(text) > LONG:
        summary = find_summary(text)
        assert 40 <= len(summary.split()) <= 120, f"{page.name} begins with no short **In short.** paragraph"


def test_prose_is_what_is_neither_code_nor_table_nor_address():
    page = "# Title\n\nTwo words [and a link](some/where.md).\n\n| a | b |\n\n```\nx = 1\n```\n<!-- end -->\n"
    assert count_prose(page) == 5


def test_a_summary_below_a_heading_is_none_on_top():
    assert find_summary("# A\n\n**In short.** Yes,\nit is.\n\nText.\n") == "Yes,\nit is."
    assert find_summary("# A\n\nText.\n\n## B\n\n**In short.** Late.\n") == ""
