"""Odd replies: whatever one holds, it costs one call and no more, and what is kept of it can be stored."""

import asyncio
import contextlib
import json
import queue
import threading
import time
from typing import Any

import pytest
from client_runs import BODY, endpoint, run_draw
from yarl import URL

from adacompute.client import Client, Retries
from adacompute.client.rate_limit import AttemptTimer
from adacompute.client.response_parser import HttpReply, SentRequest, interpret_reply
from adacompute.client.server_quirks import ServerQuirks
from adacompute.client.transport import Transport
from adacompute.errors import EndpointError, EndpointUnreachable, ReplyInvalid
from adacompute.records import Secret
from upstream import Garbage, Reply

ONCE = Retries(attempts=1)
GOOD = {"message": {"content": "42"}, "finish_reason": "stop"}


def said(**fields: Any) -> Garbage:
    return Garbage(raw=json.dumps({"choices": [GOOD], **fields}).encode())


@pytest.mark.parametrize("count", [2**53 + 1, 2**63, 10**30, -1, 1.5, "7", True, False])
def test_counts_of_tokens_that_cannot_be_are_taken_as_not_said(count):
    done = run_draw(said(usage={"prompt_tokens": count, "completion_tokens": count}), 1)
    (call,) = done.heard
    assert call.estimated
    assert done.responses[0].tokens == 1
    assert 0 < call.prompt_tokens < 100


def test_logprobs_whose_sum_is_no_number_leave_it_unknown_and_the_text_is_kept():
    for value in (1e308, -(10**400)):
        choice = {**GOOD, "logprobs": {"content": [{"logprob": value}] * 2}}
        done = run_draw(said(choices=[choice]), 1, {**BODY, "logprobs": True})
        sample = done.responses[0].to_sample()
        assert (sample.text, sample.logprob) == ("42", None)


@pytest.mark.parametrize("code", [400, 500, 200])
def test_half_surrogates_in_messages_are_replaced(code):
    raw = b'{"error": {"message": "bad \\ud800 thing, \\ud83d\\ude00"}}'
    done = run_draw(Garbage(raw=raw, code=code), 1, retries=ONCE)
    assert "bad \ufffd thing, 😀" in str(done.error)
    assert str(done.error).encode()


def test_a_limit_of_five_thousand_digits_is_no_reason_to_stop():
    def script(number, body):
        refusal = json.dumps({"error": {"message": "n must be at most " + "9" * 5000}}).encode()
        return Garbage(raw=refusal, code=400) if body.get("n", 1) > 2 else Reply()

    assert len(run_draw(script, 4).responses) == 4


@pytest.mark.parametrize("code", [200, 400])
def test_errors_nested_ever_so_deeply_are_errors_of_one_call(code):
    raw = b'{"error": ' + b"[" * 1000 + b"1" + b"]" * 1000 + b"}"
    done = run_draw(Garbage(raw=raw, code=code), 1, retries=ONCE)
    assert isinstance(done.error, EndpointError)


class Trap(dict):
    """A value that nobody has thought of."""

    def get(self, *_):
        raise ValueError("nobody\nthought of sk-canary-1234")


@pytest.mark.parametrize("status", [200, 400, 500])
def test_what_nobody_has_thought_of_is_a_reply_that_is_invalid_and_may_be_paid(status):
    question = SentRequest(BODY, 1, None, 0.0, 0.0)
    with pytest.raises(ReplyInvalid) as caught:
        interpret_reply(
            question, HttpReply(status, Trap()), key=Secret("sk-canary-1234"), url="u", quirks=ServerQuirks()
        )
    assert caught.value.paid
    assert caught.value.status == status
    assert "ValueError: nobody thought of ***" in str(caught.value)
    assert caught.value.__context__ is None


async def test_a_name_that_the_resolver_cannot_encode_is_unreachable():
    upstream = endpoint("http://127.0.0.1:9/v1")
    object.__setattr__(upstream, "url", "http://a..b/v1")  # past the check of settings

    async with Client(upstream) as client:
        with pytest.raises(EndpointUnreachable) as caught:
            await client.call(BODY, deadline=3.0)
    assert not caught.value.paid


class Talkative:
    """Answers every request, and 20 ms later once more, unasked."""

    def __init__(self) -> None:
        self.connections = 0
        self.unasked = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
                self._write(writer, f"asked, {self.connections}")
                await asyncio.sleep(0.02)
                self._write(writer, "unasked")
                self.unasked += 1
        writer.close()

    def _write(self, writer: asyncio.StreamWriter, text: str) -> None:
        choice = {"message": {"content": text}, "finish_reason": "stop"}
        body = json.dumps({"choices": [choice]}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


def test_a_reply_that_came_while_the_loop_was_busy_is_never_the_next_request_s():
    port: queue.Queue[int] = queue.Queue()
    upstream = Talkative()

    async def serve() -> None:  # in a thread of its own, so that it writes while the client's loop is busy
        server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
        port.put(server.sockets[0].getsockname()[1])
        async with server:
            while upstream.connections < 2:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)

    async def ask() -> list[str]:
        async with Client(endpoint(f"http://127.0.0.1:{port.get()}/v1")) as client:
            first = await client.call(BODY)
            while not upstream.unasked:
                time.sleep(0.01)
            time.sleep(0.05)
            return [reply.responses[0].text for reply in (first, await client.call(BODY))]

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert asyncio.run(ask()) == ["asked, 1", "asked, 2"]
    thread.join()


def test_a_closed_client_connects_to_nothing():
    async def ask() -> int:
        upstream = Talkative()
        server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        async with server:
            transport = Transport(endpoint(url))
            await transport.close()
            with pytest.raises(EndpointUnreachable, match="closed"):
                await transport.exchange(URL(url), AttemptTimer(transport.endpoint, 1e9), b"{}")
        return upstream.connections

    assert asyncio.run(ask()) == 0
