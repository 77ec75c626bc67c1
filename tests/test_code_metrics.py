"""Limits on how the code reads: sizes, names, and the files that a request or a sample passes through.

`python scripts/code_metrics.py --json` says which names and files are behind a number.
"""

import importlib.util
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness import import_script

# The least and the most that is accepted of each number, of a list of its length. The most are what was
# reached: they only ever go down, and a new capability pays for its lines by what it removes.
LIMITS: dict[str, tuple[float, float]] = {
    "code_lines": (1, 53_515),
    "modules": (1, 190),
    "menu_modules": (1, 20),  # that know of menus: others speak of modes, of which there may be one
    "median_file": (150, 400),  # lines
    "largest_file": (1, 700),  # lines
    "participle_share": (0, 0.02),
    "repeated_public_class_names": (0, 0),
    "odd_variables": (0, 0),
    "files_per_request": (1, 30),
    "files_per_sample": (1, 20),
    "files_per_ask": (1, 34),
}
STATIC = [name for name in LIMITS if not name.startswith("files_per")]


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    path = sys.path[:]
    yield import_script("code_metrics")
    sys.path[:] = path


def outside(metrics: dict[str, Any], name: str) -> str:
    """What is wrong with a number; "" if it is within its limits."""
    low, high = LIMITS[name]
    value = metrics[name]
    number = len(value) if isinstance(value, list) else value
    return "" if low <= number <= high else f"{name} is {value}, and may be {low:g} to {high:g}"


@pytest.fixture(scope="module")
def measured(script: ModuleType) -> dict[str, Any]:
    return script.static_metrics()


@pytest.mark.slow
@pytest.mark.parametrize("name", STATIC)
def test_the_package_is_within_its_limits(measured: dict[str, Any], name: str):
    behind = {"participle_share": measured["participles"], "odd_variables": measured["odd"]}.get(name, "")
    assert not outside(measured, name), behind


def test_a_request_passes_through_few_files(script: ModuleType):
    files = script.request_files()
    assert {
        "serve/routes/chat.py",
        "serve/spending/local_ledger.py",
        "serve/watching/logs.py",
        "answers/vote.py",
    } <= set(files)
    assert not outside({"files_per_request": len(files)}, "files_per_request"), files


def test_a_sample_passes_through_few_files(script: ModuleType):
    files = script.sample_files()
    assert {"sampling/collect.py", "pool/pool.py", "client/client.py"} <= set(files)
    assert not outside({"files_per_sample": len(files)}, "files_per_sample"), files


def test_an_ask_passes_through_few_files(script: ModuleType):
    files = script.ask_files()
    assert {"serve/ask/asker.py", "serve/routes/gateway.py", "client/client.py"} <= set(files)
    assert not outside({"files_per_ask": len(files)}, "files_per_ask"), files


def test_every_limit_is_broken_by_code_that_reads_badly(script: ModuleType, tmp_path: Path):
    package = tmp_path / "package"
    package.mkdir()
    odd = "def told():\n    one = 1\n\n\n\n    return one\n"
    for number in range(205):
        (package / f"part{number}.py").write_text(f"class Thing:\n    pass\n\n\n{odd}", "utf-8")
    (package / "large.py").write_text("x = 1\n" * 901, "utf-8")
    metrics = script.static_metrics(package)
    assert metrics["modules"] == 206
    assert metrics["largest_file"] == 901
    assert metrics["participle_share"] == 1.0
    assert metrics["repeated_public_class_names"] == ["Thing"]
    assert metrics["odd"][0] == "part0.py: told: one"
    metrics |= {
        "files_per_request": 1000,
        "files_per_sample": 1000,
        "files_per_ask": 1000,
        "code_lines": 10**6,
    }
    assert [name for name in LIMITS if not outside(metrics, name)] == []


def test_plain_code_is_within_the_limits_of_names(script: ModuleType, tmp_path: Path):
    (tmp_path / "plain.py").write_text(
        "class Thing:\n    pass\n\n\ndef read_one(one):\n    return one\n", "utf-8"
    )
    metrics = script.static_metrics(tmp_path)
    names = ("participle_share", "repeated_public_class_names", "odd_variables")
    assert [outside(metrics, name) for name in names] == ["", "", ""]


def test_files_are_counted_whose_functions_are_called_in_every_recording(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("called", "in_a_thread", "only_imported", "once", "before"):
        (tmp_path / f"traced_{name}.py").write_text("def call():\n    pass\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    tracer = script.FileTracer(tmp_path)
    importlib.import_module("traced_before").call()
    for place in range(2):
        with tracer.recording():
            importlib.import_module("traced_called").call()
            importlib.import_module("traced_only_imported")
            thread = threading.Thread(target=importlib.import_module("traced_in_a_thread").call)
            thread.start()
            thread.join()
            if place:
                importlib.import_module("traced_once").call()
    assert tracer.files() == ["traced_called.py", "traced_in_a_thread.py"]
    assert sys.getprofile() is None
