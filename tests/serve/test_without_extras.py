"""Without any extra everything but learning, comparing, reporting and Parquet works, and those say so.

The commands run in processes in which the libraries of the extras can't be imported.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
from running import QUESTION, Process

from adacompute.answers import VoteWeights
from adacompute.policies import AdaptiveConsistency, ClassifierPolicy, CurvePolicy
from adacompute.policies.base import Policy
from adacompute.pool import Ballots, bundled, export_file, open_pool
from tiers import leave_to_nightly
from upstream import Upstream
from warm import Warm

LIBRARIES = {"matplotlib", "pandas", "pyarrow", "scipy", "sklearn", "threadpoolctl", "xgboost"}
REFUSE = f"""
import sys


class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {LIBRARIES}:
            raise ModuleNotFoundError("No module named " + name, name=name)


sys.meta_path.insert(0, Refuse())
"""
FIXTURES = Path(__file__).parent.parent / "fixtures"


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which every Python refuses the libraries of the extras."""
    folder = tmp_path_factory.mktemp("refuse")
    (folder / "sitecustomize.py").write_text(REFUSE, "utf-8")
    return {"PYTHONPATH": str(folder)}


@pytest.fixture(scope="module")
def without_libraries(environ: dict[str, str]) -> Iterator[Warm]:
    process = Warm(**environ)
    yield process
    process.close()


