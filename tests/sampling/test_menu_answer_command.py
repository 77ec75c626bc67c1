"""`adacompute answer --menu` as a user meets it: what it writes, what it says, and what it refuses unpaid."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from menu_batches import menu_policy, two_upstreams, unseen

from adacompute.policies import StoppingPolicy
from adacompute.pool import open_pool
from upstream import Upstream

COUNT = 30
BUDGET = ("--budget", "60 USD per 1000")


def write_menu(
    folder: Path, ups: dict[str, Upstream], *, prices: bool = True, file: str = "menu.toml"
) -> None:
    lines = []
    for name, scale in (("small", 1), ("large", 20)):
        if name in ups:
            lines += [f"[{name}]", f'upstream = "{ups[name].url}"', f'model = "{name}-model"']
            lines += ["options = { max_tokens = 24, top_k = 5 }", 'key_env = "MENU_KEY"']
            lines += [f"input_price = {100 * scale}", f"output_price = {400 * scale}"] if prices else []
    (folder / file).write_text("\n".join(lines) + "\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    problems = [each.problem for each in unseen(COUNT)["small"]]
    rows = [{"id": each.id, "question": each.question, "gold": each.gold} for each in problems]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    menu_policy().save(tmp_path / "policy")
    StoppingPolicy().save(tmp_path / "single")
    return tmp_path


def words(output: str, *more: str) -> tuple[str, ...]:
    return ("answer", "in.jsonl", "-o", output, "--menu", "menu.toml", "--template", "plain", *more)


@pytest.mark.slow
def test_it_writes_samples_and_costs_by_mode_and_says_what_each_mode_took(adacompute: Callable, folder: Path):
    with two_upstreams(unseen(COUNT)) as ups:
        write_menu(folder, ups)
        environ = {"MENU_KEY": "sk-menu-0123456789"}
        dry = adacompute(*words("out.jsonl", "--policy", "policy", *BUDGET, "--dry-run"), **environ)
        assert "at most 1.8 USD for 30 requests" in dry.stdout
        assert not any(up.count.requests for up in ups.values())
        done = adacompute(*words("out.jsonl", "--policy", "policy", *BUDGET), **environ)
        served = {name: up.count.requests for name, up in ups.items()}
        text = done.stdout
        bodies = [up.requests[0].body for up in ups.values()]
        again = adacompute(
            *words("out.jsonl", "--policy", "policy", *BUDGET, "--overwrite", "--json"), **environ
        )
        totals: dict[str, Any] = json.loads(again.stdout)
        table = adacompute(
            *words("out.csv", "--policy", "policy", *BUDGET, "--pool", "out.pool.sqlite"), **environ
        )
    assert [(body["model"], body["top_k"], body["max_tokens"]) for body in bodies] == [
        ("small-model", 5, 24),
        ("large-model", 5, 24),
    ]
    assert "USD per 1,000 requests on average, of a budget of 60 USD per 1,000 requests" in text
    for part in ("mode", "small", "large", "total", "all small once", "all large once", "would have cost"):
        assert part in text
    assert totals["used"] <= totals["limit"] == pytest.approx(1.8)
    assert set(totals["modes"]) == {"small", "large"}
    assert totals["models"] == {"small": "small-model", "large": "large-model"}
    assert totals["modes"]["large"]["calls"] >= served["large"] > 0
    rows = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert len(rows) == COUNT
    for row in rows:
        assert sum(row["modes"].values()) == row["samples"]
        assert set(row["costs"]) == set(row["modes"])
        assert row["response"] is None or row["answer"].lower() in row["response"].lower()
    cost = sum(sum(row["costs"].values()) for row in rows)
    assert cost == pytest.approx(totals["cost"])
    assert "modes,costs" in (folder / "out.csv").read_text().splitlines()[0]
    assert table.stdout
    with open_pool(folder / "out.pool.sqlite") as pool:
        assert {parameters["mode"] for _, parameters in pool.models} == {"small", "large"}
    assert b"sk-menu" not in b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())


@pytest.mark.nightly
def test_a_batch_over_a_menu_can_be_fitted_on(adacompute: Callable, folder: Path):
    with two_upstreams(unseen(COUNT)) as ups:
        write_menu(folder, ups)
        environ = {"MENU_KEY": "sk-menu-0123456789"}
        adacompute(*words("out.jsonl", "--policy", "policy", "--budget", "50 USD per 1000"), **environ)
    fitted = adacompute(
        *("fit", "out.pool.sqlite", "--policy", "menu", "--prices", "menu.toml", "--missing", "drop"),
        *("-o", "again", "--json"),
    )
    assert "small" in fitted.stdout
    assert "large" in fitted.stdout


def test_without_a_policy_cascades_decide_at_the_prices_of_the_menu(adacompute: Callable, folder: Path):
    with two_upstreams(unseen(COUNT)) as ups:
        write_menu(folder, ups)
        done = adacompute(*words("out.jsonl", *BUDGET, "--json"), MENU_KEY="sk-menu-0123456789")
        served = {name: up.count.requests for name, up in ups.items()}
    totals = json.loads(done.stdout)
    assert totals["policy"] == "menu"
    assert totals["answered"] >= COUNT - 2
    assert totals["used"] <= totals["limit"]
    assert {name: use["samples"] for name, use in totals["modes"].items()} == served
    assert min(served.values()) > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--menu", "menu.toml", "--endpoint", "http://127.0.0.1:1/v1"), "--menu says this for each mode"),
        (
            ("--endpoint", "{small}", "--model", "m"),
            "policy: a menu policy over small, large chooses among several modes",
        ),
        (("--menu", "one.toml"), "over small, large needs the mode 'large', and the menu has small"),
        (
            ("--menu", "menu.toml", "--policy", "single"),
            "draws samples of one mode, and the menu has small, large",
        ),
        (("--menu", "menu.toml", "--policy", "stopping"), "give a menu of one mode"),
        (("--menu", "menu.toml", "--budget", "3"), "is in samples, which cost differently in small, large"),
        (("--menu", "menu.toml", "--budget", "90 tokens"), "give money, e.g. '2 USD per 1000'"),
        (("--menu", "free.toml"), "needs prices, and no mode of the menu has any"),
        (("--menu", "menu.toml", "--budget", "1 USD per 1000"), "below what one sample of 'small' costs"),
        (("--menu", "gone.toml"), "gone.toml"),
    ],
)
def test_what_does_not_fit_is_named_in_one_line_before_anything_is_sent(
    adacompute: Callable, folder: Path, options: tuple[str, ...], message: str
):
    with two_upstreams(unseen(COUNT)) as ups:
        for file, chosen, prices in (("menu.toml", ups, True), ("one.toml", {"small": ups["small"]}, True),
                                     ("free.toml", ups, False)):  # fmt: skip
            write_menu(folder, chosen, prices=prices, file=file)
        filled = [part.replace("{small}", ups["small"].url) for part in options]
        first = ["answer", "in.jsonl", "-o", "out.jsonl", "--template", "plain"]
        first += [] if "--policy" in filled else ["--policy", "policy"]
        first += [] if "--budget" in filled else list(BUDGET)
        if "--endpoint" in filled and "--menu" not in filled:
            first += ["--input-price", "1", "--output-price", "1"]
        done = adacompute(*first, *filled, code=None, MENU_KEY="sk-menu-0123456789")
        assert done.returncode in (1, 2)
        assert message in done.stderr.strip().splitlines()[-1]
        assert not any(up.count.requests for up in ups.values())
    assert not (folder / "out.jsonl").exists()
