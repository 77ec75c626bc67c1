"""The quick report of both bundled recordings, made once for all workers of a run, by the real command."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "serve")]

COMMAND = Path(sys.executable).parent / "adacompute"
RECORDINGS = ("facts", "words")


def made_once(folder: Path, name: str) -> Path:
    """The report of a recording below `folder`; whoever comes second makes the other one meanwhile."""
    if not _made(folder, name, wait=False):
        for other in RECORDINGS:
            _made(folder, other, wait=False)
        _made(folder, name, wait=True)
    return folder / name


def _made(folder: Path, name: str, *, wait: bool) -> bool:
    """False: somebody else is about to make it."""
    with (folder / f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        if not (folder / name).exists():
            _make(folder / name, name)
    return True


def _make(place: Path, name: str) -> None:
    plain = {key: value for key, value in os.environ.items() if not key.startswith("ADACOMPUTE_")}
    words = ["report", name, "-o", str(place), "--quick", "--workers", "1"]
    words += ["--input-price", "0.2", "--output-price", "0.8", "--requests", "100000"]
    done = subprocess.run(
        [COMMAND, *words], cwd=place.parent, env=plain, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "reports"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session", params=RECORDINGS)
def report(request: pytest.FixtureRequest, reports: Path) -> Path:
    """The folder of one of the two reports."""
    return made_once(reports, request.param)


@pytest.fixture(scope="session")
def facts(reports: Path) -> Path:
    """The folder of the first one."""
    return made_once(reports, "facts")
