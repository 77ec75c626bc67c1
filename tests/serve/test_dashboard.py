"""The dashboard in a real browser: every figure there, nothing from outside, no client's text run."""

import asyncio
import json
import re
import threading
import time
from dataclasses import dataclass
from typing import Any

import pytest
import uvicorn
from browser import CHROMIUM, chromium, tab
from running import Running
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from traffic import PROTOCOL, Clock, hour, told

from adacompute.config import EndpointConfig, ServeConfig
from adacompute.serve.messages.reply import dump_json
from adacompute.serve.watching.observability import Observability, SpendStatus
from adacompute.serve.watching.web_pages import DASHBOARD
from tiers import leave_to_nightly
from upstream import Upstream

in_browser = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no chromium is installed; apt-get install chromium, or make sure it is on the PATH",
)
FULL = "!document.querySelector('#full').hidden"
FIGURES = ("cost", "samples", "price", "agreement")
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@dataclass
class Served:
    """The page, and whatever `seen` has seen."""

    url: str = ""
    seen: Observability | None = None
    status: int = 200
    asked: int = 0


@pytest.fixture(scope="module")
def served():
    held = Served()

    async def page(request: object) -> Response:
        return Response(DASHBOARD.body, headers=dict(DASHBOARD.headers))

    async def data(request: Any) -> Response:
        held.asked += 1
        if held.status != 200 or held.seen is None:
            return Response(status_code=held.status)
        return JSONResponse(held.seen.dashboard_data(request.query_params.get("span", "hour")))

    app = Starlette(routes=[Route("/dashboard", page), Route("/dashboard/data", data)])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    until = time.monotonic() + 30
    while not server.started and time.monotonic() < until:
        time.sleep(0.01)
    held.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    yield held
    server.should_exit = True
    thread.join(30)


@pytest.fixture(scope="module")
def browser():
    with chromium() as address:
        yield address


def shown(browser, served, look, *, seen: Observability, **view):
    """Opens the dashboard on what was seen, and looks."""
    served.seen, served.status = seen, 200

    async def run() -> Any:
        async with tab(browser, **view) as page:
            await page.open(f"{served.url}/dashboard")
            await page.until(
                "document.readyState === 'complete' && document.querySelector('#live.on') !== null"
            )
            return await look(page)

    return asyncio.run(run())


@pytest.fixture(scope="module")
def busy() -> Observability:
    clock = Clock()
    seen = Observability(ServeConfig(), now=clock)
    hour(seen, clock)
    return seen


def texts(selector: str) -> str:
    return f"document.querySelector({selector!r}).innerText"


@in_browser
def test_every_figure_is_there_with_data_and_nothing_goes_wrong_or_outside(browser, served, busy, tmp_path):
    async def look(page):
        await page.until(FULL)
        assert not await page.js("document.querySelector('#card-price').checkVisibility()")  # details
        await page.js("document.querySelector('#details').open = true")
        await page.until("document.querySelector('#card-price svg') !== null")
        for name in FIGURES:
            label = await page.js(f"document.querySelector('#card-{name} svg').getAttribute('aria-label')")
            assert label
        drawn = "document.querySelectorAll('#card-{} svg {}').length"
        assert await page.js(drawn.format("cost", "path.path")) >= 1
        assert (
            await page.js(drawn.format("cost", "line.refline"))
            + await page.js(drawn.format("cost", "path.c1"))
            >= 1
        )
        assert await page.js(drawn.format("cost", "circle")) > 100
        assert await page.js(drawn.format("samples", "rect")) == 8
        assert await page.js(drawn.format("price", "path.path")) == 2  # two budgets
        assert await page.js(drawn.format("agreement", "line.refline")) == 1
        board = busy.dashboard_data()
        cost = await page.js(texts("#tile-cost"))
        total = board["total"]
        means = [total[name] / total["decided"] for name in ("decided_samples", "decided_target")]
        assert "{:.2f}of {:.2f} samples".format(*means) in cost
        assert f"all requests: {total['samples'] / total['counted']:.2f}" in cost
        assert await page.js(drawn.format("cost", "path.c2")) == 1  # beside each other
        savings = await page.js("document.querySelector('#tile-savings').textContent")
        assert f"≈ {board['savings']['share']:.0%} less than uniform" in savings
        assert "8,134" in savings
        assert "with input_price and output_price this is money" in savings
        assert PROTOCOL in savings
        assert "3 in flight" in await page.js(texts("#tile-requests"))
        assert "90%" in await page.js(texts("#tile-agreement"))
        assert "rate-limit" in await page.js(texts("#card-upstream"))
        assert "6,872 of 7,000" in await page.js(texts("#card-spend"))
        assert "Key alice is at 98% of the cap" in await page.js(texts("#banners"))
        assert "3f9c2a1e" in await page.js(texts("#card-dials"))
        assert "temperature" in await page.js(texts("#footer"))
        assert await page.js("document.querySelectorAll('#card-recent tbody tr').length") == 15
        await page.js("document.querySelector('#more').click()")
        assert await page.js("document.querySelectorAll('#card-recent tbody tr').length") == 50
        assert await page.js("document.querySelectorAll('#card-recent .squares i').length") >= 50
        assert await page.js(OVERFLOW) == 0
        await page.picture(tmp_path / "light.png")
        assert page.wrong == []
        assert {url.partition("/dashboard")[0] for url in page.requests if not url.startswith("data:")} == {
            served.url
        }

    shown(browser, served, look, seen=busy)


