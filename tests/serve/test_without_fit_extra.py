"""Without the extra adacompute[fit] everything but fitting, comparing and reporting works, and those say so.

The commands run in processes of their own, in which xgboost, scikit-learn and matplotlib can't be imported.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from running import QUESTION, Process

from adacompute.policies import ClassifierPolicy, CurvePolicy
from adacompute.policies.base import Policy
from adacompute.pool import Ballots
from shared import read_votes
from upstream import Upstream

REFUSE = """
import sys


class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"matplotlib", "sklearn", "threadpoolctl", "xgboost"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Refuse())
"""
REMEDY = 'pip install "adacompute[fit]"'


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which every Python refuses the libraries of the extra."""
    folder = tmp_path_factory.mktemp("refuse")
    (folder / "sitecustomize.py").write_text(REFUSE, "utf-8")
    return {"PYTHONPATH": str(folder)}


@pytest.fixture
def bare(installed: Callable, environ: dict[str, str]) -> Callable:
    """The command without the extra: `bare("solve", "facts", "--budget", "2")`."""

    def run(*words: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
        return installed(*words, code=code, **environ)

    return run


@pytest.fixture(scope="module")
def few() -> Ballots:
    return read_votes("words").only(range(0, 360, 6))


def fit_curve(few: Ballots) -> Policy:
    return CurvePolicy().fit(few)


def fit_classifier(few: Ballots) -> Policy:
    return ClassifierPolicy().fit(few, budget=3.0)


def test_the_libraries_are_refused(environ: dict[str, str]):
    for name in ("matplotlib", "sklearn.svm", "threadpoolctl", "xgboost"):
        code = f"try:\n    import {name}\nexcept ModuleNotFoundError:\n    print('refused')"
        done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, check=True)
        assert done.stdout == b"refused\n"


def test_the_package_and_every_module_of_it_are_imported_without_them(environ: dict[str, str]):
    code = (
        "import importlib, pkgutil, adacompute\n"
        "names = [each.name for each in pkgutil.walk_packages(adacompute.__path__, 'adacompute.')]\n"
        "names = [name for name in names if not name.endswith('__main__') and '.scale' not in name]\n"
        "[importlib.import_module(name) for name in names]\n"
        "[getattr(adacompute, name) for name in adacompute.__all__]\n"
    )
    subprocess.run([sys.executable, "-c", code], env=environ, check=True, timeout=120)


def test_the_version_is_said(bare: Callable):
    assert "adacompute" in bare("--version").stdout


def test_a_pool_is_solved(bare: Callable):
    assert json.loads(bare("solve", "facts", "--budget", "2", "--json").stdout)


@pytest.mark.parametrize(("fit", "dial"), [(fit_curve, ("--budget", "2")), (fit_classifier, ())])
def test_a_learned_policy_is_replayed(
    bare: Callable, tmp_path: Path, few: Ballots, fit: Callable, dial: tuple
):
    fit(few).save(tmp_path / "policy")
    done = bare("replay", "facts", "--policy", "policy", "--json", "--orders", "2", *dial)
    assert json.loads(done.stdout)["accuracy"] > 0


def test_samples_are_collected_and_questions_answered(bare: Callable, tmp_path: Path):
    (tmp_path / "in.jsonl").write_text('{"id": "a", "question": "What is 6 times 7?"}\n', "utf-8")
    with Upstream() as up:
        bare("collect", "in.jsonl", "--endpoint", up.url, "--samples", "2", "--pool", "pool.sqlite")
        bare("answer", "in.jsonl", "--endpoint", up.url, "--budget", "2", "-o", "out.jsonl")
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
    "words", ["fit facts", "fit facts --policy curve", "evaluate facts", "report facts -o r"]
)
def test_what_needs_the_extra_says_so_in_one_line(bare: Callable, words: str):
    done = bare(*words.split(), code=1)
    assert done.stderr.strip().splitlines()[-1].endswith(f"is not installed; {REMEDY}")
    assert "Traceback" not in done.stderr
