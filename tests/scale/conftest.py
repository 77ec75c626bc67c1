"""A curve over prompts, fitted once for all processes of a run."""

import pytest

from adacompute.policies.curve import CurvePolicy
from shared import read_votes, share


@share
def fit_curve() -> CurvePolicy:
    return CurvePolicy(features="text").fit(read_votes("words").only(range(0, 440, 2)))


@pytest.fixture
def curve() -> CurvePolicy:
    return fit_curve()
