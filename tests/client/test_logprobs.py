"""Log-probability and entropy from the tokens of a reply."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adacompute.answers.signals import summarise_tokens
from adacompute.client.response_parser import read_tokens


def token(*chances: float, logprob: object = -0.5) -> dict[str, object]:
    return {"logprob": logprob, "top_logprobs": [{"logprob": math.log(p)} for p in chances]}


def test_logprob_is_the_sum_and_placeholders_stand():
    assert summarise_tokens([token(), token(logprob=-9999.0), token(logprob=-1)]).logprob == -10000.5


def test_a_token_without_a_number_leaves_the_sum_unknown():
    for wrong in (None, "x", [1]):
        assert summarise_tokens([token(), token(logprob=wrong)]).logprob is None
    assert summarise_tokens([{}]).logprob is None


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_numbers_that_are_not_finite_are_left_out(value):
    assert summarise_tokens([token(), token(logprob=value)]).logprob == -0.5
    alternatives = [{"logprob": value}, {"logprob": math.log(0.5)}]
    assert summarise_tokens([{"top_logprobs": alternatives}]).entropy is not None


@pytest.mark.parametrize("values", [[1e308, 1e308], [-1e308, -1e308], [-(10**400)], [10**400, -1.0]])
def test_sums_that_no_number_holds_are_unknown(values):
    tokens = [{"logprob": v, "top_logprobs": [{"logprob": v}]} for v in values]
    assert summarise_tokens(tokens).logprob is None
    entropy = summarise_tokens(tokens).entropy
    assert (entropy is None) == (max(values) < -700)  # such a low one stands for what the server doesn't know
    assert entropy is None or math.isfinite(entropy)


def test_what_the_alternatives_leave_is_one_more_outcome():
    expected = -sum(p * math.log(p) for p in (0.5, 0.25, 0.25))
    assert summarise_tokens([token(0.5, 0.25)]).entropy == pytest.approx(expected)
    assert summarise_tokens([token(0.5, 0.25), token(1.0)]).entropy == pytest.approx(expected / 2)


def test_no_alternatives_no_entropy():
    assert summarise_tokens([token(), token()]).entropy is None
    assert summarise_tokens([{}, {"top_logprobs": None}, {"top_logprobs": "x"}]).entropy is None
    assert summarise_tokens([token(), token(0.5)]).entropy == pytest.approx(math.log(2))


@given(st.lists(st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=8), min_size=1, max_size=8))
def test_entropy_lies_between_none_and_that_of_equal_chances(rows):
    scaled = [[p / max(1.0, sum(row)) for p in row] for row in rows]
    entropy = summarise_tokens([token(*row) for row in scaled]).entropy
    assert entropy is not None
    assert -1e-9 <= entropy <= math.log(9) + 1e-9


@given(st.lists(st.floats(0.01, 1.0), min_size=2, max_size=8), st.integers(1, 7))
def test_fewer_alternatives_never_raise_the_entropy(weights, kept):
    chances = sorted((w / sum(weights) for w in weights), reverse=True)
    whole, part = (summarise_tokens([token(*row)]).entropy for row in (chances, chances[:kept]))
    assert whole is not None
    assert part is not None
    assert part <= whole + 1e-9


@pytest.mark.parametrize("value", [None, [], "x", {}, {"content": None}, {"content": []}, {"content": [1]}])
def test_logprobs_of_another_shape_are_none(value):
    assert read_tokens(value) is None
