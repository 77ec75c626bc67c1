"""What is seen of a menu's modes: sums that add up, bounded labels, alarms, and nothing without a menu."""

import asyncio
import json
import logging
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, chromium, tab
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from running import Running
from traffic import MODES, SAMPLE_NANOS, Clock, Policy, menu_hour, menu_request, told

import adacompute as ac
from adacompute.config import EndpointConfig, ServeConfig
from adacompute.serve.messages.reply import REASONING_TOKENS, ModeUse, RequestOutcome, Usage
from adacompute.serve.spending.ledger import Spend
from adacompute.serve.watching.logs import log_request
from adacompute.serve.watching.mode_status import FAILURE_KINDS, ModeStatus
from adacompute.serve.watching.observability import Observability
from adacompute.serve.watching.traffic_history import DRIFT_WINDOW
from tiers import leave_to_nightly
from upstream import Reply, Status, Upstream

PRICES = EndpointConfig(input_price=2.0, output_price=8.0)


def make_observability(clock: Clock | None = None, **settings: Any) -> Observability:
    settings = {"budget": "0.001 USD", "unit": "money", "window": "day", "menu": "menu.toml", **settings}
    observability = Observability(
        ServeConfig(**settings), PRICES, modes=MODES, now=Clock() if clock is None else clock
    )
    assert observability.modes is not None
    observability.modes.find_cost = lambda mode, _: SAMPLE_NANOS[mode] / 1e9
    return observability


def read_values(text: bytes) -> dict[tuple[str, ...], float]:
    """The values of all metrics of a menu: by name, mode and further labels."""
    return {
        (
            sample.name.removeprefix("adacompute_menu_"),
            sample.labels["menu_mode"],
            *(value for label, value in sample.labels.items() if label != "menu_mode"),
        ): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.name.startswith("adacompute_menu_")
    }


def end_request(observability: Observability, outcome: RequestOutcome) -> None:
    observability.on_request_start()
    observability.on_request_end(outcome)


@pytest.fixture(scope="module")
def busy() -> tuple[Observability, list[RequestOutcome]]:
    clock = Clock()
    observability = make_observability(clock)
    return observability, menu_hour(observability, clock)


def test_sums_by_mode_are_those_of_the_requests(busy):
    observability, outcomes = busy
    values = read_values(observability.render_metrics())

    def add_up(name: str, *labels: str) -> float:
        return sum(values.get((name, mode, *labels), 0.0) for mode in MODES)

    assert add_up("samples_total") == sum(outcome.samples for outcome in outcomes)
    assert add_up("missing_samples_total") == sum(outcome.missing for outcome in outcomes) > 0
    assert add_up("replies_total") == len(outcomes)
    assert add_up("failures_total", "rate-limit") == sum(bool(outcome.missing) for outcome in outcomes)
    spent = sum((outcome.spent for outcome in outcomes), Spend())
    for unit in ("samples", "tokens", "money"):
        assert add_up("spent_total", unit) == pytest.approx(spent.amount_in(unit))
    prompt = sum(outcome.usage.prompt_tokens for outcome in outcomes)
    assert add_up("tokens_total", "prompt") == prompt
    assert values["requests_total", "large"] < values["requests_total", "small"] == len(outcomes)
    assert values["sample_cost", "large", "money"] == 0.002


def test_a_span_a_run_and_its_slots_have_the_same_sums(busy):
    observability, outcomes = busy
    menu = observability.dashboard_data("day")["menu"]
    assert [mode["name"] for mode in menu["modes"]] == list(MODES)
    assert menu["requests"] == menu["ever"]["requests"] == len(outcomes)
    spent = sum(outcome.spent.money for outcome in outcomes)
    assert sum(mode["spent"] for mode in menu["modes"]) == pytest.approx(spent)
    assert sum(sum(parts) for _, parts in menu["spent"]) == pytest.approx(spent)
    assert sum(menu["ever"]["spent"]) == pytest.approx(spent)


