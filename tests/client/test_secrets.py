"""A key is sent to its endpoint, and is found nowhere else: no error, record, log or response."""

import asyncio
import base64
import json
import logging
import pickle
import traceback
from urllib.parse import quote, quote_plus

import pytest
from client_runs import BODY, KEY, endpoint, run_client, run_draw

from adacompute.client import Client, DrawSuccess, Endpoint, Retries, Timeouts
from adacompute.client.forward import KeyMask
from adacompute.errors import EndpointError
from upstream import Drop, Garbage, Reply, Stall, Status

ESCAPED = "".join(f"\\u{ord(letter):04x}" for letter in KEY)
ECHOES = [
    Status(code=401, message=f"Incorrect API key provided: {KEY}"),
    Status(code=400, message=f"{'x' * 190}{KEY}"),  # cut where messages are cut
    Status(code=500, message=KEY),
    Status(code=429, message=KEY, retry_after=KEY),
    Status(code=302, message="moved", headers={"Location": f"http://127.0.0.1:9/{KEY}"}),
    Garbage(raw=KEY.encode()),
    Garbage(raw=f'{{"error": "{ESCAPED}"}}'.encode(), code=403),
    Garbage(raw=f'{{"error": "{ESCAPED}"}}'.encode()),
    Garbage(raw=b"x", content_type=f"text/{KEY}"),
    Garbage(whole=f"{KEY} is your key\r\n\r\n".encode()),
    Garbage(whole=f"HTTP/1.1 200 {KEY}\r\nContent-Length: {KEY}\r\n\r\n".encode()),
    Drop(after=100),
    Stall(),
]


def everything(error: BaseException) -> str:
    """All that a careless reader could print of an error, its causes and contexts, locals included."""
    told = []
    seen: list[BaseException] = []
    queue: list[BaseException | None] = [error]
    while queue:
        one = queue.pop()
        if one is None or one in seen:
            continue
        seen.append(one)
        queue += [one.__cause__, one.__context__]
        told += [str(one), repr(one), repr(one.args), repr(vars(one))]
        summary = traceback.TracebackException.from_exception(one, capture_locals=True)
        told += list(summary.format())
    return "\n".join(told)


@pytest.mark.parametrize("echo", ECHOES, ids=range(len(ECHOES)))
def test_c21_a_key_that_a_server_quotes_is_in_no_error_record_or_log(echo, caplog):
    caplog.set_level(logging.DEBUG)
    settings = {
        "key": KEY,
        "retries": Retries(attempts=2, first=0.01, deadline=3.0),
        "timeouts": Timeouts(first_byte=0.2, total=0.3),
    }

    async def run(client, up):
        asyncio.get_running_loop().set_debug(True)
        events = [event async for event in client.draw(BODY, 2)]
        told = [repr(client), repr(client.endpoint), repr(events), repr(client.totals), repr(vars(client))]
        with pytest.raises(EndpointError) as caught:
            await client.call(BODY)
        told.append(everything(caught.value))
        assert KEY not in "\n".join(told)
        assert all(request.headers["authorization"] == f"Bearer {KEY}" for request in up.requests)
        found.extend(events)

    found: list[object] = []
    done = run_client(echo, run, **settings)
    assert not isinstance(found[0], DrawSuccess)
    assert KEY not in repr(done.heard)
    assert KEY not in caplog.text


def test_c21_no_piece_of_a_key_is_left_where_a_message_is_cut():
    done = run_draw(Status(code=400, message="x" * 190 + KEY), 1, key=KEY)
    assert KEY[:8] not in str(done.error)


@pytest.mark.parametrize("escaped", [False, True])
def test_c21_a_key_that_a_model_says_is_in_no_response(escaped, caplog):
    caplog.set_level(logging.DEBUG)
    said = ESCAPED if escaped else KEY
    choice = '{"message": {"content": "my key is %s", "note": ["%s", {"%s": 1}]}, "finish_reason": "%s"}'
    raw = '{"choices": [' + choice % (said, said, said, said) + f'], "id": "{said}"}}'

    async def run(client, up):
        reply = await client.call(BODY)
        assert reply.responses[0].text == "my key is ***"
        assert KEY not in json.dumps(reply.body)
        assert KEY not in repr(reply)
        assert KEY not in repr(reply.responses[0].to_sample())

    run_client(Garbage(raw=raw.encode()), run, key=KEY)
    assert KEY not in caplog.text


def test_c21_a_key_with_signs_that_json_escapes_is_masked_too():
    key = 'sk"\\x/1234'

    async def run(client, up):
        reply = await client.call(BODY)
        assert reply.responses[0].text == "*** it is"
        assert up.requests[0].headers["authorization"] == f"Bearer {key}"

    run_client(Reply(texts=[f"{key} it is"]), run, key=key)