@in_browser
def test_a_phone_shows_it_without_scrolling_sideways(browser, served, busy, tmp_path):
    async def look(page):
        await page.until(FULL)
        assert await page.js("innerWidth") == 360
        assert await page.js(OVERFLOW) == 0
        wide = """[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll')
                  && e.getBoundingClientRect().right > 361).map(e => e.outerHTML.slice(0, 99))"""
        assert await page.js(wide) == []
        await page.picture(tmp_path / "phone.png")
        assert page.wrong == []

    shown(browser, served, look, seen=busy, width=360, height=780)


@in_browser
def test_dark_is_dark_and_light_is_light_and_both_can_be_read(browser, served, busy, tmp_path):
    contrast = """(() => { const light = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).map(x => x / 255)
        .map(x => x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4);
        return .2126*r + .7152*g + .0722*b };
      const style = (s) => getComputedStyle(document.querySelector(s));
      const back = light(style('.tile').backgroundColor);
      return [back, ...['.big', '.sub', '.legend', '#tile-cost h2', '.time', '.chart text', '.c0', '.c1']
        .map(s => light(s === '.chart text' ? style(s).fill : style(s).color))
        .map(x => (Math.max(x, back) + .05) / (Math.min(x, back) + .05))]; })()"""

    async def look(page):
        await page.until(FULL)
        await page.picture(tmp_path / "shot.png")
        assert page.wrong == []
        return await page.js(contrast)

    dark, *read_dark = shown(browser, served, look, seen=busy, dark=True)
    light, *read_light = shown(browser, served, look, seen=busy)
    assert dark < 0.05 < 0.9 < light
    assert min(read_dark) >= 4.5
    assert min(read_light) >= 4.5


@in_browser
def test_without_requests_it_says_what_to_do(browser, served, tmp_path):
    async def look(page):
        await page.until("!document.querySelector('#empty').hidden")
        assert await page.js(FULL) is False
        said = await page.js(texts("#empty"))
        assert "base_url" in said
        assert f"curl {served.url}/v1/chat/completions" in said
        assert await page.js(OVERFLOW) == 0
        await page.picture(tmp_path / "empty.png")
        served.seen.on_request_start()
        served.seen.on_request_end(told(clock.at))
        await page.until(FULL)  # by itself
        assert page.wrong == []

    clock = Clock()
    shown(browser, served, look, seen=Observability(ServeConfig(), now=clock), width=360, height=780)


@in_browser
def test_what_clients_send_is_never_markup(browser, served):
    evil = "<script>window.ran = 1</script><img src=x onerror='window.ran = 2'>"
    clock = Clock()
    seen = Observability(ServeConfig(show_texts=True), now=clock)
    for policy in (evil, "stopping"):
        seen.on_request_start()
        seen.on_request_end(
            told(
                clock.at,
                prompt=evil,
                answer=evil,
                votes={evil: 2},
                notes=(evil,),
                policy=policy,
                key=evil,
                error=evil,
                status=502,
            )
        )
        seen.on_price(policy, 2.0, 0.1, 2.0)
    seen.on_refusal(400, evil)

    async def look(page):
        await page.until(FULL)
        recent = await page.js(texts("#card-recent"))
        assert recent.count("<script>window.ran = 1</script>") >= 4  # prompts and notes, as they are
        assert await page.js("typeof window.ran") == "undefined"
        assert await page.js("document.images.length") == 0
        assert page.wrong == []

    shown(browser, served, look, seen=seen)


