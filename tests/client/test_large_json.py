"""Large JSON that is read in steps is what a parser gives for all of it, or a ValueError where it has one."""

import json
import threading
import time

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adacompute.client.large_json import load_large_json

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


@given(value=VALUES, step=st.integers(1, 40), indent=st.sampled_from([None, 0, 2]))
def test_any_value_is_read_as_a_parser_reads_it(value: object, step: int, indent: int | None):
    raw = json.dumps(value, indent=indent, ensure_ascii=False).encode("utf-8", "replace")
    assert load_large_json(raw, step=step) == json.loads(raw)


@given(value=VALUES, step=st.integers(1, 20), data=st.data())
def test_what_is_no_json_is_a_value_error_whatever_is_broken(value: object, step: int, data: st.DataObject):
    raw = json.dumps(value).encode()
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
            load_large_json(broken, step=step)
    else:
        assert load_large_json(broken, step=step) == expected


@pytest.mark.parametrize(
    "raw",
    [
        b"[" + b"[]," * 2000 + b"]",
        b"[" * 5000 + b"]" * 5000,
        b'{"a":' * 3000 + b"1" + b"}" * 3000,
        b"[1," * 3000,
        b"\\" * 5000,
        b'"' + b"\\" * 5001,
        b"[" + b'"\\\\",' * 3000 + b"]",
    ],
)
def test_hostile_bodies_are_refused(raw: bytes):
    with pytest.raises(ValueError, match=r"."):
        load_large_json(raw, step=64)


def test_too_many_values_are_refused_before_any_is_made():
    with pytest.raises(ValueError, match="more than 1000 values"):
        load_large_json(b"[" + b"[]," * 5000 + b"[]]", step=64, max_marks=1000)


def test_other_threads_go_on_while_it_is_read():
    token = {
        "token": "x",
        "logprob": -0.1,
        "bytes": [120],
        "top_logprobs": [{"token": "y", "logprob": -2.0}] * 5,
    }
    raw = orjson.dumps({"choices": [{"logprobs": {"content": [token] * 60_000}, "text": 'a\\"b' * 100_000}]})
    shares = []
    for _ in range(4):  # a busy machine may hold up a thread by itself, though not each time
        took, waited = _read_beside_a_watch(raw)
        shares.append(waited / took)
        if waited < max(0.25, took / 4):
            return
    pytest.fail(f"others waited for {min(shares):.0%} of the time, at best")


def _read_beside_a_watch(raw: bytes) -> tuple[float, float]:
    """Seconds that reading takes, and the longest that another thread waits meanwhile."""
    longest, ended = [0.0], threading.Event()

    def watch() -> None:
        last = time.perf_counter()
        while not ended.is_set():
            time.sleep(0.001)
            now = time.perf_counter()
            longest[0], last = max(longest[0], now - last), now

    watching = threading.Thread(target=watch)
    watching.start()
    began = time.perf_counter()
    value = load_large_json(raw)
    took = time.perf_counter() - began
    ended.set()
    watching.join()
    assert value == orjson.loads(raw)
    return took, longest[0]
