"""Signals of tokens against their plain definitions, and where an answer stands in a text."""

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacompute.answers import extract_answer
from adacompute.answers.signals import (
    add_answer_signals,
    locate_answer,
    summarise_tokens,
)
from adacompute.client.large_json import Alternative, compact_tokens
from adacompute.client.response_parser import Response
from adacompute.records import Signals

LOGPROBS = st.floats(-30.0, 0.0)
Token = dict[str, Any]


def split(text: str, *sizes: int) -> list[str]:
    """The text in pieces of these sizes, repeated as often as it takes."""
    pieces, at, place = [], 0, 0
    while at < len(text):
        size = sizes[place % len(sizes)]
        pieces.append(text[at : at + size])
        at, place = at + size, place + 1
    return pieces


def tokens_of(pieces: list[str], *, alternatives: int = 0) -> list[Token]:
    """Tokens whose log-probabilities tell them apart: -1/64 for the first, then -2/64, and so on."""
    tokens = []
    for place, piece in enumerate(pieces):
        logprob = -(place + 1) / 64
        tops = [{"token": piece, "logprob": logprob - rank} for rank in range(alternatives)]
        tokens.append({"token": piece, "logprob": logprob, "top_logprobs": tops})
    return tokens


def answer_places(text: str, answer: str, tokens: list[Token]) -> tuple[float | None, float | None]:
    signals = add_answer_signals(Signals(), tokens, text, answer)
    assert signals is not None
    return signals.answer_sum, signals.answer_least


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def lowest_mean(values: list[float]) -> float:
    width = min(32, len(values))
    return min(mean(values[at : at + width]) for at in range(len(values) - width + 1))


@settings(max_examples=60)
@given(st.lists(LOGPROBS, min_size=1, max_size=150))
def test_tail_and_window_are_as_defined(values):
    summary = summarise_tokens([{"logprob": value} for value in values])
    signals = summary.signals
    assert signals is not None
    assert summary.logprob == pytest.approx(math.fsum(values))
    assert signals.tail == pytest.approx(mean(values[-64:]), abs=2e-6)
    assert signals.window == pytest.approx(lowest_mean(values), abs=2e-6)
    assert (summary.entropy, signals.confidence, signals.answer_sum) == (None, None, None)


@settings(max_examples=60)
@given(st.lists(st.lists(LOGPROBS, min_size=2, max_size=20), min_size=1, max_size=100))
def test_confidence_is_as_defined(rows):
    tokens = [{"logprob": row[0], "top_logprobs": [{"logprob": value} for value in row]} for row in rows]
    summary = summarise_tokens(tokens)
    signals, each = summary.signals, [-mean(row) for row in rows]
    assert signals is not None
    assert signals.confidence == pytest.approx(mean(each), abs=2e-6)
    assert signals.confidence_tail == pytest.approx(mean(each[-64:]), abs=2e-6)
    assert signals.confidence_window == pytest.approx(lowest_mean(each), abs=2e-6)


@settings(max_examples=30)
@given(st.lists(LOGPROBS, min_size=1, max_size=40))
def test_tokens_as_structs_have_the_same_signals(values):
    alternatives = [{"token": "y", "logprob": -9.0, "bytes": None}, {"token": "z", "logprob": -7}]
    tokens = [{"token": "x", "logprob": v, "bytes": [120], "top_logprobs": alternatives} for v in values]
    structs, text = compact_tokens(tokens), "x" * len(tokens)
    assert all(isinstance(token, Alternative) for token in structs)
    assert summarise_tokens(structs) == summarise_tokens(tokens)
    assert add_answer_signals(Signals(), structs, text, text) == add_answer_signals(
        Signals(), tokens, text, text
    )