def test_the_sum_over_modes_of_every_kind_of_token_is_counted():
    observability = make_observability()
    usage = Usage(prompt_tokens=9, completion_tokens=5, cached_tokens=4, details={REASONING_TOKENS: 3})
    end_request(observability, told(1.0, modes=(ModeUse(name="small", samples=1, usage=usage),)))
    values = read_values(observability.render_metrics())
    kinds = ("prompt", "completion", "cached", "reasoning")
    assert [values["tokens_total", "small", kind] for kind in kinds] == [9, 5, 4, 3]


def test_labels_are_the_names_of_the_menu_and_kinds_that_exist():
    observability, rng = make_observability(), random.Random(3)
    for i in range(300):
        uses = (
            ModeUse(name=f"mode {i}", samples=1, failed="x"),
            ModeUse(name="small", missing=1, failed=f"kind {i}"),
        )
        end_request(observability, told(float(i), modes=uses, answered_by=f"mode {i}"))
        end_request(observability, menu_request(float(i), rng))
    values = read_values(observability.render_metrics())
    assert {labels[0] for _, *labels in values} == set(MODES)
    allowed = FAILURE_KINDS | {"other", "samples", "tokens", "money", "prompt", "completion"}
    assert {label for _, _, *labels in values for label in labels} <= allowed
    assert values["failures_total", "small", "other"] == 300
    board = observability.dashboard_data()
    assert [mode["name"] for mode in board["menu"]["modes"]] == list(MODES)
    assert "mode 7" not in json.dumps(board["menu"])


def feed(observability: Observability, count: int, *, agree: float, **fields: object) -> None:
    """Requests of which such a share agree, evenly spread, all with answers of both modes."""
    for i in range(count):
        same = int((i + 1) * agree) > int(i * agree)
        uses = (
            ModeUse(name="small", samples=1, answer="42" if same else "41"),
            ModeUse(name="large", samples=1, answer="42"),
        )
        end_request(observability, told(1.0, modes=uses, answered_by="large", **fields))


def test_an_alarm_goes_on_where_a_mode_agrees_less_and_off_when_it_is_back(caplog):
    observability = make_observability()
    feed(observability, DRIFT_WINDOW, agree=0.9)  # these are the measure
    feed(observability, DRIFT_WINDOW, agree=0.9)
    assert read_values(observability.render_metrics())["drift_alarm", "small"] == 0
    with caplog.at_level(logging.WARNING, "adacompute.serve"):
        feed(observability, DRIFT_WINDOW, agree=0.6)
    values = read_values(observability.render_metrics())
    assert (values["drift_alarm", "small"], values["drift_alarms_total", "small"]) == (1, 1)
    assert values["agreement_live", "small"] == pytest.approx(0.6, abs=0.01)
    lines = [record.getMessage() for record in caplog.records]
    assert len([line for line in lines if "answers of mode 'small'" in line]) == 1
    state = observability.dashboard_data()["menu"]["modes"][0]["agreement"]
    assert state["alarm"]
    assert state["expected"] == pytest.approx(0.9)
    feed(observability, DRIFT_WINDOW, agree=0.9)
    values = read_values(observability.render_metrics())
    assert (values["drift_alarm", "small"], values["drift_alarms_total", "small"]) == (0, 1)


def test_requests_without_answers_of_both_modes_say_nothing_of_agreement():
    observability = make_observability()
    end_request(observability, told(1.0, modes=(ModeUse(name="small", samples=1, answer="42"),)))
    uses = (ModeUse(name="small", samples=1, answer="42"), ModeUse(name="large", samples=1))
    end_request(observability, told(1.0, modes=uses))
    assert observability.dashboard_data()["menu"]["modes"][0]["agreement"]["requests"] == 0


def test_where_the_operator_explores_only_explored_requests_are_compared():
    observability = make_observability(explore=0.01)
    feed(observability, 20, agree=0.5)
    feed(observability, 3, agree=1.0, explored=True)
    state = observability.dashboard_data()["menu"]["modes"][0]["agreement"]
    assert (state["requests"], state["live"]) == (3, 1.0)


