"""Measure how the code reads: sizes, names, and how many files one request or one sample passes through.

    python scripts/code_metrics.py [--json]

`tests/test_code_metrics.py` holds these numbers to limits.
"""

import argparse
import ast
import io
import json
import re
import statistics
import subprocess
import sys
import sysconfig
import time
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "adacompute"
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

# Past participles and participle-like words that name functions badly. Words in -ed that are plain nouns,
# verbs or adjectives of the field are not counted.
IRREGULAR = set(
    "told said seen given made shown kept held left asked drawn found taken written known heard read_off "
    "spent paid sent built bought thought brought caught taught sold lost met put_off begun gone run_out "
    "chosen spoken broken frozen hidden forgotten fallen grown thrown foretold beheld".split()
)
PLAIN_ED = {"seed", "need", "feed", "speed", "embed", "bed", "shed", "exceed", "proceed", "succeed", "need_"}
ODD_VARIABLES = {"one", "found", "told", "some"}
VARIABLE_LIFE = 3  # lines


def module_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def count_code_lines(text: str) -> int:
    """Lines that hold code: no blank lines, comments or docstrings."""
    lines: set[int] = set()
    previous = tokenize.INDENT
    skip = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
    }
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_docstring = token.type == tokenize.STRING and previous in {
            tokenize.INDENT,
            tokenize.NEWLINE,
            tokenize.NL,
        }
        if token.type not in skip and not is_docstring and token.string:
            lines.update(range(token.start[0], token.end[0] + 1))
        if token.type not in {tokenize.COMMENT}:
            previous = token.type
    return len(lines)


def module_name(path: Path) -> str:
    parts = ("adacompute", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


def importers(trees: dict[Path, ast.Module]) -> dict[str, set[str]]:
    """For each module, the modules of the package that import it."""
    names = {module_name(path) for path in trees}
    found: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees.items():
        for target in imported_modules(tree, names):
            if target != module_name(path):
                found[target].add(module_name(path))
    return found


def imported_modules(tree: ast.Module, names: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in names else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def is_participle(name: str) -> bool:
    """Whether a function's name begins or stands with a past participle: `told`, `capped`, `_drawn_here`."""
    first = name.strip("_").split("_")[0]
    return first in IRREGULAR or (first.endswith("ed") and first not in PLAIN_ED)


def is_property(node: ast.AST) -> bool:
    decorators = [ast.unparse(decorator) for decorator in getattr(node, "decorator_list", [])]
    return any("property" in decorator or decorator.endswith(".setter") for decorator in decorators)


def functions(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, DEFINITIONS) and not is_property(node)]


def odd_variables(tree: ast.Module) -> list[str]:
    """`function: name` for every variable of a meaningless name that lives longer than three lines."""
    odd = []
    for function in functions(tree):
        lines: dict[str, list[int]] = defaultdict(list)
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and node.id in ODD_VARIABLES:
                lines[node.id].append(node.lineno)
            elif isinstance(node, ast.arg) and node.arg in ODD_VARIABLES:
                lines[node.arg].append(node.lineno)
        odd += [f"{function.name}: {name}" for name, at in lines.items() if max(at) - min(at) > VARIABLE_LIFE]
    return odd


def repeated(names: list[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def static_metrics() -> dict[str, Any]:
    texts = {path: path.read_text("utf-8") for path in module_files()}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    sizes = [text.count("\n") for path, text in texts.items() if path.name != "__init__.py"]
    users = importers(trees)
    lonely = [
        name
        for name, by in users.items()
        if len(by) == 1 and name.count(".") > 1 and room_of(next(iter(by))) == room_of(name)
    ]
    classes = [
        node.name
        for tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    every = [function for tree in trees.values() for function in functions(tree)]
    participles = [
        f"{path.relative_to(SOURCE)}: {function.name}"
        for path, tree in trees.items()
        for function in functions(tree)
        if is_participle(function.name)
    ]
    lengths = [(function.end_lineno or 0) - function.lineno + 1 for function in every]
    odd = [
        f"{path.relative_to(SOURCE)}: {line}" for path, tree in trees.items() for line in odd_variables(tree)
    ]
    return {
        "files": len(texts),
        "modules": len(sizes),
        "code_lines": sum(map(count_code_lines, texts.values())),
        "median_file": statistics.median(sizes),
        "largest_file": max(sizes),
        "modules_under_100_lines": sum(size < 100 for size in sizes),
        "modules_with_one_importer_in_their_room": len(lonely),
        "repeated_file_names": len(repeated([path.name for path in texts if path.name != "__init__.py"])),
        "repeated_public_class_names": repeated(classes),
        "functions": len(every),
        "median_function": statistics.median(lengths),
        "participle_functions": len(participles),
        "participle_share": round(len(participles) / len(every), 4),
        "odd_variables": len(odd),
        "docs_words": docs_words(),
        "lonely": sorted(lonely),
        "participles": participles,
        "odd": odd,
    }


def docs_words() -> dict[str, int]:
    """Words of README, of the pages for users, and of design notes and generated tables."""

    def words(paths: list[Path]) -> int:
        return sum(len(path.read_text("utf-8").split()) for path in paths)

    pages = sorted((ROOT / "docs").glob("*.md"))
    apart = [path for path in (ROOT / "docs").rglob("*.md") if path not in pages]
    return {
        "readme": words([ROOT / "README.md"]),
        "user_pages": len(pages),
        "user_words": words(pages),
        "other_words": words(apart),
    }


def start_ratio(arguments: list[str], *, repeats: int = 7) -> float:
    """The command's time over that of `python -c "import click"`, least of several runs each."""
    command = Path(sysconfig.get_path("scripts")) / "adacompute"
    ours, bare = [], []
    for _ in range(repeats):
        ours.append(_seconds([str(command), *arguments]))
        bare.append(_seconds([sys.executable, "-c", "import click"]))
    return round(min(ours) / min(bare), 2)


def _seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="everything, with the names behind the counts")
    arguments = parser.parse_args()
    metrics = static_metrics() | {"version_time_ratio": start_ratio(["--version"])}
    if arguments.json:
        print(json.dumps(metrics, indent=1))
        return
    for key, value in metrics.items():
        if key not in {"lonely", "participles", "odd"}:
            print(f"{re.sub('_', ' ', key):45} {value if not isinstance(value, list) else len(value)}")


if __name__ == "__main__":
    main()
