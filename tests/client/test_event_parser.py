"""Server-sent events and the chunks in them: however the bytes are cut, they mean the same."""

import contextlib
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adacompute.client.streaming import (
    CompletionBuilder,
    EventParser,
    find_error_status,
    looks_like_events,
    split_into_chunks,
)
from adacompute.errors import ReplyInvalid

TEXT = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\r\n"), min_size=1)


@st.composite
def streams(draw):
    """Payloads, and bytes that hold them: lines that end in one of three ways, comments and names between."""
    payloads, raw = [], b"\xef\xbb\xbf" if draw(st.booleans()) else b""
    newline = draw(st.sampled_from([b"\n", b"\r", b"\r\n"]))
    for lines in draw(st.lists(st.lists(TEXT, min_size=1, max_size=3), max_size=5)):
        for noise in draw(
            st.lists(st.sampled_from([b": ping", b"event: x", b"id", b"retry: 3"]), max_size=2)
        ):
            raw += noise + newline
        for line in lines:
            space = b" " if line.startswith(" ") or draw(st.booleans()) else b""
            raw += b"data:" + space + line.encode() + newline
        raw += newline
        payloads.append("\n".join(lines).encode())
    return payloads, raw


@given(streams(), st.lists(st.integers(0, 400), max_size=12))
def test_events_are_the_same_wherever_the_bytes_are_cut(stream, cuts):
    payloads, raw = stream
    places = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    events = EventParser()
    found = [event for a, b in itertools.pairwise(places) for event in events.feed(raw[a:b])]
    assert found + events.end() == payloads
    single = EventParser()
    assert [
        event for i in range(len(raw)) for event in single.feed(raw[i : i + 1])
    ] + single.end() == payloads


@given(st.binary(max_size=300), st.integers(1, 50))
def test_no_bytes_break_the_parser_and_no_event_is_larger_than_allowed(raw, largest):
    events = EventParser(largest=largest)
    found = []
    with contextlib.suppress(ValueError):
        for i in range(0, len(raw), 7):
            found += events.feed(raw[i : i + 7])
        assert all(len(event) <= largest + event.count(b"\n") for event in found + events.end())


def test_a_line_that_never_ends_is_refused_when_it_is_too_long_and_comments_are_not_added_up():
    events = EventParser(largest=1000)
    for _ in range(1000):
        assert events.feed(b": still here\n\n") == []
    for _ in range(600):
        events.feed(b": no event ends\n")
    for _ in range(1000):
        events.feed(b"x")
    with pytest.raises(ValueError, match="more than 1000"):
        events.feed(b"x")


@pytest.mark.parametrize(
    ("head", "declared", "found"),
    [
        (b"", True, None),
        (b"  \n", False, None),
        (b"\xef\xbb", True, None),
        (b' \n{"id', True, False),
        (b"da", True, True),
        (b"da", False, None),
        (b"data: {", False, True),
        (b": ping", False, True),
        (b"<html>", False, False),
        (b"dab", False, False),
    ],
)
def test_what_came_says_whether_it_is_a_stream(head, declared, found):
    assert looks_like_events(head, declared=declared) is found


def completion(texts: list[str], **message) -> dict:
    choices = [
        {"index": i, "message": {"role": "assistant", "content": text, **message}, "finish_reason": "stop"}
        for i, text in enumerate(texts)
    ]
    return {"id": "c", "created": 1, "model": "m", "object": "chat.completion", "choices": choices}


@given(st.lists(st.text(), min_size=1, max_size=4), st.none() | st.integers(0, 99))
def test_a_completion_is_what_its_chunks_say(texts, tokens):
    body = completion(texts)
    if tokens is not None:
        body["usage"] = {"prompt_tokens": 1, "completion_tokens": tokens}
    gathered = CompletionBuilder()
    for chunk in split_into_chunks(body):
        gathered.add(chunk)
    assert gathered.finished
    assert gathered.build_body() == body


def test_tool_calls_come_in_pieces_and_are_put_together_by_their_index():
    gathered = CompletionBuilder()
    parts = [
        {"index": 0, "id": "a", "type": "function", "function": {"name": "add", "arguments": ""}},
        {"index": 1, "id": "b", "type": "function", "function": {"name": "sub", "arguments": '{"y"'}},
        {"index": 0, "function": {"arguments": '{"x":'}},
        {"index": 0, "function": {"arguments": " 1}"}},
        {"index": 1, "function": {"arguments": ": 2}"}},
    ]
    for part in parts:
        gathered.add({"choices": [{"index": 0, "delta": {"tool_calls": [part]}}]})
    assert not gathered.finished
    (choice,) = gathered.build_body()["choices"]
    functions = [call["function"] for call in choice["message"]["tool_calls"]]
    assert [(f["name"], json.loads(f["arguments"])) for f in functions] == [
        ("add", {"x": 1}),
        ("sub", {"y": 2}),
    ]
    again = CompletionBuilder()
    for chunk in split_into_chunks({**gathered.build_body()}):
        again.add(chunk)
    assert again.build_body()["choices"][0]["message"] == choice["message"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "index", "tool_calls", "logprobs", "content", "usage", "error"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.sampled_from(["choices", "usage", "error", "code"]), JSON), max_size=4))
def test_no_chunk_breaks_the_gathering_but_by_an_index_that_cant_be(chunks):
    gathered = CompletionBuilder()
    for chunk in chunks:
        find_error_status(chunk)
        with contextlib.suppress(ReplyInvalid):
            gathered.add(chunk)
        gathered.build_body()


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ({"error": {"message": "no", "code": 429}}, 429),
        ({"error": {"message": "no", "code": "503"}}, 503),
        ({"error": {"message": "no", "code": "rate_limit_exceeded"}}, 429),
        ({"error": "no"}, 500),
        ({"object": "error", "message": "no", "code": 400}, 400),
        ({"error": None, "choices": []}, None),
        ({"choices": []}, None),
    ],
)
def test_an_event_that_says_an_error_has_a_status(value, status):
    assert find_error_status(value) == status
