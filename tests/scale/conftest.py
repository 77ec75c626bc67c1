"""A curve over prompts, fitted once for the tests of this room."""

import pytest

from adacompute.policies.curve import CurvePolicy
from shared import read_votes


@pytest.fixture(scope="session")
def curve() -> CurvePolicy:
    return CurvePolicy(features="text").fit(read_votes("words").only(range(0, 440, 2)))
