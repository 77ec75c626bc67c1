"""A stream gives what its reply would, is counted like it, and shows no key."""

import logging

import pytest
from client_runs import BODY, KEY, run_client
from test_secrets import everything

from adacompute.client import LOGPROBS
from adacompute.errors import EndpointError
from streams import ONCE, chunk, events, read, run_stream, texts
from upstream import Garbage, Honest, Reply, text_of


@pytest.mark.parametrize("cut", [0, 1, 7])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_a_stream_is_what_the_server_sent_and_is_counted_as_it_says(cut, newline):
    done, stream, seen, error = run_stream(Reply(cut=cut, newline=newline))
    assert error is None
    assert seen[-1].data == b"[DONE]"
    assert texts(seen) == {0: text_of(0, 1, 0, 12)}
    assert stream.responses[0].text == text_of(0, 1, 0, 12)
    assert (stream.responses[0].finish_reason, stream.responses[0].tokens) == ("stop", 12)
    call, count = stream.call, done.up.count
    assert (call.kind, call.paid, call.got, call.estimated) == ("ok", "yes", 1, False)
    assert (call.prompt_tokens, call.completion_tokens) == (count.prompt_tokens, count.completion_tokens)
    assert (count.completions, count.choices, count.aborted) == (1, 1, 0)
    (request,) = done.up.requests
    assert request.body == {**BODY, "stream": True, "stream_options": {"include_usage": True}}


def test_several_choices_come_in_one_stream():
    done, stream, seen, _ = run_stream(Reply(pieces=3), {"n": 3, "stream_options": {"x": 1}})
    assert texts(seen) == {i: text_of(0, 1, i, 12) for i in range(3)}
    assert [response.text for response in stream.responses] == list(texts(seen).values())
    assert (stream.call.asked, stream.call.got, stream.call.completion_tokens) == (3, 3, 36)
    assert done.up.count.choices == 3
    assert done.up.requests[0].body["stream_options"] == {"x": 1, "include_usage": True}


def test_log_probabilities_are_summed_and_without_usage_they_count_the_tokens():
    _, stream, _, _ = run_stream(Reply(stream_usage=False), {"logprobs": True, "top_logprobs": 2})
    assert len(stream.responses[0].logprobs["content"]) == 12
    assert stream.responses[0].logprob < 0 < stream.responses[0].entropy
    assert (stream.call.completion_tokens, stream.call.estimated) == (12, True)


def test_without_usage_tokens_are_a_guess_and_said_to_be_one():
    _, stream, _, _ = run_stream(Reply(stream_usage=False))
    assert 9 <= stream.call.completion_tokens <= 15
    assert stream.call.estimated
    assert stream.responses[0].estimated


def test_a_server_that_refuses_stream_options_is_asked_without_once_and_for_all():
    async def run(client, up):
        for _ in range(3):
            async with client.stream(BODY) as stream:
                assert [event async for event in stream][-1].data == b"[DONE]"
                assert stream.call.paid == "yes"

    done = run_client(Honest(stream_options="refuse"), run)
    assert ["stream_options" in request.body for request in done.up.requests] == [True, False, False, False]
    assert done.client.totals.kinds == {"no-stream-options": 1, "ok": 3}


def test_a_server_that_refuses_optional_log_probabilities_is_asked_without():
    done, stream, _, _ = run_stream(Honest(logprobs="refuse"), {"logprobs": True}, optional=LOGPROBS)
    assert [call.kind for call in done.heard] == ["no-logprobs", "ok"]
    assert stream.responses[0].text


@pytest.mark.parametrize("n", [1, 2])
def test_a_plain_completion_is_made_into_events(n):
    done, stream, seen, error = run_stream(Reply(streams=False), {"n": n, "logprobs": True})
    assert error is None
    assert texts(seen) == {i: text_of(0, 1, i, 12) for i in range(n)}
    ends = [c["finish_reason"] for event in seen[:-1] for c in event.value["choices"] if c["finish_reason"]]
    assert ends == ["stop"] * n
    assert seen[-2].value["usage"]["completion_tokens"] == 12 * n
    assert seen[-1].data == b"[DONE]"
    assert (stream.call.got, stream.call.completion_tokens) == (n, 12 * n)
    assert stream.responses[0].logprob < 0
    assert done.client.totals.paid == done.up.count.completions == 1


def test_events_under_another_type_are_events_all_the_same():
    reply = Garbage(raw=events(chunk({"content": "hi"}, finish="stop")).raw, content_type="text/plain")
    assert run_stream(reply)[1].responses[0].text == "hi"


SPELT = "".join(f"\\u{ord(letter):04x}" for letter in KEY)


@pytest.mark.parametrize("said", [KEY, SPELT], ids=["plain", "escaped"])
def test_c21_a_key_that_an_event_quotes_is_masked_in_it(said, caplog):
    caplog.set_level(logging.DEBUG)
    event = '{"choices": [{"index": 0, "delta": {"content": "key %s"}, "finish_reason": "stop"}], "id": "%s"}'
    _, stream, seen, _ = run_stream(events(event % (said, said)), key=KEY)
    assert seen[0].value["choices"][0]["delta"]["content"] == "key ***"
    assert stream.responses[0].text == "key ***"
    assert KEY not in repr(seen) + repr(stream.responses[0]) + caplog.text
    assert SPELT not in repr(seen)


def test_c21_a_key_in_pieces_is_not_in_the_response():
    _, stream, _, _ = run_stream(events(*(chunk({"content": c}) for c in KEY), chunk(finish="stop")), key=KEY)
    assert stream.responses[0].text == "***"


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    "how", [f"no JSON {KEY}", f'{{"error": "{KEY}"}}', f'{{"error": {{"message": "{SPELT}", "code": 400}}}}']
)
def test_c21_a_key_that_a_broken_event_quotes_is_in_no_error(first, how):
    async def run(client, up):
        with pytest.raises(EndpointError) as caught:
            await read(client)
        assert KEY not in everything(caught.value)

    values = [how] if first else [chunk({"content": "a"}), how]
    run_client(events(*values), run, key=KEY, retries=ONCE)


def test_an_event_of_several_lines_or_with_odd_numbers_can_be_passed_on_as_one_line():
    raw = (
        b'data: {"choices": [{"index": 0,\ndata: "delta": {"content": "a"}}]}\n\n'
        b'data: {"x": NaN, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n'
        b"data: [DONE]\n\n"
    )
    _, _, seen, error = run_stream(Garbage(raw=raw, content_type="text/event-stream"))
    assert error is None
    assert seen[0].data == b'{"choices":[{"index":0,"delta":{"content":"a"}}]}'
