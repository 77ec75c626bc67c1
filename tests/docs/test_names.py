"""What a page names is there, and what is there is named: sections, benchmarks, public names, JSON keys."""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import adacompute
from adacompute import errors

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = (ROOT / "docs", ROOT / "studies")
PAGES = [*sorted(ROOT.glob("*.md")), *(page for one in FOLDERS for page in sorted(one.rglob("*.md")))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
BENCHMARKS = ROOT / "docs" / "reference" / "benchmarks.md"
CITED = re.compile(r'\((?:[./]*reference/)?benchmarks\.md\),\s+"([^"]+)"')
LINK = re.compile(r"\]\(([^)#\s]*)#([^)\s]+)\)")


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def headings(page: Path) -> list[str]:
    return re.findall(r"^#{1,6} +(.+?) *$", prose(page), re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Headings as GitHub makes anchors of them: small letters, no punctuation, - for each space."""
    found: dict[str, int] = {}  # how often each came before: the second gets -1
    for heading in headings(page):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found[anchor] = found.get(anchor, -1) + 1
    return {f"{name}-{again}" if again else name for name, most in found.items() for again in range(most + 1)}


def cited_benchmarks() -> list[tuple[str, str]]:
    """(page, title) of each benchmark that a page cites; a title may be broken over two lines."""
    return [
        (name, " ".join(title.split()))
        for name, page in zip(NAMES, PAGES, strict=True)
        for title in CITED.findall(page.read_text("utf-8"))
    ]


def test_anchors_are_made_as_on_github(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("# Pool → table\n\n```\n# no heading\n```\n\n## `solve`: a_b, 2!\n\n## One\n\n## One\n")
    assert anchors(page) == {"pool--table", "solve-a_b-2", "one", "one-1"}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_link_to_a_section_leads_to_a_heading(page: Path):
    for target, anchor in LINK.findall(prose(page)):
        if "://" not in target:
            there = anchors(page.parent / target if target else page)
            assert anchor in there, f"{page.name} links to {target}#{anchor}, which is not there"


def test_every_benchmark_that_a_page_cites_is_one():
    source = (ROOT / "benchmarks" / "__main__.py").read_text("utf-8")
    titles = set(re.findall(r'\bBench\(\s*"([^"]+)"', source))
    cited = cited_benchmarks()
    assert cited
    assert [one for one in cited if one[1] not in titles] == []


def test_every_benchmark_that_a_page_cites_has_its_results():
    there = headings(BENCHMARKS)
    assert [one for one in cited_benchmarks() if one[1] not in there] == [], "run `make bench`"


def test_every_public_name_is_on_a_page():
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    named = set(re.findall(r"\bac\.(\w+)", text))
    assert set(adacompute.__all__) - named == set()


def test_every_public_name_that_a_page_uses_is_there():
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    assert {name for name in re.findall(r"\bac\.(\w+)", text) if not hasattr(adacompute, name)} == set()


def test_the_tree_of_errors_is_the_one_in_the_code():
    assert errors.__doc__ is not None
    tree = "\n".join(line for line in errors.__doc__.splitlines() if line.startswith("    "))
    page = (ROOT / "docs" / "reference" / "errors.md").read_text("utf-8")
    assert textwrap.dedent(tree) in page
    classes = [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    ]
    assert [name for name in classes if name not in tree] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("titles", "command"),
    [
        (("JSON of recording", "The numbers of a summary"), ["pool", "facts"]),
        (("JSON of score",), ["score", "facts", "--budgets", "1,2"]),
        (("JSON of solve",), ["solve", "facts", "--budget", "3", "--budgets", "1,2,4"]),
    ],
)
def test_every_key_of_a_commands_json_is_described(titles: tuple[str, ...], command: list[str]):
    program = str(Path(sys.executable).parent / "adacompute")
    done = subprocess.run([program, *command, "--json"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    page = (ROOT / "docs" / "reference" / "cli.md").read_text("utf-8")
    sections = [page.partition(f"\n### {title}\n")[2].partition("\n### ")[0] for title in titles]
    named = set(re.findall(r"`(\w+)`", "".join(sections)))
    parts = [value for value in found.values() if isinstance(value, dict) and "JSON of solve" in titles]
    rows = [
        row for value in found.values() if isinstance(value, list) for row in value if isinstance(row, dict)
    ]
    assert {key for part in (found, *parts, *rows) for key in part} - named == set()
