"""The reports of the bundled recordings in a real browser: all there, nothing from outside, on any screen."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest
from browser import CHROMIUM, Page, chromium, tab

from adacompute.records import format_money as written
from tiers import leave_to_nightly

pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no chromium is installed; apt-get install chromium, or make sure it is on the PATH",
)
OPEN = "document.querySelectorAll('details').forEach(one => { one.open = true })"
WIDER = """(() => {
  const wide = document.documentElement.clientWidth;
  const out = [...document.querySelectorAll('main *, header *, footer *, nav *')].filter(one =>
    !one.closest('.scroll *, svg') && one.checkVisibility() &&
    one.getBoundingClientRect().right > wide + 0.5);
  return [document.documentElement.scrollWidth - wide, out.map(one => one.outerHTML.slice(0, 120))];
})()"""
FIGURES = """[...document.querySelectorAll('.plot svg')].map(svg => {
  const box = svg.getBoundingClientRect();
  const marks = [...svg.querySelectorAll('.mark')];
  const told = marks.filter(one => one.dataset.text.trim()).length;
  const out = marks.filter(one => {
    const own = one.getBoundingClientRect(), x = own.x + own.width / 2, y = own.y + own.height / 2;
    return x < box.left || x > box.right || y < box.top || y > box.bottom;
  }).length;
  const label = svg.getAttribute('aria-label');
  return [svg.closest('figure').id, box.width, box.height, marks.length, told, out, label];
})"""


@pytest.fixture(scope="module")
def browser() -> Iterator[str]:
    with chromium() as address:
        yield address


def looked(browser: str, folder: Path, look: Callable[[Page], Awaitable[Any]], **view: Any) -> Any:
    """Opens a report from its file, and looks; nothing may go wrong, and nothing else be asked for."""

    async def run() -> Any:
        async with tab(browser, **view) as page:
            await page.open(f"file://{folder}/report.html")
            await page.until("document.readyState === 'complete'")
            found = await look(page)
            assert page.wrong == []
            assert {url for url in page.requests if not url.startswith("data:")} == {
                f"file://{folder}/report.html"
            }
            return found

    return asyncio.run(run())


def test_every_figure_is_there_with_its_marks_and_every_table_with_its_rows(browser: str, report: Path):
    body = json.loads((report / "results.json").read_text())

    async def look(page: Page) -> None:
        await page.js(OPEN)
        figures = await page.js(FIGURES)
        assert {one[0] for one in figures} == {
            f"figure-{key}" for one in body["sections"].values() for key in one["figures"]
        }
        for name, width, height, marks, told, out, label in figures:
            assert width > 300, name
            assert height > 100, name
            assert label, name
            assert told == marks, name
            assert out == 0, f"{name}: {out} marks lie outside of it"
        assert sum(one[3] > 0 for one in figures) >= 0.8 * len(figures)  # a diagram has no values
        ids = await page.js("[...document.querySelectorAll('[id]')].map(one => one.id)")
        assert len(set(ids)) == len(ids)
        dead = await page.js(
            "[...document.querySelectorAll('a[href^=\"#\"]')].map(one => one.hash.slice(1))"
            ".filter(id => !document.getElementById(id))"
        )
        assert dead == []
        files = await page.js(
            "[...document.querySelectorAll('main a:not([href^=\"#\"])')].map(a => a.getAttribute('href'))"
        )
        assert files
        assert all((report / name).is_file() for name in files)
        assert await page.js("document.querySelector('h1').innerText") == body["headline"]

    looked(browser, report, look)


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_screen(browser: str, report: Path, width: int):
    async def look(page: Page) -> None:
        await page.js(OPEN)
        assert await page.js(WIDER) == [0, []]

    looked(browser, report, look, width=width, height=800)


def test_dark_is_dark_in_page_and_figures(browser: str, words: Path):
    colours = (
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color, "
        "getComputedStyle(document.querySelector('.plot svg text')).fill]"
    )

    async def look(page: Page) -> list[str]:
        return list(await page.js(colours))

    light, dark = (looked(browser, words, look, dark=dark) for dark in (False, True))

    def bright(colour: str) -> float:
        return sum(map(float, re.findall(r"[\d.]+", colour)[:3]))

    assert bright(light[0]) > 700 > 300 > bright(dark[0])
    assert bright(light[1]) < 200 < 600 < bright(dark[1])
    assert bright(light[2]) < 400 < bright(dark[2])


def test_a_value_is_told_by_pointer_and_by_keys(browser: str, words: Path):
    async def look(page: Page) -> None:
        assert await page.js("document.getElementById('tip').hidden")
        place = await page.js(
            "(() => { const mark = document.querySelector('.plot .mark'); "
            "mark.scrollIntoView({block: 'center'}); const box = mark.getBoundingClientRect(); "
            "return [box.x + box.width / 2, box.y + box.height / 2] })()"
        )
        await page.until("document.getElementById('tip').hidden")
        await asyncio.sleep(0.1)
        await page.send("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1] + 3)
        told = await page.until(
            "!document.getElementById('tip').hidden && document.getElementById('tip').innerText"
        )
        assert told in await page.js(
            "[...document.querySelectorAll('.plot .mark')].map(one => one.dataset.text)"
        )
        inside = (
            "(() => { const box = document.getElementById('tip').getBoundingClientRect(); "
            "return box.left >= 0 && box.right <= innerWidth && box.top >= 0 })()"
        )
        assert await page.js(inside)
        await page.js("document.querySelector('.plot svg').focus({preventScroll: true})")
        for key in ("Escape", "ArrowRight", "ArrowRight"):
            await page.send("Input.dispatchKeyEvent", type="keyDown", key=key)
        assert await page.js("!document.getElementById('tip').hidden")

    looked(browser, words, look)


def test_a_link_into_a_fold_opens_it_and_paper_has_no_folds(browser: str, words: Path):
    folded = "document.querySelectorAll('details:not([open])').length"

    async def look(page: Page) -> None:
        before = await page.js(folded)
        assert before > 0
        await page.js("location.hash = '%E0%A4%A'")  # no text: it names nothing, and stops nothing
        await page.js("location.hash = document.querySelector('details:not([open]) figure').id")
        await page.until(f"{folded} === {before - 1}")
        await page.js("dispatchEvent(new Event('beforeprint'))")
        assert await page.js(folded) == 0
        await page.js("dispatchEvent(new Event('afterprint'))")
        assert await page.js(folded) == before - 1

    looked(browser, words, look)


def test_money_is_reckoned_again_with_the_readers_prices(browser: str, words: Path):
    money = json.loads((words / "results.json").read_text())["money"]
    prices = {"output_price": 3.0, "input_price": 0.5, "prompt_tokens": 200, "requests": 20_000}

    async def look(page: Page) -> list[list[str]]:
        read = (
            "[...document.querySelectorAll('#table-money tbody tr')]"
            ".map(row => [...row.cells].map(one => one.textContent))"
        )
        before = await page.js(read)
        assert await page.js("Number(document.forms.prices.output_price.value)") == money["output_price"]
        await page.js("document.forms.prices.dispatchEvent(new Event('input'))")
        same = await page.js(read)
        assert same == before  # the page's own sum
        for name, value in prices.items():
            await page.js(f"document.forms.prices.{name}.value = {value}")
        await page.js("document.forms.prices.dispatchEvent(new Event('input'))")
        note = await page.js("document.querySelector('#table-money .note').textContent")
        assert "3 USD per million output tokens" in note
        assert "20,000 requests" in note
        return list(await page.js(read))

    def cost(prompts: float, tokens: float) -> float:
        paid = prompts * prices["prompt_tokens"] * prices["input_price"] + tokens * prices["output_price"]
        return paid / 1e6

    for row, told in zip(money["rows"], looked(browser, words, look), strict=True):
        known = row["same_as"] is not None
        own, same = (
            cost(row["prompts"], row["tokens"]),
            cost(row["same_as_prompts"], row["same_as_tokens"]),
        )
        saved = [written(1000 * (same - own)), written(20_000 * (same - own)), f"{(same - own) / same:.0%}"]
        more = "" if known else "> "
        shown = [written(1000 * same), *(saved if money["pays"] else [])]
        assert told[4:] == [written(1000 * own), *(more + text for text in shown)]


def test_money_comes_second_in_tiles_that_follow_the_readers_prices(browser: str, report: Path):
    money = json.loads((report / "results.json").read_text())["money"]
    row = next(row for row in money["rows"] if row["budget"] == money["budget"])
    cost = 1000 * row["cost"]
    dearer = cost + 9 * row["tokens"] * money["output_price"] / 1000

    async def look(page: Page) -> None:
        tile = "document.querySelector('.tile.cost dd').textContent"
        assert await page.js(tile) == f"{written(cost)} USD"
        assert await page.js("moneyWords()") == money["words"]
        order = await page.js(
            "[...document.querySelectorAll('#part-verdict > *, #part-verdict figure')]"
            ".map(one => one.id || one.tagName)"
        )
        assert order.index("H1") < order.index("money") < order.index("figure-frontier-few")
        await page.js("document.forms.prices.output_price.value = 6")
        await page.js("document.forms.prices.dispatchEvent(new Event('input'))")
        assert await page.js(tile) == f"{written(dearer)} USD"
        assert f"1,000 requests cost {written(dearer)} USD" in await page.js("moneyWords()")

    looked(browser, report, look)


def test_the_main_tables_need_no_scrolling_at_1300_pixels_and_wide_ones_say_so_on_a_phone(
    browser: str, report: Path
):
    hidden = (
        "['table-money', 'table-budgets'].map(id => document.querySelector(`#${id} .hint`))"
        ".map(hint => hint.hidden)"
    )

    async def look(page: Page) -> list[bool]:
        await page.until("document.querySelectorAll('.hint').length")
        await asyncio.sleep(0.2)  # an observer has been told of all sizes
        return list(await page.js(hidden))

    async def swipe(page: Page) -> list[bool]:
        assert await look(page) == [False, False]
        await page.js("document.querySelectorAll('.scroll').forEach(box => { box.scrollLeft = 9999 })")
        return await look(page)

    assert looked(browser, report, look, width=1300, height=900) == [True, True]
    assert looked(browser, report, swipe, width=390, height=844) == [True, True]  # at its end nothing is left


PRESS = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}


async def press(page: Page, selector: str) -> None:
    """The Enter key on a button, as somebody without a pointer does it."""
    await page.js(f"document.querySelector('{selector}').focus()")
    await page.send("Input.dispatchKeyEvent", type="keyDown", text="\r", **PRESS)
    await page.send("Input.dispatchKeyEvent", type="keyUp", **PRESS)


@pytest.mark.parametrize(
    "view",
    leave_to_nightly([{"width": 1300, "height": 900}, {"width": 390, "height": 844, "dark": True}]),
)
def test_sharing_gives_one_picture_and_one_paragraph(
    browser: str, report: Path, tmp_path: Path, view: dict[str, Any]
):
    body = json.loads((report / "results.json").read_text())

    async def look(page: Page) -> str:
        await page.send("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
        await press(page, "#share")
        await page.until("document.getElementById('card').dataset.ready")
        assert await page.js("document.getElementById('shared').contains(document.activeElement)")
        await press(page, "#card-save")
        await press(page, "#shared-copy")
        await page.until("document.getElementById('shared-status').textContent.startsWith('Copied')")
        async with asyncio.timeout(20):
            while not list(tmp_path.glob("*.png")):
                await asyncio.sleep(0.05)
        text = await page.js("document.getElementById('shared-text').value")
        await page.send(
            "Input.dispatchKeyEvent", type="keyDown", key="Escape", code="Escape", windowsVirtualKeyCode=27
        )
        await page.until("!document.getElementById('shared').open")
        return str(text)

    text = looked(browser, report, look, **view)
    assert text.startswith(f"{body['headline']} {body['headline_protocol']}")
    assert (body["money"]["words"] or "") in text  # facts has too few groups for a sum
    assert "\n" not in text
    (picture,) = tmp_path.iterdir()
    assert picture.name == f"adacompute-{body['pool']}.png"
    pixels = plt.imread(picture)  # (height, width, channels), 0 to 1
    assert pixels.shape[:2] == (1260, 2400)
    dark = pixels[..., :3].mean(axis=2) < 0.5
    left, right = dark[:1100, :1150], dark[:1100, 1250:]
    assert 0.005 < left.mean() < 0.3  # the headline and the numbers
    assert 0.001 < right.mean() < 0.3  # the figure
    assert dark[1110:].any()  # the protocol
    assert (pixels[..., :3].min(axis=2) > 0.99).mean() > 0.5  # on white, on any screen


def test_sharing_is_not_printed(browser: str, words: Path):
    async def look(page: Page) -> list[bool]:
        await page.send("Emulation.setEmulatedMedia", media="print")
        names = ["#share", "#shared", ".calc", ".hint"]
        return [await page.js(f"document.querySelector('{name}').checkVisibility()") for name in names]

    assert looked(browser, words, look) == [False] * 4


def test_the_script_writes_money_as_the_report_does(browser: str, words: Path):
    values = [0.0, 1e-9, 0.00012345, 0.266, 0.9996, 1.149, 999.996, 1188.168, 1234567.8, -0.0305, -12.3]

    async def look(page: Page) -> list[str]:
        return list(await page.js(f"{json.dumps(values)}.map(paid)"))

    assert looked(browser, words, look) == [written(value) for value in values]


def test_the_first_figure_is_whole_on_a_phone_and_can_be_read(browser: str, words: Path):
    async def look(page: Page) -> list[float]:
        return list(
            await page.js(
                "(() => { const box = document.querySelector('#figure-frontier-few .scroll'); "
                "const texts = [...box.querySelectorAll('text')].map(one => one.getBoundingClientRect()); "
                "return [box.scrollWidth - box.clientWidth, Math.max(...texts.map(one => one.right)), "
                "Math.min(...texts.map(one => Math.min(one.width, one.height)))] })()"
            )
        )

    over, right, least = looked(browser, words, look, width=390, height=800)
    assert over == 0
    assert right <= 390
    assert least > 4  # "1" on an axis is the narrowest
