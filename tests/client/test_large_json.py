"""Large JSON is what a parser gives for it, with tokens packed, or a ValueError where it has one."""

import json
import math
import threading
import time
from types import MappingProxyType
from typing import Any, cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adacompute.answers.signals import summarise_tokens
from adacompute.client import large_json
from adacompute.client.large_json import PackedList, encode_in_parts, load_large_json
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
    assert load_large_json(raw) == json.loads(raw)


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
            assert load_large_json(broken) == expected


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
def test_other_threads_go_on_while_it_is_read():
    token = {
        "token": "x",
        "logprob": -0.1,
        "bytes": [120],
        "top_logprobs": [{"token": "y", "logprob": -2.0}] * 5,
    }
    message = {"content": 'a\\"b' * 100_000}
    raw = orjson.dumps({"choices": [{"logprobs": {"content": [token] * 60_000}, "message": message}]})
    shares = []
    for _ in range(4):  # a busy machine may hold up a thread by itself, though not each time
        took, waited = _read_beside_a_watch(raw)
        shares.append(waited / took)
        if waited < max(0.25, 0.75 * took):  # one call of a parser would be all of it
            return
    pytest.fail(f"others waited for {min(shares):.0%} of the time, at best")


def _read_beside_a_watch(raw: bytes) -> tuple[float, float]:
    """Seconds that reading takes, and the longest that another thread waits meanwhile.

    Of this process's processor time: what other processes of a busy machine take doesn't count.
    """
    longest, ended = [0.0], threading.Event()

    def watch() -> None:
        last = time.process_time()
        while not ended.is_set():
            time.sleep(0.001)
            now = time.process_time()
            longest[0], last = max(longest[0], now - last), now

    watching = threading.Thread(target=watch)
    watching.start()
    began = time.process_time()
    value = load_large_json(raw)
    took = time.process_time() - began
    ended.set()
    watching.join()
    assert value == orjson.loads(raw)
    return took, longest[0]


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


@given(tokens=TOKENS, more=TOKENS, size=st.integers(1, 60), indent=st.sampled_from([None, 1]))
def test_packed_tokens_are_the_same_tokens_with_the_same_sums(
    tokens: list[Any], more: list[Any], size: int, indent: int | None
):
    choices = [
        {"index": 0, "message": {"content": "a"}, "logprobs": {"content": tokens, "refusal": None}},
        {"index": 1, "message": {"content": "b"}, "logprobs": {"content": more}},
    ]
    raw = json.dumps({"id": "x", "choices": choices, "usage": {}}, indent=indent).encode()
    plain, value = json.loads(raw), load_large_json(raw)
    assert without_nan(json.loads(as_json(value))) == without_nan(plain)
    for choice, expected in zip(value["choices"], plain["choices"], strict=True):
        found, wanted = read_tokens(choice["logprobs"]), read_tokens(expected["logprobs"])
        assert (found is None) == (wanted is None)
        if found is not None and wanted is not None:
            assert len(found) == len(wanted)
            assert summarise_tokens(found).logprob == summarise_tokens(wanted).logprob
            assert summarise_tokens(found).entropy == summarise_tokens(wanted).entropy
    encoded = b"".join(encode_in_parts(value, encode_json, size=size))
    assert without_nan(json.loads(encoded)) == without_nan(plain)


def as_json(value: object) -> str:
    return json.dumps(value, default=list)


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
def test_log_probabilities_of_a_large_reply_are_packed_and_the_key_is_masked_in_them():
    key = Secret("sk-0123456789abcdef")
    for text in (key.reveal(), "a", "\ud800", "sk-0123456789\\u0061bcdef"):
        raw = large_reply(9000, text).replace(b"\\\\u0061", b"\\u0061")
        value, _ = read_json(raw, key)
        tokens = value["choices"][0]["logprobs"]["content"]
        assert isinstance(tokens, list if text == "\ud800" else PackedList)  # which isn't strict JSON
        assert len(tokens) == 9000
        expected = json.loads(raw)["choices"][0]
        masked = key.mask(expected["message"]["content"])
        assert value["choices"][0]["message"]["content"] == masked
        assert tokens[0] == {
            "token": key.mask(expected["logprobs"]["content"][0]["token"]),
            "logprob": -0.5,
            "top_logprobs": [
                {"token": key.mask(expected["logprobs"]["content"][0]["token"]), "logprob": -1.0}
            ],
        }
        assert key.reveal() not in as_json(value)
        assert key.reveal().encode() not in b"".join(encode_in_parts(value, encode_json))


@pytest.mark.slow
def test_only_log_probabilities_may_have_very_many_values():
    many = b"[" + b"[]," * 160_000 + b"[]]"
    tokens = b'{"choices": [{"message": {"content": "a"}, "logprobs": {"content": %s}}]}' % many
    assert len(load_large_json(tokens)["choices"][0]["logprobs"]["content"]) == 160_001
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
    assert len(load_large_json(raw)["choices"][0]["logprobs"]["content"]) == 8001


def test_brackets_and_commas_in_texts_are_no_values():
    text = '[{,\\"' * 150_000
    raw = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
    assert load_large_json(raw, max_marks=10)["choices"][0]["message"]["content"] == text


