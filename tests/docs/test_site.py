"""The site that `make site` builds: complete, searchable from a folder and a server, fetching nothing."""

import asyncio
import functools
import html
import http.server
import importlib
import json
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from browser import CHROMIUM, chromium, tab

import adacompute

ROOT = Path(__file__).resolve().parent.parent.parent
FETCHED = re.compile(r"""<(?:link|script|img|iframe|source|video|audio|object|embed)\b[^>]*>""")
SEARCH = """(async () => {
  const field = document.querySelector("[data-md-component=search-query]");
  field.focus();
  field.value = "PHRASE";
  field.dispatchEvent(new Event("keyup", {bubbles: true}));
  field.dispatchEvent(new Event("input", {bubbles: true}));
  return [...document.querySelectorAll(".md-search-result__link")].map(link => link.href).join(" ");
})()"""


@pytest.fixture(scope="session")
def website() -> Iterator[ModuleType]:
    path = sys.path[:]
    sys.path.insert(0, str(ROOT / "scripts"))
    yield importlib.import_module("website")
    sys.path[:] = path


@pytest.fixture(scope="session")
def site(website: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built; its environment is made first, where it isn't there."""
    try:
        python = website.prepare_environment()
    except website.EnvironmentMissing as exc:
        pytest.skip(f"needs mkdocs: {exc}")
    out = tmp_path_factory.mktemp("site")
    website.build_site(out, python)  # strict: a link that leads nowhere is an error
    return out


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no chromium is installed; apt-get install chromium, or make sure it is on the PATH")
    with chromium() as address:
        yield address


@pytest.fixture
def server(site: Path) -> Iterator[str]:
    """The site from a server on loopback; its address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=site)
    ) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{served.server_address[1]}"
        served.shutdown()
        thread.join(30)


def address_of(page: Path) -> str:
    """Where a page of the repository is in the site."""
    return page.with_name("index.html" if page.name == "README.md" else f"{page.stem}.html").as_posix()


def visible_text(page: Path) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text("utf-8")))


def test_every_page_of_the_repository_is_in_the_site(website: ModuleType, site: Path):
    pages = website.find_pages()
    assert len(pages) > 30
    assert [page for page in pages if not (site / address_of(page)).is_file()] == []


def test_the_front_page_has_the_readme_and_its_picture(site: Path):
    text = (site / "index.html").read_text("utf-8")
    opening = (ROOT / "README.md").read_text("utf-8").split("**")[1]
    assert " ".join(opening.split()) in " ".join(visible_text(site / "index.html").split())
    picture = re.search(r'<img [^>]*src="([^"]+frontier\.svg)"', text)
    assert picture is not None
    assert (site / picture[1]).is_file()


def test_every_public_name_is_in_the_reference_with_its_signature(site: Path):
    folder = site / "docs" / "reference" / "api"
    pages = {page.stem: page.read_text("utf-8") for page in folder.glob("*.html")}
    missing = []
    for name in set(adacompute.__all__) - {"__version__"}:
        room = adacompute._HOMES[name].split(".")[1]
        if f'id="ac.{name}"' not in pages[room] or f"{room}.html#ac.{name}" not in pages["index"]:
            missing.append(name)
    assert missing == []
    shown = visible_text(folder / "solve.html")
    assert "method: Literal['exact', 'bisection'] = 'exact'" in shown
    assert "most accurate allocation with average cost at most" in shown
    assert ">>> plan = solve(AccuracyTable.of(" in shown


def test_fields_of_a_record_have_their_type_default_and_comment(site: Path):
    shown = re.sub(r"\s+", " ", visible_text(site / "docs" / "reference" / "api" / "records.html"))
    assert "Budget(amount, unit=…, currency=…)" in shown
    assert "finished bool | None None False if a token limit cut the response off" in shown
    settings = re.sub(r"\s+", " ", visible_text(site / "docs" / "reference" / "api" / "config.html"))
    assert "extract str 'auto' how to find answers in responses" in settings


def test_the_search_index_has_phrases_of_guides_and_reference(site: Path):
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    places = {entry["location"]: f"{entry['title']} {entry['text']}" for entry in index["docs"]}
    assert any("kill -9" in text for place, text in places.items() if place.startswith("docs/collect.html"))
    assert "docs/reference/api/answers.html#ac.same_answer" in places


def test_no_page_fetches_anything_from_elsewhere(site: Path):
    pages = list(site.rglob("*.html"))
    fetched = [(page.name, tag) for page in pages for tag in FETCHED.findall(page.read_text("utf-8"))]
    assert len(fetched) > len(pages)
    assert [entry for entry in fetched if re.search(r"""["'= ](?:https?:)?//""", entry[1])] == []
    styles = [
        file for file in site.rglob("*.css") if re.search(r"url\(['\"]?(https?:)?//", file.read_text("utf-8"))
    ]
    assert styles == []


def test_no_page_names_a_place_of_the_machine_that_built_it(site: Path):
    pages = [*site.rglob("*.html"), *site.rglob("*.json"), *site.rglob("sitemap.xml")]
    assert [page for page in pages if str(ROOT) in page.read_text("utf-8")] == []


@pytest.mark.parametrize("start", ["folder", "server"])
async def test_search_in_a_browser_leads_to_the_page_and_asks_nobody_else(
    browser, site: Path, server: str, start: str
):
    base = site.as_uri() if start == "folder" else server

    async with tab(browser) as page:
        await page.open(f"{base}/docs/index.html")
        await page.until("document.readyState === 'complete'")
        links = await page.until(SEARCH.replace("PHRASE", "shared budget Redis gateways"), within=60)
        await page.open(str(links).split()[0])
        await page.until("document.readyState === 'complete' && location.search.startsWith('?h=')")
        links, requests, wrong = str(links), page.requests, page.wrong

    assert "docs/scale.html" in links
    assert [
        request for request in requests if not request.startswith((base, "data:", "blob:", "about:"))
    ] == []
    assert wrong == []


@pytest.mark.parametrize("page", ["index.html", "docs/gateway.html", "docs/reference/api/pool.html"])
def test_a_phone_shows_a_page_without_scrolling_it_sideways(browser, site: Path, page: str):
    async def look() -> int:
        async with tab(browser, width=390, height=780) as opened:
            await opened.open(f"{site.as_uri()}/{page}")
            await opened.until("document.readyState === 'complete'")
            return await opened.js(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )

    assert asyncio.run(look()) == 0


def test_a_list_below_a_line_of_text_is_one(website: ModuleType):
    mended = website.mend_markdown("**a**:\n- one\n  more\n- two\n\n```\nx\n- no list\n```\n")
    assert mended == "**a**:\n\n- one\n  more\n- two\n\n```\nx\n- no list\n```\n"
