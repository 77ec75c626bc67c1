"""Lets the tests of this folder import what they share."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from synthetic import poor, synthetic

from adacompute.evaluate.paper.case import Case, case_of


@pytest.fixture(scope="session")
def case() -> Case:
    """A recording with a bit of everything."""
    return case_of(synthetic(), "made")


@pytest.fixture(scope="session")
def poor_cases() -> dict[str, Case]:
    """Recordings that lack something, by what they lack."""
    return poor()
