"""Batches over a menu on Ray: the answers of one process; each mode's key reaches its own upstream alone."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from collecting import problems
from drawn_on_ray import Steady
from menu_batches import PRICES, menu_policy, mode_plans

from adacompute.client import Endpoint
from adacompute.pool import open_pool
from adacompute.records import Secret
from adacompute.sampling import Answers, SourcePlan, answer
from adacompute.scale.collect import RayEngine
from upstream import Upstream

KEYS = {"small": "sk-small-0123456789", "large": "sk-large-9876543210"}


def plan_modes(ups: dict[str, Upstream]) -> list[SourcePlan]:
    return [
        replace(plan, endpoint=add_key(plan.endpoint, KEYS[plan.name])) for plan in mode_plans(ups, seed=5)
    ]


def add_key(endpoint: Endpoint, key: str) -> Endpoint:
    return replace(endpoint, key=Secret(key))


def run(path: Path, plans: list[SourcePlan]) -> Answers:
    with open_pool(path, create=True) as pool:
        return answer(problems(24), pool, plans, policy=menu_policy(), budget="90 USD per 1000")


@pytest.mark.nightly
@pytest.mark.usefixtures("on_ray")
def test_a_menu_on_the_cluster_draws_what_one_process_does_within_the_same_money(tmp_path: Path):
    with Upstream(Steady(), key=KEYS["small"]) as small, Upstream(Steady(), key=KEYS["large"]) as large:
        ups = {"small": small, "large": large}
        plans = plan_modes(ups)
        alone = run(tmp_path / "here.sqlite", plans)
        before = {name: up.count.requests for name, up in ups.items()}
        on_ray = [
            replace(plan, endpoint=RayEngine(endpoint=plan.endpoint, workers=2, place=place, modes=2))
            for place, plan in enumerate(plans)
        ]
        both = run(tmp_path / "there.sqlite", on_ray)
        served = {name: up.count.requests - before[name] for name, up in ups.items()}
    assert both.stopped is None
    assert both.failures == {}
    assert both.used <= both.limit
    assert {use.name: use.samples for use in both.modes} == served
    assert both.used == pytest.approx(
        sum(use.account.cost(PRICES[use.name], at_most=True) for use in both.modes)
    )
    assert all(item.samples for item in both.each)
    equal = sum(a.modes == b.modes for a, b in zip(alone.each, both.each, strict=True))
    assert equal >= 20, "only what the last of the money buys may differ"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here.sqlite", "there.sqlite"]


@pytest.mark.nightly
def test_the_command_answers_on_ray_and_no_key_is_on_the_disk(
    adacompute: Callable, ray_environ: dict[str, str], tmp_path: Path
):
    rows = [{"id": each.id, "question": each.question} for each in problems(12)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    menu_policy().save(tmp_path / "policy")
    with Upstream(Steady(), key=KEYS["small"]) as small, Upstream(Steady(), key=KEYS["large"]) as large:
        lines = []
        for name, up, scale in (("small", small, 1), ("large", large, 20)):
            lines += [f"[{name}]", f'upstream = "{up.url}"', f'model = "{name}-model"']
            lines += [f'key_env = "{name.upper()}_KEY"', "options = { max_tokens = 24, seed = 5 }"]
            lines += [f"input_price = {100 * scale}", f"output_price = {400 * scale}"]
        (tmp_path / "menu.toml").write_text("\n".join(lines) + "\n")
        done = adacompute(
            *("answer", "in.jsonl", "-o", "out.jsonl", "--menu", "menu.toml", "--policy", "policy"),
            *("--template", "plain", "--budget", "90 USD per 1000", "--engine", "ray", "--workers", "1"),
            "--json",
            SMALL_KEY=KEYS["small"],
            LARGE_KEY=KEYS["large"],
            **ray_environ,
        )
        served = {"small": small.count.requests, "large": large.count.requests}
    totals = json.loads(done.stdout)
    assert {name: use["samples"] for name, use in totals["modes"].items()} == served
    assert totals["used"] <= totals["limit"]
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 12
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(key.encode() in path.read_bytes() for path in files for key in KEYS.values())
    assert not (tmp_path / "out.pool.sqlite.shards").exists()
