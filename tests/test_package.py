"""The package as it is handed out: its public door, its lock, and a wheel that works without the checkout."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import adacompute

ROOT = Path(__file__).resolve().parent.parent
LOCK = (ROOT / "requirements.lock").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_the_public_names_are_those_that_type_checkers_see_and_are_there():
    source = ast.parse(Path(adacompute.__file__).with_suffix(".pyi").read_text("utf-8"))
    imported = {a.name: n.module for n in source.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert sorted(adacompute.__all__) == adacompute.__all__
    assert imported.keys() | {"__version__"} == set(adacompute.__all__)
    assert imported == adacompute._HOMES
    assert set(adacompute.__all__) <= set(dir(adacompute))
    for name, module in imported.items():
        assert getattr(adacompute, name) is getattr(importlib.import_module(module), name)


def test_a_public_function_wins_over_the_subpackage_of_its_name():
    code = "import adacompute.evaluate, adacompute.scale.stages, adacompute as ac; " + "".join(
        f"assert callable(ac.{name}); " for name in ("evaluate", "replay", "score", "solve")
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        adacompute.nonsense  # noqa: B018


def test_importing_the_package_is_light():
    names = (
        "numpy orjson sympy math_verify pandas ray pyarrow typer rich xgboost sklearn scipy aiohttp datasets"
    )
    heavy = f"set({names.split()}) & set(sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, adacompute; print(sorted({heavy}))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_c24_every_requirement_is_pinned_with_hashes_and_without_addresses():
    entries = re.split(r"\n(?=\S)", LOCK.strip())
    assert all(re.match(r"^[A-Za-z0-9._-]+==\S+", entry) for entry in entries)
    assert all("--hash=sha256:" in entry for entry in entries)
    assert not re.search(r"https?://|file:|--(extra-)?index-url|--find-links", LOCK)


def test_c24_what_the_project_asks_for_is_in_the_lock_and_little():
    locked = {re.split(r"==", entry)[0].lower() for entry in re.split(r"\n(?=\S)", LOCK.strip())}
    asked = [*PROJECT["dependencies"], *(d for x in PROJECT["optional-dependencies"].values() for d in x)]
    names = {re.split(r"[\[<>=!~ ;]", one)[0].lower().replace("_", "-") for one in asked}
    assert names <= locked
    assert len(PROJECT["dependencies"]) <= 17
    assert set(PROJECT["optional-dependencies"]) >= {"local", "ray", "redis", "dev"}


@pytest.mark.slow
def test_the_wheel_carries_the_recordings_and_works_without_the_checkout(tmp_path: Path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        archive.extractall(tmp_path / "site")
    recordings = {name: size for name, size in sizes.items() if name.endswith(".jsonl.gz")}
    assert len(recordings) == 4
    assert sum(recordings.values()) < 4_000_000
    assert {"adacompute/py.typed", "adacompute/__init__.pyi"} <= sizes.keys()
    assert not any(name.startswith(("tests/", "benchmarks/", "scripts/", "studies/")) for name in sizes)
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})\n"
        "import adacompute as ac\n"
        "print(ac.__file__)\n"
        "print([len(ac.bundled(name)) for name in ac.bundled_names()])\n"
        "print(ac.StoppingPolicy().more('2 + 2?', ac.Tally.of(['4', '4', '4']), 0.02))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    where, lengths, more = done.stdout.splitlines()
    assert where.startswith(str(tmp_path))
    assert lengths == "[353, 441, 353, 441]"
    assert more == "0"  # decided by the prior that the wheel carries
