"""Large JSON is what a parser gives for it, with tokens as structs, or a ValueError where it has one."""

import json
import math
import time
from types import MappingProxyType
from typing import Any, cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adacompute.answers.signals import summarise_tokens
from adacompute.client.large_json import Alternative, ReplyToken, compact_tokens, load_large_json
from adacompute.client.response_parser import (
    encode_json,
    read_json,
    read_tokens,
)
from adacompute.client.streaming import split_tokens
from adacompute.records import Secret
from adacompute.serve.messages.responses import translate_logprobs

VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**9), 10**9),
        st.text(max_size=12),
        st.sampled_from(list('\\"[],{}:')),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=6),
        st.dictionaries(st.text(max_size=6) | st.sampled_from(['"', "\\", ",", "]"]), inner),
    ),
    max_leaves=40,
)


@given(value=VALUES, indent=st.sampled_from([None, 0, 2]), completes=st.booleans())
def test_any_value_is_read_as_a_parser_reads_it(value: object, indent: int | None, completes: bool):
    value = {"choices": [{"index": 0, "message": value}], "usage": value} if completes else value
    raw = json.dumps(value, indent=indent, ensure_ascii=False).encode("utf-8", "replace")
    assert load_large_json(raw)[0] == json.loads(raw)


@given(value=VALUES, completes=st.booleans(), data=st.data())
def test_what_is_no_json_is_a_value_error_whatever_is_broken(
    value: object, completes: bool, data: st.DataObject
):
    raw = json.dumps({"choices": [{"message": value}]} if completes else value).encode()
    place = data.draw(st.integers(0, len(raw)))
    broken = (
        raw[:place]
        + data.draw(st.sampled_from([b"", b",", b"]", b"}", b'"', b"\\", b"[", b"x"]))
        + raw[place + data.draw(st.integers(0, 2)) :]
    )
    try:
        expected = json.loads(broken)
    except ValueError:
        with pytest.raises(ValueError, match=r"."):
            load_large_json(broken)
    else:
        if not completes:  # else a field's name may have become another
            assert load_large_json(broken)[0] == expected


@pytest.mark.parametrize(
    "raw",
    [
        b"[" + b"[]," * 2000 + b"]",
        b"[" * 5000 + b"]" * 5000,
        b'{"a":' * 3000 + b"1" + b"}" * 3000,
        b"[NaN," + b"[" * 900 + b"]" * 901,
        b"[1," * 3000,
        b"\\" * 5000,
        b'"' + b"\\" * 5001,
        b"[" + b'"\\\\",' * 3000 + b"]",
    ],
)
def test_hostile_bodies_are_refused(raw: bytes):
    with pytest.raises(ValueError, match=r"."):
        load_large_json(raw)


def test_too_many_values_are_refused_before_any_is_made():
    with pytest.raises(ValueError, match="more than 1000 values"):
        load_large_json(b"[" + b"[]," * 5000 + b"[]]", max_marks=1000)


@pytest.mark.slow
def test_other_threads_wait_for_a_fraction_of_what_a_parser_takes():
    alternatives = [{"token": "y", "logprob": -2.0, "bytes": [121]}] * 5
    token = {"token": "x", "logprob": -0.1, "bytes": [120], "top_logprobs": alternatives}
    raw = orjson.dumps({"choices": [{"logprobs": {"content": [token] * 30_000}}]})
    seconds: dict[Any, list[float]] = {orjson.loads: [], load_large_json: []}
    for _ in range(3):
        for load, each in seconds.items():
            began = time.process_time()
            load(raw)
            each.append(time.process_time() - began)
    assert min(seconds[load_large_json]) < 0.6 * min(seconds[orjson.loads])


