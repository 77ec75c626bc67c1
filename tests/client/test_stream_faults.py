"""A stream that fails: retried before it begins, a typed error after that, and ended in time."""

import asyncio

import pytest
from client_runs import BODY, run_client

from adacompute.client import BreakerSettings, Timeouts
from adacompute.errors import (
    ConnectionLost,
    EndpointFailed,
    EndpointRefused,
    EndpointTimeout,
    RateLimited,
    ReplyInvalid,
)
from streams import events, run_stream, texts
from upstream import Break, Drop, Garbage, Reply, Stall, Status, text_of


@pytest.mark.parametrize(
    "fault",
    [
        Status(code=500),
        Status(code=429, retry_after=0),
        Drop(),
        Break(after=0, how="drop"),
        Break(after=0, how="garbage"),
        Break(after=0, how="end"),
        Break(after=0, how="error"),
        events(),
        Garbage(raw=b"<html>", content_type="text/html"),
        Garbage(raw=b"", content_type="text/event-stream"),
    ],
)
def test_what_fails_before_the_first_event_is_tried_again_and_counted(fault):
    done, stream, seen, error = run_stream([fault, Reply()])
    assert error is None
    assert [call.paid for call in done.heard][1:] == ["yes"]
    assert done.heard[0].kind != "ok"
    assert texts(seen) == {0: text_of(0, 2, 0, 12)}
    assert stream.call.kind == "ok"


def test_what_is_refused_is_raised_on_entering():
    async def run(client, up):
        with pytest.raises(EndpointRefused, match="scripted") as caught:
            async with client.stream(BODY):
                raise AssertionError("it was refused")
        assert not caught.value.paid
        assert len(caught.value.calls) == 1

    run_client(Status(code=404), run)


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        (Break(how="drop"), ConnectionLost),
        (Break(how="reset"), ConnectionLost),
        (Break(how="end"), ConnectionLost),
        (Break(how="garbage"), ReplyInvalid),
        (Break(how=b"data: 17\n\n"), ReplyInvalid),
        (Break(how=b"data: \xff\xfe{\n\n"), ReplyInvalid),
        (Break(how=b'data: {"choices": [{"index": 99999}]}\n\n'), ReplyInvalid),
        (Break(how=b'data: {"choices": ' + b"[" * 5000 + b"]" * 5000 + b"}\n\n"), ReplyInvalid),
        (Break(how=b"data: " + b"x" * (5 * 2**20)), ReplyInvalid),
        (Break(how=b'data: {"choi'), ConnectionLost),
        (Break(how="error"), EndpointFailed),
        (Break(how="error", code=429), RateLimited),
        (Break(how="error", code="400"), EndpointRefused),
    ],
)
def test_what_breaks_in_mid_stream_is_a_typed_error_not_tried_again_and_may_be_paid(how, kind):
    done, stream, seen, error = run_stream(how)
    assert type(error) is kind
    assert error.paid
    assert "\n" not in str(error)
    assert len(seen) == 3  # what came before is given
    assert done.up.count.requests == 1
    (call,) = error.calls
    assert (call.kind, call.paid, call.got) == (kind.kind, "maybe", 0)
    assert call.prompt_tokens
    assert call.completion_tokens
    assert call.estimated
    assert text_of(0, 1, 0, 12).startswith(stream.responses[0].text)
    assert stream.responses[0].text
    assert done.client.totals.maybe == 1


@pytest.mark.parametrize(
    "end", [Reply(done=False), Break(after=6, how="drop"), Break(after=6, how=b"data: [D")]
)
def test_a_stream_that_ends_without_saying_so_is_whole_where_its_choice_has_ended(end):
    _, stream, seen, error = run_stream(end)
    assert error is None
    assert seen[-1].data == b"[DONE]"
    assert stream.responses[0].finish_reason == "stop"
    assert (stream.call.kind, stream.call.paid) == ("ok", "yes")


def test_an_end_that_no_empty_line_ends_counts():
    raw = b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\ndata: [DONE]'
    _, stream, seen, _ = run_stream(Garbage(raw=raw, content_type="text/event-stream"))
    assert len(seen) == 2
    assert stream.responses[0].text == "a"


def test_a_stream_that_stalls_is_ended_by_the_time_it_has_in_all():
    timeouts = Timeouts(first_byte=1.4, total=1.5)
    done, stream, seen, error = run_stream(Break(how="stall"), timeouts=timeouts)
    assert isinstance(error, EndpointTimeout)
    assert "in all" in str(error)
    assert len(seen) == 3
    assert done.seconds >= 1.49
    assert stream.call.paid == "maybe"


@pytest.mark.parametrize("fault", [Stall(), Break(after=0, how="stall")])
def test_a_first_event_that_does_not_come_is_a_timeout_and_not_asked_for_again(fault):
    async def run(client, up):
        with pytest.raises(EndpointTimeout, match="first byte") as caught:
            async with client.stream(BODY):
                raise AssertionError("nothing came")
        assert caught.value.paid

    done = run_client(fault, run, timeouts=Timeouts(first_byte=0.3, total=30.0))
    assert done.up.count.requests == 1
    assert done.seconds < 10.0


def test_the_time_to_the_first_event_does_not_bound_the_rest():
    timeouts = Timeouts(first_byte=1.0, total=30.0)
    done, _, seen, error = run_stream(Reply(gap=0.25, pieces=6), timeouts=timeouts)
    assert error is None
    assert len(seen) == 10
    assert done.seconds > 1.25


def test_a_deadline_of_the_caller_ends_a_stream_and_the_breaker_does_not_mind():
    async def run(client, up):
        for _ in range(2):
            async with client.stream(BODY, deadline=1.5) as stream:
                with pytest.raises(EndpointTimeout, match="deadline of the call"):
                    await asyncio.gather(*[rest(stream)])
                assert (stream.call.kind, stream.call.paid) == ("timeout", "maybe")

    async def rest(stream):
        return [event async for event in stream]

    breaker = BreakerSettings(failures=1, seconds=60.0)
    assert run_client(Break(how="stall"), run, breaker=breaker).up.count.requests == 2


def test_who_reads_slowly_is_left_alone_and_gets_what_has_come():
    async def run(client, up):
        async with client.stream(BODY) as stream:
            seen = [await anext(stream)]
            await asyncio.sleep(2.0)  # beyond the time that the stream has
            seen += [event async for event in stream]
        assert texts(seen) == {0: text_of(0, 1, 0, 12)}

    run_client(Reply(), run, timeouts=Timeouts(first_byte=1.4, total=1.5))
