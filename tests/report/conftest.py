"""The reports of both bundled recordings, as the demo and `report --quick` make them."""

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "serve")]


@pytest.fixture(scope="session", params=["facts", "words"])
def report(request: pytest.FixtureRequest, demo) -> Path:
    """The folder of one of the two reports."""
    return demo.folder / request.param


@pytest.fixture(scope="session")
def facts(demo) -> Path:
    """The folder of the first one."""
    return demo.folder / "facts"
