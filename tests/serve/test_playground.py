"""The playground in a real browser, and the events of a stream that it is made of."""

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from behaviours import Reply, Status
from browser import CHROMIUM, Page, chromium, tab
from menus import MenuUpstreams, make_menu
from openai import OpenAI
from running import QUESTION, Answer, Running

import adacompute as ac
from adacompute.config import ServeConfig
from adacompute.policies import POLICIES
from adacompute.serve.watching.web_pages import PLAYGROUND
from upstream import Upstream

in_browser = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no chromium is installed; apt-get install chromium, or make sure it is on the PATH",
)
EVENTS = {"x-adacompute-events": "true"}
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
KEY = "a-key-of-the-playground"
SECOND = "#examples button:nth-child(2)"


def split_votes(number: int, body: dict[str, Any]) -> Reply:
    """Two votes of three for 391, and texts that are markup."""
    count = body.get("n") or 1
    texts = [f"<b>17</b> times 23. The answer is {[391, 381, 391][(number + i) % 3]}." for i in range(count)]
    return Reply(texts=texts)


def read_events(answer: Answer) -> list[tuple[str, Any]]:
    """Name and data of each event; "" for those without a name."""
    events = []
    for block in answer.raw.decode().strip().split("\n\n"):
        name = re.search(r"^event: (.*)$", block, re.MULTILINE)
        data = re.search(r"^data: (.*)$", block, re.MULTILINE)
        assert data is not None
        value = data[1] if data[1] == "[DONE]" else json.loads(data[1])
        events.append(("" if name is None else name[1], value))
    return events


def list_happenings(answer: Answer) -> list[dict[str, Any]]:
    return [value["adacompute_event"] for name, value in read_events(answer) if name]


def test_events_are_each_sample_each_decision_and_the_end_and_then_the_usual_chunks():
    with Upstream(split_votes) as up, Running(up.url, budget=4.0) as gate:
        answer = gate.ask(headers=EVENTS, stream=True)
        plain = gate.ask(stream=True)
    events = read_events(answer)
    names = [name for name, _ in events]
    drawn = names.count("adacompute.sample")
    assert drawn == up.count.choices - sum(v["adacompute"]["samples"] for v in chunks_with_verdict(plain))
    assert names.index("adacompute.done") == len(names) - names[::-1].index("adacompute.done") - 1
    assert set(names[names.index("adacompute.done") + 1 :]) == {""}
    assert events[-1] == ("", "[DONE]")
    verdict = chunks_with_verdict(answer)[-1]["adacompute"]
    decisions = [each for each in list_happenings(answer) if each["type"] == "decision"]
    assert verdict["samples"] == drawn == decisions[-1]["samples"]
    assert verdict["votes"] == decisions[-1]["votes"]
    assert verdict["agreement"] == decisions[-1]["agreement"]
    assert [decision["next"] == [] for decision in decisions] == [False] * (len(decisions) - 1) + [True]
    assert b"event:" not in plain.raw
    assert b"adacompute_event" not in plain.raw


def chunks_with_verdict(answer: Answer) -> list[Any]:
    return [value for name, value in read_events(answer) if not name and "adacompute" in value]


def test_a_decision_says_what_another_sample_is_worth_and_stops_where_it_costs_more():
    with Upstream(split_votes) as up, Running(up.url, budget=4.0) as gate:
        happenings = [list_happenings(gate.ask(headers=EVENTS, stream=True)) for _ in range(6)]
    decisions = [each for events in happenings for each in events if each["type"] == "decision"]
    known = [each for each in decisions if each["criterion"]]
    assert len(known) >= 12
    for decision in known:
        assert decision["criterion"]["kind"] == "worth"
        worth, price = decision["criterion"]["value"], decision["criterion"]["limit"]
        if decision["samples"] < 16:
            assert (worth > price) == bool(decision["next"])
            said = re.search(r"is worth ([\d.e-]+) points and costs ([\d.e-]+), so it", decision["words"])
            assert said is not None
            assert float(said[1]) == pytest.approx(100 * worth, rel=0.06)
            assert float(said[2]) == pytest.approx(100 * price, rel=0.06)
    for events in happenings:
        done, samples = events[-1], [each for each in events if each["type"] == "sample"]
        assert done["samples"] == len(samples)
        assert done["tokens"] == pytest.approx(sum(sample["cost"] for sample in samples))
        assert done["uniform"]["samples"] > 4
        assert done["uniform"]["cost"] > 0


