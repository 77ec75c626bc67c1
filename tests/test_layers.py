"""One arrow direction: a room imports only rooms above it. Reads the imports; runs nothing but one import."""

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "adacompute"

# Top to bottom. A room may import the rooms above it, unless MAY says otherwise.
ROOMS = (
    "errors",
    "records",
    "config",
    "atomic",
    "answers",
    "pool",
    "problems",
    "client",
    "score",
    "solve",
    "policies",
    "replay",
    "sampling",  # below replay: adaptive answering needs policies and calibration
    "evaluate",
    "report",
    "serve",  # the gateway, in rooms of its own, from the ledger to the door
    "serve.spending",
    "serve.pricing",
    "serve.messages",
    "serve.voting",
    "serve.watching",
    "serve.routes",
    "serve.ask",
    "serve.http",
    "scale",
    "integrations",
    "cli",
)
OPEN = {"errors", "records", "config", "atomic"}
MAY = {
    "errors": set(),
    "records": {"errors"},
    "config": {"errors", "records"},
    "atomic": {"errors"},
    "solve": {"errors", "records"},
    "cli": {*ROOMS[:-1], "__init__"},  # the package's own version
}
NEVER = {name: {"sampling", "evaluate", "report"} for name in ROOMS if name.startswith("serve")}
NEVER["serve.http"].add("serve.ask")  # two doors of the same house
DOORS = {"__init__", "__main__"}  # the package's own door may import any room


def faults(source: Path) -> list[str]:
    """Every wrong arrow, cycle or file without a room below `source`, one line each."""
    found: list[str] = []
    graph: dict[str, set[str]] = {}
    modules = {module_name(file, source): file for file in sorted(source.rglob("*.py"))}
    for name, file in modules.items():
        here = room(name)
        if here not in ROOMS and here not in DOORS:
            found.append(f"{name}: no room of that name")
            continue
        graph[name] = set()
        for target in imports(file, source.name, package=name):
            goal = longest_module(target, modules)
            if goal is None:
                found.append(f"{name}: imports {target}, which is not there")
                continue
            if goal != name:
                graph[name].add(goal)
            there = room(goal)
            if here in DOORS or here == there:
                continue
            if there not in allowed(here):
                found.append(f"{name}: imports {goal}, against the arrow")
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as exc:
        found.append("cycle: " + " -> ".join(reversed(exc.args[1])))
    return found


def allowed(here: str) -> set[str]:
    return MAY.get(here, set(ROOMS[: ROOMS.index(here)])) - NEVER.get(here, set())


def module_name(file: Path, source: Path) -> str:
    parts = file.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def room(name: str) -> str:
    parts = name.split(".")
    return ".".join(parts[:2]) if parts[0] == "serve" else parts[0]


def longest_module(target: str, modules: dict[str, Path]) -> str | None:
    """`answers.vote.Tally` is the module `answers.vote`; the bare package is its `__init__`."""
    parts = target.split(".") if target else []
    while parts:
        if (name := ".".join(parts)) in modules:
            return name
        parts.pop()
    return "__init__" if not target and "__init__" in modules else None


@cache
def list_nodes(source: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(source)))


def imports(file: Path, top: str, *, package: str) -> list[str]:
    """What a file imports of our package, wherever in the file, without the package's own name."""
    found = []
    for node in list_nodes(file.read_text("utf-8")):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.split(".")[0] == top]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise AssertionError(f"{package}: relative import; write it out")
            if node.module and node.module.split(".")[0] == top:
                found += [f"{node.module}.{a.name}" for a in node.names]
    return [name[len(top) + 1 :] for name in found]


def test_every_import_follows_the_arrow():
    assert faults(SOURCE) == []


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        ({"answers/vote.py": "from adacompute.pool import store", "pool/store.py": ""}, "against the arrow"),
        ({"solve/frontier.py": "import adacompute.score", "score.py": ""}, "against the arrow"),
        (
            {"serve/http/app.py": "def f():\n    from adacompute import sampling", "sampling.py": ""},
            "against the",
        ),
        (
            {
                "serve/voting/loop.py": "import adacompute.serve.routes.chat",
                "serve/routes/chat.py": "",
                "serve/__init__.py": "",
            },
            "against the arrow",
        ),
        ({"serve/gateway.py": "", "serve/__init__.py": ""}, "no room"),
        (
            {
                "pool/a.py": "import adacompute.pool.b",
                "pool/b.py": "from adacompute.pool.a import x",
            },
            "cycle",
        ),
        ({"utils.py": ""}, "no room"),
        ({"misc/thing.py": ""}, "no room"),
        ({"pool/store.py": "from adacompute.answers import vote"}, "not there"),
    ],
)
def test_the_layers_test_can_fail(tmp_path: Path, files: dict[str, str], fault: str):
    source = tmp_path / "adacompute"
    for name, text in files.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text, "utf-8")
    assert any(fault in line for line in faults(source))