def test_one_token_without_two_alternatives_leaves_the_confidence_unknown():
    tokens = tokens_of(["a", "b", "c"], alternatives=3)
    assert summarise_tokens(tokens).signals.confidence is not None
    for tops in ([], None, "x", [{"logprob": -1.0}], [{"logprob": -1.0}, {"logprob": -9999.0}], [{}, {}]):
        tokens[1] = {"token": "b", "logprob": -1.0, "top_logprobs": tops}
        signals = summarise_tokens(tokens).signals
        assert (signals.confidence, signals.confidence_tail, signals.confidence_window) == (None, None, None)
        assert signals.tail is not None


@pytest.mark.parametrize("tops", [[{"logprob": -9999.0}], [{"token": "b"}], [{"logprob": None}], ["b"], []])
def test_without_a_usable_alternative_the_entropy_is_unknown_not_zero(tops: list[object]):
    assert summarise_tokens([{"logprob": -1.0, "top_logprobs": tops}]).entropy is None
    tokens = [{"token": "42", "logprob": -1.0, "top_logprobs": tops}]
    added = add_answer_signals(Signals(), tokens, "42", "42")
    assert (added.answer_sum, added.answer_entropy) == (-1.0, None)


def test_of_more_than_twenty_alternatives_the_likeliest_count():
    values = [-float(n) for n in range(1, 22)]
    tokens = [{"logprob": -21.0, "top_logprobs": [{"logprob": value} for value in reversed(values)]}]
    assert summarise_tokens(tokens).signals.confidence == pytest.approx(mean([-v for v in values[:20]]))


@pytest.mark.parametrize("value", [None, "x", [1], 10**400])
def test_a_token_without_a_number_leaves_all_unknown(value):
    summary = summarise_tokens([{"logprob": -1.0}, {"logprob": value}])
    assert (summary.logprob, summary.signals) == (None, None)


def test_numbers_that_are_not_finite_are_left_out():
    summary = summarise_tokens([{"logprob": -1}, {"logprob": -math.inf}, {"logprob": -2.0}])
    assert (summary.logprob, summary.signals) == (-3.0, Signals(tail=-1.5, window=-1.5))
    assert summarise_tokens([{"logprob": math.nan}]).signals is None


@settings(max_examples=80)
@given(st.data())
def test_the_answers_tokens_are_those_that_overlap_it(data):
    text = data.draw(st.text("ab 0.\n\\é漢", min_size=1, max_size=60))
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    begin = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(begin + 1, len(text)))
    pieces = split(text, *sizes)
    answer = text[begin:end]
    span = locate_answer(text, answer)
    found, _ = answer_places(text, answer, tokens_of(pieces))
    if span is None:
        assert found is None
        return
    assert text[slice(*span)] == answer
    total, at = 0.0, 0
    for place, piece in enumerate(pieces):
        if at < span[1] and at + len(piece) > span[0]:
            total -= (place + 1) / 64
        at += len(piece)
    assert found == pytest.approx(total, abs=2e-6)


@pytest.mark.parametrize(
    ("text", "answer", "before"),
    [
        (r"4 + 4 = 8, so \boxed{8}. Check: 8 - 4 = 4", "8", r"4 + 4 = 8, so \boxed{"),
        (r"Either \boxed{3} or \boxed{\frac{1}{2}}.", r"\frac{1}{2}", r"Either \boxed{3} or \boxed{"),
        (r"\boxed{$5$}", "5", r"\boxed{$"),
        (r"so \boxed 5.", "5", r"so \boxed "),
        ("<think>it is 7, 7</think>The answer is 7.", "7", "<think>it is 7, 7</think>The answer is "),
        ("Answer: Blue\nThe sky is Blue because of light.", "Blue", "Answer: "),
        ("The answer is 12. That is 12 more.", "12", "The answer is "),
        ("6 * 7 = 42\n#### 42\n", "42", "6 * 7 = 42\n#### "),
        ("<answer>Rome</answer> Rome it is", "Rome", "<answer>"),
        ("He has 5, then 15 and then 5.5; at last 5 of 25.", "5", "He has 5, then 15 and then 5.5; at last "),
        ("A is wrong. The answer is (B).", "B", "A is wrong. The answer is ("),
        ("A dog is an animal, so I choose (C)", "C", "A dog is an animal, so I choose ("),
        ("b", "B", ""),
        ("It went to −5", "-5", "It went to −"),
        ("答案是42。", "42", "答案是"),
    ],
)
def test_an_answer_is_found_where_it_is_stated(text, answer, before):
    span = locate_answer(text, answer)
    assert span is not None
    assert text[: span[0]] == before


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("A city on the Seine.", "A"),
        ("one half", "1/2"),
        ('{"a":  1}', '{"a":1}'),
        ("", "5"),
        ("15", "5"),
    ],
)
def test_an_answer_that_is_not_written_there_is_not_found(text, answer):
    assert locate_answer(text, answer) is None


