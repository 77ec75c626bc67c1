"""Log-probabilities that are only computed with tell the same, whichever way they are read."""

import json
import math
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacompute.client.large_json import TokenLogprob
from adacompute.client.response_parser import Response, build_responses, parse_choices, read_json, read_tokens
from adacompute.client.server_quirks import ModelQuirks
from adacompute.records import Secret

TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
LOGPROBS = st.floats(-20.0, 0.0) | st.integers(-20, 0)


def make_reply(tokens: list[dict[str, Any]], text: str, **fields: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "logprobs": {"content": tokens}}
    usage = {"prompt_tokens": 5, "completion_tokens": len(tokens)}
    return orjson.dumps({"id": "c", "model": "m", "choices": [{**choice, **fields}], "usage": usage})


def make_token(text: str, logprob: object, alternatives: list[Any]) -> dict[str, Any]:
    tops = [{"token": "x", "logprob": value, "bytes": [120]} for value in alternatives]
    return {"token": text, "logprob": logprob, "bytes": list(text.encode()), "top_logprobs": tops}


def read(raw: bytes, *, signals_only: bool) -> tuple[Response, bool]:
    """The response, and whether its tokens were read for their signals only."""
    body, _ = read_json(raw, None, signals_only=signals_only)
    assert isinstance(body, dict)
    choices, _ = parse_choices(body)
    responses, _ = build_responses(choices, body, requested=1, cap=None, quirks=ModelQuirks())
    tokens = read_tokens(responses[0].logprobs)
    return responses[0], tokens is not None and isinstance(tokens[0], TokenLogprob)


@settings(max_examples=60)
@given(st.lists(st.tuples(TEXTS, LOGPROBS, st.lists(LOGPROBS, max_size=4)), min_size=1, max_size=40))
def test_the_signals_are_the_same_also_those_of_the_answer(rows):
    tokens = [make_token(*row) for row in rows]
    text = "".join(row[0] for row in rows)
    raw = make_reply(tokens, text, finish_reason="length")
    (quick, is_quick), (whole, _) = read(raw, signals_only=True), read(raw, signals_only=False)
    assert is_quick
    assert (quick.text, quick.tokens, quick.finish_reason) == (whole.text, whole.tokens, "length")
    assert quick.logprob == whole.logprob
    assert quick.entropy == (None if whole.entropy is None else pytest.approx(whole.entropy, rel=1e-12))
    answer = rows[-1][0].strip() or None
    assert quick.to_sample(answer=answer).signals == whole.to_sample(answer=answer).signals


@pytest.mark.parametrize(
    "tokens",
    [
        [make_token("4", None, [])],
        [make_token("4", "-1.0", [])],
        [make_token("4", -1.0, [None])],
        [make_token("4", math.nan, [])],
        [make_token("4", -1.0, []), 7],
        [{"token": "4"}],
        {"token": "4"},
    ],
)
def test_what_is_in_another_shape_is_read_as_a_whole(tokens):
    body = json.loads(make_reply([], "4"))
    body["choices"][0]["logprobs"]["content"] = tokens
    raw = json.dumps(body).encode()
    (quick, is_quick), (whole, _) = read(raw, signals_only=True), read(raw, signals_only=False)
    assert not is_quick
    assert repr(quick) == repr(whole)


def test_a_reply_with_the_key_in_it_is_read_as_a_whole_and_masked():
    key = Secret("sk-verysecret1234")
    raw = make_reply([make_token("4", -1.0, [])], "the key is sk-verysecret1234")
    body, _ = read_json(raw, key, signals_only=True)
    assert "verysecret" not in str(body)


@pytest.mark.parametrize("dump", [orjson.dumps, lambda body: json.dumps(body).encode()])
def test_a_character_of_several_tokens_is_matched_by_its_bytes(dump):
    pieces = [("It is ", list(b"It is ")), ("\ufffd", [0xC2]), ("\ufffd", [0xBD]), (".", list(b"."))]
    tokens = [
        {"token": text, "bytes": spelled, "logprob": -0.5 * number, "top_logprobs": []}
        for number, (text, spelled) in enumerate(pieces)
    ]
    body = json.loads(make_reply(tokens, "It is ½.", finish_reason="stop"))
    quick, is_quick = read(dump(body), signals_only=True)
    assert is_quick
    signals = quick.to_sample(answer="½").signals
    assert signals is not None
    assert (signals.answer_sum, signals.answer_least) == (-1.5, -1.0)