def test_another_policy_starts_the_comparison_again_unless_requests_are_explored():
    for explore, requests in ((0.0, 0), (0.01, 20)):
        observability = make_observability(explore=explore)
        observability.on_policy(Policy("menu", "1", None), budget=0.001, unit="money")
        feed(observability, 20, agree=0.5, explored=True)
        observability.on_policy(Policy("menu", "2", None), budget=0.001, unit="money")
        state = observability.dashboard_data()["menu"]["modes"][0]["agreement"]
        assert state["requests"] == requests


def test_sums_go_on_over_a_restart_in_the_same_currency(busy):
    before, outcomes = busy
    state = json.loads(json.dumps(before.state()))
    after = make_observability()
    after.restore(state)
    ever = after.dashboard_data()["menu"]["ever"]
    assert ever == before.dashboard_data()["menu"]["ever"]
    assert ever["requests"] == len(outcomes)
    assert read_values(after.render_metrics())["samples_total", "small"] == 0  # counters are of this run
    end_request(after, outcomes[0])
    assert after.dashboard_data()["menu"]["ever"]["requests"] == len(outcomes) + 1


@pytest.mark.parametrize(
    "change",
    [{"currency": "EUR"}, {"requests": -1}, {"since": "x"}, {"modes": {"small": [1, 2]}}, {"modes": 7}],
)
def test_a_state_that_is_not_of_this_menu_changes_nothing(busy, change):
    after = make_observability()
    after.restore({"menu": busy[0].state()["menu"] | change})
    assert after.dashboard_data()["menu"]["ever"]["requests"] == 0


def test_there_is_nothing_by_mode_without_a_menu():
    observability = Observability(ServeConfig(), now=Clock())
    end_request(observability, told(1.0))
    assert b"menu" not in observability.render_metrics()
    assert observability.dashboard_data()["menu"] is None
    assert "menu" not in observability.state()


def test_without_prices_costs_are_in_tokens():
    settings = ServeConfig(budget="500 tokens", menu="menu.toml")
    menu = ModeStatus(MODES, settings, EndpointConfig(), CollectorRegistry(), now=lambda: 0.0)
    assert menu.describe_span("hour")["unit"] == "tokens"


def test_the_line_of_a_request_names_modes_and_samples(caplog):
    with caplog.at_level(logging.INFO, "adacompute.request"):
        uses = (ModeUse(name="small", samples=3), ModeUse(name="large", samples=1))
        log_request(told(1.0, modes=uses, answered_by="large"))
        log_request(told(1.0))
    with_menu, without = caplog.records
    assert (with_menu.modes, with_menu.answered_by) == ("small:3,large:1", "large")
    assert not hasattr(without, "modes")


