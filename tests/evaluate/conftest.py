"""Lets the tests of this folder import what they share, and gives them small recordings."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from synthetic import poor, synthetic

from adacompute.evaluate.scored_pool import ScoredPool, score_pool


@pytest.fixture(scope="session")
def case() -> ScoredPool:
    """A recording with a bit of everything."""
    return score_pool(synthetic(), "made")


@pytest.fixture(scope="session")
def poor_cases() -> dict[str, ScoredPool]:
    """Recordings that lack something, by what they lack."""
    return poor()
