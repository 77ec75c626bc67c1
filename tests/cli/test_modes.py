"""`adacompute pool --join`: the modes of joined pools, what they cost, and what is said where it can't be."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from adacompute.cli.modes import ModeOptions, parse_joins
from adacompute.client.modes import read_prices
from adacompute.config import AnswersConfig
from adacompute.errors import ConfigError, RecordNotFound

PAIR = ("--join", "smol=small.jsonl", "--join", "qwen=large.jsonl")
PRICES = """
[smol]
input_price = 0.1
output_price = 0.2
[qwen]
input_price = 1
output_price = 2
prompt_tokens = 40
"""


def write_pool(path: Path, model: str, answers: dict[str, list[str]], **more: Any) -> Path:
    lines = [
        {
            "id": id_,
            "question": f"{id_}?",
            "gold": "4",
            "model": model,
            "samples": [{"answer": a} | more for a in row],
        }
        for id_, row in answers.items()
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def pools(tmp_path: Path) -> Path:
    """Two small pools, one with tokens; and one file with both."""
    small = write_pool(tmp_path / "small.jsonl", "s", {"p1": ["4", "5"], "p2": ["6", "6"]}, tokens=10)
    large = write_pool(tmp_path / "large.jsonl", "l", {"p1": ["4", "4"], "p2": ["4", "6"]}, tokens=30)
    (tmp_path / "both.jsonl").write_text(small.read_text() + large.read_text())
    write_pool(tmp_path / "bare.jsonl", "b", {"p1": ["4"], "p2": ["5"]})
    write_pool(tmp_path / "short.jsonl", "t", {"p1": ["4"]}, tokens=5)
    write_pool(tmp_path / "other.jsonl", "o", {"p3": ["4"]}, tokens=5)
    return tmp_path


def test_the_modes_of_joined_pools_are_shown(adacompute, pools: Path):
    body = json.loads(
        adacompute("pool", "--join", "a=small.jsonl", "--join", "b=large.jsonl", "--json").stdout
    )
    small, large = body["modes"]
    assert body["pools"] == {"a": "small.jsonl", "b": "large.jsonl"}
    assert (body["problems"], body["unit"], body["currency"]) == (2, "tokens", None)
    assert (small["mode"], small["model"], small["problems"], small["samples"]) == ("a", "s", 2, 4)
    assert (small["accuracy"]["mean"], large["accuracy"]["mean"]) == (0.25, 0.75)
    assert (small["tokens"], small["cost"], large["cost"]) == (10, 10, 30)


def test_a_person_sees_a_table_of_modes(adacompute, pools: Path):
    shown = adacompute("pool", *PAIR, "--cost", "smol=0.1", "--cost", "qwen=inf").stdout.splitlines()
    assert shown[0] == "2 modes of 2 problems"
    mode, problems, samples, _answered, accuracy, *_, tokens, cost = shown[2].split()
    assert (mode, problems, samples, accuracy, tokens, cost) == ("smol", "2", "4", "25.0%", "10.0", "0.1")
    assert shown[3].endswith("never drawn")


def test_prices_give_the_mean_cost_of_a_recorded_sample(adacompute, pools: Path):
    (pools / "prices.toml").write_text(PRICES)
    body = json.loads(adacompute("pool", *PAIR, "--prices", "prices.toml", "--json").stdout)
    assert (body["unit"], body["currency"]) == ("money", "USD")
    qwen = body["modes"][1]
    assert qwen["cost"] == pytest.approx((40 + 2 * qwen["tokens"]) / 1e6)
    assert "cost of 1,000 samples, USD" in adacompute("pool", *PAIR, "--prices", "prices.toml").stdout


def test_the_pool_itself_is_a_mode_by_its_name(adacompute, pools: Path):
    body = json.loads(adacompute("pool", "small.jsonl", "--join", "large=large.jsonl", "--json").stdout)
    assert [mode["mode"] for mode in body["modes"]] == ["small", "large"]


def test_the_sources_of_one_pool_are_its_modes(adacompute, pools: Path):
    body = json.loads(adacompute("pool", "both.jsonl", "--cost", "s=1", "--cost", "l=3", "--json").stdout)
    assert [(mode["mode"], mode["cost"]) for mode in body["modes"]] == [("s", 1), ("l", 3)]
    assert "pools" not in body
    assert len(json.loads(adacompute("pool", "both.jsonl", "--json").stdout)["sources"]) == 2


def test_a_cost_that_nothing_says_is_not_known(adacompute, pools: Path):
    words = ("pool", "--join", "a=small.jsonl", "--join", "b=bare.jsonl")
    assert json.loads(adacompute(*words, "--json").stdout)["modes"][1]["cost"] is None
    assert adacompute(*words).stdout.count("not known") == 3


def test_problems_that_a_mode_lacks_can_be_dropped(adacompute, pools: Path):
    words = ("pool", "--join", "a=small.jsonl", "--join", "b=short.jsonl")
    done = adacompute(*words, code=1)
    assert "mode 'b' has no sample of 1 of the 2 problems of mode 'a', e.g. 'p2'" in done.stderr
    assert json.loads(adacompute(*words, "--missing", "drop", "--json").stdout)["problems"] == 1


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        ((), 2, "POOL: give a pool, or --join NAME=POOL"),
        (("--join", "a=facts"), 2, "--join: 'a=facts' alone is no menu"),
        (("--join", "facts"), 2, "--join: 'facts' is not NAME=POOL; give e.g. smol=facts"),
        (("facts", "--join", "facts=words"), 2, "--join: mode 'facts' is there twice"),
        ((*PAIR, "--cost", "smoll=1"), 1, "there is no mode 'smoll' in the pool; did you mean smol?"),
        ((*PAIR, "--cost", "smol"), 2, "--cost: 'smol' is not NAME=NUMBER"),
        ((*PAIR, "--cost", "smol=x"), 2, "--cost: 'x' of mode 'smol' is not a number; give e.g. smol=0.1"),
        ((*PAIR, "--cost", "smol=1", "--cost", "smol=2"), 2, "--cost: mode 'smol' has two costs"),
        ((*PAIR, "--cost", "smol=-1"), 1, "cost -1.0 of mode 'smol' is not a cost"),
        ((*PAIR, "--prices", "none.toml"), 1, "the prices file 'none.toml' can't be read"),
        ((*PAIR, "--budgets", "1,2"), 2, "--budgets: is for one pool"),
        ((*PAIR, "--verify"), 2, "--verify: is for one pool"),
        (("--join", "a=small.jsonl", "--join", "b=none.sqlite"), 1, "none.sqlite: there is no such pool"),
        (("--join", "a=small.jsonl", "--join", "b=other.jsonl"), 1, "has no sample of 2 of the 2 problems"),
    ],
)
def test_what_cannot_be_joined_is_said_in_one_line(adacompute, pools: Path, words, code: int, why: str):
    done = adacompute("pool", *words, code=code)
    assert done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if line.startswith(("Error:", "adacompute:"))]
    assert why in line


def test_costs_and_prices_together_are_refused(adacompute, pools: Path):
    (pools / "prices.toml").write_text(PRICES)
    done = adacompute("pool", *PAIR, "--prices", "prices.toml", "--cost", "smol=1", code=2)
    assert "leave one out" in done.stderr


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no mode; give a table for each"),
        ("small = 3", r"\[small\]: is 3, no table"),
        ("[small]\ninput_price = 1", r"\[small\]: has no output_price"),
        (
            "[small]\ninput_price = 1\noutput_prise = 2",
            r"unknown setting 'output_prise'; did you mean output_price\?",
        ),
        (
            "[small]\ninput_price = -1\noutput_price = 2",
            r"\[small\]: input_price is -1; give a number",
        ),
        ("[small]\ninput_price = 'x'\noutput_price = 2", r"\[small\]: input_price is 'x'; give a number"),
        ("[small]\ninput_price = 1\noutput_price = 2\ncurrency = 3", "currency is 3; give its name"),
        ("[small", "is not valid TOML"),
    ],
)
def test_a_bad_file_of_prices_is_named_with_its_mode(tmp_path: Path, text: str, why: str):
    path = tmp_path / "prices.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=why):
        read_prices(path)


def test_the_file_of_a_menu_is_a_file_of_prices(tmp_path: Path):
    """What says how a mode is asked is of no account here, so that one file serves for both."""
    path = tmp_path / "menu.toml"
    path.write_text(
        '[small]\nmodel = "m"\nupstream = "http://x"\ninput_price = 1\noutput_price = 2.5\ncurrency = "EUR"'
    )
    prices = read_prices(path)
    assert (prices["small"].input, prices["small"].output, prices["small"].currency) == (1, 2.5, "EUR")


def test_read_menu_gives_the_votes_and_the_menu(pools: Path):
    joins = [f"small={pools / 'small.jsonl'}", f"large={pools / 'large.jsonl'}"]
    ballots, menu = ModeOptions(join=joins, costs=["large=2", "small=1"]).read(AnswersConfig())
    assert ballots.names == ("small", "large")
    assert (menu.names, menu.costs.tolist()) == (("small", "large"), [1, 2])
    ballots, menu = ModeOptions(source=pools / "both.jsonl").read(AnswersConfig())
    assert (ballots.names, menu.unit, menu.names) == (("s", "l"), "tokens", ("s", "l"))
    joined: dict[str, Any] = {"source": pools / "small.jsonl", "join": [f"t={pools / 'short.jsonl'}"]}
    with pytest.raises(RecordNotFound):
        ModeOptions(**joined).read(AnswersConfig())
    ballots, _ = ModeOptions(**joined, missing="drop").read(AnswersConfig())
    assert ballots.ids == ("p1",)


def test_a_path_may_hold_an_equals_sign():
    assert parse_joins(None, ["a=x=y.sqlite", "b=z"]) == {"a": Path("x=y.sqlite"), "b": Path("z")}
    with pytest.raises(typer.BadParameter, match="NAME=POOL"):
        parse_joins(None, ["=x"])


def test_what_more_samples_are_worth_is_not_told_of_one_sample_a_mode(adacompute, tmp_path: Path):
    for name, right in (("small", 2), ("large", 1)):
        answers = {f"p{i}": ["5" if i % 4 < right else "4"] for i in range(40)}
        write_pool(tmp_path / f"{name}.jsonl", name, answers)
    done = adacompute("evaluate", *PAIR, "--cost", "smol=1", "--cost", "qwen=10", "--no-groups")
    assert "a problem has at most 1 of 'smol', 1 of 'qwen'" in " ".join(done.stdout.split())
    assert "votes weighted by mode, 40 orders" in done.stdout, "no log-probability is recorded"
    assert "and stopping." not in done.stdout
    assert "didn't help" not in done.stdout


def test_a_mode_is_cut_to_what_the_problem_with_fewest_samples_has(adacompute, tmp_path: Path):
    for name, samples in (("small", 5), ("large", 4)):
        answers = {f"p{i}": ["5" if i % 4 < j else "4" for j in range(samples)] for i in range(12)}
        write_pool(tmp_path / f"{name}.jsonl", name, answers | {"p7": ["4", "5"]})
    words = ("evaluate", *PAIR, "--cost", "smol=1", "--cost", "qwen=10", "--no-groups", "--orders", "2")
    body = json.loads(adacompute(*words, "--folds", "2", "--json").stdout)
    most = [row["draws"]["smol"] for row in body["matched"] if row["policy"] == "uniform: smol"]
    assert 0 < max(most) <= 2
