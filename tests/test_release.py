"""What `make release` checks before it says that a release is good, and the files that greet a newcomer."""

import importlib
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

import adacompute

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WORKFLOW, NIGHTLY = (
    yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text("utf-8"))
    for name in ("ci.yml", "nightly.yml")
)


@pytest.fixture(scope="module")
def scripts() -> Iterator[None]:
    path = sys.path[:]
    sys.path.insert(0, str(ROOT / "scripts"))
    yield
    sys.path[:] = path


@pytest.fixture
def release(scripts: None) -> ModuleType:
    return importlib.import_module("release")


def test_a_wheel_with_all_that_is_needed_and_nothing_else_is_good(release: ModuleType):
    names = [*release.NEEDED, "adacompute/__init__.py", "adacompute-0.1.0.dist-info/METADATA"]
    assert release.check_wheel(names) == []


def test_a_wheel_without_a_recording_or_with_tests_is_not(release: ModuleType):
    names = [name for name in release.NEEDED if "facts.jsonl.gz" not in name]
    wrong = release.check_wheel([*names, "tests/test_a.py", "studies/paper/a.py", "adacompute/a.pyc"])
    assert wrong == [
        "adacompute/pool/recordings/facts.jsonl.gz is missing",
        "studies doesn't belong into it",
        "tests doesn't belong into it",
        "adacompute/a.pyc is compiled",
    ]


def test_an_sdist_has_the_sources_and_no_tests(release: ModuleType):
    head = "adacompute-0.1.0"
    names = [head, *(f"{head}/src/{name}" for name in release.NEEDED)]
    names += [f"{head}/{name}" for name in ("pyproject.toml", "README.md", "LICENSE", "PKG-INFO")]
    assert release.check_sdist(names) == []
    wrong = release.check_sdist([name for name in [*names, f"{head}/tests/a.py"] if "LICENSE" not in name])
    assert wrong == ["LICENSE is missing", "tests doesn't belong into it"]


def test_every_extra_of_users_is_tried_with_a_smoke_test_of_its_own(release: ModuleType):
    names = release.list_environments(PROJECT)
    assert names == ["core", *sorted(set(PROJECT["optional-dependencies"]) - {"dev"}), "sdist"]
    assert set(importlib.import_module("smoke").TESTS) == {*names} - {"sdist"}
    assert set(release.WITHOUT_DEPENDENCIES) <= set(names)


def test_a_file_under_two_names_is_measured_once(release: ModuleType, tmp_path: Path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a").write_bytes(b"x" * 1000)
    (tmp_path / "b").hardlink_to(tmp_path / "deep" / "a")
    (tmp_path / "c").symlink_to(tmp_path / "b")
    assert release.measure_folder(tmp_path) == 1000


def test_the_table_names_sizes_and_says_what_failed(release: ModuleType):
    core = release.Installation(
        name="adacompute", packages=39, megabytes=1543.2, seconds=9.0, tried="imports", passed=True
    )
    ray = release.Installation(
        name="adacompute[ray]", packages=0, megabytes=0.0, seconds=9.0, tried="pip: no ray", passed=False
    )
    table = release.format_table([("a.whl", 3_714_275)], [core, ray])
    assert "| a.whl | 3.7 MB |\n" in table
    assert "| `adacompute` | 39 | 1,543 MB | imports |\n" in table
    assert "| `adacompute[ray]` | 0 | 0 MB | **failed**: pip: no ray |\n" in table


@pytest.mark.slow
def test_two_builds_of_one_commit_are_the_same_and_have_what_they_should(release: ModuleType, tmp_path: Path):
    built = []
    for name in ("first", "second"):
        out = tmp_path / name
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-d", str(out)],
            cwd=ROOT,
            env=os.environ | {"SOURCE_DATE_EPOCH": "1700000000"},
            check=True,
            capture_output=True,
        )
        built.append({file.name: file.read_bytes() for file in out.iterdir()})
    assert built[0] == built[1]
    (wheel,) = (tmp_path / "first").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert release.check_wheel(archive.namelist()) == []
    (sdist,) = (tmp_path / "first").glob("*.tar.gz")
    with tarfile.open(sdist) as packed:
        assert release.check_sdist(packed.getnames()) == []