@in_browser
def test_without_leave_no_text_of_a_request_reaches_the_page(browser, served, busy):
    async def look(page):
        await page.until(FULL)
        return await page.js("document.documentElement.outerHTML")

    html = shown(browser, served, look, seen=busy)
    assert "17/4" not in html
    assert "train" not in html
    assert re.search(r"answer 1: \d, answer 2: \d", html)


@in_browser
def test_it_says_plainly_that_the_gateway_cant_be_reached_and_comes_back(browser, served, busy):
    async def look(page):
        await page.until(FULL)
        served.status = 503
        said = await page.until(
            "document.querySelector('#live.off') && document.querySelector('#banners').innerText"
        )
        assert "can't be reached: it answered 503" in said
        served.status = 401
        await page.until("document.querySelector('#banners').innerText.includes(\"operator's key\")")
        served.status = 200
        await page.until("document.querySelector('#live.on') !== null")
        assert "reached" not in await page.js(texts("#banners"))

    shown(browser, served, look, seen=busy)


@in_browser
def test_a_hidden_page_asks_nothing_and_a_day_can_be_chosen(browser, served, busy):
    async def look(page):
        await page.until(FULL)
        await page.js("document.querySelector('#span-day').click()")
        await page.until("performance.getEntriesByType('resource').some(e => e.name.endsWith('span=day'))")
        hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
        hide += "document.dispatchEvent(new Event('visibilitychange'))"
        await page.js(hide % "true")
        await asyncio.sleep(0.3)  # what was under way comes in
        asked = served.asked
        await asyncio.sleep(2.6)
        assert served.asked == asked
        await page.js(hide % "false")
        await page.until("document.querySelector('#live').innerText === 'live'")
        assert served.asked > asked

    shown(browser, served, look, seen=busy)


@in_browser
def test_a_drift_is_shown(browser, served):
    clock = Clock()
    seen = Observability(ServeConfig(), now=clock)
    hour(seen, clock, requests=2500, hard_at_end=0.85)

    async def look(page):
        await page.until(FULL)
        assert "drifting" in await page.js(texts("#tile-agreement"))
        assert "calibration saw 90%" in await page.js(texts("#banners"))

    shown(browser, served, look, seen=seen)


@in_browser
def test_what_is_left_alone_is_shown(browser, served):
    clock = Clock()
    seen = Observability(ServeConfig(), now=clock)
    hour(seen, clock, requests=300)
    seen.list_resting = lambda: ("", "<b>broken</b>")

    async def look(page):
        await page.until(FULL)
        banners = await page.js(texts("#banners"))
        assert "The upstream can't be reached" in banners
        assert "Model <b>broken</b> keeps failing" in banners

    shown(browser, served, look, seen=seen)


@in_browser
def test_it_works_with_the_key_in_its_address(browser, tmp_path):
    key = "an-operator-of-the-gateway"
    (tmp_path / "keys.toml").write_text(f'[me]\nkey = "{key}"\noperator = true\n')
    keys = str(tmp_path / "keys.toml")

    async def look(url: str) -> None:
        async with tab(browser) as page:
            await page.open(url)
            await page.until("document.querySelector('#live.on') !== null")

    with Upstream() as up, Running(up.url, folder=tmp_path, keys_file=keys) as gate:
        asyncio.run(look(f"{gate.base.replace('//', f'//x:{key}@')}/dashboard"))


@in_browser
def test_requests_stand_in_the_order_of_their_times_and_without_a_cap_there_is_no_bar(browser, served):
    clock = Clock()
    seen = Observability(ServeConfig(), now=clock)
    for behind in (0.0, 50.0, 20.0, 70.0):
        seen.on_request_start()
        seen.on_request_end(told(clock.at - behind))
    spending = [SpendStatus(name="", spent=8.0), SpendStatus(name="a", spent=8.0, cap=10.0)]
    seen.read_spending = lambda: spending

    async def look(page):
        await page.until(FULL)
        times = await page.js("[...document.querySelectorAll('#card-recent .time')].map(e => e.textContent)")
        assert times == sorted(times, reverse=True)
        assert len(set(times)) == 4
        assert await page.js("document.querySelectorAll('#card-spend .meter').length") == 2
        assert await page.js("document.querySelectorAll('#card-spend .track').length") == 1

    shown(browser, served, look, seen=seen)


