"""Settings: later wins, and what can't be used is named with its place and a remedy."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from adacompute.config import (
    Config,
    EndpointConfig,
    KeyConfig,
    ServeConfig,
    _build_section,
    average_budget,
    load_config,
    read_keys,
)
from adacompute.errors import BudgetInvalid, ConfigError
from adacompute.records import Budget, Secret


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_file_and_environment_there_are_the_defaults():
    assert load_config(environ={}) == Config()


def test_the_environment_outranks_the_file_and_the_file_the_defaults(tmp_path: Path):
    (tmp_path / "adacompute.toml").write_text(
        '[answers]\nextract = "boxed"\npercent = "fraction"\n[score]\nbudgets = [1, 3]\n'
    )
    config = load_config(environ={"ADACOMPUTE_ANSWERS_EXTRACT": "hash", "PATH": "/bin"})
    assert (config.answers.extract, config.answers.percent) == ("hash", "fraction")
    assert config.score.budgets == (1, 3)


def test_the_named_file_outranks_the_one_in_the_environment(tmp_path: Path):
    (tmp_path / "a.toml").write_text('[answers]\nextract = "boxed"\n')
    (tmp_path / "b.toml").write_text('[answers]\nextract = "line"\n')
    environ = {"ADACOMPUTE_CONFIG": "a.toml"}
    assert load_config(environ=environ).answers.extract == "boxed"
    assert load_config(Path("b.toml"), environ=environ).answers.extract == "line"


def test_a_list_can_come_from_the_environment():
    assert load_config(environ={"ADACOMPUTE_SCORE_BUDGETS": "1, 2,5"}).score.budgets == (1, 2, 5)


@pytest.mark.parametrize(
    ("toml", "parts"),
    [
        ('[answer]\nextract = "boxed"\n', ["adacompute.toml", "'answer'", "did you mean answers?"]),
        ("[answers]\nextrakt = 1\n", ["adacompute.toml, [answers]", "'extrakt'", "did you mean extract?"]),
        ("[answers]\nextract = 1\n", ["adacompute.toml, [answers]: extract is 1", "give a text"]),
        ('[answers]\npercent = "half"\n', ["percent is 'half'", "unit, fraction"]),
        ("[score]\nbudgets = 4\n", ["budgets is 4", "give a list"]),
        ('[score]\nbudgets = ["x"]\n', ["budgets is 'x'", "a whole number"]),
        ("[score]\nbudgets = [true]\n", ["budgets is True", "a whole number"]),
        ("[score]\nbudgets = [2, 1]\n", ["[score]", "budgets [2, 1]", "ascending"]),
        ("[score]\nbudgets = []\n", ["budgets []", "from 1 up"]),
        ("answers = 3\n", ["unknown section 'answers'"]),
        ("[answers\n", ["adacompute.toml", "not valid TOML"]),
    ],
)
def test_what_cannot_be_used_is_named_with_place_and_remedy(tmp_path: Path, toml: str, parts: list[str]):
    (tmp_path / "adacompute.toml").write_text(toml)
    with pytest.raises(ConfigError) as caught:
        load_config(environ={})
    assert "\n" not in str(caught.value)
    assert all(part in str(caught.value) for part in parts), str(caught.value)


@pytest.mark.parametrize(
    ("variable", "value", "parts"),
    [
        ("ADACOMPUTE_SCORE_BUDGETS", "one", ["ADACOMPUTE_SCORE_BUDGETS", "'one'", "a whole number"]),
        ("ADACOMPUTE_ANSWERS_EXTRAC", "x", ["ADACOMPUTE_ANSWERS_EXTRAC", "did you mean extract?"]),
        ("ADACOMPUTE_CONFIG", "no.toml", ["'no.toml'", "No such file"]),
    ],
)
def test_a_bad_variable_is_named(variable: str, value: str, parts: list[str]):
    with pytest.raises(ConfigError) as caught:
        load_config(environ={variable: value})
    assert all(part in str(caught.value) for part in parts), str(caught.value)


def test_variables_of_other_programs_are_left_alone():
    assert load_config(environ={"ADACOMPUTE_": "", "ADACOMPUTER": "1", "HOME": "/"}) == Config()


def test_settings_that_do_not_go_together_are_blamed_on_every_place_they_come_from():
    @dataclass(frozen=True)
    class Range:
        low: int = 0
        high: int = 1

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ConfigError(f"low {self.low} is above high {self.high}")

    places = {"low": "a.toml, [range]", "high": "environment variable HIGH"}
    with pytest.raises(ConfigError, match=r"a\.toml, \[range\] and environment variable HIGH: low 3"):
        _build_section(Range, {"low": 3, "high": 2}, places)


ALICE, BOB = "alice-0123456789abcdef", "bob-0123456789abcdef"


def test_keys_are_read_from_their_file_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BOB", BOB + "\n")
    file = tmp_path / "keys.toml"
    file.write_text(f'[alice]\nkey = "{ALICE}"\ncap = 100\n["b.o-b_1"]\nkey_env = "BOB"\noperator = true\n')
    assert read_keys(file) == (
        KeyConfig(name="alice", key=Secret(ALICE), cap=100.0, operator=False),
        KeyConfig(name="b.o-b_1", key=Secret(BOB), cap=None, operator=True),
    )


@pytest.mark.parametrize(
    ("toml", "parts"),
    [
        ("", ["holds no key", "[alice]"]),
        (f'key = "{ALICE}"\n', ["before the first section"]),
        (f'{ALICE} = "alice"\n', ["before the first section"]),
        ("[alice\n", ["not valid TOML"]),
        ("[alice]\ncap = 1\n", ["[alice]", "either key or key_env"]),
        (f'[alice]\nkey = "{ALICE}"\nkey_env = "X"\n', ["[alice]", "either key or key_env"]),
        (f'[alice]\nkey = "{ALICE}"\ncapp = 1\n', ["[alice]", "'capp'", "did you mean cap?"]),
        (f'[alice.b]\nkey = "{ALICE}"\n', ["[alice]", "unknown setting 'b'"]),
        (f'["a b"]\nkey = "{ALICE}"\n', ["[a b]", "rename the section"]),
        (f'[{"a" * 65}]\nkey = "{ALICE}"\n', ["1 to 64", "rename the section"]),
        ('[alice]\nkey = "short-canary-15"\n', ["[alice]: key", "fewer than 16", "`openssl rand -hex 24`"]),
        ("[alice]\nkey = 12345678901234567\n", ["[alice]: key", "`openssl rand -hex 24`"]),
        ('[alice]\nkey_env = "NONE"\n', ["variable NONE", "is not set"]),
        ("[alice]\nkey_env = 3\n", ["key_env is 3", "a text"]),
        (f'[alice]\nkey = "{ALICE} x"\n', ["[alice]: key", "blanks or special"]),
        (f'[alice]\nkey = "{ALICE}ü"\n', ["[alice]: key", "blanks or special"]),
        (f'[alice]\nkey = "{ALICE}"\n[bob]\nkey = "{ALICE}"\n', ["[bob]", "the key of [alice]"]),
        (f'[alice]\nkey = "{ALICE}"\ncap = 0\n', ["cap is 0", "above 0"]),
        (f'[alice]\nkey = "{ALICE}"\ncap = nan\n', ["cap is nan", "a number"]),
        (f'[alice]\nkey = "{ALICE}"\ncap = true\n', ["cap is True", "a number"]),
        (f'[alice]\nkey = "{ALICE}"\noperator = 2\n', ["operator is 2", "true or false"]),
    ],
)
def test_c21_a_keys_file_that_cannot_be_used_is_named_and_no_key_shown(
    tmp_path: Path, toml: str, parts: list[str]
):
    file = tmp_path / "keys.toml"
    file.write_text(toml)
    with pytest.raises(ConfigError) as caught:
        read_keys(file)
    message = str(caught.value)
    assert "keys.toml" in message
    assert all(part in message for part in parts), message
    assert "\n" not in message
    assert not any(secret in message for secret in (ALICE, "short-canary", "12345678901234567"))


def test_a_keys_file_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"keys file .*no\.toml.*No such file"):
        read_keys(tmp_path / "no.toml")


def test_a_fleet_without_its_redis_is_refused():
    with pytest.raises(ConfigError, match=r"fleet 'chat' is shared through Redis, and redis isn't given"):
        ServeConfig(fleet="chat")
    assert ServeConfig(fleet="chat", redis="redis://127.0.0.1:6379/0").fleet == "chat"


@pytest.mark.parametrize(
    ("serve", "endpoint", "budget"),
    [
        ({}, {}, Budget(2.0)),
        ({"unit": "money"}, {}, Budget(2.0)),  # caps in money; the default stays in samples
        ({"budget": 3}, {}, Budget(3.0)),
        ({"budget": "3 samples", "unit": "tokens"}, {}, Budget(3.0)),
        ({"budget": 500, "unit": "tokens"}, {}, Budget(500.0, "tokens")),
        ({"budget": "2 USD per 1000"}, {"output_price": 1.0}, Budget(0.002, "money", "USD")),
        ({"budget": 0.002, "unit": "money"}, {"input_price": 1.0}, Budget(0.002, "money", "USD")),
        (
            {"budget": "2 eur per 1000"},
            {"output_price": 1.0, "currency": "EUR"},
            Budget(0.002, "money", "EUR"),
        ),
    ],
)
def test_the_average_budget_has_its_unit_from_its_text_or_from_the_settings(serve, endpoint, budget):
    assert average_budget(Config(serve=ServeConfig(**serve), endpoint=EndpointConfig(**endpoint))) == budget


def test_a_budget_that_a_menu_cant_have_is_answered_with_one_that_it_can():
    with pytest.raises(
        ConfigError, match=r"budget 2e-05 can't be used; modes cost differently, so give money"
    ):
        ServeConfig(menu="menu.toml", budget="0.02 per 1000")
    settings = ServeConfig(menu="menu.toml", budget="2 USD per 1000")
    with pytest.raises(BudgetInvalid, match=r"give them in each table of menu\.toml, or a budget in tokens$"):
        average_budget(Config(serve=settings))


@pytest.mark.parametrize("price", ["input_price", "output_price"])
def test_a_budget_in_money_needs_prices_in_its_currency(price: str):
    settings = ServeConfig(budget="2 USD per 1000")
    with pytest.raises(BudgetInvalid, match=r"2 USD per 1,000 requests needs prices, and input_price and"):
        average_budget(Config(serve=settings))
    with pytest.raises(BudgetInvalid, match="is not in EUR, the currency of the prices"):
        average_budget(Config(serve=settings, endpoint=EndpointConfig(**{price: 1.0}, currency="EUR")))


def test_a_budget_may_be_a_number_or_a_text_in_file_and_environment(tmp_path: Path):
    for text, budget in (("3", 3.0), ("2.5", 2.5), ('"500 tokens"', "500 tokens"), ('"4"', 4.0)):
        (tmp_path / "adacompute.toml").write_text(f"[serve]\nbudget = {text}\n")
        assert load_config(environ={}).serve.budget == budget
    assert load_config(environ={"ADACOMPUTE_SERVE_BUDGET": "2 USD per 1000"}).serve.budget == "2 USD per 1000"
    assert load_config(environ={"ADACOMPUTE_SERVE_BUDGET": "3"}).serve.budget == 3.0
    (tmp_path / "adacompute.toml").write_text("[serve]\nbudget = true\n")
    with pytest.raises(ConfigError, match="budget is True; give a number or a text"):
        load_config(environ={})


@pytest.mark.parametrize("currency", ["", "tokens", "US dollars", "$"])
def test_a_currency_that_no_budget_could_name_is_refused(currency: str):
    with pytest.raises(ConfigError, match="give its name"):
        EndpointConfig(currency=currency)
