"""Faults of an upstream: each ends in a reply or in its typed error, in time, and counted (c01 to c05)."""

import asyncio
import random
import statistics
import time
from email.utils import formatdate

import pytest
from client_runs import BODY, run_client, run_draw
from hypothesis import given
from hypothesis import strategies as st

from adacompute.client import RateLimits, Retries
from adacompute.client.error_object import parse_retry_after
from adacompute.client.retry import compute_backoff
from adacompute.errors import (
    ConnectionLost,
    EndpointFailed,
    EndpointRefused,
    RateLimited,
    ReplyInvalid,
)
from upstream import Drop, Garbage, Reply, Status


def kinds(done) -> list[tuple[str, str]]:
    return [(call.kind, call.paid) for call in done.heard]


def test_c01_a_429_is_asked_again_no_sooner_than_its_retry_after_in_seconds():
    done = run_draw([Status(code=429, retry_after=0.4), Reply()], 1)
    first, second = done.up.requests
    assert second.at - first.at >= 0.4
    assert kinds(done) == [("rate-limit", "no"), ("ok", "yes")]
    assert done.responses


def test_c01_a_retry_after_by_date_is_honoured():
    when = time.time() + 2.0
    done = run_draw([Status(code=429, retry_after=formatdate(when, usegmt=True)), Reply()], 1)
    first, second = done.up.requests
    assert second.at - first.at >= 0.9  # the date has whole seconds
    assert done.responses


def test_c01_a_retry_after_beyond_the_deadline_gives_up_at_once_and_says_so():
    done = run_draw(Status(code=429, retry_after=3600), 1, retries=Retries(deadline=30.0))
    assert isinstance(done.error, RateLimited)
    assert "3.6e+03 s" in str(done.error)
    assert "deadline" in str(done.error)
    assert done.seconds < 25.0  # it waited for nothing
    assert done.up.count.requests == 1
    assert (done.error.status, done.error.paid) == (429, False)


def test_c01_attempts_are_bounded():
    done = run_draw(Status(code=429), 1, retries=Retries(attempts=4, first=0.01, longest=0.02))
    assert done.up.count.requests == 4
    assert isinstance(done.error, RateLimited)
    assert done.failed[0].calls == tuple(done.heard)


def test_c01_the_deadline_of_a_call_bounds_all_its_attempts():
    done = run_draw(
        Status(code=429), 1, retries=Retries(attempts=1000, first=0.05, longest=0.1, deadline=2.0)
    )
    assert 2 <= done.up.count.requests <= 80
    assert done.seconds < 25.0  # 1000 attempts take longer
    assert isinstance(done.error, RateLimited)


def test_c01_many_callers_do_not_hammer_an_endpoint_that_asks_to_wait():
    async def run(client, up):
        await asyncio.gather(*(client.call(BODY) for _ in range(32)))

    began = time.monotonic()

    def script(number, body):
        left = began + 0.6 - time.monotonic()
        return Status(code=429, retry_after=round(max(0.05, left), 3)) if left > 0 else Reply()

    done = run_client(script, run, limits=RateLimits(concurrency=8))
    assert done.up.count.completions == 32
    assert done.up.count.statuses[429] <= 16  # 8 that were under way, and a few that came a moment too soon


@given(
    attempt=st.integers(1, 200),
    first=st.floats(0.001, 10),
    longest=st.floats(0.001, 100),
    asked=st.none() | st.floats(0, 1e6),
    seed=st.integers(),
)
def test_c01_backoff_is_bounded_and_never_sooner_than_asked(attempt, first, longest, asked, seed):
    wait = compute_backoff(
        attempt, Retries(first=first, longest=longest), random.Random(seed), requested=asked
    )
    assert min(first, longest) / 2 <= wait
    assert wait <= max(longest, 0.0 if asked is None else min(asked * 1.1, asked + 1.0) + 1e-9)
    assert wait >= (asked or 0.0)


