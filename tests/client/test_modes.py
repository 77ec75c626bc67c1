"""The modes of a menu file: what is refused, and what a request to each looks like."""

from pathlib import Path
from typing import Any

import pytest

from adacompute.client.modes import (
    ModeConfigs,
    apply_menu,
    build_mode_endpoints,
    read_modes_file,
    read_prices,
)
from adacompute.client.settings import Endpoint, ModeEndpoint, build_endpoint
from adacompute.config import Config, ServeConfig
from adacompute.errors import ConfigError

MENU = """
[small]
upstream = "http://127.0.0.1:8081/v1"
model = "tiny"
input_price = 0.1
output_price = 0.4
cached_price = 0.05
concurrency = 4
options = { max_tokens = 64, reasoning_effort = "low", system_suffix = "Be brief." }

[large]
upstream = "http://127.0.0.1:8082/v1"
model = "huge"
key_env = "LARGE_KEY"
input_price = 2.0
output_price = 8.0
"""


def read(tmp_path: Path, text: str) -> ModeConfigs:
    file = tmp_path / "menu.toml"
    file.write_text(text)
    return read_modes_file(file)


def test_a_mode_has_its_own_headers_query_and_header_of_the_key(tmp_path: Path):
    text = MENU.replace("concurrency = 4", 'key_header = "api-key"\nheaders = { X-Title = "a: b" }')
    text += 'headers = ["X-Title: c", "X-Other: d"]\nquery = { api-version = "2024-10-21", x = "y=z" }\n'
    small, large = (mode.endpoint for mode in read(tmp_path, text.replace('key_env = "LARGE_KEY"', "")).modes)
    assert (small.key_header, large.key_header) == ("api-key", "")
    small_endpoint, large_endpoint = build_endpoint(small), build_endpoint(large)
    assert small_endpoint.headers == {"X-Title": "a: b"}
    assert large_endpoint.headers == {"X-Title": "c", "X-Other": "d"}
    assert large_endpoint.query == {"api-version": "2024-10-21", "x": "y=z"}


def test_each_mode_has_its_own_endpoint_key_limits_prices_and_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LARGE_KEY", "sk-large")
    monkeypatch.setenv("ADACOMPUTE_KEY", "sk-other")
    menu = read(tmp_path, MENU)
    small, large = build_mode_endpoints(menu)
    assert menu.names == ("small", "large")
    assert menu.default.name == "large"
    assert small.endpoint.key is None, "no upstream gets a key that wasn't given for it"
    assert large.endpoint.key is not None
    assert large.endpoint.key.reveal() == "sk-large"
    assert (small.endpoint.limits.concurrency, small.cached_price, small.max_tokens) == (4, 0.05, 64)
    assert (large.prices.input, large.prices.output) == (2.0, 8.0)
    assert small.options["reasoning_effort"] == "low"


def test_the_default_mode_is_the_one_that_says_so(tmp_path: Path):
    assert read(tmp_path, MENU.replace("concurrency = 4", "default = true")).default.name == "small"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("upstream = \"http://127.0.0.1:8081/v1\"\n", ""), "[small]: has no upstream; give address"),
        (("model = \"tiny\"\n", ""), "[small]: has no model; give its name at the upstream"),
        (("input_price = 0.1", "input_pric = 0.1"), "unknown setting 'input_pric'; did you mean"),
        (("input_price = 0.1", "input_price = -1"), "[small]: input_price is -1; give a number from 0 up"),
        (("input_price = 0.1", "input_price = 'dear'"), "[small]: input_price is 'dear'; give a number"),
        (("output_price = 0.4\n", ""), "[small]: has no output_price, and [small] has input_price; give"),
        (("input_price = 2.0\noutput_price = 8.0", ""), "[large]: has no input_price, and [small] has"),
        (("cached_price = 0.05", "cached_price = 0.5"), "cached_price is 0.5; give 0 to 0.1"),
        (("max_tokens = 64", "max_tokens = 0"), "options.max_tokens is 0; give a whole number from 1 up"),
        (("max_tokens = 64", "n = 3"), "options.n is set by adacompute itself; leave it out"),
        (("max_tokens = 64", "N = 3"), "options.N is set by adacompute itself; leave it out"),
        (("max_tokens = 64", "extra_body = { best_of = 8 }"), "options.best_of is not supported"),
        (("max_tokens = 64", "best_of = 8"), "options.best_of is not supported; leave it out"),
        (("max_tokens = 64", "day = 2026-01-01"), "options can't be sent as JSON"),
        (("system_suffix = \"Be brief.\"", "system_suffix = 3"), "options.system_suffix is 3; give a text"),
        (("[large]", "[adacompute]"), "[adacompute]: can't be a mode's name"),
        (("[large]", "[\"a, b\"]"), "can't be a mode's name; give 1 to 64 characters without a comma"),
        (("[large]", "[large]\ncurrency = \"EUR\""), "[large]: currency is 'EUR', and 'USD' in [small]"),
        (("[small]", "price = 3\n[small]"), "[price]: is 3, no table; give upstream and model in one"),
    ],
)  # fmt: skip
def test_a_bad_entry_is_named_with_table_key_value_and_remedy(
    tmp_path: Path, change: tuple[str, str], told: str
):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, MENU.replace(*change, 1))
    assert told in str(caught.value)
    assert "menu.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_empty_menu_and_a_mode_without_its_key_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(ConfigError, match="has no mode; add a table such as"):
        read(tmp_path, "")
    monkeypatch.delenv("LARGE_KEY", raising=False)
    with pytest.raises(ConfigError, match=r"mode 'large': environment variable LARGE_KEY holds no key"):
        build_mode_endpoints(read(tmp_path, MENU))


