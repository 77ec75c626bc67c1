"""Lets the tests of this folder share small recordings and the paper's source."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from recorded import lines, written

from adacompute.evaluate.scored_pool import ScoredPool, score_pool
from adacompute.pool import open_pool

ROOT = Path(__file__).resolve().parents[3]


def case(folder: Path, rows: list, name: str = "small") -> ScoredPool:
    with open_pool(written(folder / f"{name}.jsonl", rows)) as pool:
        return score_pool(pool.ballots(), name)


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> ScoredPool:
    """A recording with levels, from hopeless to easy problems."""
    return case(tmp_path_factory.mktemp("good"), lines(60, 16, seed=1, levels=True))


@pytest.fixture(params=["two samples", "all right", "all wrong"])
def poor(request: pytest.FixtureRequest, tmp_path: Path) -> ScoredPool:
    """Recordings that have little to tell."""
    rows = {
        "two samples": lambda: lines(12, 2, seed=2),
        "all right": lambda: lines(10, 4, seed=3, sure=1.0),
        "all wrong": lambda: lines(10, 4, seed=4, sure=0.0),
    }
    return case(tmp_path, rows[request.param]())


@pytest.fixture(scope="session")
def source() -> str:
    """The paper's source; the test skips, saying so, where it isn't."""
    file = ROOT.parent / "shared" / "paper.tex"
    if not file.is_file():
        pytest.skip("needs the paper's source, ../shared/paper.tex, which is not part of the repository")
    return file.read_text("utf-8")