NUMBERS = st.one_of(
    st.floats(-30, 0), st.integers(-30, 0), st.sampled_from([math.nan, -math.inf, 10**400, None, "x"])
)
ALTERNATIVES = st.lists(st.fixed_dictionaries({"token": st.text(max_size=3), "logprob": NUMBERS}), max_size=3)
TOKENS = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"token": st.text(max_size=3), "logprob": NUMBERS, "top_logprobs": ALTERNATIVES}
        ),
        st.sampled_from([{}, None, 7, {"logprob": -1.0, "token": "\ud800"}, {"top_logprobs": {"a": [1]}}]),
    ),
    max_size=12,
)


@given(tokens=TOKENS, more=TOKENS, indent=st.sampled_from([None, 1]))
def test_the_tokens_are_the_same_with_the_same_sums(tokens: list[Any], more: list[Any], indent: int | None):
    choices = [
        {"index": 0, "message": {"content": "a"}, "logprobs": {"content": tokens, "refusal": None}},
        {"index": 1, "message": {"content": "b"}, "logprobs": {"content": more}},
    ]
    raw = json.dumps({"id": "x", "choices": choices, "usage": {}}, indent=indent).encode()
    plain, value = json.loads(raw), cast("dict[str, Any]", load_large_json(raw)[0])
    for choice, expected in zip(value["choices"], plain["choices"], strict=True):
        found, wanted = read_tokens(choice["logprobs"]), read_tokens(expected["logprobs"])
        assert (found is None) == (wanted is None)
        if found is not None and wanted is not None:
            assert len(found) == len(wanted)
            assert summarise_tokens(found).logprob == summarise_tokens(wanted).logprob
            assert summarise_tokens(found).entropy == summarise_tokens(wanted).entropy
    assert without_nan(json.loads(encode_json(value))) == without_nan(plain)