def test_c01_backoff_is_jittered_and_doubles():
    rng, retries = random.Random(1), Retries(first=1.0, longest=100.0)
    waits = [[compute_backoff(k, retries, rng) for _ in range(200)] for k in (1, 2, 3)]
    assert all(len(set(some)) == 200 for some in waits)
    first, second, third = map(statistics.mean, waits)
    assert second / first == pytest.approx(2, rel=0.1)
    assert third / second == pytest.approx(2, rel=0.1)


def test_c01_callers_that_are_asked_to_wait_no_time_or_the_same_time_do_not_come_back_together():
    rng, retries = random.Random(1), Retries(first=1.0, longest=100.0)
    for asked_for in (0.0, 0.001, 30.0):
        waits = [compute_backoff(2, retries, rng, requested=asked_for) for _ in range(200)]
        assert len(set(waits)) == 200
        assert min(waits) >= max(1.0, asked_for)


def test_c01_a_retry_after_of_0_seconds_is_waited_for_as_if_it_said_nothing():
    retries = Retries(attempts=3, first=0.3, longest=1.0)
    done = run_draw(Status(code=429, retry_after=0), 1, retries=retries)
    first, second, third = done.up.requests
    assert second.at - first.at >= 0.15
    assert third.at - second.at >= 0.3
    assert isinstance(done.error, RateLimited)


def test_c01_nobody_is_let_in_by_the_429_that_asks_all_to_wait():
    async def run(client, up):
        await asyncio.gather(*(client.call(BODY) for _ in range(4)))

    done = run_client([Status(code=429, retry_after=0.5), Reply()], run, limits=RateLimits(concurrency=1))
    times = [request.at for request in done.up.requests]
    assert len(times) == 5
    assert all(later - times[0] >= 0.5 for later in times[1:])


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 0 "}, 0.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:20 GMT"}, 10.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:01 GMT"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Thu, 99 Foo 1970 00:00:01 GMT"}, None),
    ],
)
def test_c01_retry_after_is_read_or_left(headers, seconds):
    assert parse_retry_after(headers, now=10.0) == seconds


@given(st.text(max_size=60))
def test_c01_no_retry_after_can_break_the_client(text):
    value = parse_retry_after({"retry-after": text}, now=10.0)
    assert value is None or 0.0 <= value < float("inf")


@pytest.mark.parametrize("code", [408, 500, 502, 503, 504, 529])
def test_c02_failures_of_the_server_are_retried_and_counted_as_perhaps_paid(code):
    done = run_draw([Status(code=code), Status(code=code), Reply()], 1)
    kind = "timeout" if code == 408 else "server-error"
    assert kinds(done) == [(kind, "maybe"), (kind, "maybe"), ("ok", "yes")]
    assert [call.status for call in done.heard] == [code, code, 200]
    assert (done.client.totals.paid, done.client.totals.maybe) == (1, 2)
    assert done.up.count.requests == 3


def test_c02_a_server_that_keeps_failing_is_its_error_with_every_attempt():
    done = run_draw(Status(code=502, message="bad\ngateway"), 3, retries=Retries(attempts=3, first=0.01))
    error = done.error
    assert isinstance(error, EndpointFailed)
    assert (error.status, error.paid) == (502, True)
    assert "bad gateway" in str(error)
    assert vars(error)["calls"] == done.failed[0].calls == tuple(done.heard)
    assert len(done.heard) == done.up.count.requests == 3


@pytest.mark.parametrize("code", [301, 302, 307, 400, 401, 403, 404, 409, 413, 422])
def test_a_refusal_is_not_asked_again_and_not_paid(code):
    done = run_draw(Status(code=code, message="no", headers={"Location": "http://127.0.0.1:9/v1"}), 1)
    assert isinstance(done.error, EndpointRefused)
    assert (done.error.status, done.error.paid) == (code, False)
    assert done.up.count.requests == 1
    if code < 400:
        assert "http://127.0.0.1:9/v1" in str(done.error)
        assert "redirect" in str(done.error)


