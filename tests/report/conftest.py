"""The reports of both bundled recordings, as the demo and `report --quick` make them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tiers import leave_to_nightly


@pytest.fixture(scope="session", params=leave_to_nightly(["words", "facts"]))
def report(request: pytest.FixtureRequest, report_folder: Callable[[str], Path]) -> Path:
    """The folder of one of the two reports."""
    return report_folder(request.param)


@pytest.fixture(scope="session")
def words(report_folder: Callable[[str], Path]) -> Path:
    """The folder of the first one."""
    return report_folder("words")
