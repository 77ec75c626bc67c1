"""Numbers that can't be used are refused in words, however large: given or stored, live or in replay."""

import math

import numpy as np
import pytest
from every_policy import KINDS, ballots, made

from adacompute.answers import Tally, VoteWeights
from adacompute.errors import (
    AdacomputeError,
    BudgetOutOfRange,
    PolicyError,
    PolicyInvalid,
    TaskError,
    format_value,
)
from adacompute.evaluate.rivals import COMPARED, RandomPolicy
from adacompute.policies.base import check_dial, check_number, wrap_restore_errors
from adacompute.policies.baselines import FixedPolicy
from adacompute.policies.classifier import ClassifierPolicy
from adacompute.replay import replay

HUGE = [10**400, -(10**400), 10**5000]  # beyond floats; the last one beyond what Python writes
WRONG = [None, True, False, "0.1", math.nan, math.inf, -math.inf, -0.1, [0.1], np.array(0.1), np.nan, *HUGE]
DIALS = {
    "threshold": [0, 1, 0.5, np.float32(0.25), np.int64(1)],
    "price": [0, 1, 3.5, np.float32(0.25), 10**20],
}


def shown_in(value: object, error: pytest.ExceptionInfo[AdacomputeError]) -> bool:
    """Whether a message of one line, and no longer than that, says which value it is about."""
    text = str(error.value)
    return "\n" not in text and len(text) < 300 and format_value(value) in text


@pytest.mark.parametrize("value", WRONG, ids=format_value)
def test_what_is_no_finite_number_is_none_anywhere(value):
    with pytest.raises(PolicyError, match="give a number from 0 up") as error:
        check_number("share", value, low=0)
    assert shown_in(value, error)
    for high in (1.0, math.inf):
        with pytest.raises(PolicyError, match=r"give a number from 0 .*calibrate") as error:
            check_dial("price", value, high=high)
        assert shown_in(value, error)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if COMPARED[kind].dial is not None])
@pytest.mark.parametrize("value", [*WRONG, 1.5], ids=format_value)
def test_live_and_replay_refuse_the_same_dials_in_the_same_words(kind, value):
    policy = made(kind)
    if value == 1.5 and policy.dial == "price":
        warmup = 4 if kind == "pets" else 1  # samples that are drawn at any price
        assert policy.more("What is 2 + 2?", Tally.of(["4"] * warmup), value) == 0
        return
    said = set()
    for tally in (Tally(), Tally.of(["4", "5"])):
        with pytest.raises(PolicyError) as error:
            policy.more("What is 2 + 2?", tally, value)
        assert shown_in(value, error)
        said.add(str(error.value))
    if value is not None:  # replay says what to do without one
        with pytest.raises(PolicyError) as error:
            replay(policy, ballots(), price=value, orders=2)
        said.add(str(error.value))
    assert len(said) == 1


@pytest.mark.parametrize("kind", [kind for kind in KINDS if COMPARED[kind].dial is not None])
def test_live_and_replay_take_the_same_dials(kind):
    policy = made(kind)
    for value in DIALS[policy.dial]:
        assert replay(policy, ballots(), price=value, orders=2).dial == float(value)
        assert policy.more("What is 2 + 2?", Tally(), value) >= 1


@pytest.mark.parametrize("value", HUGE, ids=format_value)
def test_a_number_beyond_floats_is_refused_wherever_it_is_given(value):
    for make in (FixedPolicy, RandomPolicy):
        with pytest.raises(PolicyError) as error:
            make(value)
        assert shown_in(value, error)
    for given in ({"scale": value}, {"scale": 0.5, "sharpness": value}):
        with pytest.raises(TaskError, match="give a") as error:
            VoteWeights(signal="entropy", **given)
        assert len(str(error.value)) < 200
    with pytest.raises(BudgetOutOfRange, match="give 1 to 16") as error:
        ClassifierPolicy().fit(ballots(), budget=value)
    assert shown_in(value, error)
    with pytest.raises(PolicyError, match="longest") as error:
        FixedPolicy(2, longest=value)
    assert shown_in(value, error)


def test_stored_numbers_beyond_floats_are_of_no_policy():
    stored = FixedPolicy(2).settings()
    weigh = {"signal": "logprob", "scale": -(10**400), "sharpness": 2.0}
    for change in ({"budget": 10**400}, {"seed": 10**400}, {"longest": 10**400}, {"weigh": weigh}):
        with pytest.raises(PolicyInvalid) as error:
            FixedPolicy.restore(stored | change, {})
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "wrong", [OverflowError("too\nlarge"), ZeroDivisionError("0"), TypeError("a"), ValueError("b")]
)
def test_what_can_not_be_computed_with_is_no_stored_policy(wrong):
    with (
        pytest.raises(PolicyInvalid, match="not the settings of a stored asc policy") as error,
        wrap_restore_errors("asc"),
    ):
        raise wrong
    assert "\n" not in str(error.value)
