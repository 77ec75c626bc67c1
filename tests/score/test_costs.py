"""Costs by hand, and what can't be paid is named."""

import math
from typing import Any

import numpy as np
import pytest
from made_ballots import made

from adacompute.errors import NotRecorded, ScoreError
from adacompute.pool import Ballots
from adacompute.records import TokenPrices
from adacompute.score.score import Costs, compute_costs

ALL = np.array([0, 1])


def ballots(**fields: Any) -> Ballots:
    """Two problems, of three and two samples, with questions of 8 and 20 characters."""
    tokens = np.array([[10.0, 20.0, 60.0], [5.0, 7.0, math.nan]])
    plain = {"tokens": tokens, "prompts": ("x" * 8, "y" * 20)}
    return made([[(0, 1.0)] * 3, [(0, 1.0)] * 2], **(plain | fields))


def cost(kind: Any, rows: np.ndarray = ALL, **fields: Any) -> Costs:
    return compute_costs(ballots(**fields), (1, 2, 4), kind, rows=rows)


def test_samples_cost_the_same_for_every_problem():
    found = cost("samples")
    assert (found.amounts.tolist(), found.unit, found.note) == ([1, 2, 4], "samples", "")


def test_tokens_are_the_problems_own_mean_times_the_budget():
    found = cost("tokens")
    assert (found.amounts.tolist(), found.unit) == ([[30, 60, 120], [6, 12, 24]], "tokens")
    assert cost("tokens", np.array([1])).amounts.tolist() == [[6, 12, 24]]


def test_money_is_output_and_prompts_each_time_or_once():
    each = TokenPrices(input=2e6, output=1e6, prompt_tokens=[3, 4], currency="cents")
    found = cost(each)
    assert found.amounts.tolist() == [[30 + 6, 60 + 12, 120 + 24], [6 + 8, 12 + 16, 24 + 32]]
    assert (found.unit, found.note) == ("cents", "")
    once = TokenPrices(input=2e6, output=1e6, prompt_tokens=3, prompts="once")
    assert cost(once).amounts.tolist() == [[36, 66, 126], [12, 18, 30]]
    assert cost(each, np.array([1])).amounts.tolist() == [[14, 28, 56]]  # the second problem's own prompt


def test_unknown_prompts_are_estimated_at_four_characters_a_token_and_said_to_be():
    found = cost(TokenPrices(input=1e6, output=0))
    assert found.amounts.tolist() == [[2, 4, 8], [5, 10, 20]]
    assert "estimated at 4 characters" in found.note
    assert cost(TokenPrices(input=0, output=1)).note == ""


def test_unknown_tokens_are_named_where_they_are_needed():
    unknown = np.array([[10.0, 20.0, 60.0], [5.0, math.nan, math.nan]])
    for kind in ("tokens", TokenPrices(input=1, output=1)):
        with pytest.raises(NotRecorded, match=r"problem 'p1' has samples without.*cost='samples'"):
            cost(kind, tokens=unknown)
    assert cost("tokens", np.array([0]), tokens=unknown).amounts.tolist() == [[30, 60, 120]]
    assert cost(TokenPrices(input=1e6, output=0), tokens=unknown).amounts[1, 0] == 5


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"input": -1}, "input price -1 is not a price; give a number from 0 up"),
        ({"output": math.nan}, "output price nan"),
        ({"output": math.inf}, "output price inf"),
        ({"output": "3"}, "output price '3'"),
        ({"input": True}, "input price True"),
        ({"prompt_tokens": -3}, "prompt_tokens -3"),
        ({"prompt_tokens": [1, math.nan]}, r"prompt_tokens\[1\] nan"),
        ({"prompt_tokens": "many"}, "prompt_tokens 'many'"),
        ({"prompt_tokens": [[1, 2]]}, r"prompt_tokens\[0\] \[1, 2\]"),
        ({"prompts": "never"}, "prompts 'never' is not known; give 'each' or 'once'"),
        ({"currency": ""}, "currency '' is not a name"),
    ],
)
def test_a_price_that_cant_be_is_refused_by_name(fields: dict[str, Any], words: str):
    with pytest.raises(ScoreError, match=words):
        TokenPrices(**({"input": 1, "output": 1} | fields))


def test_a_price_keeps_its_own_copy_and_takes_any_numbers():
    tokens = [3, 4]
    price = TokenPrices(input=np.float64(1), output=np.int64(2), prompt_tokens=tokens)
    tokens[0] = 99
    assert price.prompt_tokens == (3, 4)
    array = TokenPrices(input=1, output=2, prompt_tokens=np.array([3, 4]))
    assert array == price
    assert hash(array) == hash(price)
    assert TokenPrices(input=1, output=2, prompt_tokens=np.int64(3)).prompt_tokens == 3


def test_what_doesnt_fit_is_refused_by_name():
    with pytest.raises(ScoreError, match="prompt_tokens of 3 problems don't fit these 2"):
        cost(TokenPrices(input=1, output=1, prompt_tokens=[1, 2, 3]))
    with pytest.raises(ScoreError, match=r"cost 'euros' is not known; give .* or TokenPrices"):
        cost("euros")
