"""What the package takes along: few dependencies, all declared, all locked by version and hash."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RUNTIME = {
    "aiohttp",
    "httptools",
    "math-verify",
    "msgspec",
    "numpy",
    "orjson",
    "prometheus-client",
    "rich",
    "starlette",
    "typer",
    "uvicorn",
    "uvloop",
    "yarl",
}
FIT = {"matplotlib", "pyarrow", "scikit-learn", "scipy", "threadpoolctl", "xgboost", "xgboost-cpu"}
LOCKS = tuple(f"requirements{name}.lock" for name in ("", "-gateway", "-site", "-release"))
PARTS = {  # what comes with a dependency that is declared, and is meant to be used with it
    "anyio": "starlette",
    "click": "typer",
    "huggingface_hub": "datasets",
    "sympy": "math-verify",
}
ABSENT = {"openai"}  # the demo says how to get it where it isn't there


def name_of(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement.strip())[0]).lower()


def test_c24_few_are_needed_to_run_it():
    assert {name_of(each) for each in PROJECT["dependencies"]} == RUNTIME  # another one is a decision


def test_c24_what_only_fitting_reports_and_parquet_need_is_an_extra():
    assert {name_of(each) for each in PROJECT["optional-dependencies"]["fit"]} == FIT
    image = {
        name_of(line)
        for line in (ROOT / "requirements-gateway.lock").read_text().splitlines()
        if "==" in line
    }
    assert len(image) > 20
    assert not FIT & image


@pytest.mark.parametrize("lock", LOCKS)
def test_c24_every_requirement_is_one_version_with_hashes_and_names_no_place(lock: str):
    text = (ROOT / lock).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert len(lines) > 20
    pinned = r"[a-z0-9][a-z0-9._-]*(\[[a-z0-9,_-]+\])?==[0-9][\w.+!-]*( ; [^;]+?)?"
    for line in lines:
        assert re.fullmatch(rf"{pinned}( +--hash=sha256:[0-9a-f]{{64}})+\s*", line), line[:200]
    assert not re.search(r"https?:|file:|git\+|^-|--(?!hash)| @ ", text, re.MULTILINE)


def test_c24_all_that_is_declared_is_locked():
    locked = {name_of(line) for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line}
    extras = [each for group in PROJECT["optional-dependencies"].values() for each in group]
    elsewhere = {"xgboost"}  # of another system than the lock's
    assert {name_of(each) for each in [*PROJECT["dependencies"], *extras]} - elsewhere <= locked


@pytest.mark.slow
def test_c24_all_that_is_imported_is_declared():
    extras = {
        name_of(each)
        for name, group in PROJECT["optional-dependencies"].items()
        if name != "dev"
        for each in group
    }
    declared = RUNTIME | extras
    owners = packages_distributions()
    unknown = {}
    for file in sorted((ROOT / "src" / "adacompute").rglob("*.py")):
        adapted = {file.stem} if file.parent.name == "integrations" else set()  # its users have that package
        for name in set(imported(file)) - adapted:
            found = {name_of(owner) for owner in owners.get(name, [name])}
            if not found & declared and PARTS.get(name) not in declared and name not in ABSENT:
                unknown[f"{file.relative_to(ROOT)}: {name}"] = found
    assert not unknown


def imported(file: Path) -> set[str]:
    """The packages that a file imports, other than Python's and its own."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names - set(sys.stdlib_module_names) - {"adacompute"}
