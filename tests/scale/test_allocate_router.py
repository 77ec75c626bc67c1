"""A router's modes and budgets in files: those that `choose` gives at the price, within the average cost."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from menu_votes import make_menu_votes, make_prompt
from prompt_files import file_of

from adacompute.errors import BudgetOutOfRange, NotFitted, ScaleError
from adacompute.policies.baselines import FixedPolicy
from adacompute.policies.curve import CurvePolicy
from adacompute.pool import Mode
from adacompute.pool.modes import Menu
from adacompute.records import AccuracyTable
from adacompute.scale.allocate import allocate
from adacompute.solve import solve

MENU = Menu(modes=(Mode(name="small", cost=0.1), Mode(name="large", cost=1.0)))


@pytest.fixture(scope="module")
def router() -> CurvePolicy:
    return CurvePolicy(menu=MENU, budgets=(1, 2, 4)).fit(make_menu_votes())


def make_prompts(count: int = 200) -> list[str]:
    rng = np.random.default_rng(5)
    return [make_prompt(rng, hard=bool(rng.random() < 0.5)) for _ in range(count)]


def write_jsonl(path: Path, prompts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"id": i, "prompt": p}) + "\n" for i, p in enumerate(prompts)))
    return path


def read_draws(path: Path) -> list[tuple[str, int]]:
    if path.suffix == ".parquet":
        rows = pq.ParquetFile(path).read().to_pylist()
    elif path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    else:
        rows = list(csv.DictReader(path.read_text().splitlines()))
    return [(row["mode"], int(row["budget"])) for row in rows]


def name_draws(router: CurvePolicy, columns: np.ndarray) -> list[tuple[str, int]]:
    return [router.columns[place].draws[0] for place in columns]


@pytest.mark.parametrize("budget", [0.1, 0.3, 0.75, 2.0])
def test_modes_and_budgets_are_those_of_solve_on_the_predicted_table(
    tmp_path: Path, router: CurvePolicy, budget: float
):
    prompts = make_prompts()
    source, into = file_of(tmp_path / "in.parquet", prompts), tmp_path / "out.parquet"
    result = allocate(source, router, budget=budget, into=into)
    curves = np.clip(router.predict_curve(prompts), 0.0, 1.0)
    plan = solve(AccuracyTable.of(curves, costs=router.costs), budget=budget)
    assert read_draws(into) == name_draws(router, plan.choice)
    assert result.cost == pytest.approx(plan.cost)
    assert result.cost <= budget * (1 + 1e-9)
    assert result.unit == "cost"
    assert result.modes == tuple(column.draws[0][0] for column in router.columns)
    assert sum(result.counts) == len(prompts)
    written = pq.ParquetFile(into).read()
    assert written.column_names == ["id", "prompt", "kind", "notes", "mode", "budget"]
    assert written.select(["id", "prompt", "kind", "notes"]).equals(pq.ParquetFile(source).read())


@pytest.mark.parametrize("price", [0.0, 0.05, 0.3, 5.0])
def test_at_a_price_they_are_what_choose_gives(tmp_path: Path, router: CurvePolicy, price: float):
    prompts = make_prompts(50)
    source, into = write_jsonl(tmp_path / "in.jsonl", prompts), tmp_path / "out.jsonl"
    allocate(source, router, price=price, into=into)
    assert read_draws(into) == name_draws(router, router.choose(prompts, price))


def test_text_and_parquet_give_the_same_and_keep_their_rows(tmp_path: Path, router: CurvePolicy):
    prompts = make_prompts(60)
    lines = write_jsonl(tmp_path / "in.jsonl", prompts)
    table = tmp_path / "in.csv"
    with table.open("w", newline="") as out:
        csv.writer(out).writerows([["id", "prompt"], *enumerate(prompts)])
    sources = [lines, table, file_of(tmp_path / "in.parquet", prompts)]
    results = []
    for source in sources:
        into = tmp_path / f"out{source.suffix}"
        allocate(source, router, budget=0.5, into=into)
        results.append(read_draws(into))
    assert results[0] == results[1] == results[2]
    for before, after in zip(
        lines.read_text().splitlines(), (tmp_path / "out.jsonl").read_text().splitlines(), strict=True
    ):
        assert after.startswith(before[:-1] + ', "mode": "')
    assert (tmp_path / "out.csv").read_text().startswith("id,prompt,mode,budget\n")


def run_command(*arguments: str) -> str:
    command = [sys.executable, "-m", "adacompute", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.mark.nightly
def test_the_command_writes_modes_and_tells_of_them(tmp_path: Path, router: CurvePolicy):
    router.save(tmp_path / "policy")
    source, into = write_jsonl(tmp_path / "in.jsonl", make_prompts(40)), tmp_path / "out.jsonl"
    arguments = ["allocate", str(source), "--policy", str(tmp_path / "policy"), "--budget", "0.5"]
    told = json.loads(run_command(*arguments, "-o", str(into), "--json"))
    assert told["modes"] == ["small", "small", "small", "large", "large", "large"]
    assert told["budgets"] == [1, 2, 4, 1, 2, 4]
    assert told["unit"] == "cost"
    assert told["cost"] <= 0.5
    if told["mix"] is not None:
        assert told["mix"]["mode"] in ("small", "large")
    draws = read_draws(into)
    assert told["counts"] == [draws.count(column.draws[0]) for column in router.columns]
    text = run_command(*arguments, "-o", str(into), "--overwrite")
    assert "mode" in text.splitlines()[0]
    assert f"{told['cost']:.4g} cost of 0.5 asked for" in text
    assert "of accuracy per unit of cost" in text


def test_what_a_router_cant_write_is_refused(tmp_path: Path, router: CurvePolicy):
    taken = tmp_path / "in.jsonl"
    taken.write_text('{"prompt": "What is 2?", "mode": "fast"}\n')
    with pytest.raises(ScaleError, match="line 1: has 'mode' already, which is what would be added"):
        allocate(taken, router, budget=0.5, into=tmp_path / "out.jsonl")
    source = write_jsonl(tmp_path / "fine.jsonl", make_prompts(5))
    with pytest.raises(BudgetOutOfRange, match=r"budget 0\.05 .*0\.1 cost"):
        allocate(source, router, budget=0.05, into=tmp_path / "out.jsonl")
    with pytest.raises(NotFitted):
        allocate(source, CurvePolicy(menu=MENU), budget=0.5, into=tmp_path / "out.jsonl")


def test_a_column_called_mode_is_kept_where_no_mode_is_chosen(tmp_path: Path):
    source = tmp_path / "in.jsonl"
    source.write_text('{"prompt": "What is 2?", "mode": "fast"}\n')
    allocate(source, FixedPolicy(2.0), budget=2.0, into=tmp_path / "out.jsonl")
    assert json.loads((tmp_path / "out.jsonl").read_text()) == {
        "prompt": "What is 2?",
        "mode": "fast",
        "budget": 2,
    }


@pytest.mark.nightly
@pytest.mark.usefixtures("on_ray")
def test_on_ray_every_prompt_gets_the_same_mode_and_budget(tmp_path: Path, router: CurvePolicy):
    source = file_of(tmp_path / "in.parquet", make_prompts(300), group=50)
    local = allocate(source, router, budget=0.6, into=tmp_path / "local.parquet")
    ray = allocate(source, router, budget=0.6, into=tmp_path / "ray.parquet", engine="ray", workers=2)
    assert read_draws(tmp_path / "local.parquet") == read_draws(tmp_path / "ray.parquet")
    assert (local.price, local.counts, local.mix, local.modes) == (ray.price, ray.counts, ray.mix, ray.modes)
