"""Numbers that can't be used are refused in words, however large: given or stored, live or in replay."""

import math

import numpy as np
import pytest
from every_policy import KINDS, SAVED, ballots, made

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
from adacompute.policies.agreement import AdaptiveConsistency
from adacompute.policies.base import check_dial, check_number
from adacompute.policies.baselines import FixedPolicy
from adacompute.policies.classifier import ClassifierPolicy
from adacompute.replay import replay

HUGE = [10**400, -(10**400), 10**5000]  # beyond floats; the last one beyond what Python writes
WRONG = [None, True, False, "0.1", math.nan, math.inf, -math.inf, -0.1, [0.1], np.array(0.1), np.nan, *HUGE]
LENGTHS = (0, True, math.nan, 10**9, None, "16")
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
def test_what_can_not_be_computed_with_is_no_stored_policy(wrong, monkeypatch):
    def load(*given: object) -> None:
        raise wrong

    monkeypatch.setattr(AdaptiveConsistency, "load_learned", load)
    with pytest.raises(PolicyInvalid, match="not the settings of a stored asc policy") as error:
        AdaptiveConsistency.restore(AdaptiveConsistency().settings(), {})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("kind", "given", "named"),
    [
        ("fixed", {"budget": 0.5}, "budget 0.5 is below the smallest of budgets, 1"),
        ("fixed", {"budget": math.nan}, "budget nan"),
        ("fixed", {"budget": "2"}, "budget '2'"),
        ("fixed", {"budget": True}, "budget True"),
        ("fixed", {"budget": 2, "mix": 1}, "mix 1"),
        ("fixed", {"budget": 2, "seed": -1}, "seed -1"),
        ("fixed", {"budget": 2, "longest": 0}, "longest 0"),
        ("fixed", {"budget": 2, "longest": 2.0}, "longest 2.0"),
        ("fixed", {"budget": 2, "weigh": "logprob"}, "weigh 'logprob'"),
        ("fixed", {"budget": 4, "budgets": (4, 8), "longest": 2}, "beyond longest 2"),
        ("random", {"budget": 2, "budgets": (2, 1)}, "budgets (2, 1)"),
        ("random", {"budget": 2, "budgets": (1, True)}, "budgets"),
        ("random", {"budget": 2, "budgets": ()}, "budgets"),
        ("random", {"budget": 2, "budgets": "124"}, "budgets"),
        ("heuristic", {"budget": -1}, "budget -1"),
        ("shuffled", {"budget": 0}, "budget 0"),
        ("asc", {"wave": 0}, "wave 0"),
        ("asc", {"wave": 1.5}, "wave 1.5"),
        ("asc", {"wave": "2"}, "wave '2'"),
        ("classifier", {"features": "smell"}, "'smell'"),
        ("classifier", {"features": ""}, "''"),
        ("classifier", {"features": "text+text"}, "'text+text'"),
        ("classifier", {"features": None}, "None"),
        ("classifier", {"budgets": (32, 64)}, "32"),
        ("classifier", {"seed": -1}, "seed -1"),
        ("stopping", {"max_waves": 0}, "max_waves 0"),
        ("stopping", {"ladder": (4, 2)}, "ladder (4, 2)"),
        ("stopping", {"ladder": (1, 32)}, "ladder (1, 32)"),
        ("stopping", {"weigh": "loud"}, "weigh 'loud'"),
        ("stopping", {"draw_cost": -1}, "draw_cost -1"),
        ("stopping", {"prior": "x"}, "prior 'x'"),
        ("stopping", {"features": "yes"}, "features 'yes'"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name_in_one_line(kind, given, named):
    with pytest.raises(AdacomputeError) as error:
        COMPARED[kind](**given)
    assert named in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", SAVED)
def test_every_stored_setting_has_to_be_there_and_no_other(kind):
    settings, arrays = made(kind).settings(), made(kind).arrays()
    changed = {f"'{name}' is missing": _without(settings, name) for name in settings}
    changed |= {f"longest {value!r}": settings | {"longest": value} for value in LENGTHS}
    changed["'more' is not known"] = settings | {"more": 1}
    for named, stored in changed.items():
        with pytest.raises(PolicyInvalid) as error:
            COMPARED[kind].restore(stored, arrays)
        assert named in str(error.value)
        assert kind in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("kind", "change", "named"),
    [
        ("fixed", {"budget": None}, "budget None"),
        ("fixed", {"budget": math.nan}, "budget nan"),
        ("fixed", {"weigh": "logprob"}, "weigh 'logprob'"),
        ("fixed", {"weigh": {"signal": "logprob"}}, "weigh"),
        ("fixed", {"weigh": {"signal": "x", "scale": 1.0, "sharpness": 2.0}}, "signal 'x'"),
        ("fixed", {"weigh": {"signal": "logprob", "scale": math.nan, "sharpness": 2.0}}, "scale nan"),
        ("fixed", {"budgets": [1, 2.5]}, "budgets"),
        ("fixed", {"budgets": {"1": 2}}, "budgets"),
        ("guarantee", {"longest": 257}, "longest 257"),
        ("guarantee", {"delta": 0}, "delta 0"),
        ("guarantee", {"delta": 1.0}, "delta 1.0"),
        ("guarantee", {"delta": "0.05"}, "delta '0.05'"),
        ("oracle", {"learned": "yes"}, "learned 'yes'"),
        ("oracle", {"learned": False}, "learned False"),
        ("oracle", {"budgets": [1, 2]}, "'slopes'"),
        ("classifier", {"learned": 3}, "classifier"),
        ("classifier", {"learned": {"budget": 2.0}}, "classifier"),
        ("classifier", {"learned.classes": [4, 1]}, "classifier"),
        ("classifier", {"learned.classes": [1, 99]}, "classifier"),
        ("classifier", {"learned.classes": []}, "classifier"),
        ("classifier", {"learned.scorer": "pickle"}, "classifier"),
        ("classifier", {"learned.scorer": "constant"}, "classifier"),
        ("classifier", {"learned.entropy": 1}, "classifier"),
        ("classifier", {"learned.budget": "much"}, "classifier"),
        ("classifier", {"features": "text"}, "classifier"),
        ("classifier", {"features": "smell"}, "'smell'"),
        ("classifier", {"model": "gpt"}, "'gpt'"),
        ("curve", {"learned": 1}, "curve"),
        ("curve", {"learned": {}}, "curve"),
        ("curve", {"features": "text"}, "curve"),
        ("curve", {"budgets": [1, 2]}, "curve"),
    ],
)
def test_a_stored_setting_that_cannot_be_is_refused_by_name(kind, change, named):
    settings = made(kind).settings()
    for name, value in change.items():
        outer, _, inner = name.partition(".")
        settings = settings | {outer: settings[outer] | {inner: value} if inner else value}
    with pytest.raises(PolicyInvalid) as error:
        COMPARED[kind].restore(settings, made(kind).arrays())
    assert named in str(error.value)


def _without(settings, name):
    return {key: value for key, value in settings.items() if key != name}