@pytest.mark.parametrize(
    "drop", [Drop(), Drop(reset=True), Drop(after=20), Drop(after=150), Drop(after=150, reset=True)]
)
def test_c03_connections_that_break_off_are_retried_and_counted_as_perhaps_paid(drop):
    done = run_draw([drop, Reply()], 1)
    assert kinds(done) == [("reset", "maybe"), ("ok", "yes")]
    assert done.up.count.requests == 2


def test_c03_a_connection_that_always_breaks_off_is_its_error():
    done = run_draw(Drop(after=150), 1, retries=Retries(attempts=2, first=0.01))
    assert isinstance(done.error, ConnectionLost)
    assert done.error.paid
    assert len(done.heard) == 2


UNUSABLE = [
    Garbage(),
    Garbage(raw=b""),
    Garbage(raw=b"<html><body>Welcome</body></html>", content_type="text/html"),
    Garbage(raw=b"data: {}\n\ndata: [DONE]\n\n", content_type="text/event-stream"),
    Garbage(raw=b"[" * 100_000),
    Garbage(raw=b"\xff\xfe\x00"),
    Garbage(raw=b"[]"),
    Garbage(raw=b"null"),
    Garbage(raw=b'"choices"'),
    Garbage(raw=b"{}", code=204),
    Garbage(raw=b"not gzip", headers={"Content-Encoding": "gzip"}),
    Garbage(whole=b"SSH-2.0-OpenSSH_9.2\r\n"),
    Garbage(whole=b"HTTP/1.1 200 OK\r\nContent-Length: -7\r\n\r\n"),
    Reply(body={}),
    Reply(body={"choices": None}),
    Reply(body={"choices": []}),
    Reply(body={"choices": {}}),
    Reply(body={"choices": [None, 3, "x", []]}),
    Reply(body={"choices": [{}]}),
    Reply(body={"choices": [{"message": None}]}),
    Reply(body={"choices": [{"message": {"content": 5}}]}),
    Reply(body={"error": {"message": "overloaded"}}),
]


@pytest.mark.parametrize("behaviour", UNUSABLE, ids=range(len(UNUSABLE)))
def test_c05_a_200_that_is_no_completion_is_retried_then_a_typed_error(behaviour):
    done = run_draw([behaviour, Reply()], 1)
    assert [call.paid for call in done.heard] == ["maybe", "yes"]
    again = run_draw(behaviour, 1, retries=Retries(attempts=2, first=0.01))
    assert isinstance(again.error, ReplyInvalid | ConnectionLost)
    assert again.error.paid
    assert "\n" not in str(again.error)
    assert len(again.heard) == 2


def test_c05_what_a_reply_of_the_wrong_type_says_is_told():
    done = run_draw(UNUSABLE[2], 1, retries=Retries(attempts=1))
    assert "text/html" in str(done.error)
    done = run_draw(UNUSABLE[-1], 1, retries=Retries(attempts=1))
    assert "overloaded" in str(done.error)


def test_c05_a_completion_is_taken_whatever_its_content_type():
    done = run_draw([Reply(content_type="text/plain"), Reply(chunked=True)], 1)
    assert len(done.responses) == 1
    assert run_draw(Reply(chunked=True), 2).responses.keys() == {0, 1}


def test_c05_some_choices_that_cannot_be_used_are_asked_for_again():
    good = {"message": {"content": "42"}, "finish_reason": "stop"}

    def script(number, body):
        if number > 1:
            return Reply()
        return Reply(body={"choices": [good, {"message": 3}, None, good], "usage": {"completion_tokens": 9}})

    done = run_draw(script, 4)
    assert sorted(done.responses) == [0, 1, 2, 3]
    assert [r.body.get("n", 1) for r in done.up.requests] == [4, 2]
    assert done.client.quirks.max_choices is None  # what couldn't be used was given