@pytest.fixture(scope="module")
def paid() -> Observability:
    clock = Clock()
    prices = EndpointConfig(input_price=0.5, output_price=2.0)
    settings = ServeConfig(budget="2 USD per 1000", unit="money", window="month", cap=50.0)
    seen = Observability(settings, prices, now=clock)
    hour(seen, clock, money=True)
    return seen


@in_browser
@pytest.mark.parametrize(
    ("dark", "width"), leave_to_nightly([(False, 1300), (True, 360), (False, 360), (True, 1300)])
)
def test_a_budget_in_money_is_shown_in_its_currency_with_what_is_spent_and_saved(
    browser, served, paid, tmp_path, width: int, dark: bool
):
    board = paid.dashboard_data()
    money, total = board["savings"]["money"], board["total"]
    assert money["saved"] == pytest.approx(money["uniform"] - money["spent"])
    assert total["money"] == pytest.approx(board["spend"][0]["money"], rel=0.02)  # of the last hour

    async def look(page):
        await page.until(FULL)
        cost = await page.js(texts("#tile-cost"))
        assert f"{1000 * total['decided_cost'] / total['decided']:.2f}".rstrip("0") in cost
        assert "of 2 USD per 1,000" in " ".join(cost.split())
        spent = " ".join((await page.js(texts("#tile-savings"))).split())
        assert f"{board['spend'][0]['money']:.2f}".rstrip("0") in spent
        assert f"≈ {money['saved'] / money['uniform']:.0%} less than uniform" in spent
        assert "this is money" not in spent
        assert "USD this month" in await page.js(texts("#card-spend"))
        assert "stopping @2 USD per 1,000" in await page.js(texts("#serving"))
        assert "USD" in await page.js(texts("#card-cost h2"))
        assert await page.js(OVERFLOW) == 0
        await page.picture(tmp_path / f"money-{width}-{dark}.png")
        assert page.wrong == []

    shown(browser, served, look, seen=paid, width=width, height=900, dark=dark)


@in_browser
def test_a_budget_below_one_sample_is_a_banner(browser, served):
    clock = Clock()
    seen = Observability(ServeConfig(budget="500 tokens"), now=clock)
    seen.describe_shortfall = lambda: (
        "one sample costs 800 tokens per request on average, more than the budget"
    )
    seen.on_request_start()
    seen.on_request_end(told(clock.at, budget=500.0, unit="tokens", cost=800.0))

    async def look(page):
        await page.until(FULL)
        assert "one sample costs 800 tokens" in await page.js(texts("#banners"))
        assert "800" in await page.js(texts("#tile-cost"))
        assert page.wrong == []

    shown(browser, served, look, seen=seen)


@in_browser
@pytest.mark.parametrize(("requests", "explore"), [(150, 0.0), (2000, 0.1)])
def test_no_saving_is_told_of_few_requests_or_where_some_are_explored(browser, served, requests, explore):
    clock = Clock()
    seen = Observability(ServeConfig(explore=explore), now=clock)
    hour(seen, clock, requests=requests)
    assert seen.dashboard_data()["savings"]["share"] is not None

    async def look(page):
        await page.until(FULL)
        spent = await page.js(texts("#tile-savings"))
        assert (
            "saved against uniform sampling: not known while exploring" in spent
            or "from 200 requests" in spent
        )
        assert "≈" not in spent
        assert await page.js(OVERFLOW) == 0

    shown(browser, served, look, seen=seen)


def test_the_page_is_whole_and_allows_nothing_from_outside():
    page = DASHBOARD.body.decode()
    assert "{{" not in page.partition("<script>")[0]
    assert "http://www.w3.org/2000/svg" in page
    outside = [url for url in re.findall(r"""https?://[^"'\s)]+""", page) if "w3.org" not in url]
    assert outside == []
    assert "innerHTML" not in page
    assert "insertAdjacentHTML" not in page
    policy = DASHBOARD.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_the_board_is_json_whatever_was_seen():
    clock = Clock()
    seen = Observability(ServeConfig(show_texts=True), now=clock)
    seen.on_price("p", 2.0, float("nan"), 2.0)
    seen._drifts["p"].expect(float("nan"), 0.1)
    seen.on_request_start()
    seen.on_request_end(told(clock.at, policy="p", price=float("inf"), agreement=None, answer=None, votes={}))
    served = json.loads(dump_json(seen.dashboard_data("year")), parse_constant=pytest.fail)
    assert served["recent"][0]["price"] is None
