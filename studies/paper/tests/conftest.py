"""What the study's tests share: recordings, the paper's source, and the study's command."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from recorded import lines, written

from adacompute.pool import open_pool
from studies.paper.paper_pool import PaperPool, score_paper_pool
from synthetic import poor as poor_recordings
from synthetic import synthetic

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def case() -> PaperPool:
    """A recording with a bit of everything."""
    return score_paper_pool(synthetic(), "made")


@pytest.fixture(scope="session")
def poor_cases() -> dict[str, PaperPool]:
    """Recordings that lack something, by what they lack."""
    return poor_recordings(score_paper_pool)


def read_case(folder: Path, rows: list, name: str = "small") -> PaperPool:
    with open_pool(written(folder / f"{name}.jsonl", rows)) as pool:
        return score_paper_pool(pool.ballots(), name)


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> PaperPool:
    """A recording with levels, from hopeless to easy problems."""
    return read_case(tmp_path_factory.mktemp("good"), lines(60, 16, seed=1, levels=True))


@pytest.fixture(params=["two samples", "all right", "all wrong"])
def poor(request: pytest.FixtureRequest, tmp_path: Path) -> PaperPool:
    """Recordings that have little to tell."""
    rows = {
        "two samples": lambda: lines(12, 2, seed=2),
        "all right": lambda: lines(10, 4, seed=3, sure=1.0),
        "all wrong": lambda: lines(10, 4, seed=4, sure=0.0),
    }
    return read_case(tmp_path, rows[request.param]())


@pytest.fixture(scope="session")
def source() -> str:
    """The paper's source; the test skips, saying so, where it isn't."""
    file = ROOT.parent / "shared" / "paper.tex"
    if not file.is_file():
        pytest.skip("needs the paper's source, ../shared/paper.tex, which is not part of the repository")
    return file.read_text("utf-8")


@pytest.fixture
def paper(tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Run the study's command in an empty folder: `paper("reproduce", "words")`."""

    def run(*words: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
        environ = {name: value for name, value in os.environ.items() if not name.startswith("ADACOMPUTE_")}
        done = subprocess.run(
            [sys.executable, "-m", "studies.paper", *words],
            cwd=tmp_path,
            env=environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=200,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run
