"""`fit`, `replay`, `evaluate` and `report` of a menu, on two tiny pools; and the errors of each."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from adacompute.cli.modes import parse_mode_budget
from adacompute.errors import BudgetOutOfRange
from adacompute.policies import MenuPolicy, load_policy
from adacompute.pool import Mode
from adacompute.pool.modes import Menu

PAIR = ("--join", "a=small.jsonl", "--join", "b=large.jsonl")
COSTS = ("--cost", "a=0.1", "--cost", "b=1")
PRICES = "[a]\ninput_price = 1\noutput_price = 10\n[b]\ninput_price = 10\noutput_price = 100\n"
MONEY = Menu(modes=(Mode(name="a", cost=0.0001), Mode(name="b", cost=0.002)), unit="money", currency="USD")
PLAIN = Menu(modes=(Mode(name="a", cost=0.1), Mode(name="b", cost=1.0)))


def write_pool(path: Path, model: str, right: tuple[float, ...], seed: int) -> None:
    """Twelve problems, each easy, middling or hard for the model, with five samples."""
    rng = random.Random(seed)
    lines = []
    for number in range(12):
        answers = ["4" if rng.random() < right[number % 3] else str(rng.randint(5, 9)) for _ in range(5)]
        samples = [{"answer": answer, "tokens": 10} for answer in answers]
        line = {"id": f"p{number}", "question": f"Question {number}?", "gold": "4", "samples": samples}
        lines.append(json.dumps({**line, "model": model}) + "\n")
    path.write_text("".join(lines))


@pytest.fixture
def pools(tmp_path: Path) -> Path:
    write_pool(tmp_path / "small.jsonl", "a", (0.95, 0.5, 0.1), 1)
    write_pool(tmp_path / "large.jsonl", "b", (0.98, 0.9, 0.8), 2)
    (tmp_path / "both.jsonl").write_text(
        (tmp_path / "small.jsonl").read_text() + (tmp_path / "large.jsonl").read_text()
    )
    (tmp_path / "prices.toml").write_text(PRICES)
    return tmp_path


@pytest.fixture
def fitted(adacompute: Any, pools: Path) -> dict[str, Any]:
    words = ("fit", "--policy", "menu", *PAIR, *COSTS, "--budget", "0.5", "-o", "policy", "--json")
    return dict(json.loads(adacompute(*words).stdout))


def test_a_menu_is_fitted_saved_and_replayed_at_its_budget(adacompute, pools: Path, fitted: dict[str, Any]):
    assert (fitted["policy"], fitted["unit"], fitted["problems"], fitted["labels"]) == (
        "menu",
        "cost",
        12,
        12,
    )
    assert [mode["mode"] for mode in fitted["modes"]] == ["a", "b"]
    assert fitted["calibrated"]["cost"] <= 0.5 * 1.01
    assert isinstance(load_policy(pools / "policy"), MenuPolicy)
    words = ("replay", *PAIR, "--policy", "policy", "--budget", "0.5", "--orders", "20")
    body = json.loads(adacompute(*words, "--json").stdout)
    assert body["pools"] == {"a": "small.jsonl", "b": "large.jsonl"}
    assert body["cost"] == pytest.approx(0.1 * body["draws"]["a"] + body["draws"]["b"])
    shown = adacompute(*words)
    assert "in-sample: the policy was fitted on 12 of these 12 problems" in shown.stderr
    assert "samples a request:" in shown.stdout


def test_a_pool_with_several_sources_is_a_menu_and_prices_make_it_money(adacompute, pools: Path):
    words = ("fit", "both.jsonl", "--policy", "menu", "--prices", "prices.toml", "-o", "policy")
    done = adacompute(*words, "--budget", "0.6 USD per 1000")
    shown = done.stdout
    assert "fitting both.jsonl: 0 of 1, " in done.stderr, "before the first step has ended"
    assert "0.6 USD per 1,000 requests is a price of" in shown
    assert "a 0.10" in shown
    shown = adacompute("replay", "both.jsonl", "--policy", "policy", "--budget", "0.0006").stdout
    assert "USD per 1,000 requests on average" in shown


def test_a_menu_is_evaluated_beside_its_modes(adacompute, pools: Path):
    words = (
        "evaluate",
        *PAIR,
        *COSTS,
        "--folds",
        "2",
        "--budgets",
        "0.5,1",
        "--orders",
        "4",
        "--workers",
        "1",
    )
    done = adacompute(*words)
    shown = done.stdout
    assert "evaluating small.jsonl and large.jsonl: 0 of 2, " in done.stderr, (
        "before the first step has ended"
    )
    assert "small.jsonl and large.jsonl: 12 problems, held-out (2 folds)" in shown
    for title in ("so much on average: cost", "gain of the menu", "what the menu draws", "as good as"):
        assert title in shown
    first = {line.split("  ")[1] for line in shown.splitlines() if line.startswith("  ")}
    assert {"menu", "best fixed mix", "uniform: a", "sequential cascade", "oracle"} <= first


@pytest.mark.slow
def test_the_page_of_a_menu_has_its_frontier_its_modes_and_its_limits(adacompute, pools: Path):
    shown = adacompute(
        "report", *PAIR, "--prices", "prices.toml", "-o", "page", "--quick", "--workers", "1"
    ).stdout
    assert shown.endswith("page/report.html\n")
    page = (pools / "page" / "report.html").read_text()
    for words in ("USD per 1,000 requests", "Whom it asks", "When it isn&#x27;t worth it", "without a menu"):
        assert words in page
    results = json.loads((pools / "page" / "results.json").read_text())
    drawn = results["sections"]["verdict"]["figures"]["frontier-few"]
    assert set(drawn) >= {"menu", "better cascade", "without a menu"}
    assert (pools / "page" / "tables" / "budgets.csv").read_text().startswith('"USD per 1,000 requests",')


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("fit", *PAIR), 2, "--join: is for --policy menu, not stopping"),
        (("fit",), 2, "POOL: give a pool"),
        (("fit", "--policy", "menu"), 2, "POOL: give a pool, or --join NAME=POOL"),
        (
            ("fit", "--policy", "menu", *PAIR, "--delta", "0.1"),
            2,
            "--delta: is for --policy guarantee, not menu",
        ),
        (("fit", "--policy", "menu", *PAIR, "--input-price", "1"), 2, "--input-price: each mode has its own"),
        (("fit", "--policy", "menu", *PAIR, "--model", "a"), 2, "--model: the modes are the sources"),
        (
            ("fit", "--policy", "menu", *PAIR, *COSTS, "--budget", "0.05"),
            1,
            "budget 0.05 is below one sample",
        ),
        (("fit", "--policy", "menu", *PAIR, *COSTS, "--budget", "2 USD"), 2, "--budget: '2 USD' is in USD"),
        (("fit", "--policy", "menu", *PAIR, "--cost", "a=0.1"), 2, "mode 'b' is joined and has no cost"),
        (("fit", "--policy", "menu", *PAIR, "--cost", "a=inf", "--cost", "b=inf"), 2, "give one a finite"),
        (("evaluate", *PAIR, "--cost", "a=0", "--cost", "b=0"), 1, "every mode is free"),
        (
            ("evaluate", *PAIR, "--cost", "a=0", "--cost", "b=1", "--budgets", "0"),
            1,
            "give that much or more, above 0",
        ),
        (("evaluate", *PAIR, "--cost", "a=1", "--cost", "b=inf"), 1, "or evaluate one mode alone"),
        (("evaluate", *PAIR, *COSTS, "--policies", "fixed"), 2, "--policies: a menu has no use for it"),
        (("evaluate", "small.jsonl", "--policies", "menu"), 2, "--policies: menu is over several modes"),
        (("evaluate", "small.jsonl", "--group", "subject"), 1, "12 of 12 problems have no 'subject'"),
        (
            ("evaluate", "small.jsonl", "--group", "level", "--no-groups"),
            2,
            "--no-groups: contradicts --group",
        ),
        (("evaluate",), 2, "POOL: give a pool, or --join"),
        (("evaluate", *PAIR, *COSTS, "--budgets", "0.3,x"), 2, "--budgets: budget 'x' can't be read"),
        (("report", "-o", "page"), 2, "POOL: give a pool, or --join"),
        (("report", *PAIR, "-o", "page", "--requests", "9"), 2, "--requests: a menu has no use for it"),
        (("replay", *PAIR, "--policy", "none", "--budget", "1"), 1, "none/policy.json: is not there"),
    ],
)
def test_what_a_menu_cannot_do_is_said_in_one_line(
    adacompute, pools: Path, words: tuple[str, ...], code: int, why: str
):
    done = adacompute(*words, code=code)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith(("Error:", "adacompute:"))]
    assert why in line


@pytest.mark.parametrize(
    ("text", "menu", "unit", "amount"),
    [
        ("0.5", PLAIN, "samples", 0.5),
        ("0.002", MONEY, "money", 0.002),
        ("2 USD per 1000", MONEY, "samples", 0.002),
        ("$2 per 1000", MONEY, "money", 0.002),
        ("2 USD per 1,000 requests", MONEY, "money", 0.002),
    ],
)
def test_a_budget_counts_in_the_unit_of_the_menu(text: str, menu: Menu, unit: Any, amount: float):
    assert parse_mode_budget(text, menu, unit=unit) == pytest.approx(amount)


@pytest.mark.parametrize(
    ("text", "menu", "unit", "why"),
    [
        ("0.5", PLAIN, "money", "'money' is not the menu's unit: the numbers of --cost"),
        ("3 samples", MONEY, "samples", "'3 samples' is in samples, and these modes in USD"),
        ("2 EUR per 1000", MONEY, "samples", "is not in USD"),
        ("much", MONEY, "samples", "budget 'much' can't be read"),
        ("0", PLAIN, "samples", "below one sample of 'a', the cheapest mode; give 0.1 or more"),
        ("0.00001", MONEY, "money", "0.01 USD per 1,000 requests is below one sample of 'a'"),
    ],
)
def test_a_budget_of_another_unit_is_refused(text: str, menu: Menu, unit: Any, why: str):
    import typer

    with pytest.raises((typer.BadParameter, BudgetOutOfRange)) as caught:
        parse_mode_budget(text, menu, unit=unit)
    assert why in str(caught.value)


@pytest.mark.slow
def test_a_budget_that_cannot_be_spent_is_said(adacompute, pools: Path, fitted: dict[str, Any]):
    shown = adacompute("replay", *PAIR, "--policy", "policy", "--budget", "50")
    assert "budget 50 is more than the menu can spend" in shown.stderr
    words = ("evaluate", *PAIR, *COSTS, "--folds", "2", "--budgets", "0.5,50", "--orders", "4")
    shown = adacompute(*words, "--workers", "1")
    assert "(* costs less: it can't spend as much)" in shown.stdout
    assert "or the most that it can spend" in " ".join(shown.stdout.split())


@pytest.mark.slow
def test_sources_of_one_pool_are_evaluated_as_modes_by_their_tokens(adacompute, pools: Path):
    words = ("evaluate", "both.jsonl", "--folds", "2", "--orders", "4", "--workers", "1")
    shown = adacompute(*words)
    assert "both.jsonl: 2 sources, taken as the modes of a menu" in shown.stderr
    assert "tokens a request" in shown.stdout
    alone = adacompute("evaluate", "both.jsonl", "--model", "a", "--folds", "2", "--workers", "1")
    assert "sources" not in alone.stderr


def test_modes_are_named_by_their_options_and_priced_by_these_names(adacompute, tmp_path: Path):
    lines = [json.loads(line) for line in write_lines(tmp_path)]
    sources = [{**line, "parameters": {"temperature": heat}} for heat in (0.2, 1.0) for line in lines]
    (tmp_path / "heats.jsonl").write_text("".join(json.dumps(line) + "\n" for line in sources))
    words = ("--cost", "a (temperature=0.2)=0.1", "--cost", "a (temperature=1.0)=1")
    shown = adacompute("fit", "heats.jsonl", "--policy", "menu", *words, "-o", "policy")
    assert "a (temperature=0.2) 0.1, a (temperature=1.0) 1 (a sample)" in shown.stdout


def write_lines(folder: Path) -> list[str]:
    write_pool(folder / "one.jsonl", "a", (0.9, 0.5, 0.2), 3)
    return (folder / "one.jsonl").read_text().splitlines()


def test_a_menu_of_one_mode_has_the_samples_that_are_recorded(adacompute, pools: Path):
    words = ("fit", "--policy", "menu", *PAIR, "--cost", "a=0.1", "--cost", "b=inf", "-o", "policy")
    shown = adacompute(*words, "--budget", "0.2", "--json")
    body = json.loads(shown.stdout)
    assert body["labels"] == 12
    assert body["calibrated"]["cost"] <= 0.2
    words = ("fit", "--policy", "menu", *PAIR, "--cost", "a=0", "--cost", "b=inf", "-o", "free")
    done = adacompute(*words, "--budget", "1", code=1)
    assert "mode 'a' is free" in done.stderr
    assert not (pools / "free").exists()  # a budget that fails leaves no policy behind


@pytest.mark.parametrize(
    "words",
    [
        ("serve", "--upstream", "http://127.0.0.1:9/v1", "--policy", "policy", "--port", "0"),
        ("answer", "prompts.jsonl", "--policy", "policy", "--budget", "2", "--endpoint", "http://127.0.0.1:9/v1",
         "-o", "answers.jsonl"),
        ("ask", "What?", "--endpoint", "http://127.0.0.1:9/v1", "--policy", "policy"),
        ("allocate", "prompts.jsonl", "--policy", "policy", "--budget", "2", "-o", "out.jsonl"),
    ],
)  # fmt: skip
def test_where_samples_of_one_model_are_drawn_a_menu_is_refused(
    adacompute, pools: Path, fitted: dict[str, Any], words: tuple[str, ...]
):
    (pools / "prompts.jsonl").write_text('{"prompt": "What is 2 + 2?"}\n')
    done = adacompute(*words, code=1)
    line = done.stderr.strip().splitlines()[-1]
    assert ("menu decides as votes come in" if words[0] == "allocate" else "menu policy over a, b") in line
    assert "--menu menu.toml" in line or words[0] == "allocate"