def make_mode(**options: Any) -> ModeEndpoint:
    suffix = options.pop("system_suffix", "")
    endpoint = Endpoint(url="http://127.0.0.1:1/v1")
    return ModeEndpoint(name="m", endpoint=endpoint, model="real", options=options, system_suffix=suffix)


def test_options_are_merged_and_the_request_itself_is_left_as_it_is():
    body = {"model": "asked", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0.7}
    built = make_mode(reasoning_effort="high", temperature=0.2).build_body(body)
    assert built == {**body, "model": "real", "reasoning_effort": "high", "temperature": 0.2}
    assert body["model"] == "asked"


@pytest.mark.parametrize(
    ("asked", "own", "sent"),
    [
        ({"max_tokens": 10}, {"max_tokens": 64}, {"max_tokens": 10}),
        ({"max_tokens": 100}, {"max_tokens": 64}, {"max_tokens": 64}),
        ({"max_completion_tokens": 100}, {"max_tokens": 64}, {"max_completion_tokens": 64}),
        ({}, {"max_completion_tokens": 64}, {"max_completion_tokens": 64}),
        ({"max_tokens": 10}, {}, {"max_tokens": 10}),
    ],
)
def test_of_two_limits_of_tokens_the_smaller_one_is_sent(
    asked: dict[str, int], own: dict[str, int], sent: dict[str, int]
):
    body = {"messages": [{"role": "user", "content": "Hi"}], **asked}
    built = make_mode(**own).build_body(body)
    assert {name: value for name, value in built.items() if name.startswith("max_")} == sent


def test_the_suffix_ends_the_first_instruction_whatever_its_shape():
    user = {"role": "user", "content": "Hi"}
    mode = make_mode(system_suffix="Think.")
    plain = [{"role": "system", "content": "You are kind."}, user]
    parts = [{"role": "developer", "content": [{"type": "text", "text": "You are kind."}]}, user]
    assert mode.build_body({"messages": plain})["messages"][0]["content"] == "You are kind.\nThink."
    assert mode.build_body({"messages": parts})["messages"][0]["content"][-1]["text"] == "Think."
    assert mode.build_body({"messages": [user]})["messages"] == [
        {"role": "system", "content": "Think."},
        user,
    ]
    assert plain[0]["content"] == "You are kind.", "the request of other modes isn't changed"


def test_a_menu_may_say_the_budget_where_nobody_says_another(tmp_path: Path):
    file = tmp_path / "menu.toml"
    file.write_text(
        'budget = "as good as b"\n'
        '[a]\nupstream = "http://h/v1"\nmodel = "a"\ninput_price = 0.1\noutput_price = 0.2\n'
        '[b]\nupstream = "http://h/v1"\nmodel = "b"\ninput_price = 1.0\noutput_price = 2.0\n'
    )
    menu = read_modes_file(file)
    assert (menu.budget, menu.names) == ("as good as b", ("a", "b"))
    assert set(read_prices(file)) == {"a", "b"}
    assert apply_menu(Config(), menu).serve.budget == "as good as b"
    own = Config(serve=ServeConfig(budget="0.1 USD per 1000"))
    assert apply_menu(own, menu).serve.budget == "0.1 USD per 1000"
    file.write_text("budget = [1]\n" + file.read_text().split("\n", 1)[1])
    with pytest.raises(ConfigError, match="budget"):
        read_modes_file(file)
