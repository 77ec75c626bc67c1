"""A user's own pattern: found here or in the helper, the same either way."""

import pytest

from adacompute.answers.sandbox import find_last_match


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"RESULT=(\d+)", "RESULT=1 RESULT=22", "22"),
        (r"\s*=\s*(-?\d+)", "a = 5, b = -6", "-6"),
        (r"(a+)+$", "a" * 60 + "!", None),
        (r"(a|aa)+$", "a" * 90 + "!", None),
        (r"(x)?y", "y", None),
        (r"\d+", "9" * 60_000, "9" * 60_000),
        ("(\ud800+)", "a\ud800\ud800", "\ud800\ud800"),
    ],
)
def test_a_users_pattern_finds_its_last_match_or_gives_up(pattern, text, found):
    assert find_last_match(pattern, text) == found
