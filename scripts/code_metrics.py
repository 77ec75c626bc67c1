"""Measure how the code reads: sizes, names, and how many files one request or one sample passes through.

    python scripts/code_metrics.py [--json]
    python scripts/code_metrics.py --comments SEED    # 40 comments and docstrings at random, to be read

`tests/test_code_metrics.py` holds these numbers to limits.
"""

import argparse
import ast
import asyncio
import io
import json
import os
import random
import re
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "adacompute"
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef

# Past participles and participle-like words that name functions badly. Words in -ed that are plain nouns,
# verbs or adjectives of the field are not counted.
IRREGULAR = {
    "told", "said", "seen", "given", "made", "shown", "kept", "held", "left", "asked", "drawn",
    "found", "taken", "written", "known", "heard", "read_off", "spent", "paid", "sent", "built",
    "bought", "thought", "brought", "caught", "taught", "sold", "lost", "met", "put_off", "begun",
    "gone", "run_out", "chosen", "spoken", "broken", "frozen", "hidden", "forgotten", "fallen",
    "grown", "thrown", "foretold", "beheld",
}  # fmt: skip
PLAIN_ED = {"seed", "need", "feed", "speed", "embed", "bed", "shed", "exceed", "proceed", "succeed", "need_"}
ODD_VARIABLES = {"one", "found", "told", "some"}
VARIABLE_LIFE = 3  # lines


def module_files(source: Path = SOURCE) -> list[Path]:
    return sorted(source.rglob("*.py"))


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
    for token in _join_fstrings(tokenize.generate_tokens(io.StringIO(text).readline)):
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


def _join_fstrings(tokens: Iterator[tokenize.TokenInfo]) -> Iterator[tokenize.TokenInfo]:
    """Makes each f-string one token, as it is before Python 3.12, so that all versions count alike."""
    first, depth = None, 0
    for token in tokens:
        kind = tokenize.tok_name[token.type]
        if kind == "FSTRING_START":
            first = token if depth == 0 else first
            depth += 1
        elif kind == "FSTRING_END":
            depth -= 1
            if depth == 0 and first is not None:
                yield tokenize.TokenInfo(tokenize.STRING, token.string, first.start, token.end, first.line)
        elif depth == 0:
            yield token


