"""The clients' own environments under `.clients/`, made when they are first wanted: `python environments.py`.

They are no part of the lock. Their versions stand in `pins/`, made from the names beside them by
`uv pip compile NAME.in -o NAME.txt --universal --python-version 3.11 --no-header --no-annotate
--no-emit-index-url --no-emit-find-links`. Two are for Python, because some clients still need
openai 2 and others have openai 3; aider pins all that it needs, and has one of its own, as has LiteLLM's
proxy, which needs a hundred packages; `node` is for npm's. `current` and `integrations` also hold what
adacompute needs, but not itself: `pyproject.toml` is named beside NAME.in for them, and `--no-config`. This
uses the standard library alone.
"""

import fcntl
import functools
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["NAMES", "Absent", "prepare"]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".clients"
PINS = Path(__file__).resolve().parent / "pins"
NAMES = ("current", "older", "node", "aider", "proxy", "integrations")
UV = "uv==0.13.7"
LIMIT = 600.0  # seconds for one command


class Absent(Exception):
    """An environment that can't be made on this machine: why in brief, and what was said about it."""

    def __init__(self, why: str, said: str = "") -> None:
        super().__init__(f"{why}: {said}" if said else why)
        self.why = why


def prepare(name: str) -> Path:
    """The program that runs an environment's adapters, Python or node; Absent if there can't be one."""
    found = try_once(name)
    if isinstance(found, Absent):
        raise found
    return found


@functools.cache
def try_once(name: str) -> Path | Absent:
    """The program, or why there is none: an installer that has failed isn't waited for again."""
    try:
        return make(name)
    except Absent as exc:
        return exc


def make(name: str) -> Path:
    """Makes an environment unless it is there; one process at a time."""
    FOLDER.mkdir(exist_ok=True)
    pins = PINS / ("package.json" if name == "node" else f"{name}.txt")
    wanted = hashlib.sha256(pins.read_bytes() + sys.version.encode()).hexdigest()
    place, stamp = FOLDER / name, FOLDER / f"{name}.ready"
    with (FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(place, ignore_errors=True)
            make_node(place, pins) if name == "node" else make_python(place, pins)
            stamp.write_text(wanted)
    return Path(str(shutil.which("node"))) if name == "node" else place / "bin" / "python"


def make_python(place: Path, pins: Path) -> None:
    """A virtual environment with the pinned packages, by uv where that can be had, else by pip."""
    call(sys.executable, "-m", "venv", str(place))
    python = str(place / "bin" / "python")
    try:
        words = "pip install --no-config --quiet"  # the overrides in pyproject.toml are for the lock alone
        uv = prepare_uv()
        call(str(uv), *words.split(), "--python", python, "--requirement", str(pins))
    except Absent:
        call(python, "-m", "pip", "install", "--quiet", "--requirement", str(pins))


def prepare_uv() -> Path:
    """The installer that is ten times as quick as pip."""
    place = FOLDER / "uv"
    with (FOLDER / "uv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "bin" / "uv").exists():
            call(sys.executable, "-m", "venv", str(place))
            call(str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", UV)
    return place / "bin" / "uv"


def make_node(place: Path, pins: Path) -> None:
    """A folder with node_modules, in which adapters can be run."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise Absent("node and npm are not installed")
    place.mkdir()
    shutil.copy(pins, place)
    words = "install --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel=error"
    call(npm, *words.split(), folder=place)


def call(*words: str, folder: Path = FOLDER) -> None:
    """Runs a command; Absent, with its last words, where it fails."""
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired as exc:
        raise Absent(f"{Path(words[0]).name} takes longer than {LIMIT:.0f} s to install it") from exc
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise Absent(f"{Path(words[0]).name} can't install it", said[:200])


def main() -> int:
    absent = 0
    for name in sys.argv[1:] or NAMES:
        try:
            prepare(name)
        except Absent as exc:
            print(f"{name}: {exc}", file=sys.stderr)
            absent += 1
    return 1 if absent else 0


if __name__ == "__main__":
    sys.exit(main())