MENU = """
[small]
upstream = "{small}"
model = "tiny"
input_price = 0.1
output_price = 0.4

[large]
upstream = "{large}"
model = "huge"
input_price = 2.0
output_price = 8.0
"""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy over two modes, fitted on so few problems that no lattice is learned."""
    modes = (ac.Mode(name="small", cost=0.00001), ac.Mode(name="large", cost=0.0002))
    menu = ac.Menu(modes=modes, unit="money", currency="USD")
    pool = ac.join_pools({"small": ac.bundled("facts"), "large": ac.bundled("facts-qwen")})
    folder = tmp_path_factory.mktemp("policy") / "menu"
    ac.MenuPolicy(menu, longest=8).fit(pool.ballots().only(range(0, 353, 6))).save(folder)
    return folder


def answer_by_turns(number: int, body: dict[str, Any]) -> Reply:
    """Two answers by turns, so that cheap votes disagree."""
    count = body.get("n", 1)
    return Reply(texts=[f"The answer is {(number + i) % 2}." for i in range(count)])


@pytest.mark.slow
def test_a_gateway_over_a_menu_counts_what_its_upstreams_gave(tmp_path: Path, policy: Path):
    with Upstream(answer_by_turns) as small, Upstream() as large:
        file = tmp_path / "menu.toml"
        file.write_text(MENU.format(small=small.url, large=large.url))
        settings = {"menu": str(file), "policy": str(policy), "budget": "0.0001 USD", "folder": tmp_path}
        with Running("http://127.0.0.1:9/v1", **settings) as gate:
            replies = [gate.ask(model="default").json["adacompute"] for _ in range(12)]
            values = read_values(gate.get("/metrics").raw)
            board = gate.get("/dashboard/data").json
            drawn = {mode: sum(r["modes"].get(mode, {}).get("samples", 0) for r in replies) for mode in MODES}
            assert drawn == {mode: values["samples_total", mode] for mode in MODES}
            assert drawn == {"small": small.count.choices, "large": large.count.choices}
            assert min(drawn.values()) > 0
            assert sum(values["replies_total", mode] for mode in MODES) == 12
            spent = sum(values["spent_total", mode, "money"] for mode in MODES)
            assert spent == pytest.approx(board["spend"][0]["money"])
            assert board["menu"]["requests"] == 12
            large.script = Status(code=503)
            failed = gate.ask(model="default").json["adacompute"]["modes"]
            values = read_values(gate.get("/metrics").raw)
            assert ("large" in failed) == (("failures_total", "large", "server-error") in values)
        with Running("http://127.0.0.1:9/v1", **settings) as gate:  # a restart
            menu = gate.get("/dashboard/data").json["menu"]
            assert menu["ever"]["requests"] == 13
            assert menu["requests"] == 0


@pytest.fixture(scope="module")
def browser() -> Iterator[str]:
    with chromium() as address:
        yield address


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed; apt-get install chromium")
@pytest.mark.parametrize("width", leave_to_nightly([1280, 360]))
def test_the_page_shows_the_modes_of_a_menu_and_none_without(browser, tmp_path, monkeypatch, width: int):
    clock = Clock()
    observability = make_observability(clock)
    menu_hour(observability, clock, agree_at_end=0.5)
    assert observability.modes is not None
    observability.list_resting = observability.modes.list_resting = lambda: ("large",)
    show = "document.querySelector('{}').innerText"

    async def look(url: str) -> None:
        async with tab(browser, width=width) as page:
            await page.open(f"{url}/dashboard")
            await page.until("!document.querySelector('#full').hidden")
            board = observability.dashboard_data()
            rows = await page.js(
                "[...document.querySelectorAll('#card-modes tbody tr')].map(e => e.innerText)"
            )
            small, large = (row.split() for row in rows)
            assert small[0] == "small"
            assert small[1] == f"{board['menu']['modes'][0]['samples']:,}"
            assert small[-1] == "drifting"
            assert large[-1] == "resting"
            once = await page.js(show.format("#card-modes .once"))
            counted = board["total"]["counted"]
            assert f"The {counted:,} requests of the average cost" in once
            assert f"one sample of large for each: ≈ {0.002 * counted:.2f} USD" in once
            banners = await page.js(show.format("#banners"))
            assert "Mode small gives the answer of large in 5" in banners
            assert "Mode large keeps failing" in banners
            bars = await page.js("document.querySelectorAll('#card-mode-cost svg rect').length")
            assert bars >= 40
            cut = "(() => { const t = document.querySelector('#card-modes .scroll'); "
            cut += "return t.scrollWidth - t.clientWidth; })()"
            assert width < 600 or await page.js(cut) == 0
            overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert await page.js(overflow) == 0
            assert page.wrong == []
            await page.picture(tmp_path / f"modes-{width}.png")
            monkeypatch.setattr(observability, "modes", None)
            await page.until("document.querySelector('#card-modes').hidden")
            assert await page.js("document.querySelector('#card-mode-cost').hidden")

    with Upstream() as up, Running(up.url) as gate:
        monkeypatch.setattr(gate.gateway, "observability", observability)
        asyncio.run(look(gate.base))
