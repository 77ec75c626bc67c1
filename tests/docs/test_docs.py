"""Docs are executed: made parts, Python examples and links; drift fails."""

import contextlib
import doctest
import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import import_script
from kept import Examples, assert_same_text
from recorded_replies import ADDRESS, serve_recording

ROOT = Path(__file__).resolve().parent.parent.parent

docs = import_script("docs")

PAGES = docs.pages()
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
NIGHTLY = {"docs/collect.md", "docs/menus.md", "docs/policies.md"}  # as long as all others together
RUN = [
    pytest.param(page, id=name, marks=[pytest.mark.nightly] if name in NIGHTLY else [])
    for page, name in zip(PAGES, NAMES, strict=True)
]
MADE = [page for page in PAGES if any(True for _ in docs.parts(page.read_text("utf-8")))]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=str(page.relative_to(ROOT)),
            marks=[pytest.mark.demo] if "make demo" in docs.parts(page.read_text("utf-8")) else [],
        )
        for page in MADE
    ],
)
def test_the_made_parts_of_a_page_are_what_the_commands_print(
    page: Path, warm, request: pytest.FixtureRequest
):
    def run(words: list[str], folder: Path, environ: dict[str, str]):
        if words[1:] == ["demo"]:  # once for all tests that look at it
            return subprocess.CompletedProcess(words, 0, request.getfixturevalue("demo").said, "")
        return warm().run(*words[1:], folder=folder, environ=environ)

    text = page.read_text("utf-8")
    renewed = docs.renew_page(text, run=run)
    for ours, theirs in zip(docs.PART.finditer(renewed), docs.PART.finditer(text), strict=True):
        if theirs["command"].endswith("--help"):  # nothing there is measured
            assert ours[0] == theirs[0], "run `make docs`"
        assert_same_text(ours[0], theirs[0], "run `make docs`")


def test_a_part_may_show_some_paragraphs_of_an_output_only():
    def run(words: list[str], folder: Path, environ: dict[str, str]):
        return subprocess.CompletedProcess(words, 0, "one\n\ntwo\ntwo\n\nthree\n", "")

    page = "a\n<!-- made by: make demo{} -->\nold\n<!-- end -->\nb\n"
    shown = docs.renew_page(page.format(", paragraphs 1 to 2"), run=run)
    assert "```\n$ make demo\none\n\ntwo\ntwo\n…\n```\n<!-- end -->" in shown
    assert "$ make demo\n…\ntwo\ntwo\n…\n" in docs.renew_page(page.format(", paragraphs 2 to 2"), run=run)
    assert "one\n\ntwo\ntwo\n\nthree\n```" in docs.renew_page(page.format(""), run=run)
    assert docs.renew_page(shown, run=run) == shown


def test_the_command_reference_and_pools_have_made_parts():
    assert {"docs/pools.md", "docs/reference/cli.md"} <= {str(page.relative_to(ROOT)) for page in MADE}


def test_every_command_has_its_help_in_the_command_reference():
    from adacompute.cli.commands import COMMANDS

    shown = set(docs.parts((ROOT / "docs" / "reference" / "cli.md").read_text("utf-8")))
    assert {f"adacompute {name} --help" for name in COMMANDS} <= shown


@contextlib.contextmanager
def serve_model(text: str) -> Iterator[str]:
    """The text of a page with an endpoint that is there in the place of `adacompute local`."""
    if ADDRESS not in text:
        yield text
        return
    with serve_recording() as url:
        yield text.replace(ADDRESS, url)


@pytest.mark.parametrize("page", RUN)
def test_the_python_examples_of_a_page_give_what_they_show(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with serve_model(page.read_text("utf-8")) as text:
        run_examples(text, page)


PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


# Skips what the package imports and no example shows: that takes mypy three times as long.
TYPES = """
[mypy]
strict = true
[mypy-openai.*,ray.*,huggingface_hub.*,redis.*,opentelemetry.*,aiohttp.*,rich.*,PIL.*,pydantic.*,fastapi.*]
follow_imports = skip
"""


@pytest.mark.nightly  # `make check` has the types of the package itself
@pytest.mark.timeout(900)
def test_the_python_examples_of_all_pages_are_well_typed_for_their_users(tmp_path: Path):
    for page, name in zip(PAGES, NAMES, strict=True):
        blocks = [] if name.startswith("studies") else PYTHON.findall(page.read_text("utf-8"))
        code = [doctest.script_from_examples(block) if ">>>" in block else block for block in blocks]
        (tmp_path / f"{re.sub('[^a-z]', '_', name.lower())}.py").write_text("\n".join(code), "utf-8")
    cache = f"--cache-dir={ROOT / '.mypy_cache' / 'examples'}"
    (tmp_path / "mypy.ini").write_text(TYPES, "utf-8")
    words = [sys.executable, "-m", "mypy", "--config-file=mypy.ini", cache, "."]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=840, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def run_examples(text: str, page: Path) -> None:
    blocks = PYTHON.findall(text)
    scope: dict[str, object] = {}
    for block in blocks:
        if ">>>" not in block:
            exec(compile(block, str(page), "exec"), scope)
            continue
        test = doctest.DocTestParser().get_doctest(block, scope, page.name, str(page), 0)
        flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
        runner = doctest.DocTestRunner(checker=Examples(), optionflags=flags)
        report: list[str] = []
        runner.run(test, out=report.append, clear_globs=False)
        scope.update(test.globs)
        assert not runner.failures, "".join(report)


@pytest.mark.parametrize("page", [ROOT / "docs" / "ask.md"], ids=["docs/ask.md"])
def test_a_question_on_a_page_is_answered_as_it_shows(page: Path, adacompute):
    blocks = re.findall(
        r"^```\n\$ (adacompute ask .*?)\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    assert blocks
    for command, shown in blocks:
        with serve_model(command) as line:
            assert adacompute(*shlex.split(line)[1:]).stdout == shown


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_link_of_a_page_leads_to_a_file(page: Path):
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_make_target_that_a_page_names_exists(page: Path):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z]+)`", page.read_text("utf-8")))
    assert named <= targets


def test_every_public_docstring_example_gives_what_it_shows():
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner(checker=Examples())
    for file in sorted((ROOT / "src" / "adacompute").rglob("*.py")):
        name = ".".join(file.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        if ">>>" not in file.read_text("utf-8"):
            continue
        module = importlib.import_module(name)
        for test in finder.find(module, name):
            runner.run(test)
    assert runner.failures == 0
    assert runner.tries > 10, "the examples in docstrings are no longer found"