def test_costs_are_in_money_where_there_are_prices():
    prices = {"input_price": 1.0, "output_price": 2.0}
    with Upstream(split_votes) as up, Running(up.url, endpoint=prices) as gate:
        events = list_happenings(gate.ask(headers=EVENTS, stream=True))
    samples = [each for each in events if each["type"] == "sample"]
    assert {each["unit"] for each in (*samples, events[-1])} == {"money"}
    assert events[-1]["cost"] == pytest.approx(sum(sample["cost"] for sample in samples))


@pytest.mark.parametrize(
    ("texts", "more", "said"),
    [
        (["Rain on the roof"], {"messages": [{"role": "user", "content": "Write a poem."}]}, "no vote: "),
        (["The answer is 4."], {"temperature": 0}, "no vote: temperature is 0"),
        (["The answer is 4."], {"adacompute": {"mode": "pass"}}, "one sample, without a vote"),
        (["The answer is 4."], {"adacompute": {"budget": 1}}, "the budget is one sample, so it stops"),
    ],
)
def test_where_nothing_is_voted_on_a_decision_says_why(texts: list[str], more: dict[str, Any], said: str):
    with Upstream(Reply(texts=texts)) as up, Running(up.url) as gate:
        events = list_happenings(gate.ask({**QUESTION, **more}, headers=EVENTS, stream=True))
    assert [each["type"] for each in events] == ["decision", "sample", "decision", "done"]
    assert said in events[2]["words"]
    assert events[1]["text"] == texts[0]


@pytest.mark.parametrize("policy", ["asc", "bayes", "esc"])
def test_other_policies_say_what_they_know(tmp_path: Path, policy: str):
    rule = POLICIES[policy]()
    with ac.bundled("words") as pool:
        rule.fit(pool).save(tmp_path / policy)
    with Upstream(split_votes) as up, Running(up.url, policy=str(tmp_path / policy), budget=4.0) as gate:
        events = list_happenings(gate.ask(headers=EVENTS, stream=True))
    last = events[-2]
    assert last["next"] == []
    assert last["words"].endswith("so it stops")
    if policy == "esc":
        assert last["criterion"] is None
    else:
        assert last["criterion"]["kind"] == "doubt"
        assert last["criterion"]["value"] <= last["criterion"]["limit"]
        assert "is tolerated" in last["words"]


def test_modes_are_named_with_each_sample(tmp_path: Path):
    policy = ac.MenuPolicy(make_menu())
    policy.save(tmp_path / "policy")
    with MenuUpstreams() as menu:
        settings = {"menu": str(menu.write(tmp_path)), "policy": str(tmp_path / "policy")}
        with Running("", budget="0.0001 USD", folder=tmp_path, **settings) as gate:
            happenings = [
                list_happenings(gate.ask(headers=EVENTS, stream=True, model="adacompute")) for _ in range(4)
            ]
    for events in happenings:
        samples = [each for each in events if each["type"] == "sample"]
        assert {sample["mode"] for sample in samples} <= {"small", "large"}
        assert events[0]["next"][0]["mode"] == samples[0]["mode"]
        assert events[-1]["uniform"]["what"].startswith("as many, all of large")
        kinds = {each["criterion"]["kind"] for each in events if each.get("criterion")}
        assert kinds <= {"agreement", "worth"}


def test_an_openai_client_reads_the_same_answer_with_events(tmp_path: Path):
    with Upstream(Reply(texts=["The answer is 42."])) as up, Running(up.url) as gate:
        client = OpenAI(base_url=gate.url, api_key="none", max_retries=0)
        stream = client.chat.completions.create(**QUESTION, stream=True, extra_headers=EVENTS)
        chunks = list(stream)
        client.close()
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "The answer is 42."
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert (chunks[-1].model_extra or {})["adacompute"]["answer"] == "42"
    told = [
        chunk.model_extra["adacompute_event"]["type"]
        for chunk in chunks
        if "adacompute_event" in (chunk.model_extra or {})
    ]
    assert told[0] == "decision"
    assert told[-1] == "done"


def test_events_without_a_stream_are_refused_and_so_are_those_of_responses():
    with Upstream() as up, Running(up.url) as gate:
        assert gate.ask(headers=EVENTS).error["param"] == "x-adacompute-events"
        assert gate.ask(adacompute={"events": 1}, stream=True).status == 400
        asked = {"model": "scripted", "input": "What is 2 + 2?", "stream": True}
        raw = json.dumps(asked).encode()
        assert gate.ask(raw, EVENTS, path="/v1/responses").error["param"] == "x-adacompute-events"
        assert up.count.requests == 0 or up.count.choices == 0


