"""Answers that are Python literals or durations: every spelling of a value is one answer."""

import ast
import itertools
import random
import warnings
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adacompute.answers import classify, same_answer
from adacompute.answers.quantity import count_seconds
from adacompute.answers.structured import canonicalise_literal

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
scalars = (
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.integers(-999, 999).map(lambda n: n / 8)
)
values = st.recursive(
    scalars | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.sets(scalars | texts, min_size=1, max_size=3)
        | st.dictionaries(scalars | texts, inner, max_size=3)
    ),
    max_leaves=8,
)
literals = values.filter(lambda value: isinstance(value, str | list | tuple | set | dict))


def spell(value: Any, rng: Any) -> str:
    """The value as Python text, with blanks, quotes and the order of keys by chance."""
    gap = " " * rng.randint(0, 2)
    if isinstance(value, str):
        written = repr(value)
        if written[0] == "'" and '"' not in value and rng.random() < 0.5:
            written = f'"{written[1:-1]}"'
        return written
    if isinstance(value, dict):
        items = [f"{spell(name, rng)}:{gap}{spell(item, rng)}" for name, item in value.items()]
        rng.shuffle(items)
        return "{" + f",{gap}".join(items) + gap + "}"
    if isinstance(value, set):
        items = [spell(item, rng) for item in value]
        rng.shuffle(items)
        return "{" + f"{gap},".join(items) + "}"
    if isinstance(value, list | tuple):
        items = [spell(item, rng) for item in value]
        inner = f",{gap}".join(items)
        return f"[{gap}{inner}]" if isinstance(value, list) else f"({inner}{',' if len(items) == 1 else ''})"
    return repr(value)


@given(literals, st.randoms(use_true_random=False))
@example(["it's", 'say "x"'], None)
def test_every_spelling_of_a_python_value_is_one_answer(value: Any, rng: Any):
    rng = rng or random.Random(0)
    one, other = spell(value, rng), spell(value, rng)
    assert canonicalise_literal(one) == canonicalise_literal(other) is not None
    assert same_answer(one, other)
    assert classify([one, other]) == [0, 0]


@given(literals, literals, st.randoms(use_true_random=False))
def test_literals_are_equal_where_python_says_so(one: Any, other: Any, rng: Any):
    same = canonicalise_literal(spell(one, rng)) == canonicalise_literal(spell(other, rng))
    assert same == (one == other)


@given(st.text("[](){},:'\"\\ \n1.5-eTrueNone x", max_size=30))
def test_what_python_can_not_read_has_no_literal_form(text: str):
    if canonicalise_literal(text) is None:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert ast.literal_eval(text.strip()) is not None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("'x'", '"x"', True),
        ("[1, 2]", "[1,2]", True),
        ("[1, 2]", "[2, 1]", False),
        ("(1,)", "(1, )", True),
        ("(1,)", "[1]", False),
        ("{'l': 1, 't': 2}", '{"t": 2, "l": 1}', True),
        ("{'1': 'a', '1': 'b'}", "{'1': 'b'}", True),
        ("{1: 47698, 1: 38381, 3: 83607}", "{1: 38381, 3: 83607}", True),
        ("{1: 2}", "{'1': 2}", False),
        ("['']", '[""]', True),
        ("['-4 => 4', '1 => 2']", '["-4 => 4", "1 => 2"]', True),
        ("[['a', '\"b\"']]", '[["a", \'"b"\']]', True),
        (r"'it\'s'", '"it\'s"', True),
        ("'Budapest'", "budapest", True),  # a word in quotes is a word
        ('{"city": true}', '{"city": 1}', False),  # JSON's true is no Python
        ("[1, 2", "[1, 2]", False),
    ],
)
def test_answers_as_python_literals(one: str, other: str, same: bool):
    assert same_answer(one, other) is same_answer(other, one) is same
    assert (classify([one, other]) == [0, 0]) is same


def test_a_hostile_literal_has_no_form_and_takes_no_time():
    for text in ("[" * 999, "(" * 400 + ")" * 400, "'" + "\\" * 900, "{" + "1:" * 400, "[" + "1," * 400):
        assert canonicalise_literal(text) is None
    assert canonicalise_literal("[" + "1," * 2000 + "]") is None
    assert canonicalise_literal(r"'\U99999999'") is None


DURATIONS = [
    "5:18",
    "05:18",
    "318 minutes",
    "5 hours 18 minutes",
    "5 hours and 18 minutes",
    "5h 18m",
    "sec:19080",
]


def test_a_duration_is_one_answer_however_it_is_written():
    for one, other in itertools.combinations(DURATIONS, 2):
        assert same_answer(one, other), (one, other)
    assert classify(DURATIONS) == [0] * len(DURATIONS)
    assert same_answer("02:18:02.314", "sec:8282.314")
    assert same_answer(r"2 \text{ days, } 11:20:00", "59:20:00")
    assert same_answer("3 hours 35 minutes", "215 minutes")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("5:18", "318"),  # a bare number has no unit that would make it minutes
        ("5:18", "5.18"),
        ("5:18 pm", "318 minutes"),
        ("5:18", "5:17"),
        ("1:2", "62 minutes"),  # a ratio
        ("3:4:5", "sec:11045"),
        ("5 m", "5 minutes"),
        ("5 s 3 m", "3 m 5 s"),
        ("90 minutes", "1.5 hours"),  # units are not converted into each other
        ("5:75", "6:15"),
    ],
)
def test_what_is_no_duration_or_another_one_stays_apart(one: str, other: str):
    assert not same_answer(one, other)
    assert classify([one, other]) == [0, 1]


@given(st.integers(0, 99), st.integers(0, 59), st.integers(0, 59))
def test_clocks_words_and_seconds_count_the_same(hours: int, minutes: int, seconds: int):
    total = hours * 3600 + minutes * 60 + seconds
    for text in (
        f"{hours}:{minutes:02}:{seconds:02}",
        f"{hours} hours, {minutes} minutes and {seconds} seconds",
        f"sec:{total}",
    ):
        assert count_seconds(text) == total
        assert same_answer(text, f"sec:{total}")


def test_recorded_grades_keep_equal_literals_apart():
    assert classify(["['a']", '["a"]', '["a"]'], [1.0, 0.0, 1.0]) == [0, 1, 0]