def test_the_page_of_sizes_has_a_row_for_every_environment_and_no_failure(release: ModuleType):
    table = release.TABLE.search(release.PAGE.read_text("utf-8"))
    assert table is not None
    rows = re.findall(r"^\| `adacompute(?:\[(\w+)\])?(, from the sdist)?`", table[0], re.MULTILINE)
    named = ["sdist" if sdist else extra or "core" for extra, sdist in rows]
    assert named == release.list_environments(PROJECT), "run `python scripts/release.py --write`"
    assert "failed" not in table[0]


def test_the_repositorys_address_is_put_where_it_is_told_from_one_place(release: ModuleType, tmp_path: Path):
    (tmp_path / "docs").mkdir()
    for name in ("pyproject.toml", *release.CLONES, "CITATION.cff"):
        (tmp_path / name).write_text((ROOT / name).read_text("utf-8"), "utf-8")
    assert release.put_address(tmp_path) == []  # as long as it isn't filled in
    text = (tmp_path / "pyproject.toml").read_text("utf-8")
    for address in ("https://one.example/a/adacompute", "https://two.example/b/adacompute"):
        filled = text.replace("# [project.urls]", "[project.urls]").replace(
            '# Repository = "https://HOST/OWNER/adacompute"', f'Repository = "{address}"'
        )
        assert filled.count(address) == 1
        (tmp_path / "pyproject.toml").write_text(filled, "utf-8")
        assert release.put_address(tmp_path) == [*release.CLONES, "CITATION.cff"]
        assert release.put_address(tmp_path) == []
        for name in release.CLONES:
            told = (tmp_path / name).read_text("utf-8")
            assert f"git clone {address} && cd adacompute" in told
            assert "git clone …" not in told
        citation = yaml.safe_load((tmp_path / "CITATION.cff").read_text("utf-8"))
        assert citation["repository-code"] == address


def test_a_python_that_cant_be_run_is_named_and_the_one_that_runs_this_is_no_other(release: ModuleType):
    with pytest.raises(release.ReleaseError, match="--python /nowhere/python: can't be run"):
        release.find_pythons(["/nowhere/python"])
    assert "{}.{}".format(*sys.version_info) not in release.find_pythons([sys.executable])


def test_the_citation_names_this_version_and_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == adacompute.__version__
    assert citation["license"] == PROJECT["license"]
    assert [author["name"] for author in citation["authors"]] == [
        author["name"] for author in PROJECT["authors"]
    ]
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    assert citation["references"][0]["title"] in readme


def test_the_workflow_tests_every_python_that_the_package_names_on_three_systems():
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    matrix = WORKFLOW["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == named
    assert {re.sub(r"-\d[\d.]*", "", system) for system in matrix["system"]} == {
        "ubuntu",
        "ubuntu-arm",
        "macos",
    }


@pytest.mark.parametrize("workflow", [WORKFLOW, NIGHTLY], ids=["ci", "nightly"])
def test_a_workflow_can_only_read_and_ends_by_itself(workflow: dict[str, Any]):
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= 90, name
        assert "permissions" not in job
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|[0-9a-f]{40})", step["uses"]), step


def test_every_make_target_that_a_workflow_uses_is_there():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    jobs = [*WORKFLOW["jobs"].values(), *NIGHTLY["jobs"].values()]
    steps = [step.get("run", "") for job in jobs for step in job["steps"]]
    used = {target for step in steps for target in re.findall(r"^make (\w+)", step, re.MULTILINE)}
    assert {"setup", "lint", "types", "test", "nightly", "release"} <= used <= targets
    assert all((ROOT / step).is_file() for step in steps if step.startswith(".ci/"))


def test_the_hooks_of_pre_commit_are_the_tools_of_the_environment_and_fetch_nothing():
    settings = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    assert [repository["repo"] for repository in settings["repos"]] == ["local"]
    hooks = settings["repos"][0]["hooks"]
    assert [hook["entry"].split()[0] for hook in hooks] == [
        ".venv/bin/ruff",
        ".venv/bin/ruff",
        ".venv/bin/mypy",
    ]
    assert {hook["language"] for hook in hooks} == {"system"}
