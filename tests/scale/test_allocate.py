"""Budgets for a batch of prompts, beforehand, in this process: as `solve` gives them, or refused."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prompt_files import KEPT, budgets_in, file_of, folder_of, questions
from typer.testing import CliRunner

from adacompute.cli.app import app
from adacompute.errors import AdacomputeError, BudgetOutOfRange, NotFitted, PolicyError, ScaleError
from adacompute.policies.agreement import AdaptiveConsistency
from adacompute.policies.base import Policy
from adacompute.policies.baselines import FixedPolicy
from adacompute.policies.classifier import ClassifierPolicy
from adacompute.policies.curve import CurvePolicy
from adacompute.policies.stopping import StoppingPolicy
from adacompute.policies.votes import VoteState
from adacompute.pool import bundled
from adacompute.records import AccuracyTable
from adacompute.scale.allocate import AllocateProgress, allocate
from adacompute.solve import solve


@pytest.mark.slow
@pytest.mark.parametrize("budget", [1, 1.7, 2.3, 4, 16, 20])
def test_every_prompt_gets_what_solve_gives_it_on_the_predicted_curves(
    tmp_path: Path, curve: CurvePolicy, budget: float
):
    prompts = (questions() * 3)[:2000]  # every one thrice: at the price there are ties
    source = folder_of(tmp_path / "in", prompts, [700, 0, 1, 900])
    told = allocate(source, curve, budget=budget, into=tmp_path / "out")
    curves = curve.predict_curve(prompts)
    costs = np.array(curve.choices, dtype=float)
    plan = solve(AccuracyTable(accuracy=curves, costs=costs, modes=curve.choices), budget=budget)
    assert budgets_in(tmp_path / "out") == [curve.choices[column] for column in plan.choice]
    assert (told.price, told.counts, told.cost) == (plan.price, plan.counts, plan.cost)
    assert [told.mix] == list(plan.mix) or (told.mix is None and not len(plan.mix))
    assert (told.accuracy, told.bound) == pytest.approx((plan.accuracy, plan.bound), abs=1e-12)
    assert told.cost <= budget
    assert (told.problems, told.files) == (2000, 5)


def test_the_columns_types_order_and_names_of_files_are_kept(tmp_path: Path, curve: CurvePolicy):
    source = folder_of(tmp_path / "in", questions()[:500], [100, 250])
    allocate(source, curve, budget=2, into=tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "part-0.parquet",
        "part-1.parquet",
        "part-2.parquet",
    ]
    for part in (tmp_path / "out").iterdir():
        before, after = pq.read_table(source / part.name), pq.read_table(part)
        assert after.schema.names == [*KEPT.names, "budget"]
        assert after.drop_columns(["budget"]).equals(before, check_metadata=True)
        assert after.schema.field("budget").type == pa.int64()
        assert pq.ParquetFile(part).metadata.row_group(0).column(0).compression == "ZSTD"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_a_price_buys_what_the_policy_decides_at_it(tmp_path: Path, curve: CurvePolicy):
    prompts = questions()[:400]
    source = file_of(tmp_path / "in.parquet", prompts)
    told = allocate(source, curve, price=0.0123, into=tmp_path / "out.parquet")
    decided = curve.count_draws(curve.read(prompts), VoteState.empty(len(prompts)), 0.0123)
    assert budgets_in(tmp_path / "out.parquet") == decided.tolist()
    assert told.cost == decided.mean()
    assert (told.budget, told.price, told.bound, told.mix) == (None, 0.0123, None, None)


@pytest.mark.slow
def test_policies_without_a_price_give_their_own_budgets_and_say_what_that_comes_to(tmp_path: Path):
    prompts = questions()[:300]
    source = file_of(tmp_path / "in.parquet", prompts)
    with bundled("words") as pool:
        policies = [
            ClassifierPolicy(features="text").fit(pool, budget=3.0),
            FixedPolicy(3.0, mix=True),
            FixedPolicy(3.0),
        ]
    for policy in policies:
        told = allocate(source, policy, budget=3, into=tmp_path / "out.parquet", overwrite=True)
        decided = policy.count_draws(policy.read(prompts), VoteState.empty(len(prompts)), None)
        assert budgets_in(tmp_path / "out.parquet") == decided.tolist()
        assert told.cost == decided.mean()
        assert (told.price, told.accuracy, told.bound) == (None, None, None)
    assert told.notes == (
        "fixed gives 2.00 samples on average, below the 3 asked for: it has no price that could be moved",
    )


def test_a_policy_that_tells_nothing_apart_says_so(tmp_path: Path, curve: CurvePolicy):
    flat = CurvePolicy.restore(curve.settings(), {**curve.arrays(), **no_trees(curve)})
    source = file_of(tmp_path / "in.parquet", questions()[:50])
    told = allocate(source, flat, budget=2, into=tmp_path / "out.parquet")
    assert "predicts the same of every prompt" in told.notes[0]


def no_trees(curve: CurvePolicy) -> dict[str, object]:
    arrays = curve.arrays()
    return {name: arrays[name][:0] for name in arrays if name not in ("base", "rises")}


def test_progress_is_told_for_reading_and_for_writing(tmp_path: Path, curve: CurvePolicy):
    source = file_of(tmp_path / "in.parquet", questions()[:300])
    told: list[AllocateProgress] = []
    allocate(source, curve, budget=2, into=tmp_path / "out.parquet", progress=told.append)
    assert [(each.doing, each.done, each.prompts) for each in told] == [
        ("reading", 300, 300),
        ("writing", 300, 300),
    ]


def test_the_column_is_found_by_its_usual_names_or_named(tmp_path: Path, curve: CurvePolicy):
    texts = questions()[:20]
    for names, asked in ((["text", "question"], None), (["q", "text"], "q")):
        table = pa.table({names[0]: texts, names[1]: texts[::-1]})
        pq.write_table(table, tmp_path / "in.parquet")
        wanted = asked or "question"
        allocate(
            tmp_path / "in.parquet",
            curve,
            budget=2,
            into=tmp_path / "out.parquet",
            column=asked,
            overwrite=True,
        )
        allocate_alone = pa.table({"prompt": table[wanted]})
        pq.write_table(allocate_alone, tmp_path / "alone.parquet")
        allocate(tmp_path / "alone.parquet", curve, budget=2, into=tmp_path / "same.parquet", overwrite=True)
        assert budgets_in(tmp_path / "out.parquet") == budgets_in(tmp_path / "same.parquet")


def wrong_table(path: Path, kind: str) -> None:
    texts: list[str | None] = ["a", "b"]
    tables = {
        "null": {"prompt": ["a", None]},
        "numbers": {"prompt": [1, 2]},
        "nameless": {"words": texts},
        "budget": {"prompt": texts, "budget": [1, 2]},
        "empty": {"prompt": pa.array([], pa.string())},
    }
    pq.write_table(pa.table(tables.get(kind, {"prompt": texts})), path)
    if kind == "torn":
        path.write_bytes(path.read_bytes()[:-20])
    if kind == "damaged":
        data = bytearray(path.read_bytes())
        data[4:60] = b"\xff" * 56
        path.write_bytes(data)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("null", r"row 2 has no 'prompt'; .*fill or drop it"),
        ("numbers", r"column 'prompt' holds int64, not text"),
        ("nameless", r"has no column prompt, question, text, but words; say which with --column"),
        ("budget", r"has 'budget' already.*rename or drop it first"),
        ("empty", r"holds no prompts; give at least one row"),
        ("torn", r"can't be read as Parquet .*write or copy it again"),
        ("damaged", r"can't be read as Parquet .*write or copy it again"),
    ],
)
@pytest.mark.parametrize("folder", [False, True])
def test_a_file_that_can_t_be_used_is_named_with_the_remedy_and_nothing_is_written(
    tmp_path: Path, curve: CurvePolicy, kind: str, said: str, folder: bool
):
    source = tmp_path / "in.parquet"
    if folder:
        source = tmp_path / "in"
        source.mkdir()
    wrong_table(source / "b.parquet" if folder else source, kind)
    with pytest.raises(ScaleError, match=said) as found:
        allocate(source, curve, budget=2, into=tmp_path / "out")
    assert str(source) in str(found.value)
    assert "\n" not in str(found.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == [source.name]


def test_places_that_can_t_be_read_or_written_are_refused_before_any_work(tmp_path: Path, curve: CurvePolicy):
    source = file_of(tmp_path / "in.parquet", ["a"])
    folder = folder_of(tmp_path / "in", ["a", "b"], [1])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    deep, gone, pipe, loop = (tmp_path / name for name in ("deep", "gone", "pipe", "loop"))
    (deep / "day=1").mkdir(parents=True)
    for place in (deep, deep / "day=1"):
        file_of(place / "a.parquet", ["a"])
    gone.mkdir()
    (gone / "a.parquet").symlink_to("nothing")
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    for given, into, said in (
        (tmp_path / "none", tmp_path / "out", "there is no such file"),
        (tmp_path / "other", tmp_path / "out", "without .parquet files"),
        (deep, tmp_path / "out", r"day=1/a\.parquet is in a subfolder"),
        (gone, tmp_path / "out", "can't be read"),
        (source, pipe, "is neither a file nor a folder"),
        (source, loop, "is a link to itself"),
        (source, tmp_path / ("x" * 256), "can't be written"),
        (source, source, "what is read"),
        (folder, folder / "out", "what is read"),
        (folder / "part-0.parquet", folder, "what is read"),
        (source, tmp_path / "no" / "out.parquet", "create"),
        (source, tmp_path / "other", "is a folder; give the name of a file"),
        (folder, tmp_path / "other", "holds thesis.txt"),
        (folder, source, "is a file, and a folder of Parquet gives a folder"),
    ):
        with pytest.raises(ScaleError, match=said):
            allocate(given, curve, budget=2, into=into, overwrite=True)
    allocate(source, curve, budget=2, into=tmp_path / "out.parquet")
    with pytest.raises(ScaleError, match="is there already; give another name, or --overwrite"):
        allocate(source, curve, budget=2, into=tmp_path / "out.parquet")


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (StoppingPolicy, PolicyError, "decides as votes come in, not beforehand; use `adacompute answer`"),
        (AdaptiveConsistency, PolicyError, "decides as votes come in"),
        (CurvePolicy, NotFitted, "has learned nothing yet"),
        (lambda: FixedPolicy(3.0), BudgetOutOfRange, "was made for 3 samples on average, not 2"),
        (lambda: "curve", PolicyError, "is not a policy"),
    ],
)
def test_a_policy_that_can_t_decide_beforehand_is_refused(
    tmp_path: Path, make: Callable[[], Policy], error: type[AdacomputeError], said: str
):
    source = file_of(tmp_path / "in.parquet", ["a"])
    with pytest.raises(error, match=said):
        allocate(source, make(), budget=2, into=tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()


def test_a_curve_with_entropy_is_refused_with_the_command_that_fits_one_without(
    tmp_path: Path, curve: CurvePolicy
):
    settings = curve.settings() | {"features": "text+entropy", "learned": {"entropy": True}}
    seen = CurvePolicy.restore(settings, curve.arrays())
    with pytest.raises(PolicyError, match="--policy curve --features text"):
        allocate(file_of(tmp_path / "in.parquet", ["a"]), seen, budget=2, into=tmp_path / "out.parquet")


def test_budget_and_price_are_checked(tmp_path: Path, curve: CurvePolicy):
    source = file_of(tmp_path / "in.parquet", ["a"])
    for given, said in (
        ({"budget": 0.5}, "budget 0.5 is below the cheapest allocation"),
        ({"budget": float("nan")}, "below the cheapest"),
        ({"price": -1.0}, "price -1.0 can't be used"),
        ({}, "give a budget, or a price"),
        ({"budget": 2.0, "price": 0.1}, "one of the two"),
    ):
        with pytest.raises(BudgetOutOfRange, match=said):
            allocate(source, curve, into=tmp_path / "out.parquet", **given)  # type: ignore[arg-type]
    with pytest.raises(BudgetOutOfRange, match="fixed has no price"):
        allocate(source, FixedPolicy(2.0), price=0.1, into=tmp_path / "out.parquet")


def test_what_a_killed_run_left_is_removed_and_two_runs_don_t_meet(tmp_path: Path, curve: CurvePolicy):
    source = file_of(tmp_path / "in.parquet", questions()[:10])
    left = tmp_path / ".out.parquet.allocating" / "old" / "parts"
    left.mkdir(parents=True)
    (left / "in.parquet").write_text("half")

    def again(_: AllocateProgress) -> None:
        with pytest.raises(ScaleError, match="another run is writing it"):
            allocate(source, curve, budget=2, into=tmp_path / "out.parquet")

    allocate(source, curve, budget=2, into=tmp_path / "out.parquet", progress=again)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.parquet", "out.parquet"]


def test_an_overwritten_folder_holds_the_new_files_alone(tmp_path: Path, curve: CurvePolicy):
    many = folder_of(tmp_path / "many", questions()[:30], [10, 10])
    few = folder_of(tmp_path / "few", questions()[:30], [])
    allocate(many, curve, budget=2, into=tmp_path / "out")
    allocate(few, curve, budget=2, into=tmp_path / "out", overwrite=True)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["part-0.parquet"]


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_a_folder_that_is_replaced_comes_back_where_a_run_ends_between_two_renames(
    tmp_path: Path, curve: CurvePolicy, monkeypatch: pytest.MonkeyPatch, killed: bool
):
    old = folder_of(tmp_path / "old", questions()[:30], [10, 10])
    new = folder_of(tmp_path / "new", questions()[:30], [])
    allocate(old, curve, budget=2, into=tmp_path / "out")
    before = sorted(path.name for path in (tmp_path / "out").iterdir())
    if killed:
        left = tmp_path / ".out.allocating"
        left.mkdir()
        (tmp_path / "out").rename(left / "before")
        with pytest.raises(ScaleError, match="is there already"):
            allocate(new, curve, budget=2, into=tmp_path / "out")
    else:
        rename = Path.rename

        def stopped(self: Path, target: Path) -> Path:
            if target == tmp_path / "out" and self.name == "parts":
                raise KeyboardInterrupt
            return rename(self, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", stopped)
            with pytest.raises(KeyboardInterrupt):
                allocate(new, curve, budget=2, into=tmp_path / "out", overwrite=True)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == before
    assert not list(tmp_path.glob(".*"))


MEASURED = """
import sys
from pathlib import Path
from adacompute.policies import load_policy
from adacompute.scale.allocate import allocate
allocate(sys.argv[2], load_policy(sys.argv[1]), budget=2, into=sys.argv[2] + ".out")
status = Path("/proc/self/status").read_text().splitlines()  # getrusage counts the parent's size too
print(next(row for row in status if row.startswith("VmHWM")).split()[1])
"""


@pytest.mark.nightly
def test_memory_does_not_grow_with_the_number_of_prompts(tmp_path: Path, curve: CurvePolicy):
    curve.save(tmp_path / "policy")
    peaks = {}
    for rows in (10_000, 60_000):
        source = tmp_path / f"{rows}.parquet"
        texts = pa.array([f"What is {i} + {i}?" for i in range(rows)])
        pq.write_table(pa.table({"prompt": texts}), source, row_group_size=10_000)
        words = [sys.executable, "-c", MEASURED, str(tmp_path / "policy"), str(source)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=True)
        peaks[rows] = int(done.stdout) * 1024
    assert peaks[60_000] < peaks[10_000] + 6e6, peaks  # 50,000 rows of features alone are as much


def test_the_command_writes_and_tells_and_gives_one_json_object(
    adacompute: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path, curve: CurvePolicy
):
    curve.save(tmp_path / "policy")
    file_of(tmp_path / "in.parquet", questions()[:500])
    words = ["allocate", "in.parquet", "--policy", "policy", "-o", "out.parquet", "--budget", "2"]
    told = adacompute(*words).stdout
    assert "as the policy predicts it: not measured" in told
    assert "500 prompts in 1 file" in told
    found = json.loads(adacompute(*words, "--json", "--overwrite", "--column", "prompt").stdout)
    assert found["cost"] <= 2
    assert sum(found["counts"]) == found["problems"] == len(budgets_in(tmp_path / "out.parquet")) == 500
    assert found["output"] == "out.parquet"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["allocate"], "give one of --budget and --price"),
        (["allocate", "--budget", "2", "--price", "0.1"], "give one of"),
        (["allocate", "--budget", "2", "--workers", "2"], "only --engine ray has workers"),
        (["allocate", "--budget", "inf"], "'inf' can't be read"),
        (["allocate", "--price", "-1"], "is not a price"),
        (["fit", "--policy", "stopping", "--features", "text"], "is for --policy curve and classifier"),
        (["fit", "--policy", "curve", "--features", "smell"], "are not known"),
    ],
)
def test_options_that_can_t_be_are_bad_usage(words: list[str], said: str):
    more = ["--policy", "policy"] if words[0] == "allocate" else []
    done = CliRunner().invoke(app, [words[0], "words", *words[1:], *more, "-o", "out"])
    assert done.exit_code == 2
    assert said in " ".join(done.output.replace("│", "").split())
