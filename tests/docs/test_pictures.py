"""The pictures of the docs are drawn from the numbers beside them, and these are what is measured."""

import json
import re
from pathlib import Path

import pytest

from harness import import_script
from kept import assert_same_drawing

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "docs" / "figures"
NUMBERS = json.loads((FOLDER / "numbers.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def pictures() -> dict[str, str]:
    return import_script("pictures").draw_files()


def test_the_pictures_of_the_docs_are_drawn_from_their_numbers(pictures: dict[str, str]):
    for name, svg in pictures.items():
        kept = (FOLDER / name).read_text("utf-8")
        assert_same_drawing(svg, kept, f"{name}: run `python scripts/pictures.py`")


def test_the_table_of_the_readme_is_of_the_same_numbers():
    text, drawn = (ROOT / "README.md").read_text("utf-8"), import_script("pictures")
    assert drawn.TABLE.search(text)
    assert drawn.replace_table(text, drawn.read_frontier()) == text, "run `python scripts/pictures.py`"


def test_every_picture_is_on_a_page_and_described_in_words(pictures: dict[str, str]):
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text("utf-8") for page in pages)
    found = re.findall(r"!\[([^\]]*)\]\((?:docs/|\.\./)?figures/([\w-]+\.svg)\)", text)
    shown = {name: alt for alt, name in found}
    assert set(pictures) <= set(shown) == {file.name for file in FOLDER.glob("*.svg")}
    assert all(len(alt) > 20 for alt in shown.values())


def test_the_numbers_of_the_pictures_are_what_is_measured():
    measured = import_script("picture_numbers")
    votes = measured.measure_votes()
    assert votes["budgets"] == NUMBERS["votes"]["budgets"]
    assert votes[
        "accuracy"
    ] == {  # kept with four decimals: a value on their boundary may fall to either side
        name: pytest.approx(kept, abs=1.01e-4) for name, kept in NUMBERS["votes"]["accuracy"].items()
    }
    assert measured.run_requests(NUMBERS["price"]) == NUMBERS["requests"]


def test_the_pages_say_the_numbers_of_the_pictures():
    concepts, policies = (
        (ROOT / "docs" / name).read_text("utf-8") for name in ("concepts.md", "policies.md")
    )
    prices, costs = NUMBERS["dials"]["price"], NUMBERS["dials"]["cost"]
    for price, cost in re.findall(r"of (\d\.\d)\s+points is (\d\.\d)", " ".join(concepts.split())):
        near = min(range(len(prices)), key=lambda at: abs(100 * prices[at] - float(price)))
        assert round(costs[near], 1) == float(cost)
    alone = " ".join(f"{100 * NUMBERS['alone'][name]:.0f}% on `{name}`," for name in ("facts", "words"))
    assert alone.rstrip(",") in " ".join(policies.split())