def without_nan(value: Any) -> Any:
    """A value with None instead of NaN and infinity, which orjson writes as null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [without_nan(item) for item in value]
    return {name: without_nan(item) for name, item in value.items()} if isinstance(value, dict) else value


def large_reply(count: int, text: str = "x") -> bytes:
    token = {"token": text, "logprob": -0.5, "top_logprobs": [{"token": text, "logprob": -1.0}]}
    message = {"role": "assistant", "content": text * count}
    choice = {"index": 0, "message": message, "logprobs": {"content": [token] * count}}
    return json.dumps({"choices": [choice]}).encode()


@pytest.mark.slow
def test_log_probabilities_of_a_large_reply_are_structs_and_the_key_is_masked_in_them():
    key = Secret("sk-0123456789abcdef")
    for text in (key.reveal(), "a", "\ud800", "sk-0123456789\\u0061bcdef"):
        raw = large_reply(9000, text).replace(b"\\\\u0061", b"\\u0061")
        value, _ = read_json(raw, key)
        tokens = value["choices"][0]["logprobs"]["content"]
        assert isinstance(tokens[0], ReplyToken if text == "a" else dict)  # what is masked isn't a struct
        assert len(tokens) == 9000
        expected = json.loads(raw)["choices"][0]
        masked = key.mask(expected["message"]["content"])
        assert value["choices"][0]["message"]["content"] == masked
        assert as_dict(tokens[0]) == {
            "token": key.mask(expected["logprobs"]["content"][0]["token"]),
            "logprob": -0.5,
            "top_logprobs": [
                {"token": key.mask(expected["logprobs"]["content"][0]["token"]), "logprob": -1.0}
            ],
        }
        assert key.reveal().encode() not in encode_json(value)


@pytest.mark.slow
def test_only_log_probabilities_may_have_very_many_values():
    many = b"[" + b"[]," * 160_000 + b"[]]"
    tokens = b'{"choices": [{"message": {"content": "a"}, "logprobs": {"content": [%s]}}]}' % b",".join(
        [b'{"token": "a", "logprob": -1}'] * 160_001
    )
    assert len(read(tokens)["choices"][0]["logprobs"]["content"]) == 160_001
    for raw in (
        b'{"choices": [{"message": {"content": "a", "x": %s}}]}' % many,
        b'{"choices": [], "usage": %s}' % many,
        b'{"choices": [{"logprobs": {"content": [%s]}}]}' % many,  # one token
        b'{"choices": [{"logprobs": {"content": {"a": %s}}}]}' % many,
        b'{"choices": %s}' % many,
    ):
        with pytest.raises(ValueError, match="more than 300000 values"):
            load_large_json(raw)


@pytest.mark.parametrize("odd", [b"-Infinity", b'"\\ud83d"'])
def test_one_odd_token_costs_no_large_reply(odd: bytes):
    token = b'{"token": "a", "logprob": -1, "top_logprobs": [%s]}' % b",".join(
        [b'{"token": "b", "logprob": -2}'] * 20
    )
    tokens = b",".join([token] * 8000 + [b'{"token": "c", "logprob": %s}' % odd])
    raw = b'{"choices": [{"message": {"content": "a"}, "logprobs": {"content": [%s]}}]}' % tokens
    assert len(read(raw)["choices"][0]["logprobs"]["content"]) == 8001


def test_brackets_and_commas_in_texts_are_no_values():
    text = '[{,\\"' * 150_000
    raw = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
    assert read(raw, max_marks=10)["choices"][0]["message"]["content"] == text


def test_above_16_mib_tokens_lose_their_alternatives_alone():
    token = {"token": "é", "logprob": -0.5, "bytes": [195, 169]}
    more = {"top_logprobs": [{"token": "x" * 40, "logprob": -1.0, "bytes": None}] * 20}
    for count, kept in ((1000, more), (12_000, {})):
        choice = {
            "message": {"content": "a"},
            "logprobs": {"content": [token | more] * count, "refusal": None},
        }
        value = read(orjson.dumps({"choices": [choice]}))
        tokens = value["choices"][0]["logprobs"]["content"]
        assert (len(tokens), as_dict(tokens[-1])) == (count, token | kept)
        assert value["choices"][0]["message"] == {"content": "a"}


@pytest.mark.parametrize("more", [b"", b', "refusal": null'])
def test_a_list_of_spaces_is_an_empty_one_also_as_chunks(more: bytes):
    raw = b'{"choices": [{"logprobs": {"content": [' + b" " * 20_000 + b"]" + more + b"}}]}"
    logprobs = read(raw)["choices"][0]["logprobs"]
    expected = json.loads(b'{"content": []' + more + b"}")
    assert logprobs == expected
    assert list(split_tokens("abc", logprobs)) == [("abc", expected)]
    assert json.loads(encode_json(logprobs)) == expected


def test_what_is_no_token_is_left_out_of_a_response():
    tokens = [1, *compact_tokens([{"token": "a", "logprob": -1, "bytes": [97]}]), {"token": "b"}]
    translated = translate_logprobs({"logprobs": {"content": tokens}})
    assert [token["token"] for token in json.loads(encode_json(translated))] == ["a", "b"]


@pytest.mark.parametrize("value", [b"abc", MappingProxyType({"b": 1}), {1, 2}, iter([1])])
@pytest.mark.parametrize("beside", ["plain", "\ud800"])
def test_what_is_no_json_is_refused_instead_of_becoming_a_list(value: object, beside: str):
    with pytest.raises(TypeError):
        encode_json({"a": value, "beside": beside})


def test_tokens_are_encoded_beside_what_orjson_refuses():
    tokens = compact_tokens([{"token": "a", "logprob": -1, "bytes": [97], "top_logprobs": []}])
    value = {"text": "\ud800", "tokens": tokens, "number": 2**70}
    expected = {"token": "a", "logprob": -1, "bytes": [97], "top_logprobs": []}
    assert json.loads(encode_json(value)) == {"text": "\ud800", "tokens": [expected], "number": 2**70}


def read(raw: bytes, **limits: int) -> dict[str, Any]:
    return cast("dict[str, Any]", load_large_json(raw, **limits)[0])


def as_dict(token: dict[str, Any] | Alternative) -> dict[str, Any]:
    return token.to_dict() if isinstance(token, Alternative) else token