async def test_c21_an_unreachable_endpoint_names_no_key():
    upstream = endpoint("http://127.0.0.1:9/v1", key=KEY, retries=Retries(attempts=1))
    async with Client(upstream) as client:
        with pytest.raises(EndpointError) as caught:
            await client.call(BODY)
        with pytest.raises(EndpointError) as listed:
            await client.models()
    assert KEY not in everything(caught.value) + everything(listed.value)


def test_c21_an_endpoint_with_a_key_is_not_written_anywhere():
    with pytest.raises(TypeError, match="never written"):
        pickle.dumps(endpoint("http://127.0.0.1:9/v1", key=KEY))


def test_c20_redirects_are_not_followed_even_where_the_key_would_be_wanted():
    def script(number, body):
        return Status(code=307, headers={"Location": "/v1/elsewhere"})

    done = run_draw(script, 1, key=KEY)
    assert done.up.count.requests == 1
    assert done.error.status == 307


@pytest.mark.parametrize("key", ["x", "1", "EMPTY", "none", "content", "choices", "42"])
def test_a_dummy_key_changes_no_sample(key):
    text = f"The answer is {key}+1, none of 42 EMPTY choices."

    async def run(client, up):
        reply = await client.call({**BODY, "logprobs": True}, n=2)
        assert [response.text for response in reply.responses] == [text, text]
        assert up.requests[0].headers["authorization"] == f"Bearer {key}"
        (call,) = reply.calls
        assert (call.prompt_tokens, call.completion_tokens) == usage(up)

    def usage(up):
        return up.count.prompt_tokens, up.count.completion_tokens

    run_client(Reply(texts=[text, text]), run, key=key)


@pytest.mark.parametrize("key", ["finish_reason", "completion_tokens", "message_", "12345678"])
def test_a_key_that_is_a_name_or_a_number_of_replies_leaves_their_shape(key):
    usage = {"prompt_tokens": 12345678, "completion_tokens": 3}
    body = {"choices": [{"message": {"content": f"a {key}"}, "finish_reason": "length"}], "usage": usage}

    async def run(client, up):
        reply = await client.call(BODY)
        assert reply.responses[0].text == "a ***"
        assert reply.responses[0].finish_reason == "length"
        assert (reply.calls[0].prompt_tokens, reply.calls[0].completion_tokens) == (12345678, 3)

    run_client(Reply(body=body), run, key=key)


def test_a_short_key_is_masked_in_messages_as_a_word_of_its_own():
    once = Retries(attempts=1)
    done = run_draw(Status(code=401, message="wrong key 'none'; nonesuch"), 1, key="none", retries=once)
    assert "wrong key '***'; nonesuch" in str(done.error)
    done = run_draw(Reply(body={"error": {"message": "wrong key none"}}), 1, key="none", retries=once)
    assert "wrong key ***" in str(done.error)
    done = run_draw(Status(code=401, message="wrong key x"), 1, key="x", retries=once)
    assert "wrong key x" in str(done.error)


@pytest.mark.parametrize("code", [200, 400])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
def test_c21_a_key_is_masked_whatever_the_encoding_of_the_body(encoding, code):
    good = json.dumps({"choices": [{"message": {"content": f"key {KEY}"}}]}).encode(encoding)
    bad = json.dumps({"error": f"key {KEY}"}).encode(encoding)
    done = run_draw(Garbage(raw=good if code == 200 else bad, code=code), 1, key=KEY)
    told = done.responses[0].text if code == 200 else str(done.error)
    assert "key ***" in told
    assert KEY not in repr(done.events)
    plain = run_draw(
        Garbage(raw=f"key {KEY}".encode(encoding), code=code), 1, key=KEY, retries=Retries(attempts=1)
    )
    assert "-canary-" not in str(plain.error).replace("\\x00", "")


ODD_KEY = "aB3/xY9+zz==q"


@pytest.mark.parametrize(
    "form",
    [
        ODD_KEY,
        quote(ODD_KEY, safe=""),
        quote(ODD_KEY, safe="/"),
        quote(ODD_KEY, safe="="),
        quote_plus(ODD_KEY),
        ODD_KEY.replace("/", "\\/"),
        base64.b64encode(ODD_KEY.encode()).decode(),
    ],
)
def test_c21_a_key_is_masked_in_every_form_in_which_an_upstream_may_quote_it(form: str):
    text = f"invalid URL (POST /v1/chat/completions?sig={form}&x=1)"
    endpoint = Endpoint(url="http://h/v1", query={"sig": ODD_KEY})
    assert endpoint.secret is not None
    assert form not in endpoint.secret.mask(text)
    mask = KeyMask(endpoint.secret)
    passed = b"".join(mask.mask(bytes([byte])) for byte in text.encode()) + mask.mask(b"", last=True)
    assert form.encode() not in passed
    assert len(passed) == len(text)
