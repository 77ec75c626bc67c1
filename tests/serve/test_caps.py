"""Caps by key and in total, through the running gateway: nobody passes one in silence."""

from pathlib import Path
from typing import Any

import pytest
from behaviours import Honest, Reply
from crowd import Visit, crowd, ledger_of, settled
from running import Answer, Running

from adacompute.errors import ConfigError
from adacompute.policies.baselines import FixedPolicy
from upstream import Upstream

CHEAP = 1e-6  # a price at which it goes on while there is any doubt
ONE = {"x-adacompute-policy": "single"}


@pytest.fixture
def keys(tmp_path: Path) -> str:
    file = tmp_path / "keys.toml"
    file.write_text(
        '[boss]\nkey = "key-of-the-boss-0123456789"\ncap = 3\noperator = true\n'
        '[alice]\nkey = "key-of-alice-0123456789"\n'
        '[bob]\nkey = "key-of-bob-0123456789"\ncap = 1\n'
        '[carol]\nkey = "key-of-carol-0123456789"\ncap = 100\n'
    )
    return str(file)


def ask(gate: Running, name: str, **fields: Any) -> Answer:
    who = {"boss": "the-boss"}.get(name, name)
    return gate.ask(headers={**ONE, "authorization": f"Bearer key-of-{who}-0123456789"}, **fields)


def refused(answer: Answer, *words: str) -> None:
    assert (answer.status, answer.error["code"]) == (429, "insufficient_quota"), answer.raw
    assert answer.headers["x-should-retry"] == "false"
    assert all(word in answer.error["message"] for word in words), answer.error


def test_c19_every_key_has_its_cap_the_operators_too_and_all_together_have_theirs(keys: str):
    with Upstream() as up, Running(up.url, keys_file=keys, key_cap=2, cap=9) as gate:
        assert [ask(gate, "boss").status for _ in range(3)] == [200] * 3
        refused(ask(gate, "boss"), "'boss'", "cap of 3 samples", "ask the operator")
        assert [ask(gate, "alice").status for _ in range(2)] == [200] * 2
        refused(ask(gate, "alice"), "'alice'", "cap of 2 samples")  # key_cap: it has none of its own
        assert ask(gate, "bob").status == 200
        refused(ask(gate, "bob"), "'bob'", "cap of 1 samples")  # its own goes before key_cap, below it
        assert [ask(gate, "carol").status for _ in range(3)] == [200] * 3  # and above it
        refused(ask(gate, "carol"), "the gateway's cap is reached")
        refused(ask(gate, "boss", stream=True), "'boss'")
        account = settled(gate)
        who = {"authorization": "Bearer key-of-the-boss-0123456789"}
        metrics = gate.get("/metrics", who).raw.decode()
        board = gate.get("/dashboard/data", who).json
    assert up.count.choices == account.spent.samples == 9
    assert {name: one.spent.samples for name, one in account.keys.items()} == {
        "boss": 3,
        "alice": 2,
        "bob": 1,
        "carol": 3,
    }
    assert 'status="429"} 5.0' in metrics  # it is seen
    assert 'adacompute_ledger{state="spent",unit="samples"} 9.0' in metrics
    assert 'adacompute_ledger_cap{unit="samples"} 9.0' in metrics
    assert {one["name"]: one["cap"] for one in board["spend"]} == {
        "": 9,
        "boss": 3,
        "alice": 2,
        "bob": 1,
        "carol": 100,
    }


@pytest.mark.parametrize("name", ["input_price", "output_price"])
def test_a_price_beyond_all_counting_is_refused_at_the_start(name: str):
    with pytest.raises(ConfigError, match=r"a price of 1e\+308 .* give at most"):
        Running(
            "http://127.0.0.1:9/v1", cap=1, unit="money", budget="1 samples", endpoint={name: 1e308}
        ).__enter__()


def test_c19_without_keys_everybody_is_anonymous_and_the_caps_hold():
    claims = {"authorization": "Bearer whatever", "x-api-key": "boss", "openai-organization": "boss"}
    with Upstream() as up, Running(up.url, cap=4, key_cap=3) as gate:
        answers = crowd(gate, [Visit(headers={**ONE, **claims})] * 10)
        account = settled(gate)
    assert sorted(answer.status for answer in answers) == [200] * 3 + [429] * 7
    assert set(account.keys) == {"anonymous"}
    assert up.count.choices == 3