@pytest.mark.parametrize(
    "pieces",
    [
        ["It is ", "4", "2", ".", "<|im_end|>"],
        ["It is ", "4", "2", ".\n\n"],
        ["It is ", "4", "2", ".", "", "</s>"],
        ["<think>", "hm, 42", "</think>", "It is ", "4", "2", "."],
    ],
    ids=["end mark", "stripped end", "empty token", "hidden reasoning"],
)
def test_tokens_before_and_after_the_text_are_not_the_answers(pieces):
    tokens = tokens_of(pieces, alternatives=2)
    places = [place for place, piece in enumerate(pieces) if piece in ("4", "2")]
    signals = add_answer_signals(Signals(), tokens, "It is 42.", "42")
    assert signals.answer_sum == pytest.approx(sum(tokens[place]["logprob"] for place in places), abs=2e-6)
    assert signals.answer_least == pytest.approx(tokens[places[-1]]["logprob"], abs=2e-6)
    entropies = [summarise_tokens([tokens[place]]).entropy for place in places]
    assert signals.answer_entropy == pytest.approx(max(entropies), abs=2e-6)


def test_parts_of_a_character_are_matched_by_their_bytes():
    text = "Es sind 5 €."
    raw = text.encode()
    cuts = [0, 8, 10, 11, 12, len(raw)]  # the sign for euros is split into three tokens
    tokens = [
        {"token": raw[a:b].decode("utf-8", "replace"), "bytes": list(raw[a:b]), "logprob": -1.0 - place}
        for place, (a, b) in enumerate(pairwise(cuts))
    ]
    assert answer_places(text, "5 €", tokens) == (-2.0 - 3.0 - 4.0 - 5.0, -5.0)


@pytest.mark.parametrize(
    "tokens",
    [
        tokens_of(["something", " else"]),
        [{"logprob": -1.0}, {"logprob": -2.0}],
        [{"token": 5, "logprob": -1.0}],
        [{"token": "It is ", "logprob": -1.0}, {"token": "42.", "logprob": None}],
    ],
    ids=["another text", "no texts", "no text", "no number"],
)
def test_where_tokens_and_text_do_not_match_the_answer_is_unknown(tokens):
    known = Signals(tail=-1.0, window=-2.0)
    assert add_answer_signals(known, tokens, "It is 42.", "42") == known


def test_a_response_as_a_sample_has_the_signals_of_its_answer():
    text = "Well, 6 times 7 makes " + "a lot, " * 30 + r"so \boxed{42}."
    tokens = tokens_of(split(text, 3), alternatives=2)
    summary = summarise_tokens(tokens)
    response = Response(text=text, signals=summary.signals, logprobs={"content": tokens})
    sample = response.to_sample(answer=extract_answer(text))
    assert sample.answer == "42"
    assert sample.signals.tail == summary.signals.tail
    assert sample.signals.answer_sum is not None
    assert response.to_sample().signals == summary.signals
    assert Response(text=text).to_sample(answer="42").signals is None


def test_an_answer_far_from_the_end_is_found_too():
    text = r"\boxed{42}" + " and so on" * 400
    tokens = tokens_of(split(text, 1))
    total, least = answer_places(text, "42", tokens)
    assert (total, least) == (-(8 + 9) / 64, -9 / 64)
