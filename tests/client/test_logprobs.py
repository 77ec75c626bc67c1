"""Log-probability and entropy from the tokens of a reply."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adacompute.answers.signals import compute_mean_entropy, sum_logprobs
from adacompute.client.response_parser import read_tokens


def token(*chances: float, logprob: object = -0.5) -> dict[str, object]:
    return {"logprob": logprob, "top_logprobs": [{"logprob": math.log(p)} for p in chances]}


def test_logprob_is_the_sum_and_placeholders_stand():
    assert sum_logprobs([token(), token(logprob=-9999.0), token(logprob=-1)]) == -10000.5


def test_a_token_without_a_number_leaves_the_sum_unknown():
    for wrong in (None, "x", [1]):
        assert sum_logprobs([token(), token(logprob=wrong)]) is None
    assert sum_logprobs([{}]) is None


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_numbers_that_are_not_finite_are_left_out(value):
    assert sum_logprobs([token(), token(logprob=value)]) == -0.5
    assert (
        compute_mean_entropy([{"top_logprobs": [{"logprob": value}, {"logprob": math.log(0.5)}]}]) is not None
    )


@pytest.mark.parametrize("values", [[1e308, 1e308], [-1e308, -1e308], [-(10**400)], [10**400, -1.0]])
def test_sums_that_no_number_holds_are_unknown(values):
    tokens = [{"logprob": v, "top_logprobs": [{"logprob": v}]} for v in values]
    assert sum_logprobs(tokens) is None
    entropy = compute_mean_entropy(tokens)
    assert entropy is not None
    assert math.isfinite(entropy)


def test_what_the_alternatives_leave_is_one_more_outcome():
    expected = -sum(p * math.log(p) for p in (0.5, 0.25, 0.25))
    assert compute_mean_entropy([token(0.5, 0.25)]) == pytest.approx(expected)
    assert compute_mean_entropy([token(0.5, 0.25), token(1.0)]) == pytest.approx(expected / 2)


def test_no_alternatives_no_entropy():
    assert compute_mean_entropy([token(), token()]) is None
    assert compute_mean_entropy([{}, {"top_logprobs": None}, {"top_logprobs": "x"}]) is None
    assert compute_mean_entropy([token(), token(0.5)]) == pytest.approx(math.log(2))


@given(st.lists(st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=8), min_size=1, max_size=8))
def test_entropy_lies_between_none_and_that_of_equal_chances(rows):
    scaled = [[p / max(1.0, sum(row)) for p in row] for row in rows]
    entropy = compute_mean_entropy([token(*row) for row in scaled])
    assert entropy is not None
    assert -1e-9 <= entropy <= math.log(9) + 1e-9


@given(st.lists(st.floats(0.01, 1.0), min_size=2, max_size=8), st.integers(1, 7))
def test_fewer_alternatives_never_raise_the_entropy(weights, kept):
    chances = sorted((w / sum(weights) for w in weights), reverse=True)
    whole, part = compute_mean_entropy([token(*chances)]), compute_mean_entropy([token(*chances[:kept])])
    assert whole is not None
    assert part is not None
    assert part <= whole + 1e-9


@pytest.mark.parametrize("value", [None, [], "x", {}, {"content": None}, {"content": []}, {"content": [1]}])
def test_logprobs_of_another_shape_are_none(value):
    assert read_tokens(value) is None