@pytest.mark.parametrize(
    ("caps", "prices"),
    [
        ({"cap": 3}, {}),
        ({"cap": 300, "unit": "tokens"}, {}),
        ({"cap": 0.00015, "unit": "money"}, {"output_price": 1.0}),
    ],
)
def test_c19_a_cap_in_the_middle_of_the_waves_leaves_the_vote_on_what_came(
    caps: dict[str, Any], prices: dict[str, float]
):
    with (
        Upstream(Reply(texts=["The answer is 1."])) as up,
        Running(up.url, price=CHEAP, endpoint=prices, **caps) as gate,
    ):
        up.script = lambda number, body: Reply(  # nobody agrees: it would go on
            texts=[f"The answer is {number}{i}." for i in range(body.get("n") or 1)]
        )
        answer = gate.ask(max_tokens=100)
        account = settled(gate)
    told = answer.json["adacompute"]
    assert answer.status == 200
    assert 1 <= told["samples"] == up.count.choices < 16
    (note,) = told["notes"]
    assert note.startswith("stopped by a cap: the gateway's cap is reached")
    assert "missing" not in told  # what was never asked for is not missing
    assert account.spent.amount_in(caps.get("unit", "samples")) <= caps["cap"]


def test_c19_a_wave_that_a_cap_has_no_room_for_is_cut(tmp_path: Path):
    FixedPolicy(8).save(tmp_path / "eight")
    with Upstream() as up, Running(up.url, policy=str(tmp_path / "eight"), cap=10) as gate:
        first, second = gate.ask(), gate.ask()
        assert first.json["adacompute"]["samples"] == 8
        told = second.json["adacompute"]
        assert told["samples"] == 2
        assert any("stopped by a cap" in note for note in told["notes"])
        refused(gate.ask())
        refused(gate.ask(n=3))
        assert ledger_of(gate).spent.samples == up.count.choices == 10


def test_c19_without_a_limit_of_its_own_a_request_gets_the_operators_where_tokens_are_capped():
    with Upstream(Honest()) as up, Running(up.url, cap=3000, unit="tokens", max_tokens=500) as gate:
        assert gate.ask(headers=ONE).status == 200
        assert up.requests[-1].body["max_tokens"] == 500
        refused(gate.ask(headers=ONE, n=6), "may take")
        assert up.count.requests == 1


def test_c14_of_several_limits_the_largest_is_reserved_whichever_the_upstream_keeps_to():
    other = "max_completion_tokens"

    def script(_number: int, body: dict[str, Any]) -> Reply:
        return Reply(tokens=body[other], delay=0.1)

    with Upstream(script) as up, Running(up.url, cap=3000, unit="tokens") as gate:
        answers = crowd(gate, [Visit(body={"max_tokens": 1, other: 900}, headers=ONE)] * 20)
        settled(gate)
    assert {answer.status for answer in answers} == {200, 429}
    assert 900 <= up.count.prompt_tokens + up.count.completion_tokens <= 3000


@pytest.mark.parametrize(
    ("caps", "words"),
    [
        ({"key_cap": "0.0001 EUR"}, "cap of 0.0001 EUR"),
        ({"key_cap": 0.0001, "unit": "money"}, "cap of 0.0001 EUR"),
        ({"key_cap": "9 tokens"}, "cap of 9 tokens"),
    ],
)
def test_a_cap_may_name_its_unit_and_is_told_in_its_currency(caps: dict[str, Any], words: str):
    prices = {"input_price": 2.0, "output_price": 8.0, "currency": "EUR"}
    budget = {"budget": "2 samples", "max_budget": "4 samples"}
    with Upstream(Honest(tokens=30)) as up, Running(up.url, endpoint=prices, **budget, **caps) as gate:
        answer = gate.ask(max_tokens=100)
        unit = gate.get("/dashboard/data").json["unit"]
    refused(answer, words)
    assert "money" not in answer.error["message"]
    assert unit == ("tokens" if "tokens" in words else "money")


def test_caps_in_two_units_or_another_currency_are_refused_at_the_start():
    for caps, words in (
        ({"cap": "5 USD", "key_cap": "9 tokens"}, "caps are in several units"),
        ({"cap": "5 EUR"}, "cap: .*not in USD"),
        ({"cap": "5 USD per 1000"}, "cap: .*is per request"),
        ({"cap": ""}, "cap: budget '' can't be read; give e.g. 3"),
        ({"key_cap": ""}, "key_cap: budget '' can't be read"),
    ):
        prices = {"input_price": 1.0, "output_price": 1.0}
        with (
            Upstream() as up,
            pytest.raises(ConfigError, match=words),
            Running(up.url, endpoint=prices, **caps),
        ):
            pass