def module_name(path: Path, source: Path = SOURCE) -> str:
    parts = (source.name, *path.relative_to(source).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


def importers(nodes: dict[Path, list[ast.AST]], source: Path = SOURCE) -> dict[str, set[str]]:
    """For each module, the modules of the package that import it."""
    names = {path: module_name(path, source) for path in nodes}
    users: dict[str, set[str]] = defaultdict(set)
    for path, within in nodes.items():
        for target in imported_modules(within, set(names.values())):
            if target != names[path]:
                users[target].add(names[path])
    return users


def imported_modules(nodes: list[ast.AST], names: set[str]) -> Iterator[str]:
    for node in nodes:
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


def list_functions(nodes: list[ast.AST]) -> list[Function]:
    return [node for node in nodes if isinstance(node, DEFINITIONS) and not is_property(node)]


def odd_variables(nodes: list[ast.AST]) -> list[str]:
    """`function: name` for every variable of a meaningless name that lives longer than three lines."""
    uses: list[tuple[int, str]] = []
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in ODD_VARIABLES:
            uses.append((node.lineno, node.id))
        elif isinstance(node, ast.arg) and node.arg in ODD_VARIABLES:
            uses.append((node.lineno, node.arg))
    odd = []
    for function in list_functions(nodes) if uses else ():
        lines: dict[str, list[int]] = defaultdict(list)
        for line, name in uses:
            if function.lineno <= line <= (function.end_lineno or 0):
                lines[name].append(line)
        odd += [f"{function.name}: {name}" for name, at in lines.items() if max(at) - min(at) > VARIABLE_LIFE]
    return odd


def repeated(names: list[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def static_metrics(source: Path = SOURCE) -> dict[str, Any]:
    """What can be counted without running anything."""
    texts = {path: path.read_text("utf-8") for path in module_files(source)}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    sizes = [text.count("\n") for path, text in texts.items() if path.name != "__init__.py"]
    nodes = {path: list(ast.walk(tree)) for path, tree in trees.items()}
    users = importers(nodes, source)
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
    functions = {path: list_functions(within) for path, within in nodes.items()}
    participles = [
        f"{path.relative_to(source)}: {function.name}"
        for path, within in functions.items()
        for function in within
        if is_participle(function.name)
    ]
    lengths = [
        (function.end_lineno or 0) - function.lineno + 1
        for within in functions.values()
        for function in within
    ]
    odd = [
        f"{path.relative_to(source)}: {line}"
        for path, within in nodes.items()
        for line in odd_variables(within)
    ]
    rooms = count_room_lines(texts, source)
    return {
        "files": len(texts),
        "modules": len(sizes),
        "code_lines": sum(rooms.values()),
        "lines_by_room": rooms,
        "menu_modules": sum(bool(re.search(r"\bmenus?\b", text)) for text in texts.values()),
        "median_file": statistics.median(sizes),
        "largest_file": max(sizes),
        "modules_under_100_lines": sum(size < 100 for size in sizes),
        "modules_with_one_importer_in_their_room": len(lonely),
        "repeated_file_names": len(repeated([path.name for path in texts if path.name != "__init__.py"])),
        "repeated_public_class_names": repeated(classes),
        "functions": len(lengths),
        "median_function": statistics.median(lengths),
        "participle_functions": len(participles),
        "participle_share": round(len(participles) / max(1, len(lengths)), 4),
        "odd_variables": len(odd),
        "docs_words": docs_words(),
        "lonely": sorted(lonely),
        "participles": participles,
        "odd": odd,
    }


def count_room_lines(texts: dict[Path, str], source: Path = SOURCE) -> dict[str, int]:
    """The lines of code of each room; "" is the package's own files."""
    rooms: Counter[str] = Counter()
    for path, text in texts.items():
        rooms["/".join(path.relative_to(source).parts[:-1][:1])] += count_code_lines(text)
    return dict(rooms.most_common())


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


class FileTracer:
    """Records the files of a folder whose functions are called, by several recordings of the same thing.

    tracer = FileTracer(SOURCE)
    for _ in range(2):
        with tracer.recording():
            ...
    tracer.files()
    """

    def __init__(self, folder: Path) -> None:
        self._folder = f"{folder}{os.sep}"
        self._recordings: list[set[str]] = []

    @contextmanager
    def recording(self, loop: asyncio.AbstractEventLoop | None = None) -> Iterator[None]:
        """Records this thread, threads that start meanwhile, and the thread in which a loop runs."""
        self._recordings.append(set())
        threading.setprofile(self._on_event)
        sys.setprofile(self._on_event)
        if loop is not None:
            loop.call_soon_threadsafe(sys.setprofile, self._on_event)
        try:
            yield
        finally:
            if loop is not None:
                loop.call_soon_threadsafe(sys.setprofile, None)
            sys.setprofile(None)
            threading.setprofile(None)

    def files(self) -> list[str]:
        """Paths within the folder that are in every recording: what ran beside one of them isn't."""
        return sorted(name.removeprefix(self._folder) for name in set.intersection(*self._recordings))

    def _on_event(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_name != "<module>" and code.co_filename.startswith(self._folder):
            self._recordings[-1].add(code.co_filename)


def request_files() -> list[str]:
    """The files of the package that one chat request passes through in a warm gateway.

    A stopping policy decides, several samples are drawn and voted on, the price is paced, the spending is
    capped and written to the ledger, and the request is counted and logged. It is not recorded for a pool,
    which is off unless the operator asks for it.
    """
    _make_test_helpers_importable()
    from running import Running

    from adacompute.serve.watching.logs import log_to
    from upstream import Upstream

    tracer = FileTracer(SOURCE)
    with (
        tempfile.TemporaryDirectory() as folder,
        log_to(io.StringIO()),
        Upstream(_answer_in_turn) as upstream,
        Running(upstream.url, folder=Path(folder), budget=4.0, cap=1000) as gateway,
    ):
        for _ in range(3):
            gateway.ask()
        for _ in range(2):  # what the gateway does every two seconds falls into one of them at most
            time.sleep(_REPORT_SECONDS)
            with tracer.recording(gateway.loop):
                outcome = gateway.ask().json["adacompute"]
                time.sleep(_REPORT_SECONDS)
            if outcome["samples"] < 2 or len(outcome["votes"]) < 2:
                raise SystemExit(f"the request was to be a vote over several samples, and was {outcome}")
    return tracer.files()


def sample_files() -> list[str]:
    """The files of the package that one collected sample passes through, from the call of `collect`."""
    _make_test_helpers_importable()
    from collecting import plan, problems

    from adacompute.pool import open_pool
    from adacompute.sampling import collect
    from upstream import Upstream

    tracer = FileTracer(SOURCE)
    with tempfile.TemporaryDirectory() as folder, Upstream() as upstream:
        source = plan(upstream.url, samples=1)
        with open_pool(Path(folder) / "warm", create=True) as pool:
            collect(problems(1), pool, source)
        with open_pool(Path(folder) / "traced", create=True) as pool, tracer.recording():
            collected = collect(problems(1), pool, source)
    if collected.added != 1:
        raise SystemExit(f"one sample was to be collected, and {collected.added} were")
    return tracer.files()


def ask_files() -> list[str]:
    """The files of the package that one call of `ac.ask` passes through."""
    _make_test_helpers_importable()
    import adacompute
    from upstream import Upstream

    tracer = FileTracer(SOURCE)
    with Upstream(_answer_in_turn) as upstream:
        for place in range(3):  # the first one imports
            with tracer.recording() if place else nullcontext():
                reply = adacompute.ask("What is 2 + 3?", endpoint=upstream.url, model="m", budget=4)
    if reply.samples < 2:
        raise SystemExit(f"the prompt was to be asked several times, and was {reply}")
    return tracer.files()


_REPORT_SECONDS = 0.2  # until observers, the log and the ledger have been told of a request


def list_comments() -> list[tuple[str, str]]:
    """Every comment and docstring of the package: where it is, and what it says.

    As in the code, a comment comes with its line of code and the definition around it, a docstring with the
    definition. A comment of several lines is one.
    """
    found = []
    for path in module_files():
        text, place = path.read_text("utf-8"), path.relative_to(SOURCE).as_posix()
        lines, tree = text.splitlines(), ast.parse(text)
        around = [""] * (len(lines) + 1)  # for each line, the names of the definitions around it
        _name_definitions(tree, around)
        block: list[str] = []  # lines of a comment that stands alone
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type != tokenize.COMMENT or re.match(r"# (noqa|type:|fmt:)", token.string):
                continue
            row = token.start[0]
            line = lines[row - 1].strip()
            if line != token.string:  # behind code
                found.append((f"{place}:{row}{around[row]}: {line}", token.string))
                continue
            block.append(token.string)
            following = lines[row].strip() if row < len(lines) else ""
            if not following.startswith("#"):
                found.append((f"{place}:{row}{around[row]}: {following}", "\n".join(block)))
                block = []
        for node in ast.walk(tree):
            if isinstance(node, (*DEFINITIONS, ast.ClassDef, ast.Module)) and (
                said := ast.get_docstring(node)
            ):
                outer = "" if isinstance(node, ast.Module) else around[node.lineno - 1]
                found.append((f"{place}{outer}: {_head(node)}", said))
    return found


def _name_definitions(node: ast.AST, around: list[str], outer: str = "") -> None:
    """Writes into `around`, for each line of the definitions in this node, in which of them it is."""
    for child in ast.iter_child_nodes(node):
        name = outer
        if isinstance(child, (*DEFINITIONS, ast.ClassDef)):
            name = f"{outer}.{child.name}" if outer else f", in {child.name}"
            around[child.lineno : child.end_lineno] = [name] * ((child.end_lineno or 0) - child.lineno)
        _name_definitions(child, around, name)


def _head(node: ast.AST) -> str:
    """A definition's first line, whole."""
    if isinstance(node, ast.Module):
        return "the module"
    return ast.unparse(node).partition(":\n")[0].rpartition("\n")[2]


def _make_test_helpers_importable() -> None:
    """The scripted upstream, the running gateway and the collections of the tests."""
    for room in ("", "client", "sampling", "serve"):
        if (folder := str(ROOT / "tests" / room)) not in sys.path:
            sys.path.insert(0, folder)


def _answer_in_turn(number: int, _body: dict[str, Any]) -> Any:  # noqa: ANN401 - a behaviour of the upstream
    """Two answers by turns, so that the policy draws several samples."""
    from behaviours import Reply

    message = {"role": "assistant", "content": f"The answer is {number % 2}."}
    usage = {"prompt_tokens": 20, "completion_tokens": 8, "total_tokens": 28}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return Reply(body={"object": "chat.completion", "choices": choices, "usage": usage})


def count_traced_files() -> dict[str, Any]:
    """How many files one request, one sample and one call of `ac.ask` pass through, and which."""
    request, sample, ask = request_files(), sample_files(), ask_files()
    return {
        "files_per_request": len(request),
        "files_per_sample": len(sample),
        "files_per_ask": len(ask),
        "request_files": request,
        "sample_files": sample,
        "ask_files": ask,
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
    parser.add_argument("--comments", type=int, metavar="SEED", help="40 comments and docstrings, to be read")
    arguments = parser.parse_args()
    if arguments.comments is not None:
        for place, said in random.Random(arguments.comments).sample(list_comments(), 40):
            print(f"{place}\n    {said}\n".replace("\n", "\n    ").rstrip())
        return
    metrics = static_metrics() | count_traced_files() | {"version_time_ratio": start_ratio(["--version"])}
    if arguments.json:
        print(json.dumps(metrics, indent=1))
        return
    for key, value in metrics.items():
        if key not in {"lonely", "participles", "odd", "request_files", "sample_files", "ask_files"}:
            print(f"{re.sub('_', ' ', key):45} {value if not isinstance(value, list) else len(value)}")


if __name__ == "__main__":
    main()
