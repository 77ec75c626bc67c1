"""The slow judge is started once, so that no test's time holds its start."""

import pytest

from adacompute.answers import shared_judge


@pytest.fixture(scope="session", autouse=True)
def judge_is_warm():
    assert shared_judge.warm()