@pytest.fixture
def bare(without_libraries: Warm, environ: dict[str, str], tmp_path: Path) -> Callable:
    """The command without extras: `bare("solve", "facts", "--budget", "2")`."""

    def run(*words: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
        done = without_libraries.run(*words, folder=tmp_path, environ=os.environ | environ)
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run


@pytest.fixture(scope="module")
def few() -> Ballots:
    with bundled("words") as pool:
        return pool.ballots().only(range(0, 360, 6))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pool of a few problems."""
    path = tmp_path_factory.mktemp("small") / "small.jsonl"
    with bundled("facts") as pool:
        lines = [json.dumps(line) + "\n" for line in islice(pool.lines(), 12)]
    path.write_text("".join(lines), "utf-8")
    return path


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory, few: Ballots, small: Path) -> dict[str, object]:
    """What commands are given that need an extra; nobody listens at `nobody`."""
    folder = tmp_path_factory.mktemp("parts")
    with open_pool(small) as pool:
        export_file(pool, folder / "small.parquet")
    (folder / "lines.jsonl").write_text('{"id": "a", "question": "What is 6 times 7?"}\n', "utf-8")
    CurvePolicy(features="text").fit(few).save(folder / "policy")
    return {
        "small": small,
        "table": folder / "small.parquet",
        "lines": folder / "lines.jsonl",
        "policy": folder / "policy",
        "log": FIXTURES / "inspect" / "tiny-0.3.285.eval",
        "nobody": "http://127.0.0.1:9/v1",
    }


def fit_curve(few: Ballots) -> Policy:
    return CurvePolicy().fit(few)


def fit_classifier(few: Ballots) -> Policy:
    return ClassifierPolicy().fit(few, budget=3.0)


def fit_weighed(few: Ballots) -> Policy:
    return AdaptiveConsistency(weigh=VoteWeights(signal="logprob", scale=-0.25)).fit(few)


def test_the_libraries_are_refused(environ: dict[str, str]):
    for name in LIBRARIES:
        assert importlib.util.find_spec(name), f"{name}: is not there to be refused"
        code = f"try:\n    import {name}\nexcept ModuleNotFoundError:\n    print('refused')"
        done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, check=True)
        assert done.stdout == b"refused\n"


def test_the_package_and_every_module_of_it_are_imported_without_them(environ: dict[str, str]):
    code = (
        "import importlib, pkgutil, adacompute\n"
        "names = [each.name for each in pkgutil.walk_packages(adacompute.__path__, 'adacompute.')]\n"
        "names = [name for name in names if not name.endswith('__main__') and '.scale' not in name]\n"
        "names = [name for name in names if '.integrations.' not in name]\n"
        "[importlib.import_module(name) for name in names]\n"
        "[getattr(adacompute, name) for name in adacompute.__all__]\n"
    )
    subprocess.run([sys.executable, "-c", code], env=environ, check=True, timeout=120)


def test_the_version_is_said(installed: Callable, environ: dict[str, str]):
    assert "adacompute" in installed("--version", **environ).stdout


@pytest.mark.parametrize(
    "words", leave_to_nightly(["solve facts --budget 2", "score {small}", "pool {small}"])
)
def test_a_pool_is_studied(bare: Callable, small: Path, words: str):
    assert json.loads(bare(*words.format(small=small).split(), "--json").stdout)


def test_a_pool_goes_in_and_out_as_json_lines(bare: Callable, small: Path, tmp_path: Path):
    bare("export", str(small), "facts.jsonl.gz")
    bare("import", "facts.jsonl.gz", "--pool", "facts.sqlite")
    bare(
        "import",
        str(FIXTURES / "inspect" / "tiny-0.3.120.eval"),
        "--pool",
        "log.sqlite",
        "--format",
        "inspect",
    )
    bare("export", "facts.sqlite", "again.jsonl.gz")
    assert (tmp_path / "again.jsonl.gz").read_bytes() == (tmp_path / "facts.jsonl.gz").read_bytes()


@pytest.mark.parametrize(
    ("fit", "dial"),
    leave_to_nightly(
        [(fit_curve, ("--budget", "2")), (fit_classifier, ()), (fit_weighed, ("--budget", "2"))]
    ),
)
def test_a_learned_policy_is_replayed(
    bare: Callable, tmp_path: Path, few: Ballots, small: Path, fit: Callable, dial: tuple
):
    fit(few).save(tmp_path / "policy")
    done = bare("replay", str(small), "--policy", "policy", "--json", "--orders", "2", *dial)
    assert json.loads(done.stdout)["accuracy"] > 0


def test_samples_are_collected_and_questions_answered(bare: Callable, tmp_path: Path):
    (tmp_path / "in.jsonl").write_text('{"id": "a", "question": "What is 6 times 7?"}\n', "utf-8")
    with Upstream() as up:
        bare("collect", "in.jsonl", "--endpoint", up.url, "--samples", "2", "--pool", "pool.sqlite")
        bare("answer", "in.jsonl", "--endpoint", up.url, "--budget", "2", "-o", "out.jsonl")
        assert "votes" in bare("ask", "What is 6 times 7?", "--endpoint", up.url, "--budget", "2").stdout
    assert (tmp_path / "out.jsonl").read_text("utf-8").count("\n") == 1


def test_requests_are_served_with_the_prior_and_with_a_saved_policy(
    environ: dict[str, str], tmp_path: Path, few: Ballots
):
    fit_curve(few).save(tmp_path / "policy")
    for words in ((), ("--policy", "policy")):
        with (
            Upstream() as up,
            Process(up.url, "--budget", "2", *words, folder=tmp_path, environ=environ) as gate,
        ):
            assert gate.ask(QUESTION).status == 200


@pytest.mark.parametrize(
    ("extra", "words"),
    leave_to_nightly(
        [
            ("fit", "fit facts --policy curve"),
            ("fit", "evaluate {small}"),
            ("parquet", "pool {table}"),
            ("parquet", "export {small} small.parquet"),
            ("fit", "fit {small}"),
            ("fit", "report {small} -o r"),
            ("parquet", "export {small} shards --shards 2"),
            ("parquet", "import {log} --pool log.sqlite --format inspect"),
            ("parquet", "score {small} -o scores.parquet"),
            ("parquet", "collect {table} --pool pool.sqlite --samples 2 --endpoint {nobody}"),
            ("parquet", "answer {lines} --budget 2 --endpoint {nobody} -o out.parquet"),
            ("parquet", "allocate {lines} --policy {policy} --budget 2 -o out.jsonl"),
            ("parquet", "allocate {table} --policy {policy} --budget 2 -o out.parquet"),
        ],
        but=4,
    ),
)
def test_what_needs_an_extra_says_so_in_one_line(
    bare: Callable, parts: dict[str, object], extra: str, words: str
):
    done = bare(*words.format(**parts).split(), code=1)
    line = done.stderr.strip().splitlines()[-1]
    assert line.endswith(f'is not installed; pip install "adacompute[{extra}]"')
    assert "Traceback" not in done.stderr


def test_several_limits_at_once_say_which_extra_they_need(environ: dict[str, str]):
    code = (
        "import adacompute as ac\n"
        "table = ac.AccuracyTable.of([[0.5, 0.9], [0.7, 0.7]], costs=[1, 4])\n"
        "fast = ac.Cap(name='seconds', costs=[1.0, 3.0], at_most=1.5)\n"
        "try:\n    ac.solve(table, budget=2.5, limits=[fast])\n"
        "except ac.AdacomputeError as exc:\n    print(exc)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith('pip install "adacompute[fit]"\n')