def test_a_good_tree_has_no_fault(tmp_path: Path):
    for name, text in {
        "__init__.py": "from adacompute.pool.store import Store",
        "errors.py": "",
        "pool/store.py": "from adacompute import errors\nclass Store: ...",
        "pool/files.py": "import adacompute.pool.store",
    }.items():
        (tmp_path / "adacompute" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "adacompute" / name).write_text(text, "utf-8")
    assert faults(tmp_path / "adacompute") == []


READS = {"os.environ", "os.environb", "os.getenv", "tomllib"}
LOUD = {"print", "exit", "quit", "SystemExit", "sys.exit", "sys.stdout", "sys.stderr", "os._exit"}
HIDDEN = {"importlib.import_module", "__import__"}
DRAWS = "report/"
HEAVY = {"matplotlib", "sklearn", "xgboost"}  # a second or more each, before a command has said anything
# programs of their own, run in processes that are ended so
PROGRAMS = {"answers/sandbox.py", "client/local_process.py"}


def join_name(node: ast.expr) -> str:
    """`os.getenv`, as ast.unparse has it, but sooner; "" for the attribute of another expression."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join((node.id, *reversed(parts))) if isinstance(node, ast.Name) else ""


def used(source: str) -> set[str]:
    """The dotted names that a file uses or imports: `os.getenv` for `from os import getenv` too."""
    names = set()
    for node in list_nodes(source):
        if isinstance(node, ast.Attribute | ast.Name):
            names.add(join_name(node))
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@cache
def everyone() -> dict[str, set[str]]:
    """The names that each file of the package uses."""
    return {
        file.relative_to(SOURCE).as_posix(): used(file.read_text("utf-8")) for file in SOURCE.rglob("*.py")
    }


def users(names: set[str]) -> set[str]:
    """The files of the package that use one of the names."""
    return {file for file, own in everyone().items() if own & names}


def draws(names: set[str]) -> bool:
    """Whether one of the names is of the package that draws, or of a part of it."""
    return any(name.split(".")[0] == "matplotlib" for name in names)


def test_only_config_reads_environment_and_toml():
    found = users(READS)
    assert found == {"config.py", "cli/entry.py"}  # the latter: whether a shell asks for completions


def test_only_the_command_line_prints_or_exits():
    assert {file for file in users(LOUD) if not file.startswith("cli/")} == PROGRAMS


def test_no_import_hides_from_the_layers_test():
    by_table = {"__init__.py", "cli/app.py"}  # public names and commands, each imported when it is first used
    assert users(HIDDEN) <= by_table


def studies(names: set[str]) -> bool:
    """Whether one of the names is of a study, or of a part of it."""
    return any(name.split(".")[0] == "studies" for name in names)


def test_nothing_in_the_package_imports_a_study():
    assert {file for file, names in everyone().items() if studies(names)} == set()
    assert studies(used("def f():\n    from studies.paper import theory"))


def test_only_the_figures_draw():
    found = {file for file, names in everyone().items() if draws(names)}
    assert DRAWS + "canvas.py" in found
    assert {file for file in found if not file.startswith(DRAWS)} == set()


@pytest.mark.parametrize(
    "source", ["import matplotlib.axes as a", "def f():\n    from matplotlib.text import Text"]
)
def test_the_test_of_drawing_can_fail(source: str):
    assert draws(used(source))
    assert not draws(used("import numpy as np"))


def test_the_command_line_begins_without_what_only_some_commands_need():
    code = "import sys, adacompute.cli.app; print(*(name.split('.')[0] for name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stdout.split())
    assert "adacompute" in loaded
    assert loaded & HEAVY == set()


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("from os import getenv as g", READS),
        ("import os\nx = os.environ['A']", READS),
        ("from tomllib import loads", READS),
        ("def f():\n    raise SystemExit(2)", LOUD),
        ("from sys import exit as q", LOUD),
        ("import sys\nsys.stdout.write('')", LOUD),
        ("print('x')", LOUD),
        ("import importlib\nimportlib.import_module('adacompute.pool')", HIDDEN),
    ],
)
def test_the_test_of_names_can_fail(source: str, names: set[str]):
    assert used(source) & names
