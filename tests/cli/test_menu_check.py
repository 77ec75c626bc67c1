"""`adacompute menu check`: each mode is asked once, and what it gave, took and cost is shown."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from upstream import Honest, Reply, Stall, Status, Upstream

KEY = "sk-canary-0123456789abcdef"


def write_menu(folder: Path, small: str, large: str, more: str = "") -> None:
    (folder / "menu.toml").write_text(
        f'[small]\nupstream = "{small}"\nmodel = "tiny"\ninput_price = 1\noutput_price = 4\n'
        f"cached_price = 0.5\noptions = {{ max_tokens = 16 }}\n"
        f'[large]\nupstream = "{large}"\nmodel = "huge"\ninput_price = 10\noutput_price = 40\n{more}'
    )


def test_a_row_for_each_mode_says_what_it_answered_took_and_cost(adacompute: Callable, tmp_path: Path):
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 50,
        "prompt_tokens_details": {"cached_tokens": 40},
        "completion_tokens_details": {"reasoning_tokens": 30},
    }
    with Upstream(Reply(texts=["5"], usage=usage, logprobs=False)) as small, Upstream(Honest()) as large:
        write_menu(tmp_path, small.url, large.url, "options = { top_k = 5 }\n")
        done = adacompute("menu", "check", "menu.toml")
        result = json.loads(adacompute("menu", "check", "menu.toml", "--json").stdout)
        assert (small.count.requests, large.count.requests) == (2, 2), "one question each"
        assert large.requests[0].body["top_k"] == 5
        assert small.requests[0].body["messages"][-1]["content"].startswith("What is 2 + 3?")
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines()}
    host = small.url.removeprefix("http://").removesuffix("/v1")
    assert rows["small"][:5] == ["small", "tiny", host, "ok", "5"]
    assert "100 (40 cached)" in done.stdout
    assert "50 (30 reasoning)" in done.stdout
    mode = result["modes"]["small"]
    assert mode["cost"] == pytest.approx((60 * 1 + 40 * 0.5 + 50 * 4) / 1e6)
    assert (mode["answer"], mode["ok"], mode["logprobs"], mode["ratio"]) == ("5", True, False, 1.0)
    other = result["modes"]["large"]
    assert other["ratio"] == pytest.approx(other["cost"] / mode["cost"])
    assert result["cost"] == pytest.approx(mode["cost"] + other["cost"])


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (Status(code=401, message=f"Incorrect API key provided: {KEY}"), "401"),
        (Status(code=404, message="no such model"), "no such model"),
        (Status(code=400, message="Unsupported value: 'temperature'"), "temperature"),
        (Reply(texts=[""], finish="length"), "raise max_tokens in its options"),
        (Stall(), "give more time"),
    ],
)
def test_a_mode_that_fails_is_named_with_its_reason_and_never_with_its_key(
    adacompute: Callable, tmp_path: Path, script, message: str
):
    with Upstream() as small, Upstream(script) as large:
        write_menu(tmp_path, small.url, large.url, 'key_env = "LARGE_KEY"\n')
        done = adacompute("menu", "check", "menu.toml", "--timeout", "2", code=1, LARGE_KEY=KEY)
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines()}
    assert (rows["small"][3], rows["large"][3]) == ("ok", "failed")
    (line,) = done.stderr.splitlines()
    assert line.startswith("mode large: ")
    assert message in line
    assert KEY not in done.stdout + done.stderr
    assert "authorization" not in small.requests[0].headers


def test_a_mode_that_names_no_key_is_told_how_to_where_its_upstream_wants_one(
    adacompute: Callable, tmp_path: Path
):
    with Upstream() as small, Upstream(key=KEY) as large:
        write_menu(tmp_path, small.url, large.url)
        assert "key_env" in adacompute("menu", "check", "menu.toml", code=1, ADACOMPUTE_KEY=KEY).stderr


def test_a_mode_without_its_key_has_failed_and_the_others_are_asked(adacompute: Callable, tmp_path: Path):
    with Upstream() as up:
        write_menu(tmp_path, up.url, up.url, 'key_env = "NO_SUCH_KEY"\n')
        done = adacompute("menu", "check", "menu.toml", code=1)
        result = json.loads(adacompute("menu", "check", "menu.toml", "--json", code=1).stdout)
    assert (
        done.stderr == "mode large: environment variable NO_SUCH_KEY holds no key; set it, or name another\n"
    )
    assert (result["ok"], result["modes"]["small"]["ok"], result["modes"]["large"]["ok"]) == (
        False,
        True,
        False,
    )


def test_a_menu_without_prices_is_checked_all_the_same(adacompute: Callable, tmp_path: Path):
    with Upstream() as up:
        (tmp_path / "menu.toml").write_text(f'[small]\nupstream = "{up.url}"\nmodel = "tiny"\n')
        done = adacompute("menu", "check", "menu.toml")
    assert "The menu has no prices" in done.stdout
    assert "ratio" not in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["check", "none.toml"], 1, "menu 'none.toml' can't be read"),
        (["check", "empty.toml"], 1, "menu 'empty.toml' has no mode"),
        (["chek", "menu.toml"], 2, "'chek' is not"),
        (["check", "menu.toml", "--timeout", "0"], 2, "--timeout"),
    ],
)
def test_what_cant_be_used_is_named(
    adacompute: Callable, tmp_path: Path, words: list[str], code: int, message: str
):
    (tmp_path / "empty.toml").write_text("")
    write_menu(tmp_path, "http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1")
    done = adacompute("menu", *words, code=code)
    assert message in done.stderr
    assert not done.stdout
