"""The reports of both bundled recordings, as the demo and `report --quick` make them."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tiers import leave_to_nightly

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "serve")]


@pytest.fixture(scope="session", params=leave_to_nightly(["words", "facts"]))
def report(request: pytest.FixtureRequest, report_folder: Callable[[str], Path]) -> Path:
    """The folder of one of the two reports."""
    return report_folder(request.param)


@pytest.fixture(scope="session")
def words(report_folder: Callable[[str], Path]) -> Path:
    """The folder of the first one."""
    return report_folder("words")