def test_an_upstream_that_fails_before_the_first_sample_gives_its_status_and_later_ends_the_vote():
    def fail_later(number: int, body: dict[str, Any]) -> Reply | Status:
        return Reply(texts=["The answer is 4."]) if number == 1 else Status(code=400, message="no more")

    with Upstream(Status(code=400, message="not today")) as up, Running(up.url, budget=8.0) as gate:
        answer = gate.ask(headers=EVENTS, stream=True)
        assert (answer.status, answer.error["message"]) == (400, "not today")
        up.script = lambda number, body: fail_later(number - 1, body)
        events = list_happenings(gate.ask(headers=EVENTS, stream=True))
        assert events[-1]["samples"] == 1
        assert any("failed" in note for note in events[-1]["notes"])


def test_a_long_text_is_cut_in_its_event_alone():
    text = "word " * 20_000 + "The answer is 4."
    with Upstream(Reply(texts=[text])) as up, Running(up.url, budget=1.0) as gate:
        answer = gate.ask(headers=EVENTS, stream=True)
    (sample,) = [each for each in list_happenings(answer) if each["type"] == "sample"]
    assert sample["cut"] is True
    assert len(sample["text"]) == 20_000
    pieces = [value["choices"][0]["delta"].get("content") or "" for _, value in read_events(answer)[:-1]]
    assert "".join(pieces) == text


def test_a_client_that_leaves_in_the_middle_cancels_its_samples():
    def stall_later(number: int, body: dict[str, Any]) -> Reply:
        return Reply(texts=["The answer is 4."], delay=0.0 if number == 1 else 60.0)

    with Upstream(stall_later) as up, Running(up.url, budget=8.0) as gate:
        client = OpenAI(base_url=gate.url, api_key="none", max_retries=0)
        stream = client.chat.completions.create(**QUESTION, stream=True, extra_headers=EVENTS)
        next(iter(stream))
        stream.close()
        client.close()
        done = threading.Event()
        for _ in range(1000):
            if gate.gateway.under_way == 0 and up.count.in_flight == 0:
                break
            done.wait(0.01)
        assert (gate.gateway.under_way, up.count.in_flight) == (0, 0)


def test_the_page_is_at_the_root_unless_it_is_switched_off(tmp_path: Path):
    with Upstream() as up, Running(up.url) as gate:
        page = gate.get("/")
        assert (page.status, page.raw) == (200, PLAYGROUND.body)
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        assert gate.get("/", {"host": "evil.example"}).status == 403
        assert gate.ask(b"{}", path="/").status == 405
        told = gate.get("/playground/data").json
        assert told["budget"] == {"amount": 2.0, "unit": "samples", "currency": "USD", "most": 16.0}
        assert told["models"] == ["scripted"]
    with Upstream() as up, Running(up.url, playground=False) as gate:
        assert gate.get("/").status == gate.get("/playground/data").status == 404
        assert list_happenings(gate.ask(headers=EVENTS, stream=True))
    assert ServeConfig().playground


def test_the_page_has_no_secret_and_its_data_is_for_those_with_a_key(tmp_path: Path):
    (tmp_path / "keys.toml").write_text(f'[me]\nkey = "{KEY}"\n')
    keys = str(tmp_path / "keys.toml")
    with Upstream() as up, Running(up.url, keys_file=keys, folder=tmp_path) as gate:
        assert gate.get("/").raw == PLAYGROUND.body
        assert gate.get("/playground/data").status == 401
        told = gate.get("/playground/data", {"authorization": f"Bearer {KEY}"})
        assert told.status == 200
        assert KEY not in told.raw.decode()
        assert str(up.port) not in told.raw.decode()


def test_the_page_is_whole_and_allows_nothing_from_outside():
    page = PLAYGROUND.body.decode()
    assert "{{" not in page.partition("<script>")[0]
    assert [url for url in re.findall(r"""https?://[^"'\s)]+""", page) if "w3.org" not in url] == []
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "localStorage", "eval("):
        assert way not in page
    assert "unsafe" not in PLAYGROUND.headers["content-security-policy"]


@pytest.fixture(scope="module")
def browser() -> Iterator[str]:
    with chromium() as address:
        yield address


def look(browser: str, url: str, see: Callable[[Page], Any], **view: Any) -> Any:
    async def run() -> Any:
        async with tab(browser, **view) as page:
            await page.open(url)
            await page.until("document.readyState === 'complete'")
            return await see(page)

    return asyncio.run(run())