def test_above_16_mib_tokens_lose_their_alternatives_alone():
    token = {"token": "é", "logprob": -0.5, "bytes": [195, 169]}
    more = {"top_logprobs": [{"token": "x" * 40, "logprob": -1.0, "bytes": None}] * 20}
    for count, kept in ((1000, more), (12_000, {})):
        choice = {
            "message": {"content": "a"},
            "logprobs": {"content": [token | more] * count, "refusal": None},
        }
        value = cast("dict[str, Any]", load_large_json(orjson.dumps({"choices": [choice]})))
        tokens = value["choices"][0]["logprobs"]["content"]
        assert (len(tokens), tokens[-1]) == (count, token | kept)
        assert value["choices"][0]["message"] == {"content": "a"}


def test_a_text_that_no_model_writes_is_refused():
    with pytest.raises(ValueError, match="a part of more than 32 MiB"):
        load_large_json(b'{"a": "' + b"x" * (33 * 2**20) + b'"}')


def pack(*blocks: list[Any]) -> PackedList:
    packed = PackedList()
    for block in blocks:
        packed.add(block)
    return packed


@given(blocks=st.lists(st.lists(st.integers(0, 99), max_size=4), max_size=5), data=st.data())
def test_a_packed_list_reads_as_a_list_of_the_same_items(blocks: list[list[int]], data: st.DataObject):
    packed, plain = pack(*blocks), [item for block in blocks for item in block]
    assert (packed == plain, len(packed)) == (True, len(plain))
    assert list(reversed(packed)) == plain[::-1]
    places = st.none() | st.integers(-25, 25)
    part = slice(data.draw(places), data.draw(places), data.draw(places.filter(lambda step: step != 0)))
    assert packed[part] == plain[part]
    for place in range(-len(plain), len(plain)):
        assert packed[place] == plain[place]
        assert packed.index(plain[place]) == plain.index(plain[place])
    for place in (len(plain), -len(plain) - 1):
        with pytest.raises(IndexError):
            packed[place]


def test_what_is_no_index_of_a_list_is_none_of_a_packed_list():
    with pytest.raises(TypeError):
        pack([1])["0"]
    with pytest.raises(ValueError, match="zero"):
        pack([1])[::0]
    with pytest.raises(ValueError):  # noqa: PT011
        pack([1]).index(2)


def test_only_the_blocks_that_are_asked_for_are_decoded(monkeypatch: pytest.MonkeyPatch):
    decoded = []
    decode = large_json._decode_block
    monkeypatch.setattr(large_json, "_decode_block", lambda block: decoded.append(block[0]) or decode(block))
    packed = pack([0, 1], [2, 3], [4, 5], [6])
    for index, blocks in (
        (0, [b"[0,1]"]),
        (3, [b"[2,3]"]),
        (-1, [b"[6]"]),
        (slice(3, 5), [b"[2,3]", b"[4,5]"]),
        (slice(2, 2), []),
    ):
        decoded.clear()
        assert packed[index] == list(range(7))[index]
        assert decoded == blocks


@pytest.mark.parametrize("blocks", [[[]], [[], [1]], [[1], []], [[1], [], [2]]])
def test_blocks_without_items_are_left_out(blocks: list[list[Any]]):
    packed, plain = pack(*blocks), [item for block in blocks for item in block]
    assert json.loads(encode_json(packed)) == plain
    assert [item for part in packed.split() for item in part] == plain
    odd = packed.map(lambda items: [item for item in items if item != 1])
    assert json.loads(encode_json(odd)) == [item for item in plain if item != 1]


@pytest.mark.parametrize("more", [b"", b', "refusal": null'])
def test_a_list_of_spaces_is_an_empty_one_also_as_chunks(more: bytes):
    raw = b'{"choices": [{"logprobs": {"content": [' + b" " * 20_000 + b"]" + more + b"}}]}"
    logprobs = cast("dict[str, Any]", load_large_json(raw))["choices"][0]["logprobs"]
    expected = json.loads(b'{"content": []' + more + b"}")
    assert logprobs == expected
    assert list(split_tokens("abc", logprobs)) == [("abc", expected)]
    assert json.loads(encode_json(logprobs)) == expected


def test_tokens_that_become_none_in_a_first_block_leave_valid_json():
    translated = translate_logprobs({"content": pack([1, 2], [{"token": "a"}])})
    assert [token["token"] for token in json.loads(encode_json(translated))] == ["a"]


@pytest.mark.parametrize("value", [b"abc", MappingProxyType({"b": 1}), {1, 2}, iter([1])])
@pytest.mark.parametrize("beside", ["plain", "\ud800"])
def test_what_is_no_json_is_refused_instead_of_becoming_a_list(value: object, beside: str):
    with pytest.raises(TypeError):
        encode_json({"a": value, "beside": beside})


def test_packed_lists_are_encoded_beside_what_orjson_refuses():
    value = {"text": "\ud800", "packed": pack([1, "\ud800"], [2**70])}
    assert json.loads(encode_json(value)) == {"text": "\ud800", "packed": [1, "\ud800", 2**70]}