async def press(page: Page, key: str, code: int = 0, text: str = "") -> None:
    """One key, as a person presses it."""
    for kind in ("keyDown", "keyUp"):
        more = {"text": text} if text and kind == "keyDown" else {}
        await page.send("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **more)


READY = "document.querySelector('#budget-text').textContent !== ''"
ENDED = "document.querySelector('#costs dt') !== null"


@pytest.mark.browser
@in_browser
def test_a_question_is_asked_by_keyboard_and_its_samples_votes_and_costs_are_shown(browser, tmp_path):
    async def see(page: Page) -> None:
        await page.until(READY)
        await page.send("Input.insertText", text="What is 17 times 23?")
        await press(page, "Enter", 13, "\r")
        await page.until(ENDED)
        drawn = await page.js("document.querySelectorAll('.sample').length")
        assert drawn == up.count.choices
        assert await page.js("document.querySelectorAll('#votes i:not(.pending)').length") == drawn
        assert await page.js("document.querySelector('#answer').innerText") == "391"
        assert "Uniform sampling" in await page.js("document.querySelector('#costs').innerText")
        words = await page.js("[...document.querySelectorAll('.decision')].map(e => e.innerText)")
        assert words[0] == "It begins with 1 sample."
        assert words[-1].endswith("so it stops.")
        text = await page.js("document.querySelector('.sample p').innerText")
        assert text.startswith("<b>17</b> times 23")  # as it is, never as markup
        assert await page.js("document.querySelectorAll('.sample b b').length") == 0
        colors = await page.js(
            "[...document.querySelectorAll('#votes i')].map(e => getComputedStyle(e).color)"
        )
        assert len(set(colors)) == 2
        assert await page.js("document.activeElement.id") == "question"
        assert await page.js(OVERFLOW) == 0
        assert page.wrong == []
        assert {
            url.partition("/v1")[0].partition("/play")[0].rstrip("/")
            for url in page.requests
            if not url.startswith("data:")
        } == {gate.base}
        await page.picture(tmp_path / "end.png")

    with Upstream(split_votes) as up, Running(up.url, budget=4.0) as gate:
        look(browser, f"{gate.base}/", see)


@pytest.mark.browser
@in_browser
def test_the_slider_sets_the_budget_of_the_request_and_of_the_code_below(browser):
    async def see(page: Page) -> None:
        await page.until(READY)
        await page.js("document.querySelector('#budget').focus()")
        for _ in range(4):
            await press(page, "ArrowRight", 39)
        await page.until("document.querySelector('#budget-text').textContent === '3 samples'")
        await page.js("document.querySelector('#question').value = \"Who's there?\"")
        await page.js(
            "document.querySelector('#question').dispatchEvent(new Event('input', {bubbles: true}))"
        )
        curl = await page.js("document.querySelector('#curl').textContent")
        assert "-H 'x-adacompute-budget: 3'" in curl
        assert "Who'\\''s there?" in curl
        python = await page.js("document.querySelector('#python').textContent")
        compile(python, "page", "exec")
        assert '"x-adacompute-budget": "3"' in python
        await page.js(f"document.querySelector({SECOND!r}).click()")
        await page.until(ENDED)

    with Upstream(split_votes) as up, Running(up.url, budget=2.0) as gate:
        look(browser, f"{gate.base}/", see)
        board = gate.get("/dashboard/data").json
        assert 3.0 in [dial["budget"] for dial in board["dials"]]


@pytest.mark.browser
@in_browser
def test_a_phone_shows_all_of_it_without_scrolling_sideways(browser, tmp_path):
    async def see(page: Page) -> None:
        await page.until(READY)
        await page.js(f"document.querySelector({SECOND!r}).click()")
        await page.until(ENDED)
        assert await page.js("innerWidth") == 360
        assert await page.js(OVERFLOW) == 0
        wide = """[...document.querySelectorAll('main *')]
                  .filter(e => e.getBoundingClientRect().right > 361).map(e => e.outerHTML.slice(0, 99))"""
        assert await page.js(wide) == []
        assert page.wrong == []
        await page.picture(tmp_path / "phone.png")

    long = Reply(
        texts=["w" * 300 + " and the answer is 123456789012345678901234567890123456789012345678901234567890."]
    )
    with Upstream(long) as up, Running(up.url) as gate:
        look(browser, f"{gate.base}/", see, width=360, height=780)


@pytest.mark.browser
@in_browser
def test_an_error_is_said_plainly_and_one_may_ask_again(browser):
    async def see(page: Page) -> None:
        await page.until(READY)
        await page.js(f"document.querySelector({SECOND!r}).click()")
        said = await page.until("document.querySelector('#banners').innerText")
        assert said == "No answer: the server had an error"
        up.script = split_votes
        await page.js(f"document.querySelector({SECOND!r}).click()")
        await page.until(ENDED)
        assert await page.js("document.querySelector('#banners').innerText") == ""

    with Upstream(Status(code=400, message="the server had an error")) as up, Running(up.url) as gate:
        look(browser, f"{gate.base}/", see)


@pytest.mark.browser
@in_browser
def test_without_a_model_the_page_says_so_and_asks_once_there_is_one(browser):
    async def see(page: Page) -> None:
        said = await page.until("document.querySelector('#banners').innerText")
        assert said.startswith("The upstream can't be reached, or lists no model.")
        await page.js(f"document.querySelector({SECOND!r}).click()")
        assert await page.js("document.querySelector('#banners').innerText") == said
        assert up.count.choices == 0
        up.models = ("scripted",)
        while await page.js("document.querySelector('.sample') === null"):
            await page.js(f"document.querySelector({SECOND!r}).click()")
            await asyncio.sleep(0.5)
        await page.until(ENDED)

    with Upstream(split_votes, models=()) as up, Running(up.url) as gate:
        look(browser, f"{gate.base}/", see)


@pytest.mark.browser
@in_browser
def test_a_reply_without_a_vote_is_shown_as_text_to_its_end(browser):
    async def see(page: Page) -> None:
        await page.until(READY)
        await page.js(f"document.querySelector({SECOND!r}).click()")
        await page.until(ENDED)
        assert await page.js("document.querySelector('#verdict').innerText") == "The reply, without a vote"
        size = "getComputedStyle(document.querySelector('{}')).fontSize"
        assert await page.js(size.format("#answer")) == await page.js(size.format(".sample p"))
        hidden = "(e => e.scrollHeight - e.clientHeight)(document.querySelector('#answer'))"
        assert await page.js(hidden) <= 1

    text = "It depends on what you mean by it, and there are several ways to see it.\n\n" * 4
    with Upstream(Reply(texts=[text])) as up, Running(up.url) as gate:
        look(browser, f"{gate.base}/", see)


@pytest.mark.browser
@in_browser
def test_escape_stops_and_cancels_what_is_under_way(browser):
    async def see(page: Page) -> None:
        await page.until(READY)
        await page.js(f"document.querySelector({SECOND!r}).click()")
        while not up.count.in_flight:
            await asyncio.sleep(0.01)
        await press(page, "Escape", 27)
        await page.until("document.querySelector('#waiting').innerText.startsWith('stopped')")
        while up.count.in_flight:
            await asyncio.sleep(0.01)
        assert await page.js("document.querySelector('#ask').disabled") is False

    with Upstream(Reply(delay=50.0)) as up, Running(up.url) as gate:
        look(browser, f"{gate.base}/", see)


@pytest.mark.browser
@in_browser
def test_a_key_is_asked_for_refused_and_kept_in_memory_only_also_over_modes(browser, tmp_path):
    async def see(page: Page) -> None:
        await page.until("!document.querySelector('#entry').hidden")
        give = "document.querySelector('#key').value = {!r}; document.querySelector('#entry button').click()"
        await page.js(give.format("wrong"))
        await page.until("document.querySelector('#banners').innerText.includes(\"doesn't know the key\")")
        await page.js(give.format(KEY))
        await page.until(READY)
        assert await page.js("document.querySelector('#serving').innerText") == "policy · modes small, large"
        await page.js(f"document.querySelector({SECOND!r}).click()")
        await page.until(ENDED)
        mode = await page.js("document.querySelector('.sample .top').innerText")
        assert " · small · " in mode or " · large · " in mode
        html = await page.js(
            "document.documentElement.outerHTML + JSON.stringify(localStorage) + document.cookie"
        )
        assert KEY not in html
        assert "$ADACOMPUTE_KEY" in html

    (tmp_path / "keys.toml").write_text(f'[me]\nkey = "{KEY}"\n')
    ac.MenuPolicy(make_menu()).save(tmp_path / "policy")
    with MenuUpstreams() as menu:
        settings = {"menu": str(menu.write(tmp_path)), "policy": str(tmp_path / "policy")}
        with Running(
            "", budget="0.0001 USD", keys_file=str(tmp_path / "keys.toml"), folder=tmp_path, **settings
        ) as gate:
            look(browser, f"{gate.base}/", see)
